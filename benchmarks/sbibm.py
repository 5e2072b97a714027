"""How near the posteriors are to exact ones: five tasks of sbibm at 10,000 simulations, one setting for all.

Per task and observation, a classifier tells 10,000 draws from sbibm's 10,000 reference draws: 0.5 is exact (C2ST, sbibm's own
settings: two hidden layers of ten units per parameter, five folds, z-scored by the reference). One estimator per task, with
``Training()``, serves all ten observations. ``Training`` was chosen on held-out likelihood, of these tasks among others (see
its docstring). One C2ST was seen on the way: 0.640 at two_moons' first observation, after which weight decay was looked into
and then settled on held-out likelihood. ``reference`` is the C2ST of one half of the reference draws
against the other half, at the first observation.

    python benchmarks/sbibm.py --json

Reference posteriors come from sbibm's wheel, which is downloaded (19 MB) and unpacked where ``--sbibm`` says, not installed.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
from classify import c2st
from common import Timer, finish, options
from sbibm_tasks import TASKS, Task

from sbical.inference.estimator import fit
from sbical.inference.training import Training

WHEEL = "sbibm==1.1.0"
CACHE = Path.home() / ".cache" / "sbical" / "sbibm"
#: Seeds of test simulations: none of them is a training seed.
HELD_OUT = 1_000_000


def fetch(folder: Path) -> Path:
    """The folder of tasks inside the unpacked wheel, downloaded first where it is missing."""
    tasks = folder / "sbibm" / "tasks"
    if not tasks.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", WHEEL, "--no-deps", "--dest", str(folder)]
        wheels = [] if subprocess.run(command, check=False, stdout=sys.stderr).returncode else list(folder.glob("sbibm-*.whl"))  # noqa: S603
        if not wheels:
            sys.exit(f"sbibm could not be downloaded; unzip its wheel ({WHEEL}) somewhere and pass that folder with --sbibm")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(folder)
    return tasks


def read(path: Path) -> np.ndarray:
    """A CSV of sbibm, plain or bz2, (rows, columns)."""
    return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)


def score(
    name: str, task: Task, files: Path, seed: int, observations: list[int], simulations: int, draws: int, training: Training
) -> dict[str, float]:
    """Train on one task, score every observation, and print it."""
    timer = Timer()
    estimator = fit(*task.draw(simulations, seed), seed=seed, training=training)
    trained, held_out = timer.seconds, -float(estimator.log_prob_pairs(*task.draw(4_000, HELD_OUT + seed)).mean())
    print(f"{name}, seed {seed}: trained in {trained:.0f} s, held-out negative log density {held_out:.3f} nats", flush=True)
    values: list[float] = []
    for i in observations:
        folder = files / f"num_observation_{i}"
        reference = read(folder / "reference_posterior_samples.csv.bz2")[:draws]
        drawn = task.constrain(estimator.condition(read(folder / "observation.csv")[0]).sample(draws, seed=i))
        values.append(c2st(reference, drawn))
        print(f"  observation {i}: {values[-1]:.3f} ({timer.seconds:.0f} s)", flush=True)
    return {"c2st": float(np.mean(values)), "sd": float(np.std(values)), "held_out_nats": held_out, "training_s": trained}


def halves(files: Path, draws: int) -> float:
    """C2ST of the reference against itself at the first observation."""
    reference = read(files / "num_observation_1" / "reference_posterior_samples.csv.bz2")[:draws]
    mixed = np.random.default_rng(0).permutation(reference)
    return c2st(mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sbibm", type=Path, default=CACHE, help=f"folder of the unpacked wheel (default: {CACHE})")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--observations", nargs="+", type=int, default=list(range(1, 11)), help="of 1 to 10")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulations", type=int, default=10_000)
    arguments = parser.parse_args()
    tasks, timer, figures = fetch(arguments.sbibm), Timer(), {}
    observations, simulations, draws, training = arguments.observations, arguments.simulations, 10_000, Training()
    if arguments.quick:
        observations, simulations, draws, training = observations[:1], 300, 300, Training(steps=100)
    for name in arguments.tasks:
        task, files = TASKS[name], tasks / name / "files"
        result = score(name, task, files, arguments.seed, observations, simulations, draws, training)
        figures[name] = round(result["c2st"], 4)
        newer = f", best newer figure {task.newer}" if task.newer else ""
        against = f"published NPE {task.published}{newer}, reference against itself {halves(files, draws):.3f}"
        print(f"{name}: C2ST {result['c2st']:.3f} (sd over observations {result['sd']:.3f}); {against}", flush=True)
    finish("sbibm", figures, [arguments.seed], timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
