"""The arms of the comparison: the default of ``minimize``, its controls, and other libraries, all untuned.

Stopping rules are switched off as far as an arm allows; the counting instrument ends a run at the finest accuracy or
when the budget is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from levelport.numerics.lanczos import KrylovModel
from levelport.numerics.lbfgs import QuasiNewton
from levelport.objective import Objective
from levelport.objectives import GradientDifferences
from levelport.optim import LBFGS, Armijo, Every, minimize
from levelport.optim.probes import Probes
from levelport.solvers import Krylov
from levelport.solvers.contract import Monitor, Outcome
from levelport.solvers.problem import TeleportProblem
from levelport_lab.bench.competitors import LBFGSB, NEVER, UNLIMITED, scipy_run
from levelport_lab.bench.metered import Metered, TorchFunction
from levelport_lab.bench.no_climb import NoClimb

Arm = Callable[[Metered, Tensor], object]

OURS = "levelport"
MEMORY = "memory alone"
NO_CLIMB = "probes without the climb"
DROPPED = "pairs dropped"
RANDOM = "random directions"
BEFORE = "teleport before every gradient step"
LBFGS_10, LBFGS_60, LBFGS_200 = (f"SciPy L-BFGS-B, {pairs} pairs" for pairs in (10, 60, 200))
NEWTON_CG = "SciPy Newton-CG"
NEWTON_CG_DIFFERENCES = "SciPy Newton-CG, differences"


@dataclass(frozen=True)
class Forgetful(LBFGS):
    """A control: the memory does not get the pairs of the probes."""

    def learn(self, objective: Objective, state: Any, pairs: tuple[Tensor, Tensor]) -> QuasiNewton:
        return self._model(objective, state)


class _RandomModel(KrylovModel):
    """As many random directions as the model of a probe had; their products are not charged again."""

    def __init__(self, model: KrylovModel, objective: Objective) -> None:
        self._size = model.size
        point, generator = objective.at(model.point.x), torch.Generator().manual_seed(model.size)
        start = torch.randn(model.point.x.numel(), model.size, generator=generator, dtype=torch.float64)
        Q = torch.linalg.qr(start.to(model.point.x)).Q.T
        images = torch.stack([point.hvp(q) for q in Q])
        _, U = torch.linalg.eigh(0.5 * (Q @ images.T + images @ Q.T))
        self._pairs = U.T @ Q, U.T @ images

    @property
    def size(self) -> int:
        return self._size

    def ritz_pairs(self) -> tuple[Tensor, Tensor]:
        return self._pairs


@dataclass(frozen=True)
class RandomDirections(Krylov):
    """A control: at the cost of a probe, pairs of random directions and no move."""

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        outcome, objective = super().solve(problem, monitor), problem.objective
        while isinstance(objective, GradientDifferences | Metered):
            objective = objective.inner
        if outcome.model is None or outcome.model.size == 0:
            return outcome
        return replace(outcome, point=problem.start, lower=None, model=_RandomModel(outcome.model, objective))


def _ours(method: Any = "auto", **options: Any) -> Arm:
    return lambda f, x0: minimize(f, x0, method, gtol=0.0, max_iterations=UNLIMITED, **options)


def _scipy(method: str, options: dict[str, Any], *, differences: bool = False) -> Arm:
    return lambda f, x0: scipy_run(GradientDifferences(f) if differences else f, x0, method, options)


def _torchmin(method: str, **options: Any) -> Arm:
    def run(f: Metered, x0: Tensor) -> None:
        import torchmin

        torchmin.minimize(TorchFunction(f), x0, method, max_iter=10**6, options=options)

    return run


ARMS: dict[str, Arm] = {
    OURS: _ours(),
    MEMORY: _ours("lbfgs"),
    NO_CLIMB: _ours(solver=NoClimb()),
    DROPPED: _ours(Forgetful(), schedule=Probes()),
    RANDOM: _ours(solver=RandomDirections()),
    BEFORE: _ours(Armijo(c=0.1), schedule=Every(1)),
    LBFGS_10: _scipy("L-BFGS-B", LBFGSB),
    LBFGS_60: _scipy("L-BFGS-B", LBFGSB | {"maxcor": 60}),
    LBFGS_200: _scipy("L-BFGS-B", LBFGSB | {"maxcor": 200}),
    NEWTON_CG: _scipy("Newton-CG", NEVER),
    NEWTON_CG_DIFFERENCES: _scipy("Newton-CG", NEVER, differences=True),
    "SciPy trust-ncg": _scipy("trust-ncg", {"gtol": 1e-30}),
    "SciPy trust-krylov": _scipy("trust-krylov", {"gtol": 1e-30}),
    "pytorch-minimize L-BFGS": _torchmin("l-bfgs", gtol=0.0, xtol=0.0),
    "pytorch-minimize Newton-CG": _torchmin("newton-cg", xtol=0.0),
}

MAIN = (OURS, MEMORY, LBFGS_10, LBFGS_60, LBFGS_200)
"""The arms that run on everything."""

NETWORK_ARMS = (OURS, MEMORY, NO_CLIMB, BEFORE, LBFGS_10, LBFGS_200)
"""The arms that run on networks."""
