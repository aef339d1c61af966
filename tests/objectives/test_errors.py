"""Wrong arguments are answered by a sentence that names the cause and the remedy."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

import levelport
from levelport import (
    Auto,
    LinearObjective,
    ModuleObjective,
    NumpyObjective,
    ObjectiveError,
    Solver,
    Teleported,
    TeleportStatus,
    contour,
    improve,
    interval,
    teleport,
)
from levelport.goals import Norm
from levelport.solvers import Monitor, Outcome, TeleportProblem

X1 = torch.ones(2, dtype=torch.float64)


def square(w: Tensor) -> Tensor:
    return w.square().sum()


class SquareByNumpy(torch.autograd.Function):
    """A backward pass on detached data: its derivative is silently zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square().sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x.detach() * grad.detach()


class SquareOnce(SquareByNumpy):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def check(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(ValueError, match=r".+\.$|.+\)") as raised:
        call()
    message = str(raised.value)
    assert len(message) > 25
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("fun", "words"),
    [
        (lambda w: w, ["shape (2,)", ".mean()"]),
        (lambda w: w.sum().item(), ["float", "tensor"]),
        (lambda w: None, ["NoneType"]),
        (lambda w: {"loss": w.sum()}, ["dict", "output.loss", 'output["loss"]']),
        (lambda w: OrderedDict(loss=w.sum()), ["OrderedDict", "output.loss"]),
        (lambda w: SimpleNamespace(loss=w.sum()), ["SimpleNamespace", "output.loss"]),
        (lambda w: w.sum() + 1j, ["complex"]),
        (lambda w: w.square().sum() * torch.rand(()), ["deterministic", "module.eval()"]),
        (lambda w: F.dropout(w, 0.5).square().sum(), ["deterministic", "dropout"]),
        (SquareByNumpy.apply, ["second derivative", "zero"]),
        (SquareOnce.apply, ["second derivative"]),
        (3, ["fun", "int"]),
    ],
)
def test_losses_that_cannot_be_teleported(fun: Any, words: list[str]) -> None:
    torch.manual_seed(0)
    check(lambda: teleport(fun, torch.tensor([1.0, 2.0], dtype=torch.float64)), *words)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.ones(2), ["ndarray", "torch.as_tensor"]),
        (1.0, ["float"]),
        ([], ["no tensor"]),
        ({}, ["no tensor"]),
        (torch.empty(0), ["no entries"]),
        ([1.0, 2.0], ["float", "tensor"]),
        ({"a": [torch.ones(3)]}, ["tensor 0 of x is a list"]),
        (torch.ones(2, dtype=torch.int64), ["int64", "x.double()"]),
        (torch.ones(2, dtype=torch.complex64), ["complex", "view_as_real"]),
        (torch.eye(2).to_sparse(), ["sparse", "to_dense"]),
        ([torch.ones(2), torch.ones(2, dtype=torch.float64)], ["tensor 1", "float64", "dtype"]),
    ],
)
def test_variables_that_cannot_be_moved(x: Any, words: list[str]) -> None:
    check(lambda: teleport(square, x), *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"solver": "atuo"}, ["atuo", "'auto'"]),
        ({"solver": "quantum"}, ["auto, krylov, sqp"]),
        ({"solver": 3}, ["solver", "int"]),
        ({"solver": Auto}, ["solver", "Auto()"]),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], words: list[str]) -> None:
    check(lambda: teleport(square, X1, **options), *words)


