"""The metric of a torch optimizer, or one that the user gives.

A step of Adam is -lr m̂/(√v̂ + ε): a gradient step in the metric diag(√v̂ + ε), apart from the momentum.
With amsgrad v is the largest so far, and centred RMSprop divides by the root of the variance, v - ḡ². Before the first
step nothing is known, and the metric is the ordinary one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from levelport.objective import Objective, Point
from levelport.objectives.metric import InMetric
from levelport.objectives.parameters import ParametersObjective
from levelport.optim.first_step import StabilityLimit, Taken
from levelport.optim.policy import TeleportPolicy

_DIVIDING = (
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
)
"""Optimizers with a metric of their own."""


@dataclass
class Metric:
    """The norm in which gradients are measured.

    Attributes:
        optimizer: whose parameters it weights.
        weights: of each parameter; None for what the optimizer itself divides by.
    """

    optimizer: torch.optim.Optimizer
    weights: dict[Tensor, Tensor] | None

    @classmethod
    def of(cls, metric: object, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> Metric:
        """Raise at once where ``metric`` is none: the first teleport may be hundreds of steps away."""
        if isinstance(metric, Tensor):
            InMetric(ParametersObjective(parameters, metric.sum), metric)  # asks for size and sign, evaluates nothing
            return cls(optimizer, dict(zip(parameters, metric.split([p.numel() for p in parameters]), strict=True)))
        if metric != "optimizer":
            raise ValueError(f"metric must be a tensor of weights, 'optimizer' or None, not {metric!r}.")
        if not isinstance(optimizer, _DIVIDING):
            raise ValueError(
                f"metric='optimizer' needs an optimizer that divides by second moments, such as Adam; "
                f"{type(optimizer).__name__} does not. Pass a tensor of weights, or None."
            )
        return cls(optimizer, None)

    def now(self, parameters: list[Tensor]) -> Tensor:
        """The weights of ``parameters`` as they stand, flat."""
        if self.weights is None:
            return optimizer_metric(self.optimizer, parameters)
        if any(p not in self.weights for p in parameters):
            raise ValueError(
                "metric has weights for the parameters that moved when the Teleporter was made; others have joined "
                "them since. Make a new one, with weights for all."
            )
        return torch.cat([self.weights[p] for p in parameters])

    def move(
        self, policy: TeleportPolicy[Any], objective: Objective, before: Point, parameters: list[Tensor], *, due: bool
    ) -> Taken:
        """The teleport and where its first step leads, in this metric."""
        weighted = InMetric(objective, self.now(parameters))
        around = weighted.around(before)
        taken = policy.move(weighted, around, StabilityLimit(), due=due)
        result = replace(taken.move.result, x=weighted.underneath(taken.move.point).x)
        end = before if taken.point is around else weighted.underneath(taken.point)
        return replace(taken, move=replace(taken.move, result=result), point=end)


def optimizer_metric(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> Tensor:
    """√v̂ + ε as a flat vector; ones where the optimizer has not stepped yet."""
    group_of = {p: group for group in optimizer.param_groups for p in group["params"]}
    parts = []
    for p in parameters:
        state, group = optimizer.state.get(p, {}), group_of[p]
        if "exp_avg_sq" in state:
            correction = 1.0 - group["betas"][1] ** float(state["step"])
            moments = state.get("max_exp_avg_sq", state["exp_avg_sq"]) / correction
        elif "square_avg" in state:
            moments = state["square_avg"]
            if "grad_avg" in state:
                moments = (moments - state["grad_avg"].square()).clamp_min(0.0)  # rounding may leave it below 0
        elif "sum" in state and float(state["step"]) > 0.0:  # Adagrad makes its state before the first step
            moments = state["sum"]
        else:
            parts.append(torch.ones(p.numel(), dtype=p.dtype, device=p.device))
            continue
        parts.append((moments.sqrt() + group["eps"]).detach().reshape(-1))
    # Where squares have overflowed the optimizer hardly moves, and a large weight says the same. NaNs come with
    # parameters that are NaN after the next step, where no teleport is made.
    return torch.cat(parts).nan_to_num(nan=1.0)
