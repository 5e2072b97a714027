"""Is a robot that the model cannot express flagged, and is one that it can express left alone?

SIMULATED STAND-INS of benchmarks/misfits.py: truths drawn from the prior of the six-parameter servo, each robot with one thing wrong
that the model lacks (or nothing), logging two motions of 2 s at 500 Hz. The first is calibrated by the local route, the second held out.

A robot is *flagged* if any of the checks that hold the robot against the model warns or fails: support, residuals, replay_error,
predictive_coverage. The same rule counts detections and false alarms. Not counted: prior_edges, contraction and identified (they say
what was learned, and warn by design of a truth near a bound of its prior or of a parameter that the motion does not excite), correction
(it says whether the budget sufficed, here a third of the default, with --quick a ninth) and simulation_failures; ``any check`` in the
table counts all. A calibration that ends with an error that names what to look at counts as flagged, and is reported apart.
``misfit`` is the RMS that the misfit moves the readings by, over the encoder noise: where it is far below one, the log hardly holds
what is asked for. ``lost`` counts calibrations that failed ``correction``: what they found is not
the model's posterior, so that their replays are wrong whatever the robot; ``false_alarm_rate_found`` leaves them out.

    python benchmarks/misspecification.py --json
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from common import Timer, finish, options
from distributed import Client
from misfits import KINDS, MOTIONS, TIME, Truth, log
from servo_posterior import ROBOT

import sbical
from sbical.checks import correction, predictive_coverage, replay_error, residuals, support
from sbical.errors import SimulationError
from sbical.priors.prior import Prior
from sbical.recordings.recording import Recording
from sbical.simulation.cluster import cluster
from sbical.simulation.simulator import Simulator

COUNTED = tuple(c.NAME for c in (support, residuals, replay_error, predictive_coverage))
#: Simulations of each calibration.
BUDGET = 5000
WELL_SPECIFIED = "none"


@dataclass(frozen=True)
class Outcome:
    """What one calibration said: status by check, or the error that ended it."""

    kind: str
    seed: int
    statuses: dict[str, str]
    error: str
    misfit: float
    seconds: float

    @property
    def lost(self) -> bool:
        """Whether the calibration itself failed: its weights correct nothing, so the posterior is not the model's."""
        return self.statuses.get(correction.NAME) == "fail"

    @property
    def flagged(self) -> bool:
        """Whether a user is told."""
        return bool(self.error) or any(self.statuses[name] != "pass" for name in COUNTED)


def recording(name: str, motion: int, position: np.ndarray) -> Recording:
    """A log of the command and the encoder."""
    nodes = {"/": xr.Dataset()}
    for stream, value in (("goal", MOTIONS[motion]), ("position", position)):
        nodes[stream] = xr.Dataset({"value": ("time", value)}, coords={"time": TIME})
    return Recording(name, xr.DataTree.from_dict(nodes, name=name), (), f"{name}.csv")


def robot(simulator: Simulator, prior: Prior, kind: str, seed: int, client: Client, budget: int = BUDGET) -> Outcome:
    """Calibrate one robot."""
    truth = Truth(**dict(zip(prior.names, prior.sample(1, 2000 + seed)[0].tolist(), strict=True)))
    logs = [log(truth, kind, motion, seed) for motion in (0, 1)]
    moved = [log(replace(truth, encoder_noise=0.0), k, m, seed) for k in (kind, WELL_SPECIFIED) for m in (0, 1)]
    misfit = np.sqrt(np.mean((np.stack(moved[:2]) - np.stack(moved[2:])) ** 2)) / truth.encoder_noise
    learned, held = (recording(f"motion{m + 1}", m, logs[m]) for m in (0, 1))
    began = time.perf_counter()
    try:
        found = sbical.calibrate(simulator, prior, [learned], holdout=[held], client=client, simulations=budget, seed=seed)
    except SimulationError as error:
        return Outcome(kind, seed, {}, str(error), float(misfit), time.perf_counter() - began)
    statuses = {f.name: f.status for f in found.verdict.checks}
    for finding in found.verdict.checks:
        if finding.name == residuals.NAME:
            print(f"    {finding.status}: {finding.figure}")
    return Outcome(kind, seed, statuses, "", float(misfit), time.perf_counter() - began)


