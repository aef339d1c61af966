"""Convergence curves: Figures 5, 13 and 14 (MNIST), and 17 and 18 (UCI sets)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from levelport_lab.choices import SolverName
from levelport_lab.claims import Claim, NotRunError
from levelport_lab.engine.spec import Curve, Run, RunSpec
from levelport_lab.paper.methods import Method
from levelport_lab.paper.profile_grid import Model, Variant, half_of, variants
from levelport_lab.paper.profiles import Band
from levelport_lab.paper.study import METHOD_COLOURS, Results, Setup, Study, method_legend
from levelport_lab.paper.teleports import TeleportPlan, as_scheduled, every, solver_setting
from levelport_lab.paper.training import Training
from levelport_lab.pictures import WITH_TELEPORTS, WITHOUT_TELEPORTS, legend_below, new_figure

QUANTITIES = (("value", "objective"), ("gradient_norm", "gradient norm"), ("test_accuracy", "test accuracy"))
"""What is drawn. The released scripts draw the loss without its penalty in place of the objective."""


Medians = dict[tuple[str, Method], tuple[float, float]]
"""By problem and method: median over restarts of the last value of a curve, without and with teleports."""


class Conclusion(NamedTuple):
    """What the paper concludes from the ends of the curves."""

    name: str
    statement: str
    check: Callable[[Medians], tuple[bool, str]]
    quantity: str = "value"


class CurveStudy(Study):
    """Objective, gradient norm and test accuracy against iterations or epochs; a picture per solver."""

    tick: ClassVar[str] = "iterations"
    conclusions: ClassVar[tuple[Conclusion, ...]]

    @abstractmethod
    def problems(self, setup: Setup) -> list[str]:
        """The problems, a row of panels each."""

    def seeds(self, setup: Setup) -> tuple[int, ...]:
        """The restarts."""
        return (0,)

    @abstractmethod
    def spec(self, setup: Setup, problem: str, variant: Variant, seed: int) -> Training:
        """One run."""

    def specs(self, setup: Setup) -> list[RunSpec]:
        return [
            self.spec(setup, problem, variant, seed)
            for problem in self.problems(setup)
            for variant in variants(setup.solvers)
            for seed in self.seeds(setup)
        ]

    def runs(self, setup: Setup, results: Results, problem: str, variant: Variant) -> list[Run]:
        """The chosen runs of all restarts that are there."""
        found = [self.run(setup, results, problem, variant, seed) for seed in self.seeds(setup)]
        return [run for run in found if run is not None and len(run.curves.get("value", ()))]

    def run(self, setup: Setup, results: Results, problem: str, variant: Variant, seed: int) -> Run | None:
        """The setting with the smallest final f, or (released) with the smallest final loss without its penalty."""
        task = results.task(self.spec(setup, problem, variant, seed))
        if task is None or setup.protocol == "text":
            return None if task is None else task.best
        return min(task.runs, key=lambda run: run.facts["final_loss"])

    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        problems = self.problems(setup)
        pictures = {}
        for solver in setup.solvers:
            figure, panels = new_figure(len(problems), len(QUANTITIES), width=2.7, height=2.0)
            for row, problem in zip(panels, problems, strict=True):
                for method in Method:
                    for variant in (Variant(method), Variant(method, solver)):
                        runs = self.runs(setup, results, problem, variant)
                        if runs:
                            quantities = [_scored(setup, quantity) for quantity, _ in QUANTITIES]
                            solid = variant.solver is not None
                            draw_bands(row, quantities, runs, METHOD_COLOURS[method], solid=solid)
                for panel, (quantity, title) in zip(row, QUANTITIES, strict=True):
                    title = "loss" if _scored(setup, quantity) == "loss" else title
                    panel.set_title(f"{title}, {problem}" if len(problems) > 1 else title)
                    panel.set_xlabel(self.tick)
            legend_below(figure, method_legend())
            pictures[f"{self.name}-{solver}"] = figure
        return pictures

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = []
        for problem in self.problems(setup):
            for variant in variants(setup.solvers):
                for seed in self.seeds(setup):
                    run = self.run(setup, results, problem, variant, seed)
                    if run is None:
                        continue
                    accuracy = run.curves.get("test_accuracy", np.array([np.nan]))
                    rows.append(
                        {
                            "problem": problem,
                            "method": variant.method.value,
                            "teleports": variant.solver or "none",
                            "seed": seed,
                            "setting": run.setting,
                            "status": run.status.value,
                            "final": run.final_value,
                            "accuracy": accuracy[-1] if len(accuracy) else np.nan,
                            **{name: fact for name, fact in run.facts.items() if name != "teleports"},
                        }
                    )
        return pd.DataFrame(rows)

    def digest(self, table: pd.DataFrame) -> pd.DataFrame:
        """Medians over restarts."""
        if table.empty:
            return table
        grouped = table.groupby(["problem", "method", "teleports"], sort=False)
        return grouped[["final", "final_loss", "accuracy", "hvps", "seconds"]].median().reset_index()

    def claims(self, setup: Setup, results: Results) -> list[Claim]:
        def judged(conclusion: Conclusion, solver: SolverName) -> tuple[bool, str]:
            return conclusion.check(self.medians(setup, results, solver, conclusion.quantity))

        return [
            Claim.checked(f"{found.name}-{solver}", found.statement, partial(judged, found, solver), solver)
            for solver in setup.solvers
            for found in self.conclusions
        ]

    def medians(self, setup: Setup, results: Results, solver: SolverName, quantity: str) -> Medians:
        """The ends of the curves; every restart has to be there."""
        ends = [Variant(method, teleports) for method in Method for teleports in (None, solver)]
        problems, seeds, name = self.problems(setup), self.seeds(setup), _scored(setup, quantity)
        results.require([self.spec(setup, problem, v, seed) for problem in problems for v in ends for seed in seeds])
        found: Medians = {}
        for problem in problems:
            for method in Method:
                pair = [self.runs(setup, results, problem, v) for v in (Variant(method), Variant(method, solver))]
                if any(len(runs) < len(seeds) for runs in pair):
                    raise NotRunError
                before, after = (float(np.median([run.curves[name][-1] for run in runs])) for runs in pair)
                found[problem, method] = before, after
        return found


def _scored(setup: Setup, quantity: str) -> str:
    """The curve that the protocol draws and compares where the study says ``quantity``."""
    return "loss" if quantity == "value" and setup.protocol == "released" else quantity


def draw_bands(panels: Sequence[Axes], quantities: Sequence[str], runs: list[Run], colour: str, *, solid: bool) -> None:
    """Median and, where there are restarts, quartiles of the three quantities."""
    style = WITH_TELEPORTS if solid else WITHOUT_TELEPORTS
    for panel, quantity in zip(panels, quantities, strict=True):
        band = Band.of([run.curves[quantity] for run in runs])
        ticks = np.arange(len(band.median))
        panel.plot(ticks, _drawable(band.median), color=colour, linestyle=style, linewidth=1.2)
        if len(runs) > 1:
            panel.fill_between(ticks, _drawable(band.lower), _drawable(band.upper), color=colour, alpha=0.15, lw=0)
        if quantity != "test_accuracy":
            panel.set_yscale("log")


def _drawable(curve: Curve) -> Curve:
    return np.where(np.isfinite(curve), curve, np.nan)


class MnistStudy(CurveStudy):
    """A network with 500 hidden units on MNIST; on scikit-learn's digits in the smaller tiers."""

    options = frozenset({"images", "restarts"})
    activation: ClassVar[str] = "softplus"
    batch: ClassVar[int | None] = None

    def problems(self, setup: Setup) -> list[str]:
        data = setup.mnist if setup.tier == "full" else "digits"
        units = {"full": 500, "quick": 50, "smoke": 5}[setup.tier]
        return [f"mlp-{self.activation}-{units}/{data}"]

    def seeds(self, setup: Setup) -> tuple[int, ...]:
        return tuple(range(setup.restarts or (2 if setup.tier == "smoke" else 3)))

    def spec(self, setup: Setup, problem: str, variant: Variant, seed: int) -> Training:
        released = setup.protocol == "released"
        whole = (50, 10) if released else (100, 30)  # of iterations and epochs; the text does not say
        ticks = {"full": whole[self.batch is not None], "quick": 16, "smoke": 7}[setup.tier]
        settings = variant.method.settings
        if setup.tier != "full":
            settings = (0.1, 0.5) if variant.method is Method.ARMIJO else (1.0, 0.1, 0.01)
        elif released and variant.method is not Method.ARMIJO:
            settings = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
            if self.activation == "softplus" and variant.method is Method.MOMENTUM:
                settings = settings[1:]  # their plotting script leaves out step size 1, with and without teleports
        plan = None
        if variant.solver is not None:
            limit = 2 if setup.tier == "smoke" else 50
            at = every(5, 5, ticks)
            if released:
                at = as_scheduled(every(10, 5, ticks) if self.batch is None else every(2, 1, ticks), "released")
            plan = TeleportPlan(solver_setting(variant.solver, setup.protocol), at, limit=limit)
        return Training(
            problem,
            1e-2,
            variant.method,
            settings,
            ticks,
            batch=self.batch,
            plan=plan,
            seed=seed,
            precision="float32",
            protocol=setup.protocol,
        )


