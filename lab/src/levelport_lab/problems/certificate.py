"""How far a point is from the minimum, with a proof.

**Strong convexity.** If ∇²f ≽ μI then f(x) - f* ≤ ‖∇f(x)‖²/(2μ). The penalty alone gives μ = 2 reg.

**Without a penalty** the logistic loss has no global μ, but its third derivative is controlled by its second,
|f'''[u,u,v]| ≤ R‖v‖ f''[u,u] with R = maxᵢ‖xᵢ‖ (Bach, "Self-concordant analysis for logistic regression", 2010).
Integrating twice, with H = ∇²f(x), t = ‖v‖_H, c = R/√λmin(H) and the Newton decrement δ = ‖∇f(x)‖_{H⁻¹},

    f(x + v) - f(x) ≥ -δt + (exp(-ct) + ct - 1)/c².

For a = cδ < 1 the right side is smallest at ct = -log(1-a), which proves that a minimizer exists and that

    f(x) - f* ≤ (a + (1-a) log(1-a))/c²,       close to δ²/2 when a is small.

**Rounding.** Both need f(x) and ∇f(x) themselves, not what float64 makes of them. They are evaluated once in
extended precision, with the usual bounds: a dot product of length d errs by at most γ_d Σ|xⱼwⱼ|, γ_d = du/(1-du),
u the unit roundoff. An error ε in all logits of a sample changes its loss by at most Σ|rₖ| ε + ε², r = ∂ℓ/∂z,
and its residual by at most ε, because the second derivatives of both losses are at most 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport.objectives.linear import LinearObjective, LogisticLoss, SoftmaxLoss
from levelport_lab.problems.minimum import DENSE_LIMIT, hessian_matrix

Extended = NDArray[np.longdouble]
_ROWS = 4096


@dataclass(frozen=True)
class Evaluation:
    """f(x) and ‖∇f(x)‖ with bounds on what rounding may have done to them."""

    value: float
    value_error: float
    gradient_norm: float
    gradient_error: float

    @property
    def gradient_bound(self) -> float:
        """No less than the true ‖∇f(x)‖."""
        return self.gradient_norm + self.gradient_error


def evaluate(objective: LinearObjective, x: Tensor) -> Evaluation:
    """f(x) and ‖∇f(x)‖ in extended precision, with error bounds."""
    unit = float(np.finfo(np.longdouble).eps) / 2
    n, d = objective.samples, objective.features
    W = x.numpy().astype(np.longdouble).reshape(d, objective.loss.outputs)
    loss = np.longdouble(0)
    loss_error = 0.0
    gradient = np.zeros_like(W)
    gradient_error = np.zeros(W.shape)
    for start in range(0, n, _ROWS):
        rows = slice(start, start + _ROWS)
        X = objective.X[rows].numpy().astype(np.longdouble)
        Z = X @ W
        Z_error = _gamma(d, unit) * np.asarray(abs(X) @ abs(W), dtype=float).max(axis=1, keepdims=True)
        losses, R = _loss_and_residual(objective, Z, rows)
        if isinstance(objective.loss, SoftmaxLoss):
            # log Σ exp z - z_y and p_y - 1 are differences: their errors do not shrink with the loss.
            largest = np.asarray(abs(Z), dtype=float).max(axis=1, keepdims=True)
            absolute = 4.0 * unit * (Z.shape[1] + 1.0 + largest)
            loss_error += float(absolute.sum())
            Z_error = Z_error + absolute
        loss += losses.sum()
        loss_error += float((Z_error * abs(R) + Z_error**2).sum() + (_gamma(n, unit) + 8 * unit) * losses.sum())
        gradient += X.T @ R
        R_error = Z_error + (_gamma(n, unit) + 8 * unit) * np.asarray(abs(R), dtype=float)
        gradient_error += np.asarray(abs(X), dtype=float).T @ R_error
    reg = np.longdouble(objective.penalty)
    penalty = reg * (W * W).sum()
    value = loss / n + penalty
    gradient = gradient / n + 2 * reg * W
    gradient_error = gradient_error / n + 8 * unit * np.asarray(abs(2 * reg * W) + abs(gradient), dtype=float)
    norm = np.sqrt((gradient * gradient).sum())
    norm_error = float(np.linalg.norm(gradient_error)) + _gamma(W.size + 4, unit) * float(norm)
    # The last term of each is the rounding of the result to float64.
    return Evaluation(
        value=float(value),
        value_error=loss_error / n + _gamma(W.size + 4, unit) * float(penalty) + float(abs(value - float(value))),
        gradient_norm=float(norm),
        gradient_error=norm_error + float(abs(norm - float(norm))),
    )


def _gamma(length: int, unit: float) -> float:
    return length * unit / (1.0 - length * unit)


def _loss_and_residual(objective: LinearObjective, Z: Extended, rows: slice) -> tuple[Extended, Extended]:
    """ℓ and ∂ℓ/∂z per sample."""
    if isinstance(objective.loss, LogisticLoss):
        y = objective.loss.y[rows].numpy().astype(np.longdouble)[:, None]
        margin = y * Z
        small = np.exp(-abs(margin))
        losses = np.log1p(small) + np.maximum(-margin, 0)
        return losses[:, 0], -y * np.where(margin > 0, small, np.longdouble(1)) / (1 + small)
    if isinstance(objective.loss, SoftmaxLoss):
        labels = objective.loss.y[rows].numpy()
        picked = np.arange(len(labels)), labels
        top = Z.max(axis=1, keepdims=True)
        weights = np.exp(Z - top)
        total = weights.sum(axis=1, keepdims=True)
        losses = np.log(total)[:, 0] + top[:, 0] - Z[picked]
        residual = weights / total
        residual[picked] -= 1
        return losses, residual
    raise TypeError(f"There is no certificate for {type(objective.loss).__name__}.")


def optimality_gap(objective: LinearObjective, x: Tensor, evaluation: Evaluation) -> float:
    """A proven bound on f(x) - f*; infinite where no argument applies."""
    bounds = [math.inf]
    if objective.penalty > 0:
        bounds.append(evaluation.gradient_bound**2 / (4.0 * objective.penalty))
    if objective.dimension <= DENSE_LIMIT and isinstance(objective.loss, LogisticLoss):
        smallest = _smallest_curvature(objective, x)
        if smallest > 0:
            bounds.append(_self_concordant_gap(objective, smallest, evaluation))
    return min(bounds)


def _smallest_curvature(objective: LinearObjective, x: Tensor) -> float:
    """No more than λmin(∇²f(x)): forming and decomposing it errs by a modest multiple of (n + d)·eps in norm."""
    eigenvalues = torch.linalg.eigvalsh(hessian_matrix(objective, x))
    slack = 10 * (objective.samples + objective.dimension) * torch.finfo(x.dtype).eps * float(eigenvalues[-1])
    return float(eigenvalues[0]) - slack


def _self_concordant_gap(objective: LinearObjective, smallest: float, evaluation: Evaluation) -> float:
    decrement = evaluation.gradient_bound / math.sqrt(smallest)
    c = float(torch.linalg.vector_norm(objective.X, dim=1).max()) / math.sqrt(smallest)
    a = c * decrement
    if a >= 1:
        return math.inf
    if a < 1e-4:  # a + (1-a)log(1-a) = a²/2 + a³/6 + ...: the closed form would cancel
        return decrement**2 * (0.5 + a)
    return (a + (1 - a) * math.log1p(-a)) / c**2
