"""What a teleport returns does not hang on last bits of its start; how often it waits for the device is counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.cases import Case, all_cases
from tests.functions import tanh_network
from torch import Tensor
from torch.overrides import TorchFunctionMode

from levelport import Auto, teleport

SMOOTH = [case for case in all_cases() if case.name in ("quadratic", "logistic", "softplus network", "himmelblau")]


@pytest.mark.parametrize("max_hvps", [12, 50])
@pytest.mark.parametrize("case", SMOOTH, ids=lambda case: case.name)
def test_perturbed_starts_end_at_the_same_norm_and_status(case: Case, max_hvps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    results = []
    for _ in range(5):
        noise = torch.randn(case.start.shape, generator=generator, dtype=case.start.dtype)
        results.append(teleport(case.fun, case.start * (1.0 + 1e-15 * noise), Auto(max_hvps=max_hvps)))
    norms = [result.gradient_norm for result in results]
    assert max(norms) - min(norms) <= 1e-6 * max(norms)
    assert len({result.status for result in results}) == 1


WAITS = {getattr(Tensor, name) for name in ("item", "tolist", "__float__", "__bool__", "__int__", "__index__")}


class _Reads(TorchFunctionMode):
    """Counts how often numbers are read from a tensor: on an accelerator, each time the host waits."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func in WAITS
        return func(*args, **(kwargs or {}))


def test_reads_from_the_device() -> None:
    """One for a value, one for a gradient with its value, two per iteration for the rest; seven with all trials."""
    objective, x = tanh_network(20)
    seen = []
    for max_hvps in (15, 45):
        with _Reads() as reads:
            result = teleport(objective, x, Auto(max_hvps=max_hvps))
        assert result.nit >= max_hvps - 5
        seen.append((reads.count, result.cost.nfev, result.nit))
    (early, few, before), (late, many, after) = seen
    assert late - early <= 7.5 * (after - before)
    # Some gradients come after their value: where the parabola back to the level is doubtful, and inside of it.
    assert late - early - (many - few) <= 2.6 * (after - before)
