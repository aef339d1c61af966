"""Teleporting once, at the start, on two functions of the plane: Figure 1 of the paper.

Gradient descent with an Armijo line search (c = ½, first step size 1, factor 0.8), the same after a teleport, and
Newton's method with a fixed step size, from one start. The teleport aligns the gradient with an eigenvector of the
Hessian, so on a quadratic the step after it is a Newton step and lands on the minimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from levelport.objective import Objective, Point
from levelport.optim import Armijo, At, MinimizeResult, MinimizeRow, Never, minimize
from levelport.optim.step_rule import Step, StepRule
from levelport.solvers import Solver, TeleportResult, solver_named, teleport
from levelport_lab.level_sets import Trails, draw_level_sets, draw_path, draw_trails, mark_minimizers, window_with
from levelport_lab.pictures import BLUE, GREEN, ORANGE
from levelport_lab.problems.functions import TestFunction, function_named

FIGURE_1 = (("booth", (7.5, -4.0)), ("goldstein-price", (0.0, 0.0)))
"""Functions and starts of the paper's figure."""

TOL = 1e-10
"""Of the teleports by our solver: the gradient step after them has to be a Newton step to the eye."""

_STYLES = ((BLUE, "dashed", "s"), (ORANGE, "solid", "o"), (GREEN, "-.", "^"))
"""Of the three journeys: gradient descent, the same after a teleport, Newton's method."""


@dataclass(frozen=True)
class ExactNewton(StepRule):
    """x⁺ = x - step · (∇²f)⁻¹ ∇f with the whole Hessian, whatever its signature: made for the plane.

    Nothing keeps it from saddle points and maxima, which is what the figure is about.
    """

    step: float = 0.8

    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        hessian = torch.stack([point.hvp(unit) for unit in torch.eye(objective.dimension, dtype=objective.dtype)])
        direction, singular = torch.linalg.solve_ex(hessian, point.gradient)
        if bool(singular):
            return Step(None, None, 0.0)
        return Step(objective.at(point.x - self.step * direction, curvature=True), None, self.step)


@dataclass(frozen=True)
class BacktrackingArmijo(StepRule):
    """Our reading of the released search in the plane: it begins at 1.25 times the last step size, and shrinks only.

    What is known of that search is its first step size 1, its factor 0.8, and that it takes 9 steps on Booth after the
    teleport and 25 without. Where later searches begin was inferred from these counts: begun at the last step size they
    are 23 and 54, at twice that 9 and 23, and at 1 every time 7 and 14, as with the library's :class:`Armijo`, which
    also grows a step size while it is good enough.
    """

    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        size = 1.0 if state is None else 1.25 * state
        while size > 1e-16:
            trial = objective.at(point.x - size * point.gradient)
            if trial.value <= point.value - 0.5 * size * point.gradient_norm**2:
                return Step(trial, size, size)
            size *= 0.8
        return Step(None, state, 0.0)


@dataclass(frozen=True)
class Journey:
    """One method: the points it visited (the teleported one included) and what ``minimize`` says of them."""

    label: str
    path: list[list[float]]
    result: MinimizeResult


@dataclass(frozen=True)
class PlaneExperiment:
    """Three methods on one function from one start, and the teleport."""

    function: TestFunction
    start: tuple[float, float]
    journeys: tuple[Journey, ...]
    trails: Trails
    teleport: TeleportResult


def experiment(
    name: str,
    start: tuple[float, float],
    *,
    solver: str | Solver = "auto",
    max_hvps: int = 50,
    iterations: int = 50,
    newton_step: float = 0.8,
    newton_iterations: int = 50,
    search: StepRule = Armijo(),  # noqa: B008, it is frozen
) -> PlaneExperiment:
    """Run the three methods on the test function ``name``.

    With a ``search`` that uses curvature the step after the teleport is the library's, of length 1/λ; otherwise the
    search decides that step as any other, as in the paper.
    """
    use_curvature = isinstance(search, Armijo) and search.use_curvature
    function = function_named(name)
    x0 = torch.tensor(start, dtype=torch.float64)

    def travel(label: str, method: Any, schedule: Any, iterations: int = iterations) -> Journey:
        path: list[list[float]] = []

        def visit(row: MinimizeRow, point: Point) -> None:
            path.append(point.x.tolist())

        result = minimize(
            function,
            x0,
            method,
            schedule=schedule,
            solver=replace(solver_named(solver), max_hvps=max_hvps, tol=TOL),
            first_step=None if use_curvature else "method",
            max_iterations=iterations,
            callback=visit,
        )
        return Journey(label, path, result)

    journeys = (
        travel("GD", search, Never()),
        travel("GD, teleported", search, At(0)),
        travel(f"Newton, step {newton_step:g}", ExactNewton(newton_step), Never(), newton_iterations),
    )
    trails = Trails()  # of the same teleport once more, this time with its iterates
    result = teleport(function, x0, replace(solver_named(solver), max_hvps=max_hvps, tol=TOL), callback=trails)
    return PlaneExperiment(function, start, journeys, trails, result)


def figure(experiments: Sequence[PlaneExperiment]) -> Figure:
    """One row per function: paths through the level sets; objective and gradient norm over steps; objective over cost,
    since a step may be expensive and a teleport is not free."""
    picture = Figure(figsize=(14.0, 3.6 * len(experiments)), layout="constrained")
    rows = picture.subplots(len(experiments), 4, squeeze=False, width_ratios=[1.2, 1.0, 1.0, 1.0])
    for one, (plane, objective, gradient, spent) in zip(experiments, rows, strict=True):
        _draw_plane(plane, one)
        _draw_curves(objective, one, gap=True)
        _draw_curves(gradient, one, gap=False)
        _draw_curves(spent, one, gap=True, cost=True)
    handles, labels = rows[0][0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return picture


def _draw_plane(axes: Axes, one: PlaneExperiment) -> None:
    function = one.function
    descents = [point for journey in one.journeys[:2] for point in journey.path]
    window = window_with(function.window, descents)
    level = one.teleport.value_start
    draw_level_sets(axes, function, window, minimum=function.minimum, level=level)
    for number, (journey, (color, style, marker)) in enumerate(zip(one.journeys, _STYLES, strict=True)):
        path = journey.path[1:] if number == 1 else journey.path  # from the teleported start
        draw_path(axes, path, color=color, style=style, marker=marker, label=journey.label, size=4)
    draw_trails(axes, one.start, one.trails, one.teleport.x.tolist())
    mark_minimizers(axes, function)
    axes.set_title(function.name.title())


def _draw_curves(axes: Axes, one: PlaneExperiment, *, gap: bool, cost: bool = False) -> None:
    """f - f* or ‖∇f‖ over the steps, where a teleport is a vertical line at step 0, or over what they cost."""
    floor = 1e-12 * (one.teleport.value_start if gap else one.teleport.gradient_norm)
    for journey, (color, style, marker) in zip(one.journeys, _STYLES, strict=True):
        rows = journey.result.trace
        heights = [row.value - one.function.minimum if gap else row.gradient_norm for row in rows]
        axes.semilogy(
            [row.cost if cost else row.iteration for row in rows],
            [max(height, floor) for height in heights],
            color=color,
            linestyle=style,
            marker=marker,
            markersize=3,
            linewidth=1.4,
        )
    axes.set_xlabel("gradient equivalents" if cost else "steps")
    axes.set_title("$f(w) - f^*$" if gap else r"$\|\nabla f(w)\|$")
    axes.grid(alpha=0.25)
