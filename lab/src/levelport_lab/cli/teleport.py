"""``levelport teleport``: teleport a test function from a point, certify, and draw."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelport_lab.cli.messages import check_picture, echo, save_picture, usage_errors

if TYPE_CHECKING:
    from rich.table import Table

    from levelport.solvers import TeleportResult
    from levelport_lab.problems.functions import TestFunction


def teleport_function(
    function: Annotated[
        str,
        typer.Argument(
            help="booth, goldstein-price, rosenbrock, himmelblau, beale, huber or flat-huber.", show_default=False
        ),
    ],
    start: Annotated[
        str | None, typer.Option(help="Coordinates with commas between, as in 7.5,-4; the usual start by default.")
    ] = None,
    solver: Annotated[
        str,
        typer.Option(help="auto (ours), krylov (ours, cheap), sqp (the paper's), slsqp or trust-constr (SciPy's)."),
    ] = "auto",
    max_hvps: Annotated[int, typer.Option(help="Budget of Hessian-vector products.")] = 50,
    plot: Annotated[
        Path | None, typer.Option(help="Draw level sets, path, start and end to this file (png, pdf or svg).")
    ] = None,
) -> None:
    """Move a point to where the gradient is largest without raising the value.

    Example: levelport teleport booth --start 7.5,-4 --plot booth.png
    """
    import torch
    from rich.console import Console

    from levelport.solvers import TeleportStatus, teleport
    from levelport_lab.bench.scipy_solvers import any_solver
    from levelport_lab.level_sets import Trails, teleport_picture
    from levelport_lab.problems.functions import function_named

    with usage_errors("FUNCTION"):
        known = function_named(function)
    with usage_errors("--solver"):
        method = any_solver(solver)
    check_picture(plot)
    coordinates = list(known.start) if start is None else _numbers(start)
    _check_dimension(known, coordinates, plot)
    trails = Trails()
    x = torch.tensor(coordinates, dtype=torch.float64)
    with usage_errors():
        result = teleport(known, x, replace(method, max_hvps=max_hvps), callback=trails)
    if result.status is TeleportStatus.NON_FINITE_START:
        raise typer.BadParameter(f"{result.message}.", param_hint="--start")
    assert isinstance(result.x, torch.Tensor)  # as x is one
    Console().print(certificate_table(result, f"{known.name} with {solver}"))
    echo(f"from {_text(coordinates)} to {_text(result.x.tolist())}")
    if plot is not None:
        save_picture(teleport_picture(known, coordinates, trails, result), plot)


def _numbers(text: str) -> list[float]:
    """The coordinates that ``text`` lists."""
    with usage_errors("--start"):
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError as error:
            raise ValueError(
                f"{text!r} is not a list of numbers; write them with commas between, as in 7.5,-4."
            ) from error
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"{text!r} is no point to start from: every coordinate must be a finite number.")
    return numbers


def _check_dimension(function: TestFunction, coordinates: list[float], plot: Path | None) -> None:
    """Most test functions live in the plane, and only those can be drawn."""
    import torch

    if len(coordinates) != 2 and plot is not None:
        raise typer.BadParameter(
            f"only functions of two variables can be drawn, and --start has {len(coordinates)}.", param_hint="--plot"
        )
    try:
        function(torch.tensor(coordinates, dtype=torch.float64))
    except (ValueError, IndexError) as error:
        raise typer.BadParameter(
            f"{function.name} takes 2 coordinates, and --start has {len(coordinates)}.", param_hint="--start"
        ) from error


def _text(coordinates: list[float]) -> str:
    return "(" + ", ".join(f"{x:.6g}" for x in coordinates) + ")"


def certificate_table(result: TeleportResult, title: str) -> Table:
    """Print the point reached, its distance from a KKT point, and the cost."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    curvature = result.curvature
    known = "not positive" if curvature <= 0.0 else "not known here"  # a gradient that vanishes has none
    step = f"{1.0 / curvature:.6g}" if curvature > 0.0 else f"none: the curvature is {known}"
    rows = {
        "status": f"{result.status.name.lower().replace('_', ' ')}: {result.message}",
        "value": f"{result.value_start:.10g} → {result.value:.10g}",
        "violation": f"{result.violation:.3g}",
        "gradient norm": f"{result.gradient_norm_start:.6g} → {result.gradient_norm:.6g}",
        "gain": f"{result.gain:.6g}",
        "KKT residual": f"{result.kkt_residual:.3g}   ‖P H g‖/‖g‖²: 0 at a KKT point",
        "alignment": f"{result.alignment:.12g}   cosine of g and H g: 1 at a KKT point",
        "curvature λ": f"{curvature:.6g}   ⟨g, H g⟩/‖g‖²",
        "Newton step 1/λ": step,
        "cost": str(result.cost),
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table