def _all_better(medians: Medians) -> tuple[bool, str]:
    return all(after < before for before, after in medians.values()), _in_words(medians)


def _most_for_search_and_normalized(medians: Medians) -> tuple[bool, str]:
    shares = {method: after / before for (_, method), (before, after) in medians.items()}
    ranked = sorted(shares, key=lambda method: shares[method])
    words = ", ".join(f"{method.label} {shares[method] - 1.0:+.0%}" for method in ranked)
    return set(ranked[:2]) == {Method.ARMIJO, Method.NORMALIZED}, words


def _another_optimum_on_pima(medians: Medians) -> tuple[bool, str]:
    """Return True if a method ends at another loss on pima with teleports than without, by more than 5 %."""
    pairs = {key: pair for key, pair in medians.items() if key[0] == "pima"}
    if not pairs:
        raise NotRunError
    return any(abs(after - before) > 0.05 * before for before, after in pairs.values()), _in_words(pairs)


def _all_within_two_points(medians: Medians) -> tuple[bool, str]:
    return all(abs(after - before) <= 0.02 for before, after in medians.values()), _in_words(medians)


def _all_within_a_tenth(medians: Medians) -> tuple[bool, str]:
    return all(abs(before - after) <= 0.1 * before for before, after in medians.values()), _in_words(medians)


