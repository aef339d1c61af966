"""Compiled modules and ``torch.compile`` during a solve: compiled backward passes have no second derivative."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any

import torch

from levelport.objective import ObjectiveError
from levelport.objectives.isolation import Shared

_COMPILED = (
    "a teleport cannot run inside a function that torch.compile has compiled. Compile the model, or its optimizer's "
    "step, and leave the function around them as it is."
)
_stance_before: list[Any] = []
_quiet = ExitStack()


def _begin_eager() -> None:
    if torch.compiler.is_compiling():  # raises while torch traces, which then runs this as it is
        raise ObjectiveError(_COMPILED)
    if not _stance_before:
        _stance_before.append(torch._dynamo.eval_frame._stance)
    try:
        torch.compiler.set_stance("force_eager")
    except RuntimeError as error:
        _stance_before.clear()
        raise ObjectiveError(_COMPILED) from error
    _quiet.close()  # an interrupt may have come between
    _quiet.enter_context(warnings.catch_warnings())
    # That a hook fires for the compiled module and for the one inside it does no harm here.
    warnings.filterwarnings("ignore", message="Using `torch.compile")


def _end_eager() -> None:
    for stance in _stance_before:
        torch._dynamo.eval_frame._set_stance(stance)
    _stance_before.clear()
    _quiet.close()


force_eager = Shared(_begin_eager, _end_eager)
