"""The amortized route: one estimator over the whole prior, which serves every robot that runs the same protocol."""

from __future__ import annotations

from sbical.inference.plan import Plan
from sbical.inference.routes.base import DRAWS, FRESH, FRESH_DRAWS, RouteResult, features, fresh_posteriors, subset, summarised, train
from sbical.inference.training import Training
from sbical.simulation.runner import Runner


def learn(runner: Runner, plan: Plan, training: Training) -> RouteResult:
    """Simulate draws of the prior, train on their summaries, condition on the recordings.

    Raises SimulationError if most simulations fail.
    """
    prior, experiment = plan.prior, plan.experiment.spread()
    theta = prior.sample(plan.total, plan.seed)
    summary, simulated = summarised(runner, "simulate", theta, experiment)
    trained_on, fresh = subset(simulated, slice(None, -FRESH)), subset(simulated, slice(-FRESH, None))
    theta_u = prior.to_unconstrained(trained_on.theta[trained_on.ok])
    estimator = train(runner, theta_u, trained_on, seed=plan.seed, training=training)
    x_o = summary.observed(plan.experiment)
    x, truths = features(fresh)[fresh.ok], prior.to_unconstrained(fresh.theta[fresh.ok])
    with runner.timed("checks"):
        draws = estimator.sample_many(x, FRESH_DRAWS, seed=plan.seed + 3)
        judged = fresh_posteriors(estimator, truths, x, draws)
    return RouteResult(summary, estimator, x_o, estimator.condition(x_o).sample(DRAWS, seed=plan.seed + 1), trained_on, fresh, judged)
