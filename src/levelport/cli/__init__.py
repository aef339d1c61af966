"""The ``levelport`` command: one file per group of commands, put together here."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="levelport",
    help="Sub-level-set teleportation for PyTorch: solve, optimise, reproduce, measure.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
