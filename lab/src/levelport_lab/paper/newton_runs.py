"""Newton-CG for Figures 6, 15 and 16: the one that the paper's authors ran, and the library's own.

Theirs is pytorch-minimize's ``newton-cg`` (Feinman, 2021), one outer iteration per recorded step, at most 25 iterations
of conjugate gradients each, float32, ``xtol`` tiny. With a strong-Wolfe search its first trial is 1e-3 in the released
scripts; the text does not say, and 1 is the implementation's default. Three properties of it decide the figures:

* CG stops once pᵀHp ≤ 3 eps, an absolute bound. Where the gradient is short that holds for the first direction already,
  and the step is zero; the next step starts at the same point and is zero as well.
* An outer iteration whose CG uses up its iterations ends without a step.
* The search accepts the first trial that satisfies the Wolfe conditions with c₂ = 0.9; begun at 1e-3, steps stay short.

The library's (:class:`levelport.optim.Newton`) has a relative test, takes the step that it has, and begins at 1.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.objective import Point
from levelport.optim import MinimizeRow, MinimizeStatus, Never, Newton, minimize
from levelport_lab.choices import Protocol
from levelport_lab.engine.spec import Run, RunSpec, RunStatus
from levelport_lab.paper.descent import CURVES
from levelport_lab.paper.training import Precision, authors_start
from levelport_lab.problems import Problem, problem
from levelport_lab.problems.models import MLP, logistic_loss

Row = tuple[float, ...]
NewtonCode = Literal["levelport", "pytorch-minimize"]


@dataclass(frozen=True)
class NewtonRun(RunSpec):
    """Newton-CG with every fixed step of ``settings``, or with a strong-Wolfe search where there are none.

    ``first_trial`` is the first step that pytorch-minimize's search tries; the library's begins at 1.
    """

    kind: ClassVar[str] = "newton-cg"
    revision: ClassVar[int] = 3
    problem: str
    reg: float
    hvps: int
    ticks: int
    settings: tuple[float, ...] = ()
    seed: int = 0
    precision: Precision = "float64"
    protocol: Protocol = "text"
    code: NewtonCode = "levelport"
    first_trial: float = 1.0

    @property
    def label(self) -> str:
        return f"{self.problem} Newton-CG{'' if self.settings else '-LS'} ({self.code})"

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.problem.partition("/")[2],)

    @property
    def rough_seconds(self) -> float:
        named = problem(self.problem)
        per_hvp = 1e-4 + 4e-10 * named.info.samples * named.dimension
        return max(1, len(self.settings)) * self.ticks * (self.hvps + 3) * per_hvp

    def run(self) -> list[Run]:
        """Every setting with all its curves; the one with the smallest last value is marked."""
        runs = [self._one(step) for step in self.settings] if self.settings else [self._one(None)]
        best = int(np.argmin([run.final_value for run in runs]))
        return [replace(run, chosen=index == best) for index, run in enumerate(runs)]

    def _one(self, step: float | None) -> Run:
        named = problem(self.problem, reg=self.reg, seed=self.seed, dtype=getattr(torch, self.precision))
        start = authors_start(named) if self.protocol == "released" else named.initial_point()
        rows, facts, message = (self._own if self.code == "levelport" else self._theirs)(named, start, step)
        curves = dict(zip(CURVES, np.array(rows, dtype=np.float64).reshape(-1, len(CURVES)).T, strict=True))
        diverged = len(rows) == 0 or "diverged" in message
        return Run(
            setting=math.nan if step is None else step,
            status=RunStatus.DIVERGED if diverged else RunStatus.OK,
            message=message,
            final_value=math.inf if diverged else rows[-1][0],
            facts={**facts, "final_loss": math.inf if diverged else rows[-1][1]},
            curves=curves,
        )

    def _own(self, named: Problem, start: Tensor, step: float | None) -> tuple[list[Row], dict[str, float], str]:
        rows: list[Row] = []

        def keep(row: MinimizeRow, point: Point) -> None:
            loss = row.value - self.reg * float(point.x @ point.x)
            rows.append((row.value, loss, row.gradient_norm, named.test_accuracy(point.x), row.cost, row.seconds))

        result = minimize(
            named.objective(),
            start,
            Newton(max_hvps=self.hvps) if step is None else Newton(max_hvps=self.hvps, step=step),
            schedule=Never(),
            gtol=0.0,
            max_iterations=self.ticks,
            callback=keep,
        )
        diverged = "diverged: " if result.status is MinimizeStatus.DIVERGED else ""
        return rows, {"hvps": float(result.cost.hvps)}, diverged + result.message

    def _theirs(self, named: Problem, start: Tensor, step: float | None) -> tuple[list[Row], dict[str, float], str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it uses torch.jit.script
            import torchmin

        f = flat_function(named)
        options = {
            "lr": self.first_trial if step is None else step,
            "cg_max_iter": self.hvps,
            "line_search": "strong-wolfe" if step is None else "none",
            "twice_diffable": False,
            "xtol": 1e-20,
        }
        rows: list[Row] = []
        x, cost, hvps, idle = start, 0.0, 0, 0
        for tick in range(self.ticks + 1):
            leaf = x.detach().requires_grad_(True)
            evaluated = f(leaf)
            (gradient,) = torch.autograd.grad(evaluated, leaf)
            value, norm = evaluated.item(), float(torch.linalg.vector_norm(gradient))
            if not math.isfinite(value) or not math.isfinite(norm):
                return rows, {"hvps": float(hvps), "idle_steps": float(idle)}, "diverged: the loss is no finite number"
            loss = value - self.reg * float(x @ x)
            rows.append((value, loss, norm, named.test_accuracy(x), cost, math.nan))
            if tick == self.ticks:
                break
            result = torchmin.minimize(f, x, method="newton-cg", max_iter=1, options=dict(options))
            products = min(result.ncg + 1, self.hvps)  # CG reports the iterations before the one that it left
            cost += float(result.nfev) + 2.0 * products
            hvps += products
            idle += bool(torch.equal(result.x, x))
            x = result.x.detach()
        return rows, {"hvps": float(hvps), "idle_steps": float(idle)}, ""


def flat_function(named: Problem) -> Callable[[Tensor], Tensor]:
    """f of a binary classification problem as a function of the flat parameters, for autograd."""
    hidden = named.model.hidden if isinstance(named.model, MLP) else ()
    train = named.train
    sizes = list(pairwise([named.info.features, *hidden, 1]))

    def f(x: Tensor) -> Tensor:
        output, offset = train.inputs, 0
        for layer, (fan_in, fan_out) in enumerate(sizes):
            weight = x[offset : offset + fan_in * fan_out].view(fan_out, fan_in)
            offset += fan_in * fan_out
            output = F.linear(output, weight, x[offset : offset + fan_out])
            offset += fan_out
            if layer < len(sizes) - 1:
                output = F.relu(output)
        return logistic_loss(output, train.targets) + named.reg * x.square().sum()

    return f
