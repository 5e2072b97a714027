"""Does the robot's summary look like a simulation's: its distance within the summary space, and its residual outside of it?

Inside the summary space (Hotelling's T²): a motion of the kind that is simulated, but farther than any. Outside of it (Q, the
squared prediction error): a motion that no combination of simulated ones makes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.covariance import LedoitWolf

from sbical.checks.base import WARN_P, Evidence, Finding, Status, percent, worst

NAME = "support"

#: False alarms of each of the two statistics; together at most WARN_P.
EACH = WARN_P / 2
#: Fail beyond this multiple of what 99 % of simulations stay within: of the distance inside, of the RMS outside.
FAIL_RATIO = 3.0
#: Where noise has a wide prior, three times the RMS is not rare: a failure outside also needs this multiple of the 99 % distance.
RARE = 1.25
#: Training rows that the covariance is estimated from, and the deviation beyond which a feature is clipped there.
ROWS, CLIP = 5000, 6.0

THRESHOLD = (
    f"inside (T²) and outside (Q) the summary space, each: warn when the robot lies farther out than {percent(1 - EACH, 1)} of fresh "
    f"simulations; fail when also beyond {FAIL_RATIO:g} times what 99 % of them stay within: the distance (inside), the residual RMS "
    f"(outside, and {RARE:g} times the distance)"
)
SOURCE = (
    "A network answers without complaint outside the data it was trained on (Cannon, Ward and Schmon 2022; Schmitt et al. 2021). T² and "
    "Q: Jackson and Mudholkar 1979, with thresholds from simulations that nothing was fitted to; each at 0.5 %, so that chance alone "
    "warns at most once in 100 (Bonferroni; with fewer than 199 simulations, farther than all of them). Real robots lie somewhat outside "
    "every model, so that alone warns; at three times the 99 % limit the answer is extrapolation (reasoned limit)."
)
INSIDE = "the robot moves as simulations do, but farther: widen the priors, and check units, signs and column order of the recordings"
OUTSIDE = (
    "the robot moves as no simulation does: add the missing effect (friction that depends on load, backlash, delay, a disturbance torque), "
    "and check units, signs and column order of the recordings"
)
QUIET = (
    "the robot's signals hold less noise than any simulation: lower the priors of noise and disturbance, or look for a filter in the log"
)


class _Part(NamedTuple):
    """One of the two statistics: p-value, distance over the 99 % limit, and the feature that deviates most [sd]."""

    p: float
    ratio: float
    feature: int
    z: float


def check(evidence: Evidence) -> Finding:
    """Mahalanobis distances of x_o (shrunk, robust covariance of x_train) among those of the fresh simulations, inside and outside."""
    if not np.isfinite(evidence.x_o).all():
        bad = np.flatnonzero(~np.isfinite(evidence.x_o))
        figure = f"{len(bad)} of {len(evidence.x_o)} summary features of the observation are not finite (first: feature {bad[0]})"
        return Finding(NAME, "fail", figure, THRESHOLD, SOURCE, f"check the recordings for values that are missing; {OUTSIDE}")
    status: Status = "pass"
    figures, remedies, values = [], [], {}
    least = max(EACH, 1 / (1 + len(evidence.x_fresh)))
    for label, features in (
        ("inside", np.flatnonzero(~evidence.residual_features)),
        ("outside", np.flatnonzero(evidence.residual_features)),
    ):
        if not len(features):
            continue
        part = _part(evidence, features)
        loud = label == "inside" or part.z > 0
        # energies are logarithms: their distance says how unusual they are, their excess how much there is
        extent = part.ratio if label == "inside" else _excess(evidence, features)
        if part.p <= least:
            status = worst(status, "fail" if extent > FAIL_RATIO and part.ratio > RARE else "warn")
            remedies.append(INSIDE if label == "inside" else OUTSIDE if loud else QUIET)
        times = f"distance {part.ratio:.2f}" if label == "inside" else f"residual RMS {extent:.2f}"
        share = percent(_share(part.p, len(evidence.x_fresh)), 1)
        figures.append(
            f"{label} the summary space: {share} of {len(evidence.x_fresh)} fresh simulations lie farther out, {times} of the 99 % limit, "
            f"largest deviation {part.z:+.1f} sd (summary {part.feature})"
        )
        values |= {f"{label}.p": part.p, f"{label}.ratio": extent, f"{label}.feature": float(part.feature), f"{label}.z": part.z}
    return Finding(NAME, status, "; ".join(figures), THRESHOLD, SOURCE, "; ".join(remedies), values)


def _part(evidence: Evidence, features: np.ndarray) -> _Part:
    train = evidence.x_train[:, features]
    centre, scale = _centre_and_scale(train)
    z_train, z_fresh, z_o = ((x - centre) / scale for x in (train, evidence.x_fresh[:, features], evidence.x_o[None, features]))
    rows = z_train[np.linspace(0, len(z_train) - 1, min(len(z_train), ROWS)).astype(int)]
    model = LedoitWolf().fit(np.clip(rows, -CLIP, CLIP))
    fresh, own = np.sqrt(model.mahalanobis(z_fresh)), float(np.sqrt(model.mahalanobis(z_o)[0]))
    largest = int(np.argmax(np.abs(z_o[0])))
    p = float((1 + np.sum(fresh >= own)) / (1 + len(fresh)))
    return _Part(p, own / float(np.quantile(fresh, 0.99)), int(features[largest]), float(z_o[0, largest]))


def _share(p: float, m: int) -> float:
    """Share of m simulations that lie farther out, from p = (1 + number) / (1 + m)."""
    return (p * (1 + m) - 1) / m


def _excess(evidence: Evidence, features: np.ndarray) -> float:
    """Largest residual RMS over that which 99 % of fresh simulations stay within; features are logarithms of RMS."""
    above = evidence.x_o[features] - np.quantile(evidence.x_fresh[:, features], 0.99, axis=0)
    return float(np.exp(min(above.max(), 700.0)))


def _centre_and_scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(k,), (k,): median and 1.4826 MAD; the standard deviation where more than half of a feature is one value.

    A feature that never varies gets a scale of rounding size: an observation that differs there is far outside.
    """
    centre = np.median(x, axis=0)
    scale = 1.4826 * np.median(np.abs(x - centre), axis=0)
    scale = np.where(scale > 0, scale, x.std(axis=0))
    return centre, np.where(scale > 0, scale, 1e-9 * np.maximum(np.abs(centre), 1.0))
