"""Optimizers that teleport: for torch training loops, and for deterministic functions."""

from levelport.integrations.scipy import scipy_method
from levelport.objectives.parameters import Batches
from levelport.optim._minimize import minimize
from levelport.optim.adaptive import WhenItPays, WhenStalled
from levelport.optim.armijo import Armijo, ArmijoSGD
from levelport.optim.fixed_step import FixedStep, Momentum
from levelport.optim.jump import Jump
from levelport.optim.newton_cg import Newton, NewtonCG
from levelport.optim.normalized import Normalized, NormalizedSGD
from levelport.optim.polyak import Polyak, PolyakSGD
from levelport.optim.result import MinimizeResult, MinimizeRow, MinimizeStatus
from levelport.optim.schedules import At, AtStart, Blocks, Every, Never, Schedule
from levelport.optim.teleported import Teleported

__all__ = [
    "Armijo",
    "ArmijoSGD",
    "At",
    "AtStart",
    "Batches",
    "Blocks",
    "Every",
    "FixedStep",
    "Jump",
    "MinimizeResult",
    "MinimizeRow",
    "MinimizeStatus",
    "Momentum",
    "Never",
    "Newton",
    "NewtonCG",
    "Normalized",
    "NormalizedSGD",
    "Polyak",
    "PolyakSGD",
    "Schedule",
    "Teleported",
    "WhenItPays",
    "WhenStalled",
    "minimize",
    "scipy_method",
]
