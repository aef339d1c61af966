"""The picture: measured gaps and bounds over iterations, on one logarithmic axis."""

from __future__ import annotations

import math
from itertools import cycle
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from levelport.lab import pictures
from levelport.lab.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from levelport.theory.promises import Audit

_BOUNDS = (BLUE, SKY, GREEN, ORANGE, PURPLE, GREY)


def draw(found: Audit, axes: Axes, title: str = "") -> None:
    """Thick lines: measured, with dots at teleports. Thin: guarantees. Dotted: bounds with a caveat."""
    floor = 1e-17 * max(1.0, found.constants.initial_gap)

    def positive(values: list[float]) -> list[float]:
        return [value if value > floor and math.isfinite(value) else math.nan for value in values]

    descent, teleported = found.descent.gaps, found.teleported.gaps
    axes.plot(range(len(descent)), positive(descent), color=BLACK, linewidth=2.2, label="measured: GD")
    axes.plot(
        range(len(teleported)),
        positive(teleported),
        color=RED,
        linewidth=2.2,
        label="measured: GD with teleports",
    )
    dots = sorted(k for k in found.schedule if k < len(teleported))
    axes.plot(dots, [positive(teleported)[k] for k in dots], "o", color=RED, markersize=4)
    for bound, colour in zip(found.bounds, cycle(_BOUNDS), strict=False):
        style = "--" if not bound.teleports else "-"
        style = ":" if bound.caveats else style
        label = bound.label + (" (no guarantee)" if bound.caveats else "")
        axes.plot(range(len(bound.rate)), positive(bound.rate), style, color=colour, linewidth=1.2, label=label)
    axes.set_yscale("log")
    smallest = min(value for value in (*positive(descent), *positive(teleported)) if not math.isnan(value))
    axes.set_ylim(bottom=max(smallest / 10.0, 1e-17))
    axes.set_xlabel("iteration K")
    axes.set_ylabel("f(w_K) - f*")
    if title:
        axes.set_title(title, fontsize=10)
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def save(found: Audit, path: Path, title: str = "") -> None:
    """Write the picture to ``path``; its suffix decides the format."""
    figure = Figure(figsize=(8.2, 4.2), layout="constrained")
    draw(found, figure.add_subplot(), title)
    pictures.save(figure, path)
