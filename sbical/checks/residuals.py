"""Are replay residuals like those that the noise model makes: in size, autocorrelation, and what they depend on?

A posterior predictive check of residuals, on the windows that were learned from and on the held-out ones together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sbical.checks.base import WARN_P, Evidence, Finding, Status, percent
from sbical.checks.permutation_tests import p_value
from sbical.checks.residual_statistics import Residuals, autocorrelation, correlation_time, residuals, statistics

NAME = "residuals"

#: Fail where correlated residuals make ranges too narrow by more than this factor, or residuals are so many times too large.
FAIL_RATIO = 3.0
#: Draws below which chance alone would reach the level of a warning.
ENOUGH_DRAWS = 100
#: Repeated readings matter from a few percent on: the scale they are judged at is not finer than this share.
REPEATED = 0.005

THRESHOLD = (
    f"size, memory, peaks, repeats, and correlation with command, speed, direction and acceleration, together: warn at p < {WARN_P:g} "
    f"among simulated recordings; fail when also farther than all of them and correlated so that ranges are over {FAIL_RATIO:g} times too "
    f"narrow, or over {FAIL_RATIO:g} times too large; at least {ENOUGH_DRAWS} draws"
)
SOURCE = (
    "Posterior predictive check (Gelman, Meng and Stern 1996), each simulated recording against its own fit to first order, so that p is "
    "near uniform instead of conservative (after Robins, van der Vaart and Ventura 2000). A long-run variance B times that of white noise "
    "makes standard errors too small by the root of B (Newey and West 1987). The limit is that of support: real robots lie somewhat "
    "outside every model, so that alone warns; at three times the ranges are wrong (reasoned)."
)
FEW = f"hardly a posterior draw could be replayed (at least {ENOUGH_DRAWS} are needed): look at simulation_failures"
GENERAL = "check units and signs, then add the missing effect (or a disturbance torque with an inferred scale, which widens the ranges)"
#: Candidate causes by the beginning of a statistic's name.
CAUSES: Mapping[str, str] = {
    "with the command": "an actuator that does less than it is told (torque or supply saturation), a wrong unit or gain, a delay",
    "with the speed": "a delay or shifted timestamps, friction that grows with speed",
    "with the direction": "backlash, or friction of another form (Stribeck, dependent on load)",
    "with the acceleration": "a load or inertia that differs (payload), torque saturation",
    "memory": "any effect that the model lacks: backlash, friction that depends on load, a delay that varies, torque saturation",
    "size": "a wrong unit or sign, a payload, noise beyond its prior",
    "peaks": "readings that are lost, late or wrong now and then",
    "repeats": "a log that repeats readings (lost samples, a sensor slower than the log), or a quantisation that the model lacks",
}


@dataclass(frozen=True, eq=False)
class _Channel:
    """One channel of one set of windows: its residuals, statistics and their scores (1 + n,)."""

    place: str
    name: str
    residuals: Residuals
    statistics: Mapping[str, np.ndarray]
    scores: Mapping[str, np.ndarray]

    def times(self, statistic: str) -> float:
        """How many times larger than simulated [in standard deviations]: half of the logarithm of a variance."""
        own = self.statistics[statistic]
        return float(np.exp(min((own[0] - np.median(own[1:])) / 2, 700.0)))


def applies(evidence: Evidence) -> bool:
    """Only where posterior draws were replayed."""
    return evidence.fitted is not None


def check(evidence: Evidence) -> Finding:
    """Largest of all standardised statistics of the recordings' residuals, among those of simulated recordings."""
    pairs = {"calibration": evidence.fitted, "held out": evidence.unseen}
    found = {place: residuals(pair) for place, pair in pairs.items() if pair is not None and pair.noisy.windows}
    channels = [_channel(place, name, r) for place, each in found.items() for name, r in each.items()]
    draws = min((len(c.residuals.repeated) - 1 for c in channels), default=0) if all(found.values()) else 0
    if draws < ENOUGH_DRAWS:
        return Finding(NAME, "warn", f"residuals of {draws} draws", THRESHOLD, SOURCE, FEW, {"draws": float(draws)})
    # sets may have lost different draws
    largest = np.max([s[: 1 + draws] for c in channels for s in c.scores.values()], axis=0)
    p = p_value(largest)
    values = {"p": p, "largest": float(largest[0])} | {k: v for c in channels for k, v in _values(c).items()}
    if p >= max(WARN_P, 1.5 / (1 + draws)):
        figure = f"residuals are as simulated ones: p = {p:.2g} on {draws} draws; {_lags(channels)}"
        return Finding(NAME, "pass", figure, THRESHOLD, SOURCE, "", values)
    level = float(np.quantile(largest[1:], 0.99))
    odd = {c.place + c.name: [s for s, z in c.scores.items() if z[0] > level or z[0] == largest[0]] for c in channels}
    said = [_words(c, odd[c.place + c.name]) for c in channels if odd[c.place + c.name]]
    status: Status = "fail" if any(_matters(c, largest) for c in channels) else "warn"
    figure = f"{'; '.join(said)}; p = {p:.2g} on {draws} draws"
    causes = dict.fromkeys(cause for s in odd.values() for name in s for begin, cause in CAUSES.items() if name.startswith(begin))
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, f"look for {'; '.join(causes)}. {GENERAL.capitalize()}", values)


