"""The study of the families: arms are charged alike, and the page counts what the runs say."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from levelport_lab.bench import families_page, families_tables
from levelport_lab.bench.families import FAMILIES, FamilyMoveSpec, Place
from levelport_lab.bench.families_loop import DefaultTraining, Optimizer, Training
from levelport_lab.bench.families_training import NONE, FamilyTrainingSpec, Schedule
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.engine.store import TaskResult

SMALL = Place("mlp-relu-8/blood")


def stored(spec: RunSpec, runs: list[Run]) -> TaskResult:
    import json

    return TaskResult(spec.key, json.loads(spec.canonical_json()), tuple(runs), 1.0, {})


def test_moves_are_charged_as_they_are_described() -> None:
    spec = FamilyMoveSpec(SMALL, 0, 0, tuple(name for name in FAMILIES if SMALL.welcomes(name)))
    runs = spec.run()
    facts = {name: run.facts for name, run in zip(spec.families, runs, strict=True)}
    assert facts["rescaling 2"]["gradient_equivalents"] == 1.0
    assert facts["rescaling 2"]["change"] == 0.0
    assert facts["balance"]["gradient_equivalents"] == facts["random basis 0.9"]["gradient_equivalents"] == 0.0
    assert facts["random direction"]["length"] == pytest.approx(facts["rescaling 2"]["length"])
    assert facts["rescaling 2, decrease"]["predicted_gain"] >= 1.0
    table = families_tables.moves([stored(spec, runs)])
    assert set(FAMILIES) - set(table["family"]) == {"linear group 2", "linear group 2, decrease"}
    assert facts["rescaling 2"]["step_at_random"] == pytest.approx(facts["random direction"]["step"])


def test_the_linear_group_has_its_place_in_linear_networks() -> None:
    linear = Place("mlp-linear-6-6/blood")
    spec = FamilyMoveSpec(linear, 0, 0, ("linear group 2", "linear group 2, decrease"))
    gradient, decrease = (run.facts for run in spec.run())
    assert gradient["gradient_equivalents"] == 1.0
    assert gradient["gain"] > 1.0
    assert decrease["predicted_gain"] > 1.0
    assert max(abs(gradient["change"]), abs(decrease["change"])) < 1e-13


def test_optimizers_are_those_of_torch() -> None:
    objective, x, _ = SMALL.build(0)
    makers = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    }
    for name, make in makers.items():
        training = Training(objective, x, name, 0.1, 100.0)  # type: ignore[arg-type]
        parameter = torch.nn.Parameter(x.clone())
        optimizer = make([parameter])
        for _ in range(5):
            training.step(objective, 1.0)
            parameter.grad = objective.at(parameter.detach().clone()).gradient
            optimizer.step()
        assert torch.allclose(parameter.detach(), training.x, atol=1e-12)


@pytest.mark.parametrize("batch", [None, 100])
def test_an_arm_tunes_on_some_seeds_and_is_judged_on_others(batch: int | None) -> None:
    arms = []
    for family in (NONE, "rescaling 2", "random direction"):
        spec = FamilyTrainingSpec(SMALL, "SGD", family, "ours", batch, 6.0, (0,), (100, 101), (-2, -1))
        runs = spec.run()
        fresh = [run for run in runs if run.facts["fresh"]]
        tried = {run.setting for run in runs}
        assert len(runs) == 2 + len(tried)
        assert not fresh[0].facts["interior"] or min(tried) < fresh[0].setting < max(tried)
        assert [run.facts["seed"] for run in fresh] == [100.0, 101.0]
        assert all(run.curves["gradient_equivalents"].max() <= 6.0 for run in fresh)
        arms.append(stored(spec, runs))
    table = families_tables.training(arms)
    assert (table[table["family"] == NONE]["ratio"] == 1.0).all()
    assert all(math.isfinite(ratio) for ratio in table["ratio"])
    text = families_page.page(families_tables.moves([]), table, table, "a test", families_tables.seconds(arms))
    assert "random direction (ours)" in text
    assert len(families_tables.paid(table)) == 2
    assert "Once more with finer step sizes" in text
    assert families_page.picture(table).axes


def test_schedules_are_what_the_page_says() -> None:
    def steps(family: str, schedule: Schedule, batch: int | None = None) -> list[int]:
        spec = FamilyTrainingSpec(SMALL, "SGD", family, schedule, batch, 1.0, (0,), (1,), (0,))
        moved: list[int] = []
        for step in range(120):
            if spec.due(step, step % 7 == 0, len(moved)):
                moved.append(step)
        return moved

    assert steps("rescaling 2", "ours") == [0, 20, 40, 60, 80]
    assert steps("rescaling 2", "ours", 64) == [0, 7, 14, 21, 28]
    assert steps("random basis 0.9", "authors") == [0]
    assert steps("activation group", "authors") == list(range(8))
    assert steps("level set, published", "authors") == [5, 55, 105]
    assert steps("balance, one sweep", "authors") == list(range(120))


@pytest.mark.parametrize("optimizer", ["SGD", "momentum"])
def test_the_default_arm_is_the_plain_optimizer_before_its_first_teleport(optimizer: Optimizer) -> None:
    objective, x, _ = SMALL.build(0)
    plain = Training(objective, x, optimizer, 0.3, 100.0)
    wrapped = DefaultTraining(objective, x, optimizer, 0.3, 100.0)
    while wrapped.cost < 30.0:
        plain.step(objective, 1.0)
        wrapped.step(objective, 1.0)
    assert wrapped.moves == 0
    assert wrapped.cost == plain.cost
    assert torch.allclose(plain.x, wrapped.x, atol=1e-12)


def test_the_default_arm_of_line_searches_is_minimize() -> None:
    objective, x, _ = SMALL.build(0)
    training = DefaultTraining(objective, x, "GD-Armijo", 1.0, 40.0)
    training.step(objective, 1.0)
    assert not training.goes_on
    assert training.moves > 0
    assert max(training.curves["gradient_equivalents"]) <= 40.0
    assert training.curves["value"][-1] == objective.at(training.kept).value


def test_line_searches_pay_for_a_forward_pass_once() -> None:
    objective, x, _ = SMALL.build(0)
    training = Training(objective, x, "GD-Armijo", 1.0, 1e9)
    for _ in range(5):
        training.step(objective, 1.0)
    assert training.cost == objective.cost.gradient_equivalents
    assert objective.cost.gradients == 5
    assert training.curves["value"] == sorted(training.curves["value"], reverse=True)


def test_draws_and_runs_without_a_move_count_for_nobody() -> None:
    """A lead within the last digits is a draw, and an arm that never moved is no comparison."""
    where = {"kind": "small", "batch": 0, "optimizer": "SGD", "schedule": "ours", "interior": 1.0}
    runs = [("a", 1.0 - 2e-4, 1), ("a", 1.0 - 5e-5, 1), ("a", 0.5, 0), ("b", 0.5, 0), ("random direction", 2.0, 1)]
    table = pd.DataFrame([{**where, "family": family, "ratio": ratio, "moves": n} for family, ratio, n in runs])
    table = table.assign(ratio_at_equal_seconds=1.0, test_accuracy=0.5, test_accuracy_alone=0.5)
    assert families_tables.lower(table) == (1, 3)
    arms = families_tables.paid(table).set_index("family")
    assert list(arms.index) == ["a", "random direction"]
    assert tuple(arms.loc["a", ["lower", "runs", "won"]]) == (1, 2, False)


def test_the_counts_of_the_page_are_those_of_its_table() -> None:
    results = Path(__file__).resolve().parents[3] / "docs" / "results"
    arms = families_tables.paid(pd.read_csv(results / "families-training.csv"))
    moved = arms[arms["family"] != "random direction"]
    said = f"{moved['lower'].sum()} of {moved['runs'].sum()} fresh training runs with moves"
    assert said in (results / "families.md").read_text(encoding="utf-8")
