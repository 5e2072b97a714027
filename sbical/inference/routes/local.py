"""The local route: posterior of these recordings by Gauss-Newton, a small network per mode, and importance weights.

Prior draws near the recordings start Gauss-Newton; around every mode that matters the prior is cut down to a box in which the motion is
nearly linear, bent along the posterior's ridge if it has one; a small network learns the posterior there from linear summaries; its draws
are weighted by the explicit likelihood, which corrects what the network got wrong. If the weights say that the box was not the right one,
they say where the next one should be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sbical.errors import SimulationError
from sbical.inference import mode_estimator
from sbical.inference.importance_sampling import ProposalComponent, WeightedDraws, pool, weigh
from sbical.inference.local_estimator import LocalEstimator, ModePart
from sbical.inference.plan import Plan
from sbical.inference.proposal_adaptation import FEWEST, adapt
from sbical.inference.routes.base import DRAWS, FRESH, FreshPosteriors, RouteResult
from sbical.inference.training import Training
from sbical.laplace.expansion import Expansion, Problem, expand, refit, sensitivity, target_of
from sbical.laplace.likelihood import NoiseModel
from sbical.laplace.modes import find_modes
from sbical.priors.prior import Prior
from sbical.recordings.experiment import Experiment
from sbical.simulation.rollout import flatten
from sbical.simulation.runner import Runner, check_failures

#: The samples that a window's initial state was read from are part of its likelihood too. Knowing it so many times less well
#: beforehand counts them (nearly) once.
DIFFUSE = 5.0
#: Shares of the budget: prior draws to start from, training of one round, draws that are weighted to see how good a proposal is, one batch
#: of those that count, and all of these at least.
PILOT, TRAIN, TRIAL, BATCH, LEAST_FINAL = 0.06, 0.19, 0.06, 0.09, 0.10
ROUNDS = 3
#: Below this efficiency of the weights the network is trained again, where they point; above the other, proposals need no more trial.
POOR, GOOD = 0.03, 0.5
#: A mode gets at least this share of simulations.
LEAST_SHARE = 0.15
#: Noise-free simulations around a mode that show how the trajectories bend there.
BENT = 200
#: What is left to learn around a mode is little: one member is enough, and the weights correct it.
TRAINING = Training(members=1)


@dataclass(frozen=True, eq=False)
class LocalPosterior:
    """What the local route found: the last round's components, and their weighted draws."""

    components: tuple[ProposalComponent, ...]
    weighted: WeightedDraws
    rounds: int


def learn(runner: Runner, plan: Plan, training: Training, start_draws: np.ndarray | None = None) -> RouteResult:
    """The posterior of the plan's recordings; its simulator must have an explicit likelihood.

    ``start_draws`` (n, d): draws of another posterior of these recordings, to begin at instead of at draws of the prior.

    Raises SimulationError if no simulation comes near the recordings, or most of those around them fail.
    """
    found = local_posterior(
        runner, plan.prior, plan.experiment, budget=plan.total - FRESH, seed=plan.seed, training=training, start_draws=start_draws
    )
    weighted, rng = found.weighted, np.random.default_rng([plan.seed, 2])
    best = max(found.components, key=lambda c: c.share)
    u, errors = best.at.propose(FRESH, rng)
    experiment = plan.experiment.diffuse(DIFFUSE)
    fresh = runner.simulate("fresh", plan.prior.to_constrained(u), experiment, summary=best.at.summary, errors=errors)
    rows = weighted.importance.resample(DRAWS, rng)
    estimator = LocalEstimator(tuple(ModePart(c.share, c.at.summary, c.x_o, c.estimator) for c in found.components))
    statistics = {"log_weight": weighted.importance.log_weights[rows], "log_posterior": weighted.log_target[rows]}
    gap = weighted.importance.divergence(weighted.log_target - weighted.log_network(found.components))
    figures = {**weighted.importance.figures, "network_kl": gap}
    notes = [f"local route: {len(found.components)} mode(s), {found.rounds} round(s), {runner.count} simulations so far"]
    return RouteResult(
        best.at.summary, estimator, best.x_o, weighted.u[rows], best.simulated, fresh, FreshPosteriors.none(len(plan.prior.names)),
        weighted.importance, weighted.errors[rows], statistics, figures, tuple(notes),
    )  # fmt: skip


