"""Whatever a user hands in wrong is answered by one message with the culprit, the options and the fix, and exit code 2.

One table through the command line. Nothing is left half-written, nothing a user hands in is unpickled.
"""

from __future__ import annotations

import errno
import gzip
import importlib
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import mujoco
import numpy as np
import pytest
import torch
from distributed import Client, LocalCluster

import sbical
from sbical import cli
from sbical.common import catalog
from sbical.inference.estimator import Training
from sbical.simulation.families import families

KP = '\n[conditions.kp]\nunit = "1"\npattern = "kp(\\\\d+)_"\n'
PRIOR = """
[viscous]
distribution = "LogUniform"
low = 0.001
high = 0.1
unit = "N m s/rad"
source = "a test"
"""
HEADER = "time,torque,position,velocity,on"
CALIBRATE = "calibrate arm kp100_run.csv --prior prior.toml --output out"
PLAN = "plan arm kp100_run.csv --prior prior.toml"
RANGES = "export run json out"

Change = Callable[[Path], object]
Patch = Callable[[pytest.MonkeyPatch], None]


def motion(model_xml: str) -> list[str]:
    """Two seconds of the pendulum with a damping of 0.02 N m s/rad, as rows of a log."""
    model = mujoco.MjModel.from_xml_string(model_xml)
    model.dof_damping[:] = 0.02
    data, rows = mujoco.MjData(model), []
    for k in range(200):
        data.ctrl[0] = 0.4 * np.sin(0.05 * k)
        rows.append(",".join(f"{v:.6g}" for v in (0.01 * k, data.ctrl[0], data.qpos[0], data.qvel[0], 1)))
        mujoco.mj_step(model, data, nstep=5)
    return rows


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory, pendulum_toml: str, pendulum_xml: str) -> Path:
    """A simulator, a prior and a recording that fit together."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "arm").mkdir()
    enabled = pendulum_toml.replace('column = "torque"', 'column = "torque"\nenable = "on"')
    (folder / "arm" / "simulator.toml").write_text(enabled + KP)
    (folder / "arm" / "model.xml").write_text(pendulum_xml)
    (folder / "prior.toml").write_text(PRIOR)
    (folder / "kp100_run.csv").write_text("\n".join([HEADER, *motion(pendulum_xml)]) + "\n")
    return folder


@pytest.fixture(scope="session")
def saved(shop: Path, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest calibration there can be, saved; its verdict does not matter."""
    simulator, prior = sbical.load_simulator(shop / "arm"), sbical.load_prior(shop / "prior.toml")
    recordings = sbical.read_recordings(shop / "kp100_run.csv", simulator.columns)
    smallest = Training(members=2, trunk=(16,), head=8, epochs=1, steps=20)
    found = sbical.calibrate(simulator, prior, recordings, client=client, method="amortized", simulations=1000, training=smallest)
    return found.save(tmp_path_factory.mktemp("saved") / "run")


