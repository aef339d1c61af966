"""Teleporting once, at the start, on two functions of the plane: Figure 1 of the paper.

Gradient descent with an Armijo line search from step size 1, the same after a teleport, and Newton's method with step
size 0.8, from one start. The teleport aligns the gradient with an eigenvector of the Hessian, so on a quadratic the
step after it is a Newton step and lands on the minimiser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from levelport.lab.level_sets import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    RED,
    Trails,
    draw_level_sets,
    draw_path,
    mark,
    mark_minimisers,
    window_with,
)
from levelport.objective import Objective, Point
from levelport.optim import Armijo, AtStart, MinimizeResult, MinimizeRow, minimize
from levelport.optim.step_rule import Step
from levelport.problems.functions import TestFunction, function_named
from levelport.solvers import Teleporter, TeleportResult, teleport
from levelport.solvers.recycled import IsEnough

FIGURE_1 = (("booth", (7.5, -4.0)), ("goldstein-price", (0.0, 0.0)))
"""Functions and starts of the paper's figure."""

_STYLES = {
    "GD": (BLUE, "dashed", "s"),
    "GD, teleported": (ORANGE, "solid", "o"),
    "Newton, step 0.8": (GREEN, "-.", "^"),
}


@dataclass(frozen=True)
class ExactNewton:
    """x⁺ = x - step · (∇²f)⁻¹ ∇f with the whole Hessian, whatever its signature: made for the plane.

    Nothing keeps it from saddle points and maxima, which is what the figure is about.
    """

    step: float = 0.8

    def advance(self, objective: Objective, point: Point, state: Any, teleport: TeleportResult | None) -> Step:
        hessian = torch.stack([point.hvp(unit) for unit in torch.eye(objective.dimension, dtype=objective.dtype)])
        direction, singular = torch.linalg.solve_ex(hessian, point.gradient)
        if bool(singular):
            return Step(None, None, 0.0)
        return Step(objective.at(point.x - self.step * direction, curvature=True), None, self.step)


@dataclass(frozen=True)
class Run:
    """One method: the points it visited (the teleported one included) and what ``minimize`` says of them."""

    label: str
    path: list[list[float]]
    result: MinimizeResult

    @property
    def steps_to(self) -> int:
        """Steps taken until ‖∇f‖ fell to 1e-6 of its largest, or all that were taken."""
        largest = max(row.gradient_norm for row in self.result.trace)
        return next((row.iteration for row in self.result.trace if row.gradient_norm <= 1e-6 * largest), self.steps)

    @property
    def steps(self) -> int:
        """Steps taken."""
        return self.result.iterations


@dataclass(frozen=True)
class Comparison:
    """The runs of one function from one start, and the teleport."""

    function: TestFunction
    start: tuple[float, float]
    runs: tuple[Run, ...]
    trails: Trails
    teleport: TeleportResult


class _RecordedJump:
    """A teleport for :func:`levelport.optim._minimize` that keeps the solver's iterates."""

    def __init__(self, solver: str | Teleporter) -> None:
        self.solver = solver
        self.trails = Trails()
        self.results: list[TeleportResult] = []

    def begin(self, enough: IsEnough) -> _RecordedJump:
        return self

    def __call__(self, objective: Objective, start: Point) -> tuple[TeleportResult, Point]:
        result = teleport(objective, start.x, self.solver, callback=self.trails)
        assert isinstance(result.x, Tensor)
        self.results.append(result)
        return result, objective.at(result.x, curvature=True)


def compare(
    name: str, start: tuple[float, float], *, solver: str | Teleporter = "auto", iterations: int = 50
) -> Comparison:
    """Run the three methods on the test function ``name``."""
    function = function_named(name)
    jump = _RecordedJump(solver)

    def run(label: str, method: Any, schedule: Any) -> Run:
        path: list[list[float]] = []

        def visit(row: MinimizeRow, point: Point) -> None:
            path.append(point.x.tolist())

        x0 = torch.tensor(start, dtype=torch.float64)
        result = minimize(function, x0, method, schedule, jump=jump, max_iterations=iterations, callback=visit)
        return Run(label, path, result)

    runs = (
        run("GD", Armijo(), False),
        run("GD, teleported", Armijo(), AtStart()),
        run("Newton, step 0.8", ExactNewton(), False),
    )
    return Comparison(function, start, runs, jump.trails, jump.results[0])


def figure(comparisons: Sequence[Comparison]) -> Figure:
    """One row per function: paths through the level sets, objective, gradient norm."""
    picture = Figure(figsize=(11.0, 3.6 * len(comparisons)), layout="constrained")
    rows = picture.subplots(len(comparisons), 3, squeeze=False, width_ratios=[1.2, 1.0, 1.0])
    for comparison, (plane, objective, gradient) in zip(comparisons, rows, strict=True):
        _draw_plane(plane, comparison)
        _draw_curves(objective, comparison, gap=True)
        _draw_curves(gradient, comparison, gap=False)
    handles, labels = rows[0][0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return picture


def _draw_plane(axes: Axes, comparison: Comparison) -> None:
    function, landed = comparison.function, comparison.teleport.x
    assert isinstance(landed, Tensor)
    descents = [point for run in comparison.runs[:2] for point in run.path]
    window = window_with(function.window, descents)
    level = comparison.teleport.value_start
    draw_level_sets(axes, function, window, minimum=function.minimum, level=level)
    for run in comparison.runs:
        color, style, marker = _STYLES[run.label]
        path = run.path
        if run.label == "GD, teleported":
            draw_path(axes, path[:2], color="0.3", style="dotted", marker="", label="teleport")
            path = path[1:]
        draw_path(axes, path, color=color, style=style, marker=marker, label=run.label, size=4)
    mark(axes, comparison.start, color=BLACK, marker="s", label="start")
    mark(axes, landed.tolist(), color=RED, marker="*", label="teleported start", size=14)
    mark_minimisers(axes, function)
    axes.set_title(function.name.title())


def _draw_curves(axes: Axes, comparison: Comparison, *, gap: bool) -> None:
    """f - f* or ‖∇f‖ over the steps; a teleport is a vertical line at step 0."""
    floor = 1e-12 * (comparison.teleport.value_start if gap else comparison.teleport.gradient_norm)
    for run in comparison.runs:
        color, style, marker = _STYLES[run.label]
        rows = run.result.trace
        heights = [row.value - comparison.function.minimum if gap else row.gradient_norm for row in rows]
        axes.semilogy(
            [row.iteration for row in rows],
            [max(height, floor) for height in heights],
            color=color,
            linestyle=style,
            marker=marker,
            markersize=3,
            linewidth=1.4,
        )
    axes.set_xlabel("steps")
    axes.set_title("$f(w) - f^*$" if gap else r"$\|\nabla f(w)\|$")
    axes.grid(alpha=0.25)
