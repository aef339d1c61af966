"""Orbits leave f unchanged, over random modules; what is not a symmetry is refused by name."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from levelport import ModuleObjective
from levelport.solvers.problem import TeleportProblem
from levelport.symmetries import Balance, Rescaling, SymmetrySolver, UnsupportedModuleError, chain_of

MODULES = {torch.float32: range(60), torch.float64: range(60, 120)}
"""Seeds of random modules. Every kind of layer, activation, pooling and bias occurs at least five times in each."""
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-13}


def random_module(seed: int, dtype: torch.dtype) -> tuple[nn.Module, Tensor, Tensor]:
    """A chain of two to five layers: linear or convolutional, with and without biases, several activations."""
    rng = random.Random(seed)
    torch.manual_seed(seed)

    def activation() -> nn.Module:
        return rng.choice([nn.ReLU(), nn.LeakyReLU(rng.uniform(0.01, 0.5)), nn.PReLU(), nn.Identity()])

    parts: list[nn.Module] = []
    samples = rng.randint(3, 40)
    if rng.random() < 0.4:
        channels, groups = 2 * rng.randint(1, 4), rng.choice([1, 2])
        parts += [nn.Conv2d(2, channels, 3, padding=1, bias=rng.random() < 0.7), activation()]
        parts += [
            nn.Conv2d(channels, 4, 3, groups=groups),
            activation(),
            rng.choice([nn.MaxPool2d(2), nn.AvgPool2d(2)]),
        ]
        parts += [nn.Dropout(0.0), nn.Flatten()]
        width, inputs = 4 * 2 * 2, torch.randn(samples, 2, 6, 6)
    else:
        width = rng.randint(2, 9)
        inputs = torch.randn(samples, width)
    for _ in range(rng.randint(1, 3)):
        wider = rng.randint(2, 12)
        parts += [nn.Linear(width, wider, bias=rng.random() < 0.8), activation()]
        width = wider
    parts.append(nn.Linear(width, 3))
    module = nn.Sequential(*parts).to(dtype)
    return module, inputs.to(dtype), torch.randn(samples, 3).to(dtype)


def problem_of(objective: ModuleObjective) -> TeleportProblem:
    start = objective.at(objective.initial_point(), curvature=True)
    _ = start.value, start.gradient
    return TeleportProblem(objective, start)


def proposed(solver: SymmetrySolver, objective: ModuleObjective) -> tuple[TeleportProblem, Tensor]:
    problem = problem_of(objective)
    return problem, solver.propose(problem)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_f_is_unchanged_over_random_modules(dtype: torch.dtype) -> None:
    worst: dict[str, float] = {}
    for seed in MODULES[dtype]:
        module, inputs, targets = random_module(seed, dtype)
        names = chain_of(module).names  # tracing takes longer than everything else here
        problem = problem_of(ModuleObjective(module, F.mse_loss, inputs, targets))
        solvers = {"rescaling 3": Rescaling(module, box=3.0, layers=names), "balance": Balance(module, layers=names)}
        for name, solver in solvers.items():
            change = abs(problem.objective.at(solver.propose(problem)).value / problem.level - 1.0)
            worst[name] = max(worst.get(name, 0.0), change)
    assert max(worst.values()) <= TOLERANCE[dtype], worst


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_powers_of_two_are_exact_to_the_bit(dtype: torch.dtype) -> None:
    for seed in range(60):
        module, inputs, targets = random_module(seed, dtype)
        objective = ModuleObjective(module, F.mse_loss, inputs, targets)
        problem, x = proposed(Rescaling(module, box=4.0), objective)
        assert torch.equal(objective.predict(x, inputs), objective.predict(problem.start.x, inputs))
        assert objective.at(x).value == problem.level


def test_gradient_after_a_move_is_predicted() -> None:
    for seed in range(20):
        module, inputs, targets = random_module(seed, torch.float64)
        objective = ModuleObjective(module, F.mse_loss, inputs, targets)
        before = objective.cost.gradient_equivalents
        problem, x = proposed(Rescaling(module, box=2.0), objective)
        assert objective.cost.gradient_equivalents - before == 1.0
        moved = objective.at(x).gradient
        keep = problem.start.x != 0.0
        stretch = (x / problem.start.x)[keep]
        assert torch.allclose(moved[keep] * stretch, problem.start.gradient[keep], rtol=1e-9, atol=1e-12)


def test_refusals_name_the_layer() -> None:
    bad: list[tuple[nn.Module, str]] = [
        (nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), r"layer '1' \(Tanh\)"),
        (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1)), r"'1' \(BatchNorm1d\)"),
        (nn.Sequential(nn.Linear(2, 3)), "need two"),
        (nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Linear(4, 1)), "without nn.Flatten"),
        (nn.Sequential(nn.Conv1d(1, 2, 3), nn.MaxPool2d(1), nn.Flatten(), nn.Linear(4, 1)), r"'1' \(MaxPool2d\)"),
        (_Residual(), r"layer 'first' \(Linear\).*2 times"),
        (_Functional(torch.sigmoid), "operation sigmoid"),
        (_Decoder(), "weight of layer 'encode' is used outside"),
        (
            nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Conv1d(16, 3, 3)),
            r"'2' \(Conv1d\) follows the Linear layer '0'",
        ),
    ]
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    frozen = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    frozen[0].bias.requires_grad_(False)
    twice = nn.Linear(3, 3)
    bad += [(tied, "0.weight and 2.weight"), (frozen, "bias of layer '0' is frozen")]
    bad.append((nn.Sequential(twice, nn.ReLU(), twice), "called 2 times"))
    shared = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    shared[2].bias = shared[0].bias
    bad.append((shared, "0.bias and 2.bias.*one place"))
    normed = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), weight_norm(nn.Linear(3, 3)))
    bad.append((normed, "weight of layer '2' is computed.*Remove the parametrization"))
    for module, words in bad:
        with pytest.raises(UnsupportedModuleError, match=words):
            Rescaling(module)
    with pytest.raises(UnsupportedModuleError, match="no layer 'fc9'"):
        Rescaling(nn.Linear(1, 1), layers=["fc9", "fc2"])


def test_functional_and_declared_layers_are_found() -> None:
    assert chain_of(_Functional(torch.relu)).names == ("first", "second")
    untraceable = _Functional(lambda x: x.relu() if float(x.sum()) > -1e9 else x)
    with pytest.raises(UnsupportedModuleError, match="cannot be traced"):
        chain_of(untraceable)
    assert chain_of(untraceable, ["first", "second"]).names == ("first", "second")


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        out: Tensor = self.second(torch.relu(y)) + y
        return out


class _Decoder(nn.Module):
    """Decodes by the weight of its first layer, which no list of parameters shows."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.middle = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.middle(torch.relu(self.encode(x))) @ self.encode.weight
        return out


class _Functional(nn.Module):
    def __init__(self, activation: object) -> None:
        super().__init__()
        self.first, self.second, self.activation = nn.Linear(3, 3), nn.Linear(3, 3), activation

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.activation(self.first(x)))  # type: ignore[operator]
        return out


def test_flatten_that_mixes_samples_is_refused() -> None:
    class Odd(nn.Module):
        def __init__(self, **dimensions: int) -> None:
            super().__init__()
            self.first, self.last, self.dimensions = nn.Conv1d(1, 4, 1), nn.Linear(8, 2), dimensions

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.relu(torch.flatten(self.first(x), **self.dimensions)))

    assert len(chain_of(Odd(start_dim=1)).names) == 2
    assert len(chain_of(Odd(start_dim=1, end_dim=-1)).names) == 2
    for dimensions in ({"end_dim": 1}, {"start_dim": 0}, {"start_dim": 1, "end_dim": 2}):
        with pytest.raises(UnsupportedModuleError, match="flatten"):
            chain_of(Odd(**dimensions))
