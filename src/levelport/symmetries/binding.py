"""Where the parameters of a module lie in the flat vector of an objective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from levelport.objective import Objective
from levelport.objectives.distributed import DistributedObjective
from levelport.objectives.metric import InMetric
from levelport.objectives.module import ModuleObjective
from levelport.objectives.parameters import ParametersObjective


def innermost(objective: Objective) -> Objective:
    """The objective under its wrappers: differences of gradients, data parallel sums, meters."""
    while not isinstance(objective, ModuleObjective | ParametersObjective):
        inside = _inside(objective)
        if inside is None:
            break
        objective = inside
    return objective


def in_metric(objective: Objective) -> bool:
    """Whether the variables are z = √m x, so that entries of the flat vector are no weights."""
    while not isinstance(objective, InMetric):
        inside = _inside(objective)
        if inside is None:
            return False
        objective = inside
    return True


def distributed(objective: Objective) -> bool:
    """Whether f is a sum over processes, each of which sees its own samples alone."""
    found: Objective | None = objective
    while found is not None and not isinstance(found, DistributedObjective):
        found = _inside(found)
    return found is not None


def _inside(objective: Objective) -> Objective | None:
    found = next((getattr(objective, n) for n in ("objective", "local", "inner") if hasattr(objective, n)), None)
    return found if isinstance(found, Objective) else None


def places(
    objective: Objective, wanted: Iterable[tuple[str, Tensor]], who: str, *, scales: bool = False
) -> dict[int, slice]:
    """The slice of the flat vector that holds each of the named parameters, by the id of the parameter.

    ``scales`` says that entries are only multiplied, which is the same in the variables of a metric; other moves are
    not, and are refused there.
    """
    if not scales and in_metric(objective):
        raise ValueError(
            f"{who} mixes weights, and metric= scales them one by one, so that its moves would not be symmetries any "
            "more. Leave the metric out, or take Rescaling, Balance or RandomBasis, which only scale weights."
        )
    inner = innermost(objective)
    if isinstance(inner, ModuleObjective):
        parameters: Sequence[Tensor] = inner.parameters
    elif isinstance(inner, ParametersObjective):
        parameters = inner.parameters
    else:
        raise ValueError(
            f"{who} moves the parameters of a module, and this objective ({type(inner).__name__}) has none. Use it "
            "with a ModuleObjective, a Teleporter or Teleported."
        )
    found, begin = {}, 0
    for parameter in parameters:
        found[id(parameter)] = slice(begin, begin + parameter.numel())
        begin += parameter.numel()
    for name, sought in wanted:
        if id(sought) not in found:
            raise ValueError(
                f"the parameter {name!r} of {who}'s module is none of those that the objective moves. Make the solver "
                "for the very module that is trained: ModuleObjective(model, …) and "
                f"{who}(model), or the model whose parameters the optimizer has."
            )
    return found
