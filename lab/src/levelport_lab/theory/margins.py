"""How far the margins x_iᵀw of a logistic problem move over {f ≤ f(w_0)}: bounds that are proved, each row for
itself.

Write d = w - w* for a point w of the sub-level set, δ_0 = f(w_0) - f*, and let a curvature of at least c_i be known
for sample i all over the set. Four bounds hold, and the least one counts.

*Strong convexity.* ‖d‖ ≤ sqrt(2δ_0/μ), so |x_iᵀd| ≤ ‖x_i‖ sqrt(2δ_0/μ).

*Self-concordance at w\\*.* With H* = ∇²f(w*), s = ‖d‖_{H*} and ϱ = max_i ‖x_i‖_{H*⁻¹} one has max_i |x_iᵀd| ≤ ϱs, and
the lower inequality of :mod:`levelport_lab.theory.stability` at w* reads δ_0 ≥ (e^{-ϱs} - 1 + ϱs)/ϱ². Hence ϱs ≤ t, the
root of e^{-t} - 1 + t = ϱ²δ_0, and |x_iᵀd| ≤ ‖x_i‖_{H*⁻¹} t/ϱ.

*Least curvature.* Bounds on the margins bound the curvatures φ″ from below, and with H_c = XᵀDX/n + 2 penalty, D =
diag(c), ½dᵀH_c d ≤ δ_0. Hence |x_iᵀd| ≤ ‖x_i‖_{H_c⁻¹} sqrt(2δ_0), which may be better than what we began with:
repeat.

*Duality.* max {aᵀw : f(w) ≤ ℓ} ≤ aᵀv - ν(f(v) - ℓ) + ‖a - ν∇f(v)‖²/(2νμ) for *every* v and ν > 0, because aᵀw - νf(w)
is νμ-strongly concave. The best ν for a given v is known, and Newton steps in v make the bound sharp; a point of the
set that reaches as far, but for a thousandth, shows that it is. It costs a Newton solve per row and is made only for
the longest rows, whose widths decide."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.numerics.newton import Minimum
from levelport.objectives.linear import LinearObjective, LogisticLoss
from levelport.vectors import all_finite
from levelport_lab.problems.minimum import weighted_gram

_BATCH = 32  # rows whose widths are solved for at once
_WORK = 3e8  # multiplications of one Newton round beyond which exact widths are not cheap any more
_NARROW = 4.0  # below this diameter the cheap bounds are good enough: e^D hardly changes
_ROUNDS = 150  # a far start needs some three per twenty units of its diameter
_SHARP = 1e-3  # a width is solved for once it is known to this relative accuracy


@dataclass(frozen=True)
class MarginBounds:
    """x_iᵀw lies in [x_iᵀw* - below_i, x_iᵀw* + above_i] and ‖w - w*‖ ≤ ``radius``, for every w with f(w) ≤ f(w_0).

    ``exact_rows`` counts the rows whose widths were solved for, and are at most a thousandth too large.
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


def margin_bounds(objective: LinearObjective, minimum: Minimum, initial_gap: float) -> MarginBounds:
    """The reach of {f ≤ f* + initial_gap}, proved to the accuracy of ``minimum``; infinite where nothing bounds it."""
    if not isinstance(objective.loss, LogisticLoss):
        raise ValueError("margin_bounds needs a logistic loss; use sampled_stability for other objectives.")
    X, mu = objective.X, 2.0 * objective.penalty
    lengths = torch.linalg.vector_norm(X, dim=1)
    radius = math.sqrt(2.0 * initial_gap / mu) if mu > 0.0 else math.inf
    half = lengths * radius if math.isfinite(radius) else torch.full_like(lengths, math.inf)
    H = weighted_gram(objective, objective.loss.curvature(X @ minimum.x))
    smallest = curvature_ends(H)[0]
    if smallest > 0.0 and bool(X.any()):
        whitened = _whitened_lengths(H, X)
        size = float(whitened.max())
        t = _root(size**2 * initial_gap)
        half = torch.minimum(half, whitened * (t / size))
        radius = min(radius, t / (size * math.sqrt(smallest)))
    if not all_finite(half):
        return MarginBounds(half, half, radius)
    reach = _narrowed(objective, minimum, initial_gap, MarginBounds(half, half, radius))
    if mu > 0.0 and reach.diameter > _NARROW:
        reach = _narrowed(objective, minimum, initial_gap, _with_exact_rows(objective, minimum, initial_gap, reach))
    return reach


