"""Which of two simulators explains the same recordings better: the ratio of their evidences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sbical.errors import OutputError
from sbical.results.calibration import Calibration

#: Log Bayes factors [nats] that Kass and Raftery (1995, doi:10.1080/01621459.1995.10476572) call positive, strong, very strong.
SCALE = ((5.0, "very strongly"), (3.0, "strongly"), (1.0, "positively"))


@dataclass(frozen=True)
class Comparison:
    """``log_factor``: log evidence of the first minus that of the second [nats], with its standard ``error``."""

    first: str
    second: str
    log_factor: float
    error: float

    def __str__(self) -> str:
        size = abs(self.log_factor)
        better = self.first if self.log_factor > 0 else self.second
        word = next((w for limit, w in SCALE if size - 2 * self.error > limit), "")
        figure = f"log Bayes factor {self.log_factor:+.2f} ± {self.error:.2f} nats ({self.first} over {self.second})"
        return f"{figure}: the recordings speak {word} for {better}" if word else f"{figure}: the recordings do not decide between them"


def compare(first: Calibration, second: Calibration, names: tuple[str, str] = ("first", "second")) -> Comparison:
    """Compare two local calibrations of the same recordings.

    Raises OutputError if one has no evidence (an amortized one, or one with latent effects), a correction that failed, or other data.
    """
    for name, one in zip(names, (first, second), strict=True):
        if "log_evidence" not in one.posterior.attrs:
            raise OutputError(
                f"{name} has no evidence: it is {one.provenance['method']}, with {'' if one.simulator.latent else 'no '}latent effects; "
                "calibrate with --method local and a simulator whose noise has an explicit likelihood (no disturbance_torque)"
            )
        failed = [f for f in one.verdict.checks if f.name == "correction" and f.status == "fail"]
        if failed:
            raise OutputError(f"the evidence of {name} cannot be trusted ({failed[0].figure}); {failed[0].remedy}")
    ours, theirs = first.experiment.observed, second.experiment.observed
    if len(ours) != len(theirs) or any(a.shape != b.shape or not np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
        raise OutputError(
            f"{names[0]} and {names[1]} were calibrated on other recordings, windows or channels; evidences compare on the same data only"
        )
    a, b = first.posterior.attrs, second.posterior.attrs
    error = float(np.hypot(a["log_evidence_error"], b["log_evidence_error"]))
    return Comparison(*names, float(a["log_evidence"] - b["log_evidence"]), error)
