"""Arguments are checked here, for every door: a wrong one is answered by a sentence that names it and the remedy."""

from __future__ import annotations

import difflib
import math
import numbers
import sys
import warnings
from collections.abc import Iterable

_NEAR = 0.6  # similarity from which a known name is worth suggesting


class UnknownNameError(ValueError):
    """No such solver, method, data set, model or problem; the message suggests what may have been meant."""


def unknown_name(kind: str, name: object, known: Iterable[str], *, see: str = "") -> UnknownNameError:
    """The error for ``name``: "There is no data set 'blod'. Did you mean 'blood'? ...".

    Nothing is suggested where nothing is near. ``see`` says where the names are; by default they are listed.
    """
    names = list(known)
    near = difflib.get_close_matches(str(name).lower(), names, n=3, cutoff=_NEAR)
    suggestion = f" Did you mean {' or '.join(repr(match) for match in near)}?" if near else ""
    listed = see or f"Choose from: {', '.join(names)}."
    return UnknownNameError(f"There is no {kind} {name!r}.{suggestion} {listed}")


def whole(name: str, value: object, *, at_least: int = 0, why: str = "") -> None:
    """Raise unless ``value`` is a whole number of at least ``at_least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name} must be a whole number, not {value!r}.")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, not {value}{f': {why}' if why else ''}.")


def number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    why: str = "",
) -> None:
    """Raise unless ``value`` is a real number in the range; infinity is allowed where no upper bound is given."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        advice = " Pass its .item()." if hasattr(value, "item") else ""  # a tensor or an array
        raise ValueError(f"{name} must be a number, not the {type(value).__name__} {value!r}.{advice}")
    reason = f": {why}" if why else ""
    inside = float(value) > above or above == -math.inf
    inside = inside and (float(value) < below or below == math.inf)
    if not (inside and at_least <= float(value) <= at_most):
        raise ValueError(f"{name} must {_range(above, below, at_least, at_most)}, not {value}{reason}.")


def _range(above: float, below: float, at_least: float, at_most: float) -> str:
    low_open, high_open = above > -math.inf, below < math.inf
    low_closed, high_closed = at_least > -math.inf, at_most < math.inf
    if (low_open or low_closed) and (high_open or high_closed):
        left = f"({above:g}" if low_open else f"[{at_least:g}"
        right = f"{below:g})" if high_open else f"{at_most:g}]"
        return f"lie between {above:g} and {below:g}" if low_open and high_open else f"lie in {left}, {right}"
    if low_open:
        return "be positive" if above == 0.0 else f"exceed {above:g}"
    if low_closed:
        return "not be negative" if at_least == 0.0 else f"be at least {at_least:g}"
    if high_open:
        return f"be below {below:g}"
    return f"be at most {at_most:g}" if high_closed else "be a number, and no NaN"


def flag(name: str, value: object) -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}.")


def positive(**settings: object) -> None:
    """Raise for the first setting that is not a positive, finite number."""
    for name, value in settings.items():
        number(name, value, above=0.0)
        if value == math.inf:
            raise ValueError(f"{name} must be finite, not {value}.")


def weight(name: str, value: object) -> float:
    """``value`` as what multiplies a part of a sum: a finite number of at least 0, or an error."""
    try:
        factor = float(value)  # type: ignore[arg-type]  # a tensor of one entry is a number, too
    except (TypeError, ValueError):
        factor = math.nan
    if not 0.0 <= factor < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}.")
    return factor


def function(name: str, value: object, *, of: str = "") -> None:
    """Raise unless ``value`` can be called; ``of`` says with what."""
    if not callable(value):
        arguments = f" of {of}" if of else ""
        raise ValueError(f"{name} must be a function{arguments}, not {type(value).__name__}.")


def one_of(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise unless ``value`` is one of the words."""
    words = list(allowed)
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name} must be {' or '.join(repr(word) for word in words)}, not {value!r}.")


def warn(message: str) -> None:
    """Warn at the line of the first caller outside of levelport and of torch, which wraps an optimizer's step."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("levelport", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level + 1)
