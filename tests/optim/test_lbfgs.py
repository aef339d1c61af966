"""``method="lbfgs"``: against SciPy's L-BFGS-B, and together with teleports."""

from __future__ import annotations

import pytest
import torch
from tests.cases import labelled_data
from tests.functions import FUNCTIONS

from levelport import LinearObjective
from levelport.optim import LBFGS, Every, Never, minimize

scipy_optimize = pytest.importorskip("scipy.optimize")


@pytest.mark.parametrize("name", ["booth", "beale", "rosenbrock"])
def test_it_finds_the_minimum_that_scipy_finds(name: str) -> None:
    function, start = FUNCTIONS[name]
    x0 = torch.tensor(start, dtype=torch.float64)
    result = minimize(function, x0, "lbfgs", schedule=Never())
    assert result.success
    theirs = scipy_optimize.minimize(
        lambda x: float(function(torch.tensor(x))), x0.numpy(), method="L-BFGS-B", tol=1e-14
    )
    assert result.value <= theirs.fun + 1e-8


def test_teleports_combine_with_it() -> None:
    X, y = labelled_data(200, 20)
    f = LinearObjective.logistic(X, y, penalty=1e-4)
    plain = minimize(f, torch.zeros(20).double(), "lbfgs", schedule=Never())
    visited = minimize(f, torch.zeros(20).double(), "lbfgs", schedule=Every(5, start=5))
    assert plain.success
    assert visited.success
    assert plain.teleports == 0 < visited.teleports
    assert visited.value == pytest.approx(plain.value, abs=1e-12)


def test_first_step_is_along_the_gradient_by_the_size_recorded() -> None:
    f, x = LinearObjective.logistic(*labelled_data(50, 5), penalty=1e-2), torch.ones(5, dtype=torch.float64)
    step = LBFGS().advance(f, f.at(x), None, None)
    assert step.point is not None
    torch.testing.assert_close(step.point.x, x - step.size * f.at(x).gradient)


def test_memory_is_checked() -> None:
    with pytest.raises(ValueError, match="memory"):
        LBFGS(memory=0)
    assert [LBFGS().pairs(d, torch.float64) for d in (10, 10**6, 10**7)] == [400, 16, 3]
    assert LBFGS().pairs(10**6, torch.float32) == 33
    assert LBFGS(memory=7).pairs(10**7, torch.float64) == 7
