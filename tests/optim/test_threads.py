"""Teleports in several threads, interrupts, and objectives that share parameters."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from levelport import Batches, Every, Krylov, Never, Teleported, Teleporter
from levelport.objectives.isolation import finish, recover
from levelport.objectives.parameters import ParametersObjective


def normalised(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1))
    return model, torch.randn(32, 4), torch.randn(32, 1)


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int = 12) -> None:
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = Teleported(sgd, Every(2), solver=Krylov(max_hvps=4), noise="replay")
    for _ in range(steps):
        optimizer.step(lambda: (model(x) - y).square().mean())


def test_threads_train_as_they_do_alone() -> None:
    """BatchNorm statistics of three threads, and of a fourth that only evaluates, are those of separate runs."""
    alone = []
    for seed in range(3):
        model, x, y = normalised(seed)
        train(model, x, y)
        alone.append(copy.deepcopy(model.state_dict()))
    flash = torch.backends.cuda.flash_sdp_enabled()
    other, inputs = nn.BatchNorm1d(4), torch.randn(8, 4)
    going = [normalised(seed) for seed in range(3)]
    threads = [threading.Thread(target=train, args=parts) for parts in going]
    calls = 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        other(inputs)
        calls += 1
    for thread in threads:
        thread.join()
    assert other.num_batches_tracked is not None
    assert int(other.num_batches_tracked) == calls
    for expected, (model, _, _) in zip(alone, going, strict=True):
        for name, value in model.state_dict().items():
            torch.testing.assert_close(value, expected[name])
    assert not hooks._global_forward_pre_hooks
    assert not hooks._global_forward_hooks
    assert torch.backends.cuda.flash_sdp_enabled() is flash


def interrupted_at(count: int, action: Callable[[], object]) -> bool:
    """Whether a ``KeyboardInterrupt`` at the line of that number inside isolation.py came through ``action``."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith("isolation.py"):
            return None
        lines += event == "line"
        if event == "line" and lines == count:
            raise KeyboardInterrupt
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(earlier)
    return False


@pytest.mark.parametrize("first", range(1, 8))
def test_an_interrupt_leaves_nothing_behind(first: int) -> None:
    """At the latest the next call puts buffers and hooks back; parameters are back at once."""
    hits = 0
    for count in range(first, 420, 35):
        model, x, y = normalised(0)
        teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=0.01), Never(), noise="replay")
        before, buffers = copy.deepcopy(model.state_dict()), list(model.buffers())

        def loss(model: nn.Module = model, x: Tensor = x, y: Tensor = y) -> Tensor:
            return (model(x) - y).square().mean()

        hits += interrupted_at(count, partial(teleporter.teleport, loss))
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, before[name]), (count, name)
        recover()
        assert all(now is then for now, then in zip(model.buffers(), buffers, strict=True)), count
        assert not hooks._global_forward_pre_hooks, count
        assert not hooks._global_forward_hooks, count
    assert hits > 5


def test_finish_runs_everything_before_an_interrupt_goes_on() -> None:
    done: list[str] = []

    def interrupted() -> None:
        done.append("first")
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish([interrupted, lambda: done.append("second")])
    assert done == ["first", "first", "second"]


def test_two_objectives_over_the_same_parameters() -> None:
    """Each evaluates where its points are, also where the other one has written since."""
    weight = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    x = torch.eye(2, dtype=torch.float64)

    def loss(row: Tensor) -> Tensor:
        return ((row @ weight).square() * 1.5).sum()

    objectives = [ParametersObjective([weight], Batches(loss, [(x[:1],), (x[1:],)])) for _ in range(2)]
    here, there = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([-3.0, 0.5], dtype=torch.float64)
    first, second = objectives[0].at(here), objectives[1].at(there)
    assert first.value == pytest.approx(0.5 * 1.5 * 5.0)
    assert second.value == pytest.approx(0.5 * 1.5 * 9.25)
    assert torch.allclose(first.gradient, 1.5 * here)
    assert torch.allclose(second.gradient, 1.5 * there)
    assert torch.allclose(first.hvp(there), 1.5 * there)
