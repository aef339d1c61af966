"""Many iterates of one problem, evaluated together: a grid of step sizes and penalties costs little more than one run.

**Logistic regression.** With the members' weights as rows of W, margins are one matrix product, M = W (y∘X)ᵀ, and so
are the gradients:

    f_j = (1/n) Σᵢ log(1 + exp(-M_ji)) + reg_j ‖w_j‖²
    G   = -(1/n) σ(-M) (y∘X) + 2 diag(reg) W

Along a ray the margins are linear in the step, X (w - η g) = X w - η X g, so that a line search takes no further
product with X.

**Fully connected networks.** A layer of all members is one batched product, H_j ← φ(H_j W_jᵀ + b_j), and so on back
(:mod:`levelport_lab.paper.network`).

Where the samples are many, the products are large enough to be done for a few members, or one, at a time, which is
kinder to the caches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport_lab.paper.member_points import LogisticPoints, MemberPoints
from levelport_lab.paper.methods import Ray
from levelport_lab.paper.network import Network, NetworkPoints, Pass
from levelport_lab.problems.benchmark_problem import Problem, Samples, with_ones
from levelport_lab.problems.models import MLP

_MOST_ENTRIES = 1_000_000  # of a layer's output, over all members of a group: larger groups were no faster


def batched(problem: Problem) -> BatchedProblem:
    """``problem`` in the form that suits its model."""
    return BatchedNetwork(problem) if isinstance(problem.model, MLP) else BatchedLogistic(problem)


class BatchedProblem(ABC):
    """Values and gradients of f at the rows of a matrix W, on all training samples or on a mini-batch of them.

    ``regs`` are the penalties of the members, ``rows`` sample numbers; ``wanted`` marks the members that are needed.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.samples = len(problem.train)

    def values_and_gradients(
        self, W: Tensor, regs: Tensor, rows: Tensor | None = None, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """f_j and, as rows, ∇f at w_j; members that are not wanted are zero instead."""
        samples = self._samples(rows)
        groups = self.groups(_members(W, wanted), len(samples))
        if len(groups) == 1 and len(groups[0]) == len(W):
            return self._evaluated(W, regs, samples)
        f, g = W.new_zeros(len(W)), torch.zeros_like(W)
        for group in groups:
            f[group], g[group] = self._evaluated(W[group], regs[group], samples)
        return f, g

    def groups(self, members: Tensor, samples: int | None = None) -> tuple[Tensor, ...]:
        """Members that are evaluated together, on so many samples; all by default."""
        entries = (self.samples if samples is None else samples) * self._width
        return members.split(max(1, _MOST_ENTRIES // entries))

    @property
    @abstractmethod
    def _width(self) -> int:
        """Entries of the largest intermediate result per sample and member."""

    @abstractmethod
    def _samples(self, rows: Tensor | None) -> Samples:
        """Those samples, or all."""

    @abstractmethod
    def _evaluated(self, W: Tensor, regs: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        """f and ∇f of a group."""

    @abstractmethod
    def ray(self, W: Tensor, regs: Tensor, directions: Tensor, rows: Tensor | None = None) -> Ray:
        """η ↦ f(w_j - η_j d_j)."""

    @abstractmethod
    def points(self, W: Tensor, regs: Tensor) -> MemberPoints:
        """The rows of ``W``, which are one group, as points for Hessian-vector products; on all samples."""

    @abstractmethod
    def accuracies(self, W: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Test accuracy of every member that ``wanted`` marks."""


class BatchedLogistic(BatchedProblem):
    """Members of a binary logistic regression problem."""

    _width = 1

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        # Labels are folded into the data: only y∘X is ever needed.
        train, test = problem.train, problem.test
        self._signed = with_ones(train.inputs) * train.targets[:, None]
        self._signed_test = with_ones(test.inputs) * test.targets[:, None]

    def _samples(self, rows: Tensor | None) -> Samples:
        signed = self._signed if rows is None else self._signed[rows]
        return Samples(signed, signed[:, 0])

    def _evaluated(self, W: Tensor, regs: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        points = LogisticPoints(W, samples.inputs, regs)
        return points.losses, points.gradients

    def ray(self, W: Tensor, regs: Tensor, directions: Tensor, rows: Tensor | None = None) -> Ray:
        signed = self._samples(rows).inputs
        margins, change = W @ signed.T, directions @ signed.T

        def values(steps: Tensor, wanted: Tensor) -> Tensor:
            f = W.new_full((len(W),), torch.inf)
            for some in self.groups(_members(W, wanted), len(signed)):
                eta = steps[some, None]
                moved = torch.addcmul(margins[some], change[some], eta, value=-1.0)
                ends = torch.addcmul(W[some], directions[some], eta, value=-1.0)
                f[some] = F.logsigmoid(moved).mean(dim=1).neg_().addcmul_(ends.square().sum(dim=1), regs[some])
            return f

        return values

    def points(self, W: Tensor, regs: Tensor) -> MemberPoints:
        return LogisticPoints(W, self._signed, regs)

    def accuracies(self, W: Tensor, wanted: Tensor | None = None) -> Tensor:
        # A margin of 0 is a prediction of -1, so that it is right for the label -1 only; of measure zero.
        return (self._signed_test @ W.T > 0).double().mean(dim=0)


class BatchedNetwork(BatchedProblem):
    """Members of a network training problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._network = Network(problem)
        self._train, self._test = problem.train, problem.test

    @property
    def _width(self) -> int:
        return max(self._network.sizes[1:])

    def _samples(self, rows: Tensor | None) -> Samples:
        return self._train if rows is None else Samples(self._train.inputs[rows], self._train.targets[rows])

    def _evaluated(self, W: Tensor, regs: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        evaluated = Pass(W, self._network, samples, regs)
        return evaluated.values, evaluated.gradients()

    def ray(self, W: Tensor, regs: Tensor, directions: Tensor, rows: Tensor | None = None) -> Ray:
        samples = self._samples(rows)

        def values(steps: Tensor, wanted: Tensor) -> Tensor:
            f = W.new_full((len(W),), torch.inf)
            for group in self.groups(_members(W, wanted), len(samples)):
                ends = W[group] - steps[group, None] * directions[group]
                f[group] = Pass(ends, self._network, samples, regs[group]).values
            return f

        return values

    def points(self, W: Tensor, regs: Tensor) -> MemberPoints:
        return NetworkPoints(W, self._network, self._train, regs)

    def accuracies(self, W: Tensor, wanted: Tensor | None = None) -> Tensor:
        shares = torch.zeros(len(W), dtype=torch.float64)
        for group in self.groups(_members(W, wanted), len(self._test)):
            output = self._network.activations(self._network.layers(W[group]), self._test.inputs)[-1]
            if self._network.several:
                right = output.argmax(dim=2) == self._test.targets
            else:
                right = output[:, :, 0] * self._test.targets > 0
            shares[group] = right.double().mean(dim=1)
        return shares


def _members(W: Tensor, wanted: Tensor | None) -> Tensor:
    return torch.arange(len(W)) if wanted is None else wanted.nonzero()[:, 0]
