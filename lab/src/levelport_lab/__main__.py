"""Entry point of the ``levelport`` command."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line."""
    # The problems are small: more threads only wait for each other, for minutes on a busy machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from levelport_lab.cli import app

    app()


if __name__ == "__main__":
    main()
