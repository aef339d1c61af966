"""The theory of teleportation as code: constants, rates, counterexamples, and diagnoses of problems at hand.

Rates live in :mod:`~levelport_lab.theory.rates` (smooth and convex), :mod:`~levelport_lab.theory.rates_stable` (Hessian
stability) and :mod:`~levelport_lab.theory.rates_approximate` (inexact teleports);
:mod:`~levelport_lab.theory.steps` is what they share.
:func:`audit` sets them beside a run, :func:`diagnose` says in words whether teleports help at a point.
"""

from levelport.numerics.newton import Minimum
from levelport_lab.problems.minimum import find_minimum
from levelport_lab.theory.bounds import Audit, audit, warm_start
from levelport_lab.theory.certificates import StepCertificate, certify
from levelport_lab.theory.constants import Constant, Constants, Kind, constants_of
from levelport_lab.theory.diagnosis import Diagnosis, diagnose
from levelport_lab.theory.lemmas import LemmaCheck, check_lemmas
from levelport_lab.theory.local_sqp import LocalSQP, local_sqp_condition
from levelport_lab.theory.rates_stable import Stability
from levelport_lab.theory.trajectory import Trajectory, descend

__all__ = [
    "Audit",
    "Constant",
    "Constants",
    "Diagnosis",
    "Kind",
    "LemmaCheck",
    "LocalSQP",
    "Minimum",
    "Stability",
    "StepCertificate",
    "Trajectory",
    "audit",
    "certify",
    "check_lemmas",
    "constants_of",
    "descend",
    "diagnose",
    "find_minimum",
    "local_sqp_condition",
    "warm_start",
]