def _sgd_and_polyak_only(medians: Medians) -> tuple[bool, str]:
    helped = {method for (_, method), (before, after) in medians.items() if after < before}
    holds = {Method.SGD, Method.POLYAK} <= helped and not {Method.ARMIJO, Method.MOMENTUM} & helped
    return holds, _in_words(medians)


def _similar_or_better(medians: Medians) -> tuple[bool, str]:
    good = sum(after <= 1.05 * before for before, after in medians.values())
    worst = max(medians, key=lambda key: medians[key][1] / medians[key][0])
    before, after = medians[worst]
    words = f"{good} of {len(medians)} within 5 % or better; worst: {worst[1].label} on {worst[0]}, "
    return good == len(medians), words + f"{before:.4g} → {after:.4g}"


def _in_words(medians: Medians) -> str:
    return ", ".join(f"{method.label} {before:.4g} → {after:.4g}" for (_, method), (before, after) in medians.items())


class MnistSmooth(MnistStudy):
    """Figure 5."""

    name = "fig5"
    title = "MNIST, softplus network, full batch"
    conclusions = (
        Conclusion("mnist-faster", "Teleporting improves every method on a smooth network, full batch.", _all_better),
        Conclusion(
            "mnist-pronounced",
            "Teleporting lowers the final loss most for line search and normalized SGD.",
            _most_for_search_and_normalized,
        ),
        Conclusion(
            "mnist-accuracy",
            "Teleporting does not affect test accuracy (within two points).",
            _all_within_two_points,
            "test_accuracy",
        ),
    )


class MnistStochastic(MnistStudy):
    """Figure 13."""

    name = "fig13"
    title = "MNIST, softplus network, mini-batches of 128"
    tick = "epochs"
    batch = 128
    conclusions = (
        Conclusion(
            "mnist-stochastic",
            "With mini-batches, teleports neither help nor harm (final loss within 10 %).",
            _all_within_a_tenth,
        ),
    )


class MnistNonSmooth(MnistStudy):
    """Figure 14."""

    name = "fig14"
    title = "MNIST, ReLU network, full batch"
    activation = "relu"
    conclusions = (
        Conclusion(
            "mnist-relu", "With ReLU, teleports help SGD and SPS but not SGD-LS and SGD-M.", _sgd_and_polyak_only
        ),
    )


class UciCurves(CurveStudy):
    """Curves of problems that are part of a deterministic profile; the runs are the same ones."""

    options = frozenset({"sets"})
    model: ClassVar[Model]
    sets: ClassVar[tuple[str, ...]]
    quick_sets: ClassVar[tuple[str, ...]]
    reg: ClassVar[float]

    def problems(self, setup: Setup) -> list[str]:
        return list(setup.restricted({"full": self.sets, "quick": self.quick_sets, "smoke": ("blood",)}[setup.tier]))

    def spec(self, setup: Setup, problem: str, variant: Variant, seed: int) -> Training:
        half = half_of(self.model, "deterministic", setup)
        variant = replace(variant, limit=1) if setup.tier == "smoke" and variant.solver else variant
        return half.spec(f"{half.model}/{problem}", self.reg, variant)


_ENDS = "On the chosen sets, methods with teleports end at a similar or better objective than without."


class LogisticCurves(UciCurves):
    """Figure 17."""

    name = "fig17"
    title = "Convergence on three logistic regression problems (reg 1e-6)"
    model = "logreg"
    sets = ("chess-krvkp", "ionosphere", "tic-tac-toe")
    quick_sets = sets
    reg = 1e-6
    conclusions = (Conclusion("fig17-final", _ENDS, _similar_or_better),)


class NetworkCurves(UciCurves):
    """Figure 18."""

    name = "fig18"
    title = "Convergence on three ReLU network problems (reg 0.01)"
    model = "network"
    sets = ("credit-approval", "pima", "ringnorm")
    quick_sets = ("blood", "pima")
    reg = 1e-2
    conclusions = (
        Conclusion("fig18-final", _ENDS, _similar_or_better),
        Conclusion("fig18-pima", "On pima teleporting leads to another optimum.", _another_optimum_on_pima),
    )
