"""Ends of intervals by dense profiles: slow, and independent of the solver under comparison.

The profile of entry i is p(t) = min f over all x with x_i = t. The end is where p crosses the level. Small problems
move t outwards in short steps and minimize over the other entries by damped Newton steps with the exact Hessian,
starting from the last solution extrapolated, so that bent valleys are followed; a million Wald half widths count as
infinite. Large ones, which are nearly quadratic, take secant steps on sqrt(p - min f) with SciPy's L-BFGS-B in between.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from levelport_lab.bench.intervals.likelihoods import Function

_DENSE = 200  # largest dimension with exact Hessians
_FAR = 1e6  # Wald half widths from which an end counts as infinite


def profile_end(fun: Function, x: Tensor, index: int, sign: float, rise: float) -> Tensor:
    """The end of the profile of entry ``index`` on the side ``sign``; the entry is ±inf where there is none."""
    follow = _follow_valley if len(x) <= _DENSE else _secants
    return follow(fun, x, index, sign, rise)


def hessian(fun: Function, x: Tensor) -> Tensor:
    """∇²f(x), written out."""
    result: Tensor = torch.autograd.functional.hessian(fun, x, vectorize=True)
    return result


def wald_step(fun: Function, x: Tensor, index: int, rise: float) -> Tensor:
    """The way from the minimizer to the upper end of the Wald interval: H⁻¹e_i sqrt(2 rise/(H⁻¹)_ii)."""
    column = torch.linalg.solve(hessian(fun, x), torch.eye(len(x), dtype=x.dtype)[index])
    return column * math.sqrt(2.0 * rise / float(column[index]))


def _follow_valley(fun: Function, x: Tensor, index: int, sign: float, rise: float) -> Tensor:
    base, others = float(fun(x)), torch.arange(len(x)) != index

    def minimized(w: Tensor) -> tuple[Tensor, float]:
        value, damping = float(fun(w)), 0.0
        for _ in range(200):
            leaf = w.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(fun(leaf), leaf)
            g, H = gradient[others], hessian(fun, w)[others][:, others]
            scale = H.diagonal().abs().sqrt().clamp_min(1e-150)
            eigenvalues, V = torch.linalg.eigh(H / scale / scale[:, None])
            step = V @ ((V.T @ (g / scale)) / (eigenvalues.abs().clamp_min(1e-12) + damping)) / scale
            trial = w.clone()
            trial[others] -= step
            after, predicted = float(fun(trial)), float(g @ step)
            if after <= value:
                done = predicted <= 1e-9 * rise and value - after <= 1e-12 * max(rise, abs(value))
                w, value, damping = trial, after, 0.1 * damping if damping > 1e-8 else 0.0
                if done:
                    break
            elif predicted <= 1e-10 * rise or damping > 1e12:
                break
            else:
                damping = max(10.0 * damping, 1e-6)
        return w, value

    def moved(w: Tensor, slope: Tensor, step: float) -> tuple[Tensor, float]:
        start = w + sign * step * slope
        start[index] = w[index] + sign * step
        return minimized(start)

    half = abs(float(wald_step(fun, x, index, rise)[index]))
    step = 0.1 * half
    w, slope, value = x, torch.zeros_like(x), base
    for _ in range(600):
        new, after = moved(w, slope, step)
        if not after <= base + rise:
            break
        climbed, slope = (after - value) / rise, (new - w) / (sign * step)
        w, value = new, after
        if abs(float(w[index] - x[index])) > _FAR * half:
            w[index] = sign * math.inf
            return w
        step *= 1.5 if climbed < 0.03 else 0.7 if climbed > 0.1 else 1.0
    while step > 1e-8 * abs(float(w[index] - x[index])):
        step *= 0.5
        new, after = moved(w, slope, step)
        if after <= base + rise:
            w = new
    return w


def _secants(fun: Function, x: Tensor, index: int, sign: float, rise: float) -> Tensor:
    from scipy.optimize import minimize

    base, others = float(fun(x)), torch.arange(len(x)) != index

    def profile(t: float, start: Tensor) -> tuple[Tensor, float]:
        w = start.clone()
        w[index] = t

        def evaluate(rest: np.ndarray) -> tuple[float, np.ndarray]:
            full = w.clone()
            full[others] = torch.tensor(rest)
            leaf = full.requires_grad_()
            value = fun(leaf)
            (gradient,) = torch.autograd.grad(value, leaf)
            return float(value.detach()), gradient[others].numpy()

        options = {"maxcor": 60, "maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-7}
        found = minimize(evaluate, w[others].numpy(), jac=True, method="L-BFGS-B", options=options)
        w[others] = torch.tensor(found.x)
        return w, float(found.fun)

    leaf = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(fun(leaf), leaf, create_graph=True)
    (row,) = torch.autograd.grad(gradient[index], leaf)
    distance, w = math.sqrt(2.0 * rise / float(row[index])), x
    for _ in range(12):
        w, value = profile(float(x[index]) + sign * distance, w)
        factor = math.sqrt(rise / (value - base))
        distance *= factor
        if abs(factor - 1.0) < 3e-6:
            break
        w = x + factor * (w - x)
    w[index] = float(x[index]) + sign * distance
    return w
