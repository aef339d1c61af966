"""Fully connected networks in closed form: loss, gradient and Hessian-vector product without autograd.

With activations H₀ = X and H_l = φ(Z_l), Z_l = H_{l-1} W_lᵀ + b_l, outputs Z_L and a loss ℓ per sample,
back-propagation is

    δ_L = ∂ℓ/∂Z_L / n,    δ_{l-1} = (δ_l W_l) φ'(Z_{l-1}),    ∂f/∂W_l = δ_lᵀ H_{l-1},    ∂f/∂b_l = Σᵢ δ_l,

and its derivative along (V_l, c_l), written with a dot (Pearlmutter, 1994), is

    Ż_l = Ḣ_{l-1} W_lᵀ + H_{l-1} V_lᵀ + c_l,      Ḣ_l = φ'(Z_l) Ż_l,
    δ̇_{l-1} = (δ̇_l W_l + δ_l V_l) φ'(Z_{l-1}) + (δ_l W_l) φ''(Z_{l-1}) Ż_{l-1},
    ∇²f · V at W_l = δ̇_lᵀ H_{l-1} + δ_lᵀ Ḣ_{l-1},    at b_l = Σᵢ δ̇_l.

So a gradient takes three matrix products per layer and a Hessian-vector product six more. Networks of a hundred units
are too small for autograd: its bookkeeping and the graph of the gradient take as long as the products.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.objective import Objective, Point
from levelport.objectives.linear import LogisticLoss, PointwiseLoss, SoftmaxLoss
from levelport.problems.benchmark_problem import Problem
from levelport.problems.datasets import Targets
from levelport.problems.models import MLP


class Layer(NamedTuple):
    """Weights (out × in) and biases of one layer, or a direction of the same shape."""

    weight: Tensor
    bias: Tensor


class NetworkObjective(Objective):
    """mean ℓ + reg ‖x‖² of a network for classification; x is laid out as the parameters of ``nn.Sequential``."""

    deterministic = True

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        if not isinstance(problem.model, MLP) or problem.info.targets is Targets.REGRESSION:
            raise TypeError(f"{problem.name} is not a network that classifies.")
        self.sizes = problem.model.sizes(problem.info.features, problem.info.outputs)
        self.relu = problem.model.activation == "relu"
        self.reg = problem.reg
        self.inputs = problem.train.inputs
        targets, several = problem.train.targets, problem.info.targets is Targets.CLASSES
        self.loss: PointwiseLoss = SoftmaxLoss(targets, problem.info.classes) if several else LogisticLoss(targets)
        self.dimension, self.dtype, self.device = problem.dimension, self.inputs.dtype, self.inputs.device

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _NetworkPoint(x, self)

    def layers(self, x: Tensor) -> list[Layer]:
        """Views of the flat vector ``x``."""
        layers, offset = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            weight = x[offset : offset + fan_in * fan_out].view(fan_out, fan_in)
            offset += fan_in * fan_out
            layers.append(Layer(weight, x[offset : offset + fan_out]))
            offset += fan_out
        return layers

    def activations(self, layers: list[Layer], inputs: Tensor) -> list[Tensor]:
        """H₀, ..., H_{L-1} and the outputs Z_L."""
        found = [inputs]
        for number, (weight, bias) in enumerate(layers):
            if number:
                found[-1] = torch.relu_(found[-1]) if self.relu else F.softplus(found[-1])
            found.append(torch.addmm(bias, found[-1], weight.T))
        return found

    def mean_loss(self, outputs: Tensor) -> Tensor:
        """Mean ℓ of the outputs Z_L on the training samples."""
        return self.loss.mean(self.shaped(outputs))

    def shaped(self, outputs: Tensor) -> Tensor:
        """As the loss wants them: a vector where there is one output."""
        return outputs if self.loss.outputs > 1 else outputs.squeeze(1)


class _NetworkPoint(Point):
    def __init__(self, x: Tensor, objective: NetworkObjective) -> None:
        super().__init__(x, objective.ledger)
        self._objective = objective
        self._layers = objective.layers(x)
        self._activations: list[Tensor] = []
        self._slopes: list[Tensor] = []  # φ'(Z_l), l = 1 ... L-1
        self._errors: list[Tensor] = []  # δ_l, l = 1 ... L
        self._bends: list[Tensor] = []  # (δ_l W_l) φ''(Z_{l-1}), l = 2 ... L; none for ReLU

    def _forward(self) -> list[Tensor]:
        if not self._activations:
            self._activations = self._objective.activations(self._layers, self._objective.inputs)
        return self._activations

    def _evaluate_value(self) -> float:
        o = self._objective
        return float(o.mean_loss(self._forward()[-1]) + o.reg * torch.dot(self.x, self.x))

    def _evaluate_gradient(self) -> tuple[float, Tensor]:
        value = self._value if self._value is not None else self._evaluate_value()
        gradient = self._backward()
        return value, gradient.add_(self.x, alpha=2.0 * self._objective.reg)

    def _backward(self) -> Tensor:
        """Back-propagation; keeps what a Hessian-vector product needs again."""
        o, hidden = self._objective, self._forward()
        gradient = torch.empty_like(self.x)
        error = o.loss.residual(o.shaped(hidden[-1])).reshape(hidden[-1].shape).div_(len(hidden[0]))
        # φ' from H itself: 1 where H > 0, or σ(Z) = 1 - exp(-H).
        self._slopes = [(H > 0).to(H.dtype) if o.relu else torch.expm1(-H).neg_() for H in hidden[1:-1]]
        self._errors, self._bends = [error], []
        for number, (weight, bias) in reversed(list(enumerate(o.layers(gradient)))):
            torch.mm(error.T, hidden[number], out=weight)
            torch.sum(error, dim=0, out=bias)
            if number:
                error = error @ self._layers[number].weight
                slope = self._slopes[number - 1]
                if not o.relu:
                    self._bends.insert(0, error * (slope * (1.0 - slope)))
                error = error.mul_(slope)
                self._errors.insert(0, error)
        return gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        if not self._errors:
            self._backward()
        o, hidden = self._objective, self._forward()
        along = o.layers(v)
        moved: list[Tensor] = []  # Ż_l, l = 1 ... L
        rates: list[Tensor] = []  # Ḣ_l, l = 1 ... L-1
        for number, (weight, bias) in enumerate(along):
            rate = torch.addmm(bias, hidden[number], weight.T)
            if number:
                rate.addmm_(rates[-1], self._layers[number].weight.T)
            moved.append(rate)
            if number < len(along) - 1:
                rates.append(rate * self._slopes[number])
        product = torch.empty_like(v)
        outputs = o.shaped(hidden[-1])
        error = o.loss.apply(o.loss.curvature(outputs), o.shaped(moved[-1])).reshape(moved[-1].shape)
        error = error / len(hidden[0])
        for number, (weight, bias) in reversed(list(enumerate(o.layers(product)))):
            torch.mm(error.T, hidden[number], out=weight)
            torch.sum(error, dim=0, out=bias)
            if number:
                weight.addmm_(self._errors[number].T, rates[number - 1])
                error = error @ self._layers[number].weight
                error.addmm_(self._errors[number], along[number].weight).mul_(self._slopes[number - 1])
                if not o.relu:
                    error.addcmul_(self._bends[number - 1], moved[number - 1])
        return product.add_(v, alpha=2.0 * o.reg)
