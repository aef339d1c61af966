"""Every row of the table of ablations still changes something that exists."""

from __future__ import annotations

import pandas as pd
import pytest

from levelport_lab.bench.solver_runs import Budget
from levelport_lab.problems.teleport_cases import all_cases

ablations = pytest.importorskip("solver_ablations", reason="tools/ is not part of this copy")
CASES = all_cases(ablations.DEVELOPMENT)


def test_every_variant_runs_and_has_a_row() -> None:
    some = [CASES[name] for name in ("student regression@0", "tanh ionosphere@5", "relu pima@5", "deep linear@0")]
    rows = [ablations.run(name, case, 1, (Budget(6),)) for name in ablations.VARIANTS for case in some]
    table = pd.DataFrame(rows)
    assert (table["6 hvps"] > 0.0).all()
    for budget in ablations.BUDGETS:
        table[budget.name] = table["6 hvps"]
    written = ablations.summary(table).rows
    assert [row[0] for row in written] == [variant.means for variant in ablations.VARIANTS.values()]


def test_variant_is_undone_after_its_run() -> None:
    case = CASES["tanh ionosphere@5"]
    before = ablations.run(ablations.AS_IT_IS, case, 0, (Budget(8),))
    changed = ablations.run("shorter scale", case, 0, (Budget(8),))
    after = ablations.run(ablations.AS_IT_IS, case, 0, (Budget(8),))
    assert {**before, "variant": ""} == {**after, "variant": ""}
    assert before["8 hvps"] != changed["8 hvps"]
