"""Moves along the symmetries of a network: solvers behind the same contract, which change the gradient and not f.

Every family says on what it is exact (``exact_on``) and refuses a module that it does not support by a sentence that
names the layer. A move is checked like every teleport: f and the gradient are evaluated where it ends.
"""

from levelport.symmetries.activation_group import ActivationGroup
from levelport.symmetries.balance import Balance
from levelport.symmetries.chain import Chain, UnsupportedModuleError, chain_of
from levelport.symmetries.linear_group import LinearGroup
from levelport.symmetries.move import SymmetrySolver
from levelport.symmetries.null_space import NullSpace
from levelport.symmetries.random_basis import RandomBasis
from levelport.symmetries.rescaling import Rescaling

__all__ = [
    "ActivationGroup",
    "Balance",
    "Chain",
    "LinearGroup",
    "NullSpace",
    "RandomBasis",
    "Rescaling",
    "SymmetrySolver",
    "UnsupportedModuleError",
    "chain_of",
]
