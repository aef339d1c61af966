"""Figures 4 and 8 to 10: performance profiles over iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from levelport_lab.choices import HalfName, SolverName
from levelport_lab.claims import Claim, NotRunError
from levelport_lab.engine.spec import RunSpec
from levelport_lab.paper.methods import Method
from levelport_lab.paper.profile_grid import (
    HALF_NAMES,
    Half,
    Model,
    Scored,
    Variant,
    half_of,
    scored,
    variants,
)
from levelport_lab.paper.profiles import Axis, Profile
from levelport_lab.paper.study import METHOD_COLOURS, Results, Setup, Study, method_legend
from levelport_lab.paper.teleports import SOLVER_TITLES
from levelport_lab.pictures import GREY, WITH_TELEPORTS, WITHOUT_TELEPORTS, legend_below, new_figure

Pairs = dict[Method, tuple[float, float]]
"""By method, without and with teleports: share of problems solved in the end, or what half of them took."""

FirstLoss = Literal["own", "shared"]
_FIRST_LOSS = {"own": " (first loss: the run's own)", "shared": " (first loss: before the teleport)"}


@dataclass(frozen=True)
class Case:
    """What a claim is checked on: a half, a solver's teleports, and what f(w_0) is."""

    half: HalfName
    solver: SolverName
    setup: Setup
    results: Results
    first_loss: FirstLoss = "shared"


Check = Callable[[Case], tuple[bool, str]]


