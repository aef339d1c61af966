"""The documentation: its examples run, its commands run, its links lead somewhere.

A block of Python that cannot run here has a comment ``<!-- not run: REASON -->`` in front of it; a command that would
take too long, or needs what is not here, stands in NOT_RUN with its reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from levelport.solvers import TeleportStatus
from levelport_lab.cli import app

ROOT = Path(__file__).resolve().parents[3]
PAGES = [page for page in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))] if "gallery" not in page.parts]
BLOCK = re.compile(r"(<!-- not run: (?P<why>[^>]+?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.S | re.M)
KINDS = {"python", "pycon", "console", "text"}
"""What a fenced block may be: run here, run by test_api_examples.py, commands, output or drawings."""

MINUTES, HOURS, NETWORK = "takes minutes", "takes hours", "downloads"
NOT_RUN = {
    "levelport play": "serves until Ctrl-C; test_play_browser.py drives it",
    "levelport bench": MINUTES,
    "levelport data fetch": NETWORK,
    "levelport problems improve": MINUTES,
    "levelport reproduce fig": MINUTES + " to hours; make smoke runs every figure on tiny data",
    "levelport reproduce all": HOURS + "; make smoke runs every figure on tiny data",
    "levelport reproduce export": "needs results; test_archive.py has some",
    "levelport reproduce import": "needs the archive of another machine; test_archive.py has one",
    "levelport report": "needs results; test_report.py has some",
    "levelport problems optimum": MINUTES + "; test_optima.py certifies some",
    "make": "is what continuous integration runs, or takes minutes",
    "pip install": "changes the environment",
    "torchrun": "test_examples.py runs it",
}
"""How a command begins, and why it is not run here."""


def blocks(page: Path) -> Iterator[re.Match[str]]:
    return BLOCK.finditer(page.read_text(encoding="utf-8"))


def commands(page: Path) -> list[str]:
    """Every command of a page, lines that go on joined: after a $ in console blocks, or indented by four."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^\$ (.+)$", "\n".join(m["text"] for m in BLOCK.finditer(text) if m["kind"] == "console"), re.M)
    found += re.findall(r"^    (levelport .+)$", BLOCK.sub("", text), re.MULTILINE)
    return [re.sub(r"\s+#.*", "", line) for line in found]


WITH_CODE = [page for page in PAGES if any(m["kind"] == "python" for m in blocks(page))]
COMMANDS = list(dict.fromkeys(line for page in PAGES for line in commands(page)))


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_code_runs(page: Path) -> None:
    """The blocks of a guide build on each other, from the top; those of the README stand alone, to be copied."""
    if page.name == "optimizers.md":
        pytest.skip("its blocks are run by the optimizers' own tests")
    scope: dict[str, object] = {"__name__": "example"}
    for block in blocks(page):
        if block["kind"] == "python" and not block["why"]:
            scope = {"__name__": "example"} if page.name == "README.md" else scope
            exec(compile(block["text"], f"{page.name}: {block['text'][:60]!r}", "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^\s*```", text, re.MULTILINE)) == 2 * len(list(blocks(page)))
    assert {block["kind"] for block in blocks(page)} <= KINDS


def reason(line: str) -> str:
    return next((why for start, why in NOT_RUN.items() if line.startswith(start)), "")


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "levelport":
        check_options(words)
    if why := reason(line):
        pytest.skip(why)
    assert words[0] == "levelport", "a command that no test runs, and NOT_RUN has no reason"
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, result.output


def check_options(words: list[str]) -> None:
    """Also of a command that is not run the name and the options exist."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words[1] in command.commands, words
        command, words = command.commands[words[1]], words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert not [word for word in words if word.startswith("--") and word.split("=")[0] not in known], words


def test_reasons_belong_to_commands() -> None:
    everything = [line for page in PAGES for line in commands(page)]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in everything)] == []


def test_the_questions_name_every_status() -> None:
    page = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    assert [status.name for status in TeleportStatus if f"`{status.name}`" not in page] == []


def test_results_that_the_readme_states_in_comments() -> None:
    """What the first example says it prints is what comes out."""
    scope: dict[str, object] = {}
    code = next(block["text"] for block in blocks(ROOT / "README.md") if block["kind"] == "python")
    exec(compile(code, "example", "exec"), scope)
    result, newton = scope["result"], scope["newton"]
    assert f"{result.gradient_norm_start:.2f}" == "20.12"  # type: ignore[attr-defined]
    assert f"{result.gradient_norm:.2f}" == "57.63"  # type: ignore[attr-defined]
    assert result.violation == 0.0  # type: ignore[attr-defined]
    assert newton.tolist() == pytest.approx([1.0, 3.0], abs=1e-3)  # type: ignore[attr-defined]


def test_training_in_the_readme_teleports_and_ends_near_where_it_says() -> None:
    """Two hundred steps in single precision: other processors may end a little off, and SGD alone is at 1.10."""
    code = [block["text"] for block in blocks(ROOT / "README.md") if block["kind"] == "python"][1]
    scope: dict[str, Any] = {}
    exec(compile(code, "example", "exec"), scope)
    said = re.search(r"# (\S+) after (\d) teleports", code)
    assert said is not None
    assert float(scope["loss"]) == pytest.approx(float(said[1]), rel=0.2)
    assert 1 <= scope["optimizer"].teleporter.teleports <= 2 * int(said[2])


def test_the_guide_to_mini_batches_teleports() -> None:
    """Both runs that it shows; what it says about their losses depends on the last digits, that they move does not."""
    scope: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "guides" / "mini-batches.md"):
        if block["kind"] == "python":
            exec(compile(block["text"], "example", "exec"), scope)
            assert "optimizer" not in scope or scope["optimizer"].teleporter.teleports > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Pages of the gallery are made by the build; their sources have to be there."""
    targets = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    missing = []
    for target in (target for target in targets if "://" not in target):
        path = page.parent / target
        if path.parent.name == "gallery":
            path = ROOT / "examples" / "gallery" / f"{path.stem}.py"
        if not path.exists() and path.stem != "index":
            missing.append(target)
    assert missing == []
