"""``--roundings`` disturbs derivatives in their last bits, or the gate would test nothing."""

from __future__ import annotations

import pytest
import torch

from levelport.objectives import FunctionObjective


def gradient_is_disturbed() -> bool:
    """Of Σ x³, whose gradient and product are right in all but their last bits in any case."""
    x = torch.linspace(-1.0, 1.0, 101, dtype=torch.float64)
    point = FunctionObjective(lambda w: (w**3).sum(), x).at(x)
    gradient, product = point.gradient, point.hvp(torch.ones_like(x))
    torch.testing.assert_close(gradient, 3.0 * x**2, rtol=1e-14, atol=0.0)
    torch.testing.assert_close(product, 6.0 * x, rtol=1e-14, atol=0.0)
    untouched = FunctionObjective(lambda w: (w**3).sum(), x).at(x)._evaluate_gradient()[1]
    return not torch.equal(gradient, untouched)


def test_roundings_disturb_last_bits_only(request: pytest.FixtureRequest) -> None:
    assert gradient_is_disturbed() is (request.config.getoption("--roundings") is not None)


@pytest.mark.bits
def test_comparisons_of_bits_are_not_disturbed() -> None:
    assert not gradient_is_disturbed()