def test_objectives() -> None:
    X, y = torch.ones(3, 2), torch.ones(3)
    check(lambda: LinearObjective.logistic(X, torch.tensor([0.0, 1.0, 1.0])), "-1 or +1", "2*y - 1")
    check(lambda: LinearObjective.logistic(X, torch.ones(2)), "3 rows")
    check(lambda: LinearObjective.squared(torch.ones(3), y), "matrix")
    check(lambda: LinearObjective.squared(X.long(), y.long()), "int64")
    check(lambda: LinearObjective.squared(X, y, penalty=-1.0), "penalty")
    check(lambda: LinearObjective.softmax(X, torch.tensor([0, 1, 2]), 2), "integers from 0 to 1", "from 0 to 2")
    check(lambda: LinearObjective.softmax(X, torch.tensor([0, 1, -1]), 2), "integers from 0 to 1", "from -1 to 1")
    for kind in (torch.float32, torch.bool, torch.complex64):
        check(lambda kind=kind: LinearObjective.softmax(X, y.to(kind), 2), str(kind), "y.long()")  # type: ignore[misc]
    check(lambda: LinearObjective.softmax(X, torch.tensor([0, 1]), 2), "rows")
    check(lambda: LinearObjective.softmax(X, torch.tensor([[0], [1], [1]]), 2), "(3, 1)", "y.reshape(-1)")
    for penalty in (math.nan, math.inf, None):
        check(lambda penalty=penalty: LinearObjective.squared(X, y, penalty=penalty), "penalty")  # type: ignore[misc]
    check(lambda: ModuleObjective(lambda x: x, nn.functional.mse_loss, X, y), "nn.Module", "function")  # type: ignore[arg-type]
    module = nn.Linear(2, 1)
    check(lambda: ModuleObjective(module, F.mse_loss, X, torch.ones(2, 1)), "3 and 2")
    check(lambda: ModuleObjective(module, F.mse_loss, X, torch.ones(3, 1), chunk_size=0), "chunk_size", "None takes")
    check(lambda: ModuleObjective(module, F.mse_loss, X, torch.ones(3, 1), chunk_size=2.5), "chunk_size", "whole")  # type: ignore[arg-type]
    check(lambda: ModuleObjective(module, None, X, torch.ones(3, 1)), "loss", "NoneType")  # type: ignore[arg-type]
    for penalty in (-1, math.nan, math.inf):
        check(
            lambda penalty=penalty: ModuleObjective(module, F.mse_loss, X, torch.ones(3, 1), penalty=penalty),  # type: ignore[misc]
            "penalty must be a finite number of at least 0",
        )
    check(lambda: ModuleObjective(nn.ReLU(), F.mse_loss, X, X), "trainable")
    dropout = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    noisy = ModuleObjective(dropout, F.mse_loss, X, torch.ones(3, 1))
    check(lambda: teleport(noisy, noisy.initial_point()), "deterministic")
    dropout.eval()
    quiet = ModuleObjective(dropout, F.mse_loss, X, torch.ones(3, 1))
    assert teleport(quiet, quiet.initial_point(), Auto(max_hvps=5)).gain >= 1.0


def test_numpy_callables() -> None:
    fun, jac, hessp = (lambda x: x @ x), (lambda x: 2 * x), (lambda x, v: 2 * v)
    check(lambda: NumpyObjective(fun, jac, "exact", 2), "hessp")  # type: ignore[arg-type]
    check(lambda: NumpyObjective(fun, "cs", hessp, 2), "jac", "3-point")
    check(lambda: NumpyObjective(fun, jac, hessp), "dimension")
    check(lambda: teleport(NumpyObjective(fun, lambda x: np.ones(3), hessp, 2), X1), "jac returned 3 entries")
    check(lambda: teleport(NumpyObjective(fun, jac, lambda x, v: np.ones(1), 2), X1), "hessp returned 1")
    for wrong in (lambda x: x, lambda x: None, lambda x: 1j, lambda x: np.array([1j])):
        check(lambda wrong=wrong: teleport(NumpyObjective(wrong, jac, hessp, 2), X1), "scalar")  # type: ignore[misc]
    check(lambda: teleport(NumpyObjective(fun, True, hessp, 2), X1), "(f, g)", "jac=True")
    check(lambda: teleport(NumpyObjective(lambda x: (x, 2 * x), True, hessp, 2), X1), "scalar")


@pytest.mark.parametrize("one", [np.array([1.0]), np.array(1.0), np.float32(1.0), torch.tensor([1.0]), 1])
def test_numpy_values_of_one_entry(one: Any) -> None:
    x = torch.ones(2, dtype=torch.float64)
    assert NumpyObjective(lambda x: one, lambda x: x, lambda x, v: v, 2).at(x).value == 1.0
    assert NumpyObjective(lambda x: (one, x), True, lambda x, v: v, 2).at(x).value == 1.0


def test_objective_and_start_must_fit() -> None:
    objective = LinearObjective.squared(torch.ones(3, 2), torch.ones(3))
    check(lambda: teleport(objective, torch.ones(3)), "2 entries")
    check(lambda: teleport(objective, X1), "float64", "x.to(torch.float32)")
    check(lambda: teleport(objective, [torch.ones(2)]), "container")


