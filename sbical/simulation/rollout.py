"""Simulating many parameter draws at once on ``mujoco.batch.Batch``: effects are bound once, rows are independent.

A row is one draw in one window. Rows are grouped by the length of their window; every row has its own random
streams, so the result of a simulation does not depend on what it is simulated with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import mujoco
import numpy as np
from mujoco.batch import Batch

from sbical.recordings.experiment import Experiment, Window
from sbical.simulation.binding import BoundEffect, apply, needs_set_const
from sbical.simulation.families.base import Binding, Streams, Write

#: Rows of one Batch: larger ones gain no speed and only cost memory.
ROWS = 256
#: A condition that changes along a recording is averaged over blocks of this length [s], between which model fields change.
BLOCK = 0.02
#: States beyond this [rad, rad/s, m, m/s] are no motion of a robot; MuJoCo's own limit is 1e10.
PLAUSIBLE = 1e5

#: Status of a simulated window, and what it means.
STATUS: Mapping[int, str] = {0: "ok", 1: "diverged: MuJoCo warned of a bad state", 2: f"implausible: a state beyond {PLAUSIBLE:g}"}

_INITIAL_STREAM = 0xFFFF


@dataclass(frozen=True)
class Trajectories:
    """Simulated measurements: ``values[w]`` (n, T_w, m) at the experiment's sample times, ``status`` (n, windows), 0 = ok."""

    values: tuple[np.ndarray, ...]
    status: np.ndarray

    @property
    def ok(self) -> np.ndarray:
        """(n,): draws of which no window failed."""
        return (self.status == 0).all(1)


def flatten(values: tuple[np.ndarray, ...]) -> np.ndarray:
    """(n, D): all windows, samples and channels side by side."""
    return np.concatenate([v.reshape(len(v), -1) for v in values], 1)


