"""The theory of teleportation as code: constants, rates, counterexamples, and diagnoses of problems at hand.

Rates live in :mod:`~levelport.theory.rates` (smooth and convex), :mod:`~levelport.theory.rates_stable` (Hessian
stability) and :mod:`~levelport.theory.rates_approximate` (inexact teleports); :mod:`~levelport.theory.steps` is what
they share.
"""

from levelport.theory.comparison import Comparison, compare, warm_start
from levelport.theory.constants import Constant, Constants, Kind, constants_of
from levelport.theory.diagnosis import Diagnosis, diagnose
from levelport.theory.minimum import Minimum, find_minimum
from levelport.theory.rates_stable import Stability
from levelport.theory.run import Run, run_gradient_descent

__all__ = [
    "Comparison",
    "Constant",
    "Constants",
    "Diagnosis",
    "Kind",
    "Minimum",
    "Run",
    "Stability",
    "compare",
    "constants_of",
    "diagnose",
    "find_minimum",
    "run_gradient_descent",
    "warm_start",
]
