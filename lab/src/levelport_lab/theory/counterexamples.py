"""Functions on which teleporting fails, or does as little as it can: the examples behind the negative results.

From Mishkin, Bietti and Gower, appendices A and B. All are plain differentiable functions of a tensor, ready for
:func:`levelport.teleport`. The two examples made of the second-order Huber function are test functions with names:
:func:`levelport_lab.problems.functions.second_order_huber` and :func:`levelport_lab.problems.functions.flat_huber`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from levelport.objectives.module import ModuleObjective


@dataclass(frozen=True)
class FarTeleport:
    """A convex 1-smooth function of ℝ² whose teleport lands at least R/4 from w*, however near w was.

        f(x, y) = g₁(x) + g_ε(y) + ½(|y| - α)₊²,     g_δ(t) = t²/2 for |t| ≤ δ, δ(|t| - δ/2) otherwise,

    from w = (x, y) with x > 1, ε ≤ y < α and x + εy > 1 + αε. The minimizer is 0, and

        ‖w⁺‖ ≥ α,     R ≤ x + εy + α + sqrt(2x + 2εy) < 4α   for α ≥ 2 and x + εy ≤ 3/2.

    What was mended is the proof. The text's last term is ½(y - α)² for y ≥ α only (``one_sided=True``), and its
    bound on R looks at y ≥ 0 only. Downwards that f grows with slope ε, so its sub-level set reaches to -(y + (x -
    ½)/ε), and in the limit ε → 0 that the proof takes, ‖w⁺‖/R → 0. For a suitable ε the published function proves
    the proposition all the same: α = 100, ε = 0.0049 has ‖w⁺‖/R = 0.49. With the even term above, every small ε
    does.

    With w near (1, ε) the distance to w* grows by a factor of about α in one teleport: there is no bound on it,
    which is why the rates carry R.
    """

    alpha: float
    epsilon: float
    one_sided: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon < self.alpha:
            raise ValueError(f"epsilon must lie between 0 and alpha = {self.alpha}, not {self.epsilon}.")

    def __call__(self, w: Tensor) -> Tensor:
        x, y = w
        height = y if self.one_sided else y.abs()
        return _huber(x, 1.0) + _huber(y, self.epsilon) + 0.5 * torch.clamp(height - self.alpha, min=0.0) ** 2

    def start(self, height: float | None = None) -> Tensor:
        """A point that satisfies the conditions: y = ``height`` (ε by default) and the smallest round x."""
        y = self.epsilon if height is None else height
        if not self.epsilon <= y < self.alpha:
            raise ValueError(f"height must lie in [epsilon, alpha), not {y}.")
        return torch.tensor([1.1 + self.epsilon * (self.alpha - y), y], dtype=torch.float64)


def _huber(t: Tensor, delta: float) -> Tensor:
    return torch.where(t.abs() <= delta, 0.5 * t**2, delta * (t.abs() - 0.5 * delta))


class TwoLayerRelu(nn.Module):
    """x ↦ W₂ relu(W₁ x) without biases, a positively homogeneous network."""

    def __init__(self, first: Tensor, second: Tensor) -> None:
        super().__init__()
        self.first = nn.Parameter(first.clone())
        self.second = nn.Parameter(second.clone())

    def forward(self, x: Tensor) -> Tensor:
        """The prediction, one number per row of x."""
        return torch.relu(x @ self.first.T) @ self.second


def relu_objective(*, penalty: float = 0.0, seed: int = 0) -> ModuleObjective:
    """Least squares of a small ReLU network: without penalty its teleportation problem has no solution.

    Scaling the layers by 1/a and a keeps f and multiplies the gradient of the first layer by a, that of the second
    by 1/a. So the gradient norm grows without bound along the level set, towards either end at which the gradient
    of that layer does not vanish: the text tacitly takes ∂g/∂v ≠ 0 and an active unit. With ``penalty`` > 0 the
    function is coercive and the problem has a solution again.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    module = TwoLayerRelu(normal(3, 2), normal(3))
    return ModuleObjective(module, nn.MSELoss(), normal(8, 2), normal(8), penalty=penalty)
