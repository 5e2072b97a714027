"""How many simulations failed, and so how much of the prior was never seen?"""

from __future__ import annotations

from sbical.checks.base import Evidence, Finding, Status, percent

NAME = "simulation_failures"

WARN, FAIL = 0.02, 0.2

THRESHOLD = f"share of simulations that failed: warn > {percent(WARN)}, fail > {percent(FAIL)}"
SOURCE = (
    "Reasoned: failed draws are left out of training, so the prior in use is the declared one without them; at a share f it differs by "
    "f in total variation, and with it, at worst, the posterior's probabilities."
)
REMEDY = "narrow the priors to values at which the simulator is stable, or lower the timestep; the run's notes say why simulations failed"


def check(evidence: Evidence) -> Finding:
    """Share of failed simulations."""
    share = evidence.failed_fraction
    status: Status = "fail" if not share <= FAIL else "warn" if share > WARN else "pass"
    figure = f"{percent(share, 1)} of simulations failed"
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, "" if status == "pass" else REMEDY, {"failed_fraction": share})
