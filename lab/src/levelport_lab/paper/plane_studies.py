"""Figures 1 and 2: teleportation in the plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from levelport.optim import Armijo
from levelport.solvers import SQP, Auto
from levelport_lab.choices import Protocol
from levelport_lab.claims import Claim
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.paper import plane
from levelport_lab.paper.study import Results, Setup, Study
from levelport_lab.paper.teleports import SolverSetting, TeleportPlan, solver_setting
from levelport_lab.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, legend_below, new_figure

RELEASED = SQP(
    mode="released",
    rho=10.0,
    shrink=0.8,
    max_iterations=1000,
    max_backtracks=100,
    first_rho_after_failure=True,
    final="last",
)
"""The solver as the authors ran it for Figure 1."""


@dataclass(frozen=True)
class PlaneRun(RunSpec):
    """Gradient descent, the same after a teleport, and Newton's method on a function of the plane."""

    kind: ClassVar[str] = "plane"
    revision: ClassVar[int] = 6
    function: str
    start: tuple[float, float]
    solver: SolverSetting
    protocol: Protocol = "text"

    @classmethod
    def figure_1(cls, solver: SolverSetting, protocol: Protocol) -> list[PlaneRun]:
        """The two functions of the paper."""
        return [cls(function, start, solver, protocol) for function, start in plane.FIGURE_1]

    def experiment(self) -> plane.PlaneExperiment:
        """All of it; the released figure has its own settings of the published solver, and other numbers of steps."""
        own = self.solver == "ours"
        if self.protocol == "text":
            planned = TeleportPlan(self.solver, (0,)).teleporter()
            search = Armijo(use_curvature=own)
            return plane.experiment(self.function, self.start, solver=planned, search=search)
        solver, hvps = (Auto(), 50) if own else (RELEASED, RELEASED.max_iterations + 1)
        return plane.experiment(
            self.function,
            self.start,
            solver=solver,
            max_hvps=hvps,
            iterations=100,
            newton_step=0.99,
            newton_iterations=20,
            search=Armijo() if own else plane.BacktrackingArmijo(),
        )

    @property
    def label(self) -> str:
        return f"{self.function}, {self.solver} solver"

    def run(self) -> list[Run]:
        experiment = self.experiment()
        teleport, minimum = experiment.teleport, experiment.function.minimum
        facts = {
            "gain": teleport.gain,
            "gradient_norm": teleport.gradient_norm,
            "kkt_residual": teleport.kkt_residual,
            "hvps": float(teleport.cost.hvps),
        }
        runs = []
        for index, journey in enumerate(experiment.journeys):
            values = np.array([row.value for row in journey.result.trace])
            gaps = values - minimum
            facts_of_run = {**facts, "steps": float(journey.result.iterations)}
            reached = np.flatnonzero(gaps <= 1e-6 * gaps[0])
            iterations = [row.iteration for row in journey.result.trace]
            facts_of_run["steps_to_gap_1e-6"] = float(iterations[reached[0]]) if len(reached) else np.inf
            first_step = [gap for gap, iteration in zip(gaps, iterations, strict=True) if iteration == 1]
            near = np.flatnonzero(values - values[-1] <= 1e-3 * (values[0] - values[-1]))
            facts_of_run["steps_to_own_limit"] = float(iterations[near[0]])
            facts_of_run["gap_after_one_step"] = float(first_step[-1] / gaps[0]) if first_step else np.nan
            norms = np.array([row.gradient_norm for row in journey.result.trace])
            curves = {"value": values, "gradient_norm": norms, "iteration": np.array(iterations, dtype=np.float64)}
            runs.append(Run(setting=float(index), final_value=float(values[-1]), facts=facts_of_run, curves=curves))
        return runs


