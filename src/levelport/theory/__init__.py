"""The theory of teleportation as code: constants, rates, counterexamples, and diagnoses of problems at hand.

Rates live in :mod:`~levelport.theory.rates` (smooth and convex), :mod:`~levelport.theory.rates_stable` (Hessian
stability) and :mod:`~levelport.theory.rates_approximate` (inexact teleports); :mod:`~levelport.theory.steps` is what
they share.
"""

from levelport.numerics.newton import Minimum, find_minimum
from levelport.theory.constants import Constant, Constants, Kind, constants_of
from levelport.theory.diagnosis import Diagnosis, diagnose
from levelport.theory.promises import Audit, audit, warm_start
from levelport.theory.rates_stable import Stability
from levelport.theory.trajectory import Trajectory, descend

__all__ = [
    "Audit",
    "Constant",
    "Constants",
    "Diagnosis",
    "Kind",
    "Minimum",
    "Stability",
    "Trajectory",
    "audit",
    "constants_of",
    "descend",
    "diagnose",
    "find_minimum",
    "warm_start",
]