class ProfileStudy(Study):
    """A performance profile: two halves side by side, a picture per solver."""

    options = frozenset({"sets", "regs", "halves", "reference"})
    model: ClassVar[Model]
    statement: ClassVar[str]
    initial: ClassVar[bool] = False
    longer: ClassVar[bool] = False
    solver_limits: ClassVar[tuple[int, ...]] = (50,)
    axis: ClassVar[Axis] = Axis.ITERATIONS
    ceiling: ClassVar[bool] = True

    def limits(self, setup: Setup) -> tuple[int, ...]:
        """Iterations that the solver is allowed; few in the smoke tier, where nothing depends on them."""
        return self.solver_limits if setup.tier != "smoke" else tuple(range(1, len(self.solver_limits[:3]) + 1))

    def half(self, name: HalfName, setup: Setup) -> Half:
        """One half as the tier has it."""
        return half_of(self.model, name, setup, longer=self.longer, initial=self.initial)

    def specs(self, setup: Setup) -> list[RunSpec]:
        return [spec for name in setup.halves or HALF_NAMES for spec in self.specs_of(name, setup)]

    def specs_of(self, name: HalfName, setup: Setup) -> list[RunSpec]:
        """All runs that a half needs."""
        specs: list[RunSpec] = []
        half = self.half(name, setup)
        for problem, reg in half.problems():
            specs += [half.spec(problem, reg, variant) for variant in variants(setup.solvers, self.limits(setup))]
        return specs

    def first_losses(self, setup: Setup) -> tuple[FirstLoss, ...]:
        """What f(w_0) is: the released scripts take the first record of the run itself, after an initial teleport.

        Where that differs from the text's reading, both are scored, theirs first.
        """
        return ("own", "shared") if self.initial and setup.protocol == "released" else ("shared",)

    def scores(
        self, name: HalfName, setup: Setup, results: Results, first_loss: FirstLoss | None = None
    ) -> list[Scored]:
        """All scored runs of a half, by the protocol's own rule or with another f(w_0)."""
        if setup.halves and name not in setup.halves:
            return []
        half, limits = self.half(name, setup), self.limits(setup)
        own = (first_loss or self.first_losses(setup)[0]) == "own"
        return list(scored(half, setup, results, limits, ceiling=self.ceiling, own_start=own, axis=self.axis))

    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        pictures: dict[str, Figure] = {}
        for number, first_loss in enumerate(self.first_losses(setup)):
            scores = {name: self.scores(name, setup, results, first_loss) for name in HALF_NAMES}
            shown = [name for name in HALF_NAMES if scores[name]]
            for solver in setup.solvers if shown else ():
                suffix = f"-{first_loss}-first-loss" if number else ""
                pictures[f"{self.name}{suffix}-{solver}"] = self._draw(scores, shown, solver, self.limits(setup))
        return pictures

    def _draw(
        self, scores: dict[HalfName, list[Scored]], shown: list[HalfName], solver: SolverName, limits: tuple[int, ...]
    ) -> Figure:
        """A row of panels per limit of the solver, a column per half."""
        figure, panels = new_figure(len(limits), len(shown), width=3.4)
        for row, limit in zip(panels, limits, strict=True):
            for panel, name in zip(row, shown, strict=True):
                _draw_profile(panel, scores[name], solver, limit, self.axis)
                epochs = self.axis is Axis.ITERATIONS and name == "stochastic"
                panel.set_xlabel("epochs" if epochs else self.axis.label)
                problems = len({(score.problem, score.reg) for score in scores[name]})
                iterations = f", {limit} its." if len(limits) > 1 else ""
                panel.set_title(f"{name}, {SOLVER_TITLES[solver]}{iterations} (n = {problems})")
        legend_below(figure, method_legend())
        return figure

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = [
            {
                "half": name,
                "first_loss": first_loss,
                "problem": score.problem,
                "reg": score.reg,
                "method": score.variant.method.value,
                "teleports": score.variant.solver or "none",
                "limit": score.variant.limit if score.variant.solver else 0,
                "setting": score.run.setting,
                "status": score.run.status.value,
                "start": score.start,
                "optimum": score.optimum,
                "final": score.run.final_value,
                "tau": score.tau,
                **{f"{axis.value}_to_solve": score.spent(axis) for axis in Axis},
            }
            for name in HALF_NAMES
            for first_loss in self.first_losses(setup)
            for score in self.scores(name, setup, results, first_loss)
        ]
        return pd.DataFrame(rows)

    def digest(self, table: pd.DataFrame) -> pd.DataFrame:
        """Share of problems solved, and what half of them took, per method and kind of teleport."""
        if table.empty:
            return table
        grouped = table.groupby(["half", "first_loss", "method", "teleports", "limit"], sort=False)
        costs = grouped[[f"{axis.value}_to_solve" for axis in Axis]]
        rows = costs.agg(_half).rename(columns={f"{axis.value}_to_solve": f"half at {axis.label}" for axis in Axis})
        rows.insert(0, "solved", grouped["iterations_to_solve"].apply(lambda spent: np.isfinite(spent).mean()))
        rows.insert(0, "problems", grouped.size())
        return rows.reset_index()

    def claims(self, setup: Setup, results: Results) -> list[Claim]:
        return [
            Claim.checked(
                f"{name}-{half}{'' if first_loss == self.first_losses(setup)[0] else '-shared'}-{solver}",
                statement.format(half=half) + _FIRST_LOSS[first_loss] * (len(self.first_losses(setup)) > 1),
                partial(check, Case(half, solver, setup, results, first_loss)),
                solver,
            )
            for half in setup.halves or HALF_NAMES
            for solver in setup.solvers
            for first_loss in self.first_losses(setup)
            for name, statement, check in self.statements(half)
        ]

    def statements(self, half: HalfName) -> list[tuple[str, str, Check]]:
        """What the paper says of a half: a name, its words, and a check."""
        return [(self.name, self.statement, self.check)]

    def check(self, case: Case) -> tuple[bool, str]:
        """Shares of problems solved in the end, method by method, with the largest limit on the solver."""
        pairs = self.pairs(case, lambda profile: profile.solved)
        return self.bears_out(pairs), _in_words(pairs, ".0%")

    def check_half(self, case: Case) -> tuple[bool, str]:
        """Iterations until half of the problems are solved, method by method."""
        pairs = self.pairs(case, lambda profile: profile.half)
        merits = {method: (-before, -after) for method, (before, after) in pairs.items()}
        return self.bears_out(merits), _in_words(pairs, "g")

    def pairs(self, case: Case, number: Callable[[Profile], float]) -> Pairs:
        """A number of the profiles without and with teleports, the latter with the largest limit on the solver."""
        scores, limit = self.needed_scores(case), max(self.limits(case.setup))

        def of(variant: Variant) -> float:
            return number(profile_of(scores, variant, Axis.ITERATIONS))

        return {method: (of(Variant(method)), of(Variant(method, case.solver, limit))) for method in Method}

    def bears_out(self, merits: Pairs) -> bool:
        """Return True if shares of problems solved, or iterations with a minus sign, say what ``statement`` says."""
        return all(after >= before for before, after in merits.values())

    def needed_scores(self, case: Case) -> list[Scored]:
        """All scored runs of a half that a claim cannot do without.

        Every task has to be there: :func:`scored` passes over a problem that lacks one, and shares of the problems that
        are left say nothing about the others.
        """
        case.results.require(self.specs_of(case.half, case.setup))
        scores = self.scores(case.half, case.setup, case.results, case.first_loss)
        if not scores:
            raise NotRunError
        return scores


class IterationProfile(ProfileStudy):
    """The claim is about iterations, judged where half of the problems are solved, and about those solved at last."""

    faster: ClassVar[str] = "With teleports no {half} method takes more iterations to solve half of the problems."

    def statements(self, half: HalfName) -> list[tuple[str, str, Check]]:
        return [(f"{self.name}-half", self.faster, self.check_half), *super().statements(half)]


