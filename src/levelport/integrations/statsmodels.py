"""Likelihood intervals of fitted statsmodels models: GLM, Logit, Poisson, and others that have a ``loglike``.

    fit = sm.GLM(y, X, family=sm.families.Binomial()).fit()
    print(interval(fit, confidence=0.95))

Models with a matrix of parameters, such as MNLogit, are refused. The Hessian of state space models, such as ARIMA, is
that of the mean, and differences of their score are taken instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from levelport.goals import IntervalResult
from levelport.goals.setup import rise_of
from levelport.integrations.likelihood import Array, Likelihood


def interval(
    result: Any,
    quantity: Any = None,
    *,
    rise: float | None = None,
    confidence: float | None = None,
    names: list[str] | None = None,
    **options: Any,
) -> IntervalResult[Any]:
    """Likelihood intervals of the parameters of a fitted model, or of functions of them.

    Args:
        result: what ``model.fit()`` returned, by maximum likelihood: the model needs ``loglike``, and ``score`` and
            ``hessian`` where it has them. The scale of a GLM is held at ``result.scale``.
        quantity: a torch function of the parameters, positions or names of parameters, or None for all of them.
        rise, confidence: exactly one of them, as in :func:`levelport.interval`.
        names: of the quantities.
        options: others of :func:`levelport.interval`, such as ``refine`` or ``max_cost``.
    """
    model = getattr(result, "model", None)
    if model is None:
        raise ValueError(f"result must be what model.fit() of statsmodels returned, not a {type(result).__name__}.")
    if np.ndim(result.params) > 1:
        raise ValueError(
            f"{type(model).__name__} has a matrix of parameters, which is not supported. Write its negative "
            "log-likelihood as a function of x and pass it to levelport.interval."
        )
    fixed, x = _fixed_scale(result), np.array(result.params, dtype=np.float64)
    fun, jac = _negative(model, "loglike", fixed, x), _negative(model, "score", fixed, x)
    if fun is None or hasattr(model, "cov_struct"):  # estimating equations inherit a likelihood
        raise ValueError(f"{type(model).__name__} is not fitted by maximum likelihood: no intervals.")
    hess = None if hasattr(model, "ssm") else _negative(model, "hessian", fixed, x)
    likelihood = Likelihood(fun, x, rise_of(rise, confidence), jac=jac, hess=hess)
    known = parameter_names(result)
    return likelihood.interval(quantity, known, names, rise=rise, confidence=confidence, **options)


def parameter_names(result: Any) -> list[str]:
    """Names of the parameters, as the model's summary has them."""
    if hasattr(result.params, "index") and not callable(result.params.index):
        return [str(name) for name in result.params.index]
    named = getattr(result.model, "param_names", None) or getattr(result.model, "exog_names", None) or []
    count = len(result.params)
    return [str(name) for name in named] if len(named) == count else [f"x{index}" for index in range(count)]


def _fixed_scale(result: Any) -> dict[str, Any]:
    """GLMs estimate a scale beside the likelihood; score and Hessian take it as an argument."""
    takes = "scale" in inspect.signature(result.model.loglike).parameters
    return {"scale": float(result.scale)} if takes and hasattr(result, "scale") else {}


def _negative(model: Any, name: str, options: dict[str, Any], x: Array) -> Callable[[Any], Any] | None:
    """The log-likelihood or a derivative of it with its sign changed, or None where the model has none."""
    method = getattr(model, name, None)
    if method is None:
        return None
    accepted = inspect.signature(method).parameters
    taken = {name: value for name, value in options.items() if name in accepted}
    try:
        method(x, **taken)
    except NotImplementedError:
        return None
    except ValueError as error:
        raise ValueError(
            f"{type(model).__name__}.{name} cannot be evaluated at result.params ({error}). Write the model's negative "
            "log-likelihood as a function of x and pass it to levelport.interval."
        ) from error
    return lambda x: -np.asarray(method(x, **taken))
