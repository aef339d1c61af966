"""Fully connected networks at many parameter vectors at once.

A layer of all members is one batched product, H_j ← φ(H_j W_jᵀ + b_j). Since member j's loss depends on row j of the
parameters only, one backward pass through Σ_j f_j gives all gradients.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.lab.paper.ensemble import Ensemble
from levelport.lab.paper.methods import Ray
from levelport.problems.benchmark_problem import Problem
from levelport.problems.datasets import Task
from levelport.problems.models import MLP

_ACTIVATIONS = {"relu": torch.relu, "softplus": F.softplus}
_MOST_ENTRIES = 20_000_000  # of the widest layer's output, over all members of a group: bounds memory


class BatchedNetwork(Ensemble):
    """Members of a network training problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        if not isinstance(problem.model, MLP):
            raise TypeError(f"{problem} is not a network.")
        self._activation = _ACTIVATIONS[problem.model.activation]
        self._sizes = problem.model.sizes(problem.info.features, problem.info.outputs)
        self._train, self._test = problem.train, problem.test

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
        if self.problem.info.task is Task.CLASSES:
            repeated = targets.expand(len(W), -1)
            return F.cross_entropy(outputs.transpose(1, 2), repeated, reduction="none").mean(dim=1)
        return -F.logsigmoid(targets * outputs.squeeze(2)).mean(dim=1)

    def _groups(self, W: Tensor, rows: Tensor | None) -> list[slice]:
        entries = (self.samples if rows is None else len(rows)) * max(self._sizes)
        size = max(1, _MOST_ENTRIES // entries)
        return [slice(start, start + size) for start in range(0, len(W), size)]

    def values_and_gradients(self, W: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
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
        def values(steps: Tensor) -> Tensor:
            moved = W - steps[:, None] * directions
            losses = [self._losses(moved[group], rows) for group in self._groups(moved, rows)]
            return torch.cat(losses) + self._penalty(moved)

        return values

    def _penalty(self, W: Tensor) -> Tensor:
        return self.reg * W.square().sum(dim=1)

    @torch.no_grad()
    def accuracies(self, W: Tensor) -> Tensor:
        shares = []
        for row in W:
            output = self._forward(row[None], self._test.inputs)[0]
            if self.problem.info.task is Task.CLASSES:
                right = output.argmax(dim=1) == self._test.targets
            else:
                right = output[:, 0] * self._test.targets > 0
            shares.append(right.double().mean())
        return torch.stack(shares)