class NetworkProfile(IterationProfile):
    """Figure 4."""

    name = "fig4"
    title = "Performance profiles, ReLU networks (100-100), with and without teleports"
    model = "network"
    statement = "Every {half} method solves at least as many problems with teleports as without (networks)."


class LogisticProfile(IterationProfile):
    """Figure 8."""

    name = "fig8"
    title = "Performance profiles, logistic regression, with and without teleports"
    model = "logreg"
    statement = "Every {half} method solves at least as many problems with teleports as without (logistic regression)."

    def statements(self, half: HalfName) -> list[tuple[str, str, Check]]:
        found = super().statements(half)
        momentum = "With teleports {half} SGD-M solves nearly every problem (at least 95 %)."
        found.append((f"{self.name}-momentum", momentum, self.check_momentum))
        if half == "stochastic":
            search = "With mini-batches SGD-LS solves the fewest problems, with and without teleports."
            found.append((f"{self.name}-search", search, self.check_search))
        return found

    def check_momentum(self, case: Case) -> tuple[bool, str]:
        solved = self.pairs(case, lambda profile: profile.solved)
        return solved[Method.MOMENTUM][1] >= 0.95, f"{solved[Method.MOMENTUM][1]:.1%}"

    def check_search(self, case: Case) -> tuple[bool, str]:
        solved = self.pairs(case, lambda profile: profile.solved)
        others = [pair for method, pair in solved.items() if method is not Method.ARMIJO]
        mine = solved[Method.ARMIJO]
        return all(mine[side] < min(pair[side] for pair in others) for side in (0, 1)), _in_words(solved, ".0%")


class LogisticInitialisation(IterationProfile):
    """Figure 9."""

    name = "fig9"
    title = "Initialization by teleportation, logistic regression"
    model = "logreg"
    statement = "Teleporting at the start harms every {half} method on logistic regression: it solves fewer problems."
    faster = "Teleporting at the start harms every {half} method on logistic regression: it solves half of them later."
    initial = True

    def bears_out(self, merits: Pairs) -> bool:
        return all(after < before for before, after in merits.values())


class NetworkInitialisation(IterationProfile):
    """Figure 10."""

    name = "fig10"
    title = "Initialization by teleportation, ReLU networks"
    model = "network"
    statement = "Teleporting at the start helps {half} SPS and Norm. SGD on networks, and harms SGD-M: problems solved."
    faster = "Teleporting at the start helps {half} SPS and Norm. SGD on networks, and harms SGD-M: iterations to half."
    initial = True

    def bears_out(self, merits: Pairs) -> bool:
        gains = {method: after > before for method, (before, after) in merits.items()}
        harmed = merits[Method.MOMENTUM][1] < merits[Method.MOMENTUM][0]
        return gains[Method.POLYAK] and gains[Method.NORMALIZED] and harmed


def _in_words(pairs: Pairs, form: str) -> str:
    return ", ".join(f"{method.label} {before:{form}} → {after:{form}}" for method, (before, after) in pairs.items())


def _half(spent: pd.Series) -> float:
    return Profile.of(list(spent)).half


def profile_of(scores: list[Scored], variant: Variant, axis: Axis) -> Profile:
    return Profile.of([score.spent(axis) for score in scores if score.variant == variant])


def _draw_profile(panel: Axes, scores: list[Scored], solver: SolverName, limit: int, axis: Axis) -> None:
    """Solid with, dashed without teleports; the line at half of the problems is what the paper compares at."""
    ends = [axis.of(score.run)[-1] for score in scores if len(score.run.curves.get("value", ()))]
    right = max(ends, default=1.0)
    positive = [spent for score in scores if 0 < (spent := score.spent(axis)) < np.inf]
    left = min(positive, default=1.0)
    for method in Method:
        for variant, style in ((Variant(method), WITHOUT_TELEPORTS), (Variant(method, solver, limit), WITH_TELEPORTS)):
            profile = profile_of(scores, variant, axis)
            steps = np.concatenate([[left], np.maximum(profile.spent, left), [right]])
            shares = np.concatenate([[profile.at(left)], profile.shares, [profile.solved]])
            panel.step(steps, shares, where="post", color=METHOD_COLOURS[method], linestyle=style)
    panel.axhline(0.5, color=GREY, linewidth=0.8, linestyle="dashed")
    panel.set_xscale("log")  # easy problems take a handful of iterations, hard ones hundreds
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_ylim(-0.02, 1.02)
    panel.set_ylabel("problems solved")
