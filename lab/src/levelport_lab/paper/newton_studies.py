"""Figures 6, 15 and 16: teleporting at every step against Newton-CG, with as many Hessian-vector products per step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from levelport_lab.choices import SolverName
from levelport_lab.claims import Claim, NotRunError
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.paper.curve_studies import draw_bands
from levelport_lab.paper.descent import best_so_far
from levelport_lab.paper.methods import STEP_SIZES, Method
from levelport_lab.paper.newton_runs import NewtonRun
from levelport_lab.paper.study import Results, Setup, Study
from levelport_lab.paper.teleports import TeleportPlan, as_scheduled, every, solver_setting
from levelport_lab.paper.training import Precision, Training
from levelport_lab.pictures import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    WITH_TELEPORTS,
    WITHOUT_TELEPORTS,
    LegendEntry,
    legend_below,
    new_figure,
)


class Line(NamedTuple):
    """One method of the comparison."""

    label: str
    colour: str
    solid: bool
    spec: Callable[[str, int], RunSpec]


HVPS = 25


def precision_of(name: str) -> Precision:
    """Of what the text leaves open: networks are trained in single precision, as in the profiles."""
    return "float64" if name.startswith("logreg") else "float32"


def lines(setup: Setup) -> list[Line]:
    """The authors' Newton-CG and ours, each with fixed steps and with a search, then gradient descent with teleports.

    In the released protocol all but our Newton-CG is in single precision, as they ran it.
    """
    released = setup.protocol == "released"
    steps = STEP_SIZES if setup.tier != "smoke" else (1.0, 0.1)
    constants = Method.ARMIJO.settings if setup.tier == "full" else (0.1, 0.5)
    hvps = HVPS if setup.tier != "smoke" else 4

    def newton(name: str, ticks: int, *, settings: tuple[float, ...], theirs: bool) -> NewtonRun:
        run = NewtonRun(name, 0.0, hvps, ticks, settings=settings, protocol=setup.protocol)
        if theirs:
            first = 1e-3 if released and not settings else 1.0
            return replace(run, precision="float32", code="pytorch-minimize", first_trial=first)
        return replace(run, precision=precision_of(name))

    def gd(name: str, ticks: int, *, method: Method, solver: SolverName) -> Training:
        at = as_scheduled(every(1, 0, ticks), setup.protocol)
        backtracks = 20 if released and solver == "published" else 25
        plan = TeleportPlan(solver_setting(solver, setup.protocol), at, limit=hvps, backtracks=backtracks)
        settings = constants if method is Method.ARMIJO else steps
        precision: Precision = "float32" if released else precision_of(name)
        return Training(name, 0.0, method, settings, ticks, plan=plan, precision=precision, protocol=setup.protocol)

    found = [
        Line(f"Newton-CG{search}, {who}", colour, False, partial(newton, settings=settings, theirs=who == "authors'"))
        for who, colours in (("authors'", (BLACK, PURPLE)), ("ours", (GREY, SKY)))
        for search, settings, colour in (("", steps, colours[0]), ("-LS", (), colours[1]))
    ]
    gd_colours = {"published": (BLUE, GREEN), "ours": (ORANGE, RED)}
    return found + [
        Line(f"{label}, {solver} teleports", colour, True, partial(gd, method=method, solver=solver))
        for solver in setup.solvers
        for label, method, colour in zip(("GD", "GD-LS"), (Method.SGD, Method.ARMIJO), gd_colours[solver], strict=True)
    ]


class NewtonStudy(Study):
    """The three figures share their runs; they differ in problems and quantities."""

    options = frozenset({"sets"})
    convex: ClassVar[bool] = True
    networks: ClassVar[bool] = True
    quantities: ClassVar[tuple[str, ...]] = ("best_value",)

    def problems(self, setup: Setup) -> list[tuple[str, int]]:
        """Names and iterations, without regularization as in the paper, whose text does not name them all."""
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

    def run(self, setup: Setup, results: Results, spec: RunSpec) -> Run | None:
        """The setting with the lowest last value (text), or with the lowest best loss so far (released)."""
        task = results.task(spec)
        if task is None:
            return None
        run = task.best if setup.protocol == "text" else min(task.runs, key=best_so_far)
        return run if len(run.curves.get("value", ())) else None

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
                run = self.run(setup, results, line.spec(name, ticks))
                if run is None:
                    continue
                lowest = {"best_value": np.minimum.accumulate(run.curves["value"])}
                quantities = [_drawn(setup, quantity) for quantity in self.quantities]
                draw_bands(row, quantities, [replace(run, curves=run.curves | lowest)], line.colour, solid=line.solid)
            for panel, quantity in zip(row, self.quantities, strict=True):
                panel.set_title(
                    f"{name.replace('mlp-relu-100-100', 'network')}: {_drawn(setup, quantity).replace('_', ' ')}"
                )
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
                run = self.run(setup, results, line.spec(name, ticks))
                if run is None:
                    continue
                rows.append(
                    {
                        "problem": name,
                        "method": line.label,
                        "setting": run.setting,
                        "status": run.status.value,
                        "start": run.curves["value"][0],
                        "best": run.curves["value"].min(),
                        "best_after_10": run.curves["value"][:11].min(),
                        "final": run.final_value,
                        "gradient_norm": run.curves["gradient_norm"][-1],
                        "test_accuracy": run.curves["test_accuracy"][-1],
                        "gradient_equivalents": run.curves["gradient_equivalents"][-1],
                        "idle_steps": run.facts.get("idle_steps", math.nan),
                    }
                )
        return pd.DataFrame(rows)


class NewtonComparison(NewtonStudy):
    """Figure 6."""

    name = "fig6"
    title = "Newton-CG against gradient descent with teleports at every step, equal HVPs: best objective so far"

    def claims(self, setup: Setup, results: Results) -> list[Claim]:
        table = self.table(setup, results)
        convex, networks = self._names(setup, "logreg"), self._names(setup, "mlp")
        stalling = [name for name in convex if name.split("/")[1] in ("hill-valley", "chess-krvkp")]

        def judged(check: Callable[..., tuple[bool, str]], names: list[str], *solver: SolverName) -> tuple[bool, str]:
            kinds = (", authors'", *(f"{one} teleports" for one in solver))
            wanted = [line for line in lines(setup) if line.label.endswith(kinds)]
            results.require(
                [line.spec(name, n) for name, n in self.problems(setup) if name in names for line in wanted]
            )
            return check(table, names, *solver)

        stalls = "On Hill Valley and Chess, Newton-CG (authors') stalls (a quarter of its steps go nowhere)."
        fails = "On networks, Newton-CG (authors') fails (stays above a tenth of its first loss)."
        first = "Newton-CG (authors') is faster at first on two of three convex problems (lower after 10 steps)."
        below = "On {}, GD with teleports goes below Newton-CG (authors')."
        claims = [
            Claim.checked("newton-stalls", stalls, partial(judged, newton_stalls, stalling)),
            Claim.checked("newton-fails-on-networks", fails, partial(judged, newton_fails, networks)),
        ]
        for solver in setup.solvers:
            claims += [
                Claim.checked(f"{key}-{solver}", statement, partial(judged, check, names, solver), solver)
                for key, statement, check, names in (
                    ("below-newton-on-convex", below.format("Hill Valley and Chess"), overtakes, stalling),
                    ("below-newton-on-networks", below.format("networks"), overtakes, networks),
                    ("newton-first", first, faster_at_first, convex),
                )
            ]
        return claims

    def _names(self, setup: Setup, model: str) -> list[str]:
        return [name for name, _ in self.problems(setup) if name.startswith(model)]


def newton_stalls(table: pd.DataFrame, problems: list[str]) -> tuple[bool, str]:
    """Both variants of the authors' Newton-CG stay where they are in a quarter of a hundred steps, on every problem."""
    rows = _authors_newton(table, problems)
    words = [f"{row.problem} {row.method}: {row.idle_steps:g} steps" for row in rows.itertuples()]
    return bool((rows["idle_steps"] >= 25).all()), "; ".join(words)


