"""Test functions with known facts: minimizers, minima, and teleports where they are known in closed form.

Each is a plain differentiable function of one tensor, so that it can be given to :func:`levelport.teleport` as it
stands; :data:`FUNCTIONS` adds what is known of it and where it is usually started and drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.checks import unknown_name


def booth(w: Tensor) -> Tensor:
    """(w₁ + 2w₂ - 7)² + (2w₁ + w₂ - 5)²: a convex quadratic with Hessian eigenvalues 2 and 18."""
    x, y = w
    return (x + 2 * y - 7) ** 2 + (2 * x + y - 5) ** 2


def goldstein_price(w: Tensor) -> Tensor:
    """The function of Goldstein and Price (1971): non-convex, with values up to 10⁶ in [-2, 2]²."""
    x, y = w
    first = 1 + (x + y + 1) ** 2 * (19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2)
    second = 30 + (2 * x - 3 * y) ** 2 * (18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2)
    return first * second


def rosenbrock(w: Tensor) -> Tensor:
    """Σ 100 (w_{i+1} - w_i²)² + (1 - w_i)², in any dimension from 2."""
    if len(w) < 2:
        raise ValueError(f"rosenbrock takes at least 2 coordinates, not {len(w)}.")
    return (100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2).sum()


def himmelblau(w: Tensor) -> Tensor:
    """(w₁² + w₂ - 11)² + (w₁ + w₂² - 7)²: four minima of value 0."""
    x, y = w
    return (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2


def beale(w: Tensor) -> Tensor:
    """Σ (cᵢ - w₁ + w₁ w₂ⁱ)² with c = 1.5, 2.25, 2.625."""
    x, y = w
    return (1.5 - x + x * y) ** 2 + (2.25 - x + x * y**2) ** 2 + (2.625 - x + x * y**3) ** 2


def huber2(t: Tensor, knee: float = 1.0) -> Tensor:
    """h(t) = knee·h₂(t/knee) entry by entry; h₂(t) = -t⁴/8 + 3t²/4 + 3/8 for |t| < 1 and |t| otherwise.

    From Mishkin, Bietti and Gower, appendix A. Convex and C² (h₂″ = 3(1 - t²)/2 falls to 0 at the knee), smooth with
    L = 3/(2 knee), minimum 3 knee/8 at 0.
    """
    s = t / knee
    inner = -(s**4) / 8 + 3 * s**2 / 4 + 3 / 8
    return knee * torch.where(s.abs() < 1, inner, s.abs())


def second_order_huber(w: Tensor, knee: float = 1.0) -> Tensor:
    """Σᵢ h(wᵢ): after teleporting the gradient is no Newton direction.

    On levels b ≥ d·knee every entry can have the largest slope, 1. The maximizers over {f ≤ b} are all w with |wᵢ| ≥
    knee and Σ|wᵢ| ≤ b; there ∇²f = 0 and λ = 0. A smaller knee serves any level.
    """
    return huber2(w, knee).sum()


def flat_huber(w: Tensor) -> Tensor:
    """h₂(w₁), constant in every other coordinate: descent makes the same progress with and without teleports.

    The identity is one maximizer of many: the other coordinates are free, the sign of w₁ is, and for |w₁| > 1 every
    w₁′ with 1 ≤ |w₁′| ≤ |w₁| has the same slope 1, so that a solver of the sub-level problem could even lower f for
    nothing. Maximizers on the level set keep |w₁|, and then the values f(w_k) agree whichever is chosen. For d ≥ 2
    the function is not coercive; d = 1 with |w₁| < 1 has neither trouble.
    """
    return second_order_huber(w[:1])


@dataclass(frozen=True)
class TestFunction:
    """A function of ℝ² with what is known of it.

    Attributes:
        name, function: how to call it.
        minimizers: all global minimizers known.
        minimum: its value there.
        start: where demonstrations start.
        window: (left, right, bottom, top) of a picture.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    minimizers: tuple[tuple[float, float], ...]
    minimum: float
    start: tuple[float, float]
    window: tuple[float, float, float, float]

    def __call__(self, w: Tensor) -> Tensor:
        return self.function(w)


FUNCTIONS: dict[str, TestFunction] = {
    known.name: known
    for known in (
        TestFunction("booth", booth, ((1.0, 3.0),), 0.0, (7.5, -4.0), (-10.0, 10.0, -10.0, 10.0)),
        TestFunction("goldstein-price", goldstein_price, ((0.0, -1.0),), 3.0, (0.0, 0.0), (-2.0, 2.0, -3.0, 1.5)),
        TestFunction("rosenbrock", rosenbrock, ((1.0, 1.0),), 0.0, (-1.2, 1.0), (-2.0, 2.0, -1.5, 3.5)),
        TestFunction(
            "himmelblau",
            himmelblau,
            (
                (3.0, 2.0),
                (-2.805118086952745, 3.131312518250573),
                (-3.779310253377747, -3.283185991286170),
                (3.584428340330492, -1.848126526964404),
            ),
            0.0,
            (0.0, 0.0),
            (-6.0, 6.0, -6.0, 6.0),
        ),
        TestFunction("beale", beale, ((3.0, 0.5),), 0.0, (1.0, 1.0), (-4.5, 4.5, -2.0, 2.0)),
        TestFunction("huber", second_order_huber, ((0.0, 0.0),), 0.75, (0.9, 0.3), (-2.5, 2.5, -2.5, 2.5)),
        TestFunction("flat-huber", flat_huber, ((0.0, 0.0),), 0.375, (0.9, 0.3), (-2.5, 2.5, -2.5, 2.5)),
    )
}
"""The test functions by name."""


def function_named(name: str) -> TestFunction:
    """The test function called ``name``, or an error with a suggestion."""
    if name not in FUNCTIONS:
        raise unknown_name("test function", name, FUNCTIONS)
    return FUNCTIONS[name]
