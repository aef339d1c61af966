"""Fully connected networks in closed form: loss, gradient and Hessian-vector product without autograd.

With activations H₀ = X and H_l = φ(Z_l), Z_l = H_{l-1} W_lᵀ + b_l, outputs Z_L and a loss ℓ per sample,
back-propagation is

    δ_L = ∂ℓ/∂Z_L / n,    δ_{l-1} = (δ_l W_l) φ'(Z_{l-1}),    ∂f/∂W_l = δ_lᵀ H_{l-1},    ∂f/∂b_l = Σᵢ δ_l,

and its derivative along (V_l, c_l), written with a dot (Pearlmutter, 1994), is

    Ż_l = Ḣ_{l-1} W_lᵀ + H_{l-1} V_lᵀ + c_l,      Ḣ_l = φ'(Z_l) Ż_l,
    δ̇_{l-1} = (δ̇_l W_l + δ_l V_l) φ'(Z_{l-1}) + (δ_l W_l) φ''(Z_{l-1}) Ż_{l-1},
    ∇²f · V at W_l = δ̇_lᵀ H_{l-1} + δ_lᵀ Ḣ_{l-1},    at b_l = Σᵢ δ̇_l.

So a gradient takes three matrix products per layer and a Hessian-vector product six more. Networks of a hundred units
are too small for autograd: its bookkeeping and the graph of the gradient take as long as the products. They are even
too small for Python, so everything here is done for several networks at once, members of a grid that differ in their
weights alone: the first axis of every array counts the members, and each product is a batched one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport_lab.paper.member_points import MemberPoints, picked
from levelport_lab.problems.benchmark_problem import Problem, Samples
from levelport_lab.problems.datasets import Targets
from levelport_lab.problems.models import MLP


class Layer(NamedTuple):
    """Weights (members × out × in) and biases (members × 1 × out) of one layer, or directions of the same shape."""

    weight: Tensor
    bias: Tensor


class Network:
    """The model and the loss; parameters are laid out as those of ``nn.Sequential``, a row per member."""

    def __init__(self, problem: Problem) -> None:
        if not isinstance(problem.model, MLP):
            raise TypeError(f"{problem.name} is not a network that classifies.")
        self.sizes = problem.model.sizes(problem.info.features, problem.info.outputs)
        self.relu = problem.model.activation == "relu"
        self.several = problem.info.targets is Targets.CLASSES
        pairs = list(pairwise(self.sizes))
        self._shapes = [(-1, fan_out, fan_in) for fan_in, fan_out in pairs]
        self._lengths = [length for fan_in, fan_out in pairs for length in (fan_in * fan_out, fan_out)]

    def layers(self, W: Tensor) -> list[Layer]:
        """Views of the rows of ``W``."""
        parts = W.split(self._lengths, dim=1)
        weights_and_biases = zip(self._shapes, parts[::2], parts[1::2], strict=True)
        return [Layer(weight.view(shape), bias.unsqueeze(1)) for shape, weight, bias in weights_and_biases]

    def activations(self, layers: list[Layer], inputs: Tensor) -> list[Tensor]:
        """H₀, ..., H_{L-1} and the outputs Z_L."""
        found = [inputs.expand(len(layers[0].weight), *inputs.shape)]
        for number, (weight, bias) in enumerate(layers):
            if number:
                found[-1] = torch.relu_(found[-1]) if self.relu else F.softplus(found[-1])
            found.append(torch.baddbmm(bias, found[-1], weight.transpose(1, 2)))
        return found

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean ℓ per member."""
        if self.several:
            repeated = targets.expand(len(outputs), -1)
            return F.cross_entropy(outputs.transpose(1, 2), repeated, reduction="none").mean(dim=1)
        return F.logsigmoid(outputs.squeeze(2) * targets).mean(dim=1).neg_()


class NetworkPoints(MemberPoints):
    """f, ∇f and products of ∇²f of several networks."""

    def __init__(self, W: Tensor, network: Network, samples: Samples, regs: Tensor) -> None:
        self._pass = Pass(W, network, samples, regs)
        super().__init__(W, regs, self._pass.values, self._pass.gradients())

    def hvps(self, V: Tensor) -> Tensor:
        return self._pass.hvps(V)

    @classmethod
    def assembled(cls, places: Sequence[tuple[Self, int]]) -> Self:
        some = cls._common(places)
        some._pass = Pass.assembled(some.W, some.regs, [(points._pass, row) for points, row in places])
        return some


