"""What :func:`levelport.minimize` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal

from torch import Tensor
from typing_extensions import TypeVar  # torch depends on it; defaults of type variables came with Python 3.13

from levelport.objective import Cost
from levelport.objectives.structure import Variables
from levelport.solvers.result import SciPyNames

if TYPE_CHECKING:
    from numpy.typing import NDArray

Start = TypeVar("Start", bound="Variables | NDArray[Any]", default=Tensor)
"""The users' own kind of variables: tensors, lists or dicts of tensors, or NumPy arrays."""

RowKind = Literal["start", "teleport", "stay", "first step", "step", "descent", "undone"]


class MinimizeStatus(Enum):
    """The reason why a minimization ended. The value is a sentence."""

    GRADIENT_SMALL = "the gradient norm fell below the tolerance gtol"
    TARGET_REACHED = "the value f_target was reached"
    ROUNDING_FLOOR = "f changes by rounding errors only: it is minimal as far as its values can tell"
    UNBOUNDED = "f fell so far that it seems unbounded below; check its sign, or add a penalty"
    MAX_ITERATIONS = "max_iterations steps were taken before a tolerance was met"
    MAX_COST = "max_cost gradient equivalents were spent before a tolerance was met"
    MAX_SECONDS = "max_seconds passed before a tolerance was met"
    STOPPED = "the callback asked to stop"
    NO_STEP = "no step decreases f any further: it is minimal up to rounding errors, or its gradient is wrong"
    DIVERGED = (
        "the next x, f or its gradient there is not finite; x is the last point where all are. Try a smaller step"
    )
    NON_FINITE_START = "f or its gradient is not finite at x0; start from a point where f is defined"

    @property
    def success(self) -> bool:
        """True if a tolerance that was asked for was met."""
        return self in (MinimizeStatus.GRADIENT_SMALL, MinimizeStatus.TARGET_REACHED, MinimizeStatus.ROUNDING_FLOOR)


@dataclass(frozen=True)
class MinimizeRow:
    """One point of a run: x0, then one per step, and more around every teleport.

    Attributes:
        iteration: steps taken before it.
        cost: gradient equivalents spent up to here, the evaluation of this point included.
        value, gradient_norm: f and ‖∇f‖ there.
        kind: what led to it: the "start", a "teleport", a teleport that came to nothing ("stay"), the "first step" that
            belongs to a teleport, a "step" of the method, a "descent" that the solver made where a teleport would not
            have paid, or the way back from a move after which f rose ("undone").
        step: size of the step that led to it; NaN elsewhere.
        seconds: since the start.
    """

    iteration: int
    cost: float
    value: float
    gradient_norm: float
    kind: RowKind
    step: float
    seconds: float

    @property
    def teleported(self) -> bool:
        """True if a teleport led to it."""
        return self.kind == "teleport"


@dataclass(frozen=True)
class MinimizeResult(SciPyNames, Generic[Start]):
    """The outcome of :func:`levelport.minimize`.

    Attributes:
        x: the last point, in the structure of ``x0``.
        value, gradient_norm: f and ‖∇f‖ there.
        status: why it ended; ``success`` and ``message`` follow from it.
        iterations: steps taken.
        teleports: teleports made, those that were undone included.
        cost: evaluations and seconds, everything included.
        trace: a row per point.
        gradient: ∇f(x), like ``x``.

    ``fun``, ``jac``, ``nit``, ``nfev``, ``njev`` and ``nhev`` are SciPy's names for what is here as well.
    """

    x: Start
    value: float
    gradient_norm: float
    status: MinimizeStatus
    iterations: int
    teleports: int
    cost: Cost
    trace: tuple[MinimizeRow, ...] = field(default=(), repr=False)
    gradient: Start | None = field(default=None, repr=False)

    @property
    def success(self) -> bool:
        """True if a tolerance that was asked for was met."""
        return self.status.success

    @property
    def message(self) -> str:
        """The status as a sentence."""
        return self.status.value

    def __str__(self) -> str:
        return (
            f"{self.status.name}: {self.message}\n"
            f"f      {self.value:.8g} after {self.iterations} steps and {self.teleports} teleports\n"
            f"‖∇f‖   {self.gradient_norm:.6g}\ncost   {self.cost}"
        )

    @property
    def jac(self) -> Start | None:
        """∇f at ``x``."""
        return self.gradient

    @property
    def nit(self) -> int:
        """Steps taken."""
        return self.iterations
