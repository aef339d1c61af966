"""Curved problems that nothing was chosen on: other seeds of the three curved kinds, admitted by a rule.

An interval presumes a minimizer, so a problem is admitted by what Newton's and Levenberg and Marquardt's methods find,
before any interval is computed. Its start is the lowest minimum found from the parameters that the data were simulated
from and from thirty points around them. There the Hessian, scaled to unit diagonal, must have no eigenvalue below 1e-6,
and a Newton step must lower f by at most a millionth of the rise.
"""

from __future__ import annotations

import hashlib
import warnings

import numpy as np
import torch
from torch import Tensor

from levelport.objectives import FunctionObjective
from levelport_lab.bench.intervals.likelihoods import Likelihood
from levelport_lab.bench.intervals.truth import hessian
from levelport_lab.problems.minimum import find_minimum

STARTS = 30
_SPREAD = 0.5  # of the starts, relative to the parameters
_LOWER = 1e-3  # by which a minimum must be lower to count
_LEAST = 1e-6
_DECREMENT = 1e-6


def lowest_minimum(problem: Likelihood) -> Tensor:
    """Return the lowest minimum found from :data:`STARTS` + 1 starts."""
    best = _newton(problem, problem.truth)
    seed = int.from_bytes(hashlib.sha256(problem.name.encode()).digest()[:4], "big")
    rng = torch.Generator().manual_seed(seed)
    for _ in range(STARTS):
        noise = torch.randn(len(problem.truth), generator=rng, dtype=problem.truth.dtype)
        x = _levenberg_marquardt(problem, problem.truth + _SPREAD * noise * problem.truth.abs().clamp_min(0.3))
        if float(problem.fun(x)) < float(problem.fun(best)) - _LOWER:
            best = min(_newton(problem, x), x, key=lambda y: float(problem.fun(y)))
    return best


def admitted(problem: Likelihood, x: Tensor, rise: float) -> bool:
    """Return True if ``x`` is a minimum by its derivatives."""
    H = hessian(problem.fun, x)
    leaf = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(problem.fun(leaf), leaf)
    scale = H.diagonal().abs().sqrt().clamp_min(1e-150)
    eigenvalues, V = torch.linalg.eigh(H / scale / scale[:, None])
    if not float(eigenvalues[0]) >= _LEAST:
        return False
    return 0.5 * float(((V.T @ (gradient / scale)).square() / eigenvalues).sum()) <= _DECREMENT * rise


def _newton(problem: Likelihood, x: Tensor) -> Tensor:
    return find_minimum(FunctionObjective(problem.fun, like=x), x).x


def _levenberg_marquardt(problem: Likelihood, x: Tensor) -> Tensor:
    """SciPy's MINPACK on the residuals; the start where it fails."""
    from scipy.optimize import least_squares

    residuals = problem.residuals
    assert residuals is not None

    def evaluate(z: np.ndarray) -> np.ndarray:
        values: np.ndarray = residuals(torch.tensor(z)).numpy()
        return np.nan_to_num(values, nan=1e10, posinf=1e10, neginf=-1e10)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.tensor(least_squares(evaluate, x.numpy(), method="lm", max_nfev=4000).x)
