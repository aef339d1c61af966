"""One HTML page about everything that has been reproduced: claims, figures, tables, cost, environment.

The page stands alone: pictures are inside it, and its content security policy forbids it to load anything. It is made
from the files that :mod:`levelport.lab.paper.reproduction` writes, so it can be made anywhere they are copied to. These
files are not trusted: every text of theirs is escaped, and pictures are taken from the figure's own directory only.
"""

from __future__ import annotations

import base64
import csv
import json
import math
from dataclasses import dataclass
from html import escape
from pathlib import Path

from levelport.lab.choices import Protocol, Tier
from levelport.lab.claims import in_words as claim_in_words
from levelport.lab.engine.runner import in_words
from levelport.lab.paper.claims_table import claims_table, summaries_under
from levelport.lab.paper.registry import STUDIES
from levelport.lab.paper.reproduction import Summary
from levelport.lab.paper.teleports import SOLVER_TITLES
from levelport.problems.atomic import write_text

_STYLE = """
:root { --ink: #1a1a1a; --faint: #5f6368; --line: #d9dce0; --paper: #fff; --good: #0b6e4f; --bad: #b3261e; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; color: var(--ink); background: var(--paper);
       font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; padding-top: .6rem; border-top: 1px solid var(--line); }
p, figcaption { max-width: 46rem; }
.faint, figcaption { color: var(--faint); font-size: .9rem; }
nav { display: flex; flex-wrap: wrap; gap: .3rem .8rem; margin: .8rem 0; }
nav a { color: inherit; }
.totals { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; padding: 0; list-style: none; }
.totals li { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .9rem; }
.totals b { display: block; font-size: 1.5rem; line-height: 1.2; }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; margin: .5rem 0; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.claim { border-left: .3rem solid var(--line); padding: .1rem 0 .1rem .8rem; margin: .7rem 0; }
.claim.holds { border-color: var(--good); } .claim.does-not-hold { border-color: var(--bad); }
.claim p { margin: 0; }
.outcome { font-weight: 600; } .holds .outcome { color: var(--good); } .does-not-hold .outcome { color: var(--bad); }
@media print {
  body { font-size: 10pt; max-width: none; padding: 0; }
  nav { display: none; }
  h2, h2 + p { break-after: avoid; } figure, .claim, tr { break-inside: avoid; }
  .wide { overflow: visible; } table { font-size: 7.5pt; }
}
"""


class NothingToReportError(ValueError):
    """The directory holds no reproduced figure."""


@dataclass(frozen=True)
class Section:
    """One figure as it was found on disk."""

    name: str
    tier: Tier
    protocol: Protocol
    directory: Path
    summary: Summary

    @property
    def number(self) -> str:
        """8 of fig8, and how it was run where that is not the text's way."""
        number = self.name.removeprefix("fig")
        return number if self.protocol == "text" else f"{number}, released protocol"

    @property
    def anchor(self) -> str:
        """For links within the page."""
        return self.name if self.protocol == "text" else f"{self.name}-{self.protocol}"

    def pictures(self) -> list[Path]:
        """The pictures that are there; a name that leads out of the directory is passed over."""
        inside = self.directory.resolve()
        paths = [self.directory / name for name in self.summary.pictures]
        return [path for path in paths if path.resolve().parent == inside and path.is_file()]


def write_report(out: Path, target: Path) -> None:
    """Collect what lies under ``out`` and write the page; a target that ends in ``.md`` gets the table of claims."""
    sections = find_sections(out)
    if not sections:
        raise NothingToReportError(
            f"there is nothing to report in {out}: reproduce a figure first, for example with "
            f"'levelport reproduce fig1 --out {out}'."
        )
    write_text(target, claims_table(out) if target.suffix == ".md" else page(sections))


def find_sections(out: Path) -> list[Section]:
    """The figures under ``out`` in their order and by protocol, each from the largest tier that is there."""
    return [Section(*found) for found in summaries_under(out)]


