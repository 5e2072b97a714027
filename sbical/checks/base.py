"""What a trust check sees, what it says, and the verdict all of them add up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from sbical.errors import OutputError
from sbical.inference.importance_weights import ImportanceWeights
from sbical.simulation.replay import Replay, Reproduction

Status = Literal["pass", "warn", "fail"]

#: What chance alone may do to an exact posterior, per statistical check. There are six of them (support, residuals,
#: sbc, tarp, expected_coverage, lc2st): at most 6 % of exact posteriors are warned about and 0.6 % fail, whatever the checks share
#: (Bonferroni); where the likelihood is explicit only the first two apply, so 2 %. Simulations are too few to resolve FAIL_P in
#: support and residuals, which fail far beyond all of them instead; benchmarks/checks.py and misspecification.py measure.
WARN_P, FAIL_P = 0.01, 0.001
#: What makes a significant deviation matter: coverage of a 90 % range (0.8: sd too small by 22 %), and the share of truths on one
#: side of the median (0.65: off by 0.4 sd). No trained network is exact: with enough simulations p alone would fail every one.
COVERAGE, SIDE = 0.8, 0.65
#: Fresh simulations below which a test of calibration says little.
ENOUGH = 200

#: From best to worst; a verdict is as bad as its worst check.
STATUSES: tuple[Status, ...] = ("pass", "warn", "fail")
MARKS: Mapping[str, str] = {"pass": "✓", "warn": "!", "fail": "✗"}
MEANING: Mapping[str, str] = {
    "pass": "every check passed",
    "warn": "usable, knowing the points below",
    "fail": "do not use: the ranges cannot be trusted",
}


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was measured, against what, where that comes from, and what to do about it."""

    name: str
    status: Status
    figure: str
    threshold: str
    source: str
    remedy: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything the checks look at. N prior draws, n posterior draws, d parameters, k summary features, L draws per truth.

    ``*_u`` are in the prior's unconstrained coordinates, ``prior`` and ``posterior`` in SI units. The m fresh
    simulations come from the prior and were never seen by the estimator; rows that failed are left out of them.
    ``*_log_q`` are log densities under the estimator given the same simulation, of its truth and of its draws (in
    unconstrained coordinates). ``outside`` marks the features that measure what the summary's components do not hold: log RMS
    energies [nats].
    ``holdout`` has posterior draws with noise; ``holdout_before`` and ``holdout_after`` one noise-free draw each, of the
    prior median and of the posterior median. ``fitted`` and ``unseen`` are draws with and without noise, on the windows that were
    learned from and on the held-out ones (there with starts known less well than measured). ``importance`` are the weights of a
    posterior that an explicit likelihood corrected; its estimator is not judged by itself, so there are no draws for fresh
    simulations. ``failed_fraction`` is the share of all simulations that failed.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    prior_u: np.ndarray  # (N, d)
    posterior_u: np.ndarray  # (n, d)
    prior: np.ndarray  # (N, d)
    posterior: np.ndarray  # (n, d)
    prior_interval: tuple[np.ndarray, np.ndarray]  # (d,), (d,): 90 %
    x_o: np.ndarray  # (k,)
    residual_features: np.ndarray  # (k,) bool
    x_fresh: np.ndarray  # (m, k)
    theta_u_fresh: np.ndarray  # (m, d)
    fresh_draws_u: np.ndarray  # (m, L, d)
    fresh_log_q: np.ndarray  # (m,)
    fresh_draws_log_q: np.ndarray  # (m, L)
    x_train: np.ndarray  # (n_t, k)
    importance: ImportanceWeights | None
    holdout: Replay | None
    holdout_before: Replay | None
    holdout_after: Replay | None
    fitted: Reproduction | None
    unseen: Reproduction | None
    failed_fraction: float


class Check(Protocol):
    """A module or object; outside packages offer theirs through the entry point group ``sbical.checks``.

    A check that needs what not every route has may define ``applies(evidence) -> bool`` and is left out where that is False.
    """

    @property
    def NAME(self) -> str:
        """What the finding is called; a constant of the module."""
        ...

    def check(self, evidence: Evidence) -> Finding:
        """Judge the evidence; pure, and with a remedy unless the status is "pass"."""
        ...


@dataclass(frozen=True)
class Verdict:
    """All findings. ``str(verdict)`` reads line by line; there is no truth value: ask for ``trustworthy``."""

    checks: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst status of any check."""
        return STATUSES[max((STATUSES.index(f.status) for f in self.checks), default=0)]

    @property
    def trustworthy(self) -> bool:
        """True unless a check failed; a warning is usable by someone who has read it."""
        return self.status != "fail"

    def __str__(self) -> str:
        lines = [f"verdict: {self.status} ({MEANING[self.status]})"]
        width = max((len(f.name) for f in self.checks), default=0)
        for finding in self.checks:
            lines.append(f"  {MARKS[finding.status]} {finding.status}  {finding.name:<{width}}  {finding.figure}")
            if finding.status != "pass":
                lines.append(f"            limit: {finding.threshold}")
                lines.append(f"            do: {finding.remedy}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for verdict.json; values that are not finite become null, as JSON has none."""
        checks = [asdict(f) | {"values": {k: v if math.isfinite(v) else None for k, v in f.values.items()}} for f in self.checks]
        return {"status": self.status, "trustworthy": self.trustworthy, "checks": checks}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """What ``to_dict`` gave. Raises OutputError for anything else."""
        try:
            checks = tuple(_finding(item) for item in data["checks"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise OutputError(f"not a verdict of sbical ({error!r}); give the verdict.json of a run, or calibrate again") from error
        return cls(checks)


def _finding(item: Mapping[str, Any]) -> Finding:
    if item["status"] not in STATUSES:
        raise ValueError(f"status '{item['status']}' is none of {', '.join(STATUSES)}")
    values = {k: math.nan if v is None else float(v) for k, v in item["values"].items()}
    text = {k: str(item[k]) for k in ("name", "figure", "threshold", "source", "remedy")}
    return Finding(status=item["status"], values=values, **text)


def calibration_status(p: float, matters: bool, simulations: int) -> Status:
    """Status of a test of calibration: what is significant warns, and fails where it also ``matters``; so do too few simulations."""
    if p < WARN_P:
        return "fail" if p < FAIL_P and matters else "warn"
    return "warn" if simulations < ENOUGH else "pass"


def has_draws(evidence: Evidence) -> bool:
    """Whether the estimator answered for fresh simulations, and so whether its calibration can be tested."""
    return evidence.fresh_draws_u.size > 0


def worst(*statuses: Status) -> Status:
    """The worst of several statuses."""
    return max(statuses, key=STATUSES.index)


def percent(share: float, decimals: int = 0) -> str:
    """0.123 as "12 %"."""
    return f"{100 * share:.{decimals}f} %"


def plain(value: float) -> str:
    """0.1234 as "0.12"."""
    return f"{value:.2f}"


def listed(items: Mapping[str, float], show: Callable[[float], str] = plain) -> str:
    """``{name: value}`` as "name 0.12, other 0.34"."""
    return ", ".join(f"{name} {show(value)}" for name, value in items.items())
