"""Data parallel: two processes find what one finds, agree bit for bit, and do not wait for the dead."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import data_parallel_worker as worker
import pytest
import torch
import torch.distributed as dist

from levelport import ObjectiveError, teleport
from levelport.objectives import FunctionObjective, LinearObjective, distributed
from levelport.objectives.distributed import DistributedObjective
from levelport.objectives.parameters import ParametersObjective
from levelport.optim import At, Never, Teleported, Teleporter
from levelport.solvers import Krylov

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(task: str, out: Path, ranks: int = 2) -> list[subprocess.Popen[str]]:
    port = str(free_port())
    return [
        subprocess.Popen(
            [sys.executable, "-W", "error::UserWarning", str(HERE / "data_parallel_worker.py"), task, str(out)],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "OMP_NUM_THREADS": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


Findings = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """What either rank found; both are started once for all tests."""
    out = tmp_path_factory.mktemp("ranks")
    processes = launch("everything", out)
    outputs = [process.communicate(timeout=600) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return [torch.load(out / f"{rank}.pt") for rank in range(2)]


def test_minimize_equals_one_process_and_ranks_agree_in_bits(ranks: Findings) -> None:
    first, second = (rank["minimize"] for rank in ranks)
    assert torch.equal(first, second)
    X, y = worker.data()
    alone = worker.run_minimize(LinearObjective.logistic(X, y, penalty=1e-4))
    torch.testing.assert_close(first[:-1], alone[:-1], rtol=1e-9, atol=1e-9)
    # The cost, in gradient equivalents: another order of summation changes last bits of f, and those a decision or two.
    costs = [float(worker.run_minimize(shuffled(X, y, seed))[-1]) for seed in range(6)]
    costs.append(float(alone[-1]))
    spread = max(max(costs) - min(costs), 3.0)
    assert min(costs) - spread <= float(first[-1]) <= max(costs) + spread


def shuffled(X: torch.Tensor, y: torch.Tensor, seed: int) -> LinearObjective:
    """The same f, summed in another order."""
    rows = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    return LinearObjective.logistic(X[rows], y[rows], penalty=1e-4)


def test_one_rank_is_one_process_in_bits_and_evaluations(tmp_path: Path) -> None:
    (process,) = launch("minimize", tmp_path, ranks=1)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    alone = worker.run_minimize(LinearObjective.logistic(*worker.data(), penalty=1e-4))
    assert torch.equal(torch.load(tmp_path / "0.pt"), alone)


def test_teleport_of_a_network_equals_one_process(ranks: Findings) -> None:
    first, second = (rank["teleport"] for rank in ranks)
    assert torch.equal(first, second)
    network, loss = worker.network_setting(slice(0, worker.ROWS))
    objective = ParametersObjective(network.parameters(), loss)
    alone = worker.run_teleport(objective, objective.current())
    # Sums in another order; the path amplifies last bits.
    torch.testing.assert_close(first, alone, rtol=1e-5, atol=1e-7)


def test_teleported_optimizers_move_all_ranks_alike(ranks: Findings) -> None:
    first, second = (rank["optimizer"] for rank in ranks)
    assert torch.equal(first, second)
    network, loss = worker.network_setting(slice(0, worker.ROWS))
    before = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    Teleported(torch.optim.SGD(network.parameters(), lr=0.0), Never(), solver=Krylov(max_hvps=10)).teleport(loss)
    alone = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    torch.testing.assert_close(first, alone, rtol=1e-6, atol=1e-7)  # Krylov directions magnify roundings
    assert float((alone - before).norm()) > 1e-3


@pytest.mark.parametrize("schedule", ["every", "watching"])
def test_wrapped_modules_teleport_and_no_rank_drifts(ranks: Findings, schedule: str) -> None:
    assert torch.equal(ranks[0][schedule], ranks[1][schedule])
    assert torch.equal(ranks[0][f"{schedule} teleports"], ranks[1][f"{schedule} teleports"])
    assert int(ranks[0][f"{schedule} teleports"][0]) >= 1


def test_without_an_argument_ranks_weigh_the_same_as_in_ddp(ranks: Findings) -> None:
    first, second = (rank["equal weights"] for rank in ranks)
    assert torch.equal(first, second)
    network, _ = worker.network_setting(slice(0, worker.ROWS))
    X, y = worker.data()

    def loss() -> torch.Tensor:
        terms = torch.nn.functional.softplus(-y * network(X).squeeze(1))
        return 0.5 * terms[worker.shard(0, 2)].mean() + 0.5 * terms[worker.shard(1, 2)].mean()

    Teleporter(torch.optim.SGD(network.parameters(), lr=0.0), Never(), solver=Krylov(max_hvps=6)).teleport(loss)
    alone = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    torch.testing.assert_close(first, alone, rtol=1e-6, atol=1e-7)


def test_a_model_per_rank_is_refused_with_the_remedy(ranks: Findings) -> None:
    for rank in ranks:
        assert "1 of the 2 ranks hold other parameters than rank 0" in rank["a model per rank"]
        assert "distribute=lambda objective: objective" in rank["a model per rank"]


def test_nan_parameters_on_all_ranks_get_a_status(ranks: Findings) -> None:
    assert [rank["nan"] for rank in ranks] == ["2 NON_FINITE_START"] * 2


def test_weights_of_one_rank_end_the_watch_of_all(ranks: Findings) -> None:
    assert [rank["watch"] for rank in ranks] == ["True False 0"] * 2


def test_shards_of_different_width_are_refused(ranks: Findings) -> None:
    assert [rank["dimensions"].split()[-1] for rank in ranks] == ["5.", "6."]


@pytest.fixture
def two_ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    processes = launch("wait", tmp_path)
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_losing_a_rank_ends_the_others_with_an_error(
    two_ranks: list[subprocess.Popen[str]], how: signal.Signals
) -> None:
    """A rank that dies is noticed while the others wait for it; one that hangs, when the timeout has passed."""
    survivor, victim = two_ranks
    for process in two_ranks:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
    if how is signal.SIGSTOP:
        victim.send_signal(how)
    assert survivor.stdin is not None
    assert survivor.stdout is not None
    assert survivor.stderr is not None
    print(1 if how is signal.SIGSTOP else 600, file=survivor.stdin, flush=True)
    assert survivor.stdout.readline().strip() == "waiting"
    if how is signal.SIGKILL:
        victim.send_signal(how)
    errors = iter(survivor.stderr.readline, "")
    assert any("rank 0 lost contact with another rank" in line for line in errors)
    # gloo holds on to a peer that hangs until the group's own timeout; the error has been raised before that.
    victim.kill()
    survivor.communicate(timeout=600)
    assert survivor.returncode not in (0, None)


def test_without_a_process_group_the_remedy_is_named() -> None:
    X, y = worker.data()
    with pytest.raises(ObjectiveError, match="torchrun"):
        DistributedObjective(LinearObjective.logistic(X, y), samples=len(X))


@pytest.mark.parametrize("apart", [0, 1])
def test_dimensions_differ_in_the_last_digit_on_every_rank(monkeypatch: pytest.MonkeyPatch, apart: int) -> None:
    """The first of three ranks, where the second has the same dimension and the third has ``apart`` more."""
    dimension = 110_000_001

    def three_ranks(self: DistributedObjective, tensor: torch.Tensor) -> torch.Tensor:
        return tensor + apart if tensor.is_floating_point() else 3 * tensor

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(DistributedObjective, "broadcast", lambda self, x: x)
    monkeypatch.setattr(DistributedObjective, "sum", three_ranks)
    local = FunctionObjective(lambda x: x.sum(), like=torch.zeros(1))
    local.dimension = dimension
    if apart:
        with pytest.raises(ObjectiveError, match="disagree about the dimension"):
            DistributedObjective(local, samples=5)
    else:
        assert DistributedObjective(local, samples=5).samples == 15


def test_messages_are_on_the_device_of_the_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL sends nothing else; here the device without data stands for a GPU."""
    sent: list[str] = []

    def summed(self: DistributedObjective, tensor: torch.Tensor) -> torch.Tensor:
        sent.append(tensor.device.type)
        return torch.ones((), dtype=tensor.dtype)

    apart = DistributedObjective.apart
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(DistributedObjective, "sum", summed)
    monkeypatch.setattr(DistributedObjective, "broadcast", lambda self, x: x)
    monkeypatch.setattr(DistributedObjective, "apart", lambda self, here: sent.append(here.device.type))
    local = FunctionObjective(lambda x: x.sum(), like=torch.zeros(3))
    local.device = torch.device("meta")
    apart(DistributedObjective(local, samples=5), torch.zeros(3))
    assert sent == ["meta"] * 3


