"""``levelport bench``: who gets how far for how many evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def bench_command(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            help="logistic, held-out, functions, subproblem, overhead, growth, timing, memory, networks, visits; "
            "all by default.",
            show_default=False,
        ),
    ] = None,
    tier: Annotated[
        Literal["quick", "full"], typer.Option(help="quick (about an hour on one core) or full (a night).")
    ] = "quick",
    out: Annotated[Path, typer.Option(help="Where results are kept; a second start goes on from there.")] = Path(
        "results/bench"
    ),
    report: Annotated[Path | None, typer.Option(help="Write benchmark.md, tables and pictures to this directory.")] = (
        None
    ),
    run: Annotated[bool, typer.Option(help="Compute what is missing; otherwise only report what is there.")] = True,
) -> None:
    """Benchmark at equal cost: GD with and without teleports against L-BFGS, Newton-CG and others.

    Counts do not depend on the load of the machine; for seconds leave it alone. One process, one thread.

    Example: levelport bench logistic --report docs/results
    """
    from rich.console import Console

    from levelport.lab.bench.parts import PARTS, part_named
    from levelport.lab.engine.backends import Backend
    from levelport.lab.engine.progress import ConsoleProgress
    from levelport.lab.engine.runner import Plan, run_plan
    from levelport.lab.engine.store import Store, StoreError

    try:
        makers = {name: part_named(name) for name in parts or PARTS}
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="PARTS") from error
    console = Console()
    failures: list[str] = []
    try:
        store = Store(out)
        for name, make in makers.items() if run else ():
            plan = Plan.of(make(tier), store)
            for sentence in plan.sentences(1):
                console.print(f"{name}: {sentence}", highlight=False, soft_wrap=True)
            failures += run_plan(plan, store, Backend(jobs=1), ConsoleProgress(console, name)).failures
        if report is not None:
            from levelport.lab.bench.page import write_page

            for path in write_page(store, report):
                console.print(f"written: {path}", highlight=False, soft_wrap=True)
    except (StoreError, ValueError) as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from error
    for failure in failures:
        typer.secho(f"failed: {failure}", fg="red", err=True)
    if failures:
        raise typer.Exit(1)
