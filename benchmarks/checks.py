"""How often the statistical checks warn and fail, on posteriors of known quality.

The toy of the tests (linear Gaussian, 4 parameters, 300 fresh simulations, 200 draws of each): its exact posterior, the same
with a standard deviation 1.5 times too small or too large, and moved by half a standard deviation. The robot is one more
simulation from the prior. ``warn`` and ``fail`` are shares of posteriors, ``any`` of all checks together.

    python benchmarks/checks.py --json
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import Timer, finish, options

from sbical.checks import expected_coverage, judge, lc2st, sbc, support, tarp
from sbical.checks.base import Check, Evidence

CHECKS: tuple[Check, ...] = (support, sbc, tarp, expected_coverage, lc2st)
KINDS: dict[str, dict[str, float]] = {
    "exact": {},
    "over_confident": {"factor": 1 / 1.5},
    "biased": {"shift": 0.5},
    "conservative": {"factor": 1.5},
}


def toy() -> Any:
    """The module that the tests make their evidence with."""
    path = Path(__file__).resolve().parents[1] / "tests" / "checks" / "conftest.py"
    spec = importlib.util.spec_from_file_location("toy", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot read {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def robot(full: Evidence) -> Evidence:
    """The last fresh simulation taken for the robot, and left out of the others."""
    rest = {name: getattr(full, name)[:-1] for name in ("x_fresh", "theta_u_fresh", "fresh_draws_u", "fresh_log_q", "fresh_draws_log_q")}
    return replace(full, x_o=full.x_fresh[-1], posterior_u=full.fresh_draws_u[-1], **rest)


def rates(build: Any, wrong: dict[str, float], seeds: range) -> dict[str, dict[str, float]]:
    """Shares of warnings and failures by check."""
    found: dict[str, list[str]] = {c.NAME: [] for c in CHECKS} | {"any": []}
    for seed in seeds:
        verdict = judge(robot(build(seed, fresh=301, **wrong)), CHECKS)
        for finding in verdict.checks:
            found[finding.name].append(finding.status)
        found["any"].append(verdict.status)
    return {name: {s: round(statuses.count(s) / len(statuses), 4) for s in ("warn", "fail")} for name, statuses in found.items()}


def main() -> None:
    """Command line."""
    arguments = options(__doc__).parse_args()
    timer, build = Timer(), toy().build
    exact, wrong = (range(20), range(5)) if arguments.quick else (range(400), range(50))
    figures = {kind: rates(build, change, wrong if change else exact) for kind, change in KINDS.items()}
    finish("checks", figures, [0], timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