def page(sections: list[Section]) -> str:
    """The page as text."""
    body = "\n".join([_head(sections), _claims(sections), *map(_figure, sections), _environment(sections)])
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Level set teleportation, reproduced</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _head(sections: list[Section]) -> str:
    summaries = [section.summary for section in sections]
    outcomes = [claim.holds for summary in summaries for claim in summary.claims]
    failed = sum(summary.failed_tasks for summary in summaries)
    totals = [
        (str(outcomes.count(True)), "claims hold"),
        (str(outcomes.count(False)), "do not hold"),
        (str(outcomes.count(None)), "not decided"),
        (f"{len({section.name for section in sections})} of {len(STUDIES)}", "figures"),
        (f"{sum(sum(summary.runs.values()) for summary in summaries):,}", "runs"),
        (in_words(sum(summary.compute_seconds for summary in summaries)), "of computing"),
    ]
    if failed:
        totals.append((str(failed), "failed tasks"))
    items = "".join(f"<li><b>{number}</b>{words}</li>" for number, words in totals)
    links = "".join(f'<a href="#{section.anchor}">Figure {section.number}</a>' for section in sections)
    return (
        "<h1>Level set teleportation, reproduced</h1>\n"
        "<p>The experiments of Mishkin, Bietti and Gower, <i>Level Set Teleportation: An Optimization Perspective</i>, "
        "run again: what the paper concludes, what was measured here, and at what cost. Runs that figures share "
        "count for each of them.</p>\n"
        f'<ul class="totals">{items}</ul>\n<nav>{links}</nav>'
    )


def _claims(sections: list[Section]) -> str:
    parts = ['<h2 id="claims">What the paper says, and what was found</h2>']
    for section in sections:
        for claim in section.summary.claims:
            words = claim_in_words(claim.holds)
            solver = f", {SOLVER_TITLES.get(claim.solver, claim.solver)}" if claim.solver else ""
            where = f'<a href="#{section.anchor}">Figure {section.number}</a>, {section.tier} tier{escape(solver)}'
            parts.append(
                f'<div class="claim {words.replace(" ", "-")}"><p><span class="outcome">{words}</span>: '
                f'{escape(claim.statement)}</p><p class="faint">{escape(claim.measured)} ({where})</p></div>'
            )
    return "\n".join(parts)


def _figure(section: Section) -> str:
    summary = section.summary
    parts = [f'<h2 id="{section.anchor}">Figure {section.number}: {escape(summary.title)}</h2>']
    runs = ", ".join(f"{count} {status}" for status, count in sorted(summary.runs.items())) or "nothing to run"
    cost = in_words(summary.compute_seconds) if summary.tasks else "none"
    parts.append(
        f'<p class="faint">Tier {section.tier}; {summary.tasks} tasks; runs: {escape(runs)}; computing: {cost}.</p>'
    )
    for message in summary.failures:
        parts.append(f'<div class="claim does-not-hold"><p class="faint">failed: {escape(message)}</p></div>')
    for picture in section.pictures():
        data = base64.b64encode(picture.read_bytes()).decode("ascii")
        caption = escape(picture.stem.replace("-", " ", 1).replace("fig", "Figure ", 1))
        parts.append(
            f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    parts.append(_digest(section.directory / "digest.csv"))
    return "\n".join(parts)


def _digest(path: Path) -> str:
    if not path.exists():
        return ""
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            header, *rows = [row for row in csv.reader(file) if row] or [[]]
    except csv.Error as error:
        raise ValueError(f"the file {path} is damaged ({error}). Make it anew by running its figure again.") from error
    return _table([name.replace("_", " ") for name in header], rows)


def _environment(sections: list[Section]) -> str:
    seen = {json.dumps(one, sort_keys=True) for section in sections for one in section.summary.environments}
    rows = [json.loads(text) for text in sorted(seen)]
    names = sorted({name for row in rows for name in row})
    table = _table(names, [[row.get(name, "") for name in names] for row in rows])
    return f'<h2 id="environment">Where it ran</h2>\n{table}' if table else ""


def _table(header: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        return f"<td>{escape(text)}</td>"
    shown = "–" if math.isnan(number) else "∞" if math.isinf(number) else f"{number:.4g}"
    return f'<td class="number">{shown}</td>'
