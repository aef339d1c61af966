"""Diagnoses agree with what is known of problems."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from theory_problems import cases

from levelport import FunctionObjective, LinearObjective, ModuleObjective, TeleportStatus, teleport
from levelport.solvers import Auto
from levelport_lab.cli.theory import _better_bound
from levelport_lab.problems.functions import flat_huber, second_order_huber
from levelport_lab.problems.quadratics import Quadratic
from levelport_lab.theory.bounds import audit
from levelport_lab.theory.certificates import newton_alignment
from levelport_lab.theory.coercivity import probe_coercivity
from levelport_lab.theory.counterexamples import relu_objective
from levelport_lab.theory.diagnosis import Race, diagnose
from levelport_lab.theory.trajectory import largest_armijo_step


def double(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def half_square(w: torch.Tensor) -> torch.Tensor:
    return 0.5 * w.square().sum()


def test_ill_conditioned_quadratic_is_a_case_for_teleporting() -> None:
    objective = Quadratic.random(torch.logspace(-4, 0, 20, dtype=torch.float64), 0)
    found = diagnose(objective, torch.zeros(20, dtype=torch.float64), max_hvps=400)
    assert found.expected_to_pay
    assert found.after is not None
    assert found.after.squared == pytest.approx(1.0, abs=1e-6)
    assert found.before is not None
    assert found.before.squared < 0.9
    assert not found.coercivity.refuted
    assert not any("sampled" in sentence for sentence in found.sentences())
    assert found.certificate is not None
    assert found.certificate.proved < 1e-6
    assert found.local_sqp is not None
    assert found.local_sqp.critical


def test_sphere_gains_nothing() -> None:
    found = diagnose(FunctionObjective(half_square, like=double(1.0, 2.0)), double(1.0, 2.0))
    assert found.teleport.gain == pytest.approx(1.0)
    assert not found.expected_to_pay
    assert found.before is not None
    assert found.before.angle == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_relu_network_has_no_solution_and_the_solver_says_so(seed: int) -> None:
    objective = relu_objective(seed=seed)
    x = objective.initial_point()
    result = teleport(objective, x, Auto(max_hvps=300))
    assert result.status is TeleportStatus.TRUST_RADIUS
    assert result.gain > 50.0
    # A longer leash lets the gradient grow further: there is no maximum to converge to.
    assert teleport(objective, x, Auto(max_hvps=1000, radius=1e4)).gradient_norm > 3 * result.gradient_norm


def test_a_kink_that_holds_a_relu_network_is_no_solution() -> None:
    """A kink is met before the radius; roundings decide whether the ascent stalls there or spends its budget."""
    objective = relu_objective(seed=3)
    result = teleport(objective, objective.initial_point(), Auto(max_hvps=100))
    assert result.status in (TeleportStatus.TRUST_RADIUS, TeleportStatus.STALLED, TeleportStatus.BUDGET_SPENT)
    assert result.gain > 3.0


def test_diagnosis_of_a_relu_network_names_the_rescaling() -> None:
    found = diagnose(relu_objective(), relu_objective().initial_point())
    assert found.coercivity.refuted
    assert found.coercivity.rescaling == "tensor 0 against 1"
    assert not found.expected_to_pay
    text = " ".join(found.sentences())
    assert "not coercive" in text
    assert "trust radius" in text
    assert "not convex" in text


def test_biases_are_scaled_with_their_layer() -> None:
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    inputs, targets = torch.randn(9, 3).double(), torch.randn(9, 1).double()
    objective = ModuleObjective(net, nn.MSELoss(), inputs, targets)
    assert probe_coercivity(objective, objective.initial_point()).rescaling == "tensors 0 to 1 up and tensor 2 down"
    penalised = ModuleObjective(net, nn.MSELoss(), inputs, targets, penalty=0.1)
    assert not probe_coercivity(penalised, penalised.initial_point()).refuted


def test_flat_directions_and_separable_data_are_found() -> None:
    flat = probe_coercivity(FunctionObjective(flat_huber, like=double(0.9, 0.3)), double(0.9, 0.3))
    assert "+the flattest direction" in flat.staying
    X = double(1.0, 2.0, 3.0).reshape(3, 1)
    separable = LinearObjective.logistic(X, double(1.0, 1.0, 1.0))
    assert probe_coercivity(separable, double(0.5)).refuted
    assert not probe_coercivity(LinearObjective.logistic(X, double(1.0, 1.0, 1.0), penalty=0.1), double(0.5)).refuted


def test_newton_alignment_against_numpy() -> None:
    for case in cases():
        point = case.objective.at(case.start, curvature=True)
        d = case.objective.dimension
        H = torch.stack([point.hvp(column) for column in torch.eye(d, dtype=torch.float64)]).numpy()
        g = point.gradient.numpy()
        newton = np.linalg.solve(H, g)
        found = newton_alignment(point)
        assert found is not None
        cosine = g @ newton / np.linalg.norm(g) / np.linalg.norm(newton)
        assert found.angle == pytest.approx(math.degrees(math.acos(min(1.0, cosine))), abs=1e-2)
        assert found.squared == pytest.approx((g @ g) ** 2 / ((g @ H @ g) * (g @ newton)), rel=1e-6)


def test_negative_curvature_leaves_no_newton_direction() -> None:
    saddle = FunctionObjective(lambda w: w[0] ** 2 - w[1] ** 2, like=double(1.0, 1.0))
    assert newton_alignment(saddle.at(double(1.0, 1.0), curvature=True)) is None


def test_verdict_is_the_measured_one() -> None:
    """An early teleport on an easy problem costs more than it wins: both runs made again, without the race."""
    case = next(case for case in cases() if case.name == "logistic, strong penalty")
    found = diagnose(case.objective, case.start)

    def after_steps(x: torch.Tensor, steps: int) -> float:
        for _ in range(steps):
            point = case.objective.at(x)
            x = point.x - largest_armijo_step(case.objective, point) * point.gradient
        return case.objective.at(x).value

    teleported, descended = after_steps(found.teleport.x, 1), after_steps(case.start, found.race.descent_steps)
    assert found.race.descent_steps > 1
    assert found.race.teleport_decrease == pytest.approx(found.value - teleported, rel=1e-9)
    assert found.race.descent_decrease == pytest.approx(found.value - descended, rel=1e-9)
    assert descended < teleported - 1e-9
    assert not found.race.teleport_wins
    assert not found.expected_to_pay
    assert found.gap is not None


def test_points_inside_the_sub_level_set_are_named() -> None:
    """1 - e^{-‖w‖²/2} is steepest at ‖w‖ = 1, inside of the level ‖w‖ = 2."""
    found = diagnose(lambda w: 1.0 - torch.exp(-0.5 * w.square().sum()), double(1.6, 1.2))
    assert found.teleport.status is TeleportStatus.CONVERGED
    assert float(torch.linalg.vector_norm(found.teleport.x)) == pytest.approx(1.0, abs=1e-4)
    assert found.inside
    assert found.local_sqp is None
    assert "lies inside the sub-level set" in str(found)
    assert "along its level set" not in str(found)
    case = next(case for case in cases() if case.name == "logistic, strong penalty")
    assert not diagnose(case.objective, case.start).inside


def test_ill_conditioned_newton_directions() -> None:
    """Conjugate gradients end at a small residual long before flat directions are resolved."""
    objective = Quadratic.random(torch.logspace(-10, 0, 20, dtype=torch.float64), 0)
    spectrum = torch.logspace(-10, 0, 20, dtype=torch.float64)
    point = objective.at(torch.zeros(20, dtype=torch.float64), curvature=True)
    parts = -spectrum * (objective.eigenvectors.T @ objective.minimizer)  # of the gradient at 0, in closed form
    newton = parts / spectrum
    cosine = float(parts @ newton) / float(torch.linalg.vector_norm(parts) * torch.linalg.vector_norm(newton))
    found = newton_alignment(point)
    assert found is not None
    assert found.solved
    assert found.angle == pytest.approx(math.degrees(math.acos(cosine)), abs=1e-3)
    rough = newton_alignment(point, max_products=4)
    assert rough is not None
    assert not rough.solved
    hopeless = Quadratic.random(torch.logspace(-15, 0, 20, dtype=torch.float64), 0)
    even = torch.logspace(-15, 0, 20, dtype=torch.float64).rsqrt()
    x = hopeless.minimizer + 1e-3 * hopeless.eigenvectors @ even
    unsolved = newton_alignment(hopeless.at(x, curvature=True))
    assert unsolved is None or not unsolved.solved
    assert "roughly" in str(replace(diagnose(objective, point.x, max_hvps=5), before=rough))


def test_newton_direction_of_a_singular_hessian() -> None:
    flat = FunctionObjective(lambda w: 2.0 * w[0] ** 2 + 0.5 * w[1] ** 2, like=double(1.0, 1.0, 5.0))
    found = newton_alignment(flat.at(double(1.0, 1.0, 5.0), curvature=True))
    assert found is not None
    assert found.solved
    assert found.squared == pytest.approx(17.0**2 / (65.0 * 5.0))
    assert newton_alignment(flat.at(double(0.0, 0.0, 5.0), curvature=True)) is None  # no gradient
    kink = FunctionObjective(lambda w: w[0] ** 1.5 + w[1], like=double(0.0, 1.0))
    assert newton_alignment(kink.at(double(0.0, 1.0), curvature=True)) is None  # no finite Hessian
    tilted = FunctionObjective(lambda w: w[0] ** 2 + w[1], like=double(1.0, 1.0))
    assert newton_alignment(tilted.at(double(1.0, 1.0), curvature=True)) is None


def test_refuted_stability_is_told_alike_by_both_commands() -> None:
    start = double(3.0, 2.0)
    found = diagnose(second_order_huber, start)
    assert found.constants is not None
    assert found.constants.stability is None
    assert "it is not stable on the sub-level set" in str(found)
    assert "could be proved" not in str(found)
    audited = audit(FunctionObjective(second_order_huber, like=start), start, 2, minimum=found.constants.minimum)
    assert "is not Hessian stable" in _better_bound(audited)


def test_every_argument_of_diagnose_has_an_entry_of_its_own() -> None:
    for name in inspect.signature(diagnose).parameters:
        assert re.search(rf"^    {name}: \S", inspect.getdoc(diagnose) or "", re.MULTILINE), name


def test_a_stationary_start_is_refused() -> None:
    with pytest.raises(ValueError, match="gradient that does not vanish"):
        diagnose(FunctionObjective(half_square, like=double(0.0, 0.0)), double(0.0, 0.0))


def test_a_strongly_convex_problem_is_not_called_unstable() -> None:
    """Margins that move by hundreds overflow e^D; the words must not make that a property of f."""
    generator = torch.Generator().manual_seed(3)
    X = 100 * torch.randn(40, 3, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(40, generator=generator) < 0.5, 1.0, -1.0).double()
    found = diagnose(LinearObjective.logistic(X, y, penalty=1e-2), double(1.0, -2.0, 1.5))
    text = str(found)
    assert "f is strongly convex" in text
    assert "not stable" not in text
    assert "sampled" not in text
    assert found.certificate is not None
    assert found.certificate.measured <= found.certificate.proved * (1 + 1e-9)


def test_own_functions_and_modules_are_taken_as_they_are() -> None:
    def smooth(w: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.logsumexp(torch.stack([w["a"].sum(), -w["b"], -2 * w["b"]]), 0) + 0.1 * (
            w["a"].square().sum() + w["b"] ** 2
        )

    found = diagnose(smooth, {"a": double(3.0, -1.0), "b": torch.tensor(0.5, dtype=torch.float64)})
    assert found.convex
    assert found.certificate is not None
    assert found.certificate.measured <= found.certificate.pair * (1 + 1e-6)
    assert math.isnan(found.certificate.proved)  # nothing is proved of a function of which nothing is known
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Softplus(), torch.nn.Linear(5, 1)).double()
    data = torch.randn(20, 3).double(), torch.randn(20, 1).double()
    network = diagnose(ModuleObjective(net, torch.nn.MSELoss(), *data, penalty=1e-2), max_hvps=30)
    assert not network.convex
    assert "not convex" in str(network)
    assert network.certificate is None


def test_a_draw_is_not_a_victory() -> None:
    """Where both reach the minimum to rounding, neither has won."""
    assert not Race(1.0 + 1e-16, 1.0, 5, 1.0, rounding=1e-15).teleport_wins
    assert Race(1.1, 1.0, 5, 1.0, rounding=1e-15).teleport_wins


def test_diagnose_says_what_is_missing() -> None:
    net = torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match="a module needs its loss and data"):
        diagnose(net)
    with pytest.raises(ValueError, match="x is missing"):
        diagnose(half_square)


@pytest.mark.parametrize("shift", [-5.0, 0.0, 5.0])
def test_flat_rays_are_found_whatever_the_sign_of_f(shift: float) -> None:
    objective = FunctionObjective(lambda w: w[0] ** 2 + shift, double(1.0, 0.0))
    assert len(probe_coercivity(objective, double(1.0, 0.0)).staying) >= 2


def test_tensors_of_zeros_are_no_symmetry() -> None:
    """Zero times anything is zero: that f stays as it is says nothing."""
    start = {"a": double(0.0, 0.0), "b": double(0.0, 0.0)}
    objective = FunctionObjective(lambda p: (p["a"] - 1.0).square().sum() + (p["b"] - 1.0).square().sum(), start)
    found = probe_coercivity(objective, torch.zeros(4, dtype=torch.float64))
    assert found.rescaling is None
    assert not found.staying


def test_a_convex_function_of_low_rank_is_convex() -> None:
    A = torch.randn(20, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = diagnose(lambda w: 0.5 * (A @ w - 1.0).square().sum(), torch.zeros(300, dtype=torch.float64))
    assert found.convex


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_refused_by_a_sentence(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=r"too few digits.*\.double\(\)"):
        diagnose(half_square, double(1.0, 2.0).to(dtype))
