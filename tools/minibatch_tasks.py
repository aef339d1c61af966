"""Do teleports help training with mini-batches? Four tasks, plain SGD against SGD with teleports on a fixed sample.

Tasks: a multilayer perceptron and a small convolutional network on MNIST, a character transformer on the source of
Python's own library, a network on spambase. Arms: SGD alone; with the default schedule on the loss of the step; with
the default schedule and ``teleport_on`` eight fixed batches; with teleports every 50 steps on these. All arms see the
same batches in the same order; the step size is the best of a grid for SGD alone.

Every arm is charged by what it evaluates, in gradients of one batch, and compared by the mean loss of 20 fixed batches
that is held out, at the same cost. ``python tools/minibatch_tasks.py`` prints a row per run.
"""

from __future__ import annotations

import argparse
import math
import sysconfig
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from levelport import Batches, Every, Never, Teleported
from levelport.optim import Schedule
from levelport_lab.problems.datasets import load_data

BATCH, COST, HELD_OUT, FIXED = 64, 1000.0, 20, 8
"""Samples of a batch, gradients of a run, held-out batches, and fixed batches of ``teleport_on``."""
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
SEEDS = range(300, 303)
"""Fixed before the first run."""
CONTEXT = 32

Arm = tuple[Schedule | None, bool]
ARMS: dict[str, Arm] = {
    "SGD": (Never(), False),
    "default": (None, False),
    "default on a fixed sample": (None, True),
    "every 50 on a fixed sample": (Every(50, start=50), True),
}
"""The schedule, and whether teleports work on the fixed sample."""


@dataclass(frozen=True)
class Task:
    """A model and its data: inputs, targets and the loss of a batch."""

    model: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, Tensor]]


class Transformer(nn.Module):
    """Two layers with causal attention over characters."""

    def __init__(self, characters: int = 97, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, width)
        self.place = nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, characters)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        logits: Tensor = self.out(self.layers(self.embed(x) + self.place, mask=mask, is_causal=True))
        return logits.transpose(1, 2)


def _images() -> tuple[Tensor, Tensor]:
    data = load_data("mnist")
    return torch.tensor(data.X[:20_000], dtype=torch.float32), torch.tensor(data.y[:20_000]).long()


def _source() -> tuple[Tensor, Tensor]:
    """Windows of 33 characters: all but the last predict the next one."""
    library = Path(sysconfig.get_paths()["stdlib"])
    names = ("argparse", "ast", "decimal", "difflib", "inspect", "pathlib", "tarfile", "typing")
    text = "".join((library / f"{name}.py").read_text(encoding="utf-8") for name in names if name != "decimal")
    codes = torch.tensor([min(max(ord(c) - 31, 0), 96) for c in text])
    windows = codes[: len(codes) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
    return windows[:, :-1], windows[:, 1:]


def _spam() -> tuple[Tensor, Tensor]:
    data = load_data("spambase")
    X = torch.tensor(data.X, dtype=torch.float32)
    return (X - X.mean(0)) / X.std(0).clamp_min(1e-6), torch.tensor(data.y > 0).long()


TASKS = {
    "MLP on MNIST": Task(
        lambda: nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), _images
    ),
    "CNN on MNIST": Task(
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 8, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(400, 10),
        ),
        _images,
    ),
    "character transformer": Task(Transformer, _source),
    "network on spambase": Task(lambda: nn.Sequential(nn.Linear(57, 32), nn.Tanh(), nn.Linear(32, 2)), _spam),
}


@dataclass(frozen=True)
class Outcome:
    """What a run came to: held-out loss, steps, trials, moves, undone moves, share of the cost, processor seconds."""

    loss: float
    steps: int
    trials: int
    moves: int
    undone: int
    share: float
    seconds: float


def train(task: Task, arm: Arm, lr: float, seed: int, cost: float = COST) -> Outcome:
    """One run until its evaluations have cost ``cost`` gradients of a batch."""
    torch.manual_seed(seed)
    inputs, targets = task.data()
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    inputs, targets = inputs[order], targets[order]
    model = task.model()

    def loss_on(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x), y)

    def batches(first: int, count: int) -> list[tuple[Tensor, Tensor]]:
        rows = [slice((first + k) * BATCH, (first + k + 1) * BATCH) for k in range(count)]
        return [(inputs[row], targets[row]) for row in rows]

    held_out, fixed = batches(0, HELD_OUT), batches(HELD_OUT, FIXED)
    training = batches(HELD_OUT, len(inputs) // BATCH - HELD_OUT)
    schedule, on_fixed = arm
    sgd = torch.optim.SGD(model.parameters(), lr=lr)
    optimizer = Teleported(sgd, schedule, teleport_on=Batches(loss_on, fixed) if on_fixed else None)
    began = time.process_time()
    while optimizer.teleporter.spent < cost:
        x, y = training[optimizer.iteration % len(training)]
        loss = optimizer.step(lambda x=x, y=y: loss_on(x, y))  # type: ignore[misc]
        if not math.isfinite(float(loss)):
            break
    seconds, policy = time.process_time() - began, optimizer.teleporter.policy
    with torch.no_grad():
        final = sum(float(loss_on(x, y)) for x, y in held_out) / HELD_OUT
    return Outcome(
        final if math.isfinite(final) else math.inf,
        optimizer.iteration,
        policy.counts["trials"],
        optimizer.teleporter.moves,
        optimizer.teleporter.undone,
        policy.cost / optimizer.teleporter.spent,
        seconds,
    )


def main() -> None:
    """Tune SGD alone on a seed of its own, then run every arm on the fresh seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print("task,lr,arm,seed,loss,ratio,steps,trials,moves,undone,share,seconds_per_step", flush=True)
    for name in chosen.tasks:
        task = TASKS[name]
        lr = min(RATES, key=lambda lr: train(task, ARMS["SGD"], lr, seed=299, cost=0.5 * COST).loss)
        for seed in SEEDS[: chosen.seeds]:
            plain = math.nan
            for label, arm in ARMS.items():
                found = train(task, arm, lr, seed)
                plain = found.loss if label == "SGD" else plain
                numbers = f"{found.loss:.5f},{found.loss / plain:.4f},{found.steps},{found.trials},{found.moves}"
                rest = f"{found.undone},{found.share:.3f},{found.seconds / found.steps:.6f}"
                print(f"{name},{lr},{label},{seed},{numbers},{rest}", flush=True)


if __name__ == "__main__":
    main()
