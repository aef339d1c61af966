from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from arithmetic import Squares

from levelport_lab.engine.spec import Run, RunSpec


@dataclass(frozen=True)
class Inner:
    steps: tuple[float, ...]


@dataclass(frozen=True)
class Outer(RunSpec):
    kind: ClassVar[str] = "outer"
    inner: Inner | None
    other: object = 1

    @property
    def label(self) -> str:
        return "outer"

    def run(self) -> list[Run]:
        return []


def test_canonical_json_is_sorted_and_names_kind_and_revision() -> None:
    spec = Outer(Inner((0.1, 1e-4)))
    assert spec.canonical_json() == '{"inner":{"steps":[0.1,0.0001]},"kind":"outer","other":1,"revision":1}'


def test_key_is_the_same_in_another_process() -> None:
    here = Squares(7, pause=0.25).key
    code = "from arithmetic import Squares; print(Squares(7, pause=0.25).key)"
    there = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == here
    assert len(here) == 20


def test_different_specs_have_different_keys() -> None:
    keys = {Squares(n, pause=p).key for n in range(50) for p in (0.0, 0.5)}
    assert len(keys) == 100


def test_revision_changes_the_key() -> None:
    class Revised(Squares):
        revision = 2

    assert Revised(3).key != Squares(3).key


@pytest.mark.parametrize("value", [{1, 2}, np.float64, [1], object()])
def test_values_without_a_stable_form_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="run specification holds"):
        _ = Outer(None, other=value).key


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        _ = Outer(None, other=math.nan).key
