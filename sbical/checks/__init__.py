"""Trust checks: may these ranges be used, why not, and what next."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points

from sbical.checks import (
    contraction,
    correction,
    expected_coverage,
    identified,
    lc2st,
    predictive_coverage,
    prior_edges,
    replay_error,
    residuals,
    sbc,
    simulation_failures,
    support,
    tarp,
)
from sbical.checks.base import Check, Evidence, Finding, Status, Verdict
from sbical.errors import SbicalError

__all__ = ["BUILT_IN", "Check", "Evidence", "Finding", "Status", "Verdict", "judge", "registered"]

#: In the order in which a report reads: is the robot in the model's world, what was learned, does it hold up.
BUILT_IN: tuple[Check, ...] = (
    support,
    prior_edges,
    contraction,
    identified,
    residuals,
    replay_error,
    predictive_coverage,
    correction,
    sbc,
    tarp,
    expected_coverage,
    lc2st,
    simulation_failures,
)


def registered() -> dict[str, Check]:
    """All checks by name: the built-in ones, then those of installed packages (entry point group ``sbical.checks``).

    Raises SbicalError if two checks have the same name.
    """
    checks = {c.NAME: c for c in BUILT_IN}
    for point in entry_points(group="sbical.checks"):
        check: Check = point.load()
        if checks.setdefault(check.NAME, check) is not check:
            raise SbicalError(f"two checks are called '{check.NAME}'; rename the one at {point.value} or uninstall its package")
    return checks


def judge(evidence: Evidence, checks: Sequence[Check] | None = None) -> Verdict:
    """Run all registered checks, or the given ones, on the evidence; those that do not apply to it are left out."""
    chosen = list(registered().values()) if checks is None else checks
    return Verdict(tuple(c.check(evidence) for c in chosen if getattr(c, "applies", _always)(evidence)))


def _always(_: Evidence) -> bool:
    return True
