"""The ascent along the level set, one trial at a time."""

from __future__ import annotations

import math

import pytest
import torch

from levelport.numerics.tangent_lbfgs import TangentQuasiNewton
from levelport.problems.quadratics import Quadratic
from levelport.solvers.ascent import LevelSetAscent, _Line
from levelport.solvers.contract import Monitor, TeleportProblem


def ascent_on_a_quadratic() -> LevelSetAscent:
    objective = Quadratic.random(torch.logspace(0, -2, 20, dtype=torch.float64), seed=0)
    start = objective.at(torch.zeros(20, dtype=torch.float64), curvature=True)
    problem = TeleportProblem(objective, start, slack=0.0, max_hvps=50)
    vectors = TangentQuasiNewton(5, start.x)
    return LevelSetAscent(problem, Monitor(problem), start, vectors=vectors, radius=math.inf, length=1.0)


@pytest.mark.parametrize("factor", [0.3, 0.5, 2.0])
def test_a_second_trial_on_a_line_knows_the_way_back(factor: float) -> None:
    """How f bends along d was seen by the first one: on a quadratic the next is near the level at once."""
    ascent = ascent_on_a_quadratic()
    frame, ledger, level = ascent.frame, ascent.problem.objective.ledger, ascent.problem.level
    line = _Line(frame.ascent, frame.ascent_norm**2, frame.ascent_norm, math.inf)
    step = ascent._first_length() / line.length
    seen = []
    for length in (step, factor * step):
        values, gradients = ledger.values, ledger.gradients
        trial, _ = ascent._trial(line, length)
        assert trial is not None
        assert abs(trial.value - level) < 0.1 * length * line.length * trial.gradient_norm
        seen.append((ledger.values - values, ledger.gradients - gradients))
    # Beside the level and back to it; then at the level, where the value belongs to the gradient.
    assert seen == [(1, 1), (0, 1)]
