"""The ``levelport`` command: one file per group of commands, put together here.

Commands import what they need when they run, so that ``levelport --help`` is quick.
"""

from __future__ import annotations

import typer

from levelport.cli.data import app as data
from levelport.cli.demo import demo
from levelport.cli.problems import app as problems
from levelport.cli.teleport import teleport_function

app = typer.Typer(
    name="levelport",
    help="Sub-level-set teleportation for PyTorch: solve, optimise, reproduce, measure.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("teleport")(teleport_function)
app.command("demo")(demo)
app.add_typer(data, name="data")
app.add_typer(problems, name="problems")
