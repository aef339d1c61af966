"""Many iterates of one problem, evaluated together: a grid of step sizes costs little more than one run.

**Logistic regression.** With the members' weights as rows of W, margins are one matrix product, M = y ∘ (X Wᵀ), and so
are the gradients:

    f_j = (1/n) Σᵢ log(1 + exp(-M_ij)) + reg ‖w_j‖²
    G   = -(1/n) Rᵀ X + 2 reg W,      R_ij = y_i σ(-M_ij)

Along a ray the margins are linear in the step, X (w - η g) = X w - η X g, so that a line search takes no further
product with X.

**Fully connected networks.** A layer of all members is one batched product, H_j ← φ(H_j W_jᵀ + b_j), and so on back
(:mod:`levelport_lab.paper.network`). Where the samples are many, the products are large enough to be done for a few
members, or one, at a time, which is kinder to the caches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.objective import Objective
from levelport_lab.paper.member_points import LogisticPoints, MemberPoints, SeparatePoints
from levelport_lab.paper.methods import Ray
from levelport_lab.paper.network import Network, NetworkObjective, NetworkPoints, Pass
from levelport_lab.problems.benchmark_problem import Problem, Samples, with_ones
from levelport_lab.problems.models import MLP

_MOST_ENTRIES = 1_000_000  # of a layer's output, over all members of a group: larger groups were no faster


def batched(problem: Problem) -> BatchedProblem:
    """``problem`` in the form that suits its model."""
    return BatchedNetwork(problem) if isinstance(problem.model, MLP) else BatchedLogistic(problem)


class BatchedProblem(ABC):
    """Values and gradients of f at the rows of a matrix W, on all training samples or on a mini-batch of them.

    ``objective`` is the same f for one point at a time, with Hessian-vector products, for teleports.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.reg = problem.reg
        self.samples = len(problem.train)
        self.objective: Objective = problem.objective()

    @abstractmethod
    def values_and_gradients(
        self, W: Tensor, rows: Tensor | None = None, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """f_j and, as rows, ∇f at w_j; ``rows`` are sample numbers.

        ``wanted`` marks the members that are needed; the others may be zero instead.
        """

    @abstractmethod
    def ray(self, W: Tensor, directions: Tensor, rows: Tensor | None = None) -> Ray:
        """η ↦ f(w_j - η_j d_j)."""

    @abstractmethod
    def points(self, W: Tensor, *, grid: int) -> MemberPoints:
        """The rows of ``W`` as points, for Hessian-vector products; on all samples.

        ``W`` may be some of the ``grid`` members only: its size decides how points are kept, so that all points of a
        grid are of one kind and can be assembled.
        """

    @abstractmethod
    def accuracies(self, W: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Test accuracy of every member that ``wanted`` marks."""


class BatchedLogistic(BatchedProblem):
    """Members of a binary logistic regression problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        # Labels are folded into the data: only y∘X is ever needed.
        train, test = problem.train, problem.test
        self._signed = with_ones(train.inputs) * train.targets[:, None]
        self._signed_test = with_ones(test.inputs) * test.targets[:, None]

    def _rows(self, rows: Tensor | None) -> Tensor:
        return self._signed if rows is None else self._signed[rows]

    def values_and_gradients(
        self, W: Tensor, rows: Tensor | None = None, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        signed = self._rows(rows)
        margins = signed @ W.T
        values = self._values(margins, W)
        gradients = torch.sigmoid_(margins.neg_()).T @ signed
        return values, gradients.div_(-len(signed)).add_(W, alpha=2.0 * self.reg)

    def ray(self, W: Tensor, directions: Tensor, rows: Tensor | None = None) -> Ray:
        signed = self._rows(rows)
        margins = signed @ W.T
        change = signed @ directions.T

        def values(steps: Tensor, wanted: Tensor) -> Tensor:
            return self._values(margins - change * steps, W - steps[:, None] * directions)

        return values

    def points(self, W: Tensor, *, grid: int) -> MemberPoints:
        return LogisticPoints(W, self._signed, self.reg)

    def _values(self, margins: Tensor, W: Tensor) -> Tensor:
        return F.logsigmoid(margins).mean(dim=0).neg_().add_(W.square().sum(dim=1), alpha=self.reg)

    def accuracies(self, W: Tensor, wanted: Tensor | None = None) -> Tensor:
        # A margin of 0 is a prediction of -1, so that it is right for the label -1 only; of measure zero.
        return (self._signed_test @ W.T > 0).double().mean(dim=0)


class BatchedNetwork(BatchedProblem):
    """Members of a network training problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._network = Network(problem)
        self._train, self._test = problem.train, problem.test
        self.objective = NetworkObjective(problem)  # the same f as the problem's own, without autograd

    def _samples(self, rows: Tensor | None) -> Samples:
        return self._train if rows is None else Samples(self._train.inputs[rows], self._train.targets[rows])

    def _groups(self, members: Tensor, samples: Samples) -> tuple[Tensor, ...]:
        """Members that are evaluated together."""
        entries = len(samples) * max(self._network.sizes[1:])
        return members.split(max(1, _MOST_ENTRIES // entries))

    def values_and_gradients(
        self, W: Tensor, rows: Tensor | None = None, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        samples = self._samples(rows)
        groups = self._groups(_members(W, wanted), samples)
        if len(groups) == 1 and len(groups[0]) == len(W):
            evaluated = Pass(W, self._network, samples)
            return evaluated.values, evaluated.gradients()
        f, g = W.new_zeros(len(W)), torch.zeros_like(W)
        for group in groups:
            evaluated = Pass(W[group], self._network, samples)
            f[group], g[group] = evaluated.values, evaluated.gradients()
        return f, g

    def ray(self, W: Tensor, directions: Tensor, rows: Tensor | None = None) -> Ray:
        samples = self._samples(rows)

        def values(steps: Tensor, wanted: Tensor) -> Tensor:
            f = W.new_full((len(W),), torch.inf)
            for group in self._groups(_members(W, wanted), samples):
                f[group] = self._network.values(W[group] - steps[group, None] * directions[group], samples)
            return f

        return values

    def points(self, W: Tensor, *, grid: int) -> MemberPoints:
        if len(self._groups(torch.arange(grid), self._train)) <= 1:
            return NetworkPoints(W, self._network, self._train)
        return SeparatePoints(W, [self.objective.at(w) for w in W])

    def accuracies(self, W: Tensor, wanted: Tensor | None = None) -> Tensor:
        shares = torch.zeros(len(W), dtype=torch.float64)
        for group in self._groups(_members(W, wanted), self._test):
            output = self._network.activations(self._network.layers(W[group]), self._test.inputs)[-1]
            if self._network.several:
                right = output.argmax(dim=2) == self._test.targets
            else:
                right = output[:, :, 0] * self._test.targets > 0
            shares[group] = right.double().mean(dim=1)
        return shares


def _members(W: Tensor, wanted: Tensor | None) -> Tensor:
    return torch.arange(len(W)) if wanted is None else wanted.nonzero()[:, 0]
