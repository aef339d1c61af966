"""Likelihood intervals from a ``Minuit`` object, in place of ``minos``.

    m = Minuit(nll, a=1.0, b=2.0)
    m.errordef = Minuit.LIKELIHOOD
    m.migrad()
    print(interval(m, confidence=0.95))

Limits and fixed parameters are those of the object.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from levelport.goals import IntervalResult
from levelport.goals.setup import rise_of
from levelport.integrations.likelihood import Array, Likelihood


def interval(
    minuit: Any,
    quantity: Any = None,
    *,
    rise: float | None = None,
    confidence: float | None = None,
    names: list[str] | None = None,
    **options: Any,
) -> IntervalResult[Any]:
    """Intervals of the free parameters of a ``Minuit`` object after ``migrad``, or of functions of them.

    Fixed parameters stay as they are, limits are kept, the gradient is used where Minuit has one. The confidence is
    scaled by ``errordef``: 0.5 for a negative log-likelihood, 1 for a sum of squares.

    Args:
        minuit: a ``Minuit`` object at its minimum.
        quantity: a torch function of the free parameters, positions among them or names, or None for all of them.
        rise: of the function as it is, without ``errordef``.
        names: of the quantities.
        options: others of :func:`levelport.interval`, such as ``refine`` or ``max_cost``.
    """
    if not hasattr(minuit, "fcn") or not hasattr(minuit, "errordef"):
        raise ValueError(f"minuit must be a Minuit object, not a {type(minuit).__name__}.")
    height = rise_of(rise, confidence) * (1.0 if rise is not None else 2.0 * float(minuit.errordef))
    values = np.array(minuit.values, dtype=np.float64)
    free = ~np.array(minuit.fixed, dtype=bool)
    if not free.any():
        raise ValueError("every parameter of minuit is fixed, so none has an interval.")
    known = [name for name, moves in zip(minuit.parameters, free, strict=True) if moves]
    limits = np.array(minuit.limits, dtype=np.float64).reshape(-1, 2)[free]

    def complete(x: Array) -> Array:
        whole = values.copy()
        whole[free] = x
        return whole

    gradient = _gradient(minuit, values)
    likelihood = Likelihood(
        lambda x: float(minuit.fcn(complete(x))),
        values[free],
        height,
        jac=None if gradient is None else lambda x: np.asarray(gradient(complete(x)), dtype=np.float64)[free],
        limits=limits,
    )
    return replace(likelihood.interval(quantity, known, names, rise=height, **options), confidence=confidence)


def _gradient(minuit: Any, values: Array) -> Any:
    """The gradient Minuit was given, or None: its ``grad`` exists without one and fails when it is called."""
    try:
        minuit.grad(values)
    except (AttributeError, TypeError):
        return None
    return minuit.grad
