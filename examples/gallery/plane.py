"""Two functions of the plane.

On Booth's quadratic the teleport turns the gradient into an eigenvector of the Hessian, and the next gradient step of
length 1/λ lands on the minimiser. On Goldstein and Price's function it leads into another valley. Grey is the sub-level
set in which the teleport has to stay.
"""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

import levelport
from levelport.lab.level_sets import draw_level_sets, draw_path, mark, mark_minimisers, window_with
from levelport.problems.functions import function_named


def main() -> Figure:
    picture = Figure(figsize=(9, 4.2), layout="constrained")
    for axes, name in zip(picture.subplots(1, 2), ("booth", "goldstein-price"), strict=True):
        function = function_named(name)
        start = torch.tensor(function.start, dtype=torch.float64)
        result = levelport.teleport(function, start)
        gradient = torch.func.grad(function)(result.x)
        landed = result.x - gradient / result.curvature
        path, level = [start.tolist(), result.x.tolist(), landed.tolist()], result.value_start
        draw_level_sets(axes, function, window_with(function.window, path), minimum=function.minimum, level=level)
        draw_path(axes, path[:2], color="0.3", style="dotted", marker="", label="teleport")
        draw_path(axes, path[1:], color="tab:orange", style="solid", marker="o", label="gradient step 1/λ")
        mark(axes, path[0], color="black", marker="s", label="start")
        mark_minimisers(axes, function)
        axes.set_title(f"{name}: ‖∇f‖ {result.gradient_norm_start:.3g} → {result.gradient_norm:.4g}")
        axes.legend(loc="best", fontsize="small")
        print(f"{name}: {result.message}; f = {function(landed):.6g} after one step (minimum {function.minimum:g})")
    return picture
