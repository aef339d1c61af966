"""The arms of the comparison: the default of ``minimize``, its controls, and other libraries, all untuned.

Stopping rules are switched off as far as an arm allows; the counting instrument ends a run at the finest accuracy or
when the budget is spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from levelport.numerics.lanczos import KrylovModel
from levelport.numerics.lbfgs import QuasiNewton
from levelport.objective import Objective
from levelport.objectives import GradientDifferences
from levelport.optim import LBFGS, Armijo, Every
from levelport.optim.probes import Probes
from levelport.solvers import Krylov
from levelport.solvers.contract import Monitor, Outcome
from levelport.solvers.problem import TeleportProblem
from levelport_lab.bench.competitors import LBFGSB, NEVER, Method, by_scipy, descent
from levelport_lab.bench.instances import Instance
from levelport_lab.bench.metered import Metered, TorchFunction
from levelport_lab.bench.no_climb import NoClimb

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


def _torchmin(method: str, **options: Any) -> Method:
    def run(objective: Metered, instance: Instance) -> None:
        import torchmin

        torchmin.minimize(TorchFunction(objective), instance.x0.clone(), method, max_iter=10**6, options=options)

    return run


ARMS: dict[str, Method] = {
    OURS: descent(),
    MEMORY: descent("lbfgs"),
    NO_CLIMB: descent(solver=NoClimb()),
    DROPPED: descent(Forgetful(), schedule=Probes()),
    RANDOM: descent(solver=RandomDirections()),
    BEFORE: descent(Armijo(c=0.1), schedule=Every(1)),
    LBFGS_10: by_scipy("L-BFGS-B", LBFGSB),
    LBFGS_60: by_scipy("L-BFGS-B", LBFGSB | {"maxcor": 60}),
    LBFGS_200: by_scipy("L-BFGS-B", LBFGSB | {"maxcor": 200}),
    NEWTON_CG: by_scipy("Newton-CG", NEVER),
    NEWTON_CG_DIFFERENCES: by_scipy("Newton-CG", NEVER, differences=True),
    "SciPy trust-ncg": by_scipy("trust-ncg", {"gtol": 1e-30}),
    "SciPy trust-krylov": by_scipy("trust-krylov", {"gtol": 1e-30}),
    "pytorch-minimize L-BFGS": _torchmin("l-bfgs", gtol=0.0, xtol=0.0),
    "pytorch-minimize Newton-CG": _torchmin("newton-cg", xtol=0.0),
}

MAIN = (OURS, MEMORY, LBFGS_10, LBFGS_60, LBFGS_200)
"""The arms that run on everything."""

NETWORK_ARMS = (OURS, MEMORY, NO_CLIMB, BEFORE, LBFGS_10, LBFGS_200)
"""The arms that run on networks."""
