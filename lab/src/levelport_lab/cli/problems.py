"""``levelport problems``: the named problems and their optima."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from levelport_lab.cli.messages import echo, errors_as_sentences, usage_errors

app = typer.Typer(help="Named problems and what is known of their optima.", no_args_is_help=True)

Reg = Annotated[list[float] | None, typer.Option("--reg", help="Strength of the penalty; may be repeated.")]
Seed = Annotated[int, typer.Option(help="Decides the split and the start.")]


@app.command("list")
def list_problems() -> None:
    """Show the benchmark's problems; any MODEL/DATA is a name."""
    from levelport_lab.problems.registry import PROBLEM_NAMES, REGULARIZATION, problem

    typer.echo(f"{'name':42} {'n (train)':>9} {'dimension':>9}  optimum")
    for name in PROBLEM_NAMES:
        one = problem(name)
        kind = "certified" if one.convex else "not known"
        typer.echo(f"{name:42} {one.info.training_samples:9} {one.dimension:9}  {kind}")
    typer.echo(f"Every name takes --reg (the paper: {', '.join(f'{reg:g}' for reg in REGULARIZATION)}) and --seed.")
    typer.echo("Any MODEL/DATA will do: logreg, mlp-relu-100-100, mlp-softplus-50, any sizes; 'levelport data list'.")


@app.command("optimum")
def show_optimum(
    names: Annotated[list[str] | None, typer.Argument(help="MODEL/DATA; all logistic problems by default.")] = None,
    reg: Reg = None,
    seed: Seed = 0,
) -> None:
    """Print optimal values with their certified lower bounds."""
    from levelport_lab.problems.catalogue import UCI
    from levelport_lab.problems.optima import OptimumError
    from levelport_lab.problems.registry import REGULARIZATION, problem
    from levelport_lab.problems.storage import DataError

    with usage_errors():
        wanted = [
            problem(name, reg=strength, seed=seed)
            for name in names or [f"logreg/{data}" for data in UCI]
            for strength in reg or REGULARIZATION
        ]
    typer.echo(f"{'problem':36} {'reg':>6}  {'optimum':20} {'proven to':9} attained  how")
    begun, certified, failures = time.perf_counter(), [], []
    with errors_as_sentences():
        for one in wanted:
            try:
                found = one.optimum()
            except (ValueError, OptimumError, DataError) as error:
                failures.append(f"{one.name} reg={one.reg:g}: {error}")
                continue
            certified.append(found.certified)
            attained = {True: "yes", False: "no", None: "unknown"}[found.attained]
            typer.echo(f"{one.name:36} {one.reg:6g}  {found.value:<20.15g} {found.gap:<9.1e} {attained:9} {found.how}")
    took = time.perf_counter() - begun
    counted = f"{len(certified)} optima" if len(certified) != 1 else "1 optimum"
    typer.echo(f"{counted}, {sum(certified)} certified to 1e-12 relative, {took:.1f} s.")
    for failure in failures:
        echo(failure, "red", error=True)
    if failures:
        raise typer.Exit(1)