class TestFunctions(Study):
    """Figure 1."""

    name = "fig1"
    title = "Booth and Goldstein-Price: level sets, teleport, gradient descent, Newton"

    def arms(self, setup: Setup) -> list[SolverSetting]:
        """The solvers; the text leaves open where a search begins, so there are two readings of it."""
        found: list[SolverSetting] = [solver_setting(solver, setup.protocol) for solver in setup.solvers]
        return [*found, "text-restart"] if "text" in found else found

    def specs(self, setup: Setup) -> list[RunSpec]:
        return [run for arm in self.arms(setup) for run in PlaneRun.figure_1(arm, setup.protocol)]

    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        return {
            f"fig1-{arm}": plane.figure([run.experiment() for run in PlaneRun.figure_1(arm, setup.protocol)])
            for arm in self.arms(setup)
        }

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = []
        for spec in self.specs(setup):
            assert isinstance(spec, PlaneRun)
            task = results.task(spec)
            for method, run in zip(("gd", "gd + teleport", "newton"), task.runs if task else (), strict=False):
                shared = {"function": spec.function, "solver": spec.solver, "method": method}
                rows.append({**shared, "final": run.final_value, **run.facts})
        return pd.DataFrame(rows)

    def claims(self, setup: Setup, results: Results) -> list[Claim]:
        claims = []
        for arm in self.arms(setup):
            solver = "ours" if arm == "ours" else "published"
            reading = " (each search begins at ρ again)" if arm == "text-restart" else ""
            booth, goldstein = PlaneRun.figure_1(arm, setup.protocol)

            def one_step(spec: PlaneRun = booth) -> tuple[bool, str]:
                plain, teleported = (run.facts["steps_to_gap_1e-6"] for run in results.runs(spec)[:2])
                left = results.runs(spec)[1].facts["gap_after_one_step"]
                words = f"steps until the gap has fallen to 1e-6: {teleported:g}, without {plain:g}; after one step "
                return teleported <= 1, words + f"{left:.1e} of the gap is left"

            def global_maximum(spec: PlaneRun = booth) -> tuple[bool, str]:
                # Booth is a quadratic with the largest eigenvalue 18: on {f ≤ f₀}, max ‖∇f‖² = 2 · 18 · f₀.
                run = results.runs(spec)[0]
                best, reached = np.sqrt(36.0 * run.curves["value"][0]), run.facts["gradient_norm"]
                return bool(reached >= 0.999 * best), f"gradient norm {reached:.4g} of {best:.4g}"

            def local_maximum(spec: PlaneRun = goldstein) -> tuple[bool, str]:
                facts = results.runs(spec)[1].facts
                words = f"gradient norm × {facts['gain']:.1f} to {facts['gradient_norm']:.1f}, KKT residual "
                return facts["kkt_residual"] ** 2 <= 1e-6, words + f"{facts['kkt_residual']:.1e}"

            def newton_diverges(spec: PlaneRun = goldstein) -> tuple[bool, str]:
                run = results.runs(spec)[2]
                values, norms = run.curves["value"], run.curves["gradient_norm"]
                words = f"from {values[0]:.4g} to {values[-1]:.4g}, gradient norm {norms[-1]:.1e}"
                return not norms[-1] <= 1e-6 * norms.max(), words

            def slow_valley(spec: PlaneRun = goldstein) -> tuple[bool, str]:
                plain, teleported = (run.facts["steps_to_own_limit"] for run in results.runs(spec)[:2])
                end = results.runs(spec)[1].final_value
                words = f"steps to 1e-3 of the gap to {end:.4g}, where both end: {teleported:g}, without {plain:g}"
                return teleported > plain, words

            checks = (
                ("booth-maximum", "On Booth the solver reaches the global maximum of ‖∇f‖ (to 0.1 %).", global_maximum),
                ("booth-one-step", "On Booth, one GD step after teleporting converges (to 1e-6 of the gap).", one_step),
                ("goldstein-kkt", "On Goldstein-Price the solver reaches a local maximum of ‖∇f‖.", local_maximum),
                ("goldstein-slow", "On Goldstein-Price GD is slower from the teleported start.", slow_valley),
            )
            claims += [
                Claim.checked(f"{name}{'-restart' * bool(reading)}-{solver}", statement + reading, check, solver)
                for name, statement, check in checks
            ]
            if arm == self.arms(setup)[0]:
                diverges = "Newton's method diverges on Goldstein-Price (its gradients do not vanish)."
                claims.append(Claim.checked("goldstein-newton", diverges, newton_diverges))
        return claims


