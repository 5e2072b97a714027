"""Summary vector of a trajectory: principal components of the motion, and the residual energy outside of them.

The components carry what the parameters do to the motion; the residual energies carry what is random (noise, a
disturbance), early and late in a window. Each row is projected on its own (one matrix-vector product), because a matrix
product rounds differently for different numbers of rows: a row's summary is bitwise the same in any chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sbical.common.statistics import principal_directions
from sbical.recordings.experiment import Experiment
from sbical.simulation.rollout import Trajectories, flatten

#: More components than this gained nothing on a servo log, and a network learns slower from them.
COMPONENTS = 64
#: Components below this share of the noise's own variance hold noise only.
_FLOOR = 1e-12


@dataclass(frozen=True, eq=False)
class Summary:
    """Frozen arrays; make one with ``fit_summary``.

    ``mean`` (D,) and ``scale`` (D,) standardise the flattened trajectories, ``components`` (D, c) are orthonormal,
    ``groups`` (D,) numbers the residual energy that each entry counts towards.
    """

    mean: np.ndarray
    scale: np.ndarray
    components: np.ndarray
    groups: np.ndarray
    labels: tuple[str, ...]

    @cached_property
    def _transposed(self) -> np.ndarray:
        return np.ascontiguousarray(self.components.T)

    @property
    def residual_features(self) -> np.ndarray:
        """(k,) bool: features that measure what the components do not hold, log RMS [nats]."""
        return np.array([not label.startswith("component ") for label in self.labels])

    def __call__(self, trajectories: Trajectories) -> np.ndarray:
        """Summaries (n, k); NaN rows for failed simulations."""
        flat = (flatten(trajectories.values) - self.mean) / self.scale
        scores = np.stack([self._transposed @ row for row in flat])
        residual = np.stack([row - self.components @ score for row, score in zip(flat, scores, strict=True)])
        energies = [_log_rms(residual[:, self.groups == g]) for g in range(int(self.groups.max()) + 1)]
        rough = [_log_rms(r) for r in _roughness(trajectories.values)]
        return np.column_stack([scores, *energies, *rough])

    def observed(self, experiment: Experiment) -> np.ndarray:
        """Summary (k,) of what the robot did."""
        values = tuple(o[None] for o in experiment.observed)
        return self(Trajectories(values, np.zeros((1, len(values)), np.int8)))[0]


def fit_summary(pilot: Trajectories, experiment: Experiment, *, components: int = COMPONENTS) -> Summary:
    """Summary from pilot simulations with noise, failed ones left out."""
    flat = flatten(pilot.values)[pilot.ok]
    mean = flat.mean(0)
    channel = np.concatenate([np.tile(np.arange(o.shape[1]), len(o)) for o in experiment.observed])
    scale = np.empty_like(mean)
    for c in range(len(experiment.channels)):
        # one scale per channel keeps the shape of a motion; the quantile ignores the few wild draws of a wide prior, and is
        # above zero for a joint that rests most of the time
        scale[channel == c] = max(float(np.quantile(np.abs(flat[:, channel == c] - mean[channel == c]), 0.9)), 1e-9)
    centred = (flat - mean) / scale
    directions = np.ascontiguousarray(principal_directions(centred, min(components, len(flat) // 4), 0.0, _FLOOR)[1].T)
    groups, names = _groups(experiment)
    labels = (
        *(f"component {i}" for i in range(directions.shape[1])),
        *(f"residual {n}" for n in names),
        *(f"roughness {c}" for c in experiment.channels),
    )
    return Summary(mean, scale, directions, groups, labels)


def _groups(experiment: Experiment) -> tuple[np.ndarray, list[str]]:
    """Early and late half of every window, by channel: a random torque grows along a window, noise does not."""
    channels = len(experiment.channels)
    parts = []
    for window in experiment.windows:
        late = (window.time > window.duration / 2).astype(int)
        parts.append((late[:, None] * channels + np.arange(channels)).ravel())
    return np.concatenate(parts), [f"{half} {c}" for half in ("early", "late") for c in experiment.channels]


def _roughness(values: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Second differences by channel, (n, samples): what is left of them is noise and quantisation."""
    return [np.concatenate([np.diff(v[:, :, c], 2, axis=1) for v in values], 1) for c in range(values[0].shape[2])]


def _log_rms(x: np.ndarray) -> np.ndarray:
    """Log root mean square of each row; the floor is far below any sensor's step."""
    # picking columns by mask gives a transposed layout, over which einsum would sum in an order that depends on the rows
    x = np.ascontiguousarray(x)
    return 0.5 * np.log(np.einsum("nd,nd->n", x, x) / x.shape[1] + 1e-18)
