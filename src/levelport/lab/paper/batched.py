"""Many iterates of one problem, evaluated together: a grid of step sizes costs little more than one run.

**Logistic regression.** With the members' weights as rows of W, margins are one matrix product, M = y ∘ (X Wᵀ), and so
are the gradients:

    f_j = (1/n) Σᵢ log(1 + exp(-M_ij)) + reg ‖w_j‖²
    G   = -(1/n) Rᵀ X + 2 reg W,      R_ij = y_i σ(-M_ij)

Along a ray the margins are linear in the step, X (w - η g) = X w - η X g, so that a line search takes no further
product with X.

**Fully connected networks.** On a mini-batch a layer of all members is one batched product, H_j ← φ(H_j W_jᵀ + b_j),
and since member j's loss depends on row j of the parameters only, one backward pass through Σ_j f_j gives all
gradients. On all samples the products are large enough to be done one member after the other, without autograd
(:mod:`levelport.lab.paper.network`), which is faster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.lab.paper.methods import Ray
from levelport.lab.paper.network import NetworkObjective
from levelport.objective import Objective
from levelport.problems.benchmark_problem import Problem, with_ones
from levelport.problems.datasets import Targets
from levelport.problems.models import MLP

_ACTIVATIONS = {"relu": torch.relu, "softplus": F.softplus}
_MOST_ENTRIES = 20_000_000  # of the widest layer's output, over all members of a group: bounds memory


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
    def accuracies(self, W: Tensor) -> Tensor:
        """Test accuracy of every member."""


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

    def _values(self, margins: Tensor, W: Tensor) -> Tensor:
        return F.logsigmoid(margins).mean(dim=0).neg_().add_(W.square().sum(dim=1), alpha=self.reg)

    def accuracies(self, W: Tensor) -> Tensor:
        # A margin of 0 is a prediction of -1, so that it is right for the label -1 only; measure zero in practice.
        return (self._signed_test @ W.T > 0).double().mean(dim=0)


class BatchedNetwork(BatchedProblem):
    """Members of a network training problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        if not isinstance(problem.model, MLP):
            raise TypeError(f"{problem} is not a network.")
        self._activation = _ACTIVATIONS[problem.model.activation]
        self._sizes = problem.model.sizes(problem.info.features, problem.info.outputs)
        self._train, self._test = problem.train, problem.test
        self.objective = NetworkObjective(problem)  # the same f as the problem's own, without autograd

    def _forward(self, W: Tensor, inputs: Tensor) -> Tensor:
        """Outputs of all members, (members, samples, outputs); parameters are laid out as in ``nn.Sequential``."""
        hidden, offset = inputs.expand(len(W), *inputs.shape), 0
        for layer, (fan_in, fan_out) in enumerate(pairwise(self._sizes)):
            if layer:
                hidden = self._activation(hidden)
            weight = W[:, offset : offset + fan_in * fan_out].view(len(W), fan_out, fan_in)
            offset += fan_in * fan_out
            bias = W[:, offset : offset + fan_out]
            offset += fan_out
            hidden = torch.baddbmm(bias[:, None], hidden, weight.transpose(1, 2))
        return hidden

    def _losses(self, W: Tensor, rows: Tensor | None) -> Tensor:
        """Mean loss of every member, without the penalty."""
        inputs, targets = self._train.inputs, self._train.targets
        if rows is not None:
            inputs, targets = inputs[rows], targets[rows]
        outputs = self._forward(W, inputs)
        if self.problem.info.targets is Targets.CLASSES:
            repeated = targets.expand(len(W), -1)
            return F.cross_entropy(outputs.transpose(1, 2), repeated, reduction="none").mean(dim=1)
        return -F.logsigmoid(targets * outputs.squeeze(2)).mean(dim=1)

    def _groups(self, W: Tensor, rows: Tensor | None) -> list[slice]:
        entries = (self.samples if rows is None else len(rows)) * max(self._sizes)
        size = max(1, _MOST_ENTRIES // entries)
        return [slice(start, start + size) for start in range(0, len(W), size)]

    def values_and_gradients(
        self, W: Tensor, rows: Tensor | None = None, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if rows is None:
            f, g = W.new_zeros(len(W)), torch.zeros_like(W)
            for member in _members(W, wanted):
                point = self.objective.at(W[member])
                g[member], f[member] = point.gradient, point.value
            return f, g
        values, gradients = [], []
        for group in self._groups(W, rows):
            leaf = W[group].detach().requires_grad_()
            losses = self._losses(leaf, rows)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
            values.append(losses.detach())
            gradients.append(gradient)
        return torch.cat(values) + self._penalty(W), torch.cat(gradients).add_(W, alpha=2.0 * self.reg)

    def ray(self, W: Tensor, directions: Tensor, rows: Tensor | None = None) -> Ray:
        @torch.no_grad()
        def values(steps: Tensor, wanted: Tensor) -> Tensor:
            moved = W - steps[:, None] * directions
            if rows is None:
                f = W.new_full((len(W),), torch.inf)
                for member in _members(W, wanted):
                    f[member] = self.objective.at(moved[member]).value
                return f
            losses = [self._losses(moved[group], rows) for group in self._groups(moved, rows)]
            return torch.cat(losses) + self._penalty(moved)

        return values

    def _penalty(self, W: Tensor) -> Tensor:
        return self.reg * W.square().sum(dim=1)

    @torch.no_grad()
    def accuracies(self, W: Tensor) -> Tensor:
        shares = []
        for group in self._groups(W, None):
            output = self._forward(W[group], self._test.inputs)
            if self.problem.info.targets is Targets.CLASSES:
                right = output.argmax(dim=2) == self._test.targets
            else:
                right = output[:, :, 0] * self._test.targets > 0
            shares.append(right.double().mean(dim=1))
        return torch.cat(shares)


def _members(W: Tensor, wanted: Tensor | None) -> list[int]:
    return list(range(len(W))) if wanted is None else [int(member) for member in wanted.nonzero()]
