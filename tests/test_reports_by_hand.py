"""What results print, of numbers written out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from levelport import Cost, Krylov, MinimizeResult, MinimizeStatus, TeleportResult, TeleportStatus, TeleportStep
from levelport.optim import Every
from levelport.optim.policy import TeleportPolicy
from levelport.optim.result import MinimizeRow
from levelport.solvers import Certificate

X = torch.zeros(2)
TELEPORT = TeleportResult(
    x=X,
    status=TeleportStatus.PREDICTED,
    value=1.5,
    value_start=2.0,
    gradient_norm=12.0,
    gradient_norm_start=4.0,
    certificate=Certificate(8.0, 0.25, 0.5),
    cost=Cost(1, 2, 3, 0.5),
    detail="",
    trace=(),
    moved=True,
)
STEP = TeleportStep(TELEPORT, "teleport", 0.75, 0.125, "", math.nan, 1.0, Cost(1, 0, 0))
LINES = [
    "PREDICTED: the point is near where a quadratic model of f has its largest gradient at this level; "
    "it is not certified",
    "f      2 → 1.5",
    "‖∇f‖   4 → 12, 3 times",
    "there  λ 8, alignment 0.5, KKT residual 0.25",
    "cost   8.5 gradient equivalents (1 value, 2 gradients, 3 Hessian-vector products), 0.5 s",
]


def test_a_teleport_is_printed() -> None:
    assert str(TELEPORT).splitlines() == LINES
    known = replace(TELEPORT, certificate=Certificate(8.0, math.nan, math.nan), detail="why")
    assert known.message == f"{TELEPORT.status.value} (why)"
    assert str(known).splitlines()[3] == "there  λ 8"
    assert (known.violation, replace(known, value=2.25).violation) == (0.0, 0.25)
    assert (known.gain, replace(known, gradient_norm_start=0.0).gain) == (3.0, 1.0)
    assert (known.fun, known.nfev, known.njev, known.nhev, known.nit) == (1.5, 3, 2, 3, 0)


def test_a_step_is_printed() -> None:
    then = "then   a step of 0.125 to f = 0.75"
    assert str(STEP).splitlines() == [*LINES, then]
    assert str(replace(STEP, first_step=0.0)).splitlines() == LINES
    assert str(replace(STEP, first_step=math.nan)).splitlines() == LINES
    told = TELEPORT.status.value
    refused = replace(STEP, kind="none", refused="too narrow")
    assert (refused.moved, refused.message) == (False, f"{told}; not made: too narrow")
    assert str(refused).splitlines() == [*LINES, f"made   {refused.message}"]
    short = replace(STEP, share=0.5)
    further = "shortened to 0.5: further on the loss rises on samples that were not used"
    assert (short.moved, short.message) == (True, f"{told}; {further}")
    assert str(short).splitlines() == [*LINES, then, f"made   {short.message}"]
    assert replace(STEP, share=0.0).message == told
    down = "a step down to the minimizer of the quadratic model was taken instead"
    assert replace(STEP, kind="descent").message == f"{told}; {down}"
    stayed = replace(STEP, teleport=replace(TELEPORT, status=TeleportStatus.NO_FEASIBLE_GAIN))
    assert stayed.message == "no point was found that keeps the value and has a larger gradient"
    assert replace(stayed, kind="none").message == f"{stayed.message}; this is the start itself"


def test_a_descent_is_printed() -> None:
    gradient = torch.ones(2)
    result = MinimizeResult(X, 0.5, 1e-9, MinimizeStatus.GRADIENT_SMALL, 7, 2, Cost(gradients=1), gradient=gradient)
    assert str(result).splitlines() == [
        "GRADIENT_SMALL: the gradient norm fell below the tolerance gtol",
        "f      0.5 after 7 steps and 2 teleports",
        "‖∇f‖   1e-09",
        "cost   1 gradient equivalents (0 values, 1 gradient, 0 Hessian-vector products), 0 s",
    ]
    assert result.success
    assert (result.nit, result.fun, result.jac is gradient) == (7, 0.5, True)
    assert not replace(result, status=MinimizeStatus.MAX_COST).success
    rows = [MinimizeRow(0, 1.0, 2.0, 3.0, kind, 0.1, 0.0) for kind in ("teleport", "step", "first step")]  # type: ignore[arg-type]
    assert [row.teleported for row in rows] == [True, False, False]


def test_a_run_is_printed() -> None:
    policy: TeleportPolicy[None] = TeleportPolicy(Every(5), Krylov(), first_step=True)
    policy.counts.update(trials=4, teleports=2, descents=1)
    policy.cost, policy.monitor.undone = 30.0, 1
    lines = [
        "schedule   every 5 steps from step 0, 20 steps",
        "tried      4 teleports",
        "made       2 teleports, 1 descents; 1 undone",
    ]
    assert policy.summary(20, 120.0).splitlines() == [*lines, "cost       30 of 120 gradient equivalents (25%)"]
    assert policy.summary(20, 0.0).splitlines() == [*lines, "cost       30 of 0 gradient equivalents (0%)"]
