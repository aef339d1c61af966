"""A transformer block.

A teleport needs second derivatives, which fused attention does not have; while it solves, attention runs on the path
that has them. Nothing else changes, and afterwards attention is as fast as before. Left: the gradient norm that two
solvers reach at the same loss, against what they have spent. Right: training the block without teleports and with the
default schedule, which teleports while it pays, at equal cost. One seed of one block: a picture, no proof.
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
        climbs.plot(costs, [row.gradient_norm for row in result.trace], marker=".", label=solver)
        climbs.plot(result.cost.gradient_equivalents, result.gradient_norm, "k*", ms=10)
        print(f"{solver}: ‖∇f‖ × {result.gain:.1f}, f {result.value_start:.4f} → {result.value:.4f}; {result.message}")
    climbs.set(xlabel="gradient equivalents", ylabel="‖∇f‖ of the iterates (star: the point returned)")
    climbs.legend()

    for name, schedule in (("SGD", levelport.Never()), ("SGD, teleports while they pay", None)):
        block = copy.deepcopy(start)
        optimizer = levelport.Teleported(torch.optim.SGD(block.parameters(), lr=0.1), schedule)
        bills: list[float] = []
        optimizer.register_teleport_hook(lambda result, bills=bills: bills.append(result.cost.gradient_equivalents))  # type: ignore[misc]
        spent: list[float] = []
        losses: list[float] = []
        while len(losses) + sum(bills) < BUDGET:
            spent.append(len(losses) + sum(bills))
            loss = optimizer.step(lambda block=block: nn.functional.mse_loss(block(tokens), target))  # type: ignore[misc]
            assert loss is not None
            losses.append(float(loss))
        curves.semilogy(spent, losses, label=name)
        print(f"{name}: loss {losses[-1]:.3f} after {BUDGET:g} gradient equivalents")
    curves.set(xlabel="gradient equivalents", ylabel="loss")
    curves.legend()
    return picture
