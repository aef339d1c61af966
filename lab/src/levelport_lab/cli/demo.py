"""``levelport demo``: what teleportation does, in a minute, with pictures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelport_lab.cli.speech import say, trouble_in_words

if TYPE_CHECKING:
    from rich.console import Console


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("demo"),
) -> None:
    """Show Figure 1 of the paper, and what teleports do for gradient descent."""
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
    with trouble_in_words():
        picture = _test_functions(console, out)
        _minimisers(console)
    say(f"\nDone in {time.perf_counter() - began:.0f} s. Picture: {picture}")


def _test_functions(console: Console, out: Path) -> Path:
    """Figure 1: gradient descent with and without a teleport at the start, and Newton's method."""
    from rich.table import Table

    from levelport_lab.paper.plane import FIGURE_1, experiment, figure
    from levelport_lab.pictures import save

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
        say(
            f"{one.function.name}: the teleport takes the gradient norm from {result.gradient_norm_start:.4g} "
            f"to {result.gradient_norm:.6g} at the same value, for {result.cost.gradient_equivalents:g} gradient "
            "equivalents."
        )
    return picture


def _minimisers(console: Console) -> None:
    """What it costs to minimise, with and without teleports, against SciPy."""
    from rich.table import Table

    from levelport_lab.bench import cost_table
    from levelport_lab.bench.races import accuracy

    console.rule("2  What it costs to minimise", align="left")
    with console.status("gradient descent with and without teleports, L-BFGS, Newton-CG ..."):
        costs = cost_table.cost_table()
    say(
        "Logistic regression on scikit-learn's breast-cancer data, reg 1e-6, from 0: gradient equivalents "
        f"(at most {cost_table.MAX_COST:.0f}) until (f - f*)/(f0 - f*) falls to"
    )
    table = Table("method", *map(accuracy, cost_table.ACCURACIES))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in costs.items():
        table.add_row(name, *map(cost_table.cell, row))
    console.print(table)
    say("How much of this is due to the teleports: docs/results/benchmark.md, measured by 'levelport bench logistic'.")
