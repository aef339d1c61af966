"""Comparison of solvers: models on the right side, a referee that detects cheating, tables that add up."""

from __future__ import annotations

import hashlib
import math

import pandas as pd
import pytest
import torch

from levelport.solvers import Monitor, Outcome, Solver, TeleportProblem
from levelport.solvers.result import TeleportStatus
from levelport_lab.bench.logistic_cases import LOGISTIC_CASES, ManyStartsSpec
from levelport_lab.bench.solver_runs import BUDGETS, CONTESTANTS, Budget, Contestant, SolverSpec, score, specs
from levelport_lab.bench.tables import best_known, solver_tables
from levelport_lab.problems.quadratics import Quadratic
from levelport_lab.problems.teleport_cases import GROUPS, MODELS, all_cases
from levelport_lab.theory.sublevel import boundary

SMALL = all_cases()["least squares@0"]


def odd(name: str) -> bool:
    return bool(hashlib.sha256(name.encode()).digest()[0] & 1)


def test_reported_models_are_those_with_odd_hash() -> None:
    assert all(odd(name) for name in MODELS)
    assert {model.group for model in MODELS.values()} == set(GROUPS)
    assert len(all_cases()) == 47


def test_development_set_shares_no_model_with_reported() -> None:
    development = pytest.importorskip("development_models", reason="tools/ is not part of this copy").DEVELOPMENT
    assert not any(odd(name) for name in development if not name.startswith("extra "))
    pytest.importorskip("development_networks")
    assert len(all_cases(development)) == 53 + 131
    assert set(development).isdisjoint(MODELS)
    assert all(case.objective().at(case.start()).finite for case in all_cases(development).values() if case.steps <= 5)


def test_every_contestant_takes_part() -> None:
    tasks = [spec for spec in specs((1e-2,)) if isinstance(spec, SolverSpec)]
    assert {spec.contestant for spec in tasks} == set(CONTESTANTS)
    assert {spec.case for spec in tasks} >= set(all_cases())


@pytest.mark.parametrize("name", ["auto", "auto, differences", "nonlinear CG", "L-BFGS", "SQP, text", "SLSQP"])
def test_contestants_gain_within_budget(name: str) -> None:
    seen = score(CONTESTANTS[name], SMALL, Budget(10))
    assert seen.gradient_norm >= seen.start_norm
    assert seen.excess <= 0.0
    assert seen.cost.hvps <= 10


def test_budget_of_gradient_equivalents_holds() -> None:
    for amount in (50, 150):
        assert score(CONTESTANTS["auto"], SMALL, Budget(amount, "ge")).cost.gradient_equivalents <= amount


class _Cheat(Solver):
    """Walks uphill and claims success."""

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        up = problem.objective.at(problem.start.x + problem.start.gradient)
        return Outcome(up, TeleportStatus.CONVERGED)


def test_point_above_level_counts_as_start() -> None:
    seen = score(Contestant("cheat", _Cheat), SMALL, Budget(10))
    assert seen.excess > 0.0
    assert seen.gradient_norm == seen.start_norm


def test_starts_are_on_the_descent() -> None:
    objective, cases = SMALL.objective(), all_cases()
    values = [objective.at(cases[f"least squares@{steps}"].start()).value for steps in (0, 50)]
    assert values[1] < values[0] == objective.at(torch.zeros(100, dtype=torch.float64)).value


def test_ray_ends_on_the_level() -> None:
    quadratic = Quadratic.random(torch.tensor([2.0, 0.5], dtype=torch.float64), seed=0)
    direction = quadratic.eigenvectors[:, 0]
    # ½ · 2 t² = 9 at t = 3.
    end = quadratic.minimizer + boundary(quadratic, quadratic.minimizer, direction, 9.0) * direction
    torch.testing.assert_close(end, quadratic.minimizer + 3.0 * direction)
    assert quadratic.at(end).value <= 9.0


def test_many_starts_find_at_least_what_one_does() -> None:
    name = "logreg/blood, reg 0.01@5"
    (many,) = ManyStartsSpec(name).run()
    (one,) = SolverSpec("auto", name, (Budget(50),)).run()
    assert many.facts["norm"] >= one.facts["norm"] * (1.0 - 1e-9) > one.facts["start"]
    assert name in LOGISTIC_CASES


def rows(solver: str, problem: str = "a", norm: float = 2.0, group: str = "smooth") -> pd.DataFrame:
    names = [budget.name for budget in BUDGETS]
    return pd.DataFrame(
        [{"problem": problem, "group": group, "solver": solver, "budget": b, "norm": norm} for b in names]
    )


def test_best_known_ignores_solvers_with_slack() -> None:
    both = pd.concat([rows("auto"), rows("SQP, released", norm=8.0)])
    assert best_known(both) == {"a": 2.0}
    assert best_known(pd.concat([both, rows("many starts", norm=3.0)])) == {"a": 3.0}


def test_table_shows_share_of_best_known() -> None:
    table = pd.concat(
        [
            rows("auto"),
            rows("auto", "b", norm=1.0),
            rows("earlier", norm=8.0),
            rows("SQP, released", norm=9.0),
            rows("SQP, text", "c", norm=9.0),  # no solver that keeps the level has run there
        ]
    )
    means, _ = solver_tables(table)
    assert list(means.header) == ["solver", "smooth (2)"]
    assert means.rows == [["auto", f"{math.sqrt(0.25):.2f}"], ["SQP, released", "1.00 (1)"]]
