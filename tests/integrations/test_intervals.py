"""Intervals of statsmodels, iminuit, lmfit and SciPy fits, beside what those packages compute themselves."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from levelport.goals import EndStatus, IntervalResult

RNG_SEED = 4


def counts() -> tuple[Any, Any]:
    rng = np.random.default_rng(RNG_SEED)
    X = np.column_stack([np.ones(80), rng.normal(size=(80, 2))])
    return X, rng.poisson(np.exp(X @ np.array([0.3, 0.5, -0.4])))


def half(result: IntervalResult[Any]) -> torch.Tensor:
    return 0.5 * (result.upper - result.lower)


def poisson_nll(X: Any, y: Any):  # type: ignore[no-untyped-def]
    return lambda w: float(np.sum(np.exp(X @ w) - y * (X @ w)))


def reference(X: Any, y: Any, **how: Any) -> IntervalResult[Any]:
    import levelport

    A, b = torch.from_numpy(X), torch.from_numpy(y).double()
    start = torch.zeros(X.shape[1], dtype=torch.float64)
    return levelport.interval(lambda w: ((A @ w).exp() - b * (A @ w)).sum(), start, refine=True, **how)


def test_statsmodels_glm_and_discrete() -> None:
    sm = pytest.importorskip("statsmodels.api")
    from levelport.integrations.statsmodels import interval

    X, y = counts()
    expected = reference(X, y, confidence=0.95, tol=1e-5)
    for fit in (sm.GLM(y, X, family=sm.families.Poisson()).fit(), sm.Poisson(y, X).fit(disp=0)):
        result = interval(fit, confidence=0.95)
        assert result.success
        assert result.names == ("const", "x1", "x2")
        assert float(((result.upper - expected.upper) / half(expected)).abs().max()) <= 1e-3
        assert float(((result.lower - expected.lower) / half(expected)).abs().max()) <= 1e-3
        wald = torch.from_numpy(np.asarray(fit.conf_int())[:, 1].copy())
        assert float(((result.wald_upper - wald) / half(expected)).abs().max()) <= 1e-3
    ratio = interval(fit, lambda w: w[1].exp(), confidence=0.95)
    assert ratio.upper == pytest.approx(float(expected.upper[1].exp()), rel=1e-3)
    with pytest.raises(ValueError, match="no free parameter 'slope'"):
        interval(fit, ["slope"], confidence=0.95)
    for position in (3, -1, 1.5):
        with pytest.raises(ValueError, match=f"no free parameter {position}; there are const"):
            interval(fit, [position], confidence=0.95)


def test_statsmodels_gaussian_scale_is_fixed() -> None:
    """With a known scale the likelihood interval of a linear model is the Wald interval."""
    sm = pytest.importorskip("statsmodels.api")
    from levelport.integrations.statsmodels import interval

    X, _ = counts()
    y = X @ np.array([1.0, 2.0, 3.0]) + np.random.default_rng(1).normal(size=len(X))
    fit = sm.GLM(y, X).fit()
    result = interval(fit, confidence=0.95)
    ends = torch.from_numpy(np.asarray(fit.conf_int()).copy())
    assert torch.allclose(result.lower, ends[:, 0], rtol=1e-3)
    assert torch.allclose(result.upper, ends[:, 1], rtol=1e-3)


def test_statsmodels_without_score() -> None:
    """WLS has its scale maximized out: n/2 log(1 + t²/(SSR (XᵀWX)⁻¹)) is the rise at a distance t."""
    sm = pytest.importorskip("statsmodels.api")
    from levelport.integrations.statsmodels import interval

    X, y = counts()
    weights = np.linspace(0.5, 2.0, len(y))
    fit = sm.WLS(y, X, weights=weights).fit()
    result = interval(fit, confidence=0.95)
    residual = y - X @ fit.params
    variances = np.linalg.inv(X.T * weights @ X).diagonal() * np.sum(weights * residual**2)
    halves = np.sqrt(np.expm1(2.0 * result.rise / len(y)) * variances)
    assert result.success
    assert result.lower.numpy() == pytest.approx(fit.params - halves, abs=2e-3 * halves.min())
    assert result.upper.numpy() == pytest.approx(fit.params + halves, abs=2e-3 * halves.min())


def test_statsmodels_mixed_models_are_refused() -> None:
    sm = pytest.importorskip("statsmodels.api")
    from levelport.integrations.statsmodels import interval

    X, y = counts()
    group = np.arange(len(y)) % 8
    fit = sm.MixedLM(y + 2.0 * np.sin(group), X, groups=group).fit(reml=False)
    with pytest.raises(ValueError, match=r"MixedLM\.score cannot be evaluated"):
        interval(fit, confidence=0.95)


def test_statsmodels_fits_without_likelihood_are_refused() -> None:
    sm = pytest.importorskip("statsmodels.api")
    from levelport.integrations.statsmodels import interval

    X, y = counts()
    for model in (sm.GEE(y, X, groups=np.arange(len(y)) % 8, family=sm.families.Poisson()), sm.RLM(y, X)):
        with pytest.raises(ValueError, match="is not fitted by maximum likelihood"):
            interval(model.fit(), confidence=0.95)


def test_statsmodels_state_space_models() -> None:
    """Their Hessian is that of the mean; at the ends the profile has fallen by 1.92."""
    sm = pytest.importorskip("statsmodels.api")
    from levelport.integrations.statsmodels import interval

    noise = np.random.default_rng(3).normal(size=150)
    series = [0.0]
    for shock in noise:
        series.append(0.5 * series[-1] + shock)
    model = sm.tsa.ARIMA(np.array(series), order=(1, 0, 0), trend="n")
    fit = model.fit()
    result = interval(fit, confidence=0.95)
    assert result.success
    wald = torch.from_numpy(np.asarray(fit.conf_int()).copy())[:, 1]
    assert torch.allclose(result.wald_upper, wald, rtol=0.05)
    for end in result.ends[0]:
        variances = fit.params[1] * np.linspace(0.8, 1.3, 501)
        best = max(model.loglike([end.quantity, variance]) for variance in variances)
        assert fit.llf - best == pytest.approx(1.9207, rel=5e-3)


@pytest.mark.parametrize("gradient", [True, False])
def test_iminuit_agrees_with_minos(gradient: bool) -> None:
    iminuit = pytest.importorskip("iminuit")
    from levelport.integrations.iminuit import interval

    X, y = counts()

    def nll(a: float, b: float, c: float) -> float:
        return poisson_nll(X, y)(np.array([a, b, c]))

    def grad(a: float, b: float, c: float) -> Any:
        return X.T @ (np.exp(X @ np.array([a, b, c])) - y)

    m = iminuit.Minuit(nll, a=0.0, b=0.0, c=0.0, grad=grad if gradient else None)
    m.errordef = iminuit.Minuit.LIKELIHOOD
    m.tol = 1e-4
    m.migrad()
    m.minos(cl=0.95)
    result = interval(m, confidence=0.95)
    assert result.names == ("a", "b", "c")
    assert str(result).startswith("95 % confidence (rise 1.92073)")
    assert result.success
    for index, name in enumerate(result.names):
        width = m.merrors[name].upper - m.merrors[name].lower
        assert abs(float(result.upper[index]) - m.values[name] - m.merrors[name].upper) <= 5e-3 * width
        assert abs(float(result.lower[index]) - m.values[name] - m.merrors[name].lower) <= 5e-3 * width


def test_iminuit_keeps_limits_and_fixed_parameters() -> None:
    iminuit = pytest.importorskip("iminuit")
    from levelport.integrations.iminuit import interval

    m = iminuit.Minuit(lambda a, b, c: (a - 0.1) ** 2 + (b - 1.0) ** 2 + (c - 5.0) ** 2, a=0.2, b=0.0, c=0.0)
    m.errordef = iminuit.Minuit.LEAST_SQUARES
    m.limits["a"] = (0.0, None)
    m.fixed["c"] = True
    m.migrad()
    result = interval(m, confidence=0.6826894921370859)
    assert result.names == ("a", "b")
    assert result.ends[0][0].status is EndStatus.AT_BOUND
    assert float(result.lower[0]) == 0.0
    assert result.upper.tolist() == pytest.approx([1.1, 2.0], abs=5e-3)
    m.fixed = True
    with pytest.raises(ValueError, match="every parameter of minuit is fixed"):
        interval(m, confidence=0.95)


def test_lmfit_agrees_with_conf_interval() -> None:
    lmfit = pytest.importorskip("lmfit")
    from levelport.integrations.lmfit import interval

    rng = np.random.default_rng(RNG_SEED)
    t = np.linspace(0.0, 5.0, 40)
    y = 2.0 * np.exp(-0.8 * t) + 0.3 + 0.05 * rng.normal(size=t.size)
    model = lmfit.Model(lambda t, a, k, c: a * np.exp(-k * t) + c)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = model.fit(y, t=t, a=1.0, k=1.0, c=0.0)
        theirs = fit.conf_interval(sigmas=[0.95])
    result = interval(fit, confidence=0.95)
    assert result.names == ("a", "k", "c")
    assert str(result).startswith("95 % confidence")
    assert result.success
    for index, name in enumerate(result.names):
        (_, low), _, (_, high) = theirs[name]
        assert float(result.lower[index]) == pytest.approx(low, abs=5e-3 * (high - low))
        assert float(result.upper[index]) == pytest.approx(high, abs=5e-3 * (high - low))
    with pytest.raises(ValueError, match="minimizer=mini"):
        interval(object(), confidence=0.95)


def test_lmfit_minimizer_with_limits() -> None:
    lmfit = pytest.importorskip("lmfit")
    from levelport.integrations.lmfit import interval

    y = np.array([0.3, -0.1, 0.2, 0.1])
    params = lmfit.Parameters()
    params.add("m", value=0.5, min=0.0)
    params.add("twice", expr="2*m")
    mini = lmfit.Minimizer(lambda p: p["m"].value + p["twice"].value - y, params)
    fit = mini.minimize()
    result = interval(fit, minimizer=mini, confidence=0.999)
    assert result.names == ("m",)
    assert result.ends[0][0].status is EndStatus.AT_BOUND


def test_scipy_bounds_of_either_kind() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    from levelport.integrations.scipy import interval

    def square(w: Any) -> float:
        return float((w[0] - 0.25) ** 2 + (w[1] - 3.0) ** 2)

    fit = optimize.minimize(square, np.zeros(2))
    for bounds in ([(0, 9), (0, 9)], [(0, None), (None, None)], optimize.Bounds([0, -np.inf], np.inf)):
        result = interval(fit, square, rise=1.0, bounds=bounds)
        assert result.ends[0][0].status is EndStatus.AT_BOUND
        assert result.lower.tolist() == pytest.approx([0.0, 2.0], abs=5e-3)
        assert result.upper.tolist() == pytest.approx([1.25, 4.0], abs=5e-3)
    with pytest.raises(ValueError, match=r"for each of 2 entries, not \[\(0, 9\)\]"):
        interval(fit, square, rise=1.0, bounds=[(0, 9)])
    with pytest.raises(ValueError, match="for each of 2 entries, not 3"):
        interval(fit, square, rise=1.0, bounds=3)


@pytest.mark.parametrize("derivatives", [True, False])
def test_scipy_result(derivatives: bool) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    from levelport.integrations.scipy import interval

    X, y = counts()
    nll = poisson_nll(X, y)
    given: dict[str, Any] = {}
    if derivatives:
        given = {
            "jac": lambda w: X.T @ (np.exp(X @ w) - y),
            "hess": lambda w: X.T @ (np.exp(X @ w)[:, None] * X),
        }
    fit = optimize.minimize(nll, np.zeros(3), method="BFGS")
    result = interval(fit, nll, confidence=0.95, **given)
    expected = reference(X, y, confidence=0.95, tol=1e-5)
    assert result.success
    assert float(((result.upper - expected.upper) / half(expected)).abs().max()) <= 2e-3
    assert float(((result.lower - expected.lower) / half(expected)).abs().max()) <= 2e-3