@dataclass(frozen=True)
class Engine:
    """A model with its effects, ready to simulate; not picklable, made once per process."""

    model: mujoco.MjModel
    names: tuple[str, ...]
    effects: tuple[BoundEffect, ...]
    binding: Binding
    threads: int = 1

    def simulate(
        self, theta: np.ndarray, experiment: Experiment, seeds: np.ndarray, *, noise: bool = True, errors: np.ndarray | None = None
    ) -> Trajectories:
        """Simulate each draw in each window.

        ``theta`` (n, d) physical SI, ``seeds`` (n,) integers. ``noise=False`` leaves out every random effect and starts from
        the mean initial state. ``errors`` (n, windows, nq + nv) are the errors of the measured initial states, in standard
        deviations of each window's own covariance; given, they replace drawn ones. A failed window keeps its status and NaN values.
        """
        return self.measured(theta, experiment, seeds, 1, noise=noise, errors=errors)[0]

    def measured(
        self, theta: np.ndarray, experiment: Experiment, seeds: np.ndarray, copies: int, *, noise: bool = True,
        errors: np.ndarray | None = None,
    ) -> tuple[Trajectories, ...]:  # fmt: skip
        """Each motion measured ``copies`` times, with sensor noise of its own; the first is what ``simulate`` gives."""
        n, channels = len(theta), len(experiment.channels)
        values = [np.empty((copies, n, len(w.time), channels)) for w in experiment.windows]
        status = np.zeros((n, len(experiment.windows)), np.int8)
        for steps, members in self._groups(experiment).items():
            windows = [experiment.windows[w] for w in members]
            draws = max(1, ROWS // len(members))
            for low in range(0, n, draws):
                part = slice(low, min(low + draws, n))
                count = part.stop - part.start
                # theta-major: all windows of one draw are neighbours
                seed, number = np.repeat(seeds[part], len(members)), np.tile(members, count)
                error = None if errors is None else errors[part][:, members].reshape(count * len(members), -1)
                run = _Run(self, np.repeat(theta[part], len(members), 0), windows, seed, number, steps, noise, error)
                sensordata, failed = run.rollout()
                for k, w in enumerate(members):
                    mine = slice(k, None, len(members))
                    for copy in range(copies):
                        values[w][copy, part] = run.measure(sensordata[mine], windows[k], mine, experiment.channels, copy)
                    status[part, w] = failed[mine]
        for w, trajectory in enumerate(values):
            trajectory[:, status[:, w] != 0] = np.nan
        return tuple(Trajectories(tuple(v[copy] for v in values), status) for copy in range(copies))

    def _groups(self, experiment: Experiment) -> dict[int, list[int]]:
        """Windows by number of steps, rounded up a little so that jittered lengths share a Batch."""
        groups: dict[int, list[int]] = {}
        for w, window in enumerate(experiment.windows):
            steps = int(np.ceil(window.duration / self.model.opt.timestep)) + 2
            unit = 8 if steps < 512 else 32
            groups.setdefault(-(-steps // unit) * unit, []).append(w)
        return groups


class _Run:
    """One Batch of rows; row i is draw i // windows in window i % windows."""

    def __init__(
        self, engine: Engine, theta: np.ndarray, windows: list[Window], seeds: np.ndarray, numbers: np.ndarray, steps: int, noise: bool,
        errors: np.ndarray | None,
    ) -> None:  # fmt: skip
        self.engine, self.windows, self.seeds, self.numbers, self.errors = engine, windows, seeds, numbers, errors
        self.steps, self.noise, self.dt = steps, noise, engine.model.opt.timestep
        self.rows, self.theta = len(theta), theta
        self.block = max(1, round(BLOCK / self.dt))
        known = self._known()
        self.values = [e.values(theta, engine.names, known) for e in engine.effects]

    def _known(self) -> dict[str, np.ndarray]:
        """Conditions per row: (rows,) constants, (rows, blocks) averages of what was logged per sample."""
        edges = np.append(np.arange(0, self.steps, self.block), self.steps) * self.dt
        repeat, known = self.rows // len(self.windows), {}
        for name in dict.fromkeys(name for w in self.windows for name in (*w.constants, *w.signals)):
            if not any(name in w.signals for w in self.windows):
                known[name] = np.tile([w.constants[name] for w in self.windows], repeat)
                continue
            # one recording may log what another one was told
            blocks = [
                w.signals[name].averages(edges) if name in w.signals else np.full(len(edges) - 1, w.constants[name]) for w in self.windows
            ]
            known[name] = np.tile(np.stack(blocks), (repeat, 1))
        return known

    def streams(self, number: int, rows: slice = slice(None), copy: int = 0) -> Streams:
        """Independent streams by (seed, copy, window, effect): counter-based, so making one costs little."""
        keys = zip(self.seeds[rows], self.numbers[rows], strict=True)
        return Streams([np.random.Generator(np.random.Philox(key=[int(s), (copy << 48) | (int(w) << 16) | number])) for s, w in keys])

    def rollout(self) -> tuple[np.ndarray, np.ndarray]:
        """Sensor readings (rows, steps, nsensordata) and status (rows,)."""
        batch = Batch(self.engine.model, self.rows, nthread=self.engine.threads)
        moving = self._write(batch)
        self._start(batch)
        control, spec = self._control()
        stepping = [(e.hooks.step, v) for e, v in zip(self.engine.effects, self.values, strict=True) if e.hooks.step]
        if not (moving or stepping):
            data = batch.rollout(self.steps, control=control, control_spec=spec, record=("sensordata",))["sensordata"]
        else:
            data = np.empty((self.rows, self.steps, self.engine.model.nsensordata))
            base = {w.field: batch.expand(w.field).copy() for w in moving}
            for block, low in enumerate(range(0, self.steps, self.block)):
                high = min(low + self.block, self.steps)
                for field, nominal in base.items():
                    batch.expand(field)[:] = nominal
                for write in moving:
                    apply(write, batch, block)
                if needs_set_const(moving):
                    batch.set_const()
                ends = range(low + 1, high + 1) if stepping else (high,)
                for first, end in pairwise((low, *ends)):
                    for step, values in stepping:
                        step(batch, values)
                    part = batch.rollout(end - first, control=control[:, first:end], control_spec=spec, record=("sensordata",))
                    data[:, first:end] = part["sensordata"]
        status = np.where((batch.warning[:, :, 1] != 0).any(1), 1, 0).astype(np.int8)
        wild = ~(np.abs(batch.qpos).max(1, initial=0.0) < PLAUSIBLE) | ~(np.abs(batch.qvel).max(1, initial=0.0) < PLAUSIBLE)
        status[(status == 0) & wild] = 2
        return data, status

    def _write(self, batch: Batch) -> list[Write]:
        """Write what is constant; return the writes that change along the recording."""
        static: list[Write] = []
        moving: list[Write] = []
        # "set" before "scale" before "add", whatever the order of the effects
        writes = [w for e, v in zip(self.engine.effects, self.values, strict=True) if e.hooks.write for w in e.hooks.write(v)]
        writes.sort(key=lambda write: ("set", "scale", "add").index(write.op))
        changing = {write.field for write in writes if write.values.ndim == 2}
        for write in writes:
            # a field that changes is written anew in every block, with all that is added to it
            (moving if write.field in changing else static).append(write)
        for write in static:
            apply(write, batch)
        if needs_set_const(static):
            batch.set_const()
        return moving

    def _start(self, batch: Batch) -> None:
        """Initial state of every row: measured mean, its error, and what the sensors' biases hid."""
        nq, repeat = self.engine.model.nq, self.rows // len(self.windows)
        state = np.tile(np.stack([w.initial.mean for w in self.windows]), (repeat, 1))
        error = self.errors
        if error is None and self.noise:
            error = self.streams(_INITIAL_STREAM).normal(state.shape[1])
        if error is not None:
            for k, window in enumerate(self.windows):
                # einsum, because BLAS rounds differently for different numbers of rows
                state[k :: len(self.windows)] += np.einsum("ij,nj->ni", window.initial.factor, error[k :: len(self.windows)])
        qpos, qvel = state[:, :nq], state[:, nq:]
        for effect, values in zip(self.engine.effects, self.values, strict=True):
            if effect.hooks.initial:
                effect.hooks.initial(qpos, qvel, values)
        batch.qpos[:], batch.qvel[:] = qpos, qvel

    def _control(self) -> tuple[np.ndarray, int]:
        """Step averages of the delayed commands, and generalised forces where an effect applies any."""
        model = self.engine.model
        edges = np.broadcast_to(np.arange(self.steps + 1) * self.dt, (self.rows, self.steps + 1))
        control = np.zeros((self.rows, self.steps, model.nu))
        for name, actuator in self.engine.binding.commands.items():
            moved = edges
            for effect, values in zip(self.engine.effects, self.values, strict=True):
                if effect.hooks.command and name in effect.effect.targets:
                    moved = effect.hooks.command(moved, values)
            for k, window in enumerate(self.windows):
                mine = slice(k, None, len(self.windows))
                own = moved[:1] if moved is edges else moved[mine]
                control[mine, :, actuator] = window.commands[name].averages(own)
        spec = int(mujoco.mjtState.mjSTATE_CTRL)
        forces = self._forces()
        if forces is not None:
            control = np.concatenate([control, forces], 2)
            spec |= int(mujoco.mjtState.mjSTATE_QFRC_APPLIED)
        return control, spec

    def _forces(self) -> np.ndarray | None:
        total = None
        for effect, values in zip(self.engine.effects, self.values, strict=True):
            if effect.hooks.force and self.noise:
                force = effect.hooks.force(values, self.streams(effect.number), self.steps, self.dt)
                total = force if total is None else total + force
        return total

    def measure(self, sensordata: np.ndarray, window: Window, rows: slice, channels: Sequence[str], copy: int = 0) -> np.ndarray:
        """What the sensors report at the window's sample times, (rows, T, m)."""
        at = window.time / self.dt
        step = np.minimum(at.astype(int), self.steps - 2)
        weight = at - step
        out = np.empty((len(sensordata), len(window.time), len(channels)))
        for c, name in enumerate(channels):
            address = self.engine.binding.sensors[name].address
            signal = sensordata[:, step, address] * (1 - weight) + sensordata[:, step + 1, address] * weight
            order = sorted(zip(self.engine.effects, self.values, strict=True), key=lambda pair: pair[0].hooks.order)
            for effect, values in order:
                if effect.hooks.measure and name in effect.effect.targets and (self.noise or effect.hooks.clean):
                    mine = {role: v[rows] for role, v in values.items()}
                    # one stream per effect and channel: a glob may target several sensors
                    streams = self.streams(effect.number | ((c + 1) << 8), rows, copy)
                    signal = effect.hooks.measure(signal, mine, streams)
            out[:, :, c] = signal
        return out
