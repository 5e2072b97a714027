"""Did the importance weights correct the estimator, or do a few draws carry everything?"""

from __future__ import annotations

from sbical.checks.base import Evidence, Finding, Status, percent
from sbical.inference.importance_weights import K_HAT, LEAST_EFFICIENCY, NEARLY_EQUAL

NAME = "correction"

#: Below this many effective draws the tails of the ranges are noise.
ENOUGH_DRAWS = 200.0

THRESHOLD = (
    f"fail: efficiency below {percent(LEAST_EFFICIENCY)}, or Pareto k-hat above {K_HAT:g} at an efficiency below {percent(NEARLY_EQUAL)}; "
    f"warn: fewer than {ENOUGH_DRAWS:g} effective draws"
)
SOURCE = (
    "Pareto-smoothed importance sampling: above k-hat 0.7 estimates cannot be trusted (Vehtari et al. 2024, JMLR 25(72)); 200 effective "
    "draws know a 5 % quantile to +-1.5 %. A mode that no draw has seen shows in neither figure; several starts look for those."
)
REMEDY = (
    "give more simulations; if that does not help, look for a parameter at the edge of its prior or a motion that the model cannot follow"
)


def applies(evidence: Evidence) -> bool:
    """Only where there is an explicit likelihood to correct with."""
    return evidence.importance is not None


def check(evidence: Evidence) -> Finding:
    """Efficiency and tail of the weights."""
    weights = evidence.importance
    if weights is None:
        raise ValueError("check 'correction' needs importance weights; ask applies() first")
    status: Status = "fail" if not weights.trustworthy else "warn" if weights.size < ENOUGH_DRAWS else "pass"
    figure = (
        f"efficiency {percent(weights.efficiency)}, {weights.size:.0f} effective draws, k-hat {weights.k_hat:.2f}; "
        f"log evidence {weights.log_evidence:.2f} ± {weights.evidence_error:.2f} nats"
    )
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, "" if status == "pass" else REMEDY, weights.figures)
