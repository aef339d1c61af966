"""``levelport bench``: run suites of the benchmark, print their tables, report them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from levelport_lab.cli.messages import echo, errors_as_sentences, usage_errors


def bench_command(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE",
            help="logistic, functions, networks, minimizers, solvers, intervals, improve, safety; all by default.",
            show_default=False,
        ),
    ] = None,
    tier: Annotated[
        Literal["quick", "full"], typer.Option(help="quick: about an hour on one core; full: a night.")
    ] = "quick",
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Split into training and test samples (logistic and networks).")
    ] = 0,
    out: Annotated[Path, typer.Option(help="Directory of results; a second start resumes.")] = Path("results/bench"),
    report: Annotated[
        Path | None, typer.Option(help="Add the results to the CSV files, pages and pictures of this directory.")
    ] = None,
    run: Annotated[bool, typer.Option(help="Compute what is missing; otherwise only show what is there.")] = True,
) -> None:
    """Compare solvers, verbs and optimizers with those of other libraries, at equal cost.

    Costs are counts of evaluations and do not depend on the load of the machine. One process, one thread.

    Example: levelport bench logistic
    """
    from rich.console import Console

    from levelport_lab.bench.suites import SUITES, results, suite_named, write_report
    from levelport_lab.engine.backends import Backend
    from levelport_lab.engine.progress import ConsoleProgress
    from levelport_lab.engine.runner import Plan, failure_sentences, run_plan
    from levelport_lab.engine.store import Store

    with usage_errors("SUITE"):
        chosen = {name: suite_named(name) for name in suites or SUITES}
    unsplit = [name for name in suites or () if not SUITES[name].seeded]
    if seed and unsplit:
        raise typer.BadParameter(f"{', '.join(unsplit)} has no other splits.", param_hint="--seed")
    failures: dict[str, list[str]] = {}
    with errors_as_sentences(resumes=True):
        store = Store(out, make=run)
        for name, suite in chosen.items():
            plan = Plan.of(suite.specs(tier, seed if suite.seeded else 0), store)
            if run:
                for sentence in plan.sentences(1):
                    echo(f"{name}: {sentence}")
                sweep = run_plan(plan, store, Backend(jobs=1), ConsoleProgress(Console(), name))
                for reason, labels in sweep.failures.items():
                    failures.setdefault(reason, []).extend(labels)
            elif plan.todo:
                echo(f"{name}: {len(plan.specs) - len(plan.todo)} of {len(plan.specs)} tasks have been run.")
    for sentence in failure_sentences(failures):
        echo(sentence, "red", error=True)
    with errors_as_sentences(resumes=True):
        for name, suite in chosen.items():
            if not (suites or run) and suite.rows(store.look().results.values()).empty:
                continue  # nothing was asked of this suite in particular
            rows = results(name, store)
            for table in suite.tables(rows):
                echo(f"\n{table.text()}")
            echo(f"\nCosts are gradient equivalents. What it means: docs/results/{suite.page}.md")
            for path in write_report(name, rows, report) if report is not None else ():
                echo(f"written: {path}")
    if failures:
        raise typer.Exit(1)
