"""One HTML file that says what was learned and how far to trust it; it loads nothing from anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sbical.checks import Verdict
from sbical.checks.base import MARKS, MEANING
from sbical.errors import OutputError
from sbical.results.posterior import Posterior
from sbical.results.report import figures
from sbical.simulation.replay import Replay, Replays

__all__ = ["write_report"]


def write_report(
    path: str | Path,
    *,
    title: str,
    posterior: Posterior,
    verdict: Verdict,
    replays: Replays | None = None,
    provenance: Mapping[str, Any] | None = None,
    randomization: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write the report; verdict first, then table, figures, held-out replay, provenance and notes.

    ``provenance`` is plain data, ``randomization`` what ``sbical.results.exports.ranges.describe`` makes.

    Raises OutputError if the file cannot be written.
    """
    env = Environment(
        loader=PackageLoader("sbical.results.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    env.filters["number"] = number
    html = env.get_template("template.html.jinja").render(
        title=title,
        verdict=verdict,
        meaning=MEANING[verdict.status],
        marks=MARKS,
        rows=posterior.summary(),
        draws=len(posterior.draws),
        marginals=figures.prior_posterior(posterior),
        forest=figures.forest(posterior),
        pair=figures.pair(posterior),
        predictive=figures.bands(posterior.predictive) if posterior.predictive else None,
        predictive_rows=_predictive_rows(posterior.predictive),
        holdout=figures.bands(replays.holdout, before=replays.before, after=replays.after) if replays else None,
        holdout_rows=_holdout_rows(replays) if replays else [],
        randomization=_randomization(randomization) if randomization else None,
        provenance=list(_flat(provenance or {})),
        notes=list(notes),
    )
    try:
        Path(path).write_text(html, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write the report to {path}: {error.strerror}; choose another output folder") from error


def number(value: object) -> str:
    """Three significant digits for floats, plain text for anything else."""
    if not isinstance(value, float):
        return str(value)
    if value == 0.0:
        return "0"
    if not math.isfinite(value):
        return "failed" if math.isinf(value) else "none"
    if 1e-3 <= abs(value) < 1e5:
        decimals = max(0, 2 - math.floor(math.log10(abs(value))))
        return f"{value:.{decimals}f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _predictive_rows(replay: Replay | None) -> list[dict[str, Any]]:
    """Per channel: error and coverage on the calibration windows."""
    if replay is None:
        return []
    rmse, coverage = replay.rmse(), replay.coverage()
    return [
        {"channel": c, "unit": replay.units[i], "rmse": float(rmse[i]), "coverage": float(coverage[i])}
        for i, c in enumerate(replay.channels)
    ]


def _holdout_rows(replays: Replays) -> list[dict[str, Any]]:
    """Per channel: error before and after, coverage and interval score of the band."""
    rows, holdout = [], replays.holdout
    before, after, coverage, score = replays.before.rmse(), replays.after.rmse(), holdout.coverage(), holdout.interval_score()
    for i, channel in enumerate(holdout.channels):
        first, last = float(before[i]), float(after[i])
        ratio = last / first if math.isfinite(first) and first > 0 else math.nan
        row = {"channel": channel, "unit": holdout.units[i], "before": first, "after": last, "ratio": ratio}
        rows.append(row | {"coverage": float(coverage[i]), "score": float(score[i])})
    return rows


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested plain data as (dotted key, text) pairs."""
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        else:
            yield name, _text(value)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(v) for v in value)
    return number(value)


#: Of the exported ranges: what the report says elsewhere.
REPEATED = ("format", "verdict", "warning", "provenance")


def _randomization(data: Mapping[str, Any]) -> dict[str, Any]:
    """The exported ranges as one table row per parameter, lines of where each is written, and the values left over."""
    rows = []
    for name, p in data.get("parameters", {}).items():
        writes = [
            f"{w['field']}{list(w['index'])} ({w['object']}), {w['op']} {number(w['low'])} … {number(w['high'])}"
            for w in p.get("writes", ())
        ]
        signals = [f"{s['effect']}.{s['role']} ({s['family']}) of {_text(s['targets'])}" for s in p.get("signal_path", ())]
        rows.append({"name": name, "unit": p["unit"], "low": p["low"], "median": p["median"], "high": p["high"], "lines": writes + signals})
    pairs = [f"{_text(c['pair'])}: {c['rho']:+.2f}" for c in data.get("rank_correlations", ())]
    shown = {"parameters", "rank_correlations", *REPEATED}
    return {"rows": rows, "pairs": pairs, "rest": list(_flat({k: v for k, v in data.items() if k not in shown}))}
