"""A transformer block.

A teleport needs second derivatives, which fused attention does not have; while it solves, attention runs on the path
that has them. Nothing else changes, and afterwards attention is as fast as before. Drawn is the gradient norm that the
solver has reached at the same loss, against what it has spent.
"""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from torch import nn

import levelport


def main() -> Figure:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True)
    tokens, target = torch.randn(8, 6, 16), torch.randn(8, 6, 16)
    objective = levelport.ModuleObjective(block, nn.functional.mse_loss, tokens, target)
    picture = Figure(figsize=(6.5, 4), layout="constrained")
    axes = picture.subplots()
    for solver in ("auto", "sqp"):
        result = levelport.teleport(objective, objective.initial_point(), solver, max_hvps=30)
        costs = [row.cost.gradient_equivalents for row in result.trace]
        best = [row.gradient_norm for row in result.trace]
        axes.plot(costs, best, marker=".", label=solver)
        axes.plot(result.cost.gradient_equivalents, result.gradient_norm, "k*", ms=10)
        print(f"{solver}: ‖∇f‖ × {result.gain:.1f}, f {result.value_start:.4f} → {result.value:.4f}; {result.message}")
    axes.set(xlabel="gradient equivalents", ylabel="‖∇f‖ of the iterates (star: the point returned)")
    axes.legend()
    return picture
