"""``levelport theory`` and ``levelport diagnose``: bounds of the theorems for a problem, and what happens."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelport_lab.cli.messages import check_picture, errors_as_sentences, save_picture, usage_errors

if TYPE_CHECKING:
    from torch import Tensor

    from levelport.objective import Objective
    from levelport_lab.theory.bounds import Audit

Name = Annotated[
    str, typer.Argument(help="MODEL/DATA as in logreg/blood, quadratic/CONDITION, a test function, or relu-network.")
]
Reg = Annotated[
    float | None,
    typer.Option(help="Strength of the penalty reg·‖w‖² of MODEL/DATA and relu-network; 0.01 by default."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides the split, the start and what is sampled.")]
Warmup = Annotated[int, typer.Option(help="Gradient steps before anything is measured.", min=0, max=100_000)]


def theory_command(
    name: Name,
    reg: Reg = None,
    seed: Seed = 0,
    warmup: Warmup = 0,
    iterations: Annotated[int, typer.Option(help="Iterations to run and to bound.", min=2, max=10_000)] = 30,
    plot: Annotated[Path | None, typer.Option(help="Draw gaps and bounds to this file (png, pdf or svg).")] = None,
) -> None:
    """Compare measured gaps with the bounds of the theorems; every other iteration teleports."""
    from levelport_lab.theory.bounds import audit, warm_start

    check_picture(plot)
    with errors_as_sentences(), usage_errors():
        objective, start = _named(name, reg, seed)
        start = warm_start(objective, start, warmup)
        found = audit(objective, start, iterations)
    _print_constants(found)
    _print_bounds(found, iterations)
    _print_certificates(found)
    _print_lemmas(found)
    if plot is not None:
        from levelport_lab.theory_pictures import audit_picture

        save_picture(audit_picture(found, f"{name}, after {warmup} gradient steps" if warmup else name), plot)
    if broken := found.violations():
        typer.secho(f"A guarantee was exceeded: {', '.join(broken)}. This should not happen.", fg="red", err=True)
        raise typer.Exit(1)


def diagnose_command(
    name: Name,
    reg: Reg = None,
    seed: Seed = 0,
    warmup: Warmup = 0,
    max_hvps: Annotated[int, typer.Option(help="Budget of the teleport.", min=1)] = 100,
) -> None:
    """Say whether a teleport helps on a problem, and why."""
    from levelport_lab.theory.bounds import warm_start
    from levelport_lab.theory.diagnosis import diagnose

    with errors_as_sentences(), usage_errors():
        objective, start = _named(name, reg, seed)
        diagnosis = diagnose(objective, warm_start(objective, start, warmup), max_hvps=max_hvps, seed=seed)
    for sentence in diagnosis.sentences():
        typer.echo(sentence)


def _named(name: str, reg: float | None, seed: int) -> tuple[Objective, Tensor]:
    """The objective and the start called ``name``; a penalty is for those that have one."""
    import torch

    from levelport.objectives.function import FunctionObjective
    from levelport_lab.theory.counterexamples import relu_objective

    strength = 1e-2 if reg is None else reg
    if name.startswith("quadratic/"):
        _refuse_penalty(name, reg)
        return _quadratic(name.partition("/")[2], seed)
    if name == "relu-network":
        network = relu_objective(penalty=strength, seed=seed)
        return network, network.initial_point()
    if "/" in name:
        from levelport_lab.problems import problem
        from levelport_lab.problems.models import parse_model

        parse_model(name.partition("/")[0])  # of two names that are unknown, the first is named
        chosen = problem(name, reg=strength, seed=seed)
        return chosen.objective(), chosen.initial_point()
    from levelport_lab.problems.functions import function_named

    try:
        function = function_named(name)
    except ValueError as error:
        raise ValueError(f"{error} A problem is MODEL/DATA, as in logreg/blood.") from error
    _refuse_penalty(name, reg)
    start = torch.tensor(function.start, dtype=torch.float64)
    return FunctionObjective(function.function, like=start), start


def _refuse_penalty(name: str, reg: float | None) -> None:
    if reg is not None:
        raise ValueError(f"--reg has no effect on {name}, which has no penalty; it is for MODEL/DATA and relu-network.")


def _quadratic(condition: str, seed: int) -> tuple[Objective, Tensor]:
    import torch

    from levelport_lab.problems.quadratics import Quadratic

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
    typer.echo(_better_bound(found))


def _better_bound(found: Audit) -> str:
    """From where on teleports have the better guarantee, if at all."""
    from levelport_lab.theory.bounds import HORIZON, SMALLEST

    constants = found.constants
    if math.isinf(constants.radius.value):
        return "The initial sub-level set is unbounded, so there is no bound for GD with teleports."
    if constants.stability is None:
        return (
            "The Hessian vanished, or changed sign, between sampled points: f is not Hessian stable, and teleports "
            "have no better bound than gradient steps."
        )
    if math.isinf(constants.stability_upper.value):
        return "No finite L̃ could be proved, so teleports have no better bound than gradient steps."
    beginning = "If these constants were true, a" if constants.doubtful() else "A"
    if found.outdone:
        return (
            f"{beginning} teleport never has the better guarantee: the contraction 1 - μ/L of every step is as good as "
            f"the 1 - μ̃/L̃ of a teleport."
        )
    gap = "at any gap" if math.isinf(found.payoff_gap) else f"once f - f* < {found.payoff_gap:.4g}"
    lead = found.break_even
    when = (
        f"only after more than {HORIZON} iterations, or at bounds below {SMALLEST:.0e}."
        if lead is None
        else f"from K = {lead:.6g} on."
    )
    return (
        f"{beginning} teleport, taken as free, has the better guarantee {gap}, and teleporting every other iteration "
        f"{when}"
    )


def _print_bounds(found: Audit, iterations: int) -> None:
    columns = sorted({1, 2, *(round(iterations * share) for share in (0.25, 0.5, 0.75, 1.0))})
    typer.echo("")
    typer.echo(f"{'f(w_K) - f* at K =':34}" + "".join(f"{k:>10}" for k in columns))

    def line(label: str, cells: list[str], remark: str = "") -> None:
        typer.echo(f"{label:34}" + "".join(f"{cell:>10}" for cell in cells) + remark)

    measured = {"GD": found.descent, "GD with teleports": found.teleported, "GD with Newton steps": found.newton}
    for label, run in measured.items():
        line(f"measured: {label}", [f"{run.gaps[k]:.2e}" if run.resolved(k) else "rounding" for k in columns])
    for bound in found.bounds:
        numbers = [f"{bound.rate[k]:.2e}" if bound.rate[k] else "0" for k in columns]
        cells = ["vacuous" if found.vacuous(bound, k) else text for k, text in zip(columns, numbers, strict=True)]
        line(bound.label, cells, "  (no guarantee)" if bound.caveats else "")
    typer.echo(
        f"A vacuous bound says no more than f - f* ≤ {found.constants.initial_gap:.3g}, its first value; gaps below "
        f"{found.descent.rounding:.0e} are rounding."
    )


def _print_certificates(found: Audit) -> None:
    """Proved, from the pairs, measured: by how much the step after each teleport multiplied f - f*."""
    if not found.certificates:
        return
    typer.echo("")
    typer.echo("The step after each teleport multiplied f - f* by")
    typer.echo(f"{'at iteration':34}" + "".join(f"{one.k:>10}" for one in found.certificates[:8]))
    for label, name in (
        ("at most, proved from positions", "proved"),
        ("at most, from the two pairs", "pair"),
        ("measured", "measured"),
    ):
        cells = "".join(f"{_factor(getattr(one, name)):>10}" for one in found.certificates[:8])
        typer.echo(f"{label:34}{cells}")
    typer.echo(f"Worst alignment cos ∠(g, Hg) after teleports: {found.worst_alignment:.9f}")


def _factor(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "rounding" if value == 0.0 else f"{value:.2e}" if value < 1e-2 else f"{value:.4f}"


def _print_lemmas(found: Audit) -> None:
    typer.echo("")
    for lemma in found.lemmas:
        typer.secho(str(lemma), fg=None if lemma.holds else "red")
