"""The ascent's path: how far from the level it may lie, and what happens where it cannot come back."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems_for_tests import network_loss, network_start
from torch import Tensor

import levelport.lab.bench.zoo_practice
import levelport.lab.bench.zoo_run  # noqa: F401  (both enter their species)
from levelport import TeleportStatus, teleport
from levelport.lab.bench.zoo import everyone
from levelport.objective import Point
from levelport.solvers import ascent
from levelport.solvers.certificate import Certificate
from levelport.solvers.result import TraceRow


@pytest.mark.parametrize(
    ("name", "draw"),
    [("attention block@0", 0), ("practice tanh breast-cancer 200@0", 1), ("layer norm network@50", 0)],
)
def test_the_path_is_no_higher_above_the_level_than_valleys_are_deep(name: str, draw: int) -> None:
    """Far above the level a classifier's loss is nearly linear, and a parabola along the normal believes in a way down
    that is not there. Without a limit the first of these paths goes up to f = 327, where the level is 1.5.
    """
    animal = everyone()[name]
    level = animal.objective().at(animal.start(draw)).value
    excess, size, reach = 0.0, math.inf, math.inf

    def see(row: TraceRow, point: Point) -> None:
        nonlocal excess, size, reach
        if math.isnan(row.step):  # another ascent
            excess, reach = 0.0, math.inf
        assert point.value - level <= max(excess, 0.0) + 0.3 * 0.5 * size * reach + 1e-12 * abs(level)
        curvature = Certificate.from_sizes(point).curvature
        excess, size = point.value - level, point.gradient_norm
        reach = min(reach, size / curvature) if curvature > 0.0 else reach

    result = teleport(animal.objective(), animal.start(draw), max_hvps=50, callback=see)
    assert result.nit > 40
    assert result.gradient_norm > 5.0 * result.gradient_norm_start


@pytest.mark.parametrize("near", [1e-4, 1e-6, 1e-8])
def test_an_ascent_from_near_a_saddle(near: float) -> None:
    """There the gradient grows by a factor 1e4 to 1e8, and with it the excess that does no harm."""

    def saddle(z: Tensor) -> Tensor:
        a, b = z - 3.0
        return 1.0 + 0.5 * a**2 - 0.5 * b**2 + 0.25 * b**4

    result = teleport(saddle, torch.tensor([3.0 + near, 3.0 + 0.3 * near], dtype=torch.float64))
    # The largest gradient of f <= 1 is that of a = 0, b = √2.
    assert result.gradient_norm == pytest.approx(math.sqrt(2.0), rel=1e-3)
    assert result.cost.gradient_equivalents < 300.0


def test_an_ascent_that_goes_on_after_landing_is_measured_against_what_it_has_landed_on() -> None:
    """Iterates beside the level had promised more than there is on it; for want of more, it was called stalled."""
    result = teleport(
        lambda x: torch.cos(x[0]) + 0.1 * x.square().sum() + 0.05 * torch.sin(3 * x[1]),
        torch.tensor([0.3, 0.2], dtype=torch.float64),
        level_set=True,
    )
    assert result.status is TeleportStatus.CONVERGED
    assert result.alignment == pytest.approx(-1.0, abs=1e-10)


def test_after_a_broken_promise_the_path_keeps_nearer_to_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ascent that believes in valleys a hundred times as deep fails on an attention block at 38 times its gradient.
    It must not fail in the same way again and again.
    """
    monkeypatch.setattr(ascent, "_LEFT_OF_DEPTH", 100.0)
    animal = everyone()["attention block@0"]
    result = teleport(animal.objective(), animal.start(), max_hvps=50)
    assert result.gradient_norm > 100.0 * result.gradient_norm_start


@given(slope=st.floats(1e-3, 1e3), best=st.floats(1e-3, 1e3), share=st.floats(0.1, 10.0))
def test_lengths_after_a_trial_are_those_of_a_parabola(slope: float, best: float, share: float) -> None:
    """φ(a) = s a - ½ s a²/b has its top at b. A trial far beyond it, but still above φ(0), is followed by one there."""
    step = share * best
    promised, growth = slope * step, slope * step * (1.0 - 0.5 * share)
    assert ascent._top(step, promised, growth) == pytest.approx(best, rel=1e-9)
    another = ascent._another_length(step, promised, growth, first=True)
    if share <= 0.599:  # grew by 0.7 of what was promised
        assert another == (2.0 * step if promised > 0.01 else None)
    elif share >= 1.501 and 0.5 * slope * best - growth > 0.0101:  # grew by less than a quarter
        assert another == pytest.approx(best, rel=1e-9)
    elif 0.601 <= share <= 1.499 or 0.5 * slope * best - growth < 0.0099:
        assert another is None
    assert share <= 0.599 or another == ascent._another_length(step, promised, growth, first=False)


@pytest.mark.parametrize("seed", [12, 25])
def test_kinks_are_not_crept_along(seed: int) -> None:
    """Where ‖∇f‖ jumps no step is short enough; six gradients per product went by before one was that led nowhere."""
    result = teleport(network_loss(torch.relu, 1e-3), network_start(seed))
    assert result.cost.gradients < 4.5 * result.cost.hvps
    assert result.gain > 5.0
