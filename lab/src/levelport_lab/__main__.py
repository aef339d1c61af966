"""Entry point of the ``levelport`` command; says what to install when a package is missing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from levelport_lab.cli import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("levelport"):
            raise
        print(
            f"The levelport command needs the package '{error.name}'. Install it with: pip install levelport-lab",
            file=sys.stderr,
        )
        raise SystemExit(2) from error
    app()


if __name__ == "__main__":
    main()