@pytest.mark.parametrize("answers", [True, False])
def test_messages_stay_within_the_group(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    """Its first rank is 7 among all, where others are at work; and nobody is waited for longer than was asked."""
    group, seen, timeout = Any, [], timedelta(seconds=3)

    class Work:
        def wait(self, timeout: timedelta) -> bool:
            seen.append(timeout)
            return answers

    def sent(tensor: torch.Tensor, *, group: Any = None, async_op: bool = False, src: int | None = None) -> Work:
        assert async_op
        seen.append((group, src))
        return Work()

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "all_reduce", sent)
    monkeypatch.setattr(dist, "broadcast", sent)
    monkeypatch.setattr(dist, "get_rank", lambda asked=None: 4 if asked is group else 0)
    monkeypatch.setattr(dist, "get_global_rank", lambda asked, rank: 7 + rank if asked is group else rank)
    local = FunctionObjective(lambda x: x.square().sum(), like=torch.ones(3))

    def work() -> None:
        objective = DistributedObjective(local, samples=5, group=group, timeout=timeout)
        point = objective.at(torch.ones(3), curvature=True)
        assert (point.value, point.gradient.tolist(), point.hvp(point.x).tolist()) == (3.0, [2.0] * 3, [2.0] * 3)

    if answers:
        work()
        assert seen[::2] == [(group, None), (group, 7), (group, None), (group, None), (group, None), (group, None)]
        assert seen[1::2] == [timeout] * 6
    else:
        with pytest.raises(RuntimeError, match=r"rank 4 lost contact .*at most 3 s"):
            work()


