"""Names that a user may misspell: one error, with the nearest name as a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UnknownNameError(ValueError):
    """No such data set, model or problem; the message suggests what may have been meant."""


def unknown_name(kind: str, name: str, known: Iterable[str], *, see: str) -> UnknownNameError:
    """The error for ``name``, e.g. "There is no data set 'blod'. Did you mean 'blood'? ..."."""
    near = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.5)
    suggestion = f" Did you mean {' or '.join(repr(match) for match in near)}?" if near else ""
    return UnknownNameError(f"There is no {kind} '{name}'.{suggestion} {see}")
