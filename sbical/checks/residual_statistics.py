"""Statistics of replay residuals: size, autocorrelation, kurtosis, and dependence on command, speed and direction.

A residual is a recording less the mean noise-free replay of posterior draws. Simulated recordings (the noisy replays) have residuals
of the same kind, so that every statistic has its null distribution beside it. Both are freed of the directions in which the posterior
moves the replays: a recording lies there as near as its own fit could bring it, a simulated one as near as its draw happens to be;
without them both are what a fit of their own would have left, to first order. What a simulated one is freed of comes from the draws
of other folds: its own draw would leave nothing of the higher orders, which the recording is not freed of either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sbical.common.statistics import principal_directions
from sbical.simulation.replay import Reproduction

#: Directions in which draws spread less than this [standard deviations of the noise] hardly change a residual.
SPREAD = 0.1
#: Residuals of less than this mean square [noise variances] are rounding errors.
TINY = 1e-12
#: Directions left out are at most this share of the samples.
MOST = 0.25
#: Parts of the draws; each is freed of the directions of the others.
FOLDS = 5
#: A regressor of which less than this share (of its norm) is left outside of those directions says nothing.
LEAST_LEFT = 0.1
#: Blocks of samples in which means are taken, as long as there are at least so many of them.
FEWEST_BLOCKS = 8
#: The speed that counts as a direction of motion, in multiples of its RMS.
SLOW = 0.1


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals of one channel, ``values`` (1 + n, T): the recording's first, then those of n simulated ones.

    In units of the noise; zero where nothing was observed. ``windows`` are the windows' rows; ``regressors`` (T,) by what they mean,
    freed of the same directions and of length one; ``repeated`` (1 + n,) is the share of readings equal to the one before;
    ``period`` [s] is the time between samples.
    """

    values: np.ndarray
    windows: tuple[slice, ...]
    regressors: Mapping[str, np.ndarray]
    repeated: np.ndarray
    period: float


def residuals(pair: Reproduction) -> dict[str, Residuals]:
    """Residuals by channel; none if hardly a draw could be replayed."""
    windows = list(zip(pair.noisy.windows, pair.clean.windows, strict=True))
    usable = np.logical_and.reduce([np.isfinite(np.concatenate([a.draws, b.draws], 2)).all((1, 2)) for a, b in windows])
    if usable.sum() < 2 * FOLDS:
        return {}
    observed = np.concatenate([a.observed for a, _ in windows])
    noisy = np.concatenate([a.draws[usable] for a, _ in windows], 1)
    clean = np.concatenate([b.draws[usable] for _, b in windows], 1)
    seen, scale = np.isfinite(observed), _scale(noisy - clean, clean)
    readings = np.concatenate([np.where(seen, observed, 0.0)[None], noisy])
    centre, basis = _directions(clean, seen, scale)
    free = np.empty(readings.shape)
    free[0] = _freed(np.where(seen, (readings[:1] - centre) / scale, 0.0), basis)[0]
    for fold in range(FOLDS):
        mine = np.arange(len(clean)) % FOLDS == fold
        others = _directions(clean[~mine], seen, scale)
        free[1:][mine] = _freed(np.where(seen, (noisy[mine] - others[0]) / scale, 0.0), others[1])
    ends = np.cumsum([0, *(len(a.time) for a, _ in windows)])
    rows = tuple(slice(a, b) for a, b in pairwise(ends.tolist()))
    period = float(np.median(np.concatenate([np.diff(a.time) for a, _ in windows])))
    times = [a.time for a, _ in windows]
    out = {}
    for c, channel in enumerate(pair.noisy.channels):
        known = _regressors(times, [centre[r, c] for r in rows], pair.commands)
        placed = {name: _unit(x, c, basis, seen) for name, x in known.items()}
        kept = {name: x for name, x in placed.items() if x is not None}
        out[channel] = Residuals(free[..., c], rows, kept, _repeated(readings[..., c], seen[:, c], rows), period)
    return out


def statistics(of: Residuals) -> dict[str, np.ndarray]:
    """(1 + n,) each, larger where more is unexplained: ``size`` (log mean square), ``memory L`` (log of the variance of means over L
    samples, 0 for white noise), ``peaks`` (log kurtosis), ``repeats`` (share), ``with X`` (size of the correlation with X).
    """
    r = of.values
    square = np.maximum((r**2).mean(1), TINY)
    out = {"size": np.log(square), "peaks": np.log(np.maximum((r**4).mean(1), TINY**2) / square**2)}
    out |= {f"memory {length}": np.log(np.maximum(b, TINY) / square) for length, b in _memory(of).items()}
    out["repeats"] = of.repeated
    norm = np.sqrt(square * r.shape[1])
    return out | {f"with {name}": np.abs(r @ x) / norm for name, x in of.regressors.items()}


