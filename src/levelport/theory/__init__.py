"""The theory of teleportation as code: constants, rates, counterexamples, and diagnoses of problems at hand."""

from levelport.theory.constants import Constant, Constants, Kind, constants_of
from levelport.theory.minimum import Minimum, find_minimum
from levelport.theory.rates_stable import Stability
from levelport.theory.run import Run, run_gradient_descent

__all__ = [
    "Constant",
    "Constants",
    "Kind",
    "Minimum",
    "Run",
    "Stability",
    "constants_of",
    "find_minimum",
    "run_gradient_descent",
]
