"""The command line: what it parses, prints and refuses. The calibration behind it is tested elsewhere."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
import subprocess
import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from rich.console import Console

from sbical import cli
from sbical.checks.base import Finding, Status, Verdict
from sbical.cli import tables, values
from sbical.cli.run import Inputs
from sbical.common import catalog
from sbical.errors import RecordingError
from sbical.recordings.column_map import Column, Columns
from sbical.results.posterior import Posterior
from sbical.results.randomization import Randomization
from sbical.simulation import journal
from sbical.simulation.replay import Replay, WindowReplay
from sbical.simulation.simulator_toml import load_simulator

EXAMPLES = [str(p) for p in catalog.examples("servo_pendulum")]


def one_window(error: float) -> Replay:
    """A replay that is off by ``error`` everywhere."""
    window = WindowReplay("run3", 0.0, np.arange(3.0), np.zeros((3, 1)), np.full((1, 3, 1), error))
    return Replay(("position",), ("rad",), (window,))


class FakeCalibration:
    """What the command line asks of a calibration."""

    several_conditions = ("kp",)

    def __init__(self, status: Status = "pass") -> None:
        self.simulator = load_simulator("servo_pendulum")
        space = self.simulator.parameters
        draws = np.linspace(0.1, 0.2, 50)[:, None] * np.ones(len(space))
        self.posterior = Posterior(space.names, space.units, draws, np.linspace(0.0, 1.0, 50)[:, None] * np.ones(len(space)))
        remedy = "" if status == "pass" else "record more"
        self.verdict = Verdict((Finding("support", status, "p = 0.4", "p < 0.01", "a paper", remedy),))
        self.holdout_before, self.holdout_after = one_window(0.1), one_window(0.02)
        self.notes = ("run1: 2 rows dropped",)
        self.saved: tuple[Path, bool] | None = None

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        folder.mkdir(parents=True)
        (folder / "posterior.nc").write_text("")
        (folder / "report.html").write_text("")
        self.saved = (folder, overwrite)

    def report(self, path: Path) -> None:
        path.write_text("report")

    def randomization(self, mass: float, conditions: Mapping[str, float]) -> Randomization:
        known = {"kp": 200.0, "supply": 7.4, **conditions}
        return Randomization.of(self.simulator, self.posterior.draws, mass=mass, status=self.verdict.status, conditions=known)

    def infer(self, recordings: Sequence[Any]) -> types.SimpleNamespace:
        return types.SimpleNamespace(posterior=self.posterior, verdict=self.verdict, notes=(f"{len(recordings)} recordings",))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace the whole line behind the command line; the dictionary holds what it was asked for."""
    seen: dict[str, Any] = {"calibration": FakeCalibration()}

    def calibrate(simulator: object, prior: object, recordings: list[Any], **options: Any) -> FakeCalibration:
        seen.update(options, simulator=simulator, prior=prior, recordings=[r.name for r in recordings])
        return seen["calibration"]

    def plan(simulator: object, prior: object, recordings: list[Any], **options: Any) -> str:
        calibrate(simulator, prior, recordings, **options)
        return "a plan [rad]"

    def load_calibration(folder: Path) -> FakeCalibration:
        seen["folder"] = folder
        return seen["calibration"]

    fakes = {
        "sbical.pipeline": types.SimpleNamespace(calibrate=calibrate, plan=plan),
        "sbical.results.calibration": types.SimpleNamespace(load_calibration=load_calibration),
        "sbical.priors.prior": types.SimpleNamespace(load_prior=lambda name: f"prior {name}"),
    }
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    return seen


