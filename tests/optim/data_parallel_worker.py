"""One rank of the data-parallel tests; the task is the first argument, the directory for its findings the second."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

import levelport
from levelport.objectives import LinearObjective
from levelport.objectives.distributed import DistributedObjective
from levelport.objectives.parameters import ParametersObjective
from levelport.optim import Armijo, At, Every, Never, Teleported, Teleporter, WhileAffordable, minimize
from levelport.solvers import Krylov

ROWS, COLUMNS = 61, 7
PATIENCE = timedelta(seconds=600)


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS, COLUMNS, generator=generator, dtype=torch.float64)
    X *= torch.logspace(0, -1, COLUMNS, dtype=torch.float64)
    y = torch.sign(X @ torch.ones(COLUMNS, dtype=torch.float64) + torch.randn(ROWS, generator=generator))
    return X, y


def shard(rank: int, ranks: int) -> slice:
    """Unequal shards: the first rank has a third of the rows of the second."""
    edges = [0, ROWS // 4, ROWS] if ranks == 2 else [0, ROWS]
    return slice(edges[rank], edges[rank + 1])


def network_setting(rows: slice) -> tuple[nn.Module, Callable[[], Tensor]]:
    torch.manual_seed(4)
    network = nn.Sequential(nn.Linear(COLUMNS, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    X, y = data()
    return network, lambda: nn.functional.softplus(-y[rows] * network(X[rows]).squeeze(1)).mean()


def run_minimize(objective: levelport.Objective) -> Tensor:
    x0 = torch.zeros(COLUMNS, dtype=torch.float64)
    result = minimize(objective, x0, Armijo(), schedule=Every(1), solver="auto", max_iterations=3, gtol=0.0)
    assert isinstance(result.x, Tensor)
    return torch.cat([result.x, torch.tensor([result.value, result.cost.gradient_equivalents], dtype=torch.float64)])


def run_teleport(objective: levelport.Objective, x: Tensor) -> Tensor:
    result = levelport.teleport(objective, x, levelport.Auto(max_hvps=30))
    assert isinstance(result.x, Tensor)
    return torch.cat([result.x, torch.tensor([result.value, result.gradient_norm], dtype=torch.float64)])


def refusal(attempt: Callable[[], object]) -> str:
    """The message with which ``attempt`` is refused."""
    try:
        attempt()
    except levelport.ObjectiveError as error:
        return str(error)
    return ""


def everything(rows: slice, rank: int) -> dict[str, Tensor | str]:
    """What each test looks at; every rank makes the same calls."""
    X, y = data()
    share = functools.partial(DistributedObjective, samples=rows.stop - rows.start)
    found: dict[str, Tensor | str] = {}
    found["minimize"] = run_minimize(share(LinearObjective.logistic(X[rows], y[rows], penalty=1e-4)))

    network, loss = network_setting(rows)
    inner = ParametersObjective(network.parameters(), loss)
    found["teleport"] = run_teleport(share(inner), inner.current())

    network, loss = network_setting(rows)
    optimizer = Teleported(
        torch.optim.SGD(network.parameters(), lr=0.0), Never(), solver=Krylov(max_hvps=10), distribute=share
    )
    optimizer.teleport(loss)
    found["optimizer"] = torch.cat([p.detach().reshape(-1) for p in network.parameters()])

    found |= without_an_argument(rank, rows)

    found["dimensions"] = refusal(lambda: share(LinearObjective.logistic(X[:, : 5 + rank], y)))
    return found


def without_an_argument(rank: int, rows: slice) -> dict[str, Tensor | str]:
    """DistributedDataParallel and no word about it: a schedule in advance, one that watches, a model per rank."""
    found: dict[str, Tensor | str] = {}
    X, y = data()
    for name, schedule in (("every", Every(2)), ("watching", WhileAffordable(rise=1e9, share=1e9, pause=2))):
        network, _ = network_setting(rows)
        network = nn.Sequential(network, nn.BatchNorm1d(1, affine=False, dtype=torch.float64))
        parallel = nn.parallel.DistributedDataParallel(network)
        optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.1), schedule, solver=Krylov(max_hvps=4))
        statistics = network[1].running_mean
        counted: list[int] = []
        optimizer.register_teleport_hook(lambda result, counted=counted: counted.append(result.cost.hvps))  # type: ignore[misc]
        for _ in range(5):
            optimizer.step(lambda net=parallel: nn.functional.softplus(-y[rows] * net(X[rows]).squeeze(1)).mean())
        assert network[1].running_mean is statistics
        assert parallel.require_backward_grad_sync
        found[name] = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
        found[f"{name} teleports"] = torch.tensor([len(counted), sum(counted)])
    # Parameters that are NaN on all ranks are the same parameters, although NaN differs from itself.
    network, _ = network_setting(rows)
    with torch.no_grad():
        next(network.parameters()).fill_(torch.nan)
    parallel = nn.parallel.DistributedDataParallel(network)
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.1), Every(1), solver=Krylov(max_hvps=4))
    for _ in range(2):
        optimizer.step(lambda: nn.functional.softplus(-y[rows] * parallel(X[rows]).squeeze(1)).mean())
    assert optimizer.last_teleport is not None
    found["nan"] = f"{optimizer.iteration} {optimizer.last_teleport.status.name}"
    # Weights written on one rank end the watch on all, or each would wait for what the other does not send.
    network, loss = network_setting(rows)
    teleporter = Teleporter(torch.optim.SGD(network.parameters(), lr=0.0), At(0), solver=Krylov(max_hvps=6))
    teleporter.maybe(loss)
    found["watch"] = str(teleporter.policy.monitor.watching)
    with torch.no_grad():
        next(network.parameters()).mul_(1e3**rank)
    teleporter.maybe(loss)
    found["watch"] += f" {teleporter.policy.monitor.watching} {teleporter.undone}"
    # The mean over the ranks, with equal weights, is what a teleport sees.
    network, loss = network_setting(rows)
    Teleporter(torch.optim.SGD(network.parameters(), lr=0.0), Never(), solver=Krylov(max_hvps=6)).teleport(loss)
    found["equal weights"] = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    with torch.no_grad():
        next(network.parameters()).add_(rank)
    lonely = Teleporter(torch.optim.SGD(network.parameters(), lr=0.0), Never(), solver=Krylov(max_hvps=6))
    found["a model per rank"] = refusal(lambda: lonely.teleport(loss))
    return found


def wait_for_the_end(rows: slice) -> None:
    """Evaluate with the other rank once, then again, with the timeout in seconds that stdin says."""
    X, y = data()
    local = LinearObjective.logistic(X[rows], y[rows])
    objective = DistributedObjective(local, samples=len(X[rows]), timeout=PATIENCE)
    objective.at(torch.zeros(COLUMNS, dtype=torch.float64)).gradient  # noqa: B018
    print("ready", flush=True)
    objective.timeout = timedelta(seconds=float(input()))
    print("waiting", flush=True)
    objective.at(torch.ones(COLUMNS, dtype=torch.float64)).gradient  # noqa: B018


def main() -> None:
    task, out = sys.argv[1], Path(sys.argv[2])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rows = shard(rank, ranks)
    dist.init_process_group("gloo", timeout=PATIENCE)
    if task == "wait":
        wait_for_the_end(rows)
    if task == "minimize":
        X, y = data()
        share = DistributedObjective(LinearObjective.logistic(X[rows], y[rows], penalty=1e-4), samples=len(X[rows]))
        torch.save(run_minimize(share), out / f"{rank}.pt")
    else:
        torch.save(everything(rows, rank), out / f"{rank}.pt")
    dist.barrier()  # gloo aborts where one rank leaves while another still talks to it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)  # everything is written; torch's own threads, torn down with the interpreter, abort now and then
