"""A fixed set of batches as one loss: its mean over all their samples, with the graph of one batch at a time.

Batches come as data loaders make them: tuples whose entries the loss takes one by one, or dicts that it takes whole. A
tensor alone is refused, since ``(inputs, targets)`` without a list around it would pass for two batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from levelport import checks
from levelport.objective import ObjectiveError

Loss = Callable[[], Tensor]
"""A loss-only callable: computes the loss and returns it, without ``backward()``."""


class Batches:
    """The mean of a loss over a fixed set of batches, evaluated one batch at a time.

    f = Σ_b weight_b · loss(*batch_b) / Σ_b weight_b; graphs are those of one batch.

    Args:
        loss: called as ``loss(*batch)``, for dicts and other objects as ``loss(batch)``; a mean over the samples of the
            batch.
        batches: tuples such as ``(inputs, targets)``, or dicts; what comes from a loader or a generator is kept in a
            list, so that every evaluation sees the same samples.
        weights: one per batch; None takes the number of samples, the length of the batch's first tensor.
        unused: other batches, which optimizers use to see whether a move on ``batches`` raises the loss elsewhere.
    """

    def __init__(
        self,
        loss: Callable[..., Tensor],
        batches: Iterable[Any],
        weights: Iterable[float] | None = None,
        unused: Iterable[Any] = (),
    ) -> None:
        if not callable(loss):
            raise ValueError(f"loss must be a function of a batch, loss(inputs, targets), not a {type(loss).__name__}.")
        self.loss = loss
        self.batches = _listed("batches", batches)
        if not self.batches:
            raise ValueError("batches is empty; pass at least one batch, for instance [(inputs, targets)].")
        self.weights = _counted("batches", self.batches) if weights is None else _weighed(weights, len(self.batches))
        self.unused = _listed("unused", unused)
        _counted("unused", self.unused)  # what is wrong with them is said now, not at the first teleport

    def terms(self) -> list[tuple[float, Loss]]:
        """The share of each batch, and its loss; a batch without weight is left out."""
        total = sum(self.weights)
        weighed = zip(self.weights, self.batches, strict=True)
        return [(weight / total, partial(self._evaluate, batch)) for weight, batch in weighed if weight > 0.0]

    def mean(self) -> Tensor:
        """f with one graph over all batches: a loss-only callable."""
        return torch.stack([weight * loss() for weight, loss in self.terms()]).sum()

    def _evaluate(self, batch: Any) -> Tensor:
        return self.loss(*batch) if isinstance(batch, tuple | list) else self.loss(batch)


def check_loss(name: str, loss: object) -> None:
    """Raise unless ``loss`` can be evaluated without arguments, or is :class:`Batches`."""
    if isinstance(loss, Batches) or callable(loss):
        return
    for_data = " For a loss over data pass levelport.Batches(loss, [(x, y)])." if isinstance(loss, Iterable) else ""
    raise ObjectiveError(
        f"{name} must be a callable without arguments that returns the loss, not a {type(loss).__name__}; "
        f"for example lambda: loss_fn(model(x), y).{for_data}"
    )


def _listed(name: str, batches: object) -> list[Any]:
    """``batches`` as a list, or an error for what only looks like batches."""
    if isinstance(batches, Mapping) or _is_array(batches) or not isinstance(batches, Iterable):
        raise ValueError(
            f"{name} must be a list of batches, not a {type(batches).__name__}; put one batch alone into a list: "
            "[(inputs, targets)], or [batch] for a dict."
        )
    listed = list(batches)
    for number, batch in enumerate(listed):
        if _is_array(batch):
            raise ValueError(
                f"batch {number} of {name} is a {type(batch).__name__}, not a tuple of what the loss takes; write "
                "[(inputs, targets)] for one batch of two tensors, or [(inputs,), ...] for a loss of one."
            )
    return listed


def _counted(name: str, batches: list[Any]) -> list[float]:
    """The number of samples of each batch; a batch alone needs no counting."""
    if len(batches) <= 1:
        return [1.0] * len(batches)
    weights = []
    for number, batch in enumerate(batches):
        samples = _samples(batch)
        if samples is None:
            raise ValueError(
                f"batch {number} of {name} holds no tensor whose length tells its number of samples; "
                "pass weights=, one number per batch."
            )
        weights.append(float(samples))
    if not any(weights):
        raise ValueError(f"no batch of {name} holds a sample; pass at least one that does.")
    return weights


def _weighed(weights: Iterable[float], batches: int) -> list[float]:
    if not isinstance(weights, Iterable):
        raise ValueError(f"weights must be a list of numbers, one per batch, not {weights!r}.")
    listed = [checks.weight("every weight of a batch", weight) for weight in weights]
    if len(listed) != batches:
        raise ValueError(f"weights has {len(listed)} entries for {batches} batches; pass one number per batch.")
    if not any(listed):
        raise ValueError("weights are all 0, so that no batch counts; make at least one of them positive.")
    return listed


def _samples(entry: Any) -> int | None:
    """The length of the first tensor or array in ``entry``, however deep it lies in dicts, tuples and lists."""
    if _is_array(entry):
        return len(entry) if entry.ndim > 0 else None
    parts = entry.values() if isinstance(entry, Mapping) else entry if isinstance(entry, tuple | list) else ()
    return next((samples for part in parts if (samples := _samples(part)) is not None), None)


def _is_array(entry: object) -> bool:
    """A tensor, or an array of another library."""
    return hasattr(entry, "__array__") and not isinstance(entry, Mapping)
