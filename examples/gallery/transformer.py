"""A transformer block.

A teleport needs second derivatives, which fused attention does not have. During a teleport levelport switches
attention to the implementation that has them, and back afterwards. Left: the gradient norm that two solvers reach at
the same loss, against their cost. Right: training the block with SGD, alone and with the default schedule, at equal
cost. This is one seed of one block.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from matplotlib.figure import Figure
from torch import nn

import levelport
from levelport.solvers import solver_named

BUDGET = 150.0  # gradient equivalents


def main() -> Figure:
    torch.manual_seed(0)
    start = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True)
    tokens, target = torch.randn(8, 6, 16), torch.randn(8, 6, 16)
    objective = levelport.ModuleObjective(start, nn.functional.mse_loss, tokens, target)
    picture = Figure(figsize=(10, 4), layout="constrained")
    climbs, curves = picture.subplots(1, 2)
    for solver in ("auto", "sqp"):
        result = levelport.teleport(objective, objective.initial_point(), replace(solver_named(solver), max_hvps=30))
        costs = [row.cost.gradient_equivalents for row in result.trace]
        climbs.semilogy(costs, [row.gradient_norm for row in result.trace], marker=".", label=solver)
        climbs.plot(result.cost.gradient_equivalents, result.gradient_norm, "k*", ms=10)
        print(f"{solver}: ‖∇f‖ × {result.gain:.1f}, f {result.value_start:.4f} → {result.value:.4f}; {result.message}")
    climbs.set(xlabel="gradient equivalents", ylabel="‖∇f‖ (star: the point returned)")
    climbs.legend()

    for name, schedule in (("SGD", levelport.Never()), ("SGD, default schedule", None)):
        block = copy.deepcopy(start)
        optimizer = levelport.Teleported(torch.optim.SGD(block.parameters(), lr=0.1), schedule)
        teleports: list[float] = []
        optimizer.register_teleport_hook(
            lambda result, teleports=teleports: teleports.append(result.cost.gradient_equivalents)  # type: ignore[misc]
        )
        spent: list[float] = []
        losses: list[float] = []
        while len(losses) + sum(teleports) < BUDGET:
            spent.append(len(losses) + sum(teleports))
            loss = optimizer.step(lambda block=block: nn.functional.mse_loss(block(tokens), target))  # type: ignore[misc]
            assert loss is not None
            losses.append(float(loss))
        curves.semilogy(spent, losses, label=name)
        print(f"{name}: loss {losses[-1]:.3f} after {BUDGET:g} gradient equivalents")
    curves.set(xlabel="gradient equivalents", ylabel="loss")
    curves.legend()
    return picture
