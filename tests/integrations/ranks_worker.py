"""One rank of the tests across processes; the task is the first argument, the directory for its findings the second."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp
from torch import Tensor, nn

from levelport import Every, Never, Teleported, Teleporter
from levelport.solvers import Auto, Krylov


def network(width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))


def shard(rows: int = 32) -> tuple[Tensor, Tensor]:
    """The rows of this rank."""
    x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))[dist.get_rank() :: dist.get_world_size()]
    return x, x.square().sum(dim=1, keepdim=True)


def refusal(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except ValueError as error:
        return str(error)
    return ""


def sharded() -> dict[str, Any]:
    """FSDP2 and tensor parallelism are answered by a sentence; steps without teleports are torch's own affair."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallel = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    nets = {"tensor parallel": parallel}
    if hasattr(torch.distributed.fsdp, "fully_shard"):  # torch 2.6 or later
        torch.distributed.fsdp.fully_shard(split := network(), mesh=mesh)
        nets["fsdp2"] = split
    return {
        name: refusal(lambda net=net: Teleporter(torch.optim.SGD(net.parameters(), lr=0.1), Never()))
        for name, net in nets.items()
    }


def checkpoint(out: Path) -> dict[str, Any]:
    """``torch.distributed.checkpoint`` saves and loads a run in the middle of its schedule, bit for bit."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    x, y = shard()

    def begin() -> tuple[nn.Module, Teleported]:
        net = nn.parallel.DistributedDataParallel(network())
        return net, Teleported(
            torch.optim.Adam(net.parameters(), lr=0.01), Every(3, start=1), solver=Krylov(max_hvps=6)
        )

    def steps(net: nn.Module, optimizer: Teleported, count: int) -> None:
        for _ in range(count):
            optimizer.step(lambda: nn.functional.mse_loss(net(x), y))

    def flat(net: nn.Module) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in net.parameters()])

    whole, optimizer = begin()
    steps(whole, optimizer, 9)
    half, optimizer = begin()
    steps(half, optimizer, 5)
    saved = {"model": get_model_state_dict(half), "optimizer": optimizer.state_dict()}
    dcp.save(saved, checkpoint_id=out / "checkpoint")
    resumed, again = begin()
    steps(resumed, again, 5)  # an optimizer that has stepped has the shape into which a checkpoint is loaded
    into = {"model": get_model_state_dict(resumed), "optimizer": again.state_dict()}
    dcp.load(into, checkpoint_id=out / "checkpoint")
    set_model_state_dict(resumed, into["model"])
    again.load_state_dict(into["optimizer"])
    steps(resumed, again, 4)
    steps(half, optimizer, 4)
    return {
        "whole": flat(whole).tolist(),
        "half": flat(half).tolist(),
        "resumed": flat(resumed).tolist(),
        "iteration": again.iteration,
    }


def cost() -> dict[str, Any]:
    """What one teleport of a model with d parameters evaluates, and how many numbers it sends."""
    sent = {"calls": 0, "bytes": 0}
    reduce, broadcast = dist.all_reduce, dist.broadcast

    def counted(original: Any) -> Any:
        def call(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            sent["calls"] += 1
            sent["bytes"] += tensor.numel() * tensor.element_size()
            return original(tensor, *args, **kwargs)

        return call

    dist.all_reduce, dist.broadcast = counted(reduce), counted(broadcast)
    rows = []
    for width in (64, 1024, 16384):
        net = network(width)
        x, y = shard(256)
        loss = lambda net=net, x=x, y=y: nn.functional.mse_loss(net(x), y)  # noqa: E731
        began = time.perf_counter()
        for _ in range(3):
            torch.autograd.grad(loss(), list(net.parameters()))
        gradient = (time.perf_counter() - began) / 3
        sent.update(calls=0, bytes=0)
        teleporter = Teleporter(torch.optim.SGD(net.parameters(), lr=0.01), Never(), solver=Auto(max_hvps=10))
        result = teleporter.teleport(loss)
        rows.append(
            {
                "parameters": sum(p.numel() for p in net.parameters()),
                "values": result.cost.values,
                "gradients": result.cost.gradients,
                "hvps": result.cost.hvps,
                **sent,
                "seconds over gradient": result.cost.seconds / gradient,
            }
        )
    return {"ranks": dist.get_world_size(), "rows": rows}


def main() -> None:
    task, out = sys.argv[1], Path(sys.argv[2])
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    found = {"sharded": sharded, "checkpoint": lambda: checkpoint(out), "cost": cost}[task]()
    (out / f"{task}-{os.environ['RANK']}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()  # gloo aborts where one rank leaves while another still talks to it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)  # everything is written; torch's own threads, torn down with the interpreter, abort now and then
