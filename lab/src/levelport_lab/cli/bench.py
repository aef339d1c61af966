"""``levelport bench``: the one door of all benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from levelport_lab.cli.speech import say, trouble_in_words, usage


def bench_command(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUITE]...",
            help="solvers, attribution, logistic, held-out, functions, optimality, overhead, growth, hvp, timing, "
            "memory, networks, visits, safety, families; all by default.",
            show_default=False,
        ),
    ] = None,
    tier: Annotated[
        Literal["quick", "full"], typer.Option(help="quick: about an hour on one core; full: a night.")
    ] = "quick",
    out: Annotated[Path, typer.Option(help="Where results are kept; a second start goes on from there.")] = Path(
        "results/bench"
    ),
    report: Annotated[
        Path | None, typer.Option(help="Write the suites' pages, tables and pictures to this directory.")
    ] = None,
    run: Annotated[bool, typer.Option(help="Compute what is missing; otherwise only report what is there.")] = True,
) -> None:
    """Benchmark at equal cost: GD with and without teleports against L-BFGS, Newton-CG and others.

    Counts do not depend on the load of the machine; for seconds leave it alone. One process, one thread.

    Example: levelport bench logistic --report docs/results
    """
    from rich.console import Console

    from levelport_lab.bench.suites import SUITES, suite_named
    from levelport_lab.engine.backends import Backend
    from levelport_lab.engine.progress import ConsoleProgress
    from levelport_lab.engine.runner import Plan, run_plan
    from levelport_lab.engine.store import Store

    if not run and report is None:
        raise typer.BadParameter("there is nothing to do: it needs --report DIR.", param_hint="--no-run")
    with usage("SUITE"):
        makers = {name: suite_named(name) for name in suites or SUITES}
    failures: list[str] = []
    with trouble_in_words(resumes=True):
        store = Store(out, make=run)
        for name, make in makers.items() if run else ():
            plan = Plan.of(make(tier), store)
            for sentence in plan.sentences(1):
                say(f"{name}: {sentence}")
            failures += run_plan(plan, store, Backend(jobs=1), ConsoleProgress(Console(), name)).failures
    for failure in failures:
        say(f"failed: {failure}", "red", error=True)
    if report is not None:
        from levelport_lab.bench.page import write_pages

        with trouble_in_words(resumes=True):
            for path in write_pages(store, report, suites):
                say(f"written: {path}")
    if failures:
        raise typer.Exit(1)
