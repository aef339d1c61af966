"""Logistic regression at many weight vectors at once: a grid of step sizes costs little more than one run.

With the members' weights as rows of W, margins are one matrix product, M = y ∘ (X Wᵀ), and so are the gradients:

    f_j = (1/n) Σᵢ log(1 + exp(-M_ij)) + reg ‖w_j‖²
    G   = -(1/n) Rᵀ X + 2 reg W,      R_ij = y_i σ(-M_ij)

Along a ray the margins are linear in the step, X (w - η g) = X w - η X g, so that a line search takes no further
product with X.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.lab.paper.ensemble import Ensemble
from levelport.lab.paper.methods import Ray
from levelport.problems.benchmark_problem import Problem, with_ones


class BatchedLogistic(Ensemble):
    """Members of a binary logistic regression problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        # Labels are folded into the data: only y∘X is ever needed.
        train, test = problem.train, problem.test
        self._signed = with_ones(train.inputs) * train.targets[:, None]
        self._signed_test = with_ones(test.inputs) * test.targets[:, None]

    def _rows(self, rows: Tensor | None) -> Tensor:
        return self._signed if rows is None else self._signed[rows]

    def values_and_gradients(self, W: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        signed = self._rows(rows)
        margins = signed @ W.T
        values = self._values(margins, W)
        gradients = torch.sigmoid_(margins.neg_()).T @ signed
        return values, gradients.div_(-len(signed)).add_(W, alpha=2.0 * self.reg)

    def ray(self, W: Tensor, directions: Tensor, rows: Tensor | None = None) -> Ray:
        signed = self._rows(rows)
        margins = signed @ W.T
        change = signed @ directions.T

        def values(steps: Tensor) -> Tensor:
            return self._values(margins - change * steps, W - steps[:, None] * directions)

        return values

    def _values(self, margins: Tensor, W: Tensor) -> Tensor:
        return F.logsigmoid(margins).mean(dim=0).neg_().add_(W.square().sum(dim=1), alpha=self.reg)

    def accuracies(self, W: Tensor) -> Tensor:
        # A margin of 0 is a prediction of -1, so that it is right for the label -1 only; measure zero in practice.
        return (self._signed_test @ W.T > 0).double().mean(dim=0)
