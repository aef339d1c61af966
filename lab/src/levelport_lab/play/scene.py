"""From what the page is set to, to what it shows: arrays to draw and sentences to read. No server, no widgets.

:func:`scene` teleports the start by the library's own :func:`levelport.teleport`, keeps the iterates, and runs gradient
descent twice, with and without teleports, up to the same cost. What a run did beyond that cost is not shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from contourpy import FillType, contour_generator
from numpy.typing import NDArray
from torch import Tensor

from levelport import checks
from levelport.objective import Point
from levelport.optim import LBFGS, Armijo, At, Every, MinimizeRow, MinimizeStatus, Never, Schedule, minimize
from levelport.solvers import Auto, TeleportResult, TeleportStatus, teleport
from levelport_lab.level_sets import Trails, Window, heights, on_grid, window_with
from levelport_lab.play.expression import read
from levelport_lab.problems.functions import FUNCTIONS, function_named

TYPED = "typed"
"""The choice of function that stands for what was typed."""
SCHEDULES: dict[str, Schedule] = {
    "once, at the start": At(0),
    "before every 5th step": Every(5),
    "before every step": Every(1),
}
"""When the second descent teleports."""
MAX_COST = 400.0
"""Gradient equivalents for each of the two descents."""
MAX_HVPS = 100
"""The most products that the page lets one teleport spend."""
ACCURACY = 1e-6
"""The descents are compared by what it costs to bring f - f* down to this part of what it was: a millionth."""
_SECONDS = 5.0  # of patience, for every computation; functions of the plane take some hundredths
_SMALL = 1e-3  # part of the start's gradient norm
_ALIGNED = 0.999  # cosine from which the gradient is an eigenvector to the eye
_TYPED_WINDOW: Window = (-5.0, 5.0, -5.0, 5.0)
_RESOLUTION = 161
_CONTOURS = 14

Line = NDArray[np.float64]
"""Points, one to a row."""


@dataclass(frozen=True)
class State:
    """The settings of the page.

    Attributes:
        function: a name in :data:`levelport_lab.problems.functions.FUNCTIONS`, or :data:`TYPED`.
        expression: what was typed; read where ``function`` is :data:`TYPED`.
        start: where to start.
        max_hvps, radius: limits of a teleport; no radius lets the solver derive it.
        schedule: a name in :data:`SCHEDULES`.
    """

    function: str = "booth"
    expression: str = ""
    start: tuple[float, float] = (7.5, -4.0)
    max_hvps: int = 50
    radius: float | None = None
    schedule: str = "once, at the start"

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.start)):
            raise ValueError(f"start must be two finite numbers, not {self.start}.")
        checks.whole("max_hvps", self.max_hvps, at_least=1, why="the certificate alone takes one")
        if self.radius is not None:
            checks.number("radius", self.radius, above=0.0, why="it is a distance; None has it derived")
        checks.one_of("schedule", self.schedule, SCHEDULES)


@dataclass(frozen=True)
class Landscape:
    """A function of the plane and what is known of it; ``minimum`` is None where nothing is."""

    name: str
    function: Callable[[Tensor], Tensor]
    window: Window
    start: tuple[float, float]
    minimizers: tuple[tuple[float, float], ...] = ()
    minimum: float | None = None


@dataclass(frozen=True)
class Descent:
    """One run of gradient descent, as far as the cost allowed goes.

    Attributes:
        label: what it is called.
        legs: the points that steps lead through, in pieces between teleports.
        leaps: the teleports, as pairs of points.
        costs, values: gradient equivalents spent and f, point by point.
        at_rest: whether it ended with a small gradient.
    """

    label: str
    legs: list[Line]
    leaps: list[Line]
    costs: NDArray[np.float64]
    values: NDArray[np.float64]
    at_rest: bool

    @property
    def end(self) -> tuple[float, float]:
        """Return the end of the path."""
        x, y = self.legs[-1][-1]
        return float(x), float(y)

    def cost_to(self, value: float) -> float | None:
        """Return what was spent when f first fell to ``value``; None if it never did."""
        reached = np.flatnonzero(self.values <= value)
        return float(self.costs[reached[0]]) if len(reached) else None


@dataclass(frozen=True)
class Scene:
    """The picture and its sentences.

    Attributes:
        contours, rim: lines of equal value, and those of the start's.
        shade: the sub-level set: pieces, each its outline followed by its holes.
        trails, jumps: iterates of the solver, and where its predictor skips to from the start.
        start, end: of the teleport.
        descents: without and with teleports.
        minimum: f*, or for typed functions the value where a longer run came to rest; None if it did not.
        floor: the minimum, or the lowest value that the descents saw.
        reference: what the curves show, for their axis.
        certificate, comparison: sentences.
    """

    landscape: Landscape
    window: Window
    contours: list[Line]
    rim: list[Line]
    shade: list[list[Line]]
    trails: list[Line]
    jumps: list[Line]
    start: tuple[float, float]
    end: tuple[float, float]
    descents: tuple[Descent, Descent]
    minimum: float | None
    floor: float
    reference: str
    certificate: tuple[str, ...]
    comparison: tuple[str, ...]


def landscape(state: State) -> Landscape:
    """The function that is meant; a sentence where there is none."""
    if state.function == TYPED:
        return Landscape("your function", read(state.expression), _TYPED_WINDOW, (2.0, 1.0))
    known = function_named(state.function)
    return Landscape(known.name, known, known.window, known.start, known.minimizers, known.minimum)


def scene(state: State) -> Scene:
    """Everything that the page shows. Wrong settings raise a ValueError whose message is a sentence for the reader."""
    land = landscape(state)
    x0 = torch.tensor(state.start, dtype=torch.float64)
    trails = Trails()
    result = teleport(
        land.function, x0, Auto(max_hvps=state.max_hvps, radius=state.radius, max_seconds=_SECONDS), callback=trails
    )
    if result.status is TeleportStatus.NON_FINITE_START:
        raise ValueError(
            f"At {_pair(state.start)} the function or its gradient is not finite. Click where it is defined."
        )
    end = (float(result.x[0]), float(result.x[1]))
    descents = (_descend(land, x0, state, Never(), "without teleports"),
                _descend(land, x0, state, SCHEDULES[state.schedule], "with teleports"))  # fmt: skip
    lowest = min(float(descent.values.min()) for descent in descents)
    minimum = _rest_of(land, descents) if land.minimum is None else land.minimum
    visited = [tuple(point) for trail in trails.trails for point in trail]
    window = window_with(land.window, [state.start, end, *visited], reach=1.0)
    contours, rim, shade = _level_sets(land, window, result.value_start)
    return Scene(
        landscape=land,
        window=window,
        contours=contours,
        rim=rim,
        shade=shade,
        trails=[np.array(trail) for trail in trails.trails],
        jumps=[np.array([state.start, trail[0]]) for trail in trails.trails if trail[0] != state.start],
        start=state.start,
        end=end,
        descents=descents,
        minimum=minimum,
        floor=lowest if minimum is None else minimum,
        reference=(
            "f - f*" if land.minimum is not None
            else "f - lowest value of the two" if minimum is None
            else "f - value where a longer run rests"
        ),
        certificate=_certificate(result, state.start, end, window),
        comparison=_comparison(descents, minimum, proven=land.minimum is not None),
    )  # fmt: skip


def _rest_of(land: Landscape, descents: tuple[Descent, Descent]) -> float | None:
    """Return where L-BFGS comes to rest from the lower of two ends, or None if it does not.

    A run that stops early is lowest at its own end: measured against that, it would look as if it had converged.
    """
    lower = min(descents, key=lambda run: float(run.values[-1]))
    x = torch.tensor(lower.end, dtype=torch.float64)
    result = minimize(land.function, x, LBFGS(), schedule=Never(), max_cost=MAX_COST, max_seconds=_SECONDS)
    if result.status is not MinimizeStatus.GRADIENT_SMALL and not lower.at_rest:
        return None
    return min(result.value, *(float(run.values.min()) for run in descents))


def _descend(land: Landscape, x0: Tensor, state: State, schedule: Schedule, label: str) -> Descent:
    rows: list[tuple[MinimizeRow, list[float]]] = []

    def visit(row: MinimizeRow, point: Point) -> None:
        if row.cost <= MAX_COST:
            rows.append((row, point.x.tolist()))

    solver = Auto(max_hvps=state.max_hvps, radius=state.radius)
    result = minimize(
        land.function, x0, Armijo(), schedule=schedule, solver=solver, max_cost=MAX_COST, max_seconds=_SECONDS,
        callback=visit,
    )  # fmt: skip
    legs: list[list[list[float]]] = []
    leaps = []
    for row, here in rows:
        if row.teleported:
            leaps.append(np.array([legs[-1][-1], here]))
        if row.teleported or not legs:
            legs.append([here])
        else:
            legs[-1].append(here)
    costs, values = np.array([row.cost for row, _ in rows]), np.array([row.value for row, _ in rows])
    # Where no step lowers f any more it is at a minimum, or so far out that rounding swallows every step.
    small = result.gradient_norm <= _SMALL * result.trace[0].gradient_norm
    at_rest = result.status is MinimizeStatus.GRADIENT_SMALL or (result.status is MinimizeStatus.NO_STEP and small)
    return Descent(label, [np.array(leg) for leg in legs], leaps, costs, values, at_rest)


def _level_sets(land: Landscape, window: Window, level: float) -> tuple[list[Line], list[Line], list[list[Line]]]:
    """Contours, the rim of the sub-level set, and its pieces; where f is not defined nothing is drawn."""
    left, right, bottom, top = window
    x, y = np.linspace(left, right, _RESOLUTION), np.linspace(bottom, top, _RESOLUTION)
    values = on_grid(land.function, x, y)
    values = np.where(np.isfinite(values), values, np.nan)
    if np.isnan(values).all():
        return [], [], []
    lowest = float(np.nanmin(values)) if land.minimum is None else land.minimum
    with np.errstate(divide="ignore"):  # half of the window may lie at the minimum
        height = heights(values, lowest)
    finite = height[np.isfinite(height)]
    contours: list[Line] = []  # contourpy declares the union of all forms of lines; the default is a list of arrays
    if len(finite):
        of_height = contour_generator(x, y, np.ma.masked_invalid(height))
        for one in np.linspace(finite.min(), finite.max(), _CONTOURS + 2)[1:-1]:
            contours += of_height.lines(one)  # type: ignore[arg-type]
    of_value = contour_generator(x, y, np.ma.masked_invalid(values), fill_type=FillType.OuterOffset)
    rim: list[Line] = list(of_value.lines(level))  # type: ignore[arg-type]
    shade = []
    for points, offsets in zip(*of_value.filled(-math.inf, level), strict=True):
        ends = [int(offset) for offset in offsets]
        shade.append([points[a:b] for a, b in pairwise(ends)])
    return contours, rim, shade


def _certificate(
    result: TeleportResult[Tensor], start: tuple[float, float], end: tuple[float, float], window: Window
) -> tuple[str, ...]:
    left, right, bottom, top = window
    outside = "" if left <= end[0] <= right and bottom <= end[1] <= top else " (outside the picture)"
    cost, curvature = result.cost, result.curvature
    if curvature <= 0.0:
        newton = "It is not positive: no gradient step is a Newton step here."
    elif result.alignment < _ALIGNED:
        newton = "The gradient is no eigenvector of the Hessian: no gradient step is a Newton step here."
    else:
        newton = f"The gradient step of length 1/λ = {1.0 / curvature:.4g} is a Newton step."
    return (
        f"From {_pair(start)} to {_pair(end)}{outside}: the gradient norm goes from {result.gradient_norm_start:.5g} "
        f"to {result.gradient_norm:.5g} ({result.gain:.3g} times), the value from {result.value_start:.6g} to "
        f"{result.value:.6g}, {'not above the start' if result.violation == 0.0 else f'{result.violation:.1e} above'}.",
        f"Why it stopped: {result.message}.",
        f"Certificate: the cosine of the angle between g and H g is {result.alignment:.9g}, the KKT residual "
        f"{result.kkt_residual:.2g}; at a solution they are 1 and 0.",
        f"Curvature along the gradient: λ = {curvature:.5g}. {newton}",
        f"Price: {cost.gradient_equivalents:g} gradient equivalents (values: {cost.values}, gradients: "
        f"{cost.gradients}, Hessian-vector products: {cost.hvps}).",
    )


def _comparison(descents: tuple[Descent, Descent], minimum: float | None, *, proven: bool) -> tuple[str, ...]:
    """Return both losses at equal cost, which is lower, and which run is cheaper to the same value, if there is one.

    Args:
        descents: without and with teleports.
        minimum: what their values are measured against; None if nothing is known of it.
        proven: whether it is known to be the minimum.
    """
    plain, teleported = descents
    losses = (
        f"Gradient descent with a line search, after {MAX_COST:g} gradient equivalents at most, teleports included: f "
        f"is {plain.values[-1]:.5g} without teleports and {teleported.values[-1]:.5g} with"
    )
    ends = [float(run.values[-1]) for run in descents]
    lower = (
        "Both end at the same value to five digits." if math.isclose(*ends, rel_tol=1e-5)
        else f"f ends lower {(plain if ends[0] < ends[1] else teleported).label}."
    )  # fmt: skip
    if minimum is None:
        return (
            f"{losses}.",
            f"{lower} A longer run did not come to rest either, so that there may be no minimum: the costs of reaching "
            "it do not compare.",
        )
    floor = minimum
    least = f"f* = {floor:.5g}" if proven else f"{floor:.5g}, where a longer run comes to rest,"
    scale = plain.values[0] - floor
    together = plain.at_rest and teleported.at_rest and abs(ends[0] - ends[1]) <= ACCURACY * scale
    if together and min(ends) > floor + ACCURACY * scale:
        least, floor = f"{min(ends):.5g}, where both come to rest, above f* = {floor:.5g},", min(ends)
    target = floor + ACCURACY * scale
    if not together and any(run.at_rest and run.values[-1] > target for run in descents):
        places = " and ".join(f"at {_pair(run.end)} {run.label}" for run in descents)
        return (
            f"{losses}.",
            f"The two end in different places, {places}. {lower} The costs do not compare. "
            "Which valley a run falls into is chance: from another start it may be the other way round.",
        )
    costs = [descent.cost_to(target) for descent in descents]
    said = [f"{cost:g}" if cost is not None else f"more than {MAX_COST:g}" for cost in costs]
    before, after = (math.inf if cost is None else cost for cost in costs)
    verdict = (
        f"Neither gets there. {lower}" if before == after == math.inf
        else "It makes no difference here." if before == after
        else "Teleports pay here." if after < before
        else "Teleports do not pay here."
    )  # fmt: skip
    return (
        f"{losses}; the distance to {least} is {plain.values[-1] - floor:.1e} and {teleported.values[-1] - floor:.1e}.",
        f"Cost of bringing that down to a millionth of where it began: {said[0]} without, {said[1]} with. {verdict}",
    )


def _pair(point: tuple[float, float]) -> str:
    return f"({point[0]:.4g}, {point[1]:.4g})"


def names() -> list[str]:
    """The functions to choose from."""
    return [*FUNCTIONS, TYPED]
