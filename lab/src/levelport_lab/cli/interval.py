"""``levelport interval``: likelihood intervals of a logistic regression on a named data set."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levelport_lab.cli.messages import check_picture, echo, errors_as_sentences, save_picture, usage_errors

if TYPE_CHECKING:
    from torch import Tensor

    from levelport.goals import End, IntervalResult
    from levelport_lab.problems.benchmark_problem import Problem


def interval_command(
    name: Annotated[str, typer.Argument(help="A logistic regression with two classes, as in logreg/pima.")],
    confidence: Annotated[
        float | None, typer.Option(help="Confidence of the intervals, by default 0.95, a rise of 1.92.")
    ] = None,
    rise: Annotated[float | None, typer.Option(help="Rise of the summed negative log-likelihood.")] = None,
    quantity: Annotated[
        list[str] | None,
        typer.Option(help="w0, w1, … or intercept for a coefficient, p0, p1, … for the probability of a test sample."),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(help="Gradient equivalents per end.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides the split into training and test.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw a forest plot to this file (png, pdf or svg).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Find likelihood intervals of coefficients or predictions, with the Wald interval beside each.

    It takes the summed negative log-likelihood of the training samples, without a penalty.

    Example: levelport interval logreg/pima --confidence 0.95 --plot pima.png
    """
    from levelport import interval

    if confidence is None and rise is None:
        confidence = 0.95
    check_picture(plot)
    with errors_as_sentences():
        with usage_errors("NAME"):
            named, likelihood, start = _likelihood(name, seed)
        with usage_errors("--quantity"):
            names, h = _quantity(named, quantity)
        with usage_errors(), _progress(2 * len(names), silent=as_json) as callback:
            result = interval(
                likelihood, start, h, rise=rise, confidence=confidence, refine=True, names=names, max_cost=max_cost,
                callback=callback,
            )  # fmt: skip
        if as_json:
            typer.echo(json.dumps(_summary(named, result), indent=2))
        else:
            echo(f"{named.name}: n × mean loss of the {len(named.train)} training samples, penalty 0")
            echo(str(result))
        if plot is not None:
            save_picture(_forest(result, named.name), plot, error=as_json)


def _likelihood(name: str, seed: int) -> tuple[Problem, Callable[[Tensor], Tensor], Tensor]:
    """The problem without its penalty, Σ log(1 + exp(-y xᵀw)) over its training samples, and 0."""
    import torch
    from torch.nn.functional import logsigmoid

    from levelport_lab.problems import problem
    from levelport_lab.problems.benchmark_problem import with_ones
    from levelport_lab.problems.datasets import Targets
    from levelport_lab.problems.models import LinearModel
    from levelport_lab.problems.separability import separable_rows

    named = problem(name, seed=seed)
    if named.model != LinearModel() or named.info.targets is not Targets.BINARY:
        raise ValueError(f"{name} is not a logistic regression with two classes; choose one, such as logreg/pima.")
    X, y = with_ones(named.train.inputs), named.train.targets
    separated = separable_rows(X.numpy(), y.numpy())
    if separated.any():
        raise ValueError(
            f"the likelihood of {name} has no finite maximum: a hyperplane puts {int(separated.sum())} of {len(y)} "
            "training samples on their right side at no other sample's expense, so coefficients grow without bound."
        )
    return named, lambda w: -logsigmoid(y * (X @ w)).sum(), torch.zeros(X.shape[1], dtype=X.dtype)


def _quantity(named: Problem, wanted: list[str] | None) -> tuple[list[str], Callable[[Tensor], Tensor] | None]:
    """Names and function of the quantities asked for; no function where every coefficient is."""
    import torch

    from levelport_lab.problems.benchmark_problem import with_ones

    coefficients = [f"w{i}" for i in range(named.dimension - 1)] + ["intercept"]
    if not wanted:
        return coefficients, None
    rows, unit = with_ones(named.test.inputs), torch.eye(named.dimension, dtype=named.dtype)
    weights, probable = [], []
    for text in wanted:
        if text in coefficients:
            weights.append(unit[coefficients.index(text)])
        elif text[:1] == "p" and text[1:].isdecimal() and int(text[1:]) < len(rows):
            weights.append(rows[int(text[1:])])
        else:
            raise ValueError(
                f"{text!r} is not a quantity of {named.name}: use w0 to w{named.dimension - 2} or intercept for a "
                f"coefficient, p0 to p{len(rows) - 1} for the probability of a test sample."
            )
        probable.append(text[:1] == "p")
    A, mask = torch.stack(weights), torch.tensor(probable)
    return list(wanted), lambda w: torch.where(mask, torch.sigmoid(A @ w), A @ w)


@contextmanager
def _progress(ends: int, *, silent: bool) -> Iterator[Callable[[End[Any]], None] | None]:
    """A bar over the ends, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if silent or not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("ends", total=ends)

        def found(end: End[Any]) -> None:
            bar.advance(task)

        yield found


def _summary(named: Problem, result: IntervalResult[Any]) -> dict[str, Any]:
    """Return the table as JSON; numbers that are not finite become null."""

    def clean(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {
        "problem": named.name,
        "samples": len(named.train),
        "rise": result.rise,
        "confidence": result.confidence,
        "value": result.value,
        "quantities": [{key: clean(value) for key, value in row.items()} for row in result.rows()],
        "gradient_equivalents": result.cost.gradient_equivalents,
        "seconds": result.cost.seconds,
        "notes": list(result.notes),
    }


def _forest(result: IntervalResult[Any], name: str) -> Any:
    """The forest plot as a figure of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 1.5 + 0.3 * len(result.names)), layout="constrained")
    ax = figure.add_subplot()
    result.plot(ax)
    ax.set_title(f"{name}: {ax.get_title()}")
    return figure
