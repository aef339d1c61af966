"""The methods of the benchmark with their settings. Each gets a metered objective and a start and runs until stopped.

Nothing is tuned per problem. Stopping rules of the competitors are switched off as far as they allow, so that the
instrument decides when they are done; a run that ends by itself before that has failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from levelport.objective import Objective
from levelport.objectives import GradientDifferences
from levelport.optim._minimize import minimize
from levelport.optim.armijo import Armijo
from levelport.optim.polyak import Polyak
from levelport.optim.schedules import Every, Never
from levelport.optim.step_rule import StepRule
from levelport.solvers import SQP, Auto, Krylov
from levelport_lab.bench.instances import Instance
from levelport_lab.bench.metered import Metered, NumpyFunctions
from levelport_lab.bench.no_climb import NoClimb, RandomClimb

DEFAULT = "levelport.minimize"
OURS = "GD-Armijo + our teleports"
OURS_EXACT = "GD-Armijo + our teleports, exact products"
ALONE = "GD-Armijo"
PUBLISHED = "GD-Armijo + published teleports"
NO_CLIMB = "the same without the climb"
RANDOM_CLIMB = "the same with a random climb"
OUR_LBFGS = "levelport lbfgs"
LBFGS = "SciPy L-BFGS-B"
LBFGS_60 = "SciPy L-BFGS-B, 60 pairs"
NEWTON_CG = "SciPy Newton-CG"
NEWTON_CG_DIFFERENCES = "SciPy Newton-CG, differences"
ADAMW = "AdamW 1e-2"

DESCENT = Armijo(c=0.1)
UNLIMITED = 10**9
MEMORY = 10  # pairs of vectors of the L-BFGS methods: SciPy's own default
Method = Callable[[Metered, Instance], None]


def descent(rule: StepRule | Callable[[Instance], StepRule] | str = "auto", **options: Any) -> Method:
    """``minimize`` with a rule, or one that knows the instance, and options."""

    def run(objective: Metered, instance: Instance) -> None:
        method = rule(instance) if callable(rule) else rule
        minimize(objective, instance.x0, method, gtol=0.0, max_iterations=UNLIMITED, **options)

    return run


def _polyak(instance: Instance) -> StepRule:
    """With f* where it is known, 0 for networks."""
    return Polyak(max_step=1e6, f_star=0.0 if math.isnan(instance.f_star) else instance.f_star)


def _with_and_without(name: str, rule: StepRule | Callable[[Instance], StepRule] | str) -> dict[str, Method]:
    """A method alone, with the paper's teleports, and with ours."""
    published = {"schedule": Every(50, start=5), "solver": SQP(max_hvps=50), "first_step": "method"}
    return {
        name: descent(rule, schedule=Never()),
        f"{name} + published teleports": descent(rule, **published),
        f"{name} + our teleports": descent(rule, schedule=Every(1)),
    }


def by_scipy(method: str, options: dict[str, Any], *, differences: bool = False) -> Method:
    """A method of SciPy; ``differences`` makes its products of gradients, as ours does."""

    def run(objective: Metered, instance: Instance) -> None:
        scipy_run(GradientDifferences(objective) if differences else objective, instance.x0, method, options)

    return run


def scipy_run(objective: Objective, x0: Tensor, method: str, options: dict[str, Any]) -> Any:
    """``scipy.optimize.minimize`` from ``x0``."""
    from scipy.optimize import minimize as scipy_minimize

    functions = NumpyFunctions(objective)
    products = {} if method == "L-BFGS-B" else {"hessp": functions.hessp}
    return scipy_minimize(
        functions.fun, x0.numpy(), jac=functions.jac, method=method, options={"maxiter": 10**6} | options, **products
    )


NEVER = {"xtol": 1e-300}  # does Newton-CG stop by itself; at 0, SciPy 1.12 does not start
LBFGSB = {"ftol": 0.0, "gtol": 0.0, "maxcor": MEMORY, "maxfun": 10**7}


def _adamw(objective: Metered, instance: Instance) -> None:
    x = instance.x0.clone().requires_grad_()
    # The penalty is part of f, so that there is nothing left to decay.
    optimizer = torch.optim.AdamW([x], lr=1e-2, weight_decay=0.0)
    while True:
        x.grad = objective.at(x.detach().clone()).gradient.clone()
        optimizer.step()


CORE: dict[str, Method] = {
    **_with_and_without(ALONE, DESCENT),
    OURS_EXACT: descent(DESCENT, schedule=Every(1), solver=Krylov(hvp="exact")),
    NO_CLIMB: descent(DESCENT, schedule=Every(1), solver=NoClimb()),
    RANDOM_CLIMB: descent(DESCENT, schedule=Every(1), solver=RandomClimb()),
    OUR_LBFGS: descent("lbfgs", schedule=Never()),
    LBFGS: by_scipy("L-BFGS-B", LBFGSB),
    LBFGS_60: by_scipy("L-BFGS-B", LBFGSB | {"maxcor": 60}),
    NEWTON_CG: by_scipy("Newton-CG", NEVER),
    NEWTON_CG_DIFFERENCES: by_scipy("Newton-CG", NEVER, differences=True),
}
"""GD alone, with the paper's teleports and ours, two controls, our L-BFGS, SciPy's L-BFGS-B and Newton-CG.

Ours and Newton-CG once with exact products, at two gradients each, and once with differences of gradients, at one.
"""

OTHERS = _with_and_without("Polyak", _polyak)
"""More step rules; more minimizers are in :mod:`levelport_lab.bench.minimizers`, on the same problems."""

PAPER_ARMIJO: dict[str, Method] = {
    "GD-Armijo, c = ½": descent(Armijo(), schedule=Never()),
    "GD-Armijo, c = ½, published teleports": descent(Armijo(), schedule=Every(50, start=5), solver=SQP(max_hvps=50)),
    "GD-Armijo, c = ½, certified teleport every 50 steps": descent(
        Armijo(), schedule=Every(50, start=5), solver=Auto(max_hvps=50)
    ),
    "GD-Armijo, c = ½, certified teleport every step": descent(Armijo(), schedule=Every(1), solver=Auto(max_hvps=50)),
}
"""Gradient descent with the Armijo constant of the paper, for the small table of costs."""

COMPETITORS: dict[str, Method] = {DEFAULT: descent(), **CORE, **OTHERS, ADAMW: _adamw, **PAPER_ARMIJO}
"""All methods, under the names that tables give them."""
