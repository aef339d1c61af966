"""What happens on a worker: one specification, one thread, and no exception that escapes."""

from __future__ import annotations

import os
import platform
import time
import traceback

import torch
from threadpoolctl import threadpool_limits

from levelport.lab.engine.spec import Run, RunSpec


def environment() -> dict[str, str]:
    """Where a result comes from, for the report."""
    import levelport

    return {
        "host": platform.node(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "levelport": levelport.__version__,
    }


def execute(spec: RunSpec) -> tuple[RunSpec, list[Run], float, dict[str, str]]:
    """Run ``spec``; an exception becomes a failed run that says where it was raised."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    with threadpool_limits(limits=1):
        try:
            runs = spec.run()
            if not runs:
                raise RuntimeError("the task returned no run")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(place.filename)}:{place.lineno}"
            runs = [Run.failure(f"{type(error).__name__}: {error} ({where})")]
    return spec, runs, time.perf_counter() - began, environment()
