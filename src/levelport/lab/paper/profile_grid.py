"""The runs behind a performance profile: problems × methods × with and without teleports.

A profile has two *halves*, deterministic and stochastic. The problems are data sets × penalties; the paper has twenty
sets and six penalties. Everything that differs between tiers is in :func:`half_of`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from levelport.lab.choices import HalfName, SolverName
from levelport.lab.engine.spec import Run
from levelport.lab.paper.methods import Method
from levelport.lab.paper.profiles import Axis, spent_until_solved
from levelport.lab.paper.study import Results, Setup
from levelport.lab.paper.teleports import TeleportPlan, every
from levelport.lab.paper.training import Precision, Training
from levelport.problems import REGULARISATION
from levelport.problems.catalogue import UCI

Model = Literal["logreg", "network"]
HALF_NAMES: tuple[HalfName, ...] = get_args(HalfName)

BY_SIZE = tuple(sorted(UCI, key=lambda name: UCI[name].samples * UCI[name].features))
"""The twenty data sets, the smallest first."""

_MODELS: dict[Model, tuple[str, Precision]] = {
    "logreg": ("logreg", "float64"),
    "network": ("mlp-relu-100-100", "float32"),
}

EMBEDDED_BY_SIZE = tuple(name for name in BY_SIZE if UCI[name].embedded)


@dataclass(frozen=True)
class Variant:
    """A method with or without teleports; ``solver`` None means without."""

    method: Method
    solver: SolverName | None = None
    limit: int = 50


@dataclass(frozen=True)
class Half:
    """One half of a profile.

    Attributes:
        model: as problems are named.
        sets, regs: the problems.
        ticks: iterations, or epochs of mini-batches of ``batch`` samples.
        at: when to teleport.
        tau: the accuracy that counts as solved.
        precision: of the arithmetic; networks are trained in single precision, as PyTorch does by default.
        settings: a smaller grid of step sizes than the paper's; empty for the paper's.
    """

    name: HalfName
    model: str
    sets: tuple[str, ...]
    regs: tuple[float, ...]
    ticks: int
    batch: int | None
    at: tuple[int, ...]
    tau: float
    precision: Precision
    settings: tuple[float, ...] = ()
    timed: bool = False

    def problems(self) -> list[tuple[str, float]]:
        """Names and penalties."""
        return [(f"{self.model}/{data}", reg) for data in self.sets for reg in self.regs]

    def spec(self, problem: str, reg: float, variant: Variant) -> Training:
        """The run of one variant on one problem."""
        plan = None
        if variant.solver is not None:
            plan = TeleportPlan(variant.solver, self.at, limit=variant.limit)
        settings = variant.method.settings
        if self.settings:
            settings = self.settings if variant.method is not Method.ARMIJO else (0.1, 0.5)
        return Training(
            problem,
            reg,
            variant.method,
            settings,
            self.ticks,
            batch=self.batch,
            plan=plan,
            timed=self.timed,
            precision=self.precision,
        )

    def reference(self, problem: str, reg: float) -> Training:
        """The paper's estimate of f*: momentum with its own teleports, five (or 2.5) times as long."""
        longer = self.ticks * 5 if self.batch is None else self.ticks * 5 // 2
        period = 50 if self.batch is None else 10
        spec = self.spec(problem, reg, Variant(Method.MOMENTUM, "published"))
        return replace(
            spec, ticks=longer, timed=False, plan=TeleportPlan("published", every(period, 5, longer), limit=50)
        )


def variants(solvers: tuple[SolverName, ...], limits: tuple[int, ...] = (50,)) -> list[Variant]:
    """Every method without teleports, then with each solver and limit."""
    plain = [Variant(method) for method in Method]
    return plain + [Variant(method, solver, limit) for solver in solvers for limit in limits for method in Method]