def test_calibrate_passes_everything_on_and_ends_with_the_results(
    asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    options = [
        "--prior",
        "hobby_servo",
        "--seed",
        "3",
        "--workers",
        "1",
        "--method",
        "amortized",
        "--simulations",
        "500",
        "--seconds",
        "90",
        "--window",
        "0.5",
    ]
    code = cli.main(["calibrate", "servo_pendulum", *EXAMPLES, *options, "--scheduler", "tcp://x:1", "--output", str(folder)])
    out = capsys.readouterr().out
    assert code == 0
    assert asked["recordings"] == [Path(e).stem for e in EXAMPLES]
    assert {k: asked[k] for k in ("prior", "seed", "workers", "method", "simulations", "seconds", "window", "client", "holdout")} == {
        "prior": "prior hobby_servo",
        "seed": 3,
        "workers": 1,
        "method": "amortized",
        "simulations": 500,
        "seconds": 90.0,
        "window": 0.5,
        "client": "tcp://x:1",
        "holdout": None,
    }
    assert asked["calibration"].saved == (folder, False)
    row = next(line for line in out.splitlines() if "torque_constant" in line)
    assert row.split() == ["torque_constant", "N", "m/A", "0.05", "to", "0.95", "0.15", "0.105", "to", "0.195", "0.98"]
    assert "position          rad    0.1                        0.02                           -80 %" in out
    assert "verdict: pass (every check passed)" in out
    assert "note: run1: 2 rows dropped" in out
    assert f"results in {folder}: report.html, posterior.nc" in out


def refused(*_: object, **__: object) -> None:
    raise RecordingError("found out late")


def test_a_finished_run_keeps_no_store_and_an_unfinished_one_is_not_lost(
    asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "run.unfinished"
    line = ["calibrate", "servo_pendulum", "--prior", "hobby_servo", "--output", str(tmp_path / "run")]
    told = {
        **dict.fromkeys(journal.TOLD, "yesterday"),
        "measured": {"simulations": 9, "seconds_per_simulation": 1.0},
        "format": journal.FORMAT,
    }
    zarr.create_group(store, attributes=told)
    assert cli.main(line) == 2
    assert "begun yesterday" in capsys.readouterr().err
    assert cli.main([*line, "--resume"]) == 0
    assert (asked["store"], asked["resume"]) == (store, True)
    assert not store.exists()
    (tmp_path / "run" / "provenance.json").write_text("{}", encoding="utf-8")
    assert cli.main([*line, "--resume"]) == 2
    assert "is finished, there is nothing to resume" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "run")
    assert cli.main([*line, "--resume"]) == 2
    assert "no unfinished run" in capsys.readouterr().err
    zarr.create_group(store, attributes=told)
    assert cli.main([*line, "--overwrite", "--holdout", "nosuch.csv"]) == 2
    assert store.exists()  # a mistake costs no simulation
    asked["calibration"].save = refused
    assert cli.main([*line, "--overwrite"]) == 2
    assert journal.describe(store)["began"] == "yesterday"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.unfinished"]
    del asked["calibration"].save
    assert cli.main([*line, "--overwrite"]) == 0
    assert asked["resume"] is False
    assert not store.exists()


def test_without_recordings_the_example_is_used(asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["calibrate", "servo_pendulum", "--prior", "hobby_servo"]) == 0
    assert asked["recordings"] == [Path(e).stem for e in EXAMPLES]
    assert asked["calibration"].saved == (Path("runs/servo_pendulum"), False)


@pytest.mark.parametrize("way", ["name", "path", "extra file"])
def test_holdout_by_name_or_path(asked: dict[str, Any], tmp_path: Path, way: str) -> None:
    last = {"name": Path(EXAMPLES[-1]).stem, "path": EXAMPLES[-1], "extra file": EXAMPLES[-1]}[way]
    given = EXAMPLES[:-1] if way == "extra file" else EXAMPLES
    args = ["calibrate", "servo_pendulum", *given, "--prior", "hobby_servo", "--output", str(tmp_path / "run"), "--holdout", last]
    assert cli.main(args) == 0
    assert asked["recordings"] == [Path(e).stem for e in EXAMPLES[:-1]]
    assert [r.name for r in asked["holdout"]] == [Path(EXAMPLES[-1]).stem]


def test_plan_prints_the_plan(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "servo_pendulum", "--prior", "hobby_servo", "--set", "kp=150"]) == 0
    assert capsys.readouterr().out == "a plan [rad]\n"
    assert "progress" not in asked


