"""Optima: right values, bounds that hold, and separable sets."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from levelport.objectives import LinearObjective
from levelport_lab.problems import certificate, optima, problem
from levelport_lab.problems.minimum import find_minimum, hessian_matrix
from levelport_lab.problems.optima import OptimumError, compute
from levelport_lab.problems.registry import REGULARIZATION
from levelport_lab.problems.separability import separable_rows


def logistic(rows: list[list[float]], labels: list[int], reg: float = 0.0) -> LinearObjective:
    X, y = torch.tensor(rows, dtype=torch.float64), torch.tensor(labels, dtype=torch.float64)
    return LinearObjective.logistic(X, y, penalty=reg)


def entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


def test_all_120_logistic_optima_are_certified(sets_here: list[str]) -> None:
    for one in (problem(f"logreg/{data}", reg=reg) for data in sets_here for reg in REGULARIZATION):
        found = one.optimum()
        assert found.certified, one
        assert found.attained
        assert 0 < found.gap <= 1e-12 * found.value
        at_minimizer = one.objective().at(found.point())
        assert at_minimizer.value == pytest.approx(found.value, rel=1e-13)
        assert at_minimizer.value >= found.lower_bound * (1 - 1e-14)


@pytest.mark.parametrize("reg", [1e-2, 1e-6])
@pytest.mark.parametrize("name", ["blood", "ionosphere", "conn-bench-sonar-mines-rocks"])
def test_scipy_gets_close_but_never_below(name: str, reg: float) -> None:
    one = problem(f"logreg/{name}", reg=reg)
    objective = one.objective()

    def value_and_gradient(w: np.ndarray) -> tuple[float, np.ndarray]:
        point = objective.at(torch.from_numpy(w.copy()))
        return point.value, point.gradient.numpy()

    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 0.0, "gtol": 1e-9, "maxcor": 30}
    run = minimize(value_and_gradient, one.initial_point().numpy(), jac=True, method="L-BFGS-B", options=options)
    found = one.optimum()
    assert found.lower_bound <= run.fun * (1 + 1e-15)
    assert run.fun == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("positives", [1, 3, 5, 9])
def test_intercept_alone_has_the_entropy_as_optimum(positives: int) -> None:
    found = compute(logistic([[1.0]] * 10, [1] * positives + [-1] * (10 - positives)))
    assert found.certified
    assert found.value == pytest.approx(entropy(positives / 10), rel=1e-15)
    assert found.point().item() == pytest.approx(math.log(positives / (10 - positives)), abs=1e-12)


def random_logistic(reg: float, seed: int = 0, samples: int = 30) -> LinearObjective:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(samples, 4, dtype=torch.float64, generator=generator)
    y = torch.where(torch.rand(samples, generator=generator) < 0.5, 1.0, -1.0)
    return LinearObjective.logistic(X, y, penalty=reg)


@pytest.mark.parametrize("reg", [0.0, 1e-4, 1e-1])
def test_gap_bound_holds_at_any_distance(reg: float) -> None:
    objective = random_logistic(reg)
    best = compute(objective)
    assert best.certified
    generator = torch.Generator().manual_seed(1)
    finite = 0
    for distance in [10.0, 1.0, 0.1, 1e-2, 1e-4, 1e-6]:
        v = torch.randn(4, dtype=torch.float64, generator=generator)
        x = best.point() + distance * v / v.norm()
        bound = certificate.optimality_gap(objective, x, certificate.evaluate(objective, x))
        assert objective.at(x).value - best.value <= bound * (1 + 1e-9) + 1e-16
        finite += math.isfinite(bound)
    assert finite >= 3
    assert bound < 1e-8


def exact(objective: LinearObjective, x: Tensor) -> tuple[mpmath.mpf, list[mpmath.mpf]]:
    """f and ∇f of a logistic objective with 60 digits."""
    X, y, w = objective.X.tolist(), objective.loss.y.tolist(), x.tolist()  # type: ignore[attr-defined]
    n, reg = len(X), mpmath.mpf(objective.penalty)
    margins = [y[i] * mpmath.fdot(X[i], w) for i in range(n)]
    value = mpmath.fsum(mpmath.log1p(mpmath.exp(-m)) for m in margins) / n + reg * mpmath.fdot(w, w)
    residual = [-y[i] / (1 + mpmath.exp(margins[i])) for i in range(n)]
    return value, [mpmath.fdot([row[j] for row in X], residual) / n + 2 * reg * w[j] for j in range(len(w))]


@pytest.mark.parametrize("scale", [0.1, 30.0, 3000.0])
def test_rounding_bounds_hold_against_sixty_digits(scale: float) -> None:
    objective = random_logistic(1e-5)
    with mpmath.workdps(60):
        for seed in range(5):
            x = scale * torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
            value, gradient = exact(objective, x)
            found = certificate.evaluate(objective, x)
            assert abs(value - found.value) <= found.value_error
            assert abs(mpmath.norm(gradient) - found.gradient_norm) <= found.gradient_error
            assert found.value_error <= 1e-14 * float(value)


@pytest.mark.parametrize("logit", [0.5, 8.0, 30.0])
def test_rounding_bounds_of_softmax_hold_where_the_loss_is_tiny(logit: float) -> None:
    """log Σ exp z - z_y is a difference of large numbers: its error does not shrink with the loss."""
    X, y = torch.ones(1, 1, dtype=torch.float64), torch.tensor([0])
    found = certificate.evaluate(LinearObjective.softmax(X, y, 2), torch.tensor([logit, 0.1], dtype=torch.float64))
    with mpmath.workdps(60):
        truth = mpmath.log1p(mpmath.exp(mpmath.mpf(0.1) - mpmath.mpf(logit)))
        assert abs(mpmath.mpf(found.value) - truth) <= found.value_error


def test_reported_minimum_against_sixty_digits() -> None:
    one = problem("logreg/titanic", reg=1e-6)
    found = one.optimum()
    objective = one.objective()
    assert isinstance(objective, LinearObjective)
    with mpmath.workdps(60):
        value, gradient = exact(objective, found.point())
        assert value - mpmath.norm(gradient) ** 2 / (4 * mpmath.mpf(one.reg)) >= found.lower_bound
        assert abs(value - found.value) <= found.gap


SEPARABLE = {"conn-bench-sonar-mines-rocks", "hill-valley", "musk-1"}


@pytest.mark.parametrize("set_here", sorted(SEPARABLE), indirect=True)
def test_separable_sets_are_recognised(set_here: str) -> None:
    one = problem(f"logreg/{set_here}")
    found = one.optimum()
    assert (found.value, found.lower_bound, found.attained) == (0.0, 0.0, False)
    assert found.certified
    with pytest.raises(OptimumError, match="not attained"):
        found.point()


def test_no_other_set_is_separable(sets_here: list[str]) -> None:
    optima_here = {name: problem(f"logreg/{name}").optimum() for name in sets_here}
    assert {name for name, found in optima_here.items() if found.value == 0.0} == SEPARABLE & set(sets_here)
    # Without a penalty the minimizer on tic-tac-toe is too far out for a proof, and says so.
    assert {name for name, found in optima_here.items() if not found.certified} == {"tic-tac-toe"}


def test_partly_separable_samples_cost_nothing() -> None:
    """Three samples at 0 overlap; the one at 1 can be satisfied for free by the slope."""
    found = compute(logistic([[0, 1], [0, 1], [0, 1], [1, 1]], [1, -1, -1, 1]))
    assert found.attained is False
    assert found.certified
    assert found.value == pytest.approx(0.75 * entropy(1 / 3), rel=1e-14)
    assert "1 of 4 samples" in found.how


def test_separability_by_hand() -> None:
    X = np.array([[0, 1], [0, 1], [1, 1], [2, 1]], dtype=float)
    assert separable_rows(X, np.array([-1.0, -1.0, 1.0, 1.0])).all()
    assert separable_rows(X, np.array([-1.0, 1.0, 1.0, 1.0])).tolist() == [False, False, True, True]
    assert not separable_rows(X, np.array([-1.0, 1.0, 1.0, -1.0])).any()


def test_dependent_features_do_not_matter() -> None:
    plain = random_logistic(0.0)
    doubled = LinearObjective(torch.cat([plain.X, plain.X[:, :2]], dim=1), plain.loss)
    one, two = compute(plain), compute(doubled)
    assert two.certified
    assert two.attained
    assert two.value == pytest.approx(one.value, rel=1e-14)
    assert doubled.at(two.point()).value == pytest.approx(two.value, rel=1e-13)


def test_softmax_dense_and_conjugate_gradients_agree() -> None:
    from sklearn.linear_model import LogisticRegression

    one = problem("logreg/digits", reg=1e-2)
    found = one.optimum()
    assert found.certified
    objective = one.objective()
    assert isinstance(objective, LinearObjective)
    iterative = find_minimum(objective, dense_limit=0)
    assert objective.at(iterative.x).value == pytest.approx(found.value, rel=1e-13)
    model = LogisticRegression(C=1 / (2 * objective.samples * 1e-2), fit_intercept=False, tol=1e-8, max_iter=5000)
    model.fit(objective.X, one.train.targets)
    np.testing.assert_allclose(found.point().view(65, 10), model.coef_.T, atol=1e-5)


def test_hessian_is_that_of_the_products() -> None:
    for one in (problem("logreg/blood", reg=0.1), problem("logreg/digits", reg=0.1)):
        objective = one.objective(torch.arange(60))
        assert isinstance(objective, LinearObjective)
        x = one.initial_point()
        v = torch.randn(one.dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(hessian_matrix(objective, x) @ v, objective.at(x).hvp(v), rtol=1e-12, atol=1e-14)


def test_optimum_is_computed_once_for_each_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[LinearObjective] = []
    monkeypatch.setattr(optima, "compute", lambda objective: calls.append(objective) or compute(objective))
    problems = [problem("logreg/blood", reg=reg, seed=seed) for reg in (1e-3, 1e-4) for seed in (0, 1)]
    values = [one.optimum().value for one in problems]
    assert [one.optimum().value for one in problems] == values
    assert len(set(values)) == len(calls) == 4
