"""Processor time of a step of ``Teleported`` where no teleport is due, over that of an empty delegating optimizer.

    python tools/step_overhead.py

The four small models of the mini-batch study with batches of 64, one thread. The optimizers take turns of ten steps; a
ratio is that of the medians over all turns, so that other work on the machine falls out. *never* has no teleport left,
*fixed* one that is far away, *adaptive* the default schedule, which declines. *empty again* is a second empty
optimizer: how far its ratio is from 1 tells how far the others can be trusted.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from levelport import Every, Never, Teleported, Teleporter
from minibatch_tasks import BATCH, TASKS

STEPS = 10
SCHEDULES = {"never": Never(), "fixed": Every(10**6, start=10**6), "adaptive": None}
ARMS = ("empty", "empty again", *SCHEDULES)


class Delegating(torch.optim.Optimizer):
    """Hands every step on and does nothing else."""

    def __init__(self, wrapped: torch.optim.Optimizer) -> None:
        super().__init__(wrapped.param_groups, wrapped.defaults)
        self.wrapped = wrapped

    def step(self, closure: Any = None) -> Any:
        """Take the step of the wrapped optimizer."""
        return self.wrapped.step(closure)


def seconds(take: Callable[[], object]) -> float:
    """Processor time of a step."""
    began = time.thread_time()
    for _ in range(STEPS):
        take()
    return (time.thread_time() - began) / STEPS


def main() -> None:
    """Print a row per model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--models", nargs="*", default=list(TASKS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in options.models:
        task = TASKS[name]
        inputs, targets = task.data()
        batches = itertools.cycle(
            list(zip(inputs[: 20 * BATCH].split(BATCH), targets[: 20 * BATCH].split(BATCH), strict=True))
        )
        arms: dict[str, Callable[[], object]] = {}
        teleporters: list[Teleporter] = []
        for arm in ARMS:
            torch.manual_seed(0)
            model = task.model()
            sgd = torch.optim.SGD(model.parameters(), lr=0.05)

            def loss(model: nn.Module = model, batches: Iterator[tuple[Tensor, Tensor]] = batches) -> Tensor:
                x, y = next(batches)
                return nn.functional.cross_entropy(model(x), y)

            if arm.startswith("empty"):
                plain = Delegating(sgd)

                def closure(plain: Delegating = plain, loss: Callable[[], Tensor] = loss) -> Tensor:
                    plain.zero_grad()
                    value = loss()
                    value.backward()
                    return value

                arms[arm] = lambda plain=plain, closure=closure: plain.step(closure)  # type: ignore[misc]
            else:
                optimizer = Teleported(sgd, SCHEDULES[arm])
                teleporters.append(optimizer.teleporter)
                arms[arm] = lambda optimizer=optimizer, loss=loss: optimizer.step(loss)  # type: ignore[misc]
        times: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for turn in range(options.turns + 1):
            for arm in random.sample(ARMS, len(ARMS)):  # no arm always follows the same one
                times[arm].append(seconds(arms[arm]))
            if turn == 0:
                times = {arm: [] for arm in ARMS}  # a warm-up
        medians = {arm: statistics.median(row) for arm, row in times.items()}
        ratios = ", ".join(f"{arm} {medians[arm] / medians['empty']:.3f}" for arm in ARMS[1:])
        trials = sum(teleporter.policy.counts["trials"] for teleporter in teleporters)
        print(f"{name:24} empty {1e6 * medians['empty']:6.0f} µs, {ratios}, {trials} trials", flush=True)


if __name__ == "__main__":
    main()
