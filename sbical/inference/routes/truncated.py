"""The truncated route, without a likelihood: the prior is cut to a box around a first posterior, and learned again there.

Truncated sequential neural posterior estimation (Deistler, Goncalves and Macke 2022, arXiv:2210.04815): simulations of the prior cut
down to a region need no correction as long as the region holds the whole posterior; within it, summaries and network are sharper.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sbical.errors import SimulationError
from sbical.inference.estimator import Estimator
from sbical.inference.plan import Plan
from sbical.inference.routes.base import DRAWS, FRESH, FRESH_DRAWS, RouteResult, features, fresh_posteriors, subset, summarised, train
from sbical.inference.training import Training
from sbical.laplace.truncated_box import Box
from sbical.priors.prior import Prior
from sbical.simulation.runner import Runner

#: Share of the budget that looks at the whole prior; the rest is spent within the region.
FIRST = 0.4
#: Draws of the first posterior that the region must hold, and the margin added around them [standard deviations of the draws].
HELD, MARGIN = 4000, 0.5
#: More draws of the final posterior than this outside of the region: it may have cut something off.
LEAKED = 0.05


def learn(runner: Runner, plan: Plan, training: Training, start_draws: np.ndarray | None = None) -> RouteResult:
    """Learn on the whole prior, then within the region that its answer leaves, and condition on the recordings.

    ``start_draws`` (n, d): draws of another posterior of these recordings, which stand in for the first answer.
    Raises SimulationError if most simulations fail.
    """
    prior, experiment = plan.prior, plan.experiment
    start_draws, spent = (start_draws, 0) if start_draws is not None else _first(runner, plan, training)
    box = bounding_box(start_draws, *prior.moments_unconstrained())
    rng = np.random.default_rng([plan.seed, 1])
    u = truncated_prior(prior, box, plan.total - spent, rng)
    summary, simulated = summarised(runner, "simulate the region", prior.to_constrained(u), experiment)
    trained_on, fresh = subset(simulated, slice(None, -FRESH)), subset(simulated, slice(-FRESH, None))
    learned_u = u[: len(trained_on.theta)][trained_on.ok]
    estimator = train(runner, learned_u, trained_on, seed=plan.seed + 2, training=training)
    x_o = summary.observed(experiment)
    draws, leaked = inside(estimator, box, x_o[None], DRAWS, plan.seed + 1)
    x, truths = features(fresh)[fresh.ok], u[len(trained_on.theta) :][fresh.ok]
    with runner.timed("checks"):
        judged = fresh_posteriors(estimator, truths, x, inside(estimator, box, x, FRESH_DRAWS, plan.seed + 3)[0])
    notes = []
    if leaked > LEAKED:
        notes.append(
            f"the region that was simulated may cut the posterior off: {leaked:.0%} of the estimator's draws lie outside; "
            "give more simulations"
        )
    share = np.exp(box.log_mass())
    notes.append(f"simulated where the recordings can come from: a region that holds {share:.2g} of the prior's probability")
    return RouteResult(summary, estimator, x_o, draws[0], trained_on, fresh, judged, notes=tuple(notes))


def _first(runner: Runner, plan: Plan, training: Training) -> tuple[np.ndarray, int]:
    """(n, d) draws of the posterior that a network of the whole prior gives, and the simulations that it took."""
    prior = plan.prior
    theta = prior.sample(round(FIRST * (plan.total - FRESH)), plan.seed)
    summary, simulated = summarised(runner, "simulate the prior", theta, plan.experiment)
    rough = replace(training, members=max(1, training.members // 2))
    first = train(runner, prior.to_unconstrained(theta[simulated.ok]), simulated, seed=plan.seed, training=rough)
    return first.condition(summary.observed(plan.experiment)).sample(HELD, seed=plan.seed + 1), len(theta)


def bounding_box(draws: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> Box:
    """The box along the principal axes of draws (n, d) that holds all of them, and a margin."""
    scored = (draws - centre) / spread
    values, axes = np.linalg.eigh(np.cov(scored.T).reshape(draws.shape[1], -1))
    scale = np.sqrt(np.clip(values, 1e-16, None))
    along = scored @ axes
    low, high = along.min(0) - MARGIN * scale, along.max(0) + MARGIN * scale
    return Box(centre, spread, scored.mean(0), axes, scale, low, high)


def truncated_prior(prior: Prior, box: Box, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, d) draws of the prior within the box."""
    u = box.sample(n, rng)
    weight = prior.log_prob_unconstrained(u) - box.log_prob(u)
    if np.ptp(weight) < 1e-6:
        return u
    # not normal in these coordinates: draws of a normal with the prior's moments, thinned by what the prior says
    u = box.sample(20 * n, rng)
    weight = prior.log_prob_unconstrained(u) - box.log_prob(u)
    keys = weight + rng.gumbel(size=len(u))
    return u[np.argsort(keys)[::-1][:n]]


def inside(estimator: Estimator, box: Box, x: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, float]:
    """(m, n, d) draws within the box given each row of x (m, k), and the share of draws that fell outside.

    Raises SimulationError if hardly any draw falls inside.
    """
    drawn = estimator.sample_many(x, 2 * n, seed)
    m, count, d = drawn.shape
    within = np.isfinite(box.log_prob(drawn.reshape(-1, d))).reshape(m, count)
    if m == 1 and within.sum() < n / 10:
        raise SimulationError("the estimator's answer lies outside of the region it learned in; give more simulations or another seed")
    # those inside first, in their order; the few rows with too few of them keep some from outside
    order = np.argsort(~within, axis=1, kind="stable")[:, :n]
    return np.take_along_axis(drawn, order[..., None], axis=1), 1 - float(within.mean())
