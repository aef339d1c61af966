"""Models and problems: derivatives, starts, names, accuracy, batches."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

from levelport.checks import UnknownNameError
from levelport_lab.problems import MLP, Problem, problem
from levelport_lab.problems.catalogue import UCI
from levelport_lab.problems.models import cross_entropy, logistic_loss, parse_model
from levelport_lab.problems.quadratics import Quadratic
from levelport_lab.problems.registry import PROBLEM_NAMES, REGULARIZATION
from levelport_lab.problems.spectrum import smoothness

EVERY_MODEL = [
    "logreg/blood",
    "logreg/digits",
    "mlp-softplus-7/blood",
    "mlp-softplus-5-4-3/breast-cancer",
    "mlp-softplus-6/digits",
    "mlp-relu-9/blood",
    "mlp-relu-8-6/digits",
]


@pytest.mark.parametrize("reg", [0.0, 0.03])
@pytest.mark.parametrize("name", EVERY_MODEL)
def test_derivatives_agree_with_finite_differences(name: str, reg: float) -> None:
    one = problem(name, reg=reg, seed=1)
    # Few samples keep the distance to the kinks of ReLU above the step.
    objective = one.objective(torch.arange(40))
    x = one.initial_point()
    assert len(x) == one.dimension == objective.dimension
    generator = torch.Generator().manual_seed(0)
    point = objective.at(x, curvature=True)
    for _ in range(3):
        v = torch.randn(one.dimension, dtype=x.dtype, generator=generator)
        v /= v.norm()
        near, far = (objective.at(x + sign * 1e-5 * v) for sign in (-1.0, 1.0))
        assert (far.value - near.value) / 2e-5 == pytest.approx(float(point.gradient @ v), rel=1e-6, abs=1e-9)
        near, far = (objective.at(x + sign * 1e-6 * v) for sign in (-1.0, 1.0))
        torch.testing.assert_close(point.hvp(v), (far.gradient - near.gradient) / 2e-6, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_value_is_mean_loss_plus_reg_times_all_parameters(name: str) -> None:
    one = problem(name, reg=0.7)
    x = one.initial_point()
    output = one.predict(x, one.train.inputs).numpy()
    y = one.train.targets.numpy()
    if one.data == "digits":
        loss = np.mean([np.log(np.exp(row).sum()) - row[label] for row, label in zip(output, y, strict=True)])
    else:
        loss = np.mean(np.log1p(np.exp(-y * output[:, 0])))
    assert one.objective().at(x).value == pytest.approx(loss + 0.7 * float(x @ x), rel=1e-12)


def test_losses_at_extreme_outputs() -> None:
    z, y = torch.tensor([[800.0], [-800.0], [-30.0]], dtype=torch.float64), torch.tensor([-1.0, 1.0, 1.0]).double()
    expected = (800 + 800 + 30 + np.log1p(np.exp(-30))) / 3
    assert float(logistic_loss(z, y)) == pytest.approx(expected, rel=1e-15)
    logits = torch.tensor([[900.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    assert float(cross_entropy(logits, torch.tensor([1, 0]))) == pytest.approx((900 + np.log(2)) / 2)


@pytest.mark.parametrize("seed", [-1, 2**63, 10**20])
def test_seeds_that_generators_do_not_take_are_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must not be negative and must be below"):
        problem("logreg/blood", seed=seed)
    with pytest.raises(ValueError, match="seed must not be negative and must be below"):
        Quadratic.random(torch.ones(2), seed)


@pytest.mark.parametrize(("name", "kinds"), [("relu", nn.ReLU), ("softplus", nn.Softplus)])
@pytest.mark.parametrize("seed", [0, 5])
def test_start_is_that_of_torch_for_the_same_seed(name: str, kinds: type[nn.Module], seed: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        reference = nn.Sequential(
            nn.Linear(4, 6, dtype=torch.float64),
            kinds(),
            nn.Linear(6, 3, dtype=torch.float64),
            kinds(),
            nn.Linear(3, 1, dtype=torch.float64),
        )
    one = problem(f"mlp-{name}-6-3/blood", seed=seed)
    expected = nn.utils.parameters_to_vector(reference.parameters()).detach()
    assert torch.equal(one.initial_point(), expected)
    inputs = one.train.inputs[:5]
    torch.testing.assert_close(one.predict(expected, inputs), reference(inputs).detach(), rtol=1e-14, atol=1e-14)


def test_linear_start_is_that_of_torch() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        layer = nn.Linear(64, 10, dtype=torch.float64)
    one = problem("logreg/digits", seed=3)
    torch.testing.assert_close(one.predict(one.initial_point(), one.test.inputs), layer(one.test.inputs).detach())


def test_building_a_start_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    problem("mlp-relu-5/blood").initial_point()
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("set_here", UCI, indirect=True)
def test_smoothness_agrees_with_lanczos(set_here: str) -> None:
    one = problem(f"logreg/{set_here}", reg=1e-3)
    point = one.objective().at(torch.zeros(one.dimension, dtype=torch.float64))
    operator = LinearOperator(
        (one.dimension, one.dimension), matvec=lambda v: point.hvp(torch.from_numpy(v.ravel())).numpy(), dtype=float
    )
    start = np.random.default_rng(0).standard_normal(one.dimension)
    (largest,) = eigsh(operator, k=1, which="LA", v0=start, tol=1e-12, return_eigenvectors=False)
    assert smoothness(one.objective()) == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize("reg", REGULARIZATION)
def test_the_120_problems_build(reg: float, sets_here: list[str]) -> None:
    for data in sets_here:
        one = problem(f"logreg/{data}", reg=reg)
        assert one.objective().dimension == one.dimension == one.info.features + 1


def test_problem_is_a_value() -> None:
    one = problem("mlp-relu-100-100/pima", reg=1e-2)
    assert one == Problem("pima", MLP("relu", (100, 100)), 1e-2, 0)
    assert hash(one) == hash(pickle.loads(pickle.dumps(one)))
    assert (
        len({one, problem("mlp-relu-100-100/pima", reg=1e-2, seed=1), problem("mlp-relu-100-100/pima", reg=1e-2)}) == 2
    )
    assert one.name == "mlp-relu-100-100/pima"
    assert str(one) == "mlp-relu-100-100/pima reg=0.01 seed=0"
    with pytest.raises(AttributeError):
        one.reg = 2.0  # type: ignore[misc]


def test_every_listed_name_names_itself() -> None:
    assert [problem(name).name for name in PROBLEM_NAMES] == list(PROBLEM_NAMES)
    assert problem("mlp-softplus-500/mnist").dimension == 785 * 500 + 501 * 10


def test_batches_average_to_the_whole() -> None:
    for name in ("logreg/blood", "mlp-softplus-4/blood"):
        one = problem(name, reg=0.1)
        x = one.initial_point()
        n = len(one.train)
        halves = [np.arange(0, n, 2), torch.arange(1, n, 2)]
        total = sum(len(half) / n * one.objective(half).at(x).value for half in halves)
        assert total == pytest.approx(one.objective().at(x).value, rel=1e-12)


@pytest.mark.parametrize("batch", [torch.tensor([]), torch.tensor([0.5]), torch.zeros(2, 2, dtype=torch.int64)])
def test_impossible_batches_are_refused(batch: Tensor) -> None:
    with pytest.raises(ValueError, match="batch must be a list of row numbers"):
        problem("logreg/blood").objective(batch)


@pytest.mark.parametrize("name", ["logreg/ionosphere", "mlp-relu-6/ionosphere", "logreg/digits", "mlp-relu-6/digits"])
def test_accuracy_counts_right_answers(name: str) -> None:
    one = problem(name)
    x = one.initial_point()
    output = one.predict(x, one.test.inputs)
    answers = [int(row.argmax()) if one.data == "digits" else (1 if row[0] > 0 else -1) for row in output]
    right = [answer == int(label) for answer, label in zip(answers, one.test.targets, strict=True)]
    assert one.test_accuracy(x) == pytest.approx(np.mean(right))


def test_accuracy_of_the_optimum_is_that_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    one = problem("logreg/breast-cancer-wisconsin", reg=1e-2)
    # mean loss + reg‖w‖² is 1/(2 n reg) in scikit-learn's C; its intercept is free, ours is a penalized column.
    X = np.column_stack([one.train.inputs, np.ones(len(one.train))])
    model = LogisticRegression(C=1 / (2 * len(X) * 1e-2), fit_intercept=False, tol=1e-10, max_iter=10000)
    model.fit(X, one.train.targets)
    best = one.optimum().point()
    np.testing.assert_allclose(best, model.coef_[0], atol=1e-5)
    test = np.column_stack([one.test.inputs, np.ones(len(one.test))])
    assert one.test_accuracy(best) == model.score(test, one.test.targets)


def test_float32() -> None:
    one = problem("mlp-relu-6/blood", reg=1e-3, dtype=torch.float32)
    x = one.initial_point()
    assert x.dtype == one.objective().at(x).gradient.dtype == torch.float32
    assert (
        problem("logreg/blood", reg=1e-3, dtype=torch.float32).optimum() == problem("logreg/blood", reg=1e-3).optimum()
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("logreg/blod", "no data set 'blod'. Did you mean 'blood'"),
        ("logrg/blood", "no model 'logrg'. Did you mean 'logreg'"),
        ("mlp-tanh-5/blood", "'mlp-tanh-5' has no known activation; use relu or softplus"),
        ("mlp-relu/blood", "no model 'mlp-relu'. Did you mean 'mlp-relu-100-100'"),
        ("logreg-blood", "no problem 'logreg-blood'. Did you mean 'logreg/blood'"),
    ],
)
def test_misspelt_names_get_a_suggestion(name: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        problem(name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "logreg/blood", "reg": -1.0}, "reg must be a finite number"),
        ({"name": "logreg/blood", "reg": float("nan")}, "reg must be a finite number"),
        ({"name": "logreg/blood", "seed": -1}, "seed must not be negative"),
    ],
)
def test_impossible_problems_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        problem(**arguments)  # type: ignore[arg-type]


def test_model_names_round_trip() -> None:
    for name in ("logreg", "mlp-relu-3", "mlp-softplus-100-20-3"):
        assert parse_model(name).name == name
