"""The API reference: examples in its pages and in docstrings print what they say, and every public name is there."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch

import levelport
import levelport_lab
from levelport.optim import Schedule, StepRule
from levelport.symmetries import SymmetrySolver

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
SOURCES = [Path(package.__file__).parent for package in (levelport, levelport_lab)]
PUBLIC = [
    "levelport", "levelport.objectives", "levelport.solvers", "levelport.symmetries", "levelport.optim",
    "levelport.goals",
    "levelport.integrations.scipy", "levelport.integrations.loggers", "levelport_lab", "levelport_lab.theory",
    "levelport_lab.problems",
]  # fmt: skip
OPTIONS = doctest.NORMALIZE_WHITESPACE


def blocks(page: Path) -> str:
    """All examples of a page, in one session."""
    return "\n".join(re.findall(r"```pycon\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))


def run(test: doctest.DocTest) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(test, out=said.append, clear_globs=False)
    assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_the_reference(page: Path) -> None:
    run(doctest.DocTestParser().get_doctest(blocks(page), {}, page.stem, str(page), 0))


def modules_with_examples() -> list[str]:
    found = []
    for root in SOURCES:
        paths = [path for path in sorted(root.rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]
        found += [".".join([root.name, *path.relative_to(root).with_suffix("").parts]) for path in paths]
    return found


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    tests = [test for test in doctest.DocTestFinder(exclude_empty=True).find(module, name) if test.examples]
    assert tests, f"{name} has >>> in no docstring"
    for test in tests:
        run(test)


def public_names() -> dict[str, object]:
    found = {}
    for home in PUBLIC:
        module = importlib.import_module(home)
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__ and n[0] != "_"]
        for name in getattr(module, "__all__", own):
            found[name] = getattr(module, name)
    return found


def constructed(thing: object) -> bool:
    """Return True for what a user calls or makes; results, statuses and base classes come from these."""
    made = (levelport.Objective, levelport.Solver, Schedule, StepRule, torch.optim.Optimizer)
    if inspect.isclass(thing):
        return issubclass(thing, made) and thing not in (*made, SymmetrySolver)
    return inspect.isfunction(thing)


def test_every_public_function_has_an_example_that_runs() -> None:
    code = "\n".join(e.source for page in PAGES for e in doctest.DocTestParser().get_examples(blocks(page)))
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}
    wanted = {name for name, thing in public_names().items() if constructed(thing)}
    assert len(wanted) >= 50
    assert sorted(wanted - used) == []


def test_every_public_name_is_in_the_reference() -> None:
    entries = {entry for page in PAGES for entry in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)}
    missing = []
    for name, thing in public_names().items():
        home = getattr(thing, "__module__", None)
        if not (inspect.isclass(thing) or inspect.isfunction(inspect.unwrap(thing))):  # type: ignore[arg-type]
            continue  # tables and type aliases
        if home not in entries and f"{home}.{name}" not in entries:
            missing.append(f"{home}.{name}")
    assert missing == []


def test_every_adapter_is_in_the_reference() -> None:
    entries = (ROOT / "docs" / "api" / "integrations.md").read_text(encoding="utf-8")
    adapters = {path.stem for path in (ROOT / "src" / "levelport" / "integrations").glob("*.py")}
    internal = {"__init__", "deferred", "likelihood"}
    assert sorted(name for name in adapters - internal if f"::: levelport.integrations.{name}\n" not in entries) == []
