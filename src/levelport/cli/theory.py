"""``levelport theory`` and ``levelport diagnose``: what the theorems promise for a problem, and what happens."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from levelport.objective import Objective
    from levelport.theory.promises import Audit

Name = Annotated[
    str, typer.Argument(help="MODEL/DATA as in logreg/blood, quadratic/CONDITION, a test function, or relu-network.")
]
Reg = Annotated[float, typer.Option(help="Strength of the penalty reg·‖w‖² of MODEL/DATA.")]
Seed = Annotated[int, typer.Option(help="Decides the split, the start and what is sampled.")]
Warmup = Annotated[int, typer.Option(help="Gradient steps before anything is measured.", min=0)]


def theory_command(
    name: Name,
    reg: Reg = 1e-2,
    seed: Seed = 0,
    warmup: Warmup = 0,
    iterations: Annotated[int, typer.Option(help="Iterations to run and to bound.", min=2)] = 30,
    every: Annotated[int, typer.Option(help="Teleport at iterations 1, 1 + EVERY, ….", min=1)] = 2,
    plot: Annotated[bool, typer.Option("--plot", help="Draw measured gaps and bounds.")] = False,
    to: Annotated[Path | None, typer.Option(help="The picture's file; by default named after the problem.")] = None,
) -> None:
    """Compare measured gaps with the bounds of the theorems."""
    from levelport.theory.promises import audit, warm_start
    from levelport.theory.steps import every as schedule

    try:
        objective, start = _named(name, reg, seed)
        start = warm_start(objective, start, warmup)
        found = audit(objective, start, iterations, schedule=schedule(every, iterations, start=1))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _print_constants(found)
    _print_bounds(found, iterations)
    if plot or to is not None:
        from levelport.lab.theory_pictures import save

        path = to if to is not None else Path(name.replace("/", "-") + ".png")
        save(found, path, f"{name}, after {warmup} gradient steps" if warmup else name)
        typer.echo(f"Drawn into {path}.")
    if broken := found.violations():
        typer.secho(f"A guarantee was exceeded: {', '.join(broken)}. This should not happen.", fg="red", err=True)
        raise typer.Exit(1)


def diagnose_command(
    name: Name,
    reg: Reg = 1e-2,
    seed: Seed = 0,
    warmup: Warmup = 0,
    max_hvps: Annotated[int, typer.Option(help="Budget of the teleport.", min=1)] = 100,
) -> None:
    """Say in words whether teleporting suits a problem, here and now."""
    from levelport.theory.diagnosis import diagnose
    from levelport.theory.promises import warm_start

    try:
        objective, start = _named(name, reg, seed)
        diagnosis = diagnose(objective, warm_start(objective, start, warmup), max_hvps=max_hvps, seed=seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    for sentence in diagnosis.sentences():
        typer.echo(sentence)


def _named(name: str, reg: float, seed: int) -> tuple[Objective, Tensor]:
    """The objective and the start called ``name``."""
    import torch

    from levelport.objectives.function import FunctionObjective
    from levelport.theory.counterexamples import relu_objective

    if name.startswith("quadratic/"):
        return _quadratic(name.partition("/")[2], seed)
    if name == "relu-network":
        network = relu_objective(penalty=reg, seed=seed)
        return network, network.initial_point()
    if "/" in name:
        from levelport.problems import problem

        chosen = problem(name, reg=reg, seed=seed)
        return chosen.objective(), chosen.initial_point()
    from levelport.problems.functions import function_named

    function = function_named(name)
    start = torch.tensor(function.start, dtype=torch.float64)
    return FunctionObjective(function.function, like=start), start


def _quadratic(condition: str, seed: int) -> tuple[Objective, Tensor]:
    import torch

    from levelport.problems.quadratics import Quadratic

    try:
        number = float(condition)
    except ValueError:
        number = math.nan
    if not 1.0 <= number < math.inf:
        raise ValueError(f"quadratic/CONDITION needs a number of at least 1, as in quadratic/1e4, not {condition!r}.")
    spectrum = torch.logspace(-math.log10(number), 0.0, 20, dtype=torch.float64)
    return Quadratic.random(spectrum, seed), torch.zeros(20, dtype=torch.float64)


def _print_constants(found: Audit) -> None:
    constants = found.constants
    for label, constant in constants.table():
        typer.echo(f"{label:10} {constant}")
    typer.echo(f"{'δ₀':10} {constants.initial_gap:.6g}")
    typer.echo(f"{'‖w₀ - w*‖':10} {constants.distance:.6g}")
    for caveat in constants.caveats():
        typer.secho(f"Caveat: {caveat}.", fg="yellow")
    typer.echo(_promise(found))


def _promise(found: Audit) -> str:
    """From where on teleports have the better guarantee, if at all."""
    constants = found.constants
    if math.isinf(constants.radius.value):
        return "The initial sub-level set is unbounded, so there is no bound for GD with teleports."
    if constants.stability is None or math.isinf(constants.stability_upper.value):
        return "f is not Hessian stable, so teleports promise no more than gradient steps."
    beginning = "If the sampled constants were true, a" if constants.doubtful() else "A"
    return (
        f"{beginning} teleport, taken as free, would have the better guarantee once f - f* < "
        f"{found.payoff_gap:.4g}, and teleporting every other iteration from K = {found.break_even:.6g} on."
    )


def _print_bounds(found: Audit, iterations: int) -> None:
    columns = sorted({1, 2, *(round(iterations * share) for share in (0.25, 0.5, 0.75, 1.0))})
    typer.echo("")
    typer.echo(f"{'f(w_K) - f* at K =':34}" + "".join(f"{k:>10}" for k in columns))

    def line(label: str, values: list[float], remark: str = "") -> None:
        typer.echo(f"{label:34}" + "".join(f"{values[k]:10.2e}" for k in columns) + remark)

    line("measured: GD", found.descent.gaps)
    line("measured: GD with teleports", found.teleported.gaps)
    for bound in found.bounds:
        line(bound.label, bound.rate, "  (no guarantee)" if bound.caveats else "")
    if found.schedule:
        typer.echo(f"Worst alignment cos ∠(g, Hg) after teleports: {found.worst_alignment:.9f}")
