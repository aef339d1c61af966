"""A teleport and its first step as one move.

A teleport ends where the gradient is many times larger than before. A step size that served well until then is far
too long there: a method with a fixed one would jump out of the valley. So the first step belongs to the move,

    w → w⁺ → w⁺ - η ∇f(w⁺),      η = 1/λ, halved until f(w⁺ - η ∇f(w⁺)) ≤ f(w⁺) - 0.1 η ‖∇f(w⁺)‖²,

λ the curvature along ∇f(w⁺) that the teleport reports. It ends at f ≤ f(w), with a gradient of ordinary size, or does
not take place (:func:`take_first_step`). Nor does it take place where f is more curved along that step than the
method's step size can bear, or where its own next step would climb (:class:`StabilityLimit`): the valley is lower, but
too narrow for a fixed step. What happens after that is watched by :mod:`levelport.optim.policy`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch

from levelport.objective import Cost, Objective, Point
from levelport.solvers import Move, TeleportResult, TeleportStatus
from levelport.solvers.result import STAYED
from levelport.vectors import all_finite, norm, read

_SHARE = 0.1  # of the predicted decrease
_TRIALS = 12  # halvings of 1/λ
_SHORTER = 4  # the move, its half, its quarter, its eighth
_STABLE = 0.9  # of the curvature at which a fixed step diverges


@dataclass(frozen=True)
class Taken:
    """A move and its first step, as far as they are to be made.

    Attributes:
        move: the teleport.
        point: where the method goes on; the start itself where the move is not made.
        size: of the gradient step that led there from the teleport; 0 for none, NaN where it is left to the method.
        refused: why the move is not made, where the teleport found a point to move to.
        unused_change: change of f on samples that the move was not made for; NaN where none were checked.
        share: of the move that was kept, so that f does not rise on those.
    """

    move: Move
    point: Point
    size: float = 0.0
    refused: str = ""
    unused_change: float = math.nan
    share: float = 1.0

    @property
    def descent(self) -> bool:
        """Whether the move is an ordinary step down, because no teleport was worth it."""
        return self.move.lower is not None

    def told(self, moved: bool, cost: Cost) -> TeleportStep:
        """The same for people, without the points."""
        return TeleportStep(
            teleport=self.move.result,
            kind="none" if not moved else "descent" if self.descent else "teleport",
            value_after=self.point.value,
            first_step=self.size,
            refused=self.refused,
            unused_change=self.unused_change,
            share=self.share,
            cost=cost,
        )


@dataclass(frozen=True)
class TeleportStep:
    """What an optimizer made of a teleport: what :class:`levelport.Teleporter` returns and hooks see.

    Attributes:
        teleport: the teleport itself.
        kind: "teleport"; "descent", where no teleport was worth it and the bottom of the solver's model was taken as an
            ordinary step down; or "none", where the parameters stayed.
        value_after: f where the optimizer goes on.
        first_step: size of the gradient step from the teleport that belongs to the move; 0 where there was none, NaN
            where the optimizer takes it.
        refused: why a point that was found was not moved to; empty otherwise.
        unused_change: change of f on samples that the teleport did not use; NaN where none were checked.
        share: of the move that was made; less than 1 where f would have risen on those samples.
        cost: evaluations and seconds of everything.
    """

    teleport: TeleportResult
    kind: Literal["teleport", "descent", "none"]
    value_after: float
    first_step: float
    refused: str
    unused_change: float
    share: float
    cost: Cost

    @property
    def moved(self) -> bool:
        """Whether the parameters moved."""
        return self.kind != "none"

    @property
    def status(self) -> TeleportStatus:
        """Of the teleport."""
        return self.teleport.status

    @property
    def gain(self) -> float:
        """Of the teleport: by how much ‖∇f‖ grew, whether or not the parameters went there."""
        return self.teleport.gain

    @property
    def value_start(self) -> float:
        """f before."""
        return self.teleport.value_start

    @property
    def message(self) -> str:
        """What happened, as a sentence."""
        said = [self.teleport.message.replace(STAYED, "") if self.moved else self.teleport.message]
        if self.refused:
            said.append(f"not made: {self.refused}")
        if self.kind == "descent":
            said.append("a step down to the minimizer of the quadratic model was taken instead")
        if 0.0 < self.share < 1.0:
            said.append(f"shortened to {self.share:g}: further on the loss rises on samples that were not used")
        return "; ".join(said)

    def __str__(self) -> str:
        lines = [str(self.teleport)]
        if self.kind == "teleport" and self.first_step > 0.0:
            lines.append(f"then   a step of {self.first_step:.3g} to f = {self.value_after:.8g}")
        if self.message != self.teleport.message:
            lines.append(f"made   {self.message}")
        return "\n".join(lines)


@dataclass(frozen=True)
class StabilityLimit:
    """Stability of a method with a fixed step size; the default is that of methods that choose theirs.

    Attributes:
        curvature: above which its steps diverge on a quadratic; infinite where nothing is known.
        step: its step size; 0 for methods whose next step cannot be predicted.
    """

    curvature: float = math.inf
    step: float = 0.0

    @classmethod
    def fixed(
        cls, lr: float, momentum: float = 0.0, dampening: float = 0.0, *, nesterov: bool = False
    ) -> StabilityLimit:
        """Gradient descent with momentum β: it diverges above 2 (1 + β)/(lr (1 - dampening)) (Polyak, 1964).

        Nesterov's, which torch has without dampening, steps along g + β (β b + g), b the buffer. On ½ λ p² that is a
        linear map of (p, b) with determinant β (1 - lr λ) and trace (1 + β) (1 - lr λ), whose eigenvalue reaches -1 at
        lr λ = 2 (1 + β)/(1 + 2β): the look ahead costs it most of what momentum can bear.
        """
        reach = lr * (1.0 + 2.0 * momentum) if nesterov else lr * (1.0 - dampening)
        return cls(_STABLE * 2.0 * (1.0 + momentum) / max(reach, 1e-300), lr)

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> StabilityLimit:
        """That of torch's SGD, the lowest curvature and the longest step over its groups."""
        if not isinstance(optimizer, torch.optim.SGD):
            return cls()
        groups = [
            cls.fixed(float(g["lr"]), g["momentum"], g["dampening"], nesterov=g["nesterov"])
            for g in optimizer.param_groups
        ]
        return cls(min(g.curvature for g in groups), max(g.step for g in groups))