def test_detached_loss_is_an_error_and_a_constant_is_not() -> None:
    check(lambda: teleport(lambda w: w.detach().square().sum(), X1), "detach")
    assert teleport(lambda w: torch.ones(()), X1).status is TeleportStatus.STATIONARY_START
    assert issubclass(ObjectiveError, ValueError)


def test_a_closure_that_returns_the_whole_output() -> None:
    weight = nn.Parameter(torch.ones(2))
    output = {"loss": weight.square().sum()}
    check(lambda: Teleported(torch.optim.SGD([weight], lr=0.1)).step(lambda: output), "dict", 'output["loss"]')  # type: ignore[arg-type, return-value]


def test_numpy_in_a_function_of_tensors() -> None:
    data = np.eye(2)
    check(lambda: teleport(lambda w: np.exp(w).sum(), X1), "the loss passes x to NumPy", "torch.exp", "NumpyObjective")
    check(lambda: teleport(lambda w: (data @ w).sum(), X1), "torch.as_tensor(data)")
    check(lambda: teleport(lambda w: (torch.eye(2) @ w).sum(), X1), "different dtypes")
    check(lambda: interval(square, 0 * X1, lambda w: np.exp(w[0]), rise=1.0), "the quantity passes x to NumPy")
    check(lambda: interval(square, np.zeros(2), rise=1.0), "NumpyObjective")  # type: ignore[type-var]


def test_what_is_wrong_is_called_by_its_name() -> None:
    check(lambda: interval(square, 0 * X1, lambda w: w[0].detach() * 2, rise=1.0), "the quantity depends on x")
    check(lambda: interval(square, 0 * X1, 1, rise=1.0), "quantity must be", "[0, 2]")  # type: ignore[arg-type]
    check(lambda: interval(square, 0 * X1, "w", rise=1.0), "quantity must be", "'w'")  # type: ignore[arg-type]
    check(lambda: interval(square, 0 * X1, [2], rise=1.0), "quantity asks for entry 2", "0 to 1")
    check(lambda: contour(square, 0 * X1, (0, 2), rise=1.0), "entries asks for entry 2")
    check(lambda: interval(square, 0 * X1, rise=torch.tensor(1.0)), "rise", ".item()")  # type: ignore[arg-type]
    check(lambda: improve(square, X1, lambda w: w), "the goal returned a tensor of shape (2,)")
    check(lambda: improve(square, X1, Norm), "the class Norm", "Norm()")
    check(lambda: teleport(square, nn.Linear(2, 1)), "named_parameters", "ModuleObjective")  # type: ignore[type-var]
    check(lambda: teleport(X1, square), "The function is the first argument")  # type: ignore[arg-type, type-var]
    check(lambda: teleport(square, [1.0, 2.0]), "torch.tensor(x)")  # type: ignore[list-item]


class Careless(Solver):
    """What people forget when they write a solver."""

    answer: Any = None

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        return self.answer(problem, monitor)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda problem, monitor: problem.start.x, ["Careless.solve returned a Tensor", "Outcome(monitor.best"]),
        (lambda problem, monitor: monitor.offer(problem.start.x), ["problem.objective.at(x)", "a Tensor"]),
        (lambda problem, monitor: Outcome(problem.start.x, TeleportStatus.STALLED), ["a Tensor", "monitor.best"]),
        (lambda problem, monitor: Outcome(monitor.best, "done"), ["TeleportStatus", "'done'"]),
    ],
)
def test_a_solver_that_returns_something_else(answer: Any, words: list[str]) -> None:
    solver = Careless()
    object.__setattr__(solver, "answer", answer)
    with pytest.raises(TypeError) as raised:
        teleport(square, X1, solver)
    assert all(word in str(raised.value) for word in words)


def test_packages_are_attributes() -> None:
    """``import levelport`` is enough for every name in the documentation."""
    script = (
        "import levelport\n"
        "levelport.symmetries.Balance, levelport.integrations.scipy.interval, levelport.goals.Norm\n"
        "assert 'symmetries' in dir(levelport)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="'levelport' has no attribute 'telport'"):
        _ = levelport.telport
    with pytest.raises(AttributeError, match="has no attribute 'scipi'"):
        _ = levelport.integrations.scipi
