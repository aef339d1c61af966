"""The runs behind a performance profile: problems × methods × with and without teleports.

A profile has two *halves*, deterministic and stochastic. The problems are data sets × penalties; the paper has twenty
sets and six penalties. Everything that differs between tiers and protocols is in :func:`half_of`; what differs in
scoring alone is in :func:`scored`, so that both protocols score the same runs where they can.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Literal, get_args

import numpy as np

from levelport_lab.choices import HalfName, Protocol, SolverName
from levelport_lab.engine.spec import Run
from levelport_lab.paper.methods import Method
from levelport_lab.paper.profiles import RELEASED, TEXT, Axis, Scoring
from levelport_lab.paper.study import Results, Setup
from levelport_lab.paper.teleports import TeleportPlan, as_scheduled, every, solver_setting
from levelport_lab.paper.training import Precision, Training
from levelport_lab.problems import REGULARIZATION
from levelport_lab.problems.catalogue import UCI

Model = Literal["logreg", "network"]
HALF_NAMES: tuple[HalfName, ...] = get_args(HalfName)

BY_SIZE = tuple(sorted(UCI, key=lambda name: UCI[name].samples * UCI[name].features))
"""The twenty data sets, the smallest first."""

_MODELS: dict[Model, tuple[str, Precision]] = {
    "logreg": ("logreg", "float64"),
    "network": ("mlp-relu-100-100", "float32"),
}


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
        timed: which settings are run alone, for their time.
        protocol: decides the mode of the published solver, and see :class:`Training`.
        plain_ticks: how long methods without teleports run, where that differs.
        admissible: see :class:`Training`.
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
    timed: Literal["no", "chosen", "every"] = "no"
    protocol: Protocol = "text"
    plain_ticks: int | None = None
    admissible: float | None = None

    def problems(self) -> list[tuple[str, float]]:
        """Names and penalties."""
        return [(f"{self.model}/{data}", reg) for data in self.sets for reg in self.regs]

    def spec(self, problem: str, reg: float, variant: Variant) -> Training:
        """The run of one variant on one problem."""
        plan = None
        if variant.solver is not None:
            plan = TeleportPlan(solver_setting(variant.solver, self.protocol), self.at, limit=variant.limit)
        settings = variant.method.settings
        if self.settings:
            settings = self.settings if variant.method is not Method.ARMIJO else (0.1, 0.5)
        return Training(
            problem,
            reg,
            variant.method,
            settings,
            self.plain_ticks if self.plain_ticks is not None and plan is None else self.ticks,
            batch=self.batch,
            plan=plan,
            timed=self.timed,
            precision=self.precision,
            protocol=self.protocol,
            admissible=self.admissible if plan is not None or self.timed != "no" else None,
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
    half = replace(half, sets=setup.sets or half.sets, regs=setup.regs or half.regs, protocol=setup.protocol)
    half = replace(half, at=(0,) if initial else as_scheduled(half.at, setup.protocol))
    if setup.protocol == "text":
        return half
    # Figures 9 to 12 are read by the released rule alone, which never counts a run that has left its ceiling. The runs
    # of Figures 4 and 8 serve others as well: they go on.
    ceiling = RELEASED.ceiling if initial or longer else None
    half = replace(half, admissible=ceiling, timed="every" if longer else "no", precision="float32")
    return replace(half, plain_ticks=20 * half.ticks) if longer and half.batch is None else half


def _full(model: Model, name: HalfName, longer: bool) -> Half:
    """The paper."""
    if name == "stochastic":
        ticks, batch, tau = (200 if longer else 100), 64, 0.05
        at = every(10, 5, ticks)
    else:
        ticks, batch, tau = (1000 if longer else 500), None, (0.1 if model == "network" else 0.15)
        at = every(50, 5, ticks if longer else 400)  # the untimed schedule ends early, at 355
    architecture, precision = _MODELS[model]
    timed: Literal["no", "chosen"] = "chosen" if longer else "no"
    return Half(name, architecture, BY_SIZE, REGULARIZATION, ticks, batch, at, tau, precision, timed=timed)


def _quick(model: Model, name: HalfName, longer: bool) -> Half:
    """Minutes on two cores, with the embedded data: fewer problems, and shorter runs where those are slow."""
    half, few = _full(model, name, longer), (10.0, 1.0, 0.1, 0.01)
    embedded = tuple(name for name in BY_SIZE if UCI[name].embedded)
    if model == "network":
        half = replace(half, sets=embedded[:2], regs=(1e-2, 1e-4), settings=few)
    else:
        half = replace(half, sets=embedded[:6], regs=(1e-2, 1e-6))
    if name == "stochastic":
        half = replace(half, ticks=20, at=every(10, 5, 20), settings=few)
    elif model == "network" or longer:
        half = replace(half, ticks=110, at=every(50, 5, 110), settings=few)
    return replace(half, sets=half.sets[: 1 if model == "network" else 2], regs=(1e-4,)) if longer else half


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
    scoring: Scoring

    def spent(self, axis: Axis) -> float:
        """Until solved; infinite if never."""
        return self.scoring.spent(self.run, self.start, self.optimum, self.tau, axis)


def scored(
    half: Half,
    setup: Setup,
    results: Results,
    limits: tuple[int, ...] = (50,),
    *,
    ceiling: bool = True,
    own_start: bool = False,
    axis: Axis = Axis.ITERATIONS,
) -> Iterator[Scored]:
    """Every variant on the problems for which all variants are there: others would make the shares unequal.

    ``ceiling=False`` leaves out the released rule's extra condition; ``own_start`` is its f(w_0) in Figures 9 and 10
    (see :class:`Scoring`); ``axis`` is what its choice of a setting goes by.
    """
    scoring = TEXT if setup.protocol == "text" else RELEASED if ceiling else replace(RELEASED, ceiling=np.inf)
    scoring = replace(scoring, own_start=own_start)
    chosen = variants(setup.solvers, limits)
    for problem, reg in half.problems():
        tasks = [results.task(half.spec(problem, reg, variant)) for variant in chosen]
        complete = [task.runs for task in tasks if task is not None]
        if len(complete) < len(chosen):
            continue
        seen = [curve for runs in complete for run in runs if len(curve := scoring.curve(run))]
        if not seen:
            continue
        start, lowest = float(seen[0][0]), min(float(curve.min()) for curve in seen)
        optimum = best_value(half, setup, problem, reg, lowest)
        for variant, runs in zip(chosen, complete, strict=True):
            run = scoring.representative(runs, start, optimum, half.tau, axis)
            yield Scored(problem, reg, variant, run, start, optimum, half.tau, scoring)


def best_value(half: Half, setup: Setup, problem: str, reg: float, lowest: float) -> float:
    """f*, of f or (released protocol) of the loss without its penalty, at the minimizer of f.

    It is exact and certified for logistic regression; for networks it is ``lowest``, the smallest value that any run of
    the half has seen. ``setup.reference`` may ask for the authors' own numbers instead.
    """
    named = half.spec(problem, reg, Variant(Method.SGD)).named_problem()
    if setup.reference == "released":
        return released_optimum(named.data, reg, network=not named.convex)
    if not named.convex:
        return lowest
    optimum = named.optimum()
    if setup.protocol == "text":
        return float(optimum.value)
    minimizer = optimum.point()
    return float(optimum.value) - reg * float(minimizer @ minimizer)


def released_optimum(data: str, reg: float, *, network: bool) -> float:
    """The estimate of f* that the paper's authors released; ValueError where they have none.

    Data, not code: 280 numbers from https://github.com/aaronpmishkin/teleport, commit 58126fa
    (``scripts/optimal_values.pkl``), the smallest *recorded* values of the loss without its penalty. With mini-batches
    the scripts add up the batches that were not dropped and divide by all samples, which is too small by the share of
    the dropped batch; so 77 of the 120 logistic ones lie below the infimum of the loss.
    """
    try:
        return _released_optima()[data, reg][network]
    except KeyError as error:
        raise ValueError(
            f"the authors have no f* for {data} with the penalty {reg:g}; use the reference 'exact'."
        ) from error


@lru_cache(maxsize=1)
def _released_optima() -> dict[tuple[str, float], tuple[float, float]]:
    text = resources.files("levelport_lab.paper").joinpath("released_optima.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["dataset"], float(row["reg"])): (float(row["logistic"]), float(row["network"])) for row in rows}
