"""``levelport data``: what data sets are here, and how to get the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelport_lab.cli.messages import echo, errors_as_sentences, usage_errors

if TYPE_CHECKING:
    from levelport_lab.problems.datasets import DataInfo

app = typer.Typer(help="Data sets: what is here, and how to get the rest.", no_args_is_help=True)


@app.command("list")
def list_data(
    about: Annotated[bool, typer.Option("--about", help="Say what each set is about in place of its balance.")] = False,
) -> None:
    """Show every data set with its size, its balance, and whether it is here."""
    from levelport_lab.problems import storage
    from levelport_lab.problems.catalogue import UCI
    from levelport_lab.problems.datasets import DATA_NAMES, data_info

    typer.echo(f"{'name':28} {'n':>5} {'d':>3}  {'state':17} {'about' if about else '-1 / +1'}")
    complaints: list[str] = []
    missing = 0
    for name in DATA_NAMES:
        info = data_info(name)
        found = storage.locate(name) if name in UCI or name == "mnist" else storage.Location(storage.State.SCIKIT_LEARN)
        complaints += found.complaints
        missing += found.state in (storage.State.MISSING, storage.State.DAMAGED)
        last = (UCI[name].about if name in UCI else "") if about else _balance(info)
        typer.echo(f"{name:28} {info.samples:5} {info.features:3}  {found.state.value:17} {last}")
    if missing:
        typer.echo(f"{missing} not here: 'levelport data fetch' gets them.")
    for complaint in complaints:
        echo(complaint, "red", error=True)
    if complaints:
        raise typer.Exit(1)


def _balance(info: DataInfo) -> str:
    from levelport_lab.problems.datasets import Targets

    if info.targets is Targets.CLASSES:
        return f"{info.classes} classes"
    assert info.positives is not None  # two classes
    share = 100 * info.positives / info.samples
    return f"{info.samples - info.positives} / {info.positives} ({share:.0f}%)"


@app.command("fetch")
def fetch_data(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of sets, or 'uci', or 'mnist'; all that is missing by default.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Copy from this directory (with uci/ and mnist/) and not the network.")
    ] = None,
) -> None:
    """Download the data sets that are missing into the cache and check them."""
    from levelport_lab.problems import storage
    from levelport_lab.problems.fetching import fetch

    with usage_errors():
        wanted = _expand(names or ["uci", "mnist"])
    failed = False
    with errors_as_sentences(resumes=True):
        for name in wanted:
            state = storage.locate(name).state
            if state not in (storage.State.MISSING, storage.State.DAMAGED):
                echo(f"{name}: {state.value} already")
                continue
            try:
                for path in fetch(name, source=source):
                    echo(f"{name}: {path}")
            except storage.DataError as error:
                echo(str(error), "red", error=True)
                failed = True
    if failed:
        raise typer.Exit(1)


def _expand(names: list[str]) -> list[str]:
    """Groups to their members; repeated names once; an unknown name is an error with a suggestion."""
    from levelport.checks import unknown_name
    from levelport_lab.problems.catalogue import UCI

    groups = {"uci": tuple(UCI), "mnist": ("mnist",)}
    wanted: dict[str, None] = {}
    for name in names:
        if name not in UCI and name not in groups:
            raise unknown_name("data set to fetch", name, [*UCI, *groups], see="'levelport data list' shows all names.")
        wanted.update(dict.fromkeys(groups.get(name, (name,))))
    return list(wanted)