def test_infer_prints_and_writes(asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "unit2.nc"
    assert cli.main(["infer", "a_run", EXAMPLES[0], "--output", str(target)]) == 0
    assert asked["folder"] == Path("a_run")
    assert "note: 1 recordings" in capsys.readouterr().out
    assert Posterior.from_netcdf(target).names == asked["calibration"].posterior.names
    assert cli.main(["infer", "a_run", EXAMPLES[0], "--output", str(target)]) == 2
    assert capsys.readouterr().err == f"error: {target} exists; give --output another file name, or remove it\n"


def test_report_goes_into_the_run_or_elsewhere(asked: dict[str, Any], tmp_path: Path) -> None:
    assert cli.main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_text() == "report"
    assert cli.main(["report", str(tmp_path), "--output", str(tmp_path / "other.html")]) == 0
    assert (tmp_path / "other.html").read_text() == "report"
    assert asked["folder"] == tmp_path


def test_export_takes_conditions_and_keeps_existing_files(
    asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calibrated.xml"
    assert cli.main(["export", "a_run", "mjcf", str(path), "--set", "kp=400"]) == 0
    assert asked["folder"] == Path("a_run")
    assert "for kp = 400, supply = 7.4" in path.read_text()
    assert capsys.readouterr().out == f"mjcf: {path}\nwritten for kp = 400, supply = 7.4\n"
    assert cli.main(["export", "a_run", "mjcf", str(path)]) == 2
    assert capsys.readouterr().err == f"error: {path} exists; pass --overwrite to replace it, or another file name\n"
    assert cli.main(["export", "a_run", "mjcf", str(path), "--overwrite"]) == 0
    assert "for kp = 200" in path.read_text()
    assert "written for kp = 200, supply = 7.4 (the recordings differ in kp; choose with --set)" in capsys.readouterr().out


def test_export_of_a_failed_run_needs_force(asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked["calibration"] = FakeCalibration("fail")
    path = tmp_path / "ranges.json"
    assert cli.main(["export", "a_run", "json", str(path)]) == 2
    assert "the verdict of this calibration is fail: its ranges must not be trained on" in capsys.readouterr().err
    assert not path.exists()
    assert cli.main(["export", "a_run", "json", str(path), "--force"]) == 0
    assert capsys.readouterr().out.startswith(f"json: {path} (FAILED VERDICT: do not use for training)\nwritten for kp = 200")


MISTAKES = {
    "no simulator": (["plan", "servo_pendulm"], "no simulator 'servo_pendulm' in the catalog; did you mean 'servo_pendulum'?"),
    "holdout only": (
        ["plan", "servo_pendulum", "--holdout", "x.csv"],
        "--holdout without recordings to calibrate on; put those first: sbical calibrate SIMULATOR RECORDING... --holdout ...",
    ),
    "unknown holdout": (
        ["plan", "servo_pendulum", *EXAMPLES, "--holdout", "run9"],
        "no recording 'run9' in --holdout (valid: kp100_run1, kp200_run2, kp400_run3), or give a file",
    ),
    "everything held out": (
        ["plan", "servo_pendulum", EXAMPLES[0], "--holdout", EXAMPLES[0]],
        "--holdout takes every recording; leave at least one to calibrate on",
    ),
    "set without value": (
        ["plan", "servo_pendulum", "--set", "kp"],
        "cannot read --set kp; write --set NAME=NUMBER or --set RECORDING.NAME=NUMBER, like --set kp=200",
    ),
    "set not a number": (["plan", "servo_pendulum", "--set", "kp=high"], "cannot read --set kp=high; write --set NAME=NUMBER"),
    "map without column": (["plan", "servo_pendulum", "--map", "position"], "cannot read --map position; write --map NAME=COLUMN"),
    "no workers": (["plan", "servo_pendulum", "--workers", "0"], "--workers 0 leaves nothing to run; give at least 1"),
    "unknown name to show": (
        ["show", "servo_pendulm"],
        "no simulator or prior 'servo_pendulm' in the catalog; did you mean 'servo_pendulum'? (valid: double_pendulum, geared_servo, ",
    ),
    "unknown export": (["export", "a_run", "mjfc"], "no export 'mjfc'; did you mean 'mjcf'? (valid: json, mjcf, npz)"),
    "mass": (["export", "a_run", "json", "OUT", "--mass", "90"], "a range cannot hold a mass of 90; give a number between 0 and 1"),
    "export for one recording": (
        ["export", "a_run", "json", "OUT", "--set", "run1.kp=3"],
        "--set run1.kp=… names a recording; here a condition has one value: --set kp=…",
    ),
    "export for an unknown condition": (
        ["export", "a_run", "json", "OUT", "--set", "kq=3"],
        "no condition 'kq' in this simulator (valid: kp, supply)",
    ),
}


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_message_and_exit_code_2(mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args, message = MISTAKES[mistake]
    assert cli.main([str(tmp_path / "out") if a == "OUT" else a for a in args]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message}")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


def test_the_prior_comes_from_the_command_line_or_the_simulator(
    asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", "servo_pendulum"]) == 0
    assert asked["prior"] == "prior hobby_servo"
    assert cli.main(["plan", "servo_pendulum", "--prior", "mine.toml"]) == 0
    assert asked["prior"] == "prior mine.toml"
    home = tmp_path / "servo"
    shutil.copytree(catalog.find("simulator", "servo_pendulum").parent, home)
    lines = (home / "simulator.toml").read_text().splitlines()
    (home / "simulator.toml").write_text("\n".join(line for line in lines if not line.startswith("prior")))
    capsys.readouterr()
    assert cli.main(["plan", str(home)]) == 2
    assert capsys.readouterr().err == (
        "error: no prior for simulator 'servo'; give --prior NAME or --prior FILE.toml "
        "(with all its parameters: geared_servo, hobby_servo)\n"
    )


@pytest.mark.usefixtures("asked")
def test_the_output_folder_is_checked_before_anything_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("not a run")
    assert cli.main(["calibrate", "no such simulator", "--output", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_interrupt_is_one_line_and_130(asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    asked["calibration"].save = interrupted
    assert cli.main(["calibrate", "servo_pendulum", "--prior", "hobby_servo", "--output", str(tmp_path / "run")]) == 130
    assert capsys.readouterr().err.endswith("interrupted; no result was written\n")


def test_missing_inference_packages_say_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(_: object, __: Console) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(cli.List, "run", missing)
    assert cli.main(["list"]) == 2
    assert capsys.readouterr().err == "error: this command needs torch, which is not installed; run: pip install 'sbical[inference]'\n"


def test_our_warnings_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class OurWarning(UserWarning):
        """As sbical.priors.prior has one."""

    OurWarning.__module__ = "sbical.priors.prior"

    def warn(_: object, __: Console) -> None:
        warnings.simplefilter("default")
        warnings.warn("prior entry [kq] is not a parameter", OurWarning, stacklevel=1)

    monkeypatch.setattr(cli.List, "run", warn)
    assert cli.main(["list"]) == 0
    assert capsys.readouterr().err == "warning: prior entry [kq] is not a parameter\n"


@pytest.mark.parametrize("command", [[], *([c] for c in cli.COMMANDS)])
def test_help_of_every_command(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*command, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(" ".join(["usage: sbical", *command]))
    if not command:
        assert all(name in out for name in cli.COMMANDS)


def test_unknown_command_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["calibrat"])
    assert caught.value.code == 2
    # the list may break over lines of the box
    words = capsys.readouterr().err.replace("|", " ").replace("│", " ").split()
    assert "calibrate, plan, infer, status, compare, report, export, list, show" in " ".join(words)


def test_list_shows_the_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    out = capsys.readouterr().out
    for name in (*catalog.names("simulator"), *catalog.names("prior")):
        assert name in out


def test_show_prints_effects_units_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "servo_pendulum"]) == 0
    out = capsys.readouterr().out
    for shown in ("voltage_servo", "condition kp", "torque_constant", "N m/A", "goal_position", "sensor_quantisation", "torque_enable"):
        assert shown in out
    assert cli.main(["show", "hobby_servo"]) == 0
    out = capsys.readouterr().out
    assert "LogUniform(" in out
    assert "source" in out


def test_light_commands_load_neither_torch_nor_mujoco() -> None:
    code = (
        "import sys; from sbical.cli import main; main(['list']); heavy = {'torch', 'mujoco', 'pandas', 'xarray', 'distributed'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "")


def test_show_does_not_load_torch() -> None:
    code = "import sys; from sbical.cli import main; main(['show', 'servo_pendulum']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert done.returncode == 0


def test_conditions_for_all_and_for_one() -> None:
    assert values.conditions(["kp=200", "run.v2.kp=1e2", "run.v2.supply=7"]) == {"kp": 200.0, "run.v2": {"kp": 100.0, "supply": 7.0}}
    with pytest.raises(RecordingError, match="--set gives kp twice; keep one of them"):
        values.conditions(["kp=200", "kp=100"])


def test_mapping_keeps_the_unit_with_the_column() -> None:
    assert values.mapping(["position=q:deg", "time=stamp"]) == {"position": "q:deg", "time": "stamp"}
    with pytest.raises(RecordingError, match="--map gives time twice; keep one of them"):
        values.mapping(["time=a", "time=b"])


def test_conditions_of_an_export_are_converted() -> None:
    columns = Columns((Column("tilt", "condition", None, "deg", "rad"),))
    assert values.si_conditions(["tilt=180"], columns) == pytest.approx({"tilt": np.pi})


def test_verdict_lines_have_their_status_colour() -> None:
    console = Console(force_terminal=True, width=100, record=True, file=None)
    verdict = Verdict((Finding("a", "pass", "fine", "", ""), Finding("b", "fail", "bad", "limit", "source", "mend it")))
    with console.capture() as capture:
        tables.verdict(console, verdict)
    assert "\x1b[32m" in capture.get()
    assert "\x1b[31m" in capture.get()


@pytest.mark.slow
def test_defaults_are_those_of_the_python_api() -> None:
    from sbical.pipeline import calibrate

    signature = inspect.signature(calibrate).parameters
    fields = {f.name: f.default for f in dataclasses.fields(Inputs)}
    for name in ("simulations", "seconds", "window", "workers", "seed"):
        assert fields[name] == signature[name].default
