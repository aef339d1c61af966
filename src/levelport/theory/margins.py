"""How far the margins x_iᵀw of a logistic problem move over {f ≤ f(w_0)}: bounds that are proved, each row for
itself.

Write d = w - w* for a point w of the sub-level set, δ_0 = f(w_0) - f*, and let a curvature of at least c_i be known
for sample i all over the set. Four bounds hold, and the least one counts.

*Strong convexity.* ‖d‖ ≤ sqrt(2δ_0/μ), so |x_iᵀd| ≤ ‖x_i‖ sqrt(2δ_0/μ).

*Self-concordance at w\\*.* With H* = ∇²f(w*), s = ‖d‖_{H*} and ϱ = max_i ‖x_i‖_{H*⁻¹} one has max_i |x_iᵀd| ≤ ϱs, and
the lower inequality of :mod:`levelport.theory.stability` at w* reads δ_0 ≥ (e^{-ϱs} - 1 + ϱs)/ϱ². Hence ϱs ≤ t, the
root of e^{-t} - 1 + t = ϱ²δ_0, and |x_iᵀd| ≤ ‖x_i‖_{H*⁻¹} t/ϱ.

*Least curvature.* Bounds on the margins bound the curvatures φ″ from below, and with H_c = XᵀDX/n + 2 penalty, D =
diag(c), ½dᵀH_c d ≤ δ_0. Hence |x_iᵀd| ≤ ‖x_i‖_{H_c⁻¹} sqrt(2δ_0), which may be better than what we began with:
repeat.

*Duality.* max {aᵀw : f(w) ≤ ℓ} ≤ aᵀv - ν(f(v) - ℓ) + ‖a - ν∇f(v)‖²/(2νμ) for *every* v and ν > 0, because aᵀw - νf(w)
is νμ-strongly concave. Newton steps in v and ν make it sharp; it costs a Newton solve per row and is made only for
the longest rows, whose widths decide."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.numerics.curvature import weighted_gram
from levelport.numerics.newton import Minimum
from levelport.objective import all_finite
from levelport.objectives.linear import LinearObjective, LogisticLoss

_BATCH = 32  # rows whose widths are solved for at once
_WORK = 3e8  # multiplications of one Newton round beyond which exact widths are not cheap any more
_NARROW = 4.0  # below this diameter the cheap bounds are good enough: e^D hardly changes
_ROUNDS = 60


@dataclass(frozen=True)
class MarginReach:
    """x_iᵀw lies in [x_iᵀw* - below_i, x_iᵀw* + above_i] and ‖w - w*‖ ≤ ``radius``, for every w with f(w) ≤ f(w_0).

    ``exact_rows`` counts the rows whose widths were solved for.
    """

    below: Tensor
    above: Tensor
    radius: float
    exact_rows: int = 0

    @property
    def diameter(self) -> float:
        """No less than max_i |x_iᵀ(v - w)| over two points of the set."""
        return float((self.below + self.above).max())

    def curvature_range(self, centre: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the largest φ″ = σ(1 - σ) that each sample can have; ``centre`` holds the margins of w*."""
        low, high = centre - self.below, centre + self.above
        farthest = torch.maximum(low.abs(), high.abs())
        nearest = torch.where((low <= 0.0) & (high >= 0.0), 0.0, torch.minimum(low.abs(), high.abs()))
        return _second_derivative(farthest), _second_derivative(nearest)


def margin_reach(objective: LinearObjective, minimum: Minimum, initial_gap: float) -> MarginReach:
    """The reach of {f ≤ f* + initial_gap}, proved to the accuracy of ``minimum``; infinite where nothing bounds it."""
    if not isinstance(objective.loss, LogisticLoss):
        raise ValueError("margin_reach needs a logistic loss; use sampled_stability for other objectives.")
    X, mu = objective.X, 2.0 * objective.penalty
    lengths = torch.linalg.vector_norm(X, dim=1)
    radius = math.sqrt(2.0 * initial_gap / mu) if mu > 0.0 else math.inf
    half = lengths * radius if math.isfinite(radius) else torch.full_like(lengths, math.inf)
    H = weighted_gram(objective, objective.loss.curvature(X @ minimum.x))
    eigenvalues = torch.linalg.eigvalsh(H)
    if float(eigenvalues[0]) > 1e-14 * float(eigenvalues[-1]):
        whitened = _whitened_lengths(H, X)
        size = float(whitened.max())
        t = _root(size**2 * initial_gap)
        half = torch.minimum(half, whitened * (t / size))
        radius = min(radius, t / (size * math.sqrt(float(eigenvalues[0]))))
    if not all_finite(half):
        return MarginReach(half, half, radius)
    reach = _narrowed(objective, minimum, initial_gap, MarginReach(half, half, radius))
    if mu > 0.0 and reach.diameter > _NARROW:
        reach = _narrowed(objective, minimum, initial_gap, _with_exact_rows(objective, minimum, initial_gap, reach))
    return reach


def _second_derivative(z: Tensor) -> Tensor:
    return torch.sigmoid(z) * torch.sigmoid(-z)


