"""Two functions of the plane.

Gradient descent with a line search, alone and after one teleport at the start. A teleport has to stay in the grey
sub-level set. On Booth's quadratic it makes the gradient an eigenvector of the Hessian, and the next gradient step ends
at the minimizer. On Goldstein and Price's function both runs end in the same local minimum, and the teleport only adds
cost. Below, the same runs against cost; the flat piece is the cost of the teleport.
"""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import levelport
from levelport.optim import Armijo
from levelport_lab.level_sets import draw_level_sets, draw_path, mark, mark_minimizers
from levelport_lab.problems.functions import function_named

WINDOW = {"booth": (-8.0, 10.0, -6.0, 12.0), "goldstein-price": (-2.0, 2.0, -3.0, 1.5)}
RUNS = {"alone": (levelport.Never(), "tab:blue", "s"), "teleported once": (levelport.At(0), "tab:orange", "o")}


def draw(name: str, plane: Axes, curves: Axes) -> None:
    """One function: the paths in the plane, and f - f* against cost."""
    function = function_named(name)
    start = torch.tensor(function.start, dtype=torch.float64)
    paths: dict[str, list[list[float]]] = {}
    for label, (schedule, colour, marker) in RUNS.items():
        path = paths[label] = []
        result = levelport.minimize(
            function, start, Armijo(), schedule=schedule, solver=levelport.Auto(tol=1e-10), max_cost=200,
            callback=lambda row, point, path=path: path.append(point.x.tolist()),  # type: ignore[misc]
        )  # fmt: skip
        gaps = [max(row.value - function.minimum, 1e-14) for row in result.trace]
        curves.semilogy([row.cost for row in result.trace], gaps, color=colour, marker=marker, ms=4, label=label)
        print(
            f"{name}, {label}: f - f* = {gaps[-1]:.0e} after {result.cost.gradient_equivalents:g} gradient equivalents"
        )
    draw_level_sets(plane, function, WINDOW[name], minimum=function.minimum, level=float(function(start)))
    teleported = paths["teleported once"]
    draw_path(plane, paths["alone"], color="tab:blue", style="dashed", marker="s", label="gradient descent")
    draw_path(plane, teleported[:2], color="0.3", style="dotted", marker="", label="teleport")
    draw_path(plane, teleported[1:], color="tab:orange", style="solid", marker="o", label="gradient descent after it")
    mark(plane, start.tolist(), color="black", marker="s", label="start")
    mark_minimizers(plane, function)
    plane.set_title(name)
    curves.set(xlabel="gradient equivalents", ylabel="f - f*")


def main() -> Figure:
    picture = Figure(figsize=(9, 7.5), layout="constrained")
    rows = picture.subplots(2, 2, height_ratios=[1.3, 1.0])
    for column, name in enumerate(("booth", "goldstein-price")):
        draw(name, rows[0][column], rows[1][column])
    handles, labels = rows[0][0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return picture
