"""The control without the climb lands where the teleport's 1/λ step lands, on a quadratic."""

from __future__ import annotations

import torch

from levelport.solvers import Krylov, move_from
from levelport_lab.bench.no_climb import NoClimb
from levelport_lab.problems.quadratics import Quadratic


def quadratic(d: int = 20, condition: float = 1e3, seed: int = 3) -> Quadratic:
    return Quadratic.random(torch.logspace(0, -torch.tensor(condition).log10().item(), d, dtype=torch.float64), seed)


def start_of(d: int = 20, seed: int = 4) -> torch.Tensor:
    return torch.randn(d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_teleport_and_step_equal_krylov_step_on_quadratics() -> None:
    """The climb a v and the step 1/θ back cancel where H v = θ v.

    With r = g + H s the model's residual, w + s + a v - (r + a H v)/θ = w + s - r/θ.
    """
    f, x = quadratic(), start_of()
    climbing, plain = Krylov(hvp="exact"), NoClimb(hvp="exact")
    far = {"first_norm": 1e60}  # the model is built to the last vector
    there = move_from(f.at(x), f, climbing, far, certify=False)
    bottom = move_from(f.at(x), f, plain, far, certify=False).lower
    assert bottom is not None
    landed = there.point.x - there.point.gradient / there.result.curvature
    control = bottom.x - bottom.gradient / there.result.curvature
    assert there.result.gain > 1.2
    assert float((landed - control).norm()) <= 1e-6 * float(x.norm())
