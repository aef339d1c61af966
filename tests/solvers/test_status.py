"""The status is true of the point returned."""

from __future__ import annotations

import pytest
import torch
from problems_for_tests import Case, all_cases

from levelport import Auto, TeleportStatus, teleport


@pytest.mark.parametrize("level_set", [False, True])
def test_an_end_far_below_the_level_is_no_kkt_point(level_set: bool) -> None:
    """Σ exp(w): down the valley one coordinate is left, ∇f and ∇²f ∇f are parallel, but the level is far away.

    On the level e^a + e^b = s the norm sqrt(e^2a + e^2b) tends to s as one of them goes to -∞.
    """
    start = torch.tensor([0.4, -0.3], dtype=torch.float64)
    result = teleport(lambda w: w.exp().sum(), start, level_set=level_set)
    level = float(start.exp().sum())
    assert result.status is TeleportStatus.CONVERGED
    assert result.gradient_norm == pytest.approx(level, rel=1e-5)
    assert result.value == pytest.approx(level, rel=1e-8)
    assert result.alignment > 1 - 1e-11


@pytest.mark.parametrize("level_set", [False, True])
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_converged_means_aligned(case: Case, level_set: bool) -> None:
    for solver in (Auto(), Auto(memory=1)):
        result = teleport(case.fun, case.start, solver, level_set=level_set, max_hvps=200)
        if result.status is TeleportStatus.CONVERGED and result.curvature != 0.0:
            sine = result.kkt_residual * result.gradient_norm / abs(result.curvature)
            assert sine <= 2e-6
            assert level_set or result.curvature > 0.0
