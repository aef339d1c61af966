"""``levelport demo``: what teleportation does, in a minute, with pictures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("demo"),
) -> None:
    """Show Figure 1 of the paper, the solvers side by side, and what teleports do for gradient descent."""
    import torch
    from rich.console import Console
    from threadpoolctl import threadpool_limits

    # The problems are tiny: more threads only wait for each other, for minutes on a busy machine.
    torch.set_num_threads(1)
    threadpool_limits(1)
    console = Console()
    began = time.perf_counter()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot write to {out}: {error.strerror}.", param_hint="--out") from error
    pictures = [_test_functions(console, out), _solvers(console, out)]
    _minimisers(console)
    console.print(f"\nDone in {time.perf_counter() - began:.0f} s. Pictures:", highlight=False)
    for picture in pictures:
        console.print(f"  {picture}", highlight=False, soft_wrap=True)


def _test_functions(console: Console, out: Path) -> Path:
    """Figure 1: gradient descent with and without a teleport at the start, and Newton's method."""
    from rich.table import Table

    from levelport.lab.paper.plane import FIGURE_1, experiment, figure
    from levelport.lab.pictures import save

    console.rule("1  One teleport at the start", align="left")
    with console.status("two functions, three methods ..."):
        experiments = [experiment(name, start) for name, start in FIGURE_1]
        (picture,) = save(figure(experiments), out / "figure1.png")
    table = Table("function", "method", "steps", "f - f*", "ends at", title_justify="left")
    for column in table.columns[2:4]:
        column.justify = "right"
    for one in experiments:
        for journey in one.journeys:
            end = ", ".join(f"{x:.3f}" for x in journey.path[-1])
            gap = journey.result.value - one.function.minimum
            table.add_row(one.function.name, journey.label, str(journey.steps), f"{gap:.1e}", f"({end})")
    console.print(table)
    for one in experiments:
        result = one.teleport
        console.print(
            f"{one.function.name}: the teleport takes the gradient norm from {result.gradient_norm_start:.4g} "
            f"to {result.gradient_norm:.6g} at the same value, for {result.cost.gradient_equivalents:g} gradient "
            "equivalents.",
            highlight=False,
        )
    return picture


def _solvers(console: Console, out: Path) -> Path:
    """The solvers on logistic regression, all with the same budget."""
    from rich.progress import track
    from rich.table import Table

    from levelport.lab.bench.solver_comparison import BUDGETS, CONTESTANTS, figure, logistic_instance, race
    from levelport.lab.pictures import save

    console.rule("2  Solvers of the teleportation problem", align="left")
    instance = logistic_instance("breast-cancer-wisconsin", 1e-3)
    curves = [
        curve
        for contestant in track(CONTESTANTS, "logistic regression ...", console=console, transient=True)
        for curve in race(instance, [contestant])
    ]
    first = curves[0].last
    table = Table("solver", "‖∇f‖", "violation", "f", "∇f", "HVP", "cost", "seconds")
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for curve in curves:
        result, cost = curve.last, curve.last.cost
        table.add_row(
            curve.contestant.name,
            f"{result.gradient_norm:.5f}",
            f"{result.violation:.0e}" if result.violation else "0",
            str(cost.values),
            str(cost.gradients),
            str(cost.hvps),
            f"{cost.gradient_equivalents:g}",
            f"{cost.seconds:.2f}",
        )
    console.print(
        f"{instance.name}, {instance.objective.dimension} variables, gradient norm at the start "
        f"{first.gradient_norm_start:.5f}, at most {BUDGETS[-1]} Hessian-vector products:",
        highlight=False,
    )
    console.print(table)
    console.print("f, ∇f, HVP: evaluations. Cost: gradient equivalents, ½ per value, 1 per gradient, 2 per HVP.")
    return save(figure(instance, curves), out / "solvers.png")[0]


def _minimisers(console: Console) -> None:
    """What it costs to minimise, with and without teleports, against SciPy."""
    from rich.table import Table

    from levelport.lab.bench.comparison import ACCURACIES, compare

    console.rule("3  What it costs to minimise", align="left")
    with console.status("gradient descent with and without teleports, L-BFGS, Newton-CG ..."):
        rows = compare()
    console.print(
        "Logistic regression on scikit-learn's breast-cancer data, reg 1e-6, from 0: gradient equivalents "
        "(at most 20000) until (f - f*)/(f0 - f*) falls to",
        highlight=False,
    )
    table = Table("method", *(f"{accuracy:.0e}" for accuracy in ACCURACIES))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(row.method, *("not reached" if cost is None else f"{cost:.0f}" for cost in row.costs))
    console.print(table)
    console.print(
        "levelport.minimize owes its speed to the quasi-Newton steps inside its default, uncertified teleports: "
        "without their climb it is cheaper (python -m levelport.lab.bench.attribution).",
        highlight=False,
    )
