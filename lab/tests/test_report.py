from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import escape as template_escape

from levelport_lab.claims import NOT_THERE
from levelport_lab.report import NothingToReportError, find_sections, page, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
    "a5f645400000000049454e44ae426082"
)


def figure(
    out: Path, name: str, tier: str, holds: bool | None, *, failures: list[str] | None = None, **setup: object
) -> None:
    """A figure as reproduction leaves it on disk."""
    measured = NOT_THERE if holds is None else "1 → 2"
    directory = out / tier / name
    directory.mkdir(parents=True)
    (directory / f"{name}.png").write_bytes(PIXEL)
    columns = ",".join(f"a_rather_long_column_name_{index}" for index in range(14))
    (directory / "digest.csv").write_text(f"method,{columns}\n<sgd>,{','.join(['1.23456789'] * 13)},inf\n")
    summary = {
        "setup": {"tier": tier, **setup},
        "title": "A title with <angles> & ampersands",
        "tasks": 3,
        "failed_tasks": len(failures or []),
        "failures": failures or [],
        "runs": {"ok": 1234, "diverged": 2},
        "compute_seconds": 125.0,
        "pictures": [f"{name}.png"],
        "claims": [{"name": "c", "statement": "f < g", "solver": "ours", "holds": holds, "measured": measured}],
        "environments": [{"host": "here", "python": "3.12"}],
    }
    (directory / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    figure(tmp_path, "fig1", "quick", True)
    figure(tmp_path, "fig8", "smoke", None)
    figure(tmp_path, "fig8", "full", False, failures=["ValueError: x < 0"])
    return tmp_path


def test_each_figure_comes_from_its_largest_tier(out: Path) -> None:
    assert [(section.name, section.tier) for section in find_sections(out)] == [
        ("fig1", "quick"),
        ("fig8", "full"),
    ]


class Collector(HTMLParser):
    """Tags, links and whether all tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.ids: set[str] = set()
        self.targets: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "srcset", "data", "action")]
        if values.get("id"):
            self.ids.add(values["id"] or "")
        if tag == "a":
            self.targets.add(values["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_well_formed_complete_and_self_contained(out: Path) -> None:
    text = page(find_sections(out))
    parsed = Collector()
    parsed.feed(text)
    assert parsed.open == []
    assert len(parsed.sources) == 2
    assert all(source.startswith("data:image/png;base64,") for source in parsed.sources)
    assert parsed.targets == {f"#{name}" for name in ("fig1", "fig8")}
    assert {"fig1", "fig8", "failures", "claims", "environment"} <= parsed.ids
    assert not re.search(r"https?://|@import|url\(|<script|<link", text)
    for words in ("f < g", "A title with <angles> & ampersands", "ValueError: x < 0", "<sgd>"):
        assert escape(words) in text
    assert "∞" in text
    assert "2,472" in text  # all runs
    assert "2 of 18" in text


def test_failures_stand_first_and_what_was_not_run_is_folded(tmp_path: Path) -> None:
    for name, holds in (("fig1", True), ("fig6", None), ("fig8", False)):
        figure(tmp_path, name, "full", holds, failures=["ValueError: no luck"] if name == "fig8" else None)
    text = page(find_sections(tmp_path))
    failed, wrong, right = (text.index(f'<span class="outcome">{words}') for words in ("failed", "does not", "holds"))
    folded = text.index("<details>")
    assert failed < wrong < right < folded < text.index('<span class="outcome">not run') < text.index("</details>")


def test_a_caption_says_what_its_picture_shows(tmp_path: Path) -> None:
    figure(tmp_path, "fig11", "quick", True)
    (section,) = find_sections(tmp_path)
    title = "Figure 11: A title with <angles> & ampersands"
    for stem, words in (
        ("fig11", f"{title}; quick tier."),
        ("fig11-shared-first-loss", f"{title}; shared first loss; quick tier."),
        ("fig11-shared-first-loss-ours", f"{title}; shared first loss; teleports by our solver; quick tier."),
        ("fig11-published", f"{title}; teleports by the published solver; quick tier."),
    ):
        assert section.caption(Path(f"{stem}.png")) == words
    text = page([section])
    (picture,) = re.findall(r"<figure>.*?</figure>", text)
    assert picture.count("Figure 11: A title") == 2  # for those who see it, and for those who have it read to them


def test_nothing_from_the_directory_reaches_the_page_unescaped(tmp_path: Path) -> None:
    """Every text and every key of the summary, the digest and the names of pictures is a piece of script."""
    figure(tmp_path, "fig1", "quick", True)
    directory = tmp_path / "quick" / "fig1"
    evil = "\"'><script>alert(1)</script><x y='"
    (directory / f"{evil.replace('/', ':')}.png").write_bytes(PIXEL)
    summary = json.loads((directory / "summary.json").read_text())
    summary |= {
        "figure": evil,
        "title": evil,
        "setup": {"tier": evil, "sets": [evil], "images": evil, "solvers": [evil]},
        "failures": [evil],
        "runs": {evil: 1},
        "pictures": [f"{evil.replace('/', ':')}.png"],
        "claims": [{"name": evil, "statement": evil, "solver": evil, "holds": None, "measured": evil}],
        "environments": [{evil: evil}],
    }
    (directory / "summary.json").write_text(json.dumps(summary))
    (directory / "digest.csv").write_text(f'"{evil.replace(chr(34), chr(34) * 2)}",b\n{evil},{evil}\n')
    text = page(find_sections(tmp_path))
    assert "<script" not in text
    assert str(template_escape(evil)) in text
    parsed = Collector()
    parsed.feed(text)
    assert parsed.open == []
    assert len(parsed.sources) == 1


def test_pictures_come_from_the_figures_own_directory_only(tmp_path: Path) -> None:
    figure(tmp_path, "fig1", "quick", True)
    directory = tmp_path / "quick" / "fig1"
    secret = tmp_path / "secret.png"
    secret.write_bytes(PIXEL + b"secret")
    (directory / "link.png").symlink_to(secret)
    summary = json.loads((directory / "summary.json").read_text())
    summary["pictures"] = ["fig1.png", "../../secret.png", str(secret), "link.png", "", ".", "no-such.png"]
    (directory / "summary.json").write_text(json.dumps(summary))
    (section,) = find_sections(tmp_path)
    assert [path.name for path in section.pictures()] == ["fig1.png"]


def test_nothing_to_report_is_said(tmp_path: Path) -> None:
    with pytest.raises(NothingToReportError, match="reproduce a figure first"):
        write_report(tmp_path, tmp_path / "report.html")


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [360, 1200])
def test_layout_in_a_browser(out: Path, width: int, tmp_path: Path) -> None:
    """The page in a frame as wide as a phone or a desktop: nothing sticks out, wide tables scroll by themselves."""
    write_report(out, out / "report.html")
    text = (out / "report.html").read_text()
    harness = tmp_path / "harness.html"
    measure = (
        "const d = document.getElementById('page').contentDocument;"
        "const wide = d.querySelector('.wide table');"
        "document.body.dataset.measured = JSON.stringify({page: d.documentElement.scrollWidth,"
        " sections: d.querySelectorAll('h2').length, images: [...d.images].every(i => i.complete && i.naturalWidth),"
        " table: wide.scrollWidth, box: wide.parentElement.clientWidth});"
    )
    frame = f'<iframe id="page" style="width:{width}px;height:800px;border:0" srcdoc="{escape(text)}"></iframe>'
    harness.write_text(f"<!doctype html><body>{frame}<script>window.onload = () => {{{measure}}}</script></body>")
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=5000",
            "--dump-dom",
            f"--user-data-dir={tmp_path / 'profile'}",
            harness.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    found = re.search(r'data-measured="([^"]*)"', done.stdout)
    assert found is not None, done.stdout[-500:] + done.stderr[-500:]
    measured = json.loads(found[1].replace("&quot;", '"'))
    assert measured["page"] <= width
    assert measured["sections"] == 5  # what failed, claims, two figures, where it ran
    assert measured["images"] is True
    if width == 360:
        assert measured["table"] > measured["box"]


def test_what_a_figure_was_restricted_to_is_said(tmp_path: Path) -> None:
    """In the figure's section, under its pictures and beside its claims."""
    figure(
        tmp_path,
        "fig8",
        "quick",
        True,
        sets=["pima", "blood"],
        regs=[0.01],
        halves=["deterministic"],
        images=2000,
        restarts=1,
        solvers=["ours"],
    )
    figure(tmp_path, "fig9", "quick", True, solvers=["published", "ours"], sets=[], regs=[], images=0)
    options = "--set blood --set pima --reg 0.01 --half deterministic --images 2000 --restarts 1 --solver ours"
    one, other = find_sections(tmp_path)
    assert one.summary.restrictions == options
    assert other.summary.restrictions == ""
    text = page([one, other])
    assert f"Run: quick tier, restricted by {options}; 3 tasks" in text
    assert "Run: quick tier; 3 tasks" in text
    assert f'<a href="#fig8">Figure 8</a>, quick tier, restricted by {options}, our solver)' in text
    assert one.caption(Path("fig8.png")).endswith(f"; quick tier, restricted by {options}.")


def test_open_claims_say_whether_anything_ran(tmp_path: Path) -> None:
    """Runs that decide nothing are there: the smoke tier's, and those of figures with failed tasks."""
    for name in ("fig8", "fig9", "fig10"):
        figure(tmp_path, name, "full", None)
    for name, measured in (("fig8", "the smoke tier decides nothing (it saw: 3)"), ("fig9", "1 of the 3 tasks failed")):
        path = tmp_path / "full" / name / "summary.json"
        path.write_text(path.read_text().replace(NOT_THERE, measured))
    text = page(find_sections(tmp_path))
    assert text.count('<span class="outcome">not decided') == 2
    assert text.count('<span class="outcome">not run') == 1
    assert "<li><b>2</b>not decided</li><li><b>1</b>not run</li>" in text


def test_a_summary_whose_setup_is_damaged_is_named(tmp_path: Path) -> None:
    figure(tmp_path, "fig8", "full", True, sets=7)
    with pytest.raises(ValueError, match=r"summary\.json is damaged \(sets is no list: 7\)"):
        find_sections(tmp_path)


def test_each_optimum_has_a_section_of_its_own(tmp_path: Path) -> None:
    figure(tmp_path, "fig8-released-optima-released", "smoke", False)
    write_report(tmp_path, tmp_path / "report.html")
    assert "Figure 8, released protocol, f* released: A title" in (tmp_path / "report.html").read_text()
    for name in ("fig8", "fig8-released"):
        figure(tmp_path, name, "full", True)
    sections = find_sections(tmp_path)
    assert [(section.number, section.anchor, section.tier) for section in sections] == [
        ("8", "fig8", "full"),
        ("8, released protocol", "fig8-released", "full"),
        ("8, released protocol, f* released", "fig8-released-optima-released", "smoke"),
    ]
    parsed = Collector()
    parsed.feed(page(sections))
    assert {section.anchor for section in sections} <= parsed.ids
