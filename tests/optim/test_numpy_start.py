"""NumPy starts and callables, results with SciPy's names, and SciPy's own door."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from scipy.optimize import rosen, rosen_der

from levelport import ObjectiveError, minimize
from levelport.integrations.scipy import scipy_method

X0 = np.array([-1.2, 1.0, 0.7])


def together(x: Any) -> tuple[float, Any]:
    return rosen(x), rosen_der(x)


@pytest.mark.parametrize(("fun", "jac"), [(together, True), (rosen, rosen_der), (rosen, "3-point"), (rosen, None)])
def test_minimize_takes_numpy(fun: Any, jac: Any) -> None:
    start = X0.copy()
    result = minimize(fun, start, jac=jac, gtol=1e-6)
    assert isinstance(result.x, np.ndarray)
    assert result.success
    assert np.abs(result.x - 1.0).max() < 1e-3
    assert (start == X0).all()
    assert result.fun == rosen(result.x)
    assert isinstance(result.jac, np.ndarray)
    np.testing.assert_allclose(result.jac, rosen_der(result.x), atol=1e-4)
    assert result.nfev > result.nit > 0
    assert (result.njev > 0) == (jac is True or callable(jac))


def test_numpy_and_torch_take_the_same_path() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()

    ours, theirs = minimize(together, X0, jac=True), minimize(f, torch.tensor(X0))
    assert abs(ours.nit - theirs.nit) <= 3
    np.testing.assert_allclose(ours.x, theirs.x.numpy(), atol=1e-6)


def test_lists_of_numbers_are_vectors() -> None:
    result = minimize(together, [-1.2, 1.0], jac=True)  # type: ignore[type-var]
    assert result.success
    assert result.x.shape == (2,)  # type: ignore[attr-defined]


def test_jac_is_refused_for_tensors() -> None:
    with pytest.raises(ValueError, match="jac is for NumPy starts"):
        minimize(lambda x: x.square().sum(), torch.ones(2), jac=True)
    with pytest.raises(ObjectiveError, match="vector"):
        minimize(together, np.ones((2, 2)), jac=True)


@pytest.mark.parametrize("fun", [together, rosen])
def test_scipy_runs_the_default(fun: Any) -> None:
    jac = True if fun is together else None
    result = scipy.optimize.minimize(fun, X0, jac=jac, method=scipy_method)
    theirs = scipy.optimize.minimize(fun, X0, jac=jac, method="L-BFGS-B")
    assert result.success
    assert theirs.success
    np.testing.assert_allclose(result.x, 1.0, atol=1e-4)
    assert {"x", "fun", "jac", "nit", "nfev", "njev", "success", "status", "message"} <= set(result)
    assert result.nfev <= 2 * theirs.nfev
