"""From the figures found to the page: what comes first, and how numbers are set.

What failed and what does not hold stands first, what holds follows, and what is open is folded away.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from levelport_lab.atomic import write_text
from levelport_lab.engine.runner import in_words
from levelport_lab.paper.registry import STUDIES
from levelport_lab.paper.teleports import SOLVER_TITLES
from levelport_lab.report.sections import Section, Table, find_sections


class NothingToReportError(ValueError):
    """The directory holds no reproduced figure."""


def write_report(out: Path, target: Path) -> None:
    """Collect what lies under ``out`` and write the page."""
    sections = find_sections(out)
    if not sections:
        raise NothingToReportError(
            f"there is nothing to report in {out}: reproduce a figure first, for example with "
            f"'levelport reproduce fig1 --out {out}'."
        )
    write_text(target, page(sections))


def page(sections: list[Section]) -> str:
    """The page as text."""
    # Escaping is on for everything, whatever the template's name ends in.
    templates = Environment(
        loader=PackageLoader("levelport_lab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"duration": in_words, "number": number}
    return templates.get_template("page.html.jinja").render(
        sections=sections,
        totals=totals(sections),
        environment=environment(sections),
        solver_titles=SOLVER_TITLES,
    )


def totals(sections: list[Section]) -> list[tuple[str, str]]:
    """Return the headline numbers with their labels."""
    summaries = [section.summary for section in sections]
    outcomes = [claim.outcome for summary in summaries for claim in summary.claims]
    undecided = outcomes.count("not decided")
    failed = sum(summary.failed_tasks for summary in summaries)
    counts = [
        (str(outcomes.count("holds")), "claims hold"),
        (str(outcomes.count("does not hold")), "do not hold"),
        *([(str(undecided), "not decided")] if undecided else []),
        (str(outcomes.count("not run")), "not run"),
        (f"{len({section.name for section in sections})} of {len(STUDIES)}", "figures"),
        (f"{sum(sum(summary.runs.values()) for summary in summaries):,}", "runs"),
        (in_words(sum(summary.compute_seconds for summary in summaries)), "of computing"),
    ]
    return [(str(failed), "failed tasks"), *counts] if failed else counts


def environment(sections: list[Section]) -> Table | None:
    """Every machine and version that results came from, once."""
    seen = {json.dumps(one, sort_keys=True) for section in sections for one in section.summary.environments}
    rows = [json.loads(text) for text in sorted(seen)]
    names = sorted({name for row in rows for name in row})
    return Table(names, [[row.get(name, "") for name in names] for row in rows]) if rows else None


def number(text: str) -> str | None:
    """A number in four digits; None where the text is no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else f"{value:.4g}"
