"""Draw the pictures of docs/theory.md: python tools/draw_theory.py [DIRECTORY]."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from levelport.objectives import FunctionObjective
from levelport_lab.pictures import save
from levelport_lab.problems import problem
from levelport_lab.problems.quadratics import Quadratic
from levelport_lab.theory.bounds import audit, warm_start
from levelport_lab.theory.counterexamples import FarTeleport
from levelport_lab.theory.rates import strongly_convex_non_expansive
from levelport_lab.theory.rates_stable import Stability, alternating_break_even, armijo_alternating
from levelport_lab.theory.trajectory import descend, fixed_step, quadratic_oracle
from levelport_lab.theory_pictures import audit_picture

SHOWN = ("strongly convex: (1-μ/L)ᴷ δ₀", "teleports, explicit", "teleports, recursion")
"""The bounds in the picture of logistic regression; ``levelport theory --plot`` draws all."""


def new_figure(columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with its axes side by side."""
    figure = Figure(figsize=(4.2 * columns, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, [figure.add_subplot(1, columns, i + 1) for i in range(columns)]


def logistic_regression(path: Path) -> None:
    """Measured gaps and the bounds that say something, on real data after five gradient steps."""
    chosen = problem("logreg/blood", reg=1e-3)
    objective = chosen.objective()
    start = warm_start(objective, chosen.initial_point(), 5)
    found = audit(objective, start, 30)
    bounds = tuple(bound for bound in found.bounds if bound.label in SHOWN)
    title = "logreg/blood, penalty 1e-3, teleports every other iteration"
    save(audit_picture(replace(found, bounds=bounds), title), path)


def fixed_steps(path: Path) -> None:
    """With fixed steps teleports attain GD's minimax rate and do not beat it; with line search they end at once."""
    L, mu, K = 1.0, 0.05, 40
    objective = Quadratic.random(torch.logspace(np.log10(mu), 0, 20, dtype=torch.float64), 0)
    start, minimizer = torch.zeros(20, dtype=torch.float64), objective.minimizer
    oracle = quadratic_oracle(objective, objective.hessian, minimizer)
    step = 2.0 / (L + mu)
    figure, (axes,) = new_figure()
    always = frozenset(range(K))
    for label, schedule, colour in (
        ("GD", frozenset[int](), "black"),
        ("teleport before every step", always, "#cc3311"),
    ):
        run = descend(
            objective,
            start,
            K,
            minimum=0.0,
            minimizer=minimizer,
            schedule=schedule,
            oracle=oracle,
            rules=fixed_step(step),
        )
        axes.semilogy(run.gaps, color=colour, linewidth=2, label=f"measured: {label}")
    bound = strongly_convex_non_expansive(objective.at(start).value, [step] * K, L, mu)
    axes.semilogy(bound, "--", color="#4477aa", label="(L/μ) Π max{(1-ηL)², (1-ημ)²} δ₀")
    searched = descend(objective, start, 2, minimum=0.0, minimizer=minimizer, schedule={0, 1}, oracle=oracle)
    axes.semilogy(
        [0, 1], [searched.gaps[0], max(searched.gaps[1], 1e-10)], "o:", color="#228833", label="teleport, line search"
    )
    axes.set_ylim(1e-5, 1e5)
    axes.set_xlabel("iteration K")
    axes.set_ylabel("f(w_K) - f*")
    axes.set_title("quadratic, condition 20, η = 2/(L+μ)", fontsize=10)
    axes.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


def break_even(path: Path) -> None:
    """Where the alternating bound overtakes that of GD."""
    figure, (axes,) = new_figure()
    K = np.arange(2, 2001, 2)
    axes.loglog(K, 2.0 / K, "--", color="black", label="GD: 2LR²/K")
    for ratio, colour in ((2.0, "#228833"), (20.0, "#cc3311"), (200.0, "#4477aa")):
        stability = Stability(ratio**0.5, ratio**-0.5)
        axes.loglog(
            K, [armijo_alternating(int(k), 1.0, 1.0, stability) for k in K], color=colour, label=f"L̃/μ̃ = {ratio:g}"
        )
        crossing = alternating_break_even(stability)
        axes.plot([crossing], [2.0 / crossing], "o", color=colour, markersize=5)
    axes.set_ylim(1e-6, 2.0)
    axes.set_xlabel("iteration K")
    axes.set_ylabel("bound on f(w_K) - f*, in units of LR²")
    axes.set_title("teleporting every other iteration", fontsize=10)
    axes.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


def far_teleport(path: Path) -> None:
    """The sub-level set of the repaired function, and what goes wrong with the published one."""
    figure, (left, right) = new_figure(2)
    for axes, one_sided, title in (
        (left, False, "repaired: R stays near ‖w⁺‖"),
        (right, True, "as published: R grows like 1/ε"),
    ):
        f = FarTeleport(5.0, 0.04, one_sided=one_sided)
        w = f.start()
        level = float(f(w))
        x, y = np.meshgrid(np.linspace(-3, 3, 241), np.linspace(-24, 10, 681))
        grid = torch.from_numpy(np.stack([x.ravel(), y.ravel()]))
        values = f(grid).numpy().reshape(x.shape)
        axes.contourf(x, y, values, levels=[-1.0, level], colors=["#dde8f3"])
        axes.contour(x, y, values, levels=[level], colors=["#4477aa"], linewidths=1)
        steepest = _steepest(f, x, y, values, level)
        axes.plot([0], [0], "k+", label="w*")
        axes.plot(*w.tolist(), "o", color="black", markersize=4, label="w")
        axes.plot(*steepest, "o", color="#cc3311", markersize=5, label="w⁺")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("x")
        axes.set_ylabel("y")
        axes.legend(fontsize=8, frameon=False, loc="lower right")
    figure.savefig(path, dpi=100)


def _steepest(f: FarTeleport, x: np.ndarray, y: np.ndarray, values: np.ndarray, level: float) -> tuple[float, float]:
    objective = FunctionObjective(f, like=torch.zeros(2, dtype=torch.float64))
    inside = np.argwhere((values <= level) & (y > 0.9 * f.alpha) & (x > 0.0))  # by symmetry
    norms = [objective.at(torch.tensor([x[i, j], y[i, j]])).gradient_norm for i, j in inside]
    i, j = inside[int(np.argmax(norms))]
    return float(x[i, j]), float(y[i, j])


def main() -> None:
    """Draw everything."""
    home = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "docs" / "theory"
    home.mkdir(parents=True, exist_ok=True)
    logistic_regression(home / "logistic.png")
    fixed_steps(home / "fixed_steps.png")
    break_even(home / "break_even.png")
    far_teleport(home / "far_teleport.png")


if __name__ == "__main__":
    main()
