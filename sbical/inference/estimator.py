"""Amortised posterior estimation: an ensemble of sbi density estimators over unconstrained parameters, given summaries.

Members are built and trained in ``sbical.inference.training``. Scaling is done here and sbi's z-scoring stays off: its "structured"
mode has one scale for all features.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sbical.errors import ExperimentError, OutputError, SimulationError
from sbical.inference.training import EpochCallback, Training, build, seeded, train

if TYPE_CHECKING:
    from sbi.neural_nets.estimators import ConditionalDensityEstimator

#: Layout of estimator.pt; raised when an older file can no longer be read.
FORMAT = 2
_FOREIGN = "is not an estimator that sbical saved; give the estimator.pt of a calibration"
_FEWEST = 100
#: Rows that pass through a member at once: bounds memory, and stays in the cache (a fifth faster than 50,000).
_ROWS = 5_000


@dataclass(frozen=True, eq=False)
class Scaling:
    """Training's location and scale of parameters (d,) and summaries (k,).

    Summaries are centred at their median, divided by their 5-95 % range over 3.29 (one standard deviation of a Gaussian) and
    bent by 6 tanh(z / 6): a few wild prior draws neither set the scale nor reach the network, and their order is kept.
    """

    theta_mean: Tensor
    theta_sd: Tensor
    x_centre: Tensor
    x_scale: Tensor

    @classmethod
    def of(cls, theta_u: np.ndarray, x: np.ndarray) -> Scaling:
        """The scaling of a training set."""
        low, centre, high = np.quantile(x, [0.05, 0.5, 0.95], axis=0)
        scale, sd = (high - low) / 3.29, x.std(0)
        # mostly one value: only the spread of the rest is left to scale by; constant: becomes 0 whatever is observed
        scale = np.where(scale > 1e-9 * np.abs(centre), scale, np.where(sd > 1e-9 * np.abs(centre), sd, np.inf))
        return cls(*(torch.tensor(a, dtype=torch.float64) for a in (theta_u.mean(0), theta_u.std(0), centre, scale)))

    def features(self, x: np.ndarray) -> Tensor:
        """Network inputs (m, k), single precision, within +-6."""
        z = (torch.tensor(x, dtype=torch.float64) - self.x_centre) / self.x_scale
        return (6 * torch.tanh(z / 6)).float()

    def standardised(self, theta_u: np.ndarray) -> Tensor:
        """Parameters as the network sees them, single precision."""
        return ((torch.tensor(theta_u, dtype=torch.float64) - self.theta_mean) / self.theta_sd).float()

    def unstandardised(self, z: Tensor) -> np.ndarray:
        """Back from the network, float64."""
        return (z.double() * self.theta_sd + self.theta_mean).numpy()

    @property
    def log_scale(self) -> float:
        """log |dtheta_u/dz|."""
        return float(torch.log(self.theta_sd).sum())


@dataclass(frozen=True, eq=False)
class Density:
    """The posterior given one observation: an equal mixture of the members, in unconstrained coordinates."""

    estimator: Estimator
    x_o: np.ndarray

    def sample(self, n: int, seed: int) -> np.ndarray:
        """(n, d) independent draws; any stretch of rows mixes the members."""
        return self.estimator.sample_many(self.x_o[None], n, seed)[0]

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        """(n,) log density."""
        return self.estimator.log_prob_pairs(u, np.broadcast_to(self.x_o, (len(u), len(self.x_o))))


@dataclass(frozen=True, eq=False)
class Estimator:
    """A trained ensemble of sbi ``ConditionalDensityEstimator``; ``fit`` makes one, ``save`` and ``load_estimator`` keep it."""

    members: tuple[ConditionalDensityEstimator, ...]
    scaling: Scaling
    training: Training
    #: best validation loss of each member [nats, unconstrained coordinates]
    losses: tuple[float, ...]

    def condition(self, x_o: np.ndarray) -> Density:
        """The posterior given summaries x_o (k,). Raises ExperimentError if they are not finite or not as many as in training."""
        return Density(self, self._checked(np.asarray(x_o, dtype=np.float64)[None])[0])

    def sample_many(self, x: np.ndarray, n: int, seed: int) -> np.ndarray:
        """(m, n, d) draws from the posterior given each row of x (m, k). Raises ExperimentError as ``condition`` does."""
        features = self.scaling.features(self._checked(x))
        dims = len(self.scaling.theta_mean)
        out = np.empty((len(x), n, dims))
        rng = np.random.default_rng(seed)
        # every member gives its equal share; the shuffle makes a prefix of the draws as good a mixture as all of them
        member = np.stack([rng.permutation(np.arange(n) % len(self.members)) for _ in range(len(x))]) if len(x) else np.empty((0, n))
        with seeded(int(rng.integers(2**63))), torch.no_grad():
            for i, flow in enumerate(self.members):
                count = int((np.arange(n) % len(self.members) == i).sum())
                for rows in _chunks(len(x) if count else 0, max(1, _ROWS // max(count, 1))):
                    drawn = _draw(flow, count, features[rows])
                    mine = np.nonzero(member[rows] == i)
                    out[rows][mine] = self.scaling.unstandardised(drawn.transpose(0, 1).reshape(-1, dims))
        return out

    def log_prob_pairs(self, theta_u: np.ndarray, x: np.ndarray) -> np.ndarray:
        """(n,) log density of each theta_u (n, d) given the same row of x (n, k)."""
        features, z = self.scaling.features(self._checked(x)), self.scaling.standardised(theta_u)
        with seeded(0), torch.no_grad():
            parts = [torch.cat([-flow.loss(z[r], features[r]).double() for r in _chunks(len(z), _ROWS)]) for flow in self.members]
        mixture = torch.logsumexp(torch.stack(parts), 0) - math.log(len(self.members))
        return mixture.numpy() - self.scaling.log_scale

    def state(self) -> dict[str, Any]:
        """State dicts and plain values, as ``save`` writes them."""
        return {
            "format": FORMAT, "training": asdict(self.training), "losses": list(self.losses), "scaling": dict(vars(self.scaling)),
            "members": [flow.state_dict() for flow in self.members],
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """State dicts and plain values, readable without unpickling code. Raises OutputError if the file cannot be written."""
        write_state(self.state(), path)

    def _checked(self, x: np.ndarray) -> np.ndarray:
        x, k = np.asarray(x, dtype=np.float64), len(self.scaling.x_centre)
        if x.ndim != 2 or x.shape[1] != k:
            raise ExperimentError(f"this estimator was trained on {k} summaries; got an array of shape {x.shape}")
        if not np.isfinite(x).all():
            bad = np.flatnonzero(~np.isfinite(x).all(0))
            raise ExperimentError(f"summaries {', '.join(map(str, bad[:5]))} are not finite; condition on finite summaries only")
        return x


def fit(
    theta_u: np.ndarray, x: np.ndarray, *, seed: int, training: Training | None = None, progress: EpochCallback | None = None
) -> Estimator:
    """Train an ensemble on simulations: unconstrained parameters theta_u (n, d) and their summaries x (n, k).

    x (n, c, k) holds summaries of c measurements of each simulation; each step of the training takes one of them at random.

    One torch thread; the same seed gives bitwise the same estimator on one kind of processor. ``progress`` is called after
    every epoch. Raises SimulationError for too few simulations, values that are not finite, or arrays that do not match.
    """
    theta_u, x = np.asarray(theta_u, dtype=np.float64), np.asarray(x, dtype=np.float64)
    copies = x if x.ndim == 3 else x[:, None]
    for i in range(copies.shape[1]):
        _check_training_set(theta_u, copies[:, i])
    training, scaling = training or Training(), Scaling.of(theta_u, copies[:, 0])
    z, features = scaling.standardised(theta_u), scaling.features(copies)
    seeds = np.random.SeedSequence(seed).generate_state(training.members, np.uint64)
    members, losses = [], []
    for i, state in enumerate(seeds):
        trained = train(z, features, seed=int(state) >> 1, training=training, member=i, progress=progress, offset=scaling.log_scale)
        members.append(trained.flow)
        losses.append(trained.loss)
    return Estimator(tuple(members), scaling, training, tuple(losses))


def write_state(content: dict[str, Any], path: str | Path) -> None:
    """Tensors and plain values into a file. Raises OutputError if it cannot be written."""
    buffer = io.BytesIO()  # torch itself does not say why a disk refuses
    torch.save(content, buffer)
    try:
        Path(path).write_bytes(buffer.getvalue())
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"cannot write the estimator to {path}: {reason}; give a writable folder with free space") from error


def read_state(path: str | Path) -> dict[str, Any]:
    """What ``write_state`` wrote, without unpickling code. Raises OutputError for a file that is missing, foreign or damaged."""
    if not Path(path).is_file():
        raise OutputError(f"there is no estimator at {path}; give the estimator.pt of a calibration")
    if not zipfile.is_zipfile(path):
        # torch would try its formats of before 2020
        raise OutputError(f"{path} {_FOREIGN}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise OutputError(f"{path} {_FOREIGN} ({type(error).__name__})") from error
    if not isinstance(content, dict) or "format" not in content:
        raise OutputError(f"{path} {_FOREIGN}")
    return content


def load_estimator(path: str | Path) -> Estimator:
    """Read back what ``Estimator.save`` wrote, without unpickling code.

    Raises OutputError for a file that is missing, foreign, damaged, or of another version's layout.
    """
    return from_state(read_state(path), path)


def from_state(content: dict[str, Any], path: str | Path) -> Estimator:
    """The estimator of a ``state``; ``path`` is where it came from, for messages. Raises OutputError if it is no such state."""
    if content["format"] != FORMAT:
        fix = "calibrate again, or use the version that wrote it"
        raise OutputError(f"{path} has layout {content['format']}, this sbical reads layout {FORMAT}; {fix}")
    try:
        scaling, training = Scaling(**content["scaling"]), Training(**content["training"])
        members = []
        for state in content["members"]:
            flow = build(len(scaling.theta_mean), len(scaling.x_centre), training)
            flow.load_state_dict(state)
            members.append(flow.eval())
        return Estimator(tuple(members), scaling, training, tuple(content["losses"]))
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise OutputError(f"{path} is damaged ({type(error).__name__} on rebuilding it); calibrate again") from error


def _check_training_set(theta_u: np.ndarray, x: np.ndarray) -> None:
    if theta_u.ndim != 2 or x.ndim != 2 or len(theta_u) != len(x) or not theta_u.shape[1] or not x.shape[1]:
        raise SimulationError(f"training needs theta_u (n, d) and x (n, k) of the same simulations; got {theta_u.shape} and {x.shape}")
    if len(x) < _FEWEST:
        raise SimulationError(f"{len(x)} simulations are too few to train on; simulate at least {_FEWEST}, better some thousands")
    bad = np.flatnonzero(~(np.isfinite(theta_u).all(1) & np.isfinite(x).all(1)))
    if len(bad):
        rows = ", ".join(map(str, bad[:5]))
        raise SimulationError(f"{len(bad)} of {len(x)} simulations are not finite (rows {rows}); train on those that did not fail")


def _draw(flow: ConditionalDensityEstimator, count: int, features: Tensor) -> Tensor:
    """(count, m, d) draws of one member."""
    fix = "the estimator drew values that are not finite; train again with another seed or more simulations"
    try:
        drawn = torch.cat([flow.sample(torch.Size([r.stop - r.start]), condition=features) for r in _chunks(count, _ROWS)])
    except RuntimeError as error:  # torch will not choose among weights that are not finite
        raise SimulationError(fix) from error
    if not torch.isfinite(drawn).all():
        raise SimulationError(fix)
    return drawn


def _chunks(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
