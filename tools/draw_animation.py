"""Draws the README's animation: gradient descent on Booth's function, alone, and after a teleport.

    python tools/draw_animation.py [FILE]      docs/pictures/teleport.gif unless said otherwise

The plain run takes steps of half the longest stable length. The other one is carried along the level set first, and
then takes one step of length 1/λ, which the teleport reports. Both are drawn against what they cost.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

import levelport
from levelport_lab.level_sets import draw_level_sets
from levelport_lab.pictures import BLACK, BLUE, ORANGE
from levelport_lab.problems.functions import function_named

BOOTH = function_named("booth")
BOTTOM = torch.tensor(BOOTH.minimisers[0], dtype=torch.float64)
START = torch.tensor(BOOTH.start, dtype=torch.float64)
STEP = 0.055  # λ_max = 18
STEPS = 28
CARRIED = 10  # frames of the way along the level set
HOLD = 12  # frames at the end, to look at
FLOOR = 1e-12  # of the logarithmic axis


def plain_descent() -> list[Tensor]:
    path = [START]
    for _ in range(STEPS):
        path.append(path[-1] - STEP * torch.func.grad(BOOTH)(path[-1]))
    return path


def teleported() -> tuple[list[Tensor], float]:
    """Along the level set to where the teleport ends, and one step; and what the teleport cost.

    A teleport has no path; these are points between its ends with the start's value. f is quadratic: along a ray from
    its minimiser it grows with the square of the distance.
    """
    result = levelport.teleport(BOOTH, START)
    path = []
    for share in torch.linspace(0.0, 1.0, CARRIED, dtype=torch.float64):
        ray = torch.lerp(START, result.x, share) - BOTTOM
        path.append(BOTTOM + ray * (result.value_start / BOOTH(BOTTOM + ray)) ** 0.5)
    landed = result.x - torch.func.grad(BOOTH)(result.x) / result.curvature
    return [*path, landed], result.cost.gradient_equivalents


def main() -> None:
    home = Path(__file__).resolve().parents[1]
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else home / "docs" / "pictures" / "teleport.gif"
    plain, (carried, price) = plain_descent(), teleported()
    picture = Figure(figsize=(7.4, 3.7), dpi=90, layout="constrained")
    FigureCanvasAgg(picture)
    plane, curves = picture.subplots(1, 2, width_ratios=[1.15, 1.0])
    draw_level_sets(plane, BOOTH, (-7.5, 9.5, -5.5, 11.5), minimum=BOOTH.minimum, level=float(BOOTH(START)))
    plane.plot(*START.tolist(), "s", color=BLACK, ms=7)
    plane.plot(*BOTTOM.tolist(), "+", color=BLACK, ms=12, mew=2)
    plane.set(xticks=[], yticks=[], xlabel="", ylabel="", title="level sets of f")
    curves.set(yscale="log", xlim=(-0.5, STEPS + 1.5), ylim=(FLOOR, 1e3), title="f - f*")
    curves.set_xlabel("cost in gradients")
    (blue,) = plane.plot([], [], "s-", color=BLUE, ms=4, label="gradient descent")
    (orange,) = plane.plot([], [], "o-", color=ORANGE, ms=5, label="teleport, then one step 1/λ")
    (blue_gap,) = curves.plot([], [], "s-", color=BLUE, ms=4)
    (orange_gap,) = curves.plot([], [], "o-", color=ORANGE, ms=5)
    plane.legend(loc="upper right", fontsize="small")

    def draw(frame: int) -> None:
        a, b = plain[: frame + 1], carried[: frame + 1]
        spent = [price * frame / (CARRIED - 1) for frame in range(CARRIED)][: len(b)]
        costs = [*spent, price + 1.0][: len(b)]
        for line, path in ((blue, a), (orange, b)):
            line.set_data(*torch.stack(path).T.numpy())
        for line, cost, path in ((blue_gap, list(range(len(a))), a), (orange_gap, costs, b)):
            line.set_data(cost, [max(float(BOOTH(x)) - BOOTH.minimum, FLOOR) for x in path])

    FuncAnimation(picture, draw, frames=STEPS + 1 + HOLD).save(out, writer=PillowWriter(fps=5))
    print(f"{out}: {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
