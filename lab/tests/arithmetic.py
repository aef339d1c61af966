"""A small task for testing the engine: sums of squares, slow, failing or silent on demand."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from levelport_lab.engine.backends import Backend
from levelport_lab.engine.runner import Plan, run_plan
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.engine.store import Store


def permitted() -> bool:
    """Return True if a task may finish: it uses up a file of the directory that PERMITS names, if one is named."""
    directory = os.environ.get("PERMITS")
    for path in Path(directory).iterdir() if directory else ():
        with contextlib.suppress(FileNotFoundError):  # another task was quicker
            path.unlink()
            return True
    return directory is None


@dataclass(frozen=True)
class Squares(RunSpec):
    """1² + 2² + ... + n², with the partial sums as a curve."""

    kind: ClassVar[str] = "squares"
    n: int
    pause: float = 0.0
    fails: bool = False
    kills: bool = False

    @property
    def label(self) -> str:
        return f"squares up to {self.n}"

    @property
    def rough_seconds(self) -> float:
        return self.pause + 1e-3

    def run(self) -> list[Run]:
        print(f"begun: {self.label}", flush=True)
        time.sleep(self.pause)
        while not permitted():
            time.sleep(0.01)
        if self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails:
            raise ArithmeticError(f"cannot square {self.n}")
        partial = np.cumsum(np.arange(1.0, self.n + 1) ** 2)
        return [Run(final_value=float(partial[-1]), facts={"n": float(self.n)}, curves={"partial": partial})]


def sweep(count: int, pause: float) -> list[RunSpec]:
    """``count`` tasks."""
    return [Squares(n, pause) for n in range(1, count + 1)]


if __name__ == "__main__":
    # arithmetic.py STORE COUNT PAUSE JOBS: run a sweep, for tests that kill it.
    directory, count, pause, jobs = sys.argv[1:]
    # Imported under its own name, so that the class is the same one everywhere.
    from arithmetic import sweep as tasks

    store = Store(Path(directory))
    plan = Plan.of(tasks(int(count), float(pause)), store)
    print("\n".join(plan.sentences(int(jobs))), flush=True)
    run_plan(plan, store, Backend(jobs=int(jobs)))
    print("finished", flush=True)
