"""What a calibration leaves: posterior, verdict, ranges, and an estimator that serves the next robot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import sbical
from sbical.checks import Verdict, contraction, identified, judge, prior_edges, support
from sbical.checks.base import Evidence, Finding
from sbical.errors import ExperimentError, OutputError, SimulatorError
from sbical.inference.estimator import Estimator, load_estimator
from sbical.inference.local_estimator import LocalEstimator, load_local_estimator
from sbical.inference.summary import Summary
from sbical.laplace.linear_summary import LinearSummary
from sbical.priors.prior import Prior, load_prior
from sbical.recordings.experiment import Experiment
from sbical.recordings.protocol import experiment_on_protocol
from sbical.recordings.recording import Recording
from sbical.results import npz_files, run_folder
from sbical.results.exports import ranges
from sbical.results.posterior import Posterior
from sbical.results.provenance import FORMAT
from sbical.results.randomization import Randomization
from sbical.results.report import write_report
from sbical.simulation import simulator_toml
from sbical.simulation.fanout import SimulationSet
from sbical.simulation.replay import Replay, Replays
from sbical.simulation.simulator import Simulator

#: What every file of ranges says about where it came from.
ORIGIN = ("sbical", "created", "simulator", "timestep", "integrator", "seed", "method")


@dataclass(frozen=True, eq=False)
class Inference:
    """The posterior of another robot, from a trained estimator.

    ``verdict`` holds the checks that need no replay, and how the calibration itself was judged.
    """

    posterior: Posterior
    verdict: Verdict
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A judged posterior. Made by ``calibrate``, kept by ``save``, read back by ``load_calibration``."""

    simulator: Simulator
    prior: Prior
    experiment: Experiment
    summary: Summary | LinearSummary
    estimator: Estimator | LocalEstimator
    simulations: SimulationSet
    fresh: SimulationSet
    posterior: Posterior
    verdict: Verdict
    replays: Replays
    notes: tuple[str, ...]
    provenance: Mapping[str, Any]

    @property
    def holdout(self) -> Replay:
        """Posterior draws on the held-out windows, noise included."""
        return self.replays.holdout

    @property
    def holdout_before(self) -> Replay:
        """The prior's median on the held-out windows, noise-free."""
        return self.replays.before

    @property
    def holdout_after(self) -> Replay:
        """The posterior's median on the held-out windows, noise-free."""
        return self.replays.after

    def table(self) -> str:
        """Parameters with units, prior and posterior 90 % ranges and contraction, as plain text."""
        rows = [("parameter", "unit", "prior 90 %", "median", "posterior 90 %", "contraction")]
        for r in self.posterior.summary(0.9):
            prior, after = f"{r.prior_low:.3g} to {r.prior_high:.3g}", f"{r.low:.3g} to {r.high:.3g}"
            rows.append((r.name, r.unit, prior, f"{r.median:.4g}", after, f"{r.contraction:.2f}"))
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    @property
    def conditions(self) -> dict[str, float]:
        """A value for each condition: the mean of what was logged per sample, and the first recording's constants [SI]."""
        first = self.experiment.windows[0]
        known = dict(first.constants)
        for name in first.signals:
            known[name] = float(np.mean([w.signals[name].value.mean() for w in self.experiment.windows]))
        return known

    @property
    def several_conditions(self) -> tuple[str, ...]:
        """Conditions in which the recordings differ, so that ``conditions`` is a choice."""
        constants = [w.constants for w in self.experiment.windows]
        return tuple(name for name in constants[0] if len({c[name] for c in constants if name in c}) > 1)

    def randomization(self, mass: float = 0.9, *, conditions: Mapping[str, float] | None = None) -> Randomization:
        """Domain-randomization table and ranges; ``conditions`` [SI] replace what the recordings were made under.

        Raises OutputError for a mass outside (0, 1).
        """
        failed = tuple(f"{f.name}: {f.figure}" for f in self.verdict.checks if f.status == "fail")
        origin = {k: self.provenance[k] for k in ORIGIN}
        return Randomization.of(
            self.simulator, self.posterior.draws, mass=mass, status=self.verdict.status, reasons=failed,
            conditions={**self.conditions, **(conditions or {})}, provenance=origin,
        )  # fmt: skip

    def infer(self, recordings: Sequence[Recording], *, draws: int = 2000, seed: int = 0) -> Inference:
        """Posterior of another robot that ran the same protocol: no new simulation, no new training.

        Raises ExperimentError that names what differs in its commands, conditions or length, or if this calibration is local.
        """
        if self.provenance["method"] != "amortized" or not (isinstance(self.summary, Summary) and isinstance(self.estimator, Estimator)):
            raise ExperimentError(
                "this calibration is local: it knows the posterior of its own recordings only. Calibrate with method = amortized "
                "(--method amortized) to serve other robots, or calibrate this robot on its own"
            )
        experiment = experiment_on_protocol(self.experiment, recordings, self.simulator.columns)
        x_o = self.summary.observed(experiment)
        u = self.estimator.condition(x_o).sample(draws, seed=seed)
        posterior = replace(self.posterior, draws=self.prior.to_constrained(u), predictive=None)
        own = judge(self._evidence(x_o, u, posterior.draws), [support, prior_edges, contraction, identified])
        verdict = Verdict((*own.checks, self._finding()))
        repeated = [f"{r.name}: not used, another recording already ran its protocol" for r in recordings if r.name not in experiment.names]
        return Inference(posterior, verdict, (*(n for r in recordings for n in r.notes), *repeated))

    def _finding(self) -> Finding:
        """How the calibration that an inference rests on was judged; another robot cannot be trusted further than that."""
        status = self.verdict.status
        named = ", ".join(f.name for f in self.verdict.checks if f.status == status)
        passed = status == "pass"
        return Finding(
            name="calibration",
            status=status,
            figure="its own verdict is pass" if passed else f"its own verdict is {status} ({named})",
            threshold="the verdict of the calibration whose estimator is used",
            source="an estimator is not better for another robot",
            remedy="" if passed else "follow the remedies in the calibration's report; this robot's replay was not checked",
        )

    def _evidence(self, x_o: np.ndarray, u: np.ndarray, draws: np.ndarray) -> Evidence:
        """What the checks that need no new simulation look at."""
        x, fresh = self.simulations.x, self.fresh.x
        if x is None or fresh is None:
            raise OutputError("this calibration has lost its simulations; calibrate again")
        prior_u = self.prior.to_unconstrained(self.posterior.prior)
        return Evidence(
            names=self.prior.names, units=self.prior.units, prior=self.posterior.prior, prior_u=prior_u,
            posterior=draws, posterior_u=u, prior_interval=self.prior.interval(0.9), x_o=x_o,
            residual_features=self.summary.residual_features, x_train=x[self.simulations.ok], x_fresh=fresh[self.fresh.ok],
            theta_u_fresh=self.prior.to_unconstrained(self.fresh.theta[self.fresh.ok]),
            fresh_draws_u=np.empty((0, 0, len(self.prior.names))), fresh_log_q=np.empty(0), fresh_draws_log_q=np.empty((0, 0)),
            importance=None,
            holdout=None, holdout_before=None, holdout_after=None, fitted=None, unseen=None,
            failed_fraction=1 - float(self.simulations.ok.mean()),
        )  # fmt: skip

    def report(self, path: str | Path) -> None:
        """Write the HTML report. Raises OutputError if the file cannot be written."""
        write_report(
            path, title=f"sbical: {self.simulator.name}", posterior=self.posterior, verdict=self.verdict, replays=self.replays,
            provenance=dict(self.provenance), randomization=ranges.describe(self.randomization()), notes=self.notes,
        )  # fmt: skip

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the whole run into a folder, or nothing. Raises OutputError if the folder is another run's or not writable."""
        with run_folder.filling(folder, overwrite=overwrite) as partial:
            self.posterior.to_netcdf(partial / "posterior.nc")
            self.estimator.save(partial / "estimator.pt")
            self.randomization().save(partial)
            npz_files.save_experiment(partial / "experiment.npz", self.experiment)
            npz_files.save_summary(partial / "summary.npz", self.summary)
            npz_files.save_simulations(partial / "simulations.npz", self.simulations, self.provenance)
            npz_files.save_simulations(partial / "fresh.npz", self.fresh, self.provenance)
            replays = {"holdout": self.replays.holdout, "before": self.replays.before, "after": self.replays.after}
            npz_files.save_replays(partial / "holdout.npz", replays)
            (partial / "simulator.toml").write_text(self.simulator.toml, encoding="utf-8")
            (partial / "model.xml").write_text(self.simulator.xml, encoding="utf-8")
            (partial / "prior.toml").write_text(self.prior.to_toml(), encoding="utf-8")
            _json(partial / "verdict.json", self.verdict.to_dict())
            _json(partial / "provenance.json", {**self.provenance, "notes": list(self.notes)})
            self.report(partial / "report.html")
        return Path(folder)


