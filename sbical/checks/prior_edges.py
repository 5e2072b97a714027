"""Does the posterior pile up at an edge of the prior?"""

from __future__ import annotations

import numpy as np

from sbical.checks.base import Evidence, Finding, Status, listed, percent, worst

NAME = "prior_edges"

#: Prior mass of an edge, and the posterior mass there that warns or fails.
EDGE, WARN, FAIL = 0.025, 0.25, 0.5
#: A low edge below this share of the high one is as good as zero: piling up there says "the effect is absent".
NEGLIGIBLE = 0.05

THRESHOLD = (
    f"posterior mass in the outer {percent(EDGE, 1)} of the prior on either side: warn > {percent(WARN)}, fail > {percent(FAIL)} "
    "(warn only, where the edge is practically zero)"
)
SOURCE = (
    "Reasoned: the prior itself has 2.5 % there. Ten times as much says that the recordings pull against the edge; with the "
    "median beyond it the true value may lie outside every draw. Prior-data conflict: Evans and Moshonov 2006."
)


def check(evidence: Evidence) -> Finding:
    """Share of posterior draws beyond the prior's 2.5 % and 97.5 % quantiles, per parameter and side."""
    edges = np.quantile(evidence.prior_u, [EDGE, 1 - EDGE], axis=0)
    low, high = (evidence.posterior_u < edges[0]).mean(axis=0), (evidence.posterior_u > edges[1]).mean(axis=0)
    bottom, top = np.quantile(evidence.prior, [EDGE, 1 - EDGE], axis=0)
    status: Status = "pass"
    remedies: list[str] = []
    for i, name in enumerate(evidence.names):
        side, mass = ("low", low[i]) if low[i] >= high[i] else ("high", high[i])
        absent = side == "low" and 0 <= bottom[i] < NEGLIGIBLE * top[i]
        if mass > WARN:
            status = worst(status, "fail" if mass > FAIL and not absent else "warn")
            remedies.append(_remedy(name, side, bottom[i] if side == "low" else top[i], evidence.units[i], absent))
    masses = np.maximum(low, high)
    order = np.argsort(masses)[::-1]
    sides = {f"{evidence.names[i]} ({'low' if low[i] >= high[i] else 'high'} edge)": float(masses[i]) for i in order}
    crowded = {k: v for k, v in sides.items() if v > WARN}
    first = dict(list(sides.items())[:1])
    figure = (
        f"posterior mass at an edge of the prior: {listed(crowded, percent)}"
        if crowded
        else f"largest mass at an edge: {listed(first, percent)}"
    )
    values = {f"{n}.{side}": float(m[i]) for i, n in enumerate(evidence.names) for side, m in (("low", low), ("high", high))}
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, "; ".join(remedies), values)


def _remedy(name: str, side: str, edge: float, unit: str, absent: bool) -> str:
    if absent:
        return f"'{name}' is close to zero: lower its prior or leave the effect out"
    way = "below" if side == "low" else "above"
    return f"widen the prior of '{name}' {way} {edge:.3g} {unit}, or look for an effect that it stands in for"
