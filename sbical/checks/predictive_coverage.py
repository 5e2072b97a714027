"""Do the 90 % predictive bands hold about 90 % of recordings that were left out?"""

from __future__ import annotations

import numpy as np

from sbical.checks.base import Evidence, Finding, Status, listed

NAME = "predictive_coverage"

MASS = 0.9
PASS, FAIL, WIDE = 0.8, 0.6, 0.98

THRESHOLD = (
    f"share of held-out samples inside the 90 % band, every channel: pass {PASS:g} to {WIDE:g}, warn outside of that, fail below {FAIL:g}"
)
SOURCE = (
    "Reasoned: samples of one window are correlated, so 0.90 comes with an error near 0.1 for a few windows; below 0.6 the band misses "
    "four times as often as it says. Bands of the exact model cover 0.90 by definition."
)
NARROW = (
    "the bands are too narrow for {}: the model lacks an effect, or its unmodelled residual; add a disturbance torque or sensor noise "
    "with an inferred scale, or widen the ranges before using them"
)
TOO_WIDE = (
    "the bands are wider than needed for {}: the ranges are safe but loose; lower the prior of the noise or disturbance scale, "
    "or record more"
)


def check(evidence: Evidence) -> Finding:
    """Central 90 % pointwise coverage of the held-out windows, per channel."""
    replay = evidence.holdout
    if replay is None or not replay.windows:
        return Finding(NAME, "warn", "no held-out recording", THRESHOLD, SOURCE, "name a recording to hold out (--holdout)")
    each = dict(zip(replay.channels, replay.coverage(MASS).tolist(), strict=True))
    narrow = [c for c, v in each.items() if not v >= PASS]
    wide = [c for c, v in each.items() if v > WIDE]
    status: Status = "warn" if narrow or wide else "pass"
    if not np.min(list(each.values())) >= FAIL:
        status = "fail"
    remedies = [text.format(", ".join(names)) for text, names in ((NARROW, narrow), (TOO_WIDE, wide)) if names]
    return Finding(NAME, status, f"90 % band covers {listed(each)}", THRESHOLD, SOURCE, "; ".join(remedies), each)
