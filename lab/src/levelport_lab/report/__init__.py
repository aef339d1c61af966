"""One HTML page about everything that has been reproduced: claims, figures, tables, cost, environment.

The page stands alone: pictures are inside it, and its content security policy forbids it to load anything. It is made
from the files that :mod:`levelport_lab.paper.reproduction` writes, so it can be made anywhere they are copied to. These
files are not trusted: ``sections.py`` reads them and takes pictures from a figure's own directory only, ``page.py``
gives them to the template ``page.html.jinja``, which escapes every text.
"""

from levelport_lab.report.page import NothingToReportError, page, write_report
from levelport_lab.report.sections import Section, find_sections

__all__ = ["NothingToReportError", "Section", "find_sections", "page", "write_report"]
