"""Data parallel: f is a mean over samples, every process holds a shard of them, and the sums go over the network.

With n_r samples on rank r, n = Σ_r n_r, and f_r the mean over the shard of rank r,

    f(x) = Σ_r (n_r/n) f_r(x),   ∇f(x) = Σ_r (n_r/n) ∇f_r(x),   ∇²f(x) v = Σ_r (n_r/n) ∇²f_r(x) v.

All three are all-reduced, so every rank sees the same numbers, takes the same decisions and ends at the same
point, bit for bit. A penalty on x belongs into every local objective: the weights sum to one. Limits on time would
be read off clocks that differ between ranks: limit the cost instead.

DistributedDataParallel cannot do this: it synchronises gradients, but not gradients of gradients. Where it does the
steps, :func:`data_parallel` does the teleports, with its weights: one per rank, whatever the sizes of the shards.
"""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from levelport.objective import Objective, ObjectiveError, Point, WrappedObjective, WrappedPoint


class DistributedObjective(WrappedObjective):
    """The mean of the ranks' local objectives, weighted by their samples.

    Every rank must make the same calls in the same order, from the same start; :meth:`broadcast` makes it so.

    Args:
        local: the objective over this rank's shard.
        samples: the size of the shard.
        group: the process group; None is the default one.
        timeout: how long a rank waits for the others before it raises an error. If the other rank hangs and did not
            die, the process ends only after the timeout of the process group itself.
    """

    def __init__(
        self,
        local: Objective,
        samples: int,
        *,
        group: dist.ProcessGroup | None = None,
        timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise ObjectiveError(
                "there is no process group. Call torch.distributed.init_process_group('gloo') first and launch the "
                "script with torchrun."
            )
        if samples < 1:
            raise ObjectiveError(f"samples must be at least 1, not {samples}: every rank needs a shard of its own.")
        super().__init__(local)
        self.group = group
        self.timeout = timeout
        self.samples = int(self.sum(torch.tensor(samples, dtype=torch.int64, device=self.device)))
        self.weight = samples / self.samples
        if self.apart(torch.tensor(local.dimension, device=self.device)):
            raise ObjectiveError(f"the ranks disagree about the dimension; here it is {local.dimension}.")

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _DistributedPoint(x, self, self.inner.at(x, curvature=curvature))

    def verify_deterministic(self, point: Point) -> None:
        Objective.verify_deterministic(self, point)  # by the sums, so that all ranks decide alike

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of ``tensor`` over the ranks, in place."""
        return self._wait(dist.all_reduce(tensor, group=self.group, async_op=True), tensor)

    def broadcast(self, x: Tensor) -> Tensor:
        """Rank 0's ``x`` on every rank, in place."""
        source = 0 if self.group is None else dist.get_global_rank(self.group, 0)
        return self._wait(dist.broadcast(x, src=source, group=self.group, async_op=True), x)

    def apart(self, here: Tensor) -> int:
        """The number of ranks where ``here``, of one shape everywhere, differs from rank 0's."""
        first = self.broadcast(here.clone())
        equal = bool(((first == here) | (first.isnan() & here.isnan())).all())  # NaN is a place, too
        return int(self.sum(torch.tensor(float(not equal), device=self.device)))

    def _wait(self, work: dist.Work | None, tensor: Tensor) -> Tensor:
        try:
            if work is not None and not work.wait(self.timeout):
                raise RuntimeError("the collective did not finish")
        except RuntimeError as error:
            rank = dist.get_rank(self.group)
            raise RuntimeError(
                f"rank {rank} lost contact with another rank (waited at most {self.timeout.total_seconds():g} s): that "
                "process died, raised an error or did not make the same calls. Look at its output, then start all "
                "ranks again from the last checkpoint."
            ) from error
        return tensor


class _DistributedPoint(WrappedPoint):
    """The local point's numbers, weighted and summed; all ranks count the same evaluations."""

    def __init__(self, x: Tensor, objective: DistributedObjective, local: Point) -> None:
        super().__init__(x, local)
        self._objective = objective

    def _evaluate_value(self) -> float:
        # In double precision: a line search must not lose the digits that the ranks still have.
        value = torch.tensor(
            self._objective.weight * self.inner.value, dtype=torch.float64, device=self._objective.device
        )
        return float(self._objective.sum(value))

    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        gradient = self._objective.sum(self.inner.gradient * self._objective.weight)
        return (self._value if self._value is not None else self._evaluate_value()), gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        return self._objective.sum(self.inner.hvp(v) * self._objective.weight)


def ranks() -> int:
    """Return the number of processes; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def data_parallel(local: Objective, start: Tensor) -> Objective:
    """The mean of ``local`` over the ranks of the default group; ``local`` itself where there is one rank.

    Raises :class:`ObjectiveError` on every rank if they do not all stand at the same ``start``: then they do not hold
    copies of one model, and a mean over them means nothing.
    """
    if ranks() == 1:
        return local
    objective = DistributedObjective(local, samples=1)
    if apart := objective.apart(start):
        raise ObjectiveError(
            f"{apart} of the {ranks()} ranks hold other parameters than rank 0, so this is no data-parallel training. "
            "Start all ranks from the same parameters (DistributedDataParallel does); where each rank trains a model "
            "of its own, pass distribute=lambda objective: objective."
        )
    return objective


def agreed(value: float, device: torch.device) -> float:
    """The mean of ``value`` over the ranks, the same number on each, so that they decide alike.

    A NaN travels through the sum: a rank that kept it to itself would leave the others waiting.
    """
    if ranks() == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total) / ranks()