def take_first_step(objective: Objective, start: Point, move: Move, limit: StabilityLimit) -> Taken:
    """Step down from the teleport; the start itself where no step descends, or where the method could not go on.

    It could not where f is more curved than its step size can bear, or where its own next step would not descend.
    """
    taken = _descend(objective, start, move, limit.curvature)
    point = taken.point
    if limit.step > 0.0 and point is not start:
        following = objective.at(point.x - limit.step * point.gradient).value
        if not following <= point.value:
            return Taken(move, start, refused="the optimizer's own next step would climb there")
    return taken


def _descend(objective: Objective, start: Point, move: Move, limit: float) -> Taken:
    if move.lower is not None:
        refused = _too_narrow(move.result.curvature, limit)
        return Taken(move, start, refused=refused) if refused else Taken(move, move.lower)
    end = move.point
    if not move.result.moved:
        return Taken(move, start)
    if end.gradient_norm == 0.0:
        return Taken(move, end)
    for size in _sizes(start, end, abs(move.result.curvature)):
        asked = _SHARE * size * end.gradient_norm * end.gradient_norm  # in this order: a square may leave the range
        trial = objective.at(end.x - size * end.gradient)
        if _finite(trial) and trial.value <= min(end.value - asked, start.value):
            refused = _too_narrow(averaged_curvature(end, trial), limit) if math.isfinite(limit) else ""
            return Taken(move, start, refused=refused) if refused else Taken(move, trial, size)
    return Taken(move, start, refused="no gradient step descends from there")


def averaged_curvature(before: Point, after: Point) -> float:
    """⟨n, H̄ n⟩, n = ∇f/‖∇f‖ at ``before`` and H̄ the Hessian averaged along a gradient step from there: free of charge.

    ∇f(before) - ∇f(after) = η H̄ ∇f(before). NaN where rounding has turned the step.
    """
    step, normal = before.x - after.x, before.normal
    ends = [torch.dot(step, normal), torch.dot(normal, before.gradient - after.gradient)]
    advance, change, length = read(ends, [step])
    return change / length if advance > 0.999 * length else math.nan


def _finite(point: Point | None) -> bool:
    """Return True if f and x are, in the metric and underneath: f may have a limit at infinity."""
    if point is None or not math.isfinite(point.value):
        return point is None
    return all_finite(point.x) and _finite(point.inner)


def _sizes(start: Point, end: Point, curvature: float) -> Iterator[float]:
    """1/λ and its halves; then, or without a curvature, the step back as far as the teleport led away, and its halves.

    In the interior of the sub-level set, where the gradient is largest at λ = 0, what is left of λ are roundings, and
    no half of 1/λ may be short enough.
    """
    shortest = math.inf
    if curvature > 0.0:
        yield from (1.0 / curvature / 2.0**halvings for halvings in range(_TRIALS))
        shortest = 1.0 / curvature / 2.0**_TRIALS
    back = min(float(norm(end.x - start.x)) / end.gradient_norm, shortest)
    yield from (back / 2.0**halvings for halvings in range(_TRIALS))


def _too_narrow(curvature: float, limit: float) -> str:
    """Why a move to a valley of that curvature is refused; nothing where it is not."""
    if not curvature > limit:
        return ""
    return (
        "the valley there is too narrow for the optimizer's step size, which is stable up to a curvature of "
        f"{limit:.3g}, not of {curvature:.3g}"
    )


def check_unused(seen: Objective, unused: Objective, start: Point, taken: Taken) -> Taken:
    """Shorten the move until f does not rise on ``unused``; the start itself where no part of it is harmless.

    Along the way f on ``seen`` has to stay at or below the start's, too: it need not be convex.
    """
    before = unused.at(start.x).value
    share, point = 1.0, taken.point
    for _ in range(_SHORTER):
        change = unused.at(point.x).value - before
        if change <= 0.0 and point.value <= start.value:
            return replace(taken, point=point, size=share * taken.size, unused_change=change, share=share)
        share *= 0.5
        point = seen.at(torch.lerp(start.x, taken.point.x, share))
    refused = "the loss rises on samples that were not used"
    return replace(taken, point=start, size=0.0, refused=refused, unused_change=0.0, share=0.0)
