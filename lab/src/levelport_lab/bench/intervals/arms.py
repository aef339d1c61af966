"""The tools that are compared, each asked for both ends of some entries of x at a given rise.

Every tool starts from the same minimizer and evaluates through the same instrument: value ½, gradient 1, Hessian-vector
product 2, a gradient at a point whose value is known ½. What a tool does once for all ends (a fit that ends at once, a
Hessian) is its set-up.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport_lab.bench.intervals.likelihoods import Function, Likelihood
from levelport_lab.bench.intervals.truth import hessian, profile_end

Vector = NDArray[np.float64]
CONFIDENCE = 0.95
RISE = 1.920729410347062  # half the χ² quantile of 0.95 with one degree of freedom


@dataclass(frozen=True)
class Ended:
    """An end: where, whether the tool calls it converged, and what it cost beyond the set-up."""

    index: int
    side: int
    bound: float
    claimed: bool
    cost: float
    seconds: float


@dataclass(frozen=True)
class Answer:
    """All ends of one tool on one problem."""

    ends: list[Ended]
    setup: float = 0.0
    setup_seconds: float = 0.0


class Counted:
    """f and ∇f for NumPy, counted. The last point is kept, so that a value and a gradient there cost 1 together."""

    def __init__(self, fun: Function) -> None:
        self._fun = fun
        self._x: Vector | None = None
        self._value, self._gradient = math.nan, np.empty(0)
        self.cost = 0.0

    def value(self, x: Vector) -> float:
        """f(x)."""
        if self._x is None or not np.array_equal(self._x, x):
            self._x, self._gradient = np.array(x, dtype=float), np.empty(0)
            self._value = float(self._fun(torch.tensor(self._x)))
            self.cost += 0.5
        return self._value

    def gradient(self, x: Vector) -> Vector:
        """∇f(x)."""
        known = self._x is not None and np.array_equal(self._x, x)
        if not known or not len(self._gradient):
            leaf = torch.tensor(np.array(x, dtype=float)).requires_grad_()
            value = self._fun(leaf)
            (gradient,) = torch.autograd.grad(value, leaf)
            self._x, self._value, self._gradient = leaf.detach().numpy(), float(value.detach()), gradient.numpy()
            self.cost += 0.5 if known else 1.0
        return self._gradient.copy()


def levelport_interval(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """:func:`levelport.interval` with its defaults; only evaluations of f are counted, as for the other tools."""
    from levelport import interval

    result = interval(problem.fun, x, list(entries), confidence=CONFIDENCE)
    ends = [
        Ended(index, side, end.bound, end.success, end.cost.gradient_equivalents, end.cost.seconds)
        for index, pair in zip(entries, result.ends, strict=True)
        for side, end in zip((-1, 1), pair, strict=True)
    ]
    return Answer(ends, result.setup.gradient_equivalents, result.cost.seconds - sum(end.seconds for end in ends))


def wald(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """estimate ± sqrt(2 rise (H⁻¹)_ii)."""
    began = time.perf_counter()
    widths = (2.0 * RISE * torch.linalg.inv(hessian(problem.fun, x)).diagonal()).sqrt()
    seconds = time.perf_counter() - began
    ends = [Ended(i, side, float(x[i] + side * widths[i]), True, 0.0, 0.0) for i in entries for side in (-1, 1)]
    return Answer(ends, 2.0 * len(x), seconds)


def _minos(problem: Likelihood, x: Tensor, entries: Sequence[int], *, gradients: bool) -> Answer:
    from iminuit import Minuit

    counted = Counted(problem.fun)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minuit = Minuit(counted.value, x.numpy(), grad=counted.gradient if gradients else None)
        minuit.errordef = Minuit.LIKELIHOOD
        minuit.migrad()
        minuit.hesse()
        setup, setup_seconds = counted.cost, time.perf_counter() - began
        ends = []
        for index in entries:
            name, before, began = minuit.parameters[index], counted.cost, time.perf_counter()
            try:
                minuit.minos(name, cl=CONFIDENCE)
                error = minuit.merrors[name]
                found = ((error.lower, error.lower_valid), (error.upper, error.upper_valid))
            except RuntimeError:
                found = ((math.nan, False), (math.nan, False))
            cost, seconds = 0.5 * (counted.cost - before), 0.5 * (time.perf_counter() - began)
            for side, (offset, valid) in zip((-1, 1), found, strict=True):
                ends.append(Ended(index, side, minuit.values[name] + offset, bool(valid), cost, seconds))
    return Answer(ends, setup, setup_seconds)


def minos(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """MINOS of iminuit with gradients; a pair of ends shares its cost."""
    return _minos(problem, x, entries, gradients=True)


def minos_without_gradients(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """MINOS of iminuit with values only."""
    return _minos(problem, x, entries, gradients=False)


def lmfit_interval(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """lmfit's ``conf_interval`` on the residuals, with the χ² criterion for noise of known size."""
    import lmfit
    from scipy.stats import chi2

    residuals = problem.residuals
    assert residuals is not None
    calls = 0

    def evaluate(parameters: lmfit.Parameters) -> Vector:
        nonlocal calls
        calls += 1
        values: Vector = residuals(torch.tensor([p.value for p in parameters.values()], dtype=x.dtype)).numpy()
        return values

    parameters = lmfit.Parameters()
    for i, value in enumerate(x.tolist()):
        parameters.add(f"x{i}", value=value)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minimizer = lmfit.Minimizer(evaluate, parameters, scale_covar=False)
        fit = minimizer.minimize(method="leastsq")
        setup, setup_seconds = 0.5 * calls, time.perf_counter() - began
        ends = []
        for index in entries:
            before, began = calls, time.perf_counter()
            try:
                table = lmfit.conf_interval(
                    minimizer, fit, p_names=[f"x{index}"], sigmas=[math.sqrt(2.0 * RISE)],
                    prob_func=lambda best, new: chi2.cdf(new.chisqr - best.chisqr, 1),
                )[f"x{index}"]  # fmt: skip
                bounds = [table[0][1], table[-1][1]]
            except (lmfit.MinimizerException, ValueError):
                bounds = [math.nan, math.nan]
            cost, seconds = 0.25 * (calls - before), 0.5 * (time.perf_counter() - began)
            ends += [
                Ended(index, side, float(b), bool(np.isfinite(b)), cost, seconds)
                for side, b in zip((-1, 1), bounds, strict=True)
            ]
    return Answer(ends, setup, setup_seconds)


