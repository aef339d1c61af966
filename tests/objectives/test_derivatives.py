"""Values, gradients and Hessian-vector products against finite differences and against each other."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
import torch.nn.functional as F
from tests.functions import FUNCTIONS, Quadratic
from torch import Tensor

from levelport import FunctionObjective, LinearObjective, NumpyObjective, Objective, teleport


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_consistent(objective: Objective, x: Tensor, *, accuracy: float = 1e-6) -> None:
    """Gradient and HVP agree with central differences of value and gradient along random directions."""
    point = objective.at(x)
    for seed in range(3):
        v = random(x.numel(), seed=100 + seed)
        h = 1e-5
        slope = (objective.at(x + h * v).value - objective.at(x - h * v).value) / (2 * h)
        assert slope == pytest.approx(float(point.gradient @ v), rel=accuracy, abs=accuracy)
        change = (objective.at(x + h * v).gradient - objective.at(x - h * v).gradient) / (2 * h)
        scale = 1.0 + float(change.abs().max())
        for announced in (False, True):
            product = objective.at(x, curvature=announced).hvp(v)
            assert torch.allclose(product, change, rtol=accuracy, atol=accuracy * scale)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_test_functions(name: str) -> None:
    function = FUNCTIONS[name][0]
    for seed in range(3):
        x = 0.5 * random(2, seed=seed)
        assert_consistent(FunctionObjective(function, like=x), x, accuracy=1e-5)


def linear_pair(kind: str, penalty: float) -> tuple[LinearObjective, Callable[[Tensor], Tensor], int]:
    """The closed form, and the same loss written with torch's own functions for autograd."""
    X = random(30, 4)
    if kind == "logistic":
        y = torch.sign(random(30, seed=1))
        closed = LinearObjective.logistic(X, y, penalty=penalty)
        return closed, lambda w: -F.logsigmoid(y * (X @ w)).mean() + penalty * w.square().sum(), 4
    if kind == "squared":
        y = random(30, seed=1)
        closed = LinearObjective.squared(X, y, penalty=penalty)
        return closed, lambda w: 0.5 * F.mse_loss(X @ w, y) + penalty * w.square().sum(), 4
    classes = torch.arange(30) % 3
    closed = LinearObjective.softmax(X, classes, 3, penalty=penalty)
    return closed, lambda w: F.cross_entropy(X @ w.view(4, 3), classes) + penalty * w.square().sum(), 12


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["logistic", "squared", "softmax"])
def test_closed_forms(kind: str, penalty: float) -> None:
    closed, loss, d = linear_pair(kind, penalty)
    x, v = random(d, seed=2), random(d, seed=3)
    assert_consistent(closed, x)
    automatic = FunctionObjective(loss, like=x)
    ours, theirs = closed.at(x), automatic.at(x)
    assert ours.value == pytest.approx(theirs.value, rel=1e-13)
    assert torch.allclose(ours.gradient, theirs.gradient, rtol=1e-12, atol=1e-14)
    assert torch.allclose(ours.hvp(v), theirs.hvp(v), rtol=1e-12, atol=1e-14)
    hessian = torch.autograd.functional.hessian(loss, x)
    assert torch.allclose(ours.hvp(v), hessian @ v, rtol=1e-11, atol=1e-13)


def test_closed_forms_survive_large_margins() -> None:
    X, y = torch.tensor([[1000.0], [-1000.0]], dtype=torch.float64), torch.tensor([-1.0, -1.0], dtype=torch.float64)
    point = LinearObjective.logistic(X, y).at(torch.tensor([2.0], dtype=torch.float64))
    assert point.value == pytest.approx(1000.0)
    assert point.gradient.tolist() == pytest.approx([500.0])
    assert point.hvp(torch.ones(1, dtype=torch.float64)).tolist() == [0.0]


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_labels_of_any_kind_of_integers(kind: str) -> None:
    X, y, w = random(5, 2, seed=1), torch.tensor([0, 2, 1, 2, 0]), random(6, seed=2)
    expected = LinearObjective.softmax(X, y, 3).at(w)
    have = LinearObjective.softmax(X, y.to(getattr(torch, kind)), 3).at(w)
    assert have.value == expected.value
    assert torch.equal(have.gradient, expected.gradient)


