"""The table of best-known values: it reads, it only improves, and the search that feeds it searches."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from levelport_lab.problems import best_known, problem
from levelport_lab.problems.best_known import BestKnown, improve, offer
from levelport_lab.problems.optima import OptimumError

NAME = "mlp-relu-3/titanic"


def test_every_committed_value_beats_its_start() -> None:
    table = best_known.read_table(best_known.table_in_package())
    assert len(table) >= 12
    for key, entry in table.items():
        match = re.fullmatch(r"(\S+) reg=(\S+) seed=(\d+)", key)
        assert match, key
        one = problem(match[1], reg=float(match[2]), seed=int(match[3]))
        assert best_known.table_key(one.name, one.reg, one.seed) == key
        assert not one.convex
        assert entry.how
        assert 0 < entry.value < 3


@pytest.mark.parametrize("reg", [1e-1, 1e-3])
def test_committed_value_beats_a_short_run(reg: float) -> None:
    one = problem("mlp-relu-100-100/breast-cancer", reg=reg)
    start = one.objective().at(one.initial_point()).value
    _, short = improve(one, starts=1, iterations=15)
    assert one.optimum().value <= short.value < start
    assert one.optimum().lower_bound == 0.0
    assert not one.optimum().certified


def test_unknown_value_says_what_to_run() -> None:
    with pytest.raises(OptimumError, match=r"levelport problems improve mlp-relu-3/titanic --reg 0\.01 --seed 4"):
        problem(NAME, reg=0.01, seed=4).optimum()


def test_a_table_only_improves(own_cache: Path) -> None:
    assert best_known.record(NAME, 0.01, 0, BestKnown(0.6, "first"))
    assert not best_known.record(NAME, 0.01, 0, BestKnown(0.7, "worse"))
    assert not best_known.record(NAME, 0.01, 0, BestKnown(float("nan"), "broken"))
    assert best_known.record(NAME, 0.01, 0, BestKnown(0.5, "better"))
    assert best_known.record(NAME, 0.01, 1, BestKnown(0.9, "another seed"))
    assert best_known.lookup(NAME, 0.01, 0) == BestKnown(0.5, "better")
    found = problem(NAME, reg=0.01).optimum()
    assert (found.value, found.how, found.attained) == (0.5, "better", None)
    assert [path.name for path in own_cache.iterdir()] == ["best_known.json"]


def test_this_machine_and_the_package_are_compared() -> None:
    key = next(iter(best_known.read_table(best_known.table_in_package())))
    name, reg, seed = re.fullmatch(r"(\S+) reg=(\S+) seed=(\d+)", key).groups()  # type: ignore[union-attr]
    committed = best_known.lookup(name, float(reg), int(seed))
    assert committed is not None
    assert not best_known.record(name, float(reg), int(seed), BestKnown(committed.value * 1.01, "worse"))
    assert best_known.record(name, float(reg), int(seed), BestKnown(committed.value * 0.99, "better"))
    assert best_known.lookup(name, float(reg), int(seed)) == BestKnown(committed.value * 0.99, "better")


def test_the_committed_table_is_compared_with_itself_alone(tmp_path: Path) -> None:
    """What this machine's table holds can go into it, and what it holds is not replaced by anything worse."""
    table = tmp_path / "table.json"
    assert best_known.record(NAME, 0.01, 0, BestKnown(0.5, "found here"))
    assert best_known.record(NAME, 0.01, 0, BestKnown(0.5, "found here"), table=table)
    assert best_known.record(NAME, 0.01, 1, BestKnown(0.1, "good"), table=table)
    assert not best_known.record(NAME, 0.01, 1, BestKnown(0.2, "worse"), table=table)
    assert [entry.value for entry in best_known.read_table(table).values()] == [0.5, 0.1]


@pytest.mark.parametrize("content", ["", "[", "[]", "null", "\x00", "[" * 100_000])
def test_damaged_table_counts_as_empty_and_is_not_written_to(content: str, own_cache: Path) -> None:
    own_cache.mkdir(exist_ok=True)
    table = best_known.table_in_cache()
    table.write_text(content)
    assert best_known.read_table(table) == {}
    assert best_known.lookup(NAME, 0.01, 0) is None
    with pytest.raises(ValueError, match="is damaged"):
        best_known.record(NAME, 0.01, 0, BestKnown(0.6, "first"))
    assert table.read_text() == content


def test_damaged_entries_are_passed_over_one_by_one(own_cache: Path) -> None:
    own_cache.mkdir(exist_ok=True)
    table = best_known.table_in_cache()
    entries = '"a": 1, "b": {"value": "x", "how": ""}, "c": {"value": NaN, "how": ""}, "d": {"value": 1.0}'
    table.write_text(f'{{{entries}, "{best_known.table_key(NAME, 0.1, 0)}": {{"value": 0.3, "how": "before"}}}}')
    assert best_known.record(NAME, 0.01, 0, BestKnown(0.6, "first"))
    assert best_known.lookup(NAME, 0.01, 0) == BestKnown(0.6, "first")
    assert best_known.lookup(NAME, 0.1, 0) == BestKnown(0.3, "before")
    assert len(json.loads(table.read_text())) == 6


def test_the_value_found_is_attained() -> None:
    one = problem(NAME, reg=1e-3)
    x, found = improve(one, starts=2, iterations=50)
    assert one.objective().at(x).value == found.value
    assert found.value < one.objective().at(one.initial_point()).value
    assert x.dtype == torch.float64
    assert "L-BFGS-B" in found.how


def test_an_offered_point_is_evaluated_in_float64() -> None:
    single = problem(NAME, reg=1e-3, dtype=torch.float32)
    x = single.initial_point()
    assert offer(single, x, "the start")
    exact = problem(NAME, reg=1e-3).objective().at(x.double()).value
    assert best_known.lookup(NAME, 1e-3, 0) == BestKnown(exact, "the start")
    assert not offer(single, 2 * x, "further out")


def test_penalties_that_differ_have_keys_that_differ() -> None:
    keys = {best_known.table_key(NAME, reg, 0) for reg in (1e-3, 1.0000001e-3, 1e-6, 0.1)}
    assert keys == {f"{NAME} reg={reg} seed=0" for reg in ("0.001", "0.0010000001", "1e-06", "0.1")}
