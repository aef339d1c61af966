"""Moves along the symmetries of a network: solvers behind the same contract, which change the gradient and not f.

They refuse a module without the symmetry by an error that names the layer. A move is checked like every teleport: f and
the gradient are evaluated where it ends.
"""

from levelport.symmetries.chain import Chain, UnsupportedModuleError, chain_of
from levelport.symmetries.rescaling import Balance, Rescaling, SymmetrySolver

__all__ = ["Balance", "Chain", "Rescaling", "SymmetrySolver", "UnsupportedModuleError", "chain_of"]
