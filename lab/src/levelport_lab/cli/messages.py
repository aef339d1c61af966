"""Output of the commands: plain text without markup; errors become a sentence and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def echo(text: str, style: str | None = None, *, error: bool = False) -> None:
    """Print a line as it is: brackets in a path are brackets, and nothing is broken in the middle of a name."""
    from rich.console import Console

    Console(stderr=error).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def usage_errors(parameter: str | None = None) -> Iterator[None]:
    """Turn a ValueError into a usage error (exit code 2), named after ``parameter`` if it does not say so itself."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=parameter) from error


def check_picture(path: Path | None) -> None:
    """Refuse a name that --plot cannot write to before anything is computed."""
    from levelport_lab.pictures import picture_format

    with usage_errors("--plot"):
        if path is not None:
            picture_format(path)


def save_picture(figure: Figure, path: Path, *, error: bool = False) -> None:
    """Write a picture, and say where it is and whether its directory is new."""
    from levelport_lab.pictures import save

    missing = not path.parent.exists()
    with errors_as_sentences():
        save(figure, path)
    made = f" (the directory {path.parent} was not there and has been made)" if missing else ""
    echo(f"picture: {path}{made}", error=error)


@contextmanager
def errors_as_sentences(*, resumes: bool = False) -> Iterator[None]:
    """Turn errors of files, arguments and processes into a sentence and exit code 1, an interruption into 130.

    ``resumes`` says that the same command goes on from what it had finished.
    """
    try:
        yield
    except KeyboardInterrupt:
        kept = " What was finished is kept; the same command goes on from there." if resumes else ""
        echo(f"Interrupted.{kept}", error=True)
        raise typer.Exit(130) from None
    except Exception as error:
        if not isinstance(error, _troubles()):
            raise
        echo(_sentence(error, resumes), "red", error=True)
        raise typer.Exit(1) from error


def _troubles() -> tuple[type[Exception], ...]:
    """Return the exceptions to show as a sentence; looked up when something has happened, since imports take time."""
    from levelport_lab.problems.optima import OptimumError
    from levelport_lab.problems.storage import DataError

    return OSError, ValueError, ModuleNotFoundError, DataError, OptimumError


def _sentence(error: Exception, resumes: bool) -> str:
    """Errors of the project are sentences already; those of the system name a file and what is wrong with it."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    where = f" at {error.filename}" if error.filename else ""
    kept = "What was finished before is kept: mend" if resumes else "Mend"
    remedy = f"{kept} that, or choose another place, and start the same command again."
    return f"The system says: {error.strerror}{where}. {remedy}"
