from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import numpy as np
import psutil
import pytest
from arithmetic import Squares, sweep
from rich.console import Console

from levelport_lab.choices import BackendName
from levelport_lab.engine import backends
from levelport_lab.engine.backends import Backend, WorkerLostError
from levelport_lab.engine.progress import ConsoleProgress, Progress
from levelport_lab.engine.runner import Plan, failure_sentences, in_words, run_plan
from levelport_lab.engine.spec import RunSpec, RunStatus
from levelport_lab.engine.store import Store, StoreError

SCRIPT = Path(__file__).with_name("arithmetic.py")


def assert_complete(store: Store, count: int, pause: float) -> None:
    """The store holds the right answer for every task, once, and nothing else."""
    found = store.look()
    assert found.sentences() == []
    assert set(found.results) == {spec.key for spec in sweep(count, pause)}
    for n, spec in enumerate(sweep(count, pause), start=1):
        run = found.results[spec.key].best
        assert run.final_value == n * (n + 1) * (2 * n + 1) / 6
        np.testing.assert_array_equal(run.curves["partial"], [k * (k + 1) * (2 * k + 1) / 6 for k in range(1, n + 1)])
    assert len(list(store.shards.iterdir())) == count


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_and_resumes(tmp_path: Path, jobs: int) -> None:
    store = Store(tmp_path)
    first = run_plan(Plan.of(sweep(4, 0.0), store), store, Backend(jobs=jobs))
    assert first.computed == 4
    plan = Plan.of(sweep(6, 0.0), store)
    assert len(plan.todo) == 2
    assert "6 tasks, 4 already there, 2 to run" in plan.sentences(jobs)[-1]
    second = run_plan(plan, store, Backend(jobs=jobs))
    assert second.computed == 2
    assert len(second.results) == 6
    assert_complete(store, 6, 0.0)


def test_specs_given_twice_run_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outcome = run_plan(Plan.of(sweep(2, 0.0) + sweep(3, 0.0), store), store, Backend())
    assert outcome.computed == 3


def test_failure_is_a_row_and_is_tried_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    specs = [Squares(1), Squares(2, fails=True)]
    outcome = run_plan(Plan.of(specs, store), store, Backend())
    assert len(outcome.results) == 2
    ((reason, labels),) = outcome.failures.items()
    assert "cannot square 2" in reason
    assert labels == ["squares up to 2"]
    run = store.look().results[specs[1].key].best
    assert run.status is RunStatus.FAILED
    assert "ArithmeticError: cannot square 2 (arithmetic.py:" in run.message
    plan = Plan.of(specs, store)
    assert plan.todo == (specs[1],)
    assert any("failed last time" in line for line in plan.sentences(1))
    assert run_plan(plan, store, Backend()).computed == 1


def test_a_task_that_failed_elsewhere_is_a_failure(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Squares(2, fails=True)
    plan = Plan.of([Squares(1), other], store)
    run_plan(Plan.of([other], store), store, Backend())
    done = run_plan(plan, store, Backend())
    assert done.computed == 1
    (sentence,) = failure_sentences(done.failures)
    assert sentence.startswith("failed: squares up to 2: ArithmeticError: cannot square 2")


def test_a_shard_damaged_meanwhile_is_a_failure(tmp_path: Path) -> None:
    store = Store(tmp_path)

    class Vandal(Progress):
        def finished(self, spec: RunSpec, *, failed: bool) -> None:
            store.path(spec.key).write_bytes(b"damaged")

    done = run_plan(Plan.of([Squares(3)], store), store, Backend(), Vandal())
    assert done.results == {}
    ((reason, (shard,)),) = done.failures.items()
    assert reason == "a damaged shard was set aside"
    assert shard.startswith(f"{Squares(3).key}.parquet")


def test_kill_9_again_and_again_loses_nothing(tmp_path: Path) -> None:
    """Two workers, killed three times at odd moments, then left to finish.

    Before each kill only ten more tasks may finish, so that there is always a sweep left to kill.
    """
    count, pause, kills = 40, 0.06, 3
    permits = tmp_path / "permits"
    permits.mkdir()
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(count), str(pause), "2"]
    store = Store(tmp_path)
    seen = 0
    for attempt in range(kills + 1):
        log = tmp_path / f"output-{attempt}"
        for n in range(10 if attempt < kills else count):
            (permits / f"{attempt}-{n}").touch()
        with log.open("wb") as file:  # not a pipe: workers that outlive the killed parent would hold it open
            process = subprocess.Popen(
                command, stdout=file, stderr=file, start_new_session=True, env=os.environ | {"PERMITS": str(permits)}
            )
        if attempt < kills:
            deadline = time.monotonic() + 600
            # Let it get somewhere, then strike at a moment that differs from attempt to attempt.
            while len(list(store.shards.glob("*.parquet"))) < seen + 4:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, "the sweep makes no progress"
                time.sleep(0.003)
            time.sleep(0.007 * attempt)
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=600)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        present = len(list(store.shards.glob("*.parquet")))
        assert present > seen
        seen = present
        assert process.returncode == (-signal.SIGKILL if attempt < kills else 0), log.read_text()
    store.look()  # removes what the last kill may have left half-written
    assert_complete(store, count, pause)