class UpdateGeometry(Study):
    """Figure 2: nothing to run, one update drawn."""

    name = "fig2"
    title = "One update of the published solver on a quadratic: ascent, projection, two linearized levels"

    hessian: ClassVar[tuple[tuple[float, float], ...]] = ((2.0, 0.0), (0.0, 8.0))
    start: ClassVar[tuple[float, float]] = (2.0**0.5, 0.5**0.5)
    rho: ClassVar[float] = 0.96

    def specs(self, setup: Setup) -> list[RunSpec]:
        return []

    def geometry(self) -> dict[str, np.ndarray]:
        """x, the ascent step x + ρ q/‖g‖², and its projection x⁺ onto the linearized sub-level set {⟨g, y - x⟩ ≤ 0}."""
        hessian = torch.tensor(self.hessian, dtype=torch.float64)
        x = torch.tensor(self.start, dtype=torch.float64)
        g = hessian @ x
        q = hessian @ g
        size = torch.dot(g, g)
        ascent = x + self.rho * q / size
        multiplier = torch.clamp(self.rho * torch.dot(g, q) / size, min=0.0) / size
        return {
            name: v.numpy() for name, v in {"x": x, "g": g, "ascent": ascent, "next": ascent - multiplier * g}.items()
        }

    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        points = self.geometry()
        x, g, ascent, after = points["x"], points["g"], points["ascent"], points["next"]
        figure, ((panel,),) = new_figure(1, 1, width=4.2, height=3.0)
        hessian = np.array(self.hessian)
        level = 0.5 * x @ hessian @ x
        angle = np.linspace(0, 2 * np.pi, 400)
        circle = np.stack([np.cos(angle), np.sin(angle)])
        for scale, width in ((0.4, 0.6), (0.7, 0.6), (1.0, 1.6), (1.3, 0.6)):
            rim = np.linalg.inv(np.linalg.cholesky(hessian).T) @ circle * np.sqrt(2 * level) * scale
            panel.plot(*rim, color=BLACK if scale == 1.0 else GREY, linewidth=width, zorder=1)
            if scale == 1.0:
                panel.fill(*rim, color=GREY, alpha=0.12, zorder=0)
        tangent = np.array([-g[1], g[0]]) / np.linalg.norm(g)
        line = np.stack([x - 8.0 * tangent, x + 8.0 * tangent])
        panel.plot(*line.T, color=GREEN, zorder=2)
        # The next linearization, at x⁺, which lies above the level: its line does not pass through x⁺.
        normal = hessian @ after
        foot = after + (level - 0.5 * after @ normal) / (normal @ normal) * normal
        along = np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)
        panel.plot(*np.stack([foot - 8.0 * along, foot + 8.0 * along]).T, color=PURPLE, zorder=2)
        arrows = ((x, ascent, ORANGE, "solid"), (ascent, after, BLUE, "dashed"), (x, after, RED, "solid"))
        for tail, head, colour, style in arrows:
            look = {"arrowstyle": "-|>", "color": colour, "linestyle": style, "shrinkA": 0, "shrinkB": 0}
            panel.annotate("", xy=tuple(head), xytext=tuple(tail), arrowprops=look | {"linewidth": 1.5}, zorder=4)
        for name, point, offset in (("$x_t$", x, (6, -9)), ("$x_{t+1}$", after, (-22, -4))):
            panel.plot(*point, marker="o", color=BLACK, markersize=4, zorder=5)
            behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}  # lines cross there
            panel.annotate(name, tuple(point), xytext=offset, textcoords="offset points", bbox=behind, zorder=6)
        panel.plot(0, 0, marker="+", color=BLACK, markersize=8)
        panel.annotate("$w^*$", (0, 0), xytext=(4, 4), textcoords="offset points")
        panel.set_aspect("equal")
        panel.set_xlim(-2.6, 3.6)
        panel.set_ylim(-1.6, 2.1)
        panel.grid(False)
        entries: list[tuple[str, dict[str, object]]] = [
            ("ascent on the gradient norm", {"color": ORANGE}),
            ("projection", {"color": BLUE, "linestyle": "dashed"}),
            ("update", {"color": RED}),
            ("level linearized at $x_t$", {"color": GREEN}),
            ("and at $x_{t+1}$", {"color": PURPLE}),
        ]
        legend_below(figure, entries)
        return {self.name: figure}

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = [{"point": name, "first": v[0], "second": v[1]} for name, v in self.geometry().items()]
        return pd.DataFrame(rows)
