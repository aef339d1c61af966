"""Many teleports leave nothing behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import psutil
import torch
import torch.nn.functional as F
from tests.cases import labelled_data, network_loss, network_start
from torch import Tensor, nn

from levelport import LinearObjective, ModuleObjective, teleport
from levelport.solvers import Auto


def live_tensors() -> int:
    """Tensors that the garbage collector knows of."""
    gc.collect()
    return sum(1 for thing in gc.get_objects() if type(thing) in (Tensor, nn.Parameter))


def resident() -> int:
    """Bytes of memory of this process."""
    return psutil.Process(os.getpid()).memory_info().rss


def assert_flat(once: Callable[[], object], times: int) -> None:
    """A leak grows in every round; pages that the system takes away and brings back, in some."""
    for _ in range(30):
        once()
    growth = []
    while not growth or (growth[-1] >= 4 * 2**20 and len(growth) < 5):
        tensors, memory = live_tensors(), resident()
        for _ in range(times):
            once()
        assert live_tensors() <= tensors
        growth.append(resident() - memory)
    assert min(growth) < 4 * 2**20


def test_functions_leave_nothing_behind() -> None:
    """A kept graph of this function holds 320 kB, so a hundred would be 32 MB."""
    base = torch.linspace(0.5, 2, 40000, dtype=torch.float64)

    def fun(w: Tensor) -> Tensor:
        return (base * w.sum()).square().mean() + (w**4).sum()

    start = torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)
    assert_flat(lambda: teleport(fun, start, Auto(max_hvps=3)), times=100)


def test_results_hold_no_graph() -> None:
    """Keeping results, for plots, keeps numbers only."""
    tensors = live_tensors()
    results = [teleport(network_loss(torch.relu), network_start(), Auto(max_hvps=6)) for _ in range(20)]
    assert live_tensors() - tensors <= 2 * len(results) + 2  # each x is a view of a flat vector


def test_modules_leave_nothing_behind() -> None:
    X, y = labelled_data()
    module = nn.Sequential(nn.Linear(8, 5), nn.Softplus(), nn.Linear(5, 1)).double()
    targets = (y > 0).double().unsqueeze(1)
    for chunk in (None, 25):
        objective = ModuleObjective(module, F.binary_cross_entropy_with_logits, X, targets, chunk_size=chunk)
        start = objective.initial_point()

        def once(objective: ModuleObjective = objective, start: Tensor = start) -> None:
            teleport(objective, start, Auto(max_hvps=2))

        assert_flat(once, times=60)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_data_with_requires_grad_make_no_graphs() -> None:
    """Closed forms are computed from the data outright, so their results would hang on them."""
    X, y = labelled_data(30, 4, seed=0)
    plain, tracked = (LinearObjective.logistic(data, y, penalty=1e-3) for data in (X, X.clone().requires_grad_()))
    start = torch.ones(4, dtype=torch.float64)
    point = tracked.at(start)
    assert not point.hvp(point.gradient).requires_grad
    torch.testing.assert_close(teleport(tracked, start).x, teleport(plain, start).x)