def curvature_ends(H: Tensor) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of H; the smallest as 0 where rounding has made it.

    H and its eigenvalues carry errors of some units in the last place of ‖H‖, whatever the size of the smallest.
    """
    values = torch.linalg.eigvalsh(H)
    low, high = float(values[0]), float(values[-1])
    rounding = 8.0 * len(H) * torch.finfo(H.dtype).eps * max(abs(low), abs(high))
    return (0.0 if abs(low) <= rounding else low), high


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


def _narrowed(objective: LinearObjective, minimum: Minimum, gap: float, reach: MarginBounds) -> MarginBounds:
    """The least-curvature bound, repeated until it gains less than a thousandth."""
    centre = objective.X @ minimum.x
    for _ in range(20):
        H = weighted_gram(objective, reach.curvature_range(centre)[0])
        smallest = curvature_ends(H)[0]
        if not smallest > 0.0:
            break
        half = _whitened_lengths(H, objective.X) * (math.sqrt(2.0 * gap) * (1.0 + 1e-12))
        below, above = torch.minimum(reach.below, half), torch.minimum(reach.above, half)
        gained = float((below + above).sum()) < 0.999 * float((reach.below + reach.above).sum())
        reach = MarginBounds(below, above, min(reach.radius, math.sqrt(2.0 * gap / smallest)), reach.exact_rows)
        if not gained:
            break
    return reach


def _with_exact_rows(objective: LinearObjective, minimum: Minimum, gap: float, reach: MarginBounds) -> MarginBounds:
    """Solve for the widths of the longest rows, until the widest of them exceeds what is known of the others."""
    below, above = reach.below.clone(), reach.above.clone()
    widths = below + above
    order = torch.argsort(widths, descending=True)
    order = order[widths[order] > 0.0]  # a row of zeros has no width, and no direction to solve for
    rows_allowed = int(_WORK / max(1.0, 2.0 * objective.samples * objective.features**2))
    done, exact, widest = 0, 0, 0.0
    while done < min(len(order), rows_allowed):
        rows = order[done : done + min(_BATCH, rows_allowed - done)]
        if done and float(widths[rows[0]]) <= widest:
            break
        support, sharp = _support(objective, minimum, gap, torch.cat([-objective.X[rows], objective.X[rows]]).T)
        below[rows] = torch.minimum(below[rows], support[: len(rows)])
        above[rows] = torch.minimum(above[rows], support[len(rows) :])
        done += len(rows)
        exact += int((sharp[: len(rows)] & sharp[len(rows) :]).sum())
        widest = max(widest, float((below[rows] + above[rows]).max()))
    return MarginBounds(below, above, reach.radius, exact)


def _support(objective: LinearObjective, minimum: Minimum, gap: float, A: Tensor) -> tuple[Tensor, Tensor]:
    """Upper bounds on max {aᵀ(w - w*) : f(w) ≤ f* + gap}, one per column a ≠ 0 of ``A``, and which are sharp.

    With g = ∇f(v) and the slack s = ℓ - f(v) the best ν of the duality above is ‖a‖/sqrt(‖g‖² + 2μs), and the bound

        aᵀ(v - w*) + (‖a‖ sqrt(‖g‖² + 2μs) - aᵀg)/μ.

    From below, w* + t(v - w*) with t = min(1, gap/(f(v) - f*)) lies in the set, f being convex. v moves to the
    maximizer of aᵀw over the set of the quadratic model at v, v + H⁻¹(a/ν - g) with ν² = aᵀH⁻¹a/(2s + gᵀH⁻¹g), or to
    the model's minimum where that set is empty. Of a step that moves a margin by D the share log(1 + D)/D is taken:
    over more, a self-concordant f may be quite unlike its model.
    """
    assert isinstance(objective.loss, LogisticLoss)
    X, y, A, centre = (part.double() for part in (objective.X, objective.loss.y[:, None], A, minimum.x[:, None]))
    n, d, mu, level = objective.samples, objective.features, 2.0 * objective.penalty, minimum.value + gap
    squares = (X[:, :, None] * X[:, None, :]).reshape(n, d * d)
    ridge = mu * torch.eye(d, dtype=X.dtype, device=X.device)
    lengths = torch.linalg.vector_norm(A, dim=0)
    upper, lower = torch.full_like(lengths, math.inf), torch.zeros_like(lengths)
    open_ = torch.arange(len(lengths), device=X.device)  # columns that are not sharp yet
    V = centre.expand_as(A)
    for _ in range(_ROUNDS):
        a, Z = A[:, open_], X @ V
        values = -F.logsigmoid(y * Z).mean(dim=0) + objective.penalty * (V * V).sum(dim=0)
        G = X.T @ (-y * torch.sigmoid(-y * Z)) / n + mu * V
        slack, way = level - values, _dots(a, V - centre)
        ball = (_dots(G, G) + 2.0 * mu * slack).clamp(min=0.0).sqrt() * lengths[open_]
        # What cancels between the two terms leaves some units in the last place of either.
        bound = way + (ball - _dots(a, G) + 1e-15 * ball) / mu
        upper[open_] = torch.minimum(upper[open_], bound)
        lower[open_] = torch.maximum(lower[open_], way * gap / (values - minimum.value).clamp(min=gap))
        keep = upper[open_] > (1.0 + _SHARP) * lower[open_]
        open_ = open_[keep]
        if not len(open_):
            break
        a, V, Z, G, slack = a[:, keep], V[:, keep], Z[:, keep], G[:, keep], slack[keep]
        hessians = (_second_derivative(Z).T @ squares).reshape(-1, d, d) / n + ridge
        solved = torch.linalg.solve(hessians, torch.stack([a.T, G.T], dim=-1))
        outward, inward = solved[..., 0].T, -solved[..., 1].T
        room = (2.0 * slack - _dots(G, inward)).clamp(min=0.0)
        step = outward * (room / _dots(a, outward)).sqrt() + inward
        moved = (X @ step).abs().max(dim=0).values.clamp(min=1e-12)
        V = V + torch.log1p(moved) / moved * step
    rounded = upper * (1.0 + max(1e-9, 2.0 * torch.finfo(objective.dtype).eps))
    return rounded.to(objective.dtype), upper <= (1.0 + _SHARP) * lower


def _dots(A: Tensor, B: Tensor) -> Tensor:
    """aᵀb for every pair of columns."""
    return (A * B).sum(dim=0)
