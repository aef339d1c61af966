"""A better goal at the same loss: :func:`levelport.improve` beside SLSQP, trust-constr, cooper and an augmented
Lagrangian.

    minimize h(x)   over   {f(x) ≤ 1.01 f*},        from the minimizer of f

Convex: logistic regression on eight data sets with three goals (smoothed L1 norm, squared norm, parity gap). Networks:
a small classifier with three goals (squared norm, loss on a second task, loss on samples to forget, negated and
bounded), five seeds each. Every tool evaluates through the same instrument (f or h: value ½, value and gradient 1); the
score is the lowest goal at any evaluated point that is feasible. Rivals with settings are run over a grid; both their
best single setting and their best setting per problem are shown.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from levelport.objectives import FunctionObjective
from levelport_lab.choices import Tier
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.problems import problem
from levelport_lab.problems.benchmark_problem import with_ones
from levelport_lab.problems.minimum import find_minimum

Function = Callable[[Tensor], Tensor]
SETS = (
    "blood",
    "breast-cancer",
    "pima",
    "ilpd-indian-liver",
    "ionosphere",
    "mammographic",
    "titanic",
    "credit-approval",
)
GOALS = ("smooth L1", "squared norm", "parity gap")
NETWORK_GOALS = ("squared norm", "second task", "forget")
SEEDS = range(10, 15)
RISE = 0.01
SLACK = 1e-6
"""Share of the level by which a point may exceed it and still count as feasible: a ten-thousandth of the rise, because
SLSQP ends slightly above the level."""
CONVEX_BUDGET, NETWORK_BUDGET = 400.0, 300.0
PENALTIES = (0.03, 0.3, 1.0, 10.0, 1e2, 1e3, 1e4, 1e5)
INNER = (10, 40)
PRIMAL, DUAL = (1e-3, 1e-2, 1e-1), (1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True)
class Task:
    """f, h, the start and the level."""

    fun: Function
    goal: Function
    start: Tensor
    level: float
    convex: bool


class Spent(Exception):
    """The budget is spent."""


class Meter:
    """Counts evaluations of f and h, and records every new lowest goal at a feasible point with its cost."""

    def __init__(self, task: Task, budget: float) -> None:
        self.task, self.budget = task, budget
        self.cost, self.infeasible, self.points = 0.0, 0, 0
        self.records: list[tuple[float, float]] = []
        self._last: Tensor | None = None

    def charge(self, amount: float, x: Tensor) -> None:
        """Charge an evaluation at x; look at both functions there, free of charge."""
        if self.cost >= self.budget:
            raise Spent
        self.cost += amount
        if self._last is None or not torch.equal(self._last, x):
            self._last = x.detach().clone()
            with torch.no_grad():
                f, h = float(self.task.fun(self._last)), float(self.task.goal(self._last))
            self.points += 1
            if f <= self.task.level * (1.0 + SLACK):
                if not self.records or h < self.records[-1][1]:
                    self.records.append((self.cost, h))
            else:
                self.infeasible += 1

    def counted(self, fun: Function) -> Function:
        """``fun`` with its evaluations charged."""

        def call(x: Tensor) -> Tensor:
            value: Tensor = _Charged.apply(x, fun, self)
            return value

        return call


class _Charged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, fun: Function, meter: Meter) -> Tensor:
        meter.charge(0.5, x)
        ctx.save_for_backward(x)
        ctx.fun, ctx.meter = fun, meter
        with torch.no_grad():
            return fun(x.detach()).clone()

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        ctx.meter.charge(0.5, x)
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(ctx.fun(leaf), leaf)
        return weights[0] * gradient, None, None


@cache
def convex_task(data: str, goal: str) -> Task:
    """Logistic regression with penalty 1e-3 on the training samples of a data set."""
    named = problem(f"logreg/{data}", reg=1e-3)
    X, y = with_ones(named.train.inputs), named.train.targets
    above = X.median(dim=0).values < X
    balanced = (above.double().mean(dim=0) - 0.5).abs() <= 0.4
    group = above[:, int(balanced.to(torch.int).argmax())]  # the first feature that splits the samples

    def fun(w: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-y * (X @ w)).mean() + 1e-3 * w.square().sum()

    goals: dict[str, Function] = {
        "smooth L1": lambda w: (w.square() + 1e-4).sqrt().sum(),
        "squared norm": lambda w: w.square().sum(),
        "parity gap": lambda w: (torch.sigmoid(X[group] @ w).mean() - torch.sigmoid(X[~group] @ w).mean()).square(),
    }
    start = torch.zeros(X.shape[1], dtype=X.dtype)
    start = find_minimum(FunctionObjective(fun, like=start), start).x
    return Task(fun, goals[goal], start, (1.0 + RISE) * float(fun(start)), convex=True)


def _network(x: Tensor, X: Tensor) -> Tensor:
    """A 10-20-3 network with softplus units, d = 283."""
    hidden = torch.nn.functional.softplus(X @ x[:200].view(10, 20) + x[200:220])
    return hidden @ x[220:280].view(20, 3) + x[280:]


@cache
def network_task(goal: str, seed: int) -> Task:
    """A classifier trained for 300 steps of Adam on 300 samples of three classes."""
    rng = torch.Generator().manual_seed(seed)
    centers = torch.randn(2, 3, 10, generator=rng, dtype=torch.float64)

    def sample(task: int, count: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(3, (count,), generator=rng)
        return centers[task][y] + 1.2 * torch.randn(count, 10, generator=rng, dtype=torch.float64), y

    (X, y), (X2, y2) = sample(0, 300), sample(1, 300)
    keep = torch.arange(300) >= 30

    def fun(x: Tensor) -> Tensor:
        rows = keep if goal == "forget" else slice(None)
        return cross_entropy(_network(x, X)[rows], y[rows]) + 1e-4 * x.square().sum()

    goals: dict[str, Function] = {
        "squared norm": lambda x: x.square().sum(),
        "second task": lambda x: cross_entropy(_network(x, X2), y2),
        "forget": lambda x: torch.exp(-cross_entropy(_network(x, X)[~keep], y[~keep])),
    }
    start = 0.3 * torch.randn(283, generator=rng, dtype=torch.float64)
    leaf = start.clone().requires_grad_()
    adam = torch.optim.Adam([leaf], lr=1e-2)
    for _ in range(300):
        adam.zero_grad()
        fun(leaf).backward()
        adam.step()
    start = leaf.detach()
    return Task(fun, goals[goal], start, (1.0 + RISE) * float(fun(start)), convex=False)


def run_improve(task: Task, meter: Meter, setting: tuple[float, float]) -> None:
    """:func:`levelport.improve` with its defaults."""
    from levelport import improve

    f, h = meter.counted(task.fun), meter.counted(task.goal)
    rise = task.level - float(task.fun(task.start))
    improve(f, task.start, h, rise=rise, max_cost=10.0 * meter.budget)


def _numpy(fun: Function) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.tensor(x).requires_grad_()
        value = fun(leaf)
        (gradient,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), gradient.numpy()

    return evaluate


def run_scipy(task: Task, meter: Meter, setting: tuple[float, float], method: str) -> None:
    """SciPy's constrained solvers, values and gradients together."""
    from scipy.optimize import NonlinearConstraint, minimize

    f, h = _numpy(meter.counted(task.fun)), _numpy(meter.counted(task.goal))
    last: dict[bytes, tuple[float, np.ndarray]] = {}

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x.tobytes() not in last:
            last.clear()
            last[x.tobytes()] = f(x)
        return last[x.tobytes()]

    options: dict[str, Any]
    if method == "SLSQP":
        constraint: Any = {"type": "ineq", "fun": lambda x: task.level - loss(x)[0], "jac": lambda x: -loss(x)[1]}
        options = {"ftol": 1e-10, "maxiter": 1000}
    else:
        constraint = NonlinearConstraint(lambda x: loss(x)[0], -np.inf, task.level, jac=lambda x: loss(x)[1])
        options = {"gtol": 1e-9, "maxiter": 1000}
    minimize(h, task.start.numpy(), jac=True, method=method, constraints=[constraint], options=options)


