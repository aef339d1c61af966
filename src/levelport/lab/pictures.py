"""The look of all pictures: colours that colour-blind readers can tell apart, one line style per meaning."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from levelport.lab.level_sets import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED
from levelport.lab.paper.methods import Method

GREY = "#767676"

METHOD_COLOURS = {
    Method.SGD: BLUE,
    Method.MOMENTUM: RED,
    Method.POLYAK: GREEN,
    Method.ARMIJO: ORANGE,
    Method.NORMALIZED: PURPLE,
}

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


def applied() -> AbstractContextManager[None]:
    """Inside it, everything drawn and saved has this look."""
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


def method_legend(methods: list[Method]) -> list[LegendEntry]:
    """Colours for methods, line styles for teleports."""
    colours: list[LegendEntry] = [(method.label, {"color": METHOD_COLOURS[method]}) for method in methods]
    styles: list[LegendEntry] = [
        ("teleports", {"color": BLACK, "linestyle": WITH_TELEPORTS}),
        ("none", {"color": BLACK, "linestyle": WITHOUT_TELEPORTS}),
    ]
    return [*colours, *styles]


def save(figure: Figure, path: Path) -> list[Path]:
    """Write PNG and PDF under ``path`` without its suffix; atomically, so that a reader never sees half a picture."""
    written = []
    formats: dict[str, dict[str, Any]] = {".png": {"dpi": 200}, ".pdf": {"metadata": {"CreationDate": None}}}
    for suffix, options in formats.items():
        target = path.with_suffix(suffix)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        figure.savefig(temporary, format=suffix[1:], **options)
        figure.set_layout_engine("none")  # laid out once is enough
        temporary.replace(target)
        written.append(target)
    return written
