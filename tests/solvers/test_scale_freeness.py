"""Units do not matter: f → c f and x → x/s change no decision of the default solver."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.cases import labelled_data, network_loss, network_start
from tests.functions import goldstein_price, himmelblau
from torch import Tensor

from levelport import TeleportResult, teleport
from levelport.solvers import Auto

Function = Callable[[Tensor], Tensor]


def logistic(w: Tensor) -> Tensor:
    X, y = labelled_data()
    return F.softplus(-y * (X @ w)).mean() + 1e-3 * w.square().sum()


def quadratic(w: Tensor) -> Tensor:
    return 0.5 * (torch.logspace(0, -4, 12, dtype=w.dtype) * (w - 1).square()).sum()


PROBLEMS: dict[str, tuple[Function, Tensor]] = {
    "quadratic": (quadratic, torch.linspace(-2, 2, 12, dtype=torch.float64)),
    "logistic": (logistic, torch.linspace(-0.5, 0.5, 8, dtype=torch.float64)),
    "softplus network": (network_loss(F.softplus, 1e-2), network_start()),
    "ReLU network": (network_loss(torch.relu, 1e-2), network_start()),
    "himmelblau": (himmelblau, torch.tensor([0.5, -1.0], dtype=torch.float64)),
    "goldstein-price": (goldstein_price, torch.tensor([0.0, 0.0], dtype=torch.float64)),
}


def in_other_units(fun: Function, start: Tensor, c: float, s: float, **options: float) -> TeleportResult:
    """Teleport g(z) = c f(s z) from z = start/s."""
    return teleport(lambda z: c * fun(s * z), start / s, Auto(max_hvps=40), **options)  # type: ignore[arg-type]


@pytest.mark.bits
@pytest.mark.parametrize("exponents", [(20, 0), (-20, 0), (0, 20), (0, -20), (20, 20), (-20, 20), (-60, 40)])
@pytest.mark.parametrize("name", PROBLEMS)
def test_powers_of_two_change_nothing(name: str, exponents: tuple[int, int]) -> None:
    """Multiplying by a power of two rounds nothing, so the very same path must be taken."""
    fun, start = PROBLEMS[name]
    c, s = 2.0 ** exponents[0], 2.0 ** exponents[1]
    plain, scaled = in_other_units(fun, start, 1.0, 1.0), in_other_units(fun, start, c, s)
    assert scaled.status is plain.status
    assert len(scaled.trace) == len(plain.trace)
    assert (scaled.cost.values, scaled.cost.gradients, scaled.cost.hvps) == (
        plain.cost.values,
        plain.cost.gradients,
        plain.cost.hvps,
    )
    assert isinstance(scaled.x, Tensor)
    assert isinstance(plain.x, Tensor)
    assert scaled.gain == pytest.approx(plain.gain, rel=1e-9)
    assert torch.allclose(s * scaled.x, plain.x, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("s", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("c", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", ["quadratic", "logistic", "softplus network", "himmelblau"])
def test_powers_of_ten_change_rounding_only(name: str, c: float, s: float) -> None:
    fun, start = PROBLEMS[name]
    plain, scaled = in_other_units(fun, start, 1.0, 1.0), in_other_units(fun, start, c, s)
    assert scaled.status is plain.status
    # At the end roundings decide on which side of the level a point lies, and so whether it has to land.
    assert abs(len(scaled.trace) - len(plain.trace)) <= 1
    assert abs(scaled.cost.hvps - plain.cost.hvps) <= 1
    assert scaled.gain == pytest.approx(plain.gain, rel=1e-6)
    assert scaled.gradient_norm == pytest.approx(c * s * plain.gradient_norm, rel=1e-6)
    assert scaled.alignment == pytest.approx(plain.alignment, abs=1e-6)
    assert scaled.curvature == pytest.approx(c * s * s * plain.curvature, rel=1e-3)