def _channel(place: str, name: str, own: Residuals) -> _Channel:
    found = statistics(own)
    scores = {}
    for key, values in found.items():
        spread = max(float(values[1:].std()), REPEATED if key == "repeats" else 1e-6)
        scores[key] = (values - values[1:].mean()) / spread
    return _Channel(place, name, own, found, scores)


def _matters(c: _Channel, largest: np.ndarray) -> bool:
    """Whether a residual is farther than every simulated one, and too large or too correlated to use the ranges."""
    heavy = [s for s in c.statistics if s == "size" or s.startswith("memory")]
    return any(c.scores[s][0] > largest[1:].max() and c.times(s) > FAIL_RATIO for s in heavy)


def _words(c: _Channel, odd: list[str]) -> str:
    """What is seen in a channel, in words."""
    parts, memory = [], [s for s in odd if s.startswith("memory")]
    if memory:
        own = autocorrelation(c.residuals, 1)
        narrow = max(c.times(s) for s in memory)
        parts.append(
            f"correlated over {1e3 * correlation_time(c.residuals):.0f} ms (lag-1 {own[0]:.2f} where simulations have "
            f"{np.median(own[1:]):.2f}; ranges too narrow by about {narrow:.1f})"
        )
    if "size" in odd:
        parts.append(f"{c.times('size'):.2g} times as large as simulated")
    with_what = sorted((s for s in odd if s.startswith("with ")), key=lambda s: -c.statistics[s][0])
    parts += [f"goes {s} (correlation {c.statistics[s][0]:.2f})" for s in with_what[:2]]
    if "peaks" in odd:
        parts.append("more peaked than simulated")
    if "repeats" in odd:
        own = c.statistics["repeats"]
        parts.append(f"{percent(own[0], 1)} of readings repeat the one before where {percent(np.median(own[1:]), 1)} should")
    return f"residual of {c.name} ({c.place}): {', '.join(parts)}"


def _lags(channels: list[_Channel]) -> str:
    lags = [(c, autocorrelation(c.residuals, 1)) for c in channels]
    return ", ".join(f"{c.name} ({c.place}) lag-1 {own[0]:.2f} where simulations have {np.median(own[1:]):.2f}" for c, own in lags)


def _values(c: _Channel) -> dict[str, float]:
    """Kept figures: lag-1 autocorrelation, size in units of what is simulated, and how much too narrow the ranges are."""
    own, place = autocorrelation(c.residuals, 1), f"{c.place}.{c.name}"
    narrow = max((c.times(s) for s in c.statistics if s.startswith("memory")), default=1.0)
    return {
        f"{place}.lag1": float(own[0]),
        f"{place}.lag1_simulated": float(np.median(own[1:])),
        f"{place}.size": c.times("size"),
        f"{place}.narrow": narrow,
    }
