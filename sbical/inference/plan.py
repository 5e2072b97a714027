"""The dry run: what will be replayed, what is unknown, how many simulations, what they will cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sbical.errors import ExperimentError, SbicalError, unknown
from sbical.priors.prior import Prior
from sbical.recordings.experiment import HIGHEST_RATE, LIKELIHOOD_RATE, Experiment, build
from sbical.recordings.plausibility import implausible_columns
from sbical.recordings.recording import Recording, read_recordings
from sbical.simulation.process import simulating
from sbical.simulation.simulator import Simulator

Method = Literal["local", "amortized"]

#: What each method usually needs, all simulations of the calibration windows included.
SIMULATIONS: dict[Method, int] = {"local": 8000, "amortized": 5000}
#: Where the likelihood is explicit, weighting draws by it takes about as many simulations as learning.
EXPLICIT = 14_000
#: What a run takes beside simulating [s]: whatever the budget, and for each simulation (training, weighing, emulating; measured on the
#: six-parameter servo, one slow core: 28 s for 11,000 simulations, half of it their own).
FIXED, BESIDE = 4.0, 1e-3
#: Share of each recording's usable time that is held out where no recording can be spared.
LAST = 0.25
#: Fewer simulations than this leave a network nothing to learn from, once the checks have theirs.
FEWEST = 1000
#: More steps of one simulation than this are a clock in another unit, not an experiment: hours of simulated time.
MOST_STEPS = 10_000_000
#: Summaries of as many simulations still fit into memory.
MOST_SIMULATIONS = 10_000_000
#: Seeds fit into what torch and NumPy both accept, with room for those derived from them.
LARGEST_SEED = 2**62


@dataclass(frozen=True, eq=False)
class Plan:
    """What ``calibrate`` will do. ``str(plan)`` is the text a person reads before spending minutes.

    ``seconds_per_simulation`` is measured on one core; ``notes`` tell what was dropped or looks suspicious. ``limit`` [s] is what the
    user gave it: no batch is begun that could be left out after that time.
    """

    simulator: Simulator
    prior: Prior
    experiment: Experiment
    holdout: Experiment
    holdout_by: str
    method: Method
    simulations: int
    seed: int
    workers: int
    seconds_per_simulation: float
    notes: tuple[str, ...]
    limit: float | None = None

    @property
    def total(self) -> int:
        """All simulations of the calibration windows: to learn from, for the checks, to be weighted."""
        return self.simulations

    @property
    def seconds(self) -> float:
        """Expected time of the simulations on all workers [s], without training."""
        return self.total * self.seconds_per_simulation / self.workers

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""

        def listed(experiment: Experiment) -> list[dict[str, Any]]:
            return [{"recording": w.recording, "start": w.start, "seconds": w.duration, **w.constants} for w in experiment.windows]

        return {
            "simulator": self.simulator.name,
            "parameters": list(self.simulator.parameters.names),
            "windows": listed(self.experiment),
            "holdout": listed(self.holdout),
            "holdout_by": self.holdout_by,
            "method": self.method,
            "simulations": self.simulations,
            "seconds": self.limit,
            "seconds_per_simulation": self.seconds_per_simulation,
            "expected_seconds": self.seconds,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        space = self.simulator.parameters
        low, high = self.prior.interval(0.9)
        width = max(len(n) for n in space.names)
        lines = [f"{self.simulator.name}: {len(space)} unknowns, prior 90 % ranges"]
        lines += [f"  {p.name:<{width}}  {a:.4g} to {b:.4g} {p.unit}" for p, a, b in zip(space, low, high, strict=True)]
        lines += ["calibrate on", *_describe(self.experiment), f"hold out ({self.holdout_by})", *_describe(self.holdout)]
        lines.append(
            f"simulate {self.total} times ({self.method}), {self.seconds_per_simulation * 1e3:.1f} ms each: "
            f"about {self.seconds:.0f} s on {self.workers} worker(s), plus training"
        )
        lines += [f"note: {n}" for n in self.notes]
        return "\n".join(lines)


def plan(
    simulator: Simulator,
    prior: Prior,
    recordings: Sequence[Recording],
    *,
    holdout: Sequence[str | Path | Recording] | None = None,
    method: Method = "local",
    simulations: int | None = None,
    seconds: float | None = None,
    window: float | None = None,
    seed: int = 0,
    workers: int = 2,
) -> Plan:
    """Decide what is replayed and time a few simulations; nothing is written.

    ``holdout``: recordings that judge the result and tune nothing, by name, path or object; by default the last one of three
    or more, else the last quarter of each recording's usable time. ``window`` [s] cuts recordings into windows restarted
    from the measured state (default: what the simulator says, or whole stretches). ``seed`` decides every random choice.
    ``simulations`` of the calibration windows that may be spent (default: what ``method`` usually needs), fewer if ``seconds`` [s] of the
    whole run do not suffice for them by the time that a few took; then the result depends on how fast the machine is.

    Raises ExperimentError, RecordingError, PriorError or SimulatorError for inputs that do not fit together.
    """
    if method not in SIMULATIONS:
        raise ExperimentError(unknown("method", str(method), tuple(SIMULATIONS)))
    _check_numbers(SIMULATIONS[method] if simulations is None else simulations, workers, seed)
    if window is not None and not 0 < window < np.inf:
        raise ExperimentError(f"window = {window:g} s; give a positive length, or leave it out")
    fitted = prior.restricted(simulator.parameters)
    columns, layout, length = simulator.columns, simulator.layout, window if window is not None else simulator.window
    rate = LIKELIHOOD_RATE if method == "local" and not simulator.latent else HIGHEST_RATE
    calibration, held, by = _split(simulator, recordings, holdout)
    if held:
        experiment = build(calibration, columns, layout, window=length, rate=rate)
        judged = build(held, columns, layout, window=length)
    else:
        experiment, judged = _in_time(calibration, simulator, length, rate)
    notes = [f"{r.name}: {n}" for r in (*calibration, *held) for n in r.notes]
    notes += [*experiment.notes, *(n for n in judged.notes if n not in experiment.notes)]
    notes += implausible_columns([*calibration, *held], columns)
    for part in (experiment, judged):
        _check_steps(part, simulator)
    cost = _time(simulator, fitted, experiment, seed)
    if simulations is None:
        simulations = EXPLICIT if method == "local" and not simulator.latent else SIMULATIONS[method]
    if seconds is not None:
        afforded = _afforded(seconds, cost / workers)
        if afforded < simulations:
            notes.append(f"{seconds:g} s suffice for {afforded} simulations instead of {simulations}")
            simulations = afforded
    return Plan(simulator, fitted, experiment, judged, by, method, simulations, seed, workers, cost, tuple(notes), seconds)


def _afforded(seconds: float, cost: float) -> int:
    """Simulations of ``cost`` [s] each that fit into the time of a run."""
    afforded = int((seconds - FIXED) / (cost + BESIDE)) if 0 < seconds < np.inf else 0
    if afforded < FEWEST:
        least = FIXED + FEWEST * (cost + BESIDE)
        raise ExperimentError(
            f"seconds = {seconds:g}; a run needs at least {FEWEST} simulations, about {np.ceil(least):.0f} s here: give more time, more "
            "workers, or shorter recordings"
        )
    return afforded


def _check_numbers(simulations: int, workers: int, seed: int) -> None:
    if not simulations >= FEWEST:
        raise ExperimentError(f"simulations = {simulations}; a network needs at least {FEWEST}, and a useful posterior some thousands")
    if simulations > MOST_SIMULATIONS:
        raise ExperimentError(f"simulations = {simulations}; give at most {MOST_SIMULATIONS:,}, what a network can use and memory can hold")
    if not workers >= 1:
        raise ExperimentError(f"workers = {workers}; give at least 1")
    if not 0 <= seed < LARGEST_SEED:
        raise ExperimentError(f"seed = {seed}; give a whole number from 0 to {LARGEST_SEED - 1}")


def _split(
    simulator: Simulator, recordings: Sequence[Recording], holdout: Sequence[str | Path | Recording] | None
) -> tuple[list[Recording], list[Recording], str]:
    """Calibration recordings, held-out ones, and how they were chosen."""
    if not recordings:
        raise ExperimentError("no recordings; give at least one")
    if holdout is None:
        if len(recordings) >= 3:
            return list(recordings[:-1]), [recordings[-1]], "the last of the recordings; choose with --holdout"
        return list(recordings), [], f"the last {LAST:.0%} of each recording's usable time; choose recordings with --holdout"
    held = [r for item in holdout for r in _held_out(item, simulator, recordings)]
    files = {Path(r.path).resolve() for r in held}
    rest = [r for r in recordings if Path(r.path).resolve() not in files]
    if not held:
        raise ExperimentError("holdout is empty; name at least one recording, or leave it out to let sbical choose")
    if not rest:
        raise ExperimentError(f"every recording is held out ({', '.join(r.name for r in held)}); leave at least one to calibrate on")
    return rest, held, "chosen by the user"


def _held_out(item: str | Path | Recording, simulator: Simulator, recordings: Sequence[Recording]) -> list[Recording]:
    """A recording by object, by its name among those given, or by its path."""
    if isinstance(item, Recording):
        return [item]
    named = [r for r in recordings if r.name == str(item)]
    if named:
        return named
    # a path that was already read (with its --map and conditions) is that recording
    known = {Path(r.path).resolve(): r for r in recordings}
    already = known.get(Path(item).resolve())
    return [already] if already else read_recordings([item], simulator.columns)


def _in_time(recordings: Sequence[Recording], simulator: Simulator, window: float | None, rate: float) -> tuple[Experiment, Experiment]:
    """The first part of every recording, and the last, held-out one."""
    columns, layout = simulator.columns, simulator.layout
    first = build(recordings, columns, layout, window=window, before=1 - LAST, rate=rate)
    try:
        return first, build(recordings, columns, layout, window=window, after=1 - LAST)
    except ExperimentError as problem:
        raise ExperimentError(f"cannot hold out the last {LAST:.0%} of each recording: {problem}, or hold out a recording") from None


def _check_steps(experiment: Experiment, simulator: Simulator) -> None:
    """Refuse what could never be simulated, before trying."""
    longest = max(experiment.windows, key=lambda w: w.duration)
    steps = sum(w.duration for w in experiment.windows) / simulator.timestep
    if steps > MOST_STEPS:
        raise ExperimentError(
            f"a simulation would take {steps:.3g} steps of {simulator.timestep:g} s (recording '{longest.recording}' alone has a window of "
            f"{longest.duration:.3g} s); if its time is not in {simulator.columns.time_unit}: --map time=COLUMN:UNIT, like ms, us or ns, "
            "else use shorter recordings"
        )


def _describe(experiment: Experiment) -> list[str]:
    """One line per recording."""
    lines = []
    for name in dict.fromkeys(w.recording for w in experiment.windows):
        mine = [w for w in experiment.windows if w.recording == name]
        known = "".join(f", {k} = {v:g}" for k, v in mine[0].constants.items())
        total = sum(w.duration for w in mine)
        lines.append(f"  {name}: {len(mine)} window(s), {total:.2f} s in all, from {mine[0].start:.2f} s{known}")
    return lines


def _time(simulator: Simulator, prior: Prior, experiment: Experiment, seed: int) -> float:
    """Seconds per simulation on one core, from a few; the first ones build the model."""
    theta = prior.sample(12, seed)
    seeds = np.arange(12)
    with simulating():
        simulator.simulate(theta[:2], experiment, seeds[:2])
        began = time.process_time()
        outcome = simulator.simulate(theta[2:], experiment, seeds[2:])
        spent = (time.process_time() - began) / 10
    if not outcome.ok.any():
        raise SbicalError(
            f"all of 10 simulations under the prior failed; check timestep ({simulator.timestep:g} s) and the prior's ranges, "
            "or shorten the windows"
        )
    return spent
