"""Every setting: what is just inside its range is taken, what is just outside is refused by its name and the reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from levelport import SQP, Auto, Batches, Krylov, LinearObjective, ModuleObjective, NumpyObjective, minimize, teleport
from levelport.optim import (
    LBFGS,
    Armijo,
    ArmijoSGD,
    At,
    Every,
    FixedStep,
    Momentum,
    Never,
    Newton,
    Normalized,
    Polyak,
    PolyakSGD,
    Teleported,
    Teleporter,
    WhileAffordable,
)

INF, NAN = math.inf, math.nan


class Range(NamedTuple):
    """Values that are taken and values that are refused, and the words that the refusal ends with."""

    taken: tuple[Any, ...]
    refused: tuple[Any, ...]
    why: str = ""


POSITIVE = Range((1e-9, 0.5, 3, INF), (0.0, -1.0, NAN, "1", None, True))
FINITE = Range((1e-9, 0.5, 3), (0.0, -1.0, NAN, INF, "1", None))
REAL = Range((-1e9, -0.5, 0.0, 1e9), (NAN, "1", None))
SHARE = Range((1e-9, 0.999), (0.0, 1.0, -0.5, NAN, "1", None))
NOT_NEGATIVE = Range((0.0, 1e-9, 0.5), (-1e-9, NAN, "1"))
WEIGHT = Range((0.0, 1e-9, 3), (-1e-9, NAN, INF, None, "a"))
COUNT = Range((1, 10**6), (0, 1.5, NAN, "1", True))
COUNT_OR_NONE = Range((None, *COUNT.taken), COUNT.refused)
FROM_ZERO = Range((0, 3), (-1, 0.5, "1", True, None))
FLAG = Range((True, False), (1, "a", None))


def words(*allowed: Any) -> Range:
    return Range(allowed, ("other", 1))


def because(range: Range, why: str) -> Range:
    return range._replace(why=why)


LIMITS = {
    "max_hvps": because(COUNT, "the certificate alone takes one"),
    "max_cost": POSITIVE,
    "max_seconds": POSITIVE,
    "tol": because(SHARE, "it bounds the sine of an angle"),
    "radius": Range((None, 1e-9, 0.5, INF), (0.0, -1.0, NAN, "1"), "it is a distance; None has it derived"),
    "target_gain": Range((1.0001, 1.5, INF), (1.0, 0.5, NAN, "2", None), "it is the growth of the gradient norm"),
    "target_alignment": Range((-0.999, 0.0, 1.0, INF), (-1.0, 1.001, NAN, "1"), "it is a cosine"),
    "least_decrease": REAL,
    "hvp": words(None, "exact", "difference"),
}
SEARCH = {
    "c": because(SHARE, "it is the share of the predicted decrease"),
    "initial": FINITE,
    "grow": Range((1.0, 1.5), (0.999, 0.0, NAN, "1")),
    "shrink": SHARE,
}

Make = Callable[..., object]


def square(x: Tensor) -> Tensor:
    return x.square().sum()


def sgd() -> torch.optim.SGD:
    return torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)


def descent(**options: Any) -> object:
    return minimize(square, torch.ones(2, dtype=torch.float64), **{"max_iterations": 1, **options})


def hooked(**options: Any) -> object:
    return Teleporter(sgd(), Never()).register_teleport_hook(**{"hook": print, **options})


def parameter() -> list[Tensor]:
    return [nn.Parameter(torch.ones(2))]


X, Y = torch.ones(3, 2), torch.ones(3)
OWNERS: dict[str, tuple[Make, dict[str, Range]]] = {
    "Auto": (Auto, {**LIMITS, "memory": COUNT_OR_NONE, "starts": FROM_ZERO}),
    "Krylov": (Krylov, {**LIMITS, "max_vectors": COUNT_OR_NONE}),
    "SQP": (
        SQP,
        {
            **LIMITS,
            **dict.fromkeys(("rho", "epsilon", "delta", "gamma_scale", "smallest_rho"), POSITIVE),
            **dict.fromkeys(("max_iterations", "max_backtracks"), COUNT),
            "shrink": SHARE,
            "mode": words("text", "released"),
            "search": words("continue", "restart"),
            "final": words("feasible", "last"),
            "first_rho_after_failure": FLAG,
        },
    ),
    "teleport": (
        partial(teleport, square, torch.ones(2, dtype=torch.float64)),
        {"level_set": FLAG, "callback": Range((None, print), (3, "a"), "of row, point, not")},
    ),
    "minimize": (
        descent,
        {
            "gtol": NOT_NEGATIVE,
            "tol": NOT_NEGATIVE,
            "gtol_absolute": NOT_NEGATIVE,
            "f_target": REAL,
            "max_iterations": FROM_ZERO,
            "max_cost": POSITIVE,
            "max_seconds": POSITIVE,
            "first_step": words(None, "included", "method"),
            "callback": Range((None, lambda row, point: None), (3, "a"), "of row, point, not"),
        },
    ),
    "Armijo": (Armijo, {**SEARCH, "max_step": Range((None, 1e-9, INF), (0.0, -1.0, NAN, "1")), "use_curvature": FLAG}),
    "ArmijoSGD": (lambda **options: ArmijoSGD(parameter(), **options), SEARCH),
    "PolyakSGD": (lambda **options: PolyakSGD(parameter(), **options), {"lr": FINITE, "f_star": REAL}),
    "Polyak": (lambda **options: Polyak(**{"max_step": 1.0, **options}), {"max_step": POSITIVE, "f_star": REAL}),
    "FixedStep": (FixedStep, {"lr": FINITE}),
    "Normalized": (Normalized, {"lr": FINITE}),
    "Momentum": (
        lambda **options: Momentum(**{"lr": 0.1, **options}),
        {
            "lr": FINITE,
            "momentum": Range((0.0, 0.5, 0.999), (1.0, -1e-9, NAN, "1")),
            "dampening": Range((0.0, 0.5, 1.0), (1.001, -1e-9, NAN, "1")),
        },
    ),
    "LBFGS": (LBFGS, {"memory": because(COUNT_OR_NONE, "None chooses it by the size of x")}),
    "Newton": (Newton, {"max_hvps": COUNT, "step": Range((1e-9, 0.5, 3, "strong-wolfe"), (0.0, NAN, INF, None))}),
    "Every": (
        lambda **options: Every(**{"period": 5, **options}),
        {
            "period": because(COUNT, "Never() switches teleports off"),
            "start": because(FROM_ZERO, "the first step is step 0"),
        },
    ),
    "At": (At, {"iterations": because(FROM_ZERO, "the first step is step 0")}),
    "WhileAffordable": (
        WhileAffordable,
        {"rise": POSITIVE, "share": POSITIVE, "pause": COUNT, "vectors": COUNT},
    ),
    "Teleporter": (
        lambda **options: Teleporter(sgd(), Never(), **options),
        {
            "momentum": words("keep", "reset"),
            "noise": words("refuse", "replay"),
            "first_step": words(None, "included", "optimizer"),
            "distribute": Range((None, lambda objective: objective), (3, "a"), "of objective, not"),
        },
    ),
    "Teleported": (
        lambda **options: Teleported(sgd(), Never(), **options),
        {"after_backward": Range((None, print), (3, "a"), "a function, not")},
    ),
    "hooks": (
        hooked,
        {
            "hook": Range((print,), (3, None), "of result, not"),
            "on_decline": Range((None, print), (3,), "of steps, why, not"),
        },
    ),
    "ModuleObjective": (
        partial(ModuleObjective, nn.Linear(2, 1), nn.functional.mse_loss, X, Y[:, None]),
        {"chunk_size": because(COUNT_OR_NONE, "None takes all samples at once"), "penalty": WEIGHT},
    ),
    "LinearObjective": (partial(LinearObjective.squared, X, Y), {"penalty": WEIGHT}),
    "NumpyObjective": (
        lambda **options: NumpyObjective(**{"fun": np.sum, "dimension": 2, **options}),
        {
            "fun": Range((np.sum,), (3, None), "of x, not"),
            "dimension": because(COUNT, "it is the number of variables"),
        },
    ),
    "Batches": (
        lambda **options: Batches(nn.functional.mse_loss, [(X, X)] * 2, [options["weights"], 1.0]),
        {"weights": WEIGHT},
    ),
}


@pytest.mark.parametrize(
    ("make", "name", "allowed"),
    [
        pytest.param(make, name, allowed, id=f"{owner}.{name}")
        for owner, (make, settings) in OWNERS.items()
        for name, allowed in settings.items()
    ],
)
def test_settings_are_taken_and_refused(make: Make, name: str, allowed: Range) -> None:
    for value in allowed.taken:
        make(**{name: value})
    said = {"weights": "every weight of a batch", "step": "(step|a line search)"}.get(name, name)
    for value in allowed.refused:
        with pytest.raises(ValueError, match=rf"^{said} must ") as raised:
            make(**{name: value})
        of_another_kind = "number, not" in str(raised.value)
        assert of_another_kind or allowed.why in str(raised.value)