def test_workers_leave_with_their_parent(tmp_path: Path) -> None:
    """The parent is killed while its workers are in the middle of tasks of an hour; none of them is left."""
    command = [sys.executable, str(SCRIPT), str(tmp_path), "4", "3600", "2"]
    with (tmp_path / "output").open("wb") as log:
        parent = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 600
        while (tmp_path / "output").read_text().count("begun") < 2:
            assert parent.poll() is None, (tmp_path / "output").read_text()
            assert time.monotonic() < deadline, "no workers were started"
            time.sleep(0.2)
        family = psutil.Process(parent.pid).children(recursive=True)
        assert len(family) > 2, "two workers, and joblib's own that clean up after them"
        parent.send_signal(signal.SIGKILL)
        parent.wait(timeout=600)
        _, alive = psutil.wait_procs(family, timeout=600)
        assert alive == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_worker_that_is_killed_is_a_sentence(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(WorkerLostError, match="start the same command again"):
        run_plan(Plan.of([*sweep(2, 0.0), Squares(9, kills=True)], store), store, Backend(jobs=2))
    assert not list(store.shards.glob(".tmp-*"))
    assert run_plan(Plan.of(sweep(3, 0.0), store), store, Backend(jobs=2)).failures == {}
    assert_complete(store, 3, 0.0)


def test_two_processes_share_one_store(tmp_path: Path) -> None:
    count, pause = 20, 0.03
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(count), str(pause), "1"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        output, _ = process.communicate(timeout=600)
        assert b"finished" in output
    assert_complete(Store(tmp_path), count, pause)


def test_full_disk_ends_the_sweep_and_the_next_start_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    put = store.put
    written: list[str] = []

    def put_until_full(spec: Squares, *rest: object) -> None:
        if len(written) == 3:
            raise StoreError("No space left on device")
        put(spec, *rest)  # type: ignore[arg-type]
        written.append(spec.key)

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", put_until_full)
        with pytest.raises(StoreError, match="No space left"):
            run_plan(Plan.of(sweep(6, 0.0), store), store, Backend())
    assert set(store.look().results) == set(written)
    assert run_plan(Plan.of(sweep(6, 0.0), store), store, Backend()).computed == 3
    assert_complete(store, 6, 0.0)


@pytest.mark.filterwarnings("default")  # the cluster's own start-up warns about ports and unclosed loops
def test_two_worker_dask_cluster(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the dask extra is not installed")
    store = Store(tmp_path)
    outcome = run_plan(Plan.of(sweep(10, 0.05), store), store, Backend("dask", jobs=2))
    assert outcome.computed == 10
    assert outcome.failures == {}
    assert_complete(store, 10, 0.05)


@pytest.mark.filterwarnings("default")
def test_a_dask_worker_that_is_killed_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the dask extra is not installed")
    import dask

    store = Store(tmp_path)
    plan = Plan.of([Squares(2, kills=True)], store)
    # Once is enough: Dask starts another worker and tries again, three times by default.
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), pytest.raises(WorkerLostError, match="safe"):
        run_plan(plan, store, Backend("dask", jobs=1))


@pytest.mark.filterwarnings("default")  # so does this one's
def test_two_worker_ray_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tasks arrive, each at once: those before a worker is lost are in the store."""
    services = pytest.importorskip("ray._private.services", reason="the ray extra is not installed")
    # Ray's workers are fresh processes that must find the module of the tasks.
    monkeypatch.setenv("PYTHONPATH", str(SCRIPT.parent), prepend=os.pathsep)
    monkeypatch.setenv("RAY_worker_niceness", "0")  # 15 by default: on a busy machine they would never get their turn
    # On a busy machine its processes need longer to find each other than Ray waits. The last of these limits, 30 s
    # until the node is known, is a constant of ray.init.
    monkeypatch.setenv("RAY_gcs_server_port_wait_time_s", "600")
    monkeypatch.setenv("RAY_agent_register_timeout_ms", "600000")
    monkeypatch.setenv("RAY_worker_register_timeout_seconds", "600")
    get_node = services.get_node

    def patiently(*node: str) -> object:
        for _ in range(600):
            with contextlib.suppress(RuntimeError):
                return get_node(*node)
            time.sleep(1.0)
        return get_node(*node)

    monkeypatch.setattr(services, "get_node", patiently)
    store = Store(tmp_path)
    run_plan(Plan.of(sweep(10, 0.05), store), store, Backend("ray", jobs=2))
    assert_complete(store, 10, 0.05)
    specs = iter([*sweep(5, 0.0), Squares(9, kills=True)])
    done = Backend("ray", jobs=2).compute(specs)
    arrived = [next(done)]
    assert len(list(specs)) == 1  # the tasks in flight are four, two per worker, and one was sent for the one that came
    arrived += done
    assert len(arrived) == 5
    with pytest.raises(WorkerLostError, match="start the same command again"):
        list(Backend("ray", jobs=2).compute([Squares(9, kills=True)]))


@pytest.mark.parametrize("name", ["loky", "dask", "ray"])
def test_nothing_starts_where_there_is_nothing_to_run(name: BackendName, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(self: Backend, specs: object) -> None:
        raise AssertionError("a cluster was started for nothing")

    monkeypatch.setattr(Backend, f"_on_{name}", started)
    assert list(Backend(name, jobs=2).compute([])) == []


@pytest.mark.parametrize(("name", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_cluster_without_its_package_says_what_to_install(
    name: BackendName, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=r"levelport-lab\[cluster\]"):
        list(Backend(name).compute(sweep(1, 0.0)))


def test_dask_cluster_without_workers_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(backends, "_PATIENCE", 1)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        pytest.raises(WorkerLostError, match="no worker has joined"),
    ):
        list(Backend("dask", address=cluster.scheduler_address).compute(sweep(1, 0.0)))


def test_backend_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="Choose from"):
        Backend("spark")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        Backend(jobs=0)
    with pytest.raises(ValueError, match=r"jobs must be at most \d+ on this machine, not 99999999999"):
        Backend(jobs=99999999999)
    with pytest.raises(ValueError, match="this machine only"):
        Backend(address="tcp://10.0.0.1:8786")


def test_forecast_weighs_tasks_by_their_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    heavy, light = Squares(1, pause=9.999), Squares(2, pause=0.999)
    progress = ConsoleProgress(Console(file=StringIO()), "squares")
    with progress.running([heavy, light, light]):
        now[0] += 30.0
        progress.finished(heavy, failed=True)
        # 10 of 12 units took 30 s: the last two units need 6 s.
        assert progress.line() == "1/3, 2.0/min, 1 failed, 0:00:06 left"


def test_plan_forecast_is_corrected_by_what_really_happened(tmp_path: Path) -> None:
    store = Store(tmp_path)
    specs = sweep(10, 0.999)
    for spec in specs[:5]:
        store.put(spec, Squares(1).run(), 3.0, {})
    assert Plan.of(specs, store).rough_seconds(jobs=2) == pytest.approx(7.5)


@pytest.mark.parametrize("terminal", [True, False])
def test_console_shows_the_end(tmp_path: Path, terminal: bool) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    store = Store(tmp_path)
    specs = [*sweep(3, 0.0), Squares(1, fails=True)]
    run_plan(Plan.of(specs, store), store, Backend(), ConsoleProgress(console, "squares"))
    assert "4/4" in out.getvalue()
    assert "1 failed" in out.getvalue()


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (80, "80 s"), (600, "10 min"), (7200, "2.0 h")])
def test_durations_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="a switch of GNU's C library"
)
def test_workers_keep_the_memory_that_tensors_leave() -> None:
    """The C library says what it keeps: 50 MB of free blocks with the switch, next to nothing without it."""
    code = (
        "import ctypes, torch\n"
        "from arithmetic import Squares\n"
        "from levelport_lab.engine.backends import execute\n"
        "class Info(ctypes.Structure):\n"
        "    _fields_ = [(name, ctypes.c_size_t) for name in 'a b c d e f g used free h'.split()]\n"
        "library = ctypes.CDLL(None)\n"
        "library.mallinfo2.restype = Info\n"
        "def kept():\n"
        "    tensors = [torch.ones(2**17, dtype=torch.float64) for _ in range(50)]\n"
        "    del tensors\n"
        "    return library.mallinfo2().free\n"
        "before = kept()\n"
        "execute(Squares(1))\n"
        "print(before, kept())\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=SCRIPT.parent, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.splitlines()[-1].split())
    assert before < 25 * 2**20
    assert after >= 50 * 2**20


@pytest.mark.parametrize("first", ["", "import torch"])
def test_torch_computes_on_one_thread(first: str) -> None:
    """Whether it is loaded before the task or by it."""
    code = (
        f"{first}\n"
        "import sys\n"
        "from arithmetic import Squares\n"
        "from levelport_lab.engine.backends import execute\n"
        "class Importing(Squares):\n"
        "    def run(self):\n"
        "        print('torch' in sys.modules)\n"
        "        import torch\n"
        "        print(torch.get_num_threads())\n"
        "        return super().run()\n"
        "execute(Importing(1))\n"
    )
    command, environment = [sys.executable, "-c", code], {**os.environ, "OMP_NUM_THREADS": "3"}
    done = subprocess.run(command, cwd=SCRIPT.parent, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split()[:2] == [str(bool(first)), "1"]
