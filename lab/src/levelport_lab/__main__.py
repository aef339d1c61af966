"""Entry point of the ``levelport`` command; says what to install when a package is missing."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    # The problems are small: more threads only wait for each other, for minutes on a busy machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
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