def test_one_rank_differentiates_as_often_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products differentiate the gradient that is known at their point."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(DistributedObjective, "broadcast", lambda self, x: x)
    monkeypatch.setattr(DistributedObjective, "sum", lambda self, tensor: tensor)
    start, passes = torch.linspace(1.0, 2.0, 5, dtype=torch.float64), [0, 0]
    for ranks in (0, 1):

        def f(x: torch.Tensor, ranks: int = ranks) -> torch.Tensor:
            if x.requires_grad:
                x.register_hook(lambda gradient: passes.__setitem__(ranks, passes[ranks] + 1))
            return (x**4).sum() + x.prod()

        local = FunctionObjective(f, like=start)
        teleport(DistributedObjective(local, samples=5) if ranks else local, start)
    assert passes[0] == passes[1] > 10


def test_a_rank_whose_loss_is_no_number_takes_part_in_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr(distributed, "ranks", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda total: seen.append(float(total)))
    assert math.isnan(distributed.agreed(math.nan, torch.device("cpu")))
    assert len(seen) == 1


@pytest.mark.parametrize("distribute", [None, lambda objective: objective])
def test_losses_are_averaged_unless_the_user_distributes(monkeypatch: pytest.MonkeyPatch, distribute: Any) -> None:
    """Two ranks, the other one with a loss that is higher by 2; who distributes asks for a model per rank."""
    seen, weight = list[float](), torch.nn.Parameter(torch.ones(2))
    monkeypatch.setattr("levelport.optim.teleporter.ranks", lambda: 2)
    monkeypatch.setattr("levelport.optim.teleporter.agreed", lambda value, device: value + 1.0)
    teleporter = Teleporter(torch.optim.SGD([weight], lr=0.1), At(30), distribute=distribute)
    monkeypatch.setattr(teleporter.policy, "due", lambda step, value, cost: bool(seen.append(value)))
    teleporter.teleport_if_due(lambda: weight.sum(), 5.0)
    assert seen == [6.0 if distribute is None else 5.0]