class Pass:
    """One way forth through the networks, and back when a gradient is asked for; kept for the products.

    ``regs`` are the members' penalties.
    """

    def __init__(self, W: Tensor, network: Network, samples: Samples, regs: Tensor) -> None:
        self.W, self.network, self.samples, self.regs = W, network, samples, regs
        self._layers = network.layers(W)
        self._hidden = network.activations(self._layers, samples.inputs)
        self._slopes: list[Tensor] = []  # φ'(Z_l), l = 1 ... L-1
        self._errors: list[Tensor] = []  # δ_l, l = 1 ... L

    @property
    def values(self) -> Tensor:
        """f, per member."""
        losses = self.network.losses(self._hidden[-1], self.samples.targets)
        return losses.addcmul_(self.W.square().sum(dim=1), self.regs)

    def gradients(self) -> Tensor:
        """∇f, as rows; keeps what a product needs again."""
        network, hidden = self.network, self._hidden
        gradients = torch.empty_like(self.W)
        error = self._residual().div_(len(self.samples))
        # φ' from H itself: 1 where H > 0, or σ(Z) = 1 - exp(-H).
        self._slopes = [(H > 0).to(H.dtype) if network.relu else torch.expm1(-H).neg_() for H in hidden[1:-1]]
        self._errors = [error]
        for number, (weight, bias) in reversed(list(enumerate(network.layers(gradients)))):
            weight.copy_(torch.bmm(error.transpose(1, 2), hidden[number]))
            torch.sum(error, dim=1, keepdim=True, out=bias)
            if number:
                error = torch.bmm(error, self._layers[number].weight).mul_(self._slopes[number - 1])
                self._errors.insert(0, error)
        return gradients.addcmul_(self.W, self.regs[:, None], value=2.0)

    def _residual(self) -> Tensor:
        """∂ℓ/∂Z_L per sample."""
        outputs, targets = self._hidden[-1], self.samples.targets
        if self.network.several:
            return torch.softmax(outputs, dim=2).sub_(F.one_hot(targets, outputs.shape[2]))
        signs = targets[:, None]
        return torch.sigmoid_(outputs * -signs).mul_(-signs)

    def _bent(self, moved: Tensor) -> Tensor:
        """∂²ℓ/∂Z_L² applied to Ż_L."""
        if self.network.several:
            shares = torch.softmax(self._hidden[-1], dim=2)
            return shares * (moved - (shares * moved).sum(dim=2, keepdim=True))
        shares = torch.sigmoid(self._hidden[-1])
        return torch.addcmul(shares, shares, shares, value=-1.0).mul_(moved)

    def hvps(self, V: Tensor) -> Tensor:
        """∇²f v, as rows."""
        network, hidden = self.network, self._hidden
        along = network.layers(V)
        moved: list[Tensor] = []  # Ż_l, l = 1 ... L
        rates: list[Tensor] = []  # Ḣ_l, l = 1 ... L-1
        for number, (weight, bias) in enumerate(along):
            rate = torch.baddbmm(bias, hidden[number], weight.transpose(1, 2))
            if number:
                rate.baddbmm_(rates[-1], self._layers[number].weight.transpose(1, 2))
            moved.append(rate)
            if number < len(along) - 1:
                rates.append(rate * self._slopes[number])
        products = torch.empty_like(V)
        error = self._bent(moved[-1]).div_(len(self.samples))
        for number, (weight, bias) in reversed(list(enumerate(network.layers(products)))):
            product = torch.bmm(error.transpose(1, 2), hidden[number])
            torch.sum(error, dim=1, keepdim=True, out=bias)
            if number:
                product.baddbmm_(self._errors[number].transpose(1, 2), rates[number - 1])
                error = torch.bmm(error, self._layers[number].weight)
                error.baddbmm_(self._errors[number], along[number].weight)
                error.mul_(self._slopes[number - 1])
                if not network.relu:  # φ'' = φ' (1 - φ'), so (δ_l W_l) φ'' Ż = δ_{l-1} (Ż - Ḣ)
                    error.addcmul_(self._errors[number - 1], moved[number - 1].sub_(rates[number - 1]))
            weight.copy_(product)
        return products.addcmul_(V, self.regs[:, None], value=2.0)

    @classmethod
    def assembled(cls, W: Tensor, regs: Tensor, places: Sequence[tuple[Pass, int]]) -> Pass:
        """One member after the other, each from its row in some pass; ``W`` and ``regs`` are theirs."""
        first, some = places[0][0], object.__new__(cls)

        def together(kept: Callable[[Pass], list[Tensor]]) -> list[Tensor]:
            several = [[(kept(one)[number], row) for one, row in places] for number in range(len(kept(first)))]
            return [picked(rows) for rows in several]

        some.W, some.network, some.samples, some.regs = W, first.network, first.samples, regs
        some._layers = first.network.layers(W)
        inputs = first.samples.inputs
        some._hidden = [inputs.expand(len(W), *inputs.shape), *together(lambda one: one._hidden[1:])]
        some._slopes = together(lambda one: one._slopes)
        some._errors = together(lambda one: one._errors)
        return some
