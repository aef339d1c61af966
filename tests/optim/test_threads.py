"""Teleports in several threads, interrupts, and objectives that share parameters."""

from __future__ import annotations

import contextlib
import copy
import importlib
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.nn.utils import _named_member_accessor as accessor
from torch.nn.utils import stateless

import levelport
from levelport import Batches, Every, Krylov, Teleported
from levelport.objectives.isolation import grad_mode, recover, restoring
from levelport.objectives.parameters import ParametersObjective


def normalized(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
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
        model, x, y = normalized(seed)
        train(model, x, y)
        alone.append(copy.deepcopy(model.state_dict()))
    flash = torch.backends.cuda.flash_sdp_enabled()
    other, inputs = nn.BatchNorm1d(4), torch.randn(8, 4)
    going = [normalized(seed) for seed in range(3)]
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


Place = tuple[str, int]
LIBRARY = str(Path(levelport.__file__).parent)


FILES = (LIBRARY, contextlib.__file__, stateless.__file__, accessor.__file__)  # the last two: functional_call


def traced(action: Callable[[], object], stop: int = 0) -> list[Place]:
    """The lines of the library that ``action`` passes, with a ``KeyboardInterrupt`` at the one of that number."""
    passed: list[Place] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(FILES):
            return None
        if event == "line":
            passed.append((name, frame.f_lineno))
            if len(passed) == stop:
                raise KeyboardInterrupt
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        assert len(passed) >= stop > 0
    finally:
        sys.settrace(earlier)
    return passed


def about_to_teleport() -> tuple[nn.Module, Teleported, Callable[[], Tensor]]:
    model, x, y = normalized(0)
    weight: Tensor = model[0].weight  # type: ignore[index, assignment]
    weight.register_hook(lambda gradient: 0.5 * gradient)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = Teleported(sgd, Every(1), solver=Krylov(max_hvps=3), noise="replay")
    return model, optimizer, lambda: (model(x) - y).square().mean()


def test_an_interrupt_leaves_nothing_behind() -> None:
    """At the latest the next call puts buffers, hooks and parameters back, wherever the interrupt came."""
    compiler = importlib.import_module("torch._dynamo.eval_frame")  # once it is there, teleports pause it
    model, optimizer, loss = about_to_teleport()
    allowed = [copy.deepcopy(list(model.parameters()))]
    optimizer.wrapped.register_step_pre_hook(lambda *_: allowed.append(copy.deepcopy(list(model.parameters()))))
    passed = traced(lambda: optimizer.step(loss))
    allowed.append(list(model.parameters()))
    numbers: dict[Place, list[int]] = {}
    for number, place in enumerate(passed, start=1):
        numbers.setdefault(place, []).append(number)
    stops = sorted({number for found in numbers.values() for number in (found[0], found[-1])})
    assert len(stops) > 500
    for stop in stops[::5]:
        model, optimizer, loss = about_to_teleport()
        buffers, parameters = list(model.buffers()), list(model.parameters())
        traced(partial(optimizer.step, loss), stop)
        recover()  # what every call begins with
        place = passed[stop - 1]
        assert torch.is_grad_enabled(), place
        assert any(all(map(torch.equal, parameters, point)) for point in allowed), place
        assert all(now is then for now, then in zip(model.buffers(), buffers, strict=True)), place
        assert len(parameters[0]._backward_hooks or ()) == 1, place
        assert not hooks._global_forward_pre_hooks, place
        assert not hooks._global_forward_hooks, place
        assert torch.backends.cuda.flash_sdp_enabled(), place
        assert compiler._stance.stance == "default", place


def write_parameters() -> None:
    weight = nn.Parameter(torch.ones(2))
    ParametersObjective([weight], lambda: weight.sum()).load(torch.zeros(2))


def evaluate_without_graphs() -> None:
    with grad_mode(False):
        assert not torch.is_grad_enabled()


@pytest.mark.parametrize("action", [write_parameters, evaluate_without_graphs])
def test_grad_mode_survives_every_interrupt(action: Callable[[], None]) -> None:
    for stop in range(1, len(traced(action)) + 1):
        traced(action, stop)
        recover()
        assert torch.is_grad_enabled(), stop


def test_interrupted_modules_hold_their_own_tensors() -> None:
    model, x, y = normalized(0)
    objective = levelport.ModuleObjective(model, nn.functional.mse_loss, x, y)
    own = [*model.parameters(), *model.buffers()]

    def evaluate() -> None:
        point = objective.at(2.0 * objective.initial_point())
        point.hvp(point.gradient)

    for stop in range(1, len(traced(evaluate)) + 1):
        traced(evaluate, stop)
        recover()
        assert all(now is then for now, then in zip([*model.parameters(), *model.buffers()], own, strict=True)), stop
        assert not hooks._global_forward_pre_hooks, stop


def test_the_next_verb_finishes_what_an_interrupt_left() -> None:
    start = torch.tensor([1.0, 0.5], dtype=torch.float64)

    def act() -> None:
        levelport.teleport(lambda w: (w**4).sum(), start, Krylov(max_hvps=2))

    passed = traced(act)
    left = 0
    for stop in [number for number, (name, _) in enumerate(passed, start=1) if name.endswith("isolation.py")]:
        traced(act, stop)
        left += not torch.backends.cuda.flash_sdp_enabled()
        act()
        assert torch.backends.cuda.flash_sdp_enabled(), passed[stop - 1]
    assert left > 0


def test_a_verb_in_a_callback_ends_nothing_around_it() -> None:
    start, switches = torch.tensor([1.0, 0.5], dtype=torch.float64), []

    def inside(*_: object) -> None:
        levelport.teleport(lambda w: (w**2).sum(), start)
        switches.append(torch.backends.cuda.flash_sdp_enabled())

    levelport.teleport(lambda w: (w**4).sum(), start, callback=inside)
    assert switches
    assert not any(switches)
    assert torch.backends.cuda.flash_sdp_enabled()


def test_restoring_runs_all_before_an_interrupt_goes_on() -> None:
    done: list[str] = []

    def interrupted() -> None:
        done.append("first")
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), restoring(lambda: done.append("second")), restoring(interrupted):
        pass
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
