"""Which parameters did the recordings say anything about?"""

from __future__ import annotations

from sbical.checks.base import Evidence, Finding, Status, listed
from sbical.common.statistics import contraction

NAME = "contraction"

#: Below this contraction a range is the prior's: the posterior sd is more than 95 % of the prior's.
IDENTIFIED = 0.1

THRESHOLD = f"1 - Var(posterior)/Var(prior): warn for a parameter below {IDENTIFIED:g}, fail when no parameter reaches it"
SOURCE = (
    "Posterior contraction: Schad, Betancourt and Vasishth 2021. Reasoned limit: at 0.1 the posterior sd is still 95 % of the prior's, "
    "within what an estimator trained on thousands of simulations gets wrong."
)


def check(evidence: Evidence) -> Finding:
    """Contraction of every parameter, of the marginal prior scores: Φ⁻¹ of the prior's CDF."""
    each = dict(zip(evidence.names, contraction(evidence.prior, evidence.posterior).tolist(), strict=True))
    unknown = [n for n, c in each.items() if c < IDENTIFIED]
    status: Status = "pass" if not unknown else "fail" if len(unknown) == len(each) else "warn"
    figure = listed(dict(sorted(each.items(), key=lambda item: item[1])))
    remedy = ""
    if status == "fail":
        remedy = (
            "nothing was learned: record motions that excite these effects, or look at the other checks for a recording that was misread"
        )
    elif status == "warn":
        remedy = (
            f"{', '.join(unknown)} not identified by these motions; the range is the prior's: keep it as that, fix the value from a data "
            "sheet, or record motions that excite it (faster, slower, with payload)"
        )
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, remedy, each)
