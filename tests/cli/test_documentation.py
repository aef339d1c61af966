"""The documentation: its examples run, its links lead somewhere, its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from levelport.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    if page.name != "optimizers.md"  # its blocks build on each other and are run together with the optimizers' tests
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_run(code: str) -> None:
    exec(compile(code, "example", "exec"), {"__name__": "example"})


def test_results_that_the_readme_states_in_comments() -> None:
    """What the first example says it prints is what comes out."""
    scope: dict[str, object] = {}
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    exec(compile(code, "example", "exec"), scope)
    result, newton = scope["result"], scope["newton"]
    assert f"{result.gradient_norm_start:.2f}" == "20.12"  # type: ignore[attr-defined]
    assert f"{result.gradient_norm:.2f}" == "57.63"  # type: ignore[attr-defined]
    assert result.violation == 0.0  # type: ignore[attr-defined]
    assert newton.tolist() == pytest.approx([1.0, 3.0], abs=1e-3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line in re.findall(r"^\$ (levelport .*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        words = shlex.split(line, comments=True)
        assert words[1] in commands, line
        known = {option for parameter in commands[words[1]].params for option in parameter.opts}
        assert not [word for word in words[2:] if word.startswith("--") and word not in known], line
