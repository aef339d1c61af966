"""The study of the families: arms are charged alike, and the page counts what the runs say."""

from __future__ import annotations

import math

import pytest
import torch

from levelport.lab.bench import families_page
from levelport.lab.bench.families import FAMILIES, FamilyMoveSpec, Place
from levelport.lab.bench.families_training import NONE, FamilyTrainingSpec, Training
from levelport.lab.engine.spec import Run, RunSpec
from levelport.lab.engine.store import TaskResult

SMALL = Place("mlp-relu-8/blood")


def stored(spec: RunSpec, runs: list[Run]) -> TaskResult:
    import json

    return TaskResult(spec.key, json.loads(spec.canonical_json()), tuple(runs), 1.0, {})


def test_moves_are_charged_as_they_are_described() -> None:
    runs = FamilyMoveSpec(SMALL, 0, 0).run()
    facts = {name: run.facts for name, run in zip(FAMILIES, runs, strict=True)}
    assert facts["rescaling 2"]["gradient_equivalents"] == 1.0
    assert facts["rescaling 2"]["change"] == 0.0
    assert facts["balance"]["gradient_equivalents"] == facts["random basis 0.9"]["gradient_equivalents"] == 0.0
    assert facts["random direction"]["length"] == pytest.approx(facts["rescaling 2"]["length"])
    assert facts["rescaling 2, decrease"]["predicted_gain"] >= 1.0
    table = families_page.moves([stored(FamilyMoveSpec(SMALL, 0, 0), runs)])
    assert set(table["family"]) == set(FAMILIES)


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
        spec = FamilyTrainingSpec(SMALL, "SGD", family, "every", batch, 6.0, (0,), (100, 101), (0.1, 0.3, 1.0))
        runs = spec.run()
        fresh = [run for run in runs if run.facts["fresh"]]
        assert len(runs) == 5
        assert [run.facts["seed"] for run in fresh] == [100.0, 101.0]
        assert all(run.curves["gradient_equivalents"].max() <= 6.0 for run in fresh)
        arms.append(stored(spec, runs))
    table = families_page.training(arms)
    assert (table[table["family"] == NONE]["ratio"] == 1.0).all()
    assert all(math.isfinite(ratio) for ratio in table["ratio"])
    text = families_page.page(families_page.moves([]), table, "a test")
    assert "random direction" in text
    assert families_page.picture(table).axes


def test_line_searches_pay_for_a_forward_pass_once() -> None:
    objective, x, _ = SMALL.build(0)
    training = Training(objective, x, "GD-Armijo", 1.0, 1e9)
    for _ in range(5):
        training.step(objective, 1.0)
    assert training.cost == objective.cost.gradient_equivalents
    assert objective.cost.gradients == 5
    assert training.curves["value"] == sorted(training.curves["value"], reverse=True)
