"""The metric of an optimizer that divides by second moments: m = √v̂ + ε, Adam's, in the order of the parameters.

A step of Adam is -lr m̂/(√v̂ + ε): a gradient step in the metric diag(√v̂ + ε), apart from the momentum. With amsgrad v is
the largest so far, and centred RMSprop divides by the root of the variance, v - ḡ². Before the first step nothing is
known, and the metric is the ordinary one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelport.objectives.metric import InMetric
from levelport.objectives.parameters import ParametersObjective

_BIASED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam)


def check_metric(metric: object, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
    """Raise where ``metric`` is no metric of the ``parameters``, or the optimizer has none of its own.

    At once: the first teleport may be hundreds of steps away.
    """
    if isinstance(metric, Tensor):
        InMetric(ParametersObjective(parameters, _nothing), metric)  # asks for size and sign
        return
    if metric is None:
        return
    if metric != "optimizer":
        raise ValueError(f"metric must be a tensor of weights, 'optimizer' or None, not {metric!r}.")
    if not isinstance(optimizer, (*_BIASED, torch.optim.RMSprop, torch.optim.Adagrad)):
        raise ValueError(
            f"metric='optimizer' needs an optimizer that divides by second moments, such as Adam; "
            f"{type(optimizer).__name__} does not. Pass a tensor of weights, or None."
        )


def _nothing() -> Tensor:
    """A placeholder loss that is never evaluated."""
    return torch.zeros(())


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
