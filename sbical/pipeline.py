"""The whole line in one function: recordings, simulator and prior in, a judged posterior out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from distributed import Client

from sbical.checks import judge
from sbical.checks.base import Evidence
from sbical.common.progress import NullProgress, Progress
from sbical.errors import ExperimentError, OutputError
from sbical.inference.plan import Method, Plan, plan
from sbical.inference.routes import amortized, local, truncated
from sbical.inference.routes.base import DRAWS, REPLAYED, RouteResult, features
from sbical.inference.training import Training
from sbical.laplace.likelihood import NoiseModel
from sbical.priors.prior import Prior
from sbical.recordings.experiment import Experiment
from sbical.recordings.recording import Recording
from sbical.results.calibration import Calibration, load_calibration
from sbical.results.posterior import Posterior
from sbical.results.provenance import identity, provenance
from sbical.simulation.cluster import check_workers, cluster
from sbical.simulation.journal import Journal
from sbical.simulation.replay import Replay, Replays, Reproduction, replay, reproduction
from sbical.simulation.runner import Runner
from sbical.simulation.simulator import Simulator


def calibrate(
    simulator: Simulator,
    prior: Prior,
    recordings: Sequence[Recording],
    *,
    holdout: Sequence[str | Path | Recording] | None = None,
    client: Client | str | None = None,
    workers: int = 2,
    method: Method = "local",
    simulations: int | None = None,
    seconds: float | None = None,
    window: float | None = None,
    seed: int = 0,
    training: Training | None = None,
    progress: Progress | None = None,
    profiler_clock: bool = False,
    store: str | Path | None = None,
    resume: bool = False,
    start: Calibration | str | Path | None = None,
) -> Calibration:
    """Learn from recordings what the simulator gets wrong, and judge how far that can be trusted.

    Simulations fan out over ``client`` (a Dask client or a scheduler's address), or over ``workers`` local processes: a script
    that does the latter needs ``if __name__ == "__main__":``. See ``plan`` for ``holdout``, ``window`` and ``seed``.

    ``method`` "local" looks for the posterior of these recordings only, where it lies: by the explicit likelihood if the simulator
    has one, else by cutting the prior down in two rounds. "amortized" learns the whole prior, so that ``Calibration.infer`` serves
    other robots. ``simulations`` and ``seconds``: budgets, see ``plan``; by default as many simulations as the method usually needs.
    ``profiler_clock`` leaves MuJoCo's timer on in the workers; results are the same, simulations slower.
    ``store``: a new folder (Zarr) that keeps simulations as they arrive; with ``resume``, that of an earlier attempt at the same run,
    whose simulations are not done again: the result is the same as without the interruption. It is left for you to delete.
    ``start``: an amortized calibration of the same protocol (or its folder), whose answer for these recordings tells the local method
    where to begin.

    Raises the errors of ``plan``, ClusterError, SimulationError if most simulations fail, OutputError for a store that belongs to
    another run, and ExperimentError for a start that cannot serve these recordings.
    """
    intended = plan(
        simulator, prior, recordings, holdout=holdout, method=method, simulations=simulations, seconds=seconds, window=window, seed=seed,
        workers=workers,
    )  # fmt: skip
    if isinstance(start, str | Path):
        start = load_calibration(start)
    return run(
        intended, client=client, training=training, progress=progress, profiler_clock=profiler_clock, store=store, resume=resume,
        start_draws=None if start is None else _start_draws(intended, start, recordings),
    )  # fmt: skip


def run(
    intended: Plan,
    *,
    client: Client | str | None = None,
    training: Training | None = None,
    progress: Progress | None = None,
    profiler_clock: bool = False,
    store: str | Path | None = None,
    resume: bool = False,
    start_draws: np.ndarray | None = None,
) -> Calibration:
    """Carry a plan out; see ``calibrate``. ``start_draws`` (n, d): draws, in unconstrained coordinates, where the local method begins."""
    intended, journal = _journal(intended, training, store, start_draws, resume=resume)
    with cluster(client, workers=intended.workers) as opened:
        check_workers(opened)
        seeds = np.random.SeedSequence(intended.seed)
        runner = Runner(
            intended.simulator,
            opened,
            progress or NullProgress(),
            seeds,
            cost=intended.seconds_per_simulation,
            profiler_clock=profiler_clock,
            limit=intended.limit,
            journal=journal,
        )
        learned = _learn(runner, intended, training, start_draws)
        prior_draws = intended.prior.sample(DRAWS, intended.seed + 2)
        draws = intended.prior.to_constrained(learned.posterior_u)
        fitted, unseen = _reproductions(runner, intended, learned, draws)
        before, after = _medians(runner, intended, draws, prior_draws)
        holdout = _replay(runner, "replay held out", draws[:REPLAYED], intended.holdout)
        replays = Replays(fitted.noisy, holdout, before, after)
    with runner.timed("checks"):
        verdict = judge(_evidence(intended, learned, draws, prior_draws, replays, (fitted, unseen), runner))
    begun = () if start_draws is None else ("began where an amortized calibration (the start) had its answer for these recordings",)
    origin = {"simulator": intended.simulator.name, **learned.figures}
    posterior = Posterior(
        intended.prior.names, intended.prior.units, draws, prior_draws, replays.predictive, origin, learned.statistics,
    )  # fmt: skip
    return Calibration(
        simulator=intended.simulator, prior=intended.prior, experiment=intended.experiment, summary=learned.summary,
        estimator=learned.estimator, simulations=learned.trained_on, fresh=learned.fresh, posterior=posterior, verdict=verdict,
        replays=replays, notes=(*intended.notes, *learned.notes, *begun), provenance=provenance(intended, runner),
    )  # fmt: skip


def _start_draws(intended: Plan, start: Calibration, recordings: Sequence[Recording]) -> np.ndarray:
    """(n, d) draws of the posterior that another calibration's estimator gives these recordings, in unconstrained coordinates."""
    if intended.method != "local":
        raise ExperimentError("a start (--start) serves the local method only; leave it out, or calibrate with --method local")
    if start.provenance["method"] != "amortized":
        raise ExperimentError(
            "the start (--start) is a local calibration, which knows its own recordings only; give the run of an amortized one"
        )
    if start.prior.names != intended.prior.names:
        raise ExperimentError(
            f"the start (--start) has the unknowns {', '.join(start.prior.names)}, this simulator {', '.join(intended.prior.names)}; "
            "give a calibration of the same simulator"
        )
    seen = [r for r in recordings if r.name in intended.experiment.names]
    posterior = start.infer(seen, draws=truncated.HELD, seed=intended.seed).posterior
    u = intended.prior.to_unconstrained(posterior.draws)
    inside = u[np.isfinite(u).all(1)]
    if len(inside) < len(u) / 2:
        raise ExperimentError("most of what start finds possible lies outside of this prior; give the prior of that calibration")
    return inside


def _journal(
    intended: Plan, training: Training | None, store: str | Path | None, start_draws: np.ndarray | None, *, resume: bool
) -> tuple[Plan, Journal | None]:  # fmt: skip
    """What keeps the simulations, and the plan with what a resumed run must not measure again: it would draw other parameters."""
    if store is None:
        if resume:
            raise OutputError("resume = True without a store; give the folder that keeps the simulations of the earlier attempt")
        return intended, None
    same = identity(intended, training, start_draws)
    if not resume:
        measured = {"simulations": intended.simulations, "seconds_per_simulation": intended.seconds_per_simulation}
        return intended, Journal.begin(store, {**same, "measured": measured})
    journal = Journal.resume(store, same)
    return replace(intended, **journal.run["measured"]), journal


def _learn(runner: Runner, intended: Plan, training: Training | None, start_draws: np.ndarray | None) -> RouteResult:
    """The route that the method and the simulator ask for."""
    if intended.method == "amortized":
        return amortized.learn(runner, intended, training or Training())
    if NoiseModel(intended.simulator, intended.experiment).exact:
        return local.learn(runner, intended, training or local.TRAINING, start_draws)
    return truncated.learn(runner, intended, training or Training(), start_draws)


def _reproductions(runner: Runner, intended: Plan, learned: RouteResult, draws: np.ndarray) -> tuple[Reproduction, Reproduction]:
    """Posterior predictive on the calibration and on the held-out windows, with and without what is random."""
    some, fitted, rng = draws[:REPLAYED], learned.errors, np.random.default_rng([intended.seed, 5])
    # a start that the likelihood looked for is known as widely as it was there
    own = intended.experiment if fitted is None else intended.experiment.diffuse(local.DIFFUSE)
    errors = _starts(own, len(some), rng) if fitted is None else fitted[:REPLAYED]
    learned_from = _reproduction(runner, "replay", some, own, errors)
    # a motion that opens with a jolt is over before its first samples can show it; no likelihood corrects a held-out start
    wide = intended.holdout.diffuse(local.DIFFUSE)
    return learned_from, _reproduction(runner, "replay held out, wide starts", some, wide, _starts(wide, len(some), rng))


def _starts(experiment: Experiment, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, windows, nq + nv) errors of initial states, so that replays with and without noise share their starts."""
    return rng.standard_normal((n, len(experiment.windows), len(experiment.windows[0].initial.mean)))


def _reproduction(runner: Runner, stage: str, theta: np.ndarray, experiment: Experiment, errors: np.ndarray) -> Reproduction:
    noisy = _replay(runner, stage, theta, experiment, errors=errors)
    clean = _replay(runner, f"{stage}, noise-free", theta, experiment, noise=False, errors=errors)
    return reproduction(experiment, noisy, clean)


def _medians(runner: Runner, intended: Plan, draws: np.ndarray, prior_draws: np.ndarray) -> tuple[Replay, Replay]:
    """The prior's median and the posterior's alone on the held-out windows, noise-free."""
    medians = np.stack([np.median(prior_draws, 0), np.median(draws, 0)])
    points = _replay(runner, "replay medians", medians, intended.holdout, noise=False)
    before, after = (_draw(points, slice(i, i + 1)) for i in (0, 1))
    return before, after


def _replay(
    runner: Runner, stage: str, theta: np.ndarray, experiment: Experiment, *, noise: bool = True, errors: np.ndarray | None = None
) -> Replay:
    return replay(experiment, runner.trajectories(stage, theta, experiment, noise=noise, errors=errors))


def _draw(full: Replay, rows: slice) -> Replay:
    return replace(full, windows=tuple(replace(w, draws=w.draws[rows]) for w in full.windows))


def _evidence(
    intended: Plan, learned: RouteResult, draws: np.ndarray, prior_draws: np.ndarray, replays: Replays,
    reproductions: tuple[Reproduction, Reproduction], runner: Runner,
) -> Evidence:  # fmt: skip
    """What the checks look at."""
    prior, fresh, trained, judged = intended.prior, learned.fresh, learned.trained_on, learned.fresh_posteriors
    return Evidence(
        names=prior.names, units=prior.units, prior=prior_draws, prior_u=prior.to_unconstrained(prior_draws), posterior=draws,
        posterior_u=learned.posterior_u, prior_interval=prior.interval(0.9), x_o=learned.x_o,
        residual_features=learned.summary.residual_features,
        x_train=features(trained)[trained.ok], x_fresh=features(fresh)[fresh.ok], theta_u_fresh=judged.theta_u,
        fresh_draws_u=judged.draws_u, fresh_log_q=judged.log_q, fresh_draws_log_q=judged.draws_log_q,
        importance=learned.importance, holdout=replays.holdout, holdout_before=replays.before, holdout_after=replays.after,
        fitted=reproductions[0], unseen=reproductions[1], failed_fraction=runner.failed / max(runner.count, 1),
    )  # fmt: skip