def run_slsqp(task: Task, meter: Meter, setting: tuple[float, float]) -> None:
    """SciPy's SLSQP."""
    run_scipy(task, meter, setting, "SLSQP")


def run_trust_constr(task: Task, meter: Meter, setting: tuple[float, float]) -> None:
    """SciPy's trust-constr."""
    run_scipy(task, meter, setting, "trust-constr")


def run_augmented_lagrangian(task: Task, meter: Meter, setting: tuple[float, float]) -> None:
    """Powell, Hestenes and Rockafellar's method with SciPy's L-BFGS-B inside; setting: ρ₀ and inner steps."""
    from scipy.optimize import minimize

    f, h = _numpy(meter.counted(task.fun)), _numpy(meter.counted(task.goal))
    rho, inner = setting
    x, multiplier, before = task.start.numpy(), 0.0, math.inf
    while True:

        def merit(z: np.ndarray, rho: float = rho, multiplier: float = multiplier) -> tuple[float, np.ndarray]:
            (value, g), (goal, p) = f(z), h(z)
            push = max(0.0, multiplier + rho * (value - task.level))
            return goal + (push**2 - multiplier**2) / (2.0 * rho), p + push * g

        x = minimize(merit, x, jac=True, method="L-BFGS-B", options={"maxiter": int(inner), "ftol": 0.0}).x
        excess = f(x)[0] - task.level
        multiplier = max(0.0, multiplier + rho * excess)
        rho *= 3.0 if abs(min(excess, multiplier / rho)) > 0.5 * before else 1.0
        before = abs(excess)