def _whitened_lengths(H: Tensor, X: Tensor) -> Tensor:
    """‖x_i‖_{H⁻¹} for every row."""
    return torch.linalg.vector_norm(torch.linalg.solve_triangular(torch.linalg.cholesky(H), X.T, upper=False), dim=0)


def _root(level: float) -> float:
    """The t ≥ 0 with e^{-t} - 1 + t = level, rounded up."""
    low, high = 0.0, 1.0 + level + math.sqrt(2.0 * level) * 2.0
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.expm1(-middle) + middle < level else (low, middle)
    return high


def _narrowed(objective: LinearObjective, minimum: Minimum, gap: float, reach: MarginReach) -> MarginReach:
    """The least-curvature bound, repeated until it gains less than a thousandth."""
    centre = objective.X @ minimum.x
    for _ in range(20):
        H = weighted_gram(objective, reach.curvature_range(centre)[0])
        smallest, largest = torch.linalg.eigvalsh(H)[[0, -1]].tolist()
        if not smallest > 1e-14 * largest:
            break
        half = _whitened_lengths(H, objective.X) * (math.sqrt(2.0 * gap) * (1.0 + 1e-12))
        below, above = torch.minimum(reach.below, half), torch.minimum(reach.above, half)
        gained = float((below + above).sum()) < 0.999 * float((reach.below + reach.above).sum())
        reach = MarginReach(below, above, min(reach.radius, math.sqrt(2.0 * gap / smallest)), reach.exact_rows)
        if not gained:
            break
    return reach


def _with_exact_rows(objective: LinearObjective, minimum: Minimum, gap: float, reach: MarginReach) -> MarginReach:
    """Solve for the widths of the longest rows, until the widest of them exceeds what is known of the others."""
    below, above = reach.below.clone(), reach.above.clone()
    order = torch.argsort(below + above, descending=True)
    rows_allowed = int(_WORK / max(1.0, 2.0 * objective.samples * objective.features**2))
    done, widest = 0, 0.0
    while done < min(len(order), rows_allowed):
        rows = order[done : done + min(_BATCH, rows_allowed - done)]
        if done and float(below[rows[0]] + above[rows[0]]) <= widest:
            break
        directions = torch.cat([-objective.X[rows], objective.X[rows]]).T
        support = _support(objective, minimum, gap, directions) * (1.0 + 1e-9)
        below[rows] = torch.minimum(below[rows], support[: len(rows)])
        above[rows] = torch.minimum(above[rows], support[len(rows) :])
        done += len(rows)
        widest = max(widest, float((below[rows] + above[rows]).max()))
    return MarginReach(below, above, reach.radius, done)


def _support(objective: LinearObjective, minimum: Minimum, gap: float, A: Tensor) -> Tensor:
    """Upper bounds on max {aᵀ(w - w*) : f(w) ≤ f* + gap}, one per column a of ``A``, by the duality above.

    The step log(1 + D)/D along a Newton direction that moves no margin by more than D lowers a self-concordant f for
    certain; ν follows Newton's step in log ν for the dual function, whose slope is ν(ℓ - f) and whose curvature is
    ν(ℓ - f + ‖∇f‖²_{H⁻¹}).
    """
    assert isinstance(objective.loss, LogisticLoss)
    X, y, n, mu = objective.X, objective.loss.y[:, None], objective.samples, 2.0 * objective.penalty
    d, level = objective.features, minimum.value + gap
    squares = (X[:, :, None] * X[:, None, :]).reshape(n, d * d)
    ridge = mu * torch.eye(d, dtype=X.dtype, device=X.device)
    H = weighted_gram(objective, objective.loss.curvature(X @ minimum.x))
    nu = (A * torch.linalg.solve(H, A)).sum(dim=0).sqrt() / math.sqrt(2.0 * gap)
    V = minimum.x[:, None].expand_as(A)
    best = torch.full_like(nu, math.inf)
    for round_ in range(_ROUNDS):
        Z = X @ V
        values = -F.logsigmoid(y * Z).mean(dim=0) + objective.penalty * (V * V).sum(dim=0)
        G = X.T @ (-y * torch.sigmoid(-y * Z)) / n + mu * V
        slack = level - values
        residual = A - nu * G
        bound = (A * (V - minimum.x[:, None])).sum(dim=0) + nu * slack
        best = torch.minimum(best, bound + (residual * residual).sum(dim=0) / (2.0 * nu * mu))
        settled = float((nu * slack).abs().max()) < 1e-3 * float(best.min())
        if settled and float((residual * residual).sum(dim=0).max()) < 1e-3 * mu:
            break
        hessians = (_second_derivative(Z).T @ squares).reshape(-1, d, d) / n + ridge
        if round_ % 2:
            decrement = (G * torch.linalg.solve(hessians, G.T[..., None])[..., 0].T).sum(dim=0)
            curvature = torch.maximum(slack + decrement, 1e-3 * decrement)
            nu = nu * torch.exp(-(slack / curvature).clamp(-1.0, 1.0))
        step = torch.linalg.solve(hessians, (A / nu - G).T[..., None])[..., 0].T
        moved = (X @ step).abs().max(dim=0).values.clamp(min=1e-12)
        V = V + torch.log1p(moved) / moved * step
    return best