def _json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def load_calibration(folder: str | Path, *, prior: Prior | None = None) -> Calibration:
    """Read back what ``Calibration.save`` wrote; nothing in it is unpickled.

    ``prior`` is needed where the prior was a Pyro model function, which no file holds: ``load_prior(function)`` again.

    Raises PriorError if that prior is missing, and OutputError if the folder is no calibration, is incomplete, or was made by
    a version with another layout.
    """
    path = Path(folder)
    origin = _read_json(path / "provenance.json", path)
    if origin.get("format") != FORMAT:
        raise OutputError(
            f"{path} was made by sbical {origin.get('sbical', '?')} (format {origin.get('format')}), this is {sbical.__version__} "
            f"(format {FORMAT}); calibrate again, or read it with that version"
        )
    lost = [key for key in ORIGIN if key not in origin]
    if lost:
        raise OutputError(f"{path / 'provenance.json'} has lost {', '.join(lost)}; calibrate again")
    simulator = _load_simulator(path, str(origin["simulator"]))
    summary = npz_files.load_summary(path / "summary.npz")
    read = load_estimator if isinstance(summary, Summary) else load_local_estimator
    replays = npz_files.load_replays(path / "holdout.npz")
    if not {"holdout", "before", "after"} <= set(replays):
        raise OutputError(f"{path / 'holdout.npz'} has lost a replay; calibrate again")
    posterior = Posterior.from_netcdf(path / "posterior.nc")
    if posterior.predictive is None:
        raise OutputError(f"{path / 'posterior.nc'} has lost its posterior_predictive; calibrate again")
    return Calibration(
        simulator=simulator, prior=(prior or load_prior(path / "prior.toml")).restricted(simulator.parameters),
        experiment=npz_files.load_experiment(path / "experiment.npz"),
        summary=summary, estimator=read(path / "estimator.pt"),
        simulations=npz_files.load_simulations(path / "simulations.npz"), fresh=npz_files.load_simulations(path / "fresh.npz"),
        posterior=posterior,
        verdict=Verdict.from_dict(_read_json(path / "verdict.json", path)),
        replays=Replays(posterior.predictive, replays["holdout"], replays["before"], replays["after"]),
        notes=tuple(origin.get("notes", ())), provenance=origin,
    )  # fmt: skip


def _load_simulator(path: Path, name: str) -> Simulator:
    try:
        toml, xml = ((path / f).read_text(encoding="utf-8") for f in ("simulator.toml", "model.xml"))
        return simulator_toml.parse(toml, path, name=name, xml=xml)
    except OSError as problem:
        raise OutputError(f"{problem.filename} is missing; the calibration is incomplete: calibrate again") from None
    except (SimulatorError, UnicodeDecodeError) as problem:
        raise OutputError(f"the simulator saved in {path} was changed or damaged ({problem}); calibrate again") from None


def _read_json(file: Path, folder: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("not an object")
        return data
    except (FileNotFoundError, NotADirectoryError):
        raise OutputError(f"{folder} is not a calibration of sbical (no {file.name}); give the --output folder of a finished run") from None
    except (OSError, ValueError) as problem:
        raise OutputError(f"cannot read {file} ({problem}); calibrate again") from None
