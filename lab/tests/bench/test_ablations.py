"""Every row of the table of ablations still changes something that exists."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from levelport_lab.bench.zoo import everyone
from levelport_lab.bench.zoo_run import Budget

SCRIPT = Path(__file__).parents[3] / "tools" / "solver_ablations.py"


@pytest.fixture(scope="module")
def ablations() -> ModuleType:
    if not SCRIPT.exists():
        pytest.skip("tools/ is not part of this copy")
    spec = importlib.util.spec_from_file_location("solver_ablations", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_variant_runs_and_the_page_has_a_row_for_it(ablations: ModuleType) -> None:
    some = [everyone()[name] for name in ("student regression@0", "tanh ionosphere@5", "relu pima@5", "deep linear@0")]
    rows = [ablations.run(name, animal, 1, (Budget(6),)) for name in ablations.VARIANTS for animal in some]
    rows += [{**row, "group": "float32"} for row in rows if row["group"] == "relu"]
    table = pd.DataFrame(rows)
    assert (table["6 hvps"] > 0.0).all()
    for budget in ablations.BUDGETS:
        table[budget.name] = table["6 hvps"]
    page = ablations.page(table)
    assert all(f"| {name}: " in page for name in ablations.VARIANTS)


def test_one_thing_is_changed_while_the_variant_runs_and_put_back_after(ablations: ModuleType) -> None:
    animal = everyone()["tanh ionosphere@5"]
    before = ablations.run(ablations.AS_IT_IS, animal, 0, (Budget(8),))
    changed = ablations.run("shorter scale", animal, 0, (Budget(8),))
    after = ablations.run(ablations.AS_IT_IS, animal, 0, (Budget(8),))
    assert {**before, "variant": ""} == {**after, "variant": ""}
    assert before["8 hvps"] != changed["8 hvps"]
