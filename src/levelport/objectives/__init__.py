"""Where objectives come from: autograd on a function or a module, closed forms, NumPy callables."""

from levelport.objectives.differences import GradientDifferences
from levelport.objectives.function import FunctionObjective
from levelport.objectives.linear import LinearObjective
from levelport.objectives.module import ModuleObjective
from levelport.objectives.numpy import NumpyObjective
from levelport.objectives.structure import Structure, Variables

__all__ = [
    "FunctionObjective",
    "GradientDifferences",
    "LinearObjective",
    "ModuleObjective",
    "NumpyObjective",
    "Structure",
    "Variables",
]
