"""Many iterates of one problem, evaluated together."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from levelport.lab.paper.methods import Ray
from levelport.objective import Objective
from levelport.problems.benchmark_problem import Problem


class Ensemble(ABC):
    """Values and gradients of f at the rows of a matrix W, on all training samples or on a mini-batch of them.

    ``objective`` is the same f for one point at a time, with Hessian-vector products, for teleports.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.reg = problem.reg
        self.samples = len(problem.train)
        self.objective: Objective = problem.objective()

    @abstractmethod
    def values_and_gradients(self, W: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """f_j and, as rows, ∇f at w_j; ``rows`` are sample numbers."""

    @abstractmethod
    def ray(self, W: Tensor, directions: Tensor, rows: Tensor | None = None) -> Ray:
        """η ↦ f(w_j - η_j d_j)."""

    @abstractmethod
    def accuracies(self, W: Tensor) -> Tensor:
        """Test accuracy of every member."""


def ensemble_of(problem: Problem) -> Ensemble:
    """The ensemble that suits the problem's model."""
    from levelport.lab.paper.batched_linear import BatchedLogistic
    from levelport.lab.paper.batched_network import BatchedNetwork
    from levelport.problems.models import MLP

    return BatchedNetwork(problem) if isinstance(problem.model, MLP) else BatchedLogistic(problem)
