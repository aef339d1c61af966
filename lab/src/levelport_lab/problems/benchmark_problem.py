"""A benchmark problem: data × model × reg × seed.

    f(w) = mean over the training samples of the loss + reg ‖w‖²,        w = all parameters, biases included.

``seed`` is the repeat of the published runs: it decides the split and the start. A problem is a small frozen value
that can be hashed, compared, pickled and written down; data are read when they are first needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport.objective import Objective
from levelport.objectives.linear import LinearObjective
from levelport.objectives.module import ModuleObjective
from levelport_lab.problems import models
from levelport_lab.problems.datasets import DataInfo, Targets, data_info, load_data
from levelport_lab.problems.models import MLP, LinearModel, Model

if TYPE_CHECKING:
    from levelport_lab.problems.optima import Optimum

Rows: TypeAlias = Tensor | NDArray[np.integer] | Sequence[int]
"""Row numbers of the training set."""


@dataclass(frozen=True)
class Samples:
    """Inputs and targets as tensors."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Problem:
    """A named function to minimize. Make one with :func:`levelport_lab.problem`.

    Example:
        >>> problem = Problem("titanic", LinearModel(), reg=1e-3)
        >>> problem.name, problem.dimension
        ('logreg/titanic', 4)
        >>> objective = problem.objective()
        >>> objective.at(problem.initial_point()).value > problem.optimum().value
        True
    """

    data: str
    model: Model
    reg: float = 0.0
    seed: int = 0
    dtype: torch.dtype = field(default=torch.float64)

    def __post_init__(self) -> None:
        if not (self.reg >= 0.0 and np.isfinite(self.reg)):
            raise ValueError(f"reg must be a finite number, not negative, not {self.reg}.")
        models.check_seed(self.seed)

    @property
    def name(self) -> str:
        """Model and data, as in ``logreg/blood``."""
        return f"{self.model.name}/{self.data}"

    def __str__(self) -> str:
        return f"{self.name} reg={self.reg:g} seed={self.seed}"

    @property
    def info(self) -> DataInfo:
        """Size and kind of targets of the data, known without reading them."""
        return data_info(self.data)

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        if isinstance(self.model, LinearModel):
            return (self.info.features + 1) * self.info.outputs
        return self.model.parameters(self.info.features, self.info.outputs)

    @property
    def convex(self) -> bool:
        """True if f is convex, so that :meth:`optimum` is certified."""
        return isinstance(self.model, LinearModel)

    @property
    def train(self) -> Samples:
        """The training split."""
        return _samples(self.data, self.seed, self.dtype)[0]

    @property
    def test(self) -> Samples:
        """The test split."""
        return _samples(self.data, self.seed, self.dtype)[1]

    def objective(self, batch: Rows | None = None) -> Objective:
        """f on all training samples, or on those whose row numbers are in ``batch``."""
        train = self.train
        if batch is not None:
            rows = torch.as_tensor(batch)
            if rows.ndim != 1 or len(rows) == 0 or rows.dtype not in (torch.int64, torch.int32):
                raise ValueError("batch must be a list of row numbers of the training set, at least one.")
            train = Samples(train.inputs[rows], train.targets[rows])
        if isinstance(self.model, MLP):
            module = self.model.build(self.info.features, self.info.outputs, seed=self.seed, dtype=self.dtype)
            objective = ModuleObjective(module, self._loss(), train.inputs, train.targets, penalty=self.reg)
            # Fully connected layers without dropout: the same point gives the same value.
            objective.deterministic = True
            return objective
        X = with_ones(train.inputs)
        if self.info.targets is Targets.CLASSES:
            return LinearObjective.softmax(X, train.targets, self.info.classes, penalty=self.reg)
        return LinearObjective.logistic(X, train.targets, penalty=self.reg)

    def initial_point(self) -> Tensor:
        """The start: Kaiming initialization from the seed (see :mod:`levelport_lab.problems.models`)."""
        features, outputs = self.info.features, self.info.outputs
        if isinstance(self.model, LinearModel):
            return models.initial_weights(features, outputs, seed=self.seed, dtype=self.dtype)
        module = self.model.build(features, outputs, seed=self.seed, dtype=self.dtype)
        return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])

    def predict(self, x: Tensor, inputs: Tensor) -> Tensor:
        """The model's output at parameters ``x``: one column per output."""
        if isinstance(self.model, LinearModel):
            return with_ones(inputs) @ x.view(-1, self.info.outputs)
        module = self.model.build(self.info.features, self.info.outputs, seed=self.seed, dtype=self.dtype)
        torch.nn.utils.vector_to_parameters(x, module.parameters())
        with torch.no_grad():
            output: Tensor = module(inputs)
        return output

    def optimum(self) -> Optimum:
        """inf f of a linear model with a certified lower bound; networks have none."""
        from levelport_lab.problems import optima

        return optima.optimum(self)

    def test_accuracy(self, x: Tensor) -> float:
        """Share of the test samples that parameters ``x`` classify rightly."""
        output = self.predict(x, self.test.inputs)
        if self.info.targets is Targets.CLASSES:
            right = output.argmax(dim=1) == self.test.targets
        else:
            right = torch.where(output[:, 0] > 0, 1.0, -1.0) == self.test.targets
        return float(right.double().mean())

    def _loss(self) -> models.Loss:
        return models.cross_entropy if self.info.targets is Targets.CLASSES else models.logistic_loss


def with_ones(X: Tensor) -> Tensor:
    """[X, 1]: the intercept's column comes last."""
    return torch.cat([X, X.new_ones(len(X), 1)], dim=1)


@lru_cache(maxsize=4)
def _samples(data: str, seed: int, dtype: torch.dtype) -> tuple[Samples, Samples]:
    split = load_data(data).split(seed)
    target_dtype = torch.int64 if data_info(data).targets is Targets.CLASSES else dtype

    def tensors(X: NDArray[Any], y: NDArray[Any]) -> Samples:
        # A copy: arrays of a data set are shared and read-only.
        return Samples(torch.tensor(X, dtype=dtype), torch.tensor(y, dtype=target_dtype))

    return tensors(split.X_train, split.y_train), tensors(split.X_test, split.y_test)
