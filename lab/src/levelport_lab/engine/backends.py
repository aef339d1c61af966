"""Backends: runs are computed on this machine, on a Dask cluster, or on a Ray cluster.

``loky`` starts worker processes here, through joblib; ``dask`` and ``ray`` send the same calls to a cluster. joblib is
not used for these: it waits forever for a Dask task whose workers died, and hands Ray's results over in batches, which
a crash would lose.

Every worker computes with one BLAS thread, so that as many runs as cores go on at once without fighting each other. No
exception of a task escapes from its worker, and workers started here leave when the process that started them is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any, get_args

import joblib
from threadpoolctl import threadpool_limits

from levelport_lab.choices import BackendName
from levelport_lab.engine.spec import Run, RunSpec

Done = tuple[RunSpec, list[Run], float, dict[str, str]]
"""A specification, its runs, the seconds it took and where."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h

LOOK_FOR_PARENT = 1.0
"""Seconds between two looks of a worker for the process that started it."""


_PATIENCE = 60  # seconds until a cluster has its first worker
_MOST_JOBS_PER_CORE = 16  # each is a Python process, with torch some 300 MB


class WorkerLostError(ChildProcessError):
    """A worker process was ended from outside; the message says what is safe and what to do."""


@dataclass(frozen=True)
class Backend:
    """A backend and its settings.

    Attributes:
        name: "loky" (processes here), "dask" or "ray".
        jobs: worker processes; ignored when ``address`` names a cluster that has its own.
        address: of a running scheduler, for example ``tcp://10.0.0.1:8786``; None starts a local one.
    """

    name: BackendName = "loky"
    jobs: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(BackendName):
            raise ValueError(
                f"there is no backend called {self.name!r}. Choose from: {', '.join(get_args(BackendName))}."
            )
        if self.jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {self.jobs}.")
        cores = joblib.cpu_count()
        most = _MOST_JOBS_PER_CORE * cores
        if self.jobs > most and self.address is None:
            raise ValueError(
                f"jobs must be at most {most} on this machine, not {self.jobs}: {_MOST_JOBS_PER_CORE} processes per "
                f"core. {cores}, one per core, are the fastest."
            )
        if self.address is not None and self.name == "loky":
            raise ValueError("an address was given, but loky runs on this machine only; use --backend dask or ray.")

    def compute(self, specs: Iterable[RunSpec]) -> Iterator[Done]:
        """Run the specifications and yield each as it is finished, in any order; no worker starts for none."""
        specs = iter(specs)
        first = next(specs, None)
        if first is None:
            return
        specs = itertools.chain([first], specs)
        if self.name == "loky" and self.jobs == 1:
            yield from map(execute, specs)
            return
        try:
            yield from {"loky": self._on_loky, "dask": self._on_dask, "ray": self._on_ray}[self.name](specs)
        except ImportError:  # the cluster's package is not there, as the message says
            raise
        except Exception as error:
            if not isinstance(error, self._deaths()):
                raise
            raise WorkerLostError(
                "a worker process was ended from outside, perhaps because memory ran out. Everything written "
                "before is safe: start the same command again, with fewer --jobs if it was the memory."
            ) from error

    def _deaths(self) -> tuple[type[Exception], ...]:
        """What is raised when a worker dies; asked when something was, so that the package is there."""
        if self.name == "dask":
            from distributed import KilledWorker

            return (KilledWorker,)
        if self.name == "ray":
            from ray.exceptions import OutOfMemoryError, RayActorError, WorkerCrashedError

            return RayActorError, WorkerCrashedError, OutOfMemoryError
        from joblib.externals.loky.process_executor import BrokenProcessPool

        return (BrokenProcessPool,)

    def _on_loky(self, specs: Iterator[RunSpec]) -> Iterator[Done]:
        calls = (joblib.delayed(execute)(spec, os.getpid()) for spec in specs)
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            parallel = joblib.Parallel(n_jobs=self.jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")
            yield from parallel(calls)

    def _on_dask(self, specs: Iterator[RunSpec]) -> Iterator[Done]:
        with self._dask_client() as client:
            from distributed import as_completed

            try:
                client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError as error:
                raise WorkerLostError(f"no worker has joined the Dask cluster within {_PATIENCE} s.") from error
            running = as_completed()
            for spec in itertools.islice(specs, 2 * sum(client.ncores().values())):
                running.add(client.submit(execute, spec, pure=False))
            for finished in running:
                done = finished.result()
                for spec in itertools.islice(specs, 1):
                    running.add(client.submit(execute, spec, pure=False))
                yield done

    def _on_ray(self, specs: Iterator[RunSpec]) -> Iterator[Done]:
        ray = self._start_ray()
        # Without retries: a task that kills its worker would kill the next one, too.
        remote = ray.remote(num_cpus=1, max_retries=0)(execute)
        running = [remote.remote(spec) for spec in itertools.islice(specs, 2 * int(ray.cluster_resources()["CPU"]))]
        while running:
            (finished,), running = ray.wait(running, num_returns=1)
            done = ray.get(finished)
            running += [remote.remote(spec) for spec in itertools.islice(specs, 1)]
            yield done

    @contextlib.contextmanager
    def _dask_client(self) -> Iterator[Any]:
        try:
            import distributed
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "the dask backend needs the package distributed: pip install 'levelport-lab[cluster]'"
            ) from error
        if self.address is not None:
            with distributed.Client(self.address) as client:
                yield client
            return
        with (
            distributed.LocalCluster(
                n_workers=self.jobs, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client

    def _start_ray(self) -> Any:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "the ray backend needs the package ray: pip install 'levelport-lab[cluster]'"
            ) from error
        if not ray.is_initialized():
            ray.init(address=self.address, num_cpus=None if self.address else self.jobs, include_dashboard=False)
        return ray


def execute(spec: RunSpec, parent: int | None = None) -> Done:
    """Run ``spec`` on one thread; an exception becomes a failed run that says where it was raised.

    ``parent`` is the process without which a worker has nothing to do any more.
    """
    if parent is not None:
        _leave_with(parent)
    os.environ["OMP_NUM_THREADS"] = "1"  # for a torch that the specification imports
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    _keep_memory()
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


@functools.cache
def _keep_memory() -> None:
    """What a tensor leaves stays with this process, where the C library is GNU's; others have no such switch.

    It gives memory at the end of its heap back to the system and gets it back page by page. Where the tensors of a
    small network happen to lie there, its evaluations spend up to half of their time on that.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)  # the most that it accepts
        mallopt(_M_TRIM_THRESHOLD, 512 * 2**20)


@functools.cache
def _leave_with(parent: int) -> None:
    """End this process when ``parent`` is gone: a thread looks once a second, in the middle of a task as well."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_FOR_PARENT)
        os._exit(1)

    threading.Thread(target=look, name="looks for the parent process", daemon=True).start()


def environment() -> dict[str, str]:
    """Return the origin of a result, for the report."""
    import levelport

    return {
        "host": platform.node(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "levelport": levelport.__version__,
    }