def line(outcome: Outcome) -> str:
    """One robot in words."""
    odd = ", ".join(f"{n} {s}" for n, s in outcome.statuses.items() if s != "pass")
    said = f"error: {outcome.error}" if outcome.error else odd or "pass"
    flag = "flagged" if outcome.flagged else "-"
    return f"{outcome.kind} {outcome.seed}: {flag} (misfit {outcome.misfit:.2g}; {outcome.seconds:.0f} s): {said}"


def row(kind: str, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Shares of one kind's robots."""
    mine = [o for o in outcomes if o.kind == kind]
    by_check: Counter[str] = Counter(n for o in mine for n, s in o.statuses.items() if s != "pass")
    fails = sum("fail" in [o.statuses[n] for n in COUNTED if n in o.statuses] for o in mine)
    return {
        "robots": len(mine), "flagged": round(float(np.mean([o.flagged for o in mine])), 3), "fail": round(fails / len(mine), 3),
        "any check": round(float(np.mean([bool(o.error) or set(o.statuses.values()) != {"pass"} for o in mine])), 3),
        "errors": sum(bool(o.error) for o in mine), "lost": sum(o.lost for o in mine),
        "misfit": round(float(np.median([o.misfit for o in mine])), 3),
        "checks": dict(by_check.most_common()),
    }  # fmt: skip


def main() -> None:
    """Command line."""
    parser = options(__doc__)
    parser.add_argument("--robots", type=int, default=10, help="robots of each kind (default 10)")
    parser.add_argument("--well-specified", type=int, default=40, help="robots of the model's class (default 40)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first robot")
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, WELL_SPECIFIED], choices=[*KINDS, WELL_SPECIFIED], help="only these")
    arguments = parser.parse_args()
    counts = {k: arguments.well_specified if k == WELL_SPECIFIED else arguments.robots for k in arguments.kinds}
    if arguments.quick:
        counts = dict.fromkeys(("backlash", WELL_SPECIFIED), 1)
    simulator, timer = sbical.load_simulator(ROBOT), Timer()
    prior = sbical.load_prior(ROBOT / "prior.toml").restricted(simulator.parameters)
    outcomes: list[Outcome] = []
    with cluster(workers=2) as client:
        # every kind by turns, so that a run that is cut short holds some of each
        for kind, n in sorted(((k, n) for k, count in counts.items() for n in range(count)), key=lambda job: job[1]):
            outcomes.append(robot(simulator, prior, kind, arguments.first + n, client, 1500 if arguments.quick else BUDGET))
            print(line(outcomes[-1]), flush=True)
    table = {kind: row(kind, outcomes) for kind in counts}
    for kind, figures in table.items():
        print(f"{kind:<14} {figures}")
    wrong = [o.flagged for o in outcomes if o.kind != WELL_SPECIFIED]
    rates = [float(np.mean([o.flagged for o in outcomes if o.kind == k])) for k in counts if k != WELL_SPECIFIED]
    plain = [o for o in outcomes if o.kind == WELL_SPECIFIED]
    right, found = [o.flagged for o in plain], [o.flagged for o in plain if not o.lost]
    figures = {
        "detection_rate": round(float(np.mean(wrong)), 3) if wrong else None,
        "worst_kind_rate": round(min(rates), 3) if rates else None,
        "false_alarm_rate": round(float(np.mean(right)), 3) if right else None,
        "false_alarm_rate_found": round(float(np.mean(found)), 3) if found else None,
        "kinds": table,
    }
    finish("misspecification", figures, sorted({o.seed for o in outcomes}), timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
