"""The zoo: fixed halves, finite starts, a referee that sees cheating, and tables that add up."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch

from levelport.solvers import Monitor, Outcome, Solver, TeleportProblem
from levelport.solvers.result import TeleportStatus
from levelport_lab.bench.zoo import GROUPS, everyone
from levelport_lab.bench.zoo_page import best_known, by_first_yardstick, cell, goals, zoo_page
from levelport_lab.bench.zoo_run import BUDGETS, CONTESTANTS, Budget, Contestant, score, zoo_specs

SMALL = "squared hinge@5"


def test_at_least_80_problems_in_two_halves_that_nobody_chose() -> None:
    animals = [animal for animal in everyone().values() if not animal.species.practice]
    assert len(animals) >= 80
    for half in ("development", "reported"):
        groups = {animal.species.group for animal in animals if animal.species.half == half}
        assert groups == set(GROUPS)
    assert everyone()["relu pima@5"].species.half == "development"
    assert everyone()["recurrent@5"].species.half == "reported"


def test_problems_for_practice_are_developed_on_and_not_in_the_race() -> None:
    import levelport_lab.bench.zoo_practice  # noqa: F401  (enters its species)

    practice = [animal for animal in everyone().values() if animal.species.practice]
    assert len(practice) == 131
    assert {animal.species.half for animal in practice} == {"development"}
    for animal in practice:
        assert animal.objective().at(animal.start()).finite
    raced = {spec.animal for spec in zoo_specs()}  # type: ignore[attr-defined]
    assert raced.isdisjoint(animal.name for animal in practice)


def test_everybody_takes_part_where_dimensions_allow() -> None:
    specs = zoo_specs()
    assert {spec.contestant for spec in specs} == set(CONTESTANTS)  # type: ignore[attr-defined]
    assert len({spec.key for spec in specs}) == len(specs)


@pytest.mark.parametrize("name", ["auto", "auto, differences", "nonlinear CG", "L-BFGS", "SQP, text", "SLSQP"])
def test_contestants_gain_and_stay_within_their_budget(name: str) -> None:
    seen = score(CONTESTANTS[name], everyone()[SMALL], Budget(10))
    assert seen.gradient_norm >= seen.start_norm
    assert seen.excess <= 0.0
    assert seen.cost.hvps <= 10


def test_a_budget_of_gradient_equivalents_holds() -> None:
    for amount in (50, 150):
        assert score(CONTESTANTS["auto"], everyone()[SMALL], Budget(amount, "ge")).cost.gradient_equivalents <= amount


class _Cheat(Solver):
    """Walks uphill and claims success."""

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        up = problem.objective.at(problem.start.x + problem.start.gradient)
        return Outcome(up, TeleportStatus.CONVERGED)


def test_a_point_above_the_level_counts_as_the_start() -> None:
    seen = score(Contestant("cheat", _Cheat), everyone()[SMALL], Budget(10))
    assert seen.excess > 0.0
    assert seen.gradient_norm == seen.start_norm


def test_tables() -> None:
    assert cell([1.0, 0.95, 0.25]) == f"33/67/67 {math.exp(math.log(0.95 * 0.25) / 3):.2f}"
    norms = {f"{budget.name}: norm": 2.0 for budget in BUDGETS} | {f"{budget.name}: excess": 0.0 for budget in BUDGETS}
    table = pd.DataFrame([{"problem": SMALL, "group": "statistical", "half": "development", "solver": "auto", **norms}])
    assert best_known(table, {SMALL: 4.0, "other@0": 1.0}) == {"other@0": 1.0, SMALL: 4.0}
    assert best_known(table, {SMALL: 1.0}) == {SMALL: 2.0}
    assert "| auto | 0/0/100 0.50 |" in zoo_page(table, {SMALL: 4.0})
    beside = pd.concat([table, table.assign(solver="SQP, released", **dict.fromkeys(norms, 8.0))])
    assert best_known(beside, {SMALL: 4.0}) == {SMALL: 4.0}  # its slack may be worth any gradient
    assert "| SQP, released | 100/100/100 1.00 |" in zoo_page(beside, {SMALL: 4.0})
    assert "| SQP, released | development | statistical | 150 gradient equivalents | 1.000 | 0.500 |" in zoo_page(
        beside, {SMALL: 4.0}
    )
    alone = pd.concat([table, beside.tail(1).assign(problem="nobody else@0")])
    assert "| auto | 100/100/100 1.00 |" in zoo_page(alone, best_known(alone, {}))


def test_the_first_yardstick_counts_no_more_than_all_of_it() -> None:
    norms = {f"{budget.name}: norm": 3.0 for budget in BUDGETS}
    shared = {"group": "smooth", "half": "reported"}
    table = pd.DataFrame(
        [
            {"problem": "a", "solver": "auto", **shared, **norms},
            {"problem": "b", "solver": "auto", **shared, **norms},
            {"problem": "a", "solver": "L-BFGS", **shared, **norms, "50 hvps: norm": 1.0},
            {"problem": "unknown", "solver": "auto", **shared, **norms},
        ]
    )
    text = by_first_yardstick(table, {"a": 2.0, "b": 12.0})
    assert "| smooth (2) |" in text
    assert "| auto | 0.50 / 0.50 / 0.50 / 0.50 |" in text  # √(1 · ¼)
    assert "| L-BFGS | 1.00 / 0.50 / 1.00 / 1.00 |" in text


def test_goals_are_judged_by_both_yardsticks_on_the_reported_half_alone() -> None:
    norms = {f"{budget.name}: norm": 3.0 for budget in BUDGETS}
    table = pd.DataFrame(
        [
            {"problem": "a", "solver": "auto", "group": "smooth", "half": "reported", **norms},
            {"problem": "b", "solver": "auto", "group": "statistical", "half": "reported", **norms},
            {"problem": "c", "solver": "auto", "group": "statistical", "half": "reported", **norms},
            {"problem": "d", "solver": "auto", "group": "smooth", "half": "development", **norms},
            {"problem": "a", "solver": "L-BFGS", "group": "smooth", "half": "reported", **norms},
        ]
    )
    text = goals(table, {"a": 12.0, "b": 3.02, "c": 3.1, "d": 3.0}, {"a": 4.0, "b": 1.0, "c": 1.0})
    assert "| smooth networks | 50 HVPs | a geometric mean of 0.6 | 0.25, missed | 0.75 |" in text
    assert "| statistical models | 50 HVPs | a share of 0.9 within 1% | 0.50, missed | 1.00 |" in text


def test_starts_are_where_descent_leads() -> None:
    animal = everyone()["squared hinge@50"]
    objective = animal.objective()
    values = [objective.at(everyone()[f"squared hinge@{steps}"].start()).value for steps in (5, 50)]
    assert values[1] < values[0] < objective.at(torch.zeros(9, dtype=torch.float64)).value
