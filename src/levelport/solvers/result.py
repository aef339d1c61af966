"""What a teleport returns: the point, why it stopped, a certificate and the cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic

from levelport.objective import Cost
from levelport.objectives.structure import X
from levelport.solvers.problem import Certificate

STAYED = "; this is the start itself"


class TeleportStatus(Enum):
    """The reason why a teleport ended. The value is a sentence."""

    CONVERGED = "the point satisfies the KKT conditions to the tolerance asked for"
    TARGET_REACHED = "the target set for the gain or the alignment was reached"
    BUDGET_SPENT = "the budget of Hessian-vector products, cost or time was spent before a KKT point was reached"
    STALLED = "no step increased the gradient norm any further"
    TRUST_RADIUS = (
        "the trust radius was reached: the gradient norm still grows further out, "
        "and the problem may have no finite solution"
    )
    PREDICTED = (
        "the point is near where a quadratic model of f has its largest gradient at this level; it is not certified"
    )
    NOT_WORTHWHILE = (
        "the largest gradient of a quadratic model at this level is hardly larger than the one here" + STAYED
    )
    MOVED = "the requested move was made; it does not look for a KKT point"
    STOPPED = "the callback asked to stop"
    STATIONARY_START = "the gradient vanishes at the start, so every direction is as good as any other"
    NON_FINITE_START = (
        "the value or the gradient at the start is not finite; start from a point where the loss is defined"
    )
    NO_FEASIBLE_GAIN = "no point was found that keeps the value and has a larger gradient" + STAYED

    @property
    def success(self) -> bool:
        """True if the solver did what it was asked to do."""
        return self in (TeleportStatus.CONVERGED, TeleportStatus.TARGET_REACHED, TeleportStatus.MOVED)


@dataclass(frozen=True)
class TraceRow:
    """One iteration of a solver, for plots, tables and callbacks.

    ``curvature`` is λ of :class:`Certificate`: ‖∇f‖²/(2λ) is the predicted decrease of the best gradient step there.
    """

    iteration: int
    value: float
    violation: float
    gradient_norm: float
    kkt_residual: float
    alignment: float
    curvature: float
    step: float
    cost: Cost


class Judged:
    """What has a status, and perhaps details of it."""

    status: Any
    detail: str

    @property
    def success(self) -> bool:
        """True if the status is one of success."""
        return bool(self.status.success)

    @property
    def message(self) -> str:
        """The status as a sentence, with details."""
        return f"{self.status.value} ({self.detail})" if self.detail else str(self.status.value)


class SciPyNames:
    """SciPy's names for what a result has under other names as well."""

    value: float
    cost: Cost

    @property
    def fun(self) -> float:
        """f at ``x``."""
        return self.value

    @property
    def nfev(self) -> int:
        """Evaluations of f, those that came with a gradient included."""
        return self.cost.nfev

    @property
    def njev(self) -> int:
        """Gradients."""
        return self.cost.gradients

    @property
    def nhev(self) -> int:
        """Hessian-vector products."""
        return self.cost.hvps


@dataclass(frozen=True)
class TeleportResult(Judged, SciPyNames, Generic[X]):
    """The outcome of :func:`levelport.teleport`. Value and gradient were evaluated at the very ``x`` returned.

    Attributes:
        x: the point, in the structure, dtype and device of the input.
        status: why it ended; ``success`` and ``message`` follow from it.
        value, value_start: f at ``x`` and at the start.
        gradient_norm, gradient_norm_start: ‖∇f‖ at both.
        kkt_residual, alignment, curvature: see :class:`Certificate`.
        cost: evaluations and seconds of this teleport.
        trace: a row per iteration.
        moved: whether ``x`` is another point than the start.

    ``fun``, ``nit``, ``nfev``, ``njev`` and ``nhev`` are SciPy's names for what is here as well.
    """

    x: X
    status: TeleportStatus
    value: float
    value_start: float
    gradient_norm: float
    gradient_norm_start: float
    certificate: Certificate
    cost: Cost
    detail: str
    trace: tuple[TraceRow, ...] = field(repr=False)
    moved: bool

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.status.name}: {self.message}",
                f"f      {self.value_start:.8g} → {self.value:.8g}",
                f"‖∇f‖   {self.gradient_norm_start:.6g} → {self.gradient_norm:.6g}, {self.gain:.4g} times",
                f"there  {self.certificate}",
                f"cost   {self.cost}",
            ]
        )

    @property
    def violation(self) -> float:
        """max(0, f(x) - f(start)), as it stands after rounding."""
        return max(0.0, self.value - self.value_start)

    @property
    def gain(self) -> float:
        """‖∇f(x)‖ / ‖∇f(start)‖."""
        return self.gradient_norm / self.gradient_norm_start if self.gradient_norm_start > 0.0 else 1.0

    @property
    def kkt_residual(self) -> float:
        """‖P H g‖ / ‖g‖²."""
        return self.certificate.kkt_residual

    @property
    def alignment(self) -> float:
        """cos ∠(g, H g)."""
        return self.certificate.alignment

    @property
    def curvature(self) -> float:
        """λ = ⟨g, H g⟩ / ‖g‖²."""
        return self.certificate.curvature

    @property
    def nit(self) -> int:
        """Iterations of the solver."""
        return len(self.trace)