def half_of(model: Model, name: HalfName, setup: Setup, *, longer: bool = False, initial: bool = False) -> Half:
    """A half as the tier has it.

    ``longer`` is the paper's timed variant: twice as long, teleports to the end. ``initial`` teleports at the start.
    """
    half = {"full": _full, "quick": _quick, "smoke": _smoke}[setup.tier](model, name, longer)
    return replace(half, sets=setup.sets or half.sets, regs=setup.regs or half.regs, at=(0,) if initial else half.at)


def _full(model: Model, name: HalfName, longer: bool) -> Half:
    """The paper."""
    if name == "stochastic":
        ticks, batch, tau = (200 if longer else 100), 64, 0.05
        at = every(10, 5, ticks)
    else:
        ticks, batch, tau = (1000 if longer else 500), None, (0.1 if model == "network" else 0.15)
        at = every(50, 5, ticks if longer else 400)  # the untimed schedule ends early, at 355
    architecture, precision = _MODELS[model]
    return Half(name, architecture, BY_SIZE, REGULARISATION, ticks, batch, at, tau, precision, timed=longer)


def _quick(model: Model, name: HalfName, longer: bool) -> Half:
    """Minutes on two cores, with the embedded data: fewer problems, and shorter runs where those are slow."""
    half, few = _full(model, name, longer), (10.0, 1.0, 0.1, 0.01)
    if model == "network":
        half = replace(half, sets=EMBEDDED_BY_SIZE[:3], regs=(1e-2, 1e-4), settings=few)
    else:
        half = replace(half, sets=EMBEDDED_BY_SIZE[:8], regs=(1e-2, 1e-4, 1e-6))
    if name == "stochastic":
        half = replace(half, ticks=20, at=every(10, 5, 20), settings=few)
    elif model == "network" or longer:
        half = replace(half, ticks=110, at=every(50, 5, 110), settings=few)
    return replace(half, sets=half.sets[:2], regs=(1e-4,)) if longer else half


def _smoke(model: Model, name: HalfName, longer: bool) -> Half:
    """Seconds: enough to see that everything works, not what comes out."""
    half = replace(_full(model, name, longer), sets=("blood",), regs=(1e-2,), settings=(1.0, 0.1))
    if model == "network":
        half = replace(half, model="mlp-relu-6-6")
    return replace(half, ticks=3, at=(1,)) if name == "stochastic" else replace(half, ticks=12, at=(5,))


@dataclass(frozen=True)
class Scored:
    """A run on a problem, with what decides whether it solved it."""

    problem: str
    reg: float
    variant: Variant
    run: Run
    start: float
    optimum: float
    tau: float

    def spent(self, axis: Axis) -> float:
        """Until solved; infinite if never."""
        return spent_until_solved(self.run, self.start, self.optimum, self.tau, axis)


def scored(half: Half, setup: Setup, results: Results, limits: tuple[int, ...] = (50,)) -> Iterator[Scored]:
    """All runs of a half on problems for which every variant is there: others would make the shares unequal."""
    chosen = variants(setup.solvers, limits)
    for problem, reg in half.problems():
        runs = [results.best(half.spec(problem, reg, variant)) for variant in chosen]
        complete = [run for run in runs if run is not None]
        if len(complete) < len(chosen):
            continue
        start = complete[0].curves["value"][0] if complete[0].curves else np.nan
        optimum = best_value(half, setup, results, problem, reg, complete)
        for variant, run in zip(chosen, complete, strict=True):
            yield Scored(problem, reg, variant, run, float(start), optimum, half.tau)


def best_value(half: Half, setup: Setup, results: Results, problem: str, reg: float, runs: list[Run]) -> float:
    """f*: certified for logistic regression; for networks the smallest value that any run of the half has seen.

    With ``setup.reference == "paper"`` it is the paper's estimate instead.
    """
    if setup.reference == "paper":
        run = results.best(half.reference(problem, reg))
        if run is not None and "value" in run.curves:
            return float(np.nanmin(run.curves["value"]))
    named = half.spec(problem, reg, Variant(Method.SGD)).named_problem()
    if named.convex:
        return float(named.optimum().value)
    return min(float(np.min(run.curves["value"])) for run in runs if len(run.curves.get("value", ())))
