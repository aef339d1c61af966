"""``levelport demo``: what the library is for, in four short parts with pictures."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelport_lab.cli.messages import echo, errors_as_sentences

if TYPE_CHECKING:
    from rich.console import Console


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("demo"),
) -> None:
    """Show a teleport, a minimum beside SciPy's, likelihood intervals, and a training run."""
    import torch
    from rich.console import Console
    from threadpoolctl import threadpool_limits

    # The problems are tiny: on a busy machine more threads take longer.
    torch.set_num_threads(1)
    threadpool_limits(1)
    console = Console()
    began = time.perf_counter()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot write to {out}: {error.strerror}.", param_hint="--out") from error
    parts: dict[str, Callable[[Console, Path], None]] = {
        "teleport: the largest gradient at the same loss": _teleport,
        "minimize: the lowest point": _minimize,
        "interval: how far a quantity can move": _intervals,
        "Teleported: teleports in training": _train,
    }
    with errors_as_sentences():
        for number, (title, part) in enumerate(parts.items(), 1):
            console.rule(f"{number}  {title}", align="left")
            part(console, out)
            echo("")
    echo(f"Done in {time.perf_counter() - began:.0f} s. What to read next: docs/guides/getting-started.md")


def _teleport(console: Console, out: Path) -> None:
    import torch

    from levelport import teleport
    from levelport_lab.level_sets import Trails, teleport_picture
    from levelport_lab.pictures import save
    from levelport_lab.problems.functions import function_named

    booth = function_named("booth")
    trails = Trails()
    result = teleport(booth, torch.tensor(booth.start, dtype=torch.float64), callback=trails)
    landed = result.x - torch.func.grad(booth)(result.x) / result.curvature
    drawing = teleport_picture(booth, booth.start, trails, result, after=landed.tolist())
    (picture,) = save(drawing, out / "teleport.png")
    echo(
        f"Booth's function stays at {result.value_start:g} while its gradient norm grows from "
        f"{result.gradient_norm_start:.1f} to {result.gradient_norm:.1f}, at the cost of "
        f"{result.cost.gradient_equivalents:g} gradients."
    )
    echo(f"One gradient step from there ends at f = {float(booth(landed)):.0e}; the minimum is 0. Picture: {picture}")


def _minimize(console: Console, out: Path) -> None:
    from rich.table import Table

    from levelport_lab.bench import cost_table
    from levelport_lab.bench.competitors import DEFAULT, LBFGS, NEWTON_CG
    from levelport_lab.bench.races import accuracy

    costs = cost_table.cost_table(competitors=(DEFAULT, LBFGS, NEWTON_CG), max_cost=3000.0)
    echo(
        "An ill-conditioned logistic regression with 569 samples and 30 features. The table has the cost in gradients "
        "until f - min f\nhas fallen to 1e-4, 1e-6 and 1e-10 of its first value (a value counts ½, a Hessian-vector "
        "product 2)."
    )
    table = Table("method", *map(accuracy, cost_table.ACCURACIES))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in costs.items():
        table.add_row(name, *map(cost_table.cell, row))
    console.print(table)


def _intervals(console: Console, out: Path) -> None:
    from levelport_lab.orings import forest, probabilities
    from levelport_lab.pictures import save

    result = probabilities()
    (picture,) = save(forest(result), out / "intervals.png")
    cold = result.rows()[0]
    echo(
        "Probability of O-ring damage at 31 °F, from 23 flights: the 95 % likelihood interval is "
        f"[{cold['lower']:.2f}, {cold['upper']:.2f}].\nThe Wald interval [{cold['wald_lower']:.3f}, "
        f"{cold['wald_upper']:.3f}] is too narrow and exceeds 1."
    )
    ends = sum(end.success for pair in result.ends for end in pair)
    echo(
        f"{ends} of {2 * len(result.ends)} ends are certified, at the cost of {result.cost.gradient_equivalents:g} "
        f"gradients in all. Picture: {picture}"
    )


def _train(console: Console, out: Path) -> None:
    from matplotlib.figure import Figure

    from levelport_lab.pictures import BLUE, ORANGE, save

    figure = Figure(figsize=(6.0, 3.4), layout="constrained")
    axes = figure.subplots()
    ends = {}
    for label, teleports, colour in (("SGD", False, BLUE), ("SGD with teleports", True, ORANGE)):
        costs, losses, made = training_run(teleports=teleports)
        axes.plot(costs, losses, color=colour, label=label)
        ends[label] = losses[-1], made
    axes.set(
        xlabel="cost in gradients, teleports included",
        ylabel="loss",
        title="a small network, step size 0.05",
    )
    axes.legend()
    (picture,) = save(figure, out / "training.png")
    (alone, _), (teleported, made) = ends.values()
    echo(f"A network trained by SGD: loss {alone:.2f} alone, {teleported:.2f} with {made} teleports, at the same cost.")
    echo(f"Tuned step sizes, momentum and Adam gain nothing: see docs/what-it-buys.md. Picture: {picture}")


def training_run(*, teleports: bool, budget: float = 200.0) -> tuple[list[float], list[float], int]:
    """Train a small network by SGD until ``budget`` is spent; costs, losses and the number of teleports."""
    import torch

    from levelport import Never, Teleported

    torch.manual_seed(0)
    x, y = torch.randn(64, 5), torch.randn(64, 1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = Teleported(sgd) if teleports else Teleported(sgd, Never())
    spent = 0.0
    costs, losses = [], []

    def charge(result: object) -> None:
        nonlocal spent
        spent += result.cost.gradient_equivalents  # type: ignore[attr-defined]

    optimizer.register_teleport_hook(charge)
    while spent < budget:
        before = spent
        loss = optimizer.step(lambda: torch.nn.functional.mse_loss(model(x), y))
        assert loss is not None
        losses.append(loss.item())
        costs.append(before)
        spent += 1.0
    return costs, losses, optimizer.teleporter.teleports
