"""The figures of the report as inline SVG: ArviZ where it has the plot, matplotlib for the replays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from sbical.common.statistics import prior_scores
from sbical.results.posterior import Posterior
from sbical.results.report.svg import BLUE, GREY, INK, SAND, drawing, inline_svg
from sbical.simulation.replay import Replay, WindowReplay

if TYPE_CHECKING:
    from arviz_base.labels import MapLabeller
    from matplotlib.axes import Axes

#: At most this many windows, channels and pair-plot parameters are drawn, with a note.
WINDOWS, CHANNELS, PAIRS = 6, 4, 8
#: Points per line and draws per scatter plot: keeps the file small, changes nothing one can see.
POINTS, SCATTER = 400, 400

#: ArviZ's default bandwidth draws more waves into the flat density of a parameter that was not identified.
SMOOTH: dict[Any, Any] = {"dist": {"bw": "silverman"}}


@dataclass(frozen=True)
class Picture:
    """An inline ``<svg>`` with the sentence below it."""

    svg: str
    caption: str


def prior_posterior(posterior: Posterior) -> Picture:
    """Marginal densities of prior and posterior."""
    import arviz_plots

    columns = min(4, len(posterior.names))
    rows = -(-len(posterior.names) // columns)
    tree, labeller = _tree(posterior)
    with drawing():
        pc = arviz_plots.plot_prior_posterior(
            tree,
            labeller=labeller,
            kind="kde",
            backend="matplotlib",
            visuals={"dist": {"width": 1.6}},
            stats=SMOOTH,
            col_wrap=columns,
            figure_kwargs={"figsize": (2.5 * columns + 0.6, 1.9 * rows + 0.3)},
        )
        figure = pc.viz["figure"].item()
        for axes in figure.axes:
            axes.set_ylim(bottom=0)
        svg = inline_svg(figure, "prior and posterior densities of every parameter")
    return Picture(
        svg, f"Prior (grey) and posterior (blue), {len(posterior.draws)} draws. Parameters whose prior spans decades are on a log10 axis."
    )


def forest(posterior: Posterior) -> Picture:
    """Where the posterior lies within the prior, all parameters on one axis."""
    import arviz_plots

    scores = prior_scores(posterior.prior, posterior.draws)
    tree = xr.DataTree.from_dict({"posterior": _dataset(posterior.names, scores)})
    with drawing():
        pc = arviz_plots.plot_forest(
            tree,
            backend="matplotlib",
            combined=True,
            point_estimate="median",
            ci_kind="eti",
            ci_probs=(0.5, 0.9),
            visuals={
                "trunk": {"color": BLUE, "width": 5},
                "twig": {"color": BLUE, "width": 1.4},
                "point_estimate": {"color": INK, "marker": "|", "size": 90, "zorder": 5},
                "ticklabels": False,
            },
            figure_kwargs={"figsize": (8.5, 0.42 * len(posterior.names) + 0.9)},
        )
        figure = pc.viz["figure"].item()
        labels, axes = figure.axes
        labels.xaxis.set_visible(False)
        labels.spines["bottom"].set_visible(False)
        axes.axvspan(-1.645, 1.645, color=GREY, alpha=0.18, lw=0, zorder=0)
        axes.axvline(0, color=GREY, lw=0.8, zorder=0)
        axes.set_xlim(-3.4, 3.4)
        axes.set_xlabel("prior standard deviations")
        svg = inline_svg(figure, "posterior ranges of every parameter within the prior")
    return Picture(
        svg,
        "Posterior median, 50 % (thick) and 90 % (thin) range in standard deviations of the prior; shaded: the prior's own 90 %. "
        "A range as wide as the shade was not identified; one beyond its edge asks for a wider prior.",
    )


def pair(posterior: Posterior) -> Picture | None:
    """Joint draws, two parameters at a time; None for a single parameter. The least contracted are left out beyond eight."""
    import arviz_plots

    if len(posterior.names) < 2:
        return None
    keep = np.sort(np.argsort(-posterior.contraction(), kind="stable")[:PAIRS])
    tree, labeller = _tree(posterior, keep, SCATTER)
    n = len(keep)
    with drawing():
        pm = arviz_plots.plot_pair(
            tree,
            labeller=labeller,
            backend="matplotlib",
            marginal_kind="kde",
            stats=SMOOTH,
            visuals={
                "scatter": {"color": BLUE, "alpha": 0.35, "size": 5, "width": 0, "rasterized": True},
                "dist": {"color": BLUE, "width": 1.4},
                "credible_interval": False,
                "point_estimate": False,
                "point_estimate_text": False,
            },
            figure_kwargs={"figsize": (min(9.5, 1.6 * n + 1.0), min(9.5, 1.6 * n + 1.0))},
        )
        figure = pm.viz["figure"].item()
        for axes in figure.axes:
            axes.tick_params(labelsize=7)
            axes.locator_params(nbins=2, min_n_ticks=2)
            place = axes.get_subplotspec()
            if place.colspan.start > 0:
                axes.tick_params(labelleft=False)  # the same along a row
            if place.colspan.start == place.rowspan.start:
                axes.set_ylim(bottom=0)
                axes.set_yticks([])  # a density
            axes.xaxis.label.set_fontsize(7.5)
            axes.yaxis.label.set_fontsize(7.5)
        svg = inline_svg(figure, "pair plot of the posterior draws")
    left = f" The {PAIRS} most contracted of {len(posterior.names)} parameters are shown." if len(posterior.names) > PAIRS else ""
    return Picture(
        svg, f"Joint posterior draws: a slanted cloud is a correlation that the table of draws keeps and a box of ranges loses.{left}"
    )


def bands(replay: Replay, *, before: Replay | None = None, after: Replay | None = None) -> Picture:
    """Observed samples over the 90 % band of the draws; with ``before`` and ``after``, both noise-free replays of the same windows."""
    from matplotlib import pyplot as plt

    shown = np.unique(np.linspace(0, len(replay.windows) - 1, min(WINDOWS, len(replay.windows))).round().astype(int))
    channels = range(min(CHANNELS, len(replay.channels)))
    columns = len(channels) if len(channels) > 1 else min(2, len(shown))
    panels = [(k, c) for k in shown for c in channels]
    rows = -(-len(panels) // columns)
    with drawing():
        figure, grid = plt.subplots(rows, columns, figsize=(9.5, 1.75 * rows + 0.5), squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (k, c) in zip(grid.flat, panels, strict=False):
            lines = [(r.windows[k], color, dash, label) for r, color, dash, label in _lines(before, after)]
            _panel(axes, replay.windows[k], c, lines)
            axes.set_title(f"{replay.windows[k].recording}, from {replay.windows[k].start:.2f} s", loc="left", fontsize=8)
            axes.set_ylabel(f"{replay.channels[c]} [{replay.units[c]}]")
        for axes in grid[-1]:
            axes.set_xlabel("time [s]")
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), fontsize=8)
        svg = inline_svg(figure, f"{'held-out' if before or after else 'calibration'} recordings and their predictive bands")
    return Picture(svg, _bands_caption(replay, len(shown), len(channels)))


def _bands_caption(replay: Replay, windows: int, channels: int) -> str:
    text = "Band: 90 % of noisy replays with posterior draws, sample by sample."
    if windows < len(replay.windows):
        text += f" {windows} of {len(replay.windows)} windows are shown, evenly spread."
    if channels < len(replay.channels):
        text += f" {channels} of {len(replay.channels)} channels are shown."
    return text


def _lines(before: Replay | None, after: Replay | None) -> Iterator[tuple[Replay, str, str, str]]:
    if before is not None:
        yield before, SAND, "--", "before: prior median"
    if after is not None:
        yield after, BLUE, "-", "after: posterior median"


def _panel(axes: Axes, window: WindowReplay, channel: int, lines: list[tuple[WindowReplay, str, str, str]]) -> None:
    """One channel of one window, thinned to what a line of this length can show."""
    window = _thinned_window(window, channel)
    low, high = window.band(0.9)
    axes.fill_between(window.time, low[:, 0], high[:, 0], color=BLUE, alpha=0.22, lw=0, label="90 % band")
    if not lines:
        axes.plot(window.time, window.median()[:, 0], color=BLUE, lw=1.2, label="median")
    for other, color, dash, label in lines:
        thin = _thinned_window(other, channel)
        axes.plot(thin.time, thin.median()[:, 0], dash, color=color, lw=1.2, label=label)
    axes.plot(window.time, window.observed[:, 0], color=INK, lw=0.9, label="recorded")
    axes.margins(x=0)


def _thinned_window(window: WindowReplay, channel: int) -> WindowReplay:
    step = slice(None, None, max(1, len(window.time) // POINTS))
    pick = slice(channel, channel + 1)
    return replace(window, time=window.time[step], observed=window.observed[step, pick], draws=window.draws[:, step, pick])


def _tree(posterior: Posterior, keep: np.ndarray | None = None, draws: int = 4000) -> tuple[xr.DataTree, MapLabeller]:
    """Prior and posterior, and labels with units; parameters whose prior spans decades as log10."""
    from arviz_base.labels import MapLabeller

    low, high = posterior.prior_interval(0.9)
    labels, values, prior = {}, [], []
    for i in range(len(posterior.names)) if keep is None else keep.tolist():
        decades = low[i] > 0 and high[i] > 20 * low[i]
        change = np.log10 if decades else np.asarray
        labels[posterior.names[i]] = f"{'log10 ' if decades else ''}{posterior.names[i]}\n[{posterior.units[i]}]"
        values.append(change(_thinned(posterior.draws[:, i], draws)))
        prior.append(change(_thinned(posterior.prior[:, i], draws)))
    names = tuple(labels)
    groups = {"posterior": _dataset(names, np.stack(values, axis=1)), "prior": _dataset(names, np.stack(prior, axis=1))}
    return xr.DataTree.from_dict(groups), MapLabeller(var_name_map=labels)


def _thinned(values: np.ndarray, n: int) -> np.ndarray:
    return values[np.linspace(0, len(values) - 1, min(n, len(values))).astype(int)]


def _dataset(names: tuple[str, ...], values: np.ndarray) -> xr.Dataset:
    return xr.Dataset({n: (("chain", "draw"), values[None, :, i]) for i, n in enumerate(names)})
