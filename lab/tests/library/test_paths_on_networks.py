"""Paths of the ascent on networks: how far from the level they may lie, and how they return to it."""

from __future__ import annotations

import math

import pytest

from levelport import teleport
from levelport.objective import Point
from levelport.solvers import Auto, ascent
from levelport.solvers.problem import Certificate
from levelport.solvers.result import TraceRow
from levelport_lab.problems.teleport_cases import all_cases

development = pytest.importorskip("development_networks", reason="tools/ is not part of this copy")
CASES = all_cases(development.DEVELOPMENT)


@pytest.mark.parametrize(
    ("name", "draw"),
    [("attention block@0", 0), ("extra tanh breast-cancer 200@0", 1), ("layer norm network@50", 0)],
)
def test_path_stays_near_the_level_over_shallow_valleys(name: str, draw: int) -> None:
    """Far above the level a classifier's loss is nearly linear, and a parabola along the normal believes in a way down
    that is not there. Without a limit the first of these paths goes up to f = 327, where the level is 1.5.
    """
    case = CASES[name]
    level = case.objective().at(case.start(draw)).value
    excess, size, reach = 0.0, math.inf, math.inf

    def see(row: TraceRow, point: Point) -> None:
        nonlocal excess, size, reach
        if math.isnan(row.step):  # another ascent
            excess, reach = 0.0, math.inf
        assert point.value - level <= max(excess, 0.0) + 0.3 * 0.5 * size * reach + 1e-12 * abs(level)
        curvature = Certificate.from_sizes(point).curvature
        excess, size = point.value - level, point.gradient_norm
        reach = min(reach, size / curvature) if curvature > 0.0 else reach

    result = teleport(case.objective(), case.start(draw), Auto(max_hvps=50), callback=see)
    assert result.nit > 40
    assert result.gradient_norm > 5.0 * result.gradient_norm_start


def test_path_keeps_nearer_after_a_failed_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ascent that believes in valleys a hundred times as deep fails on an attention block at 38 times its gradient.
    It must not fail in the same way again and again.
    """
    monkeypatch.setattr(ascent, "_LEFT_OF_DEPTH", 100.0)
    case = CASES["attention block@0"]
    result = teleport(case.objective(), case.start(), Auto(max_hvps=50))
    assert result.gradient_norm > 100.0 * result.gradient_norm_start


def test_more_products_never_return_a_shorter_gradient() -> None:
    """An attention block, where an iterate had no way down to the level: 50 products returned less than ten."""
    case = CASES["attention block@0"]
    few, many = (teleport(case.objective(), case.start(), Auto(max_hvps=n)).gradient_norm for n in (10, 50))
    assert many >= few
