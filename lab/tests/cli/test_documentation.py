"""The documentation: its examples print what it says, its commands run, its links lead somewhere, it stays short.

``tools/run_snippets.py`` says how a block of Python and its output are written down. A command that would take too
long, or needs what is not here, stands in NOT_RUN with its reason.
"""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from levelport.goals import EndStatus
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


SNIPPETS = runpy.run_path(str(ROOT / "tools" / "run_snippets.py"))
COMMANDS = list(dict.fromkeys(line for page in PAGES for line in commands(page)))


@pytest.mark.parametrize("page", SNIPPETS["pages"](), ids=lambda page: page.stem)
def test_code_prints_what_the_page_says(page: Path) -> None:
    assert SNIPPETS["differences"](page) == []


@pytest.mark.parametrize(
    ("said", "printed", "same"),
    [
        ("loss 0.752 after 3 teleports", "loss 0.753 after 3 teleports", True),
        ("loss 0.752 after 3 teleports", "loss 0.80 after 3 teleports", False),
        ("loss 0.752 after 3 teleports", "loss 0.752 after 4 teleports", False),
        ("cost 58.5 gradient equivalents, 0.12 s", "cost 60 gradient equivalents, 7 s", True),
        ("cost 58.5 gradient equivalents, 0.12 s", "cost 7.5 gradient equivalents, 7 s", False),
        ("certified", "curved", False),
        ("-0.0607", "0.0607", False),
        ("", "1.0", False),
    ],
)
def test_outputs_are_compared(said: str, printed: str, same: bool) -> None:
    assert SNIPPETS["agree"](said, printed) is same


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


def test_every_status_is_explained() -> None:
    page = (ROOT / "docs" / "solvers.md").read_text(encoding="utf-8")
    assert [status.name for status in TeleportStatus if f"`{status.name}`" not in page] == []
    page = (ROOT / "docs" / "guides" / "intervals.md").read_text(encoding="utf-8")
    assert [status.name for status in EndStatus if f"`{status.name}`" not in page] == []


@pytest.mark.parametrize("part", ["api", "results"])
def test_indexes_are_complete(part: str) -> None:
    """The sidebar has one entry for the reference and one for the results; their indexes link all pages."""
    directory = ROOT / "docs" / part
    linked = set(re.findall(r"\]\((\w[\w-]*\.md)", (directory / "index.md").read_text(encoding="utf-8")))
    assert {page.name for page in directory.glob("*.md")} - {"index.md"} == linked


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


def test_documentation_stays_short() -> None:
    guides = [page for page in PAGES if page.name not in ("SECURITY.md", "CODE_OF_CONDUCT.md")]
    pages = [*guides, ROOT / "lab" / "README.md"]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 25_000


def test_pages_named_in_the_code_exist() -> None:
    sources = [path for folder in ("src", "lab", "tests", "tools") for path in (ROOT / folder).rglob("*.py")]
    named = {page for path in sources for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8"))}
    assert named
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []
