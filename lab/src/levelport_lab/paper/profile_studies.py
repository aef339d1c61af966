"""Figures 4 and 7 to 12: performance profiles, and success against the strength of regularisation."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

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
    references,
    scored,
    variants,
)
from levelport_lab.paper.profiles import Axis, Profile
from levelport_lab.paper.study import METHOD_COLOURS, Results, Setup, Study, method_legend
from levelport_lab.paper.teleports import SOLVER_TITLES
from levelport_lab.pictures import GREY, WITH_TELEPORTS, WITHOUT_TELEPORTS, legend_below, new_figure

Shares = dict[Method, tuple[float, float]]
"""By method: share of problems solved without and with teleports."""


class ProfileStudy(Study):
    """A performance profile: two halves side by side, a row per solver, a picture per axis."""

    model: ClassVar[Model]
    statement: ClassVar[str]
    initial: ClassVar[bool] = False
    longer: ClassVar[bool] = False
    solver_limits: ClassVar[tuple[int, ...]] = (50,)
    axes: ClassVar[tuple[Axis, ...]] = tuple(Axis)
    ceiling: ClassVar[bool] = True
    chosen_by: ClassVar[Axis] = Axis.ITERATIONS

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
            if setup.reference == "paper":
                specs += references(half, setup, problem, reg)
        return specs

    def scores(self, name: HalfName, setup: Setup, results: Results) -> list[Scored]:
        """All scored runs of a half."""
        if setup.halves and name not in setup.halves:
            return []
        half, limits = self.half(name, setup), self.limits(setup)
        return list(scored(half, setup, results, limits, ceiling=self.ceiling, axis=self.chosen_by))

    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        scores = {name: self.scores(name, setup, results) for name in HALF_NAMES}
        shown = [name for name in HALF_NAMES if scores[name]]
        if not shown:
            return {}
        rows = [(solver, limit) for solver in setup.solvers for limit in self.limits(setup)]
        # A row per solver; where the solver's limit varies as well, a picture per solver.
        several = len(self.solver_limits) > 1
        groups = [[row for row in rows if row[0] == solver] for solver in setup.solvers] if several else [rows]
        pictures = {}
        for axis in self.axes:
            for group in groups:
                suffix = f"-{group[0][0]}" if several else ""
                pictures[f"{self.name}-{axis.label.replace(' ', '-')}{suffix}"] = _draw_grid(scores, shown, group, axis)
        return pictures

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = [
            {
                "half": name,
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
            for score in self.scores(name, setup, results)
        ]
        return pd.DataFrame(rows)

    def digest(self, table: pd.DataFrame) -> pd.DataFrame:
        """Share of problems solved, and what half of them took, per method and kind of teleport."""
        if table.empty:
            return table
        costs = [f"{axis.value}_to_solve" for axis in Axis]
        grouped = table.groupby(["half", "method", "teleports", "limit"], sort=False)
        rows = grouped[costs].median()
        rows.insert(0, "solved", grouped["iterations_to_solve"].apply(lambda costs: np.isfinite(costs).mean()))
        rows.insert(0, "problems", grouped.size())
        names = {name: f"median {name.removesuffix('_to_solve').replace('_', ' ')}" for name in costs}
        return rows.rename(columns=names).reset_index()

    def claims(self, setup: Setup, results: Results) -> list[Claim]:
        return [
            Claim.checked(
                f"{self.name}-{half}-{solver}",
                self.statement.format(half=half),
                partial(self.check, half, solver, setup, results),
                solver,
            )
            for half in setup.halves or HALF_NAMES
            for solver in setup.solvers
        ]

    def check(self, half: HalfName, solver: SolverName, setup: Setup, results: Results) -> tuple[bool, str]:
        """Shares of problems solved in the end, method by method, with the largest limit on the solver."""
        scores, limit = self.needed_scores(half, setup, results), max(self.limits(setup))
        shares = {
            method: (
                _profile(scores, Variant(method), Axis.ITERATIONS).solved,
                _profile(scores, Variant(method, solver, limit), Axis.ITERATIONS).solved,
            )
            for method in Method
        }
        words = [f"{method.label} {before:.0%} → {after:.0%}" for method, (before, after) in shares.items()]
        return self.bears_out(shares), ", ".join(words)

    def bears_out(self, shares: Shares) -> bool:
        """Whether the shares say what ``statement`` says."""
        return all(after >= before for before, after in shares.values())

    def needed_scores(self, half: HalfName, setup: Setup, results: Results) -> list[Scored]:
        """All scored runs of a half that a claim cannot do without.

        Every task has to be there: :func:`scored` passes over a problem that lacks one, and shares of the problems that
        are left say nothing about the others.
        """
        results.require(self.specs_of(half, setup))
        scores = self.scores(half, setup, results)
        if not scores:
            raise NotRunError
        return scores


class NetworkProfile(ProfileStudy):
    """Figure 4."""

    name = "fig4"
    title = "Performance profiles, ReLU networks (100-100), with and without teleports"
    model = "network"
    statement = "Every {half} method solves at least as many problems with teleports as without (networks)."


class Regularisation(NetworkProfile):
    """Figure 7: the runs of Figure 4, seen by penalty."""

    name = "fig7"
    title = "Success against the strength of regularisation, ReLU networks"
    statement = "All {half} methods solve more network problems when the regularisation is large."
    ceiling = False

    def by_reg(self, name: HalfName, setup: Setup, results: Results) -> dict[Variant, dict[float, float]]:
        """Share of data sets solved, per variant and penalty."""
        scores = self.scores(name, setup, results)
        shares: dict[Variant, dict[float, float]] = {}
        for variant in dict.fromkeys(score.variant for score in scores):
            for reg in sorted({score.reg for score in scores}):
                costs = [s.spent(Axis.ITERATIONS) for s in scores if s.variant == variant and s.reg == reg]
                shares.setdefault(variant, {})[reg] = float(np.mean(np.isfinite(costs)))
        return shares

    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        halves = {name: self.by_reg(name, setup, results) for name in HALF_NAMES}
        shown = [name for name in HALF_NAMES if halves[name]]
        if not shown:
            return {}
        figure, panels = new_figure(len(setup.solvers), len(shown), width=3.4)
        for row, solver in zip(panels, setup.solvers, strict=True):
            for panel, name in zip(row, shown, strict=True):
                shown_here = [(v, shares) for v, shares in halves[name].items() if v.solver in (None, solver)]
                for number, (variant, shares) in enumerate(shown_here):
                    # Many methods solve the same share: each a little to the right of the one before.
                    regs = [reg * 1.02**number for reg in shares]
                    style = WITH_TELEPORTS if variant.solver else WITHOUT_TELEPORTS
                    colour = METHOD_COLOURS[variant.method]
                    panel.plot(regs, list(shares.values()), color=colour, linestyle=style, marker="o", ms=2.5)
                panel.set_xscale("log")
                panel.set_ylim(-0.03, 1.03)
                panel.set_xlabel("regularisation strength")
                panel.set_ylabel("data sets solved")
                panel.set_title(f"{name}, {SOLVER_TITLES[solver]}")
        legend_below(figure, method_legend())
        return {self.name: figure}

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = [
            {
                "half": name,
                "method": variant.method.value,
                "teleports": variant.solver or "none",
                "reg": reg,
                "solved": share,
            }
            for name in HALF_NAMES
            for variant, shares in self.by_reg(name, setup, results).items()
            for reg, share in shares.items()
        ]
        return pd.DataFrame(rows)

    def digest(self, table: pd.DataFrame) -> pd.DataFrame:
        """Penalties side by side."""
        if table.empty:
            return table
        wide = table.pivot_table(index=["half", "method", "teleports"], columns="reg", values="solved", sort=False)
        wide.columns = pd.Index([f"reg {reg:g}" for reg in wide.columns])
        return wide.reset_index()

    def check(self, half: HalfName, solver: SolverName, setup: Setup, results: Results) -> tuple[bool, str]:
        results.require(self.specs_of(half, setup))
        shares = self.by_reg(half, setup, results)
        if not shares or any(len(by) < 2 for by in shares.values()):
            raise NotRunError
        relevant = {variant: by for variant, by in shares.items() if variant.solver in (None, solver)}
        changes = [by[max(by)] - by[min(by)] for by in relevant.values()]
        regs = next(iter(relevant.values()))
        grown = sum(change >= 0 for change in changes)
        words = f"{grown} of {len(changes)} solve at least as many at {max(regs):g} as at {min(regs):g}"
        return grown == len(changes), words


class LogisticProfile(ProfileStudy):
    """Figure 8."""

    name = "fig8"
    title = "Performance profiles, logistic regression, with and without teleports"
    model = "logreg"
    statement = "Every {half} method solves at least as many problems with teleports as without (logistic regression)."


class LogisticInitialisation(ProfileStudy):
    """Figure 9."""

    name = "fig9"
    title = "Initialisation by teleportation, logistic regression"
    model = "logreg"
    statement = "Teleporting at the start harms every {half} method on logistic regression."
    initial = True

    def bears_out(self, shares: Shares) -> bool:
        return all(after < before for before, after in shares.values())


class NetworkInitialisation(ProfileStudy):
    """Figure 10."""

    name = "fig10"
    title = "Initialisation by teleportation, ReLU networks"
    model = "network"
    statement = "Teleporting at the start helps {half} SPS and Norm. SGD on networks, and harms SGD-M."
    initial = True

    def bears_out(self, shares: Shares) -> bool:
        gained = {method: after - before for method, (before, after) in shares.items()}
        return gained[Method.POLYAK] > 0 and gained[Method.NORMALIZED] > 0 and gained[Method.MOMENTUM] < 0


class TimedProfile(ProfileStudy):
    """A profile against time with the solver cut short after 1, 10, 25 and 50 iterations."""

    statement = (
        "Teleports of 50 iterations let {half} methods catch up with plain ones in the same time; shorter ones gain "
        "little."
    )
    timed = True
    longer = True
    solver_limits = (1, 10, 25, 50)
    axes = (Axis.SECONDS, Axis.COST)
    chosen_by = Axis.SECONDS

    def check(self, half: HalfName, solver: SolverName, setup: Setup, results: Results) -> tuple[bool, str]:
        """Both parts: at the time budget of the plain methods, 50 iterations are level or better, and beat 1 and 10."""
        scores = self.needed_scores(half, setup, results)
        means = {
            limit: np.mean([self._solved_in_same_time(scores, method, solver, limit) for method in Method])
            for limit in self.limits(setup)
        }
        plain = np.mean([_profile(scores, Variant(method), Axis.SECONDS).solved for method in Method])
        words = ", ".join(f"{limit} its. {share:.0%}" for limit, share in means.items())
        shortest, short, *_, longest = means.values()
        holds = longest >= plain and longest > max(shortest, short)
        return bool(holds), f"solved within the plain methods' time: plain {plain:.0%}, {words}"

    @staticmethod
    def _solved_in_same_time(scores: list[Scored], method: Method, solver: SolverName, limit: int) -> float:
        """Share of problems solved by the time at which the plain method's run on the same problem had ended."""
        budget = {
            (score.problem, score.reg): float(score.run.curves["seconds"][-1])
            for score in scores
            if score.variant == Variant(method) and len(score.run.curves.get("seconds", ()))
        }
        wanted = [score for score in scores if score.variant == Variant(method, solver, limit)]
        solved = [score.spent(Axis.SECONDS) <= budget.get((score.problem, score.reg), 0.0) for score in wanted]
        return float(np.mean(solved))


class LogisticTimed(TimedProfile):
    """Figure 11."""

    name = "fig11"
    title = "Time profiles, logistic regression, solver limited to 1, 10, 25, 50 iterations"
    model = "logreg"


class NetworkTimed(TimedProfile):
    """Figure 12."""

    name = "fig12"
    title = "Time profiles, ReLU networks, solver limited to 1, 10, 25, 50 iterations"
    model = "network"


def _profile(scores: list[Scored], variant: Variant, axis: Axis) -> Profile:
    return Profile.of([score.spent(axis) for score in scores if score.variant == variant])


def _draw_grid(
    scores: dict[HalfName, list[Scored]], shown: list[HalfName], rows: list[tuple[SolverName, int]], axis: Axis
) -> Figure:
    """A row of panels per solver and limit, a column per half."""
    figure, panels = new_figure(len(rows), len(shown), width=3.4)
    for row, (solver, limit) in zip(panels, rows, strict=True):
        for panel, name in zip(row, shown, strict=True):
            _draw_profile(panel, scores[name], solver, limit, axis)
            epochs = axis is Axis.ITERATIONS and name == "stochastic"
            panel.set_xlabel("epochs" if epochs else axis.label)
            problems = len({(score.problem, score.reg) for score in scores[name]})
            iterations = "" if len({solver for solver, _ in rows}) == len(rows) else f", {limit} its."
            panel.set_title(f"{name}, {SOLVER_TITLES[solver]}{iterations} (n = {problems})")
    legend_below(figure, method_legend())
    return figure


def _draw_profile(panel: Axes, scores: list[Scored], solver: SolverName, limit: int, axis: Axis) -> None:
    """Solid with, dashed without teleports; the line at half of the problems is what the paper compares at."""
    ends = [axis.of(score.run)[-1] for score in scores if len(score.run.curves.get("value", ()))]
    right = max(ends, default=1.0)
    positive = [spent for score in scores if 0 < (spent := score.spent(axis)) < np.inf]
    left = min(positive, default=1.0)
    for method in Method:
        for variant, style in ((Variant(method), WITHOUT_TELEPORTS), (Variant(method, solver, limit), WITH_TELEPORTS)):
            profile = _profile(scores, variant, axis)
            steps = np.concatenate([[left], np.maximum(profile.spent, left), [right]])
            shares = np.concatenate([[profile.at(left)], profile.shares, [profile.solved]])
            panel.step(steps, shares, where="post", color=METHOD_COLOURS[method], linestyle=style)
    panel.axhline(0.5, color=GREY, linewidth=0.8, linestyle="dashed")
    panel.set_xscale("log")  # easy problems take a handful of iterations, hard ones hundreds
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_ylim(-0.02, 1.02)
    panel.set_ylabel("problems solved")
