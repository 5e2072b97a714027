"""Matplotlib style and SVG output of the report's figures."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib
from cycler import cycler

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, BLUE, SAND, GREY = "#1c2530", "#1f5f99", "#c26a2e", "#9aa5b1"

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # real text: small, selectable, searchable
    "svg.hashsalt": "sbical",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titleweight": "normal",
    "axes.labelsize": 9,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": cycler(color=[GREY, BLUE, SAND]),
    "axes.formatter.limits": (-3, 4),
    "axes.formatter.useoffset": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Our style, no window on anybody's screen, and every figure made inside closed again."""
    if "matplotlib.pyplot" not in sys.modules:
        matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    open_before = set(plt.get_fignums())
    with matplotlib.rc_context(STYLE), plt.ioff():
        try:
            yield
        finally:
            for number in set(plt.get_fignums()) - open_before:
                plt.close(number)


def inline_svg(figure: Figure, label: str) -> str:
    """``<svg>`` for HTML: no prologue, metadata, namespaces or fixed size; ids apart from those of the other figures."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}, dpi=130)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r' d="[^"]*"', lambda d: re.sub(r"(\.\d\d)\d+", r"\1", d.group()), text)  # a hundredth of a point is enough
    width = re.search(r'width="([\d.]+)pt"', text)
    text = re.sub(r'\s(width|height)="[\d.]+pt"', "", text, count=2)
    prefix = re.sub(r"\W+", "-", label)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    text = re.sub(r'\sid="([^"]*)"', lambda i: f' id="{prefix}-{i.group(1)}"' if i.group(1) in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", text)
    size = f'style="max-width:{float(width.group(1)) * 4 / 3:.0f}px" ' if width else ""
    return text.replace("<svg", f'<svg role="img" aria-label="{label}" {size}', 1)