def local_posterior(
    runner: Runner, prior: Prior, experiment: Experiment, *, budget: int, seed: int, training: Training,
    start_draws: np.ndarray | None = None,
) -> LocalPosterior:  # fmt: skip
    """Posterior of the experiment's recordings where the likelihood is explicit, within ``budget`` simulations.

    Raises SimulationError if no simulation comes near the recordings.
    """
    rng = np.random.default_rng(seed)
    problem = posterior_problem(runner, prior, experiment.diffuse(DIFFUSE))
    pilot_u = (
        prior.to_unconstrained(prior.sample(round(PILOT * budget), seed)) if start_draws is None else start_draws[: round(PILOT * budget)]
    )
    pilot = _clean(runner, prior, problem.experiment, "pilot", exact=False)(pilot_u, None)
    with runner.timed("modes"):
        modes, shares = find_modes(problem, pilot_u, pilot, prior.names)
    if not modes:
        raise SimulationError("every simulation that came near the recordings failed; shorten the timestep, or check units and signs")
    number = 0
    while True:
        number += 1
        components = _train(runner, prior, problem, modes, shares, round(TRAIN * budget), rng, training)
        weighted = weigh(runner, prior, problem, components, round(TRIAL * budget), rng)
        left = (budget - runner.count) / budget
        if runner.late or number == ROUNDS or left < TRAIN + 2 * TRIAL + LEAST_FINAL or weighted.importance.efficiency > POOR:
            break
        modes, shares = _recentre(problem, components, weighted, prior.names)
    seen = [weighted]
    while True:
        components = adapt(components, seen, LEAST_SHARE, rng)
        seen.append(weigh(runner, prior, problem, components, round(TRIAL * budget), rng))
        left = (budget - runner.count) / budget
        if runner.late or seen[-1].importance.efficiency > GOOD or left < TRIAL + 2 * BATCH:
            break
    batches: list[tuple[Sequence[ProposalComponent], WeightedDraws]] = []
    while True:
        components = adapt(components, seen, LEAST_SHARE, rng)
        n = round(BATCH * budget) if batches else round(min(BATCH * budget, max((budget - runner.count) / 2, LEAST_FINAL * budget / 2)))
        batches.append((components, weigh(runner, prior, problem, components, n, rng)))
        seen.append(batches[-1][1])
        weighted = pool(batches)
        done = weighted.importance.trustworthy and weighted.importance.size >= DRAWS
        if len(batches) > 1 and (done or runner.late or budget - runner.count < BATCH * budget):
            return LocalPosterior(tuple(components), weighted, number)


def posterior_problem(runner: Runner, prior: Prior, experiment: Experiment) -> Problem:
    """The problem in the prior's unconstrained coordinates."""
    noise = NoiseModel(runner.simulator, experiment)
    centre, spread = prior.moments_unconstrained()
    low, high = (prior.to_constrained((centre + side * 4 * spread)[None]) for side in (-1, 1))
    target = target_of(noise, centre, spread, (low, high))
    clean = _clean(runner, prior, experiment, "modes", exact=True)
    return Problem(noise, target, clean, prior.to_constrained, prior.log_prob_unconstrained)


def _clean(runner: Runner, prior: Prior, experiment: Experiment, stage: str, *, exact: bool) -> Callable[..., np.ndarray]:
    def clean(u: np.ndarray, errors: np.ndarray | None) -> np.ndarray:
        found = runner.trajectories(stage, prior.to_constrained(u), experiment, noise=False, errors=errors, exact=exact)
        return flatten(found.values)

    return clean


def _train(
    runner: Runner, prior: Prior, problem: Problem, modes: Sequence[Expansion], shares: np.ndarray, n: int, rng: np.random.Generator,
    training: Training,
) -> list[ProposalComponent]:  # fmt: skip
    """Simulate around every mode and train an estimator for each."""
    shares = np.maximum(shares, LEAST_SHARE)
    shares = shares / shares.sum()
    observed = flatten(tuple(o[None] for o in problem.experiment.observed))[0]
    out = []
    for flat, share in zip(modes, shares, strict=True):
        mode = _bent(runner, prior, problem, flat, rng)
        u, errors = mode.propose(max(round(share * n), 400), rng)
        theta = prior.to_constrained(u)
        simulated = check_failures(runner.simulate("train", theta, problem.experiment, summary=mode.summary, errors=errors))
        if simulated.x is None:
            raise SimulationError("the simulations around a mode were not summarised")
        ok = simulated.ok
        with runner.timed("training"):
            trained = mode_estimator.fit(u[ok], simulated.x[ok], mode.box, seed=int(rng.integers(2**62)), training=training)
        with runner.timed("likelihood"):
            starts = sensitivity(problem, mode)
        out.append(ProposalComponent(mode, simulated, trained, mode.summary.row(observed), float(share), starts))
    return out


def _bent(runner: Runner, prior: Prior, problem: Problem, mode: Expansion, rng: np.random.Generator) -> Expansion:
    """The expansion with a summary that also sees how the trajectories bend."""
    u, errors = mode.propose(BENT, rng)
    found = runner.trajectories("train", prior.to_constrained(u), problem.experiment, noise=False, errors=errors)
    return replace(mode, summary=mode.summary.bent(flatten(found.values).astype(np.float64), mode.at.noise[problem.target.channel]))


def _recentre(
    problem: Problem, components: Sequence[ProposalComponent], trial: WeightedDraws, names: Sequence[str]
) -> tuple[list[Expansion], np.ndarray]:
    """Expansions where the weights say that the modes are, and the share of each; what follows a ridge stays where it is."""
    points, errors, covariances, shares = [], [], [], []
    for i, c in enumerate(components):
        u, local, share = trial.of(i)
        shares.append(share)
        if c.at.traces:
            continue
        mean, covariance = c.at.at.u, c.at.box.factor @ c.at.box.factor.T
        if local.size > FEWEST * len(mean):
            mean, covariance = local.moments(u)
        elif share > 0:
            # a few heavy draws: look around them with what is known of the shape, doubled
            mean, covariance = local.weights @ u, 4 * covariance
        points.append(mean)
        errors.append(c.at.follow(mean[None])[0])
        covariances.append(covariance)
    moved: Iterator[Expansion] = iter(())
    if points:
        fits = refit(problem, np.stack(points), np.stack(errors), [c.at.at for c in components if not c.at.traces])
        moved = iter(expand(problem, fits, covariances, names))
    again = [c.at if c.at.traces else next(moved) for c in components]
    kept = np.array(shares) > 1e-4
    shares_kept = np.array(shares)[kept]
    return [e for e, k in zip(again, kept, strict=True) if k], shares_kept / shares_kept.sum()
