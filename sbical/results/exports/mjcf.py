"""The posterior median written into an MJCF that loads, compiles and equals the calibrated model.

MuJoCo writes six digits into XML unless told to save the specification as authored (``savecompiled="false"``), so that is
what this does; the file is then loaded again and compared with the calibrated model before it takes its name.
"""

from __future__ import annotations

import json
from pathlib import Path

import mujoco
import numpy as np

from sbical.errors import OutputError
from sbical.results.exports.base import ModelSource, RandomizationTable, warning, write_whole

NAME: str = "mjcf"
SUFFIX: str = ".xml"
#: Largest difference between a field of the calibrated model and the same field of the loaded file, relative above 1.
TOLERANCE = 1e-9


def write(table: RandomizationTable, path: Path) -> None:
    """Write the median of each parameter; what no MJCF attribute holds goes to ``<custom><numeric name="sbical_…">``.

    Raises OutputError if the table came without its simulator, if MuJoCo cannot express the calibrated values, or if
    the file does not compile to them.
    """
    if table.source is None:
        raise OutputError("an MJCF needs the simulator it calibrates; export from a calibration (load_calibration), not from a bare table")
    if table.unknown_conditions:
        missing = table.unknown_conditions
        raise OutputError(
            f"an MJCF holds one value of condition {', '.join(missing)}, and none is known; give it: "
            + " ".join(f"--set {name}=VALUE" for name in missing)
        )
    model = table.source.calibrated_model(table.median, table.conditions)
    try:
        xml = _specification(table, model, table.source).to_xml()
    except ValueError as error:
        raise OutputError(
            f"MJCF cannot hold the posterior median: {_line(error)}; change what it names in model.xml or the prior"
        ) from error
    text = f"<!--\n{_header(table)}\n-->\n{xml}"

    def fill(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")
        _verify(temporary, path, model)

    write_whole(path, fill)


def _specification(table: RandomizationTable, model: mujoco.MjModel, source: ModelSource) -> mujoco.MjSpec:
    """The simulator's specification with the calibrated model's values and sbical's custom entries."""
    spec = source.spec()
    compiled = spec.compile()
    mean_inertia = spec.stat.meaninertia
    # the values alone: a model that was pickled or saved has lost the signature by which copy_back knows its own
    for name, value in _fields(model).items():
        if value.dtype.kind == "f":
            getattr(compiled, name)[...] = value
    spec.copy_back(compiled)
    spec.stat.meaninertia = mean_inertia  # derived, deprecated in MJCF, and a warning on every load if written
    spec.compiler.savecompiled = False
    spec.compiler.savecanonical = False
    for signal in table.signal_path:
        spec.add_numeric(name=f"sbical_{signal.effect}_{signal.role}", data=[signal.median], size=1)
    spec.add_text(name="sbical_verdict", data=table.status)
    return spec


def _header(table: RandomizationTable) -> str:
    """The comment at the top of the file."""
    lines = [f"sbical: posterior median, verdict {table.status}"]
    failed = warning(table)
    if failed:
        lines.insert(0, failed)
    lines += [
        f"{n} = {m:.6g} {u} ({100 * table.mass:g} % range {lo:.4g} to {hi:.4g})"
        for n, u, m, lo, hi in zip(table.names, table.units, table.median, table.low, table.high, strict=True)
    ]
    if table.conditions:
        lines.append("for " + ", ".join(f"{n} = {v:g}" for n, v in table.conditions.items()))
    outside = [f"sbical_{s.effect}_{s.role} [{s.unit}] ({s.family} on {', '.join(s.targets)})" for s in table.signal_path]
    if outside:
        lines.append("not in the model but in custom numerics, to be applied by the simulation loop: " + ", ".join(outside))
    lines.append(f"provenance: {json.dumps(dict(table.provenance))}")
    return "\n".join(lines).replace("--", "- -")  # two hyphens end an XML comment


def _verify(temporary: Path, path: Path, model: mujoco.MjModel) -> None:
    try:
        loaded = mujoco.MjModel.from_xml_path(str(temporary))
    except ValueError as error:
        raise OutputError(
            f"the MJCF for '{path}' does not compile there: {_line(error)}; export a model with meshes into the folder that holds them"
        ) from error
    different = differences(model, loaded)
    if different:
        raise OutputError(
            f"the MJCF for '{path}' compiles to other values in {', '.join(different)}: the simulator's model is not what its MJCF "
            "describes; state these fields explicitly in model.xml"
        )


def _line(error: ValueError) -> str:
    """MuJoCo's message on one line."""
    return " ".join(str(error).removeprefix("Error: ").split())


def differences(expected: mujoco.MjModel, found: mujoco.MjModel) -> list[str]:
    """Array fields of two models, and fields of their ``opt``, that differ by more than ``TOLERANCE``.

    sbical's own custom entries are not compared.
    """
    pairs = {n: (a, getattr(found, n)) for n, a in _fields(expected).items()}
    pairs |= {f"opt.{n}": (getattr(expected.opt, n), getattr(found.opt, n)) for n in dir(expected.opt) if not n.startswith("_")}
    return [n for n, (a, b) in pairs.items() if isinstance(a, np.ndarray | float | int) and not _equal(a, b)]


def _fields(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Arrays of a model, without the custom entries and the table of names that holds theirs."""
    names = [n for n in dir(model) if not n.startswith(("_", "numeric_", "text_", "name"))]
    return {n: v for n in names if isinstance(v := getattr(model, n), np.ndarray)}


def _equal(a: np.ndarray | float, b: np.ndarray | float) -> bool:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return x.shape == y.shape and bool(np.all(np.abs(x - y) <= TOLERANCE * np.maximum(1.0, np.abs(x))))
