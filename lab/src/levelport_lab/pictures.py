"""The look of all pictures, and the one way to save them.

The colours are those of Okabe and Ito, which people with any colour vision can tell apart.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from levelport_lab.atomic import replacing

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY = "#767676"

WITH_TELEPORTS, WITHOUT_TELEPORTS = "solid", (0, (3, 1.5))

_SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.4,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "figure.dpi": 100,
}


def small_print() -> AbstractContextManager[None]:
    """Inside it, everything drawn and saved has the look of a figure in a paper."""
    return mpl.rc_context(_SETTINGS)


def new_figure(rows: int, columns: int, *, width: float = 3.0, height: float = 2.3) -> tuple[Figure, list[list[Axes]]]:
    """A figure with a grid of panels; readable when its width is that of a text column per two panels."""
    figure = Figure(figsize=(width * columns, height * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(row) for row in axes]


LegendEntry = tuple[str, dict[str, Any]]
"""A label and the look of its line, as matplotlib names it."""


def legend_below(figure: Figure, entries: list[LegendEntry]) -> None:
    """One legend for all panels, under them."""
    handles = [Line2D([], [], label=label, **look) for label, look in entries]
    # About an inch per entry; long ones need more.
    longest = max(len(label) for label, _ in entries)
    columns = max(1, int(figure.get_figwidth() / (0.45 + 0.055 * longest)))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), columns), frameon=False)


def keep_labels_apart(figure: Figure) -> None:
    """Hide tick labels that would touch their neighbours: those of minor ticks first, then every other one."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        for along, axis in enumerate((axes.xaxis, axes.yaxis)):
            if _touching(_labels(axis, along, minor=True)):
                axis.set_tick_params(which="minor", labelbottom=False, labelleft=False)
            while _touching(shown := _labels(axis, along, minor=False)):
                for label in shown[1::2]:
                    label.set_visible(False)


def _labels(axis: Axis, along: int, *, minor: bool) -> list[Text]:
    """Labels that are drawn, in their order along the axis; with the minor ones those of major ticks, too."""
    labels = [*axis.get_ticklabels(), *(axis.get_ticklabels(minor=True) if minor else [])]
    shown = [label for label in labels if label.get_visible() and label.get_text()]
    return sorted(shown, key=lambda label: float(label.get_window_extent().get_points()[0][along]))


def _touching(labels: list[Text]) -> bool:
    return any(a.get_window_extent().overlaps(b.get_window_extent()) for a, b in pairwise(labels))


def picture_format(path: Path) -> str:
    """The format that the name of a picture asks for; ValueError if it is none that we write."""
    kind = path.suffix[1:].lower()
    if kind not in ("png", "pdf", "svg"):
        raise ValueError(f"pictures end in .png, .pdf or .svg, and {path.name or str(path)!r} does not.")
    return kind


def save(figure: Figure, *paths: Path) -> list[Path]:
    """Write the picture in the formats that the names ask for; a reader never sees half a picture, nor labels that
    lie on each other."""
    keep_labels_apart(figure)
    for path in paths:
        kind = picture_format(path)
        undated: dict[str, Any] = {"metadata": {"CreationDate": None}} if kind == "pdf" else {}
        with replacing(path) as temporary:
            figure.savefig(temporary, format=kind, dpi=160, **undated)
        figure.set_layout_engine("none")  # laid out once is enough
    return list(paths)
