"""Optimizers that teleport: for torch training loops, and for deterministic functions."""

from levelport.objectives.batches import Batches
from levelport.optim._minimize import minimize
from levelport.optim.affordable import WhileAffordable
from levelport.optim.armijo import Armijo, ArmijoSGD
from levelport.optim.first_step import TeleportStep
from levelport.optim.fixed_step import FixedStep, Momentum, Normalized
from levelport.optim.lbfgs import LBFGS
from levelport.optim.newton_cg import Newton
from levelport.optim.polyak import Polyak, PolyakSGD
from levelport.optim.result import MinimizeResult, MinimizeRow, MinimizeStatus
from levelport.optim.schedules import At, Every, Never, Schedule
from levelport.optim.step_rule import StepRule
from levelport.optim.teleported import Teleported
from levelport.optim.teleporter import Teleporter

__all__ = [
    "LBFGS",
    "Armijo",
    "ArmijoSGD",
    "At",
    "Batches",
    "Every",
    "FixedStep",
    "MinimizeResult",
    "MinimizeRow",
    "MinimizeStatus",
    "Momentum",
    "Never",
    "Newton",
    "Normalized",
    "Polyak",
    "PolyakSGD",
    "Schedule",
    "StepRule",
    "TeleportStep",
    "Teleported",
    "Teleporter",
    "WhileAffordable",
    "minimize",
]