@pytest.fixture
def work(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a fresh copy of ``shop``, to make one mistake in."""
    shutil.copytree(shop, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one message that answers a command."""
    code = cli.main(command.split())
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith("error: ")
    assert captured.err.count("error:") == 1
    assert "Traceback" not in captured.err
    assert not Path("out").exists()
    return captured.err.removeprefix("error: ").removesuffix("\n")


@dataclass(frozen=True)
class Case:
    """A mistake: what ``change`` does to the working directory and ``patch`` to the machine, and the whole ``message`` or phrases in it."""

    message: str | tuple[str, ...]
    command: str = CALIBRATE
    change: Change | None = None
    patch: Patch | None = None


def edit(file: str, before: str, after: str) -> Change:
    def change(folder: Path) -> None:
        text = (folder / file).read_text()
        assert text.count(before) >= 1
        (folder / file).write_text(text.replace(before, after, 1))

    return change


def toml(before: str, after: str) -> Change:
    return edit("arm/simulator.toml", before, after)


def put(file: str, content: bytes | str) -> Change:
    """A file with this content."""
    return lambda folder: (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)


def rows(folder: Path) -> list[str]:
    return (folder / "kp100_run.csv").read_text().splitlines()[1:]


def log(make: Callable[[list[str]], list[str]], file: str = "kp100_run.csv") -> Change:
    """The recording with other rows."""
    return lambda folder: (folder / file).write_text("\n".join([HEADER, *make(rows(folder))]))


def cut_gzip(folder: Path) -> None:
    packed = gzip.compress((folder / "kp100_run.csv").read_bytes())
    (folder / "kp1_cut.csv.gz").write_bytes(packed[: len(packed) // 2])


class Malicious:
    """Makes the folder ``unpickled`` in the working directory when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, ("unpickled",)


def object_array(file: str) -> Change:
    """An NPZ whose arrays are pickles."""

    def change(folder: Path) -> None:
        array = np.empty(20, object)
        array[:] = Malicious()
        np.savez(folder / "objects.npz", time=array, header=array)
        (folder / "objects.npz").replace(folder / file)

    return change


def provenance(**new: object) -> Change:
    def change(folder: Path) -> None:
        path = folder / "run" / "provenance.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **new}))

    return change


def full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2e6))


def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, whom no permission stops."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbical.simulation.cluster.SCHEDULER_SECONDS", 0.3)
    monkeypatch.setattr("sbical.simulation.cluster.WORKER_SECONDS", 0.3)


TOML, UNITS = "arm/simulator.toml", "write units like rad, deg, deg/s, ms, N m, N m s/rad, kg m^2, %, or 1 for a plain number"
COLUMNS = "(valid: on, position, time, torque, velocity)"
RERUN = "calibrate again"

CASES: dict[str, Case] = {
    # names
    "simulator": Case(
        ("no simulator 'servo_pendulm' in the catalog; did you mean 'servo_pendulum'?", "or give a path"),
        "calibrate servo_pendulm --output out",
    ),
    "prior": Case(("no prior at 'nope.toml'; give a prior's TOML file, or a catalog name: ",), f"{CALIBRATE} --prior nope.toml"),
    "parameter": Case(
        (
            "prior 'prior.toml' has no entry for viscous (what it has for no parameter: viscos); add:",
            '[viscous]\ndistribution = "LogUniform"',
        ),
        change=edit("prior.toml", "[viscous]", "[viscos]"),
    ),
    "parameter without prior": Case(
        (
            "prior 'prior.toml' has no entry for coulomb; add:",
            '[coulomb]\ndistribution = "LogUniform"\nlow = ?\nhigh = ?\nunit = "N m"\nsource = "why this range"',
        ),
        change=toml(
            "[conditions.kp]", '[effects.dry]\nfamily = "joint_friction"\ntarget = "hinge"\nfrictionloss = "coulomb"\n[conditions.kp]'
        ),
    ),
    "parameter with a slash": Case(
        f"effects.viscous of {TOML}: damping = 'arm/viscous' is none of a parameter name (letters, digits, _), a number, "
        '{ condition = "NAME" }',
        change=toml('"viscous"', '"arm/viscous"'),
    ),
    "effect with a slash": Case(
        f"the name 'arm/viscous' of an effect in {TOML} is not a name (letters, digits, _ and - only); rename it",
        change=toml("[effects.viscous]", '[effects."arm/viscous"]'),
    ),
    "measurement with a slash": Case(
        "the name 'arm/q' of a command, measurement or condition is not a name (letters, digits, _ and - only); rename it",
        change=toml("[measurements.position]", '[measurements."arm/q"]'),
    ),
    "family": Case(
        f"no family 'joint_dampin' in effects.viscous of {TOML}; did you mean 'joint_damping'? (valid: {', '.join(sorted(families()))})",
        change=toml("joint_damping", "joint_dampin"),
    ),
    "role": Case(
        f"no role 'dampng' in effects.viscous of {TOML} (family joint_damping); did you mean 'damping'? (valid: damping)",
        change=toml("damping = ", "dampng = "),
    ),
    "joint": Case(
        f"no joint 'hing' in effects.viscous of {TOML}; did you mean 'hinge'? (valid: hinge)",
        change=toml('target = "hinge"', 'target = "hing"'),
    ),
    "sensor": Case(
        f"no sensor 'angel' in measurements.position of {TOML}; did you mean 'angle'? (valid: angle, rate)",
        change=toml('sensor = "angle"', 'sensor = "angel"'),
    ),
    "actuator": Case(
        f"no actuator 'mortor' in commands.torque of {TOML}; did you mean 'motor'? (valid: motor)",
        change=toml('actuator = "motor"', 'actuator = "mortor"'),
    ),
    "key that is no text": Case(
        f'commands.torque of {TOML}: column = 5 must be text in quotes, like column = "…"',
        change=toml('column = "torque"', "column = 5"),
    ),
    "column": Case(
        f"no column 'pos' in recording 'kp100_run' {COLUMNS}; it should hold 'position': name the right one with --map position=COLUMN",
        change=toml('column = "position"', 'column = "pos"'),
    ),
    "column in --map": Case(
        f"no column 'q' in recording 'kp100_run' {COLUMNS}; it should hold 'position': name the right one with --map position=COLUMN",
        f"{CALIBRATE} --map position=q",
    ),
    "name in --map": Case(
        "no column 'pos' in this simulator (valid: kp, position, time, torque, torque_enable, velocity); "
        "write NAME=COLUMN with the simulator's name first",
        f"{CALIBRATE} --map pos=position",
    ),
    "unit": Case(f"measurements.position of {TOML}: no unit 'radd'; {UNITS}", change=toml('unit = "rad"', 'unit = "radd"')),
    "unit in --map": Case(f"mapping position=position: no unit 'radd'; {UNITS}", f"{CALIBRATE} --map position=position:radd"),
    "unit of another quantity": Case(
        "mapping position=position: [m] cannot become [rad]: another quantity; declare the unit that the values have",
        f"{CALIBRATE} --map position=position:m",
    ),
    "unit of a prior": Case(
        f"prior 'prior.toml', entry 'viscous': no unit 'N m s/radd'; {UNITS}", change=edit("prior.toml", "N m s/rad", "N m s/radd")
    ),
    "distribution": Case(
        (
            "no distribution 'LogUnifrom' in prior 'prior.toml', entry 'viscous'; did you mean 'LogUniform'? (valid: AffineBeta, ",
            "TruncatedNormal, Uniform, Weibull)",
        ),
        change=edit("prior.toml", "LogUniform", "LogUnifrom"),
    ),
    "range upside down": Case(
        "prior 'prior.toml', entry 'viscous': LogUniform cannot have low = 0.001, high = 0.0001: LogUniform needs low < high",
        change=edit("prior.toml", "high = 0.1", "high = 0.0001"),
    ),
    "condition in --set": Case("no condition 'kq' in this simulator (valid: kp)", f"{CALIBRATE} --set kq=3"),
    "condition without a value": Case(
        (
            "recording 'run': condition 'kp' [1] is not known; give it with --set kp=VALUE",
            "as a line '# kp: VALUE' above the CSV's header, or name the file so that 'kp(\\d+)_' matches",
        ),
        "calibrate arm run.csv --prior prior.toml --output out",
        log(list, "run.csv"),
    ),
    # files
    "simulator.toml is no TOML": Case(
        f"{TOML} is not valid TOML: Invalid value (at line 2, column 9); fix that line", change=toml('"model.xml"', "model.xml")
    ),
    "simulator.toml is binary": Case(
        ("cannot read arm/simulator.toml: 'utf-8' codec can't decode byte",), change=put(TOML, b"\xff\x00\x80")
    ),
    "prior is no TOML": Case(("prior.toml is not valid TOML: ", "line 1"), change=put("prior.toml", "viscous ~ LogUniform\n")),
    "model does not compile": Case(
        f"the MJCF of {TOML} does not compile: Error: unknown transmission target 'elbow' for actuator id = 0 Element name 'motor', id 0, "
        "line 8; fix the model file",
        change=edit("arm/model.xml", 'name="motor" joint="hinge"', 'name="motor" joint="elbow"'),
    ),
    "model is no MJCF": Case(
        (f"the MJCF of {TOML} does not compile: XML parse error", "; fix the model file"), change=put("arm/model.xml", "<mujoco>")
    ),
    "no model": Case(
        "no file arm/model.xml; the model of a simulator lies beside its simulator.toml",
        change=lambda folder: (folder / "arm/model.xml").unlink(),
    ),
    # recordings
    "no recording": Case(
        "no recording 'nope.csv' in '.' (valid: kp100_run.csv); name a file, or a pattern like '*.csv'",
        "calibrate arm nope.csv --output out",
    ),
    "no reader": Case(
        ("no reader for 'prior.toml'; recordings end in .csv, .csv.gz, .npz: export the log to one of these",),
        "calibrate arm prior.toml --output out",
    ),
    "empty": Case("recording 'kp100_run.csv' is empty; log again, or leave the file out", change=put("kp100_run.csv", "")),
    "no samples": Case("recording 'kp100_run.csv' has a header but no samples; log again, or leave the file out", change=log(lambda _: [])),
    "truncated": Case(
        "recording 'kp1_cut.csv.gz' is cut short or damaged (Compressed file ended before the end-of-stream marker was reached); "
        "copy it again",
        "calibrate arm kp1_cut.csv.gz --output out",
        cut_gzip,
    ),
    "binary": Case(
        "recording 'kp100_run.csv' is binary, not CSV text; export the log as UTF-8 CSV, or as NPZ",
        change=put("kp100_run.csv", b"\x89PNG\r\n\x1a\n\x00\x00"),
    ),
    "NPZ that is none": Case(
        "recording 'kp1_run.npz' is not an NPZ file, or is cut short (File is not a zip file); save it again with np.savez",
        "calibrate arm kp1_run.npz --output out",
        put("kp1_run.npz", pickle.dumps(Malicious())),
    ),
    "NPZ of pickles": Case(
        (
            "recording 'kp1_run.npz': entry 'time' holds Python objects or is no array",
            "pickles are never loaded: save plain numeric arrays, np.asarray(x, float)",
        ),
        "calibrate arm kp1_run.npz --output out",
        object_array("kp1_run.npz"),
    ),
    "not monotonic": Case(
        (
            "recording 'kp100_run', torque (column 'torque'): time is out of order or repeated in 199 of 200 rows",
            "and steps back or stands still at rows 2, 3, 4, 5, 6 and 194 more; ",
            "split the file if it holds several runs, log time with a finer step, or map the right time column",
        ),
        change=log(lambda kept: kept[::-1]),
    ),
    "time stands still": Case(
        "recording 'kp100_run', torque (column 'torque'): time does not advance, every row is at 1 s; map the column that holds the time",
        change=log(lambda kept: [f"1,{row.partition(',')[2]}" for row in kept]),
    ),
    "time in nanoseconds": Case(
        (
            "a simulation would take ",
            " steps of 0.002 s (recording 'kp100_run' ",
            "if its time is not in s: --map time=COLUMN:UNIT, like ms, us or ns",
        ),
        change=log(lambda kept: [f"{k}0000000,{row.partition(',')[2]}" for k, row in enumerate(kept)]),
    ),
    "text": Case(
        "column 'position' of recording 'kp100_run' is not numeric: row 1 holds 'high'; log numbers, or map another column",
        change=log(lambda kept: ["0,0,high,0,1", *kept[1:]]),
    ),
    "no number anywhere": Case(
        "recording 'kp100_run', torque (column 'torque'): only 0 usable samples, at least 10 are needed; "
        "log longer, or leave the recording out",
        # nan, and the largest float, which loggers write for "no value"
        change=log(lambda kept: ["0,nan,0,0,1"] + [f"{k},1.8e308,0,0,1" for k, _ in enumerate(kept)]),
    ),
    "too short": Case(
        "recording 'kp100_run' has no usable span (span from 0.000 to 0.190 s dropped: shorter than 0.25 s); "
        "log at least 0.25 s without a gap while the motor is on, or leave the recording out",
        change=log(lambda kept: kept[:20]),
    ),
    "motor never on": Case(
        (
            "recording 'kp100_run' has no usable span (motor off (torque_enable = 0) from 0.000 to 1.990 s); ",
            "log at least 0.25 s without a gap while the motor is on",
        ),
        change=log(lambda kept: [f"{row.rpartition(',')[0]},0" for row in kept]),
    ),
    "no window": Case(
        "no usable window of at least 5 s in kp100_run; log longer motions, with at least 5 samples in every window, "
        "or pass another --window",
        f"{CALIBRATE} --window 5",
    ),
    "windows of nothing": Case(
        "windows of 1e-09 s are too short for recording 'kp100_run', which has a sample every 0.01 s: each needs 5; "
        "give a longer --window, or leave it out",
        f"{CALIBRATE} --window 1e-9",
    ),
    # numbers
    "simulations nan": Case("--simulations nan is not a whole number; give one like --simulations 8000", f"{CALIBRATE} --simulations nan"),
    "simulations negative": Case("--simulations -5 leaves nothing to run; give at least 1", f"{CALIBRATE} --simulations -5"),
    "simulations too few": Case(
        "simulations = 50; a network needs at least 1000, and a useful posterior some thousands", f"{CALIBRATE} --simulations 50"
    ),
    "seconds too few": Case(("seconds = 1; a run needs at least 1000 simulations, about ",), f"{CALIBRATE} --seconds 1"),
    "seconds nan": Case(("seconds = nan; a run needs at least 1000 simulations",), f"{CALIBRATE} --seconds nan"),
    "simulations too many": Case(("simulations = 10000000000; give at most 10,000,000",), f"{CALIBRATE} --simulations 10000000000"),
    "window nan": Case("window = nan s; give a positive length, or leave it out", f"{CALIBRATE} --window nan"),
    "window negative": Case("window = -1 s; give a positive length, or leave it out", f"{CALIBRATE} --window -1"),
    "window no number": Case("--window half is not a number; give one like --window 0.5", f"{CALIBRATE} --window half"),
    "workers nan": Case("--workers nan is not a whole number; give one like --workers 2", f"{CALIBRATE} --workers nan"),
    "workers negative": Case("--workers -2 leaves nothing to run; give at least 1", f"{CALIBRATE} --workers -2"),
    "workers too many": Case(
        ("workers = 100000; this machine has ", "give about as many, or --scheduler for a cluster"), f"{CALIBRATE} --workers 100000"
    ),
    "seed negative": Case("seed = -1; give a whole number from 0 to 4611686018427387903", f"{CALIBRATE} --seed -1"),
    "condition nan": Case(
        "cannot read --set kp=nan; write --set NAME=NUMBER or --set RECORDING.NAME=NUMBER, like --set kp=200", f"{CALIBRATE} --set kp=nan"
    ),
    # the machine
    "no scheduler": Case(
        (
            "no Dask scheduler answers at tcp://127.0.0.1:1 (",
            "start one with 'dask scheduler' and pass tcp://HOST:PORT, or leave --scheduler out to use this machine",
        ),
        f"{CALIBRATE} --scheduler tcp://127.0.0.1:1",
        patch=impatient,
    ),
    "no address": Case(("no Dask scheduler answers at cluster (missing port number",), f"{CALIBRATE} --scheduler cluster"),
    "disk full": Case(("has 2 MB left and a run needs 100; free some space or pass another --output",), patch=full),
    "disk read-only": Case(("cannot write into ", "(Read-only file system); pass an --output folder that is writable"), patch=read_only),
    "output that is no place for folders": Case(
        ("cannot write into /proc (", "); pass an --output folder that is writable"), f"{CALIBRATE} --output /proc/run"
    ),
    "output below a file": Case(("prior.toml is a file; pass another --output folder",), f"{CALIBRATE} --output prior.toml/run"),
    "output is a file": Case("prior.toml is a file; pass another --output folder", f"{CALIBRATE} --output prior.toml"),
    "output holds other files": Case(
        "arm holds files that are not a run of sbical; pass an empty or new --output folder", f"{CALIBRATE} --output arm --overwrite"
    ),
    "output is another run": Case(
        ("run holds another run (arm, 20", "); pass --overwrite to replace it, or another --output folder"), f"{CALIBRATE} --output run"
    ),
    # saved calibrations
    "no run": Case(
        "arm is not a calibration of sbical (no provenance.json); give the --output folder of a finished run", "report arm --output out"
    ),
    "run of another version": Case(
        f"run was made by sbical 9.9 (format 0), this is {sbical.__version__} (format 2); calibrate again, or read it with that version",
        RANGES,
        provenance(format=0, sbical="9.9"),
    ),
    "run of another version, infer": Case(
        ("run was made by sbical 9.9 (format 0)",), "infer run kp100_run.csv --output out", provenance(format=0, sbical="9.9")
    ),
    "provenance of something else": Case(
        f"cannot read run/provenance.json (not an object); {RERUN}", RANGES, put("run/provenance.json", "[]")
    ),
    "provenance without its origin": Case(
        f"run/provenance.json has lost sbical, created, simulator, timestep, integrator, seed, method; {RERUN}",
        RANGES,
        put("run/provenance.json", '{"format": 2}'),
    ),
    "run incomplete": Case(
        f"run/summary.npz is missing; the calibration is incomplete: {RERUN}", RANGES, lambda folder: (folder / "run/summary.npz").unlink()
    ),
    "run with a damaged simulator": Case(
        ("the simulator saved in run was changed or damaged ('utf-8' codec can't decode", RERUN), RANGES, put("run/model.xml", b"\x80\x00")
    ),
    "run with a pickle for arrays": Case(
        f"run/experiment.npz is not what sbical left there (no NPZ file, or cut short); {RERUN}",
        RANGES,
        put("run/experiment.npz", pickle.dumps(Malicious())),
    ),
    "run with arrays of pickles": Case(
        f"run/simulations.npz is not what sbical left there (Object arrays cannot be loaded when allow_pickle=False); {RERUN}",
        RANGES,
        object_array("run/simulations.npz"),
    ),
    "estimator with a pickled object": Case(
        ("run/estimator.pt is not an estimator that sbical saved", "give the estimator.pt of a calibration"),
        RANGES,
        lambda folder: torch.save({"format": 1, "members": Malicious()}, folder / "run/estimator.pt"),
    ),
    "estimator that is a pickle": Case(
        ("run/estimator.pt is not an estimator that sbical saved",), RANGES, put("run/estimator.pt", pickle.dumps(Malicious()))
    ),
    "posterior of something else": Case(
        ("run/posterior.nc is not a netCDF file: ", "or calibrate again"), RANGES, put("run/posterior.nc", pickle.dumps(Malicious()))
    ),
    "verdict of something else": Case(("not a verdict of sbical (KeyError('checks'))", RERUN), RANGES, put("run/verdict.json", "{}")),
    "protocol of another run": Case(
        ("no recording ran the protocol of 'kp100_run' (kp200_run: kp = 200 instead of 100)", "or calibrate this robot on its own"),
        "infer run kp200_run.csv --output out",
        log(list, "kp200_run.csv"),
    ),
    "report in no folder": Case(
        ("cannot write the report to prior.toml/r.html: Not a directory",), "report run --output prior.toml/r.html"
    ),
    "mass": Case("a range cannot hold a mass of 90; give a number between 0 and 1, for example 0.9", f"{RANGES} --mass 90"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_one_message_and_leaves_nothing(
    name: str, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    case = CASES[name]
    words = case.command.split()
    if "run" in words:
        shutil.copytree(request.getfixturevalue("saved"), work / "run")
    if case.change is not None:
        case.change(work)
    if case.patch is not None:
        case.patch(monkeypatch)
    before = listing(work)
    message = refusal(case.command, capsys)
    if isinstance(case.message, str):
        assert message == case.message
    else:
        assert [phrase for phrase in case.message if phrase not in message] == []
    assert listing(work) == before
    assert not Path("unpickled").exists()


def listing(folder: Path) -> dict[str, bytes | None]:
    """Every file with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def calibrated(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    """Let calibrate find a saved calibration at once, so that only saving it is left to do."""
    found = sbical.load_calibration(run)
    monkeypatch.setattr(importlib.import_module("sbical.pipeline"), "calibrate", lambda *_, **__: found)


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Files that the system itself refuses to let grow beyond 100 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
def test_disk_that_refuses_the_results(
    saved: Path, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrated(monkeypatch, saved)
    before = listing(work)
    assert refusal(CALIBRATE, capsys) == "cannot write the posterior to out/posterior.nc: File too large; choose another output folder"
    assert listing(work) == before


@pytest.mark.parametrize(
    "writer", ["sbical.results.npz_files.save_summary", "sbical.results.calibration._json", "sbical.results.calibration.write_report"]
)
@pytest.mark.parametrize("into", ["out", "run --overwrite"])
def test_disk_that_fills_up_halfway(
    writer: str, into: str, saved: Path, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_space(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    shutil.copytree(saved, work / "run")
    calibrated(monkeypatch, saved)
    monkeypatch.setattr(writer, no_space)
    before = listing(work)
    message = refusal(f"{CALIBRATE} --output {into}", capsys)
    assert message == f"cannot write {into.split()[0]} (No space left on device); free some space or pass another --output folder"
    assert listing(work) == before


@pytest.fixture(scope="module")
def lonely() -> Iterator[str]:
    """Address of a scheduler without workers."""
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False}) as scheduler:
        yield str(cast(Any, scheduler).scheduler_address)


def test_scheduler_without_workers(lonely: str, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    impatient(monkeypatch)
    before = listing(work)
    message = refusal(f"{CALIBRATE} --scheduler {lonely}", capsys)
    assert message == "the scheduler has no workers after 0.3 s; start some with 'dask worker SCHEDULER_ADDRESS'"
    assert listing(work) == before


@pytest.mark.parametrize("missing", ["sbical", "mujoco"])
def test_worker_that_cannot_import_the_package(
    missing: str, lonely: str, work: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f"import sys; sys.modules['{missing}'] = None; from distributed.cli.dask_worker import main; main(sys.argv[1:])"
    arguments = [lonely, "--no-nanny", "--no-dashboard", "--nthreads", "1", "--local-directory", str(tmp_path_factory.mktemp("worker"))]
    before = listing(work)
    worker = subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        message = refusal(f"{CALIBRATE} --scheduler {lonely}", capsys)
    finally:
        worker.terminate()
        worker.wait(30)
    assert message.startswith("worker tcp://127.0.0.1:")
    assert " cannot import sbical (" in message
    assert missing in message
    assert message.endswith(f"; install sbical {sbical.__version__} in its environment")
    assert listing(work) == before


def negated(file: Path, column: str, target: Path) -> None:
    """A log in which one joint turns the other way."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    k = lines[0].split(",").index(column)
    cells = [line.split(",") for line in lines[1:]]
    target.write_text("\n".join([lines[0], *(",".join([*c[:k], str(-float(c[k])), *c[k + 1 :]]) for c in cells)]))


def test_joints_in_another_sign_are_suspected_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for example in catalog.examples("double_pendulum"):
        negated(example, "pos_meas2", tmp_path / example.name)
    assert cli.main(["plan", "double_pendulum", str(tmp_path / "*.csv")]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("note:")] == [
        (
            "note: run1, run2, run3: angle2 (column 'pos_meas2') moves against torque2 (column 'tau_meas2'): "
            "another sign than the model? turn the joint's axis in the MJCF, or negate one column"
        )
    ]


def test_joints_in_another_order_are_suspected_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "double_pendulum", "--map", "angle1=pos_meas2", "--map", "angle2=pos_meas1"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note:")]
    for angle, column, other in (("angle1", "pos_meas2", "angle2"), ("angle2", "pos_meas1", "angle1")):
        suspected = [n for n in notes if f"{angle} (column '{column}') moves against" in n]
        assert any(f"and {other} moves with it: joints in another order? swap columns with --map" in n for n in suspected)


def test_joints_as_the_model_has_them_are_not_suspected(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "double_pendulum"]) == 0
    assert "note:" not in capsys.readouterr().out