def newton_fails(table: pd.DataFrame, networks: list[str]) -> tuple[bool, str]:
    """Neither variant of the authors' Newton-CG brings the loss below a tenth of where it started, on any network."""
    rows = _authors_newton(table, networks)
    words = [f"{row.problem} {row.method}: {row.start:.3g} to {row.best:.3g}" for row in rows.itertuples()]
    return bool((rows["best"] > 0.1 * rows["start"]).all()), "; ".join(words)


def overtakes(table: pd.DataFrame, problems: list[str], solver: SolverName) -> tuple[bool, str]:
    """The better GD with teleports ends below the better Newton-CG, by 1 %, on every one of the problems."""
    pairs, words = _lowest(table, "best", problems, solver)
    return all(gd < 0.99 * newton for newton, gd in pairs), words


def faster_at_first(table: pd.DataFrame, problems: list[str], solver: SolverName) -> tuple[bool, str]:
    """After ten steps the better Newton-CG of the authors is below the better GD, on two problems at least."""
    pairs, words = _lowest(table, "best_after_10", problems, solver)
    return sum(newton < gd for newton, gd in pairs) >= 2, words


def _lowest(
    table: pd.DataFrame, column: str, problems: list[str], solver: SolverName
) -> tuple[list[tuple[float, float]], str]:
    """By problem, the lower of the authors' Newton-CGs and the lower of the two GDs with teleports, and in words."""
    if not problems:
        raise NotRunError
    kinds = (", authors'", f"{solver} teleports")
    pairs = [tuple(_both(table, name, kind)[column].min() for kind in kinds) for name in problems]
    words = [f"{name}: Newton-CG {newton:.3g}, GD {gd:.3g}" for name, (newton, gd) in zip(problems, pairs, strict=True)]
    return pairs, "; ".join(words)


def _authors_newton(table: pd.DataFrame, problems: list[str]) -> pd.DataFrame:
    if not problems:
        raise NotRunError
    return pd.concat([_both(table, name, ", authors'") for name in problems])


def _both(table: pd.DataFrame, problem: str, kind: str) -> pd.DataFrame:
    """The two rows, with and without line search, of a Newton-CG or of GD with a solver's teleports."""
    if table.empty:
        raise NotRunError
    rows = table[(table["problem"] == problem) & table["method"].str.endswith(kind)]
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


def _drawn(setup: Setup, quantity: str) -> str:
    """The released scripts draw the best value so far in all three figures."""
    return "best_value" if quantity == "value" and setup.protocol == "released" else quantity