def pypesto_interval(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """pyPESTO's profiles with L-BFGS-B and gradients, its interval by interpolation; bounds are 20 Wald widths away."""
    import pypesto.optimize
    import pypesto.profile

    counted = Counted(problem.fun)
    began = time.perf_counter()
    widths = (2.0 * RISE * torch.linalg.inv(hessian(problem.fun, x)).diagonal()).sqrt().numpy()
    estimate = x.numpy()
    # Functions, since pyPESTO copies objects, and their counts with them.
    objective = pypesto.Objective(fun=lambda z: counted.value(z), grad=lambda z: counted.gradient(z))
    asked = pypesto.Problem(objective, estimate - 20.0 * widths, estimate + 20.0 * widths, x_guesses=estimate[None])
    optimizer = pypesto.optimize.ScipyOptimizer(method="L-BFGS-B")
    options = pypesto.profile.ProfileOptions(ratio_min=math.exp(-1.2 * RISE))
    ends = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = pypesto.optimize.minimize(asked, optimizer, n_starts=1, progress_bar=False)
        setup, setup_seconds = counted.cost, time.perf_counter() - began
        for index in entries:
            before, began = counted.cost, time.perf_counter()
            result = pypesto.profile.parameter_profile(
                asked, result, optimizer, profile_index=[index], profile_options=options, progress_bar=False
            )
            path = result.profile_result.list[-1][index]
            bounds = pypesto.profile.calculate_approximate_ci(path.x_path[index], path.ratio_path, math.exp(-RISE))
            cost, seconds = 0.5 * (counted.cost - before), 0.5 * (time.perf_counter() - began)
            # Where the profile ends above the ratio asked for, the interval ends with it.
            reached = path.ratio_path[0] <= math.exp(-RISE), path.ratio_path[-1] <= math.exp(-RISE)
            ends += [
                Ended(index, side, float(b), bool(ok), cost, seconds)
                for side, b, ok in zip((-1, 1), bounds, reached, strict=True)
            ]
    return Answer(ends, setup, setup_seconds)


def _constrained(problem: Likelihood, x: Tensor, entries: Sequence[int], method: str) -> Answer:
    """SciPy: minimize ±x_i subject to f ≤ level, from the Wald end, in units of the Wald half widths."""
    counted = Counted(problem.fun)
    began = time.perf_counter()
    inverse = torch.linalg.inv(hessian(problem.fun, x))
    unit = (2.0 * RISE * inverse.diagonal()).sqrt()
    setup_seconds = time.perf_counter() - began
    level, origin, scale = float(problem.fun(x)) + RISE, x.numpy(), unit.numpy()

    def excess(z: Vector) -> float:
        return (counted.value(origin + scale * z) - level) / RISE

    def slope(z: Vector) -> Vector:
        return scale * counted.gradient(origin + scale * z) / RISE

    ends = []
    for index in entries:
        for side in (-1, 1):
            start = (side * inverse[index] * math.sqrt(2.0 * RISE / float(inverse[index, index])) / unit).numpy()
            before, began = counted.cost, time.perf_counter()
            z, success = _smallest(-side * np.eye(len(x))[index], excess, slope, start, method)
            bound, claimed = float(origin[index] + scale[index] * z[index]), success and excess(z) <= 1e-3
            ends.append(Ended(index, side, bound, claimed, counted.cost - before, time.perf_counter() - began))
    return Answer(ends, 2.0 * len(x), setup_seconds)


def _smallest(
    goal: Vector, excess: Callable[[Vector], float], slope: Callable[[Vector], Vector], start: Vector, method: str
) -> tuple[Vector, bool]:
    """Minimize <goal, z> subject to excess(z) ≤ 0."""
    from scipy.optimize import NonlinearConstraint, minimize

    options: dict[str, object] = {"options": {"ftol": 1e-7, "maxiter": 300}}
    options["constraints"] = [{"type": "ineq", "fun": lambda z: -excess(z), "jac": lambda z: -slope(z)}]
    if method == "trust-constr":
        options = {"options": {"gtol": 1e-5, "maxiter": 1000}, "hess": lambda z: np.zeros((len(z), len(z)))}
        options["constraints"] = [NonlinearConstraint(excess, -np.inf, 0.0, jac=slope)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = minimize(lambda z: float(goal @ z), start, jac=lambda z: goal, method=method, **options)
    return found.x, bool(found.success)


def slsqp(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """SciPy's SLSQP from the Wald end."""
    return _constrained(problem, x, entries, "SLSQP")


def trust_constr(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """SciPy's trust-constr from the Wald end."""
    return _constrained(problem, x, entries, "trust-constr")


def truth(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """Dense profiles."""
    points, seconds = _profile_ends(problem, x, entries)
    own = [float(points[place, side, index]) for place, index in enumerate(entries) for side in (0, 1)]
    return Answer(_known(entries, own, seconds))


def all_profiles(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> Answer:
    """The farthest point on the dense profiles of all entries of x: each follows another valley."""
    points, seconds = _profile_ends(problem, x, range(len(x)))
    values = points.flatten(0, 1)[:, list(entries)]
    least = values.nan_to_num(math.inf, math.inf, -math.inf).amin(0)
    most = values.nan_to_num(-math.inf, math.inf, -math.inf).amax(0)
    return Answer(_known(entries, torch.stack([least, most], dim=1).flatten().tolist(), seconds))


def _profile_ends(problem: Likelihood, x: Tensor, entries: Sequence[int]) -> tuple[Tensor, float]:
    """The end points of the profiles of some entries, two of each, and the seconds per end."""
    began = time.perf_counter()
    points = []
    for index in entries:
        fun, there, back = (problem.fun, _same, _same) if problem.stable is None else problem.stable(index)
        points.append(torch.stack([back(profile_end(fun, there(x), index, sign, RISE)) for sign in (-1.0, 1.0)]))
    return torch.stack(points), 0.5 * (time.perf_counter() - began) / len(entries)


def _known(entries: Sequence[int], bounds: Sequence[float], seconds: float) -> list[Ended]:
    """Pairs of ends whose cost is of no interest."""
    places = [(index, side) for index in entries for side in (-1, 1)]
    return [Ended(*place, bound, True, math.nan, seconds) for place, bound in zip(places, bounds, strict=True)]


def _same(x: Tensor) -> Tensor:
    return x


ARMS: dict[str, Callable[[Likelihood, Tensor, Sequence[int]], Answer]] = {
    "truth": truth,
    "all profiles": all_profiles,
    "levelport": levelport_interval,
    "Wald": wald,
    "MINOS, gradients": minos,
    "MINOS": minos_without_gradients,
    "lmfit": lmfit_interval,
    "pyPESTO": pypesto_interval,
    "SLSQP": slsqp,
    "trust-constr": trust_constr,
}
"""The tools by name."""
