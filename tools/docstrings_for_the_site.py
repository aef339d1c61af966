"""Our docstrings as the site shows them: Sphinx roles become code, and "Example:" a section that can be copied.

Loaded by mkdocs.yml, as an extension of griffe, which reads the sources without importing them.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr):`~?([^`]+)`")


class ReadableDocstrings(griffe.Extension):
    """Rewrites every docstring once."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(lambda role: f"`{role.group(1).rsplit('.', 1)[-1]}`", obj.docstring.value)
            obj.docstring.value = re.sub(r"^(\s*)Example:$", r"\1Examples:", text, flags=re.MULTILINE)
