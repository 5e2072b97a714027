"""Does the calibrated simulator replay recordings it has not seen better than the prior did?"""

from __future__ import annotations

import numpy as np

from sbical.checks.base import Evidence, Finding, Status

NAME = "replay_error"

#: Geometric mean over channels of RMSE after / before.
PASS, FAIL = 0.9, 1.0

THRESHOLD = (
    f"held-out RMSE of the posterior median over that of the prior median, geometric mean over channels: pass below {PASS:g} "
    f"with no channel above 1, fail above {FAIL:g}"
)
SOURCE = (
    "Reasoned: a calibration that replays unseen motions worse than no calibration is of no use; "
    "10 % is about what another holdout changes."
)
REMEDY = (
    "the physics that matters on the held-out motion is not in the model or was not excited: add the effect, "
    "calibrate on motions of the same kind, and look at the held-out replays in the report"
)


def check(evidence: Evidence) -> Finding:
    """RMSE of the noise-free replay of the posterior median over that of the prior median, per channel."""
    before, after = evidence.holdout_before, evidence.holdout_after
    if before is None or after is None or not after.windows:
        return Finding(NAME, "warn", "no held-out recording", THRESHOLD, SOURCE, "name a recording to hold out (--holdout)")
    rmse_before, rmse_after = before.rmse(), after.rmse()
    ratios = rmse_after / np.maximum(rmse_before, np.finfo(float).tiny)
    # A replay that diverged with the prior median has an infinite error: any finite one is better.
    ratios = np.where(np.isinf(rmse_before), np.where(np.isinf(rmse_after), 1.0, 0.0), ratios)
    overall = float(np.exp(np.mean(np.log(np.clip(ratios, 1e-12, None)))))
    status: Status = "fail" if not overall <= FAIL else "pass" if overall < PASS and ratios.max() <= 1 else "warn"
    parts = [
        f"{c} {b:.3g} → {a:.3g} {u} ({r:.2f} of it)"
        for c, u, b, a, r in zip(after.channels, after.units, rmse_before, rmse_after, ratios, strict=True)
    ]
    values = {"overall": overall}
    for i, channel in enumerate(after.channels):
        values |= {f"{channel}.before": float(rmse_before[i]), f"{channel}.after": float(rmse_after[i])}
    return Finding(NAME, status, "; ".join(parts), THRESHOLD, SOURCE, "" if status == "pass" else REMEDY, values)
