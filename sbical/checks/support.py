"""Is the robot's observation one that the simulator could have produced?"""

from __future__ import annotations

import numpy as np
from sklearn.covariance import LedoitWolf

from sbical.checks.base import Evidence, Finding, Status, percent

NAME = "support"

#: Below this share of fresh simulations farther out than the robot: a warning.
WARN_SHARE = 0.01
#: Beyond this multiple of the distance that 99 % of simulations stay within: fail.
FAIL_RATIO = 3.0
#: Training rows that the covariance is estimated from, and the deviation beyond which a feature is clipped there.
ROWS, CLIP = 5000, 6.0

THRESHOLD = (
    f"warn when fewer than {percent(WARN_SHARE)} of fresh simulations lie farther out; "
    f"fail beyond {FAIL_RATIO:g} times the distance that 99 % of them stay within"
)
SOURCE = (
    "A network answers without complaint outside the data it was trained on (Cannon, Ward and Schmon 2022; Schmitt et al. 2021). "
    "Real robots lie somewhat outside every model, so that alone warns; at three times the 99 % distance the answer is "
    "extrapolation (reasoned limit)."
)
REMEDY = (
    "widen the priors, add the missing effect (friction that depends on load, backlash, delay, a disturbance torque), "
    "and check units, signs and column order of the recordings"
)


def check(evidence: Evidence) -> Finding:
    """Mahalanobis distance of x_o (shrunk, robust covariance of x_train) among those of the fresh simulations."""
    if not np.isfinite(evidence.x_o).all():
        bad = np.flatnonzero(~np.isfinite(evidence.x_o))
        figure = f"{len(bad)} of {len(evidence.x_o)} summary features of the observation are not finite (first: feature {bad[0]})"
        return Finding(NAME, "fail", figure, THRESHOLD, SOURCE, REMEDY)
    center, scale = _center_and_scale(evidence.x_train)
    z_train, z_fresh, z_o = ((x - center) / scale for x in (evidence.x_train, evidence.x_fresh, evidence.x_o[None]))
    rows = z_train[np.linspace(0, len(z_train) - 1, min(len(z_train), ROWS)).astype(int)]
    model = LedoitWolf().fit(np.clip(rows, -CLIP, CLIP))
    fresh, own = np.sqrt(model.mahalanobis(z_fresh)), float(np.sqrt(model.mahalanobis(z_o)[0]))
    share = float(np.mean(fresh >= own))
    ratio = own / float(np.quantile(fresh, 0.99))
    status: Status = "fail" if ratio > FAIL_RATIO else "warn" if share < WARN_SHARE else "pass"
    feature = int(np.argmax(np.abs(z_o[0])))
    figure = (
        f"{percent(share, 1)} of {len(fresh)} fresh simulations lie farther out; distance {ratio:.2f} of the 99 % limit; "
        f"largest single deviation {z_o[0, feature]:+.1f} sd (summary {feature})"
    )
    values = {"share_farther": share, "ratio": ratio, "worst_feature": float(feature), "worst_z": float(z_o[0, feature])}
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, "" if status == "pass" else REMEDY, values)


def _center_and_scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(k,), (k,): median and 1.4826 MAD; the standard deviation where more than half of a feature is one value.

    A feature that never varies gets a scale of rounding size: an observation that differs there is far outside.
    """
    center = np.median(x, axis=0)
    scale = 1.4826 * np.median(np.abs(x - center), axis=0)
    scale = np.where(scale > 0, scale, x.std(axis=0))
    return center, np.where(scale > 0, scale, 1e-9 * np.maximum(np.abs(center), 1.0))
