"""Pictures of the plane: level sets of a function of two variables, and the ways points take through them.

:class:`Trails` is a callback of :func:`levelport.teleport` that keeps the iterates; the functions below draw onto axes
that the caller made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from levelport.objective import Point
from levelport.solvers import TeleportResult, TraceRow
from levelport_lab.pictures import BLACK, PURPLE, RED
from levelport_lab.problems.functions import TestFunction

Window = tuple[float, float, float, float]
"""(left, right, bottom, top)."""


class Trails:
    """Keeps the iterates of a teleport. The default solver may climb from several starts: a trail for each."""

    def __init__(self) -> None:
        self.trails: list[list[tuple[float, ...]]] = []

    def __call__(self, row: TraceRow, point: Point) -> None:
        here = tuple(point.x.tolist())
        # A row that no step led to opens a trail; the published solver, whose first row has a step, has just one.
        if math.isnan(row.step) or not self.trails:
            self.trails.append([here])
        else:
            # Two trails may run side by side: the one that a step of this length leads from.
            min(self.trails, key=lambda trail: abs(math.dist(trail[-1], here) - row.step)).append(here)


def window_with(window: Window, points: Iterable[Sequence[float]], *, reach: float = 2.0) -> Window:
    """``window``, widened so that it shows ``points``, save those further out than ``reach`` times its size."""
    left, right, bottom, top = window
    width, height = right - left, top - bottom
    shown = [
        (x, y)
        for x, y in points
        if left - reach * width <= x <= right + reach * width and bottom - reach * height <= y <= top + reach * height
    ]
    xs, ys = [left, right], [bottom, top]
    for x, y in shown:
        xs += [x - 0.05 * width, x + 0.05 * width]
        ys += [y - 0.05 * height, y + 0.05 * height]
    return min(xs), max(xs), min(ys), max(ys)


def draw_level_sets(
    axes: Axes,
    function: Callable[[Tensor], Tensor],
    window: Window,
    *,
    minimum: float,
    level: float | None = None,
    resolution: int = 301,
) -> None:
    """Contours of f, equally spaced in log(f - minimum); the sub-level set {f ≤ level} is shaded, with a thick rim."""
    left, right, bottom, top = window
    x, y = np.linspace(left, right, resolution), np.linspace(bottom, top, resolution)
    values = on_grid(function, x, y)
    axes.contour(x, y, heights(values, minimum), levels=14, colors="0.72", linewidths=0.6, linestyles="solid", zorder=1)
    if level is not None:
        axes.contourf(x, y, values, levels=[-math.inf, level], colors=["0.92"], zorder=0)
        axes.contour(x, y, values, levels=[level], colors="0.35", linewidths=1.4, zorder=1)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_xlabel("$w_1$")
    axes.set_ylabel("$w_2$")


def heights(values: NDArray[np.float64], minimum: float) -> NDArray[np.float64]:
    """log₁₀(f - minimum), flattened out near the minimum: what contours are equally spaced in."""
    lifted: NDArray[np.float64] = np.log10(
        np.maximum(values - minimum, 0.0) + 1e-3 * (float(np.nanmedian(values)) - minimum)
    )
    return lifted


def on_grid(
    function: Callable[[Tensor], Tensor], x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    """f at every pair; ``vmap`` runs functions that were written for a single point."""
    across, up = np.meshgrid(x, y)
    points = torch.from_numpy(np.stack([across.ravel(), up.ravel()], axis=1))
    values: NDArray[np.float64] = torch.func.vmap(function)(points).reshape(across.shape).numpy()
    return values


def draw_path(
    axes: Axes,
    path: ArrayLike,
    *,
    color: str,
    label: str | None = None,
    style: str | tuple[int, tuple[float, ...]] = "solid",
    marker: str = "o",
    size: float = 3.0,
) -> None:
    """The points of ``path``, joined in order."""
    points = np.asarray(path, dtype=float).reshape(-1, 2)
    axes.plot(
        points[:, 0], points[:, 1], color=color, linestyle=style, linewidth=1.4, marker=marker, markersize=size,
        label=label, zorder=3,
    )  # fmt: skip


def draw_trails(axes: Axes, start: Sequence[float], trails: Trails, end: Sequence[float]) -> None:
    """The teleport: iterates joined by lines, what lies between two ascents by dots, and the point returned."""
    iterates, jump = "iterates of the solver", "to the other side of the valley"
    for trail in trails.trails:
        if math.dist(trail[0], start) > 0.0:
            draw_path(axes, [start, trail[0]], color=PURPLE, style=(0, (1, 2)), marker="", label=jump)
            jump = "_nolegend_"
        draw_path(axes, trail, color=PURPLE, label=iterates, size=3.5)
        iterates = "_nolegend_"
    mark(axes, start, color=BLACK, marker="s", label="start", size=9, hollow=True)
    mark(axes, end, color=RED, marker="*", label="teleported", size=14, hollow=True)


def mark(
    axes: Axes, point: Sequence[float], *, color: str, marker: str, label: str, size: float = 8.0, hollow: bool = False
) -> None:
    """One point that matters, above everything else; through a hollow one what lies below it is seen."""
    face, edge, width = ("none", color, 1.4) if hollow else (color, "white", 1.0)
    axes.plot(
        [point[0]], [point[1]], color=color, marker=marker, markersize=size, markerfacecolor=face,
        markeredgecolor=edge, markeredgewidth=width, linestyle="none", label=label, zorder=5,
    )  # fmt: skip


def mark_minimizers(axes: Axes, function: TestFunction) -> None:
    """A cross at every global minimizer that is known."""
    xs, ys = zip(*function.minimizers, strict=True)
    axes.plot(
        xs, ys, marker="+", color="0.1", markersize=10, markeredgewidth=1.6, linestyle="none", label="minimum",
        zorder=6,
    )  # fmt: skip


def teleport_picture(
    function: TestFunction,
    start: Sequence[float],
    trails: Trails,
    result: TeleportResult,
    *,
    after: Sequence[float] | None = None,
) -> Figure:
    """Level sets, path, start and end of one teleport of a test function, and the step from there to ``after``."""
    assert isinstance(result.x, Tensor)
    end = result.x.tolist()
    seen = [point for trail in trails.trails for point in trail]
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.add_subplot()
    window = window_with(function.window, [start, end, *seen])
    draw_level_sets(axes, function, window, minimum=function.minimum, level=result.value_start)
    draw_trails(axes, start, trails, end)
    if after is not None:
        draw_path(axes, [end, after], color=RED, marker="", label="one gradient step")
    mark_minimizers(axes, function)
    left, right, bottom, top = window
    outside = "" if left <= end[0] <= right and bottom <= end[1] <= top else " (outside the picture)"
    axes.set_title(
        f"{function.name}: gradient norm {result.gradient_norm_start:.4g} → {result.gradient_norm:.4g}{outside}"
    )
    figure.legend(loc="outside lower center", ncols=3, frameon=False, columnspacing=1.4)
    return figure
