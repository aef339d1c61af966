"""The ``levelport`` command: one file per group of commands, put together here.

Commands import what they need when they run, so that ``levelport --help`` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from levelport_lab.cli.bench import bench_command
from levelport_lab.cli.data import app as data
from levelport_lab.cli.demo import demo
from levelport_lab.cli.interval import interval_command
from levelport_lab.cli.play import play
from levelport_lab.cli.problems import app as problems
from levelport_lab.cli.reproduce import report_command, reproduce_command
from levelport_lab.cli.teleport import teleport_function
from levelport_lab.cli.theory import diagnose_command, theory_command

app = typer.Typer(name="levelport", no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        from levelport import __version__

        typer.echo(f"levelport {__version__}")
        raise typer.Exit


@app.callback()
def levelport(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Optimization over level sets in PyTorch: teleports, intervals, and the experiments of the paper."""


app.command("teleport")(teleport_function)
app.command("interval")(interval_command)
app.command("demo")(demo)
app.command("play")(play)
app.command("theory")(theory_command)
app.command("diagnose")(diagnose_command)
app.command("reproduce")(reproduce_command)
app.command("report")(report_command)
app.command("bench")(bench_command)
app.add_typer(data, name="data")
app.add_typer(problems, name="problems")
