"""``levelport teleport``: teleport a test function from a point, certify, and draw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from levelport.lab.level_sets import Trails
    from levelport.problems.functions import TestFunction
    from levelport.solvers import TeleportResult


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
        str, typer.Option(help="auto (ours), sqp (the paper's), slsqp or trust-constr (SciPy's).")
    ] = "auto",
    max_hvps: Annotated[int, typer.Option(help="Budget of Hessian-vector products.")] = 50,
    tol: Annotated[float, typer.Option(help="KKT tolerance, on the sine of the angle between g and H g.")] = 1e-6,
    radius: Annotated[
        float | None, typer.Option(help="Largest distance from the start; derived from the problem by default.")
    ] = None,
    level_set: Annotated[
        bool, typer.Option("--level-set", help="Stay on the level set; the sub-level set otherwise.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw level sets, path, start and end to this file (png, pdf or svg).")
    ] = None,
) -> None:
    """Move a point to where the gradient is largest without raising the value.

    Example: levelport teleport booth --start 7.5,-4 --plot booth.png
    """
    import torch
    from rich.console import Console

    from levelport.cli.certificate_table import certificate_table
    from levelport.lab.bench.scipy_solvers import any_solver
    from levelport.lab.level_sets import Trails
    from levelport.problems.functions import function_named
    from levelport.solvers import teleport

    with _named("FUNCTION"):
        known = function_named(function)
    with _named("--solver"):
        method = any_solver(solver)
    coordinates = list(known.start) if start is None else _numbers(start)
    _check_dimension(known, coordinates, plot)
    trails = Trails()
    x = torch.tensor(coordinates, dtype=torch.float64)
    with _named(None):
        result = teleport(
            known, x, method, max_hvps=max_hvps, tol=tol, radius=radius, level_set=level_set, callback=trails
        )
    assert isinstance(result.x, torch.Tensor)  # as x is one
    console = Console()
    console.print(certificate_table(result, f"{known.name} with {solver}"))
    console.print(f"from {_text(coordinates)} to {_text(result.x.tolist())}", highlight=False, soft_wrap=True)
    if plot is not None:
        _draw(known, coordinates, trails, result, plot)
        console.print(f"picture: {plot}", highlight=False, soft_wrap=True)


@contextmanager
def _named(parameter: str | None) -> Iterator[None]:
    """Turn a ValueError into a usage error (exit code 2), named after ``parameter`` if it does not say so itself."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=parameter) from error


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a list of numbers; write them with commas between, as in 7.5,-4.", param_hint="--start"
        ) from error


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


def _draw(function: TestFunction, start: list[float], trails: Trails, result: TeleportResult, path: Path) -> None:
    from levelport.lab.level_sets import teleport_picture
    from levelport.lab.pictures import save

    try:
        save(teleport_picture(function, start, trails, result), path)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(f"cannot write {path}: {error}", param_hint="--plot") from error


def _text(coordinates: list[float]) -> str:
    return "(" + ", ".join(f"{x:.6g}" for x in coordinates) + ")"