def run_cooper(task: Task, meter: Meter, setting: tuple[float, float]) -> None:
    """cooper's Lagrangian formulation, Adam for x and ascent for the multiplier; setting: both rates."""
    import cooper

    f, h = meter.counted(task.fun), meter.counted(task.goal)
    x = torch.nn.Parameter(task.start.clone())

    class Constrained(cooper.ConstrainedMinimizationProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            multiplier = cooper.multipliers.DenseMultiplier(num_constraints=1)
            self.level = cooper.Constraint(cooper.ConstraintType.INEQUALITY, multiplier=multiplier)

        def compute_cmp_state(self) -> Any:
            state = cooper.ConstraintState(violation=(f(x) - task.level).reshape(1))
            return cooper.CMPState(loss=h(x), observed_constraints={self.level: state})

    cmp = Constrained()
    primal = torch.optim.Adam([x], lr=setting[0])
    dual = torch.optim.SGD(cmp.dual_parameters(), lr=setting[1], maximize=True)
    optimizer = cooper.optim.SimultaneousOptimizer(cmp=cmp, primal_optimizers=primal, dual_optimizers=dual)
    while True:
        optimizer.roll()


TOOLS: dict[str, tuple[Callable[[Task, Meter, tuple[float, float]], None], tuple[tuple[float, float], ...]]] = {
    "levelport": (run_improve, ((0.0, 0.0),)),
    "SLSQP": (run_slsqp, ((0.0, 0.0),)),
    "trust-constr": (run_trust_constr, ((0.0, 0.0),)),
    "augmented Lagrangian": (
        run_augmented_lagrangian,
        tuple((rho, float(inner)) for rho in PENALTIES for inner in INNER),
    ),
    "cooper": (run_cooper, tuple((primal, dual) for primal in PRIMAL for dual in DUAL)),
}
"""Tools and their settings."""


@dataclass(frozen=True)
class ImproveSpec(RunSpec):
    """One tool on one problem; a run per setting."""

    kind: ClassVar[str] = "improve"
    data: str
    goal: str
    seed: int
    tool: str

    @property
    def label(self) -> str:
        return f"{self.tool} for {self.goal} on {self.data} {self.seed}"

    @property
    def rough_seconds(self) -> float:
        return 0.5 * len(TOOLS[self.tool][1])

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.data,) if self.data != "network" else ()

    def run(self) -> list[Run]:
        network = self.data == "network"
        task = network_task(self.goal, self.seed) if network else convex_task(self.data, self.goal)
        tool, settings = TOOLS[self.tool]
        runs = []
        for number, setting in enumerate(settings):
            meter = Meter(task, NETWORK_BUDGET if network else CONVEX_BUDGET)
            with warnings.catch_warnings(), contextlib.suppress(Spent):
                warnings.simplefilter("ignore")
                tool(task, meter, setting)
            start = float(task.goal(task.start))
            curves = {
                "cost": np.array([0.0, *(cost for cost, _ in meter.records)]),
                "goal": np.array([start, *(h for _, h in meter.records)]),
            }
            facts = {"first": setting[0], "second": setting[1], "spent": meter.cost}
            facts |= {"infeasible": meter.infeasible / max(meter.points, 1), "start": start}
            best = min(curves["goal"])
            runs.append(Run(setting=float(number), final_value=float(best), facts=facts, curves=curves))
        return runs


def improve_specs(tier: Tier, seed: int = 0) -> list[RunSpec]:
    """Everything; the quick tier has two data sets and one seed."""
    sets, seeds = (SETS, SEEDS) if tier == "full" else (SETS[:2], SEEDS[:1])
    convex = [ImproveSpec(data, goal, 0, tool) for data in sets for goal in GOALS for tool in TOOLS]
    dense = ("SLSQP", "trust-constr")
    networks = [
        ImproveSpec("network", goal, seed, tool)
        for goal in NETWORK_GOALS
        for seed in seeds
        for tool in TOOLS
        if tool not in dense
    ]
    return [*convex, *networks]