def autocorrelation(of: Residuals, lag: int) -> np.ndarray:
    """(1 + n,) at a lag [samples], within windows."""
    total, shifted = np.zeros((2, len(of.values)))
    for rows in of.windows:
        r = of.values[:, rows]
        total += (r**2).sum(1)
        shifted += (r[:, lag:] * r[:, : r.shape[1] - lag]).sum(1) if r.shape[1] > lag else 0.0
    return shifted / np.maximum(total, TINY)


def correlation_time(of: Residuals) -> float:
    """Time [s] after which the recording's residual has forgotten itself: its autocorrelation is below 1/e."""
    own = Residuals(of.values[:1], of.windows, {}, of.repeated[:1], of.period)
    longest = max(rows.stop - rows.start for rows in of.windows)
    lag = next((k for k in range(1, longest) if autocorrelation(own, k)[0] < np.exp(-1)), longest)
    return lag * of.period


def _scale(noise: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """(m,): RMS of the noise of each channel; of the draws' spread where there is none; else of rounding size."""
    size = np.sqrt((noise**2).mean((0, 1)))
    size = np.where(size > 0, size, clean.std(0).max(0))
    return np.where(size > 0, size, 1e-9 * np.maximum(np.abs(clean).max((0, 1)), 1.0))


def _directions(clean: np.ndarray, seen: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (T, m) of draws (n, T, m) and the orthonormal directions (k, T m) in which they spread."""
    centre = clean.mean(0)
    flat = np.where(seen, (clean - centre) / scale, 0.0).reshape(len(clean), -1)
    return centre, principal_directions(flat, max(1, int(MOST * flat.shape[1])), SPREAD**2 * len(flat))[1]


def _freed(values: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Values (n, T, m) less their part in the directions (k, T m)."""
    flat = values.reshape(len(values), -1)
    return (flat - (flat @ basis.T) @ basis).reshape(values.shape)


def _unit(x: np.ndarray, channel: int, basis: np.ndarray, seen: np.ndarray) -> np.ndarray | None:
    """A regressor of one channel, freed of the basis and of length one; None if nothing is left."""
    full = np.zeros((1, *seen.shape))
    full[0, :, channel] = np.where(seen[:, channel], x, 0.0)
    before = float(np.sqrt((full**2).sum()))
    left = _freed(full, basis)[0, :, channel]
    after = float(np.sqrt((left**2).sum()))
    return left / after if after > LEAST_LEFT * before > 0 else None


def _regressors(
    times: Sequence[np.ndarray], centre: Sequence[np.ndarray], commands: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """What a residual may go with, (T,) each with mean zero: commands, and the replay's own speed, its sign, and acceleration."""
    speed = [np.gradient(q, t) for q, t in zip(centre, times, strict=True)]
    acceleration = np.concatenate([np.gradient(v, t) for v, t in zip(speed, times, strict=True)])
    joined = np.concatenate(speed)
    slow = SLOW * max(float(np.sqrt((joined**2).mean())), np.finfo(float).tiny)
    known = {f"the command '{name}'": np.concatenate([c[name] for c in commands]) for name in commands[0]}
    known |= {"the speed": joined, "the direction of motion": np.tanh(joined / slow), "the acceleration (load)": acceleration}
    return {name: x - x.mean() for name, x in known.items()}


def _memory(of: Residuals) -> dict[int, np.ndarray]:
    """(1 + n,) by block length: the mean square of block means times the length."""
    shortest, out = min(rows.stop - rows.start for rows in of.windows), {}
    length = 2
    while length * FEWEST_BLOCKS <= sum(r.stop - r.start for r in of.windows) and length <= shortest:
        blocks = []
        for rows in of.windows:
            r = of.values[:, rows]
            count = r.shape[1] // length
            blocks.append(r[:, : count * length].reshape(len(r), count, length).mean(2))
        out[length] = length * (np.concatenate(blocks, 1) ** 2).mean(1)
        length *= 2
    return out


def _repeated(readings: np.ndarray, seen: np.ndarray, windows: Sequence[slice]) -> np.ndarray:
    """(1 + n,): share of readings (1 + n, T) that equal the one before."""
    same = np.concatenate([(np.diff(readings[:, w], axis=1) == 0) & seen[w][1:] & seen[w][:-1] for w in windows], 1)
    return same.mean(1)
