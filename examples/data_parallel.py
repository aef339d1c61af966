"""Data parallel: every process holds a shard of the data, and all of them teleport to the same point.

    torchrun --nproc-per-node 2 examples/data_parallel.py

DistributedDataParallel synchronises gradients, but not Hessian-vector products. So losses call the plain module, and
DistributedObjective adds f, g and Hv up over the processes.
"""

from __future__ import annotations

import functools
from datetime import timedelta

import torch
import torch.distributed as dist
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

from levelport.objectives.distributed import DistributedObjective
from levelport.optim import Never, Teleported
from levelport.solvers import Krylov


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    features, classes = load_breast_cancer(return_X_y=True)
    X = torch.tensor((features - features.mean(0)) / features.std(0))[rank::ranks]  # this rank's shard
    y = torch.tensor(2.0 * classes - 1.0)[rank::ranks]

    torch.manual_seed(0)  # the same start on every rank
    model = nn.Sequential(nn.Linear(30, 8), nn.Softplus(), nn.Linear(8, 1)).double()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = Teleported(
        torch.optim.SGD(model.parameters(), lr=0.5),
        schedule=Never(),
        solver=Krylov(max_hvps=10),
        distribute=functools.partial(DistributedObjective, samples=len(X)),
    )

    def loss_of(network: nn.Module) -> Tensor:
        return nn.functional.softplus(-y * network(X).squeeze(1)).mean()

    for iteration in range(30):
        optimizer.step(lambda: loss_of(parallel))  # DDP averages the gradients
        if iteration % 10 == 9:
            result = optimizer.teleport(lambda: loss_of(model))  # the plain module
            if rank == 0:
                print(f"step {iteration}: f = {result.value_after:.6f}, gradient norm x {result.gain:.2f}", flush=True)

    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    theirs = mine.clone()
    dist.broadcast(theirs, src=0)
    print(f"rank {rank}: {'the same' if torch.equal(mine, theirs) else 'another'} point as rank 0", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
