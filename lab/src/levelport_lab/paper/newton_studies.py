"""Figures 6, 15 and 16: teleporting at every step against Newton-CG, with as many Hessian-vector products per step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from levelport.objective import Point
from levelport.optim import MinimizeRow, MinimizeStatus, Never, Newton, minimize
from levelport_lab.choices import SolverName
from levelport_lab.claims import Claim, NotRunError
from levelport_lab.engine.spec import Run, RunSpec, RunStatus, choose
from levelport_lab.paper.batched import batched
from levelport_lab.paper.methods import STEP_SIZES, Method
from levelport_lab.paper.study import Results, Setup, Study
from levelport_lab.paper.teleports import TeleportPlan, as_scheduled, every, planned_solver
from levelport_lab.paper.training import CURVES, Precision, Training
from levelport_lab.pictures import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    WITH_TELEPORTS,
    WITHOUT_TELEPORTS,
    LegendEntry,
    legend_below,
    new_figure,
)
from levelport_lab.problems import problem


@dataclass(frozen=True)
class NewtonRun(RunSpec):
    """Newton-CG with fixed steps (the best is kept), or with a strong-Wolfe search where ``settings`` is empty."""

    kind: ClassVar[str] = "newton-cg"
    revision: ClassVar[int] = 2
    problem: str
    reg: float
    hvps: int
    ticks: int
    settings: tuple[float, ...] = ()
    seed: int = 0
    precision: Precision = "float64"

    @property
    def label(self) -> str:
        return f"{self.problem} Newton-CG{'' if self.settings else '-LS'}"

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.problem.partition("/")[2],)

    @property
    def rough_seconds(self) -> float:
        named = problem(self.problem)
        per_hvp = 1e-4 + 4e-10 * named.info.samples * named.dimension
        return max(1, len(self.settings)) * self.ticks * (self.hvps + 3) * per_hvp

    def run(self) -> list[Run]:
        return choose([self._one(step) for step in self.settings] if self.settings else [self._one(None)])

    def _one(self, step: float | None) -> Run:
        named = problem(self.problem, reg=self.reg, seed=self.seed, dtype=getattr(torch, self.precision))
        rows: list[tuple[float, ...]] = []

        def keep(row: MinimizeRow, point: Point) -> None:
            loss = row.value - self.reg * float(point.x @ point.x)
            rows.append((row.value, loss, row.gradient_norm, named.test_accuracy(point.x), row.cost, row.seconds))

        rule = Newton(max_hvps=self.hvps) if step is None else Newton(max_hvps=self.hvps, step=step)
        result = minimize(
            batched(named).objective,
            named.initial_point(),
            rule,
            schedule=Never(),
            gtol=0.0,
            max_iterations=self.ticks,
            callback=keep,
        )
        diverged = result.status is MinimizeStatus.DIVERGED
        return Run(
            setting=math.nan if step is None else step,
            status=RunStatus.DIVERGED if diverged else RunStatus.OK,
            message=result.message,
            final_value=math.inf if diverged else result.value,
            facts={"iterations": float(result.iterations), "hvps": float(result.cost.hvps)},
            curves=dict(zip(CURVES, np.array(rows, dtype=np.float64).T, strict=True)),
        )


class Line(NamedTuple):
    """One method of the comparison."""

    label: str
    colour: str
    solid: bool
    spec: Callable[[str, int], RunSpec]


HVPS = 25


def precision_of(name: str) -> Precision:
    """Networks are trained in single precision, as in the profiles."""
    return "float64" if name.startswith("logreg") else "float32"


def _newton(hvps: int, settings: tuple[float, ...], name: str, ticks: int) -> NewtonRun:
    return NewtonRun(name, 0.0, hvps, ticks, settings=settings, precision=precision_of(name))


def lines(setup: Setup) -> list[Line]:
    """Newton-CG with and without search, then gradient descent with teleports by each solver."""
    steps = STEP_SIZES if setup.tier != "smoke" else (1.0, 0.1)
    constants = Method.ARMIJO.settings if setup.tier == "full" else (0.1, 0.5)
    hvps = HVPS if setup.tier != "smoke" else 4
    colours = {"published": (BLUE, GREEN), "ours": (ORANGE, RED)}
    found = [
        Line("Newton-CG", BLACK, False, partial(_newton, hvps, steps)),
        Line("Newton-CG-LS", PURPLE, False, partial(_newton, hvps, ())),
    ]
    for solver in setup.solvers:

        def gd(name: str, ticks: int, *, method: Method, solver: SolverName = solver) -> Training:
            at = as_scheduled(every(1, 0, ticks), setup.protocol)
            backtracks = 20 if setup.protocol == "released" and solver == "published" else 25
            plan = TeleportPlan(planned_solver(solver, setup.protocol), at, limit=hvps, backtracks=backtracks)
            settings = constants if method is Method.ARMIJO else steps
            return Training(name, 0.0, method, settings, ticks, plan=plan, precision=precision_of(name))

        fixed, search = colours[solver]
        found += [
            Line(f"GD, {solver}", fixed, True, partial(gd, method=Method.SGD)),
            Line(f"GD-LS, {solver}", search, True, partial(gd, method=Method.ARMIJO)),
        ]
    return found


class NewtonStudy(Study):
    """The three figures share their runs; they differ in problems and quantities."""

    convex: ClassVar[bool] = True
    networks: ClassVar[bool] = True
    quantities: ClassVar[tuple[str, ...]] = ("best_value",)

    def problems(self, setup: Setup) -> list[tuple[str, int]]:
        """Names and iterations, without regularisation as in the paper, whose text does not name them all."""
        sets = {
            "full": (("hill-valley", "chess-krvkp", "tic-tac-toe"), ("breast-cancer", "horse-colic", "ozone")),
            "quick": (("chess-krvkp", "ionosphere", "tic-tac-toe"), ("blood", "pima")),
            "smoke": (("blood",), ("blood",)),
        }[setup.tier]
        convex_ticks, network_ticks = {"full": (100, 100), "quick": (50, 10), "smoke": (3, 2)}[setup.tier]
        network = "mlp-relu-5-5" if setup.tier == "smoke" else "mlp-relu-100-100"
        convex_problems = [(f"logreg/{name}", convex_ticks) for name in setup.restricted(sets[0])]
        network_problems = [(f"{network}/{name}", network_ticks) for name in setup.restricted(sets[1])]
        return (convex_problems if self.convex else []) + (network_problems if self.networks else [])

    def specs(self, setup: Setup) -> list[RunSpec]:
        return [line.spec(name, ticks) for name, ticks in self.problems(setup) for line in lines(setup)]

    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        problems = self.problems(setup)
        # Figure 6 is one quantity over all problems, in two rows; the others are a row per problem.
        if len(self.quantities) == 1:
            columns = max(1, math.ceil(len(problems) / 2))
            figure, grid = new_figure(math.ceil(len(problems) / columns), columns, width=2.7, height=2.0)
            panels = [[panel] for row in grid for panel in row]
        else:
            figure, panels = new_figure(len(problems), len(self.quantities), width=2.7, height=2.0)
        for row, (name, ticks) in zip(panels, problems, strict=False):
            for line in lines(setup):
                run = results.best(line.spec(name, ticks))
                if run is None or not len(run.curves.get("value", ())):
                    continue
                for panel, quantity in zip(row, self.quantities, strict=True):
                    style = WITH_TELEPORTS if line.solid else WITHOUT_TELEPORTS
                    panel.plot(_series(run, quantity), color=line.colour, linestyle=style)
                    if quantity != "test_accuracy":
                        panel.set_yscale("log")
            for panel, quantity in zip(row, self.quantities, strict=True):
                panel.set_title(f"{name.replace('mlp-relu-100-100', 'network')}: {quantity.replace('_', ' ')}")
                panel.set_xlabel("iterations")
        for row in panels[len(problems) :]:
            for panel in row:
                panel.set_axis_off()
        looks: list[LegendEntry] = [
            (line.label, {"color": line.colour, "linestyle": WITH_TELEPORTS if line.solid else WITHOUT_TELEPORTS})
            for line in lines(setup)
        ]
        legend_below(figure, looks)
        return {self.name: figure}

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = []
        for name, ticks in self.problems(setup):
            for line in lines(setup):
                run = results.best(line.spec(name, ticks))
                if run is None or not len(run.curves.get("value", ())):
                    continue
                rows.append(
                    {
                        "problem": name,
                        "method": line.label,
                        "setting": run.setting,
                        "status": run.status.value,
                        "start": run.curves["value"][0],
                        "best": run.curves["value"].min(),
                        "final": run.final_value,
                        "gradient_norm": run.curves["gradient_norm"][-1],
                        "test_accuracy": run.curves["test_accuracy"][-1],
                        "gradient_equivalents": run.curves["gradient_equivalents"][-1],
                    }
                )
        return pd.DataFrame(rows)

    def digest(self, table: pd.DataFrame) -> pd.DataFrame:
        return table


class NewtonComparison(NewtonStudy):
    """Figure 6."""

    name = "fig6"
    title = "Newton-CG against gradient descent with teleports at every step, equal HVPs: best objective so far"

    def claims(self, setup: Setup, results: Results) -> list[Claim]:
        table = self.table(setup, results)
        convex = [name for name in self._names(setup, "logreg") if name.split("/")[1] in ("hill-valley", "chess-krvkp")]
        networks = self._names(setup, "mlp")
        stalls = "On Hill Valley and Chess, Newton-CG stalls and GD with teleports goes below it."
        below = "On networks, GD with teleports goes below Newton-CG."

        def ahead(names: list[str], solver: SolverName) -> tuple[bool, str]:
            results.require(self._needed(setup, names, "Newton", solver))
            return overtakes(table, names, solver)

        def fails() -> tuple[bool, str]:
            results.require(self._needed(setup, networks, "Newton"))
            return newton_fails(table, networks)

        claims = []
        for solver in setup.solvers:
            claims += [
                Claim.checked(f"newton-stalls-{solver}", stalls, partial(ahead, convex, solver), solver),
                Claim.checked(f"below-newton-on-networks-{solver}", below, partial(ahead, networks, solver), solver),
            ]
        return [*claims, Claim.checked("newton-fails-on-networks", "On networks, Newton-CG fails.", fails)]

    def _needed(self, setup: Setup, names: list[str], *kinds: str) -> list[RunSpec]:
        """The runs of these kinds on the problems called ``names``."""
        wanted = [line for line in lines(setup) if any(kind in line.label for kind in kinds)]
        return [line.spec(name, ticks) for name, ticks in self.problems(setup) if name in names for line in wanted]

    def _names(self, setup: Setup, model: str) -> list[str]:
        return [name for name, _ in self.problems(setup) if name.startswith(model)]


def newton_fails(table: pd.DataFrame, networks: list[str]) -> tuple[bool, str]:
    """Neither variant of Newton-CG brings the loss below a tenth of where it started, on any network."""
    if not networks:
        raise NotRunError
    rows = pd.concat([_both(table, name, "Newton") for name in networks])
    words = [f"{row.problem} {row.method}: {row.start:.3g} to {row.best:.3g}" for row in rows.itertuples()]
    return bool((rows["best"] > 0.1 * rows["start"]).all()), "; ".join(words)


def overtakes(table: pd.DataFrame, problems: list[str], solver: SolverName) -> tuple[bool, str]:
    """The better GD with teleports ends below the better Newton-CG, by 1 %, on every one of the problems."""
    if not problems:
        raise NotRunError
    bests = {name: [_both(table, name, kind)["best"].min() for kind in ("Newton", solver)] for name in problems}
    words = [f"{name}: Newton-CG {newton:.3g}, GD {gd:.3g}" for name, (newton, gd) in bests.items()]
    return all(gd < 0.99 * newton for newton, gd in bests.values()), "; ".join(words)


def _both(table: pd.DataFrame, problem: str, kind: str) -> pd.DataFrame:
    """The two rows, with and without line search, of Newton-CG or of GD with a solver's teleports."""
    if table.empty:
        raise NotRunError
    rows = table[(table["problem"] == problem) & table["method"].str.contains(kind, regex=False)]
    if len(rows) < 2:
        raise NotRunError
    return rows


class NewtonLogistic(NewtonStudy):
    """Figure 15."""

    name = "fig15"
    title = "Newton-CG against teleports, logistic regression: objective, gradient norm, test accuracy"
    networks = False
    quantities = ("value", "gradient_norm", "test_accuracy")


class NewtonNetworks(NewtonStudy):
    """Figure 16."""

    name = "fig16"
    title = "Newton-CG against teleports, ReLU networks: objective, gradient norm, test accuracy"
    convex = False
    quantities = ("value", "gradient_norm", "test_accuracy")


def _series(run: Run, quantity: str) -> np.ndarray:
    if quantity == "best_value":
        return np.minimum.accumulate(run.curves["value"])
    return run.curves[quantity]
