"""Data parallel: every process holds a shard of the data, and all of them teleport to the same point.

    torchrun --nproc-per-node 2 examples/data_parallel.py

During a teleport values, gradients and Hessian-vector products are averaged over the processes. The shards differ in
size by one sample, so DistributedObjective is told their weights.
"""

from __future__ import annotations

import functools
from datetime import timedelta

import torch
import torch.distributed as dist
from sklearn.datasets import load_breast_cancer
from torch import nn

from levelport import DistributedObjective, Every, Krylov, Teleported, TeleportStep


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    features, classes = load_breast_cancer(return_X_y=True)
    X = torch.tensor((features - features.mean(0)) / features.std(0))[rank::ranks]  # this rank's shard
    y = torch.tensor(2.0 * classes - 1.0)[rank::ranks]

    torch.manual_seed(0)  # the same start on every rank
    network = nn.Sequential(nn.Linear(30, 8), nn.Softplus(), nn.Linear(8, 1)).double()
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = Teleported(
        torch.optim.SGD(model.parameters(), lr=0.5),
        Every(10, start=9),
        solver=Krylov(max_hvps=10),
        distribute=functools.partial(DistributedObjective, samples=len(X)),
    )

    def report(result: TeleportStep) -> None:
        if rank == 0:
            print(f"f = {result.value_after:.6f}, gradient norm x {result.gain:.2f}", flush=True)

    optimizer.register_teleport_hook(report)
    for _ in range(30):
        optimizer.step(lambda: nn.functional.softplus(-y * model(X).squeeze(1)).mean())

    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    theirs = mine.clone()
    dist.broadcast(theirs, src=0)
    print(f"rank {rank}: {'the same' if torch.equal(mine, theirs) else 'another'} point as rank 0", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
