"""``torch.set_default_device`` is the user's: x says where the work is done, and the small numbers stay on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.functions import rosenbrock
from torch import Tensor, nn

from levelport import Auto, Batches, Krylov, LinearObjective, ModuleObjective, improve, interval, minimize, teleport
from levelport.goals import Norm, contour, profile
from levelport.optim import ArmijoSGD, Every, PolyakSGD, Teleported
from levelport.symmetries import Balance

CPU = torch.device("cpu")


def vector(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64, device=CPU)


X = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.sign(X[:, 0] + 0.1)
START, SCALES = vector(-0.5, 0.7, 0.3), vector(1.0, 2.0, 3.0)


def bowl(w: Tensor) -> Tensor:
    return (SCALES * w * w).sum()


def linear() -> nn.Linear:
    return nn.Linear(3, 1, dtype=torch.float64, device=CPU).requires_grad_()


def module_objective(**options: Any) -> ModuleObjective:
    return ModuleObjective(linear(), nn.functional.mse_loss, X, Y[:, None], **options)


def balanced() -> object:
    chain = nn.Sequential(linear(), nn.ReLU(), nn.Linear(1, 1, dtype=torch.float64, device=CPU))
    for p in chain.parameters():
        nn.init.constant_(p, 0.5)
    objective = ModuleObjective(chain, nn.functional.mse_loss, X, Y[:, None])
    return teleport(objective, objective.initial_point(), Balance(chain))


def trained(make: Callable[[Any], torch.optim.Optimizer], **options: Any) -> None:
    module = linear()

    def loss(x: Tensor = X, y: Tensor = Y) -> Tensor:
        return (module(x)[:, 0] - y).square().mean()

    if options.pop("batches", False):
        parts = [(X[:9], Y[:9]), (X[9:], Y[9:])]
        options["teleport_on"] = Batches(loss, parts, unused=[(X[:3], Y[:3])])
    optimizer = Teleported(make(module.parameters()), **options)
    for _ in range(4):
        optimizer.step(loss)
    optimizer.load_state_dict(optimizer.state_dict())


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


RUNS: dict[str, Callable[[], object]] = {
    "auto": lambda: teleport(rosenbrock, START),
    "level set": lambda: teleport(rosenbrock, START, level_set=True),
    "starts": lambda: teleport(rosenbrock, START, Auto(starts=2, max_hvps=100)),
    "krylov": lambda: teleport(rosenbrock, START, "krylov"),
    "krylov, exact": lambda: teleport(rosenbrock, START, Krylov(hvp="exact")),
    "sqp": lambda: teleport(rosenbrock, START, "sqp"),
    "metric": lambda: teleport(rosenbrock, START, metric=SCALES),
    "float32": lambda: teleport(rosenbrock, START.float()),
    "quadratic": lambda: teleport(bowl, START),
    "detached": lambda: teleport(lambda p: bowl(p["a"]), {"a": START, "b": START}),
    "descent": lambda: minimize(rosenbrock, START, max_iterations=5),
    "armijo": lambda: minimize(rosenbrock, START, "armijo", schedule=Every(2), max_iterations=4),
    "newton": lambda: minimize(rosenbrock, START, "newton-cg", max_iterations=4),
    "numpy": lambda: minimize(lambda z: float(((z - 1) ** 2).sum()), np.zeros(3), metric=[1, 2, 3]),
    "logistic": lambda: teleport(LinearObjective.logistic(X, Y.int()), START),
    "softmax": lambda: teleport(LinearObjective.softmax(X, (Y > 0).long(), 2), START.repeat(2)),
    "module": lambda: (lambda f: teleport(f, f.initial_point()))(module_objective()),
    "chunks": lambda: (lambda f: teleport(f, f.initial_point()))(module_objective(chunk_size=7)),
    "symmetry": balanced,
    "improve": lambda: improve(rosenbrock, START, Norm()),
    "interval": lambda: interval(bowl, vector(0.0, 0.0, 0.0), confidence=0.9),
    "curved": lambda: interval(lambda w: bowl(w.exp() - 1), vector(0.0, 0.0, 0.0), lambda w: w.exp(), rise=1.0),
    "bounds": lambda: interval(bowl, vector(0.0, 0.0, 0.0), rise=1.0, bounds=(-0.1, None)),
    "profile": lambda: profile(bowl, vector(0.0, 0.0, 0.0), [0], rises=[1.0]),
    "contour": lambda: contour(bowl, vector(0.0, 0.0, 0.0), (0, 1), rise=1.0, points=8),
    "adaptive": lambda: trained(sgd),
    "teleported": lambda: trained(sgd, schedule=Every(2)),
    "batches": lambda: trained(sgd, schedule=Every(2), batches=True),
    "replay": lambda: trained(sgd, schedule=Every(2), noise="replay"),
    "momentum": lambda: trained(torch.optim.Adam, schedule=Every(2), momentum="reset"),
    "ArmijoSGD": lambda: trained(ArmijoSGD, schedule=Every(2)),
    "PolyakSGD": lambda: trained(PolyakSGD, schedule=Every(2)),
}


@pytest.fixture
def _elsewhere() -> Iterator[None]:
    """Tensors that do not say where they belong hold no numbers."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize("run", RUNS)
def test_default_device_does_not_matter(run: str) -> None:
    RUNS[run]()
