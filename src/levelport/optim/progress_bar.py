"""An optional progress bar for long minimisations; needs rich, which the core does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from levelport.optim.result import MinimizeRow


@contextmanager
def progress_bar(max_iterations: int, max_cost: float) -> Iterator[Callable[[MinimizeRow], None]]:
    """A function to call with every new row."""
    try:
        from rich.console import Console
        from rich.progress import Progress, TextColumn
    except ModuleNotFoundError as error:
        raise ValueError("progress=True needs the package rich: pip install rich, or leave progress off.") from error
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[loss]}"))
    console = Console(stderr=True)
    watched = console.is_terminal or console.is_jupyter  # a file would get empty lines
    with Progress(*columns, console=console, transient=True, disable=not watched) as bar:
        by_cost = math.isfinite(max_cost)
        task = bar.add_task("minimize", total=max_cost if by_cost else max_iterations, loss="")

        def show(row: MinimizeRow) -> None:
            done = row.cost if by_cost else row.iteration
            bar.update(task, completed=done, loss=f"f = {row.value:.6g}  |g| = {row.gradient_norm:.2e}")

        yield show
