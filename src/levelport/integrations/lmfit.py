"""Intervals from an lmfit result, in place of ``conf_interval``.

    result = model.fit(y, x=x)
    print(interval(result, confidence=0.95))

lmfit compares sums of squares by an F test. The same is a rise of f = ½ χ²/s² by half the F quantile, s² being the
reduced χ² where lmfit scales the covariance by it (``scale_covar``), and 1 with half the χ² quantile where it does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from levelport.goals import IntervalResult
from levelport.goals.setup import rise_of
from levelport.integrations.likelihood import Array, Likelihood


def interval(
    result: Any,
    quantity: Any = None,
    *,
    minimizer: Any = None,
    rise: float | None = None,
    confidence: float | None = None,
    names: list[str] | None = None,
    **options: Any,
) -> IntervalResult[Any]:
    """Intervals of the varied parameters of an lmfit fit, or of functions of them.

    Args:
        result: a ``ModelResult``, or a ``MinimizerResult`` together with its ``minimizer``.
        quantity: a torch function of the varied parameters, positions among them or names, or None for all of them.
        minimizer: the ``Minimizer`` that made the result; a ``ModelResult`` is its own.
        rise: of ½ χ²/s².
        confidence: as in lmfit's ``conf_interval``.
        names: of the quantities.
        options: others of :func:`levelport.interval`, such as ``refine`` or ``max_cost``.
    """
    owner = result if minimizer is None else minimizer
    if not hasattr(owner, "userfcn") or not hasattr(result, "var_names"):
        raise ValueError(
            "result must be an lmfit ModelResult; for a MinimizerResult pass the Minimizer as well: minimizer=mini."
        )
    known = list(result.var_names)
    scaled = bool(getattr(owner, "scale_covar", True))
    variance = float(result.redchi) if scaled else 1.0
    height = rise_of(rise, confidence)
    if rise is None and scaled:
        from scipy.stats import f as f_distribution

        height = 0.5 * float(f_distribution.ppf(confidence, 1, result.nfree))
    params = result.params.copy()

    def half_chi_square(x: Array) -> float:
        for name, value in zip(known, x.tolist(), strict=True):
            params[name].set(value=value)
        params.update_constraints()
        residual = np.asarray(owner.userfcn(params, *owner.userargs, **owner.userkws), dtype=np.float64).reshape(-1)
        return 0.5 * float(residual @ residual) / variance

    limits = np.array([[params[name].min, params[name].max] for name in known], dtype=np.float64)
    start = np.array([params[name].value for name in known], dtype=np.float64)
    likelihood = Likelihood(half_chi_square, start, height, limits=limits)
    return replace(likelihood.interval(quantity, known, names, rise=height, **options), confidence=confidence)