def test_labels_go_where_the_data_are(float64_device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with one device nothing has to move: then it is enough that the labels were asked to."""
    asked, to = [], Tensor.to
    monkeypatch.setattr(Tensor, "to", lambda self, *a, **k: (asked.append((*a, *k.values())), to(self, *a, **k))[1])
    X, y = to(random(5, 2, seed=1), float64_device), torch.tensor([0, 2, 1, 2, 0])
    objective = LinearObjective.softmax(X, y, 3)
    assert any(X.device in where for where in asked)
    assert math.isfinite(objective.at(torch.zeros(6, dtype=torch.float64, device=X.device)).value)


def test_predictions_of_linear_models() -> None:
    X = random(5, 4)
    W = random(12, seed=4)
    objective = LinearObjective.softmax(X, torch.arange(5) % 3, 3)
    assert torch.equal(objective.predict(W, X), X @ W.view(4, 3))


def test_quadratic_against_its_definition() -> None:
    quadratic = Quadratic.random(torch.tensor([3.0, 2.0, 0.5], dtype=torch.float64), seed=1, minimum=-1.0)
    x = random(3, seed=5)
    assert_consistent(quadratic, x)
    offset = x - quadratic.minimizer
    assert quadratic.at(x).value == pytest.approx(float(0.5 * offset @ quadratic.hessian @ offset) - 1.0)
    assert np.linalg.eigvalsh(quadratic.hessian.numpy()) == pytest.approx([0.5, 2.0, 3.0])


class TestNumpyCallables:
    def objective(self, together: bool = False) -> NumpyObjective:
        rosen, der, prod = scipy.optimize.rosen, scipy.optimize.rosen_der, scipy.optimize.rosen_hess_prod
        if together:
            return NumpyObjective(lambda x: (rosen(x), der(x)), True, prod, dimension=4)
        return NumpyObjective(rosen, der, prod, dimension=4)

    @pytest.mark.parametrize("together", [False, True])
    def test_agrees_with_torch(self, together: bool) -> None:
        x = random(4, seed=6)
        assert_consistent(self.objective(together), x, accuracy=1e-5)
        theirs = FunctionObjective(FUNCTIONS["rosenbrock"][0], like=x).at(x)
        ours = self.objective(together).at(x)
        assert ours.value == pytest.approx(theirs.value, rel=1e-13)
        assert torch.allclose(ours.gradient, theirs.gradient, rtol=1e-12)
        assert torch.allclose(ours.hvp(x), theirs.hvp(x), rtol=1e-12)

    def test_teleports_as_torch_does(self) -> None:
        x = torch.tensor([-1.2, 1.0, -0.5, 0.8], dtype=torch.float64)
        ours, joint = teleport(self.objective(), x), teleport(self.objective(together=True), x)
        theirs = teleport(FUNCTIONS["rosenbrock"][0], x)
        assert ours.gradient_norm == pytest.approx(theirs.gradient_norm, rel=1e-5)
        assert ours.gradient_norm == joint.gradient_norm
        assert ours.gain > 1.0

    @pytest.mark.parametrize(
        ("jac", "gradient", "product"),
        [(None, 1e-5, 1e-1), ("3-point", 1e-8, 1e-2), (scipy.optimize.rosen_der, 1e-13, 1e-5)],
    )
    def test_differences_replace_missing_derivatives(self, jac: Any, gradient: float, product: float) -> None:
        x, v = random(4, seed=6), random(4, seed=7)
        objective = NumpyObjective(scipy.optimize.rosen, jac, dimension=4)
        ours, exact = objective.at(x), self.objective().at(x)
        assert torch.linalg.vector_norm(ours.gradient - exact.gradient) <= gradient * exact.gradient_norm
        before = objective.cost
        true = exact.hvp(v)
        assert torch.linalg.vector_norm(ours.hvp(v) - true) <= product * torch.linalg.vector_norm(true)
        spent = objective.cost - before
        expected = {None: (5, 0), "3-point": (9, 0)}.get(jac, (0, 1))  # values and gradients, of one more gradient
        assert (spent.values, spent.gradients, spent.hvps) == (*expected, 0)

    def test_arguments_and_calls(self) -> None:
        """Extra arguments reach all three; the ledger counts the calls; a callable that writes moves nothing."""
        calls = {"fun": 0, "jac": 0, "hessp": 0}

        def fun(x: np.ndarray, a: float) -> float:
            calls["fun"] += 1
            value = float(a * (x**4).sum())
            x[:] = 0.0
            return value

        def jac(x: np.ndarray, a: float) -> np.ndarray:
            calls["jac"] += 1
            return 4 * a * x**3

        def hessp(x: np.ndarray, v: np.ndarray, a: float) -> np.ndarray:
            calls["hessp"] += 1
            return 12 * a * x**2 * v

        objective = NumpyObjective(fun, jac, hessp, dimension=2, args=(2.0,))
        point = objective.at(torch.tensor([1.0, 2.0], dtype=torch.float64))
        assert point.value == 34.0
        assert point.gradient.tolist() == pytest.approx([8.0, 64.0], rel=1e-14)
        assert point.hvp(torch.ones(2, dtype=torch.float64)).tolist() == pytest.approx([24.0, 96.0], rel=1e-14)
        assert calls == {"fun": 1, "jac": 1, "hessp": 1}
        cost = objective.cost
        assert (cost.values, cost.gradients, cost.hvps) == (0, 1, 1)


def test_forward_pass_is_shared_and_the_ledger_knows() -> None:
    calls = 0

    def fun(w: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return (w**4).sum()

    objective = FunctionObjective(fun, like=torch.ones(3))
    point = objective.at(torch.ones(3))
    assert point.value == 3.0
    assert objective.cost.gradient_equivalents == 0.5
    point.gradient.sum()
    point.gradient_norm.hex()
    assert objective.cost.gradient_equivalents == 1.0
    point.hvp(torch.ones(3))
    point.hvp(torch.ones(3))
    assert (objective.cost.values, objective.cost.gradients, objective.cost.hvps) == (0, 1, 2)
    assert objective.cost.gradient_equivalents == 5.0
    assert calls == 1
    before = objective.cost
    objective.at(torch.zeros(3)).value.hex()
    spent = objective.cost - before
    assert (spent.values, spent.gradients, spent.hvps) == (1, 0, 0)
    assert (before + spent).gradient_equivalents == objective.cost.gradient_equivalents


def test_unit_normal_products() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    objective = FunctionObjective(lambda w: (w**4).sum(), like=x)
    point = objective.at(x)
    product = point.hessian_normal * point.gradient_norm
    assert torch.allclose(product, torch.tensor([48.0, 48.0 * 32], dtype=torch.float64))
    assert point.hessian_normal is point.hessian_normal
    assert objective.cost.hvps == 1


def test_grad_mode_and_autocast_of_the_caller_do_not_matter() -> None:
    weight = random(3, 3)
    x = random(3, seed=8)

    def fun(w: Tensor) -> Tensor:
        return (weight @ w).square().sum()

    plain = FunctionObjective(fun, like=x).at(x)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        inside = FunctionObjective(fun, like=x).at(x)
        assert inside.value == plain.value
        assert torch.equal(inside.gradient, plain.gradient)
        assert torch.equal(inside.hvp(x), plain.hvp(x))


def test_a_released_point_knows_what_it_knew_and_pays_for_more() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    objective = FunctionObjective(lambda x: (x**4).sum(), like=x)
    point = objective.at(x)
    point.release()  # nothing to let go of yet, so nothing to pay for
    gradient = point.gradient
    point.release()
    assert point.gradient is gradient
    assert objective.cost.gradient_equivalents == 1.0
    torch.testing.assert_close(point.hvp(torch.ones_like(x)), 12.0 * x**2)
    assert objective.cost.gradient_equivalents == 3.5


def test_check_for_cut_derivatives_is_charged_in_full() -> None:
    """Moves of the entry without a derivative leave the domain of f, so that the check evaluates more than once."""
    calls = 0

    def loss(p: dict[str, Tensor]) -> Tensor:
        nonlocal calls
        calls += 1
        outside = bool((p["b"].detach() - 1.0).abs() > 1e-8)
        return p["a"].square().sum() + (math.nan if outside else 0.0)

    start = {"a": torch.ones(2, dtype=torch.float64), "b": torch.ones(1, dtype=torch.float64)}
    objective = FunctionObjective(loss, like=start)
    calls = 0
    _ = objective.at(objective.structure.flatten(start)).gradient
    assert calls == 4  # the gradient's own pass, both long moves, and the first short one
    assert objective.cost.values == calls - 1


def test_products_do_not_import_sympy() -> None:
    """torch imports it where a product's vector is passed as grad_outputs: half a second of the first teleport."""
    script = (
        "import sys, torch, levelport\n"
        "x = torch.ones(3, dtype=torch.float64)\n"
        "assert levelport.teleport(lambda w: (w**4 * torch.arange(1, 4)).sum(), x).cost.hvps > 0\n"
        "assert 'sympy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
