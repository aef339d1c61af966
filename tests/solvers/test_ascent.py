"""The ascent's path: how far from the level it may lie, and what happens where it cannot come back."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cases import network_loss, network_start
from torch import Tensor

from levelport import TeleportStatus, teleport
from levelport.solvers import ascent


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


def test_ascent_after_landing_is_measured_against_the_landing() -> None:
    """Iterates off the level predict more than there is on it, and the ascent was called stalled."""
    result = teleport(
        lambda x: torch.cos(x[0]) + 0.1 * x.square().sum() + 0.05 * torch.sin(3 * x[1]),
        torch.tensor([0.3, 0.2], dtype=torch.float64),
        level_set=True,
    )
    assert result.status is TeleportStatus.CONVERGED
    assert result.alignment == pytest.approx(-1.0, abs=1e-10)


@given(slope=st.floats(1e-3, 1e3), best=st.floats(1e-3, 1e3), share=st.floats(0.1, 10.0))
@example(slope=0.5, best=1.0, share=1.45)
def test_lengths_after_a_trial_are_those_of_a_parabola(slope: float, best: float, share: float) -> None:
    """φ(a) = s a - ½ s a²/b has its top at b. A trial far beyond it, but still above φ(0), is followed by one there."""
    step = share * best
    predicted, growth = slope * step, slope * step * (1.0 - 0.5 * share)
    assert ascent._top(step, predicted, growth) == pytest.approx(best, rel=1e-9)
    another = ascent._another_length(step, predicted, growth, first=True)
    if share <= 0.599:  # grew by 0.7 of what was predicted
        assert another == (2.0 * step if predicted > 0.01 else None)
    elif share >= 1.501 and 0.5 * slope * best - growth > 0.0101:  # grew by less than a quarter
        assert another == pytest.approx(best, rel=1e-9)
    elif 0.601 <= share <= 1.499 or 0.5 * slope * best - growth < 0.0099:
        assert another is None
    assert share <= 0.601 or another == ascent._another_length(step, predicted, growth, first=False)


def test_growth_beyond_the_prediction_has_no_top() -> None:
    assert ascent._top(4.0, 1.0, 2.0) == 2.0


@pytest.mark.parametrize("seed", [12, 25])
def test_kinks_are_not_crept_along(seed: int) -> None:
    """Where ‖∇f‖ jumps no step is short enough; six gradients per product went by before one was that led nowhere."""
    result = teleport(network_loss(torch.relu, 1e-3), network_start(seed))
    assert result.cost.gradients < 4.5 * result.cost.hvps
    assert result.gain > 5.0
