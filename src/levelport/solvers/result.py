"""What a teleport returns: the point, why it stopped, a certificate and the bill."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

import torch

from levelport.objective import Cost, Point, norm
from levelport.objectives.structure import Variables


class Status(Enum):
    """Why a teleport ended. The value is the sentence shown to people."""

    CONVERGED = "the point satisfies the KKT conditions to the tolerance asked for"
    TARGET_REACHED = "the target set for the gain or the alignment was reached"
    BUDGET_SPENT = "the budget of Hessian-vector products or seconds was spent before a KKT point was reached"
    STALLED = "no step increased the gradient norm any further"
    TRUST_RADIUS = (
        "the trust radius was reached: the gradient norm still grows further out, "
        "and the problem may have no finite solution"
    )
    ALIGNED = "the gradient already points along the steepest direction known, so that there is little to gain"
    UNCERTIFIED = "the gradient grew at no higher a value; whether it can grow further was not checked, to save the HVP"
    DESCENDED = "the value fell; a point with as large a gradient was not found, or not needed"
    STOPPED = "the callback asked to stop"
    STATIONARY_START = "the gradient vanishes at the start, so every direction is as good as any other"
    NON_FINITE_START = (
        "the value or the gradient at the start is not finite; start from a point where the loss is defined"
    )
    NO_FEASIBLE_GAIN = "no point was found that keeps the value and has a larger gradient; this is the start itself"

    @property
    def success(self) -> bool:
        """Whether the solver did what it was asked to do."""
        return self in (Status.CONVERGED, Status.TARGET_REACHED)


@dataclass(frozen=True)
class Certificate:
    """How near a point is to satisfying the KKT conditions H g = λ g of the teleportation problem.

    With g = ∇f(x), H = ∇²f(x) and P = I - g gᵀ/‖g‖²:

    * ``curvature``     λ = ⟨g, H g⟩ / ‖g‖²; 1/λ is the Newton step size at a KKT point. Recycled teleports, which are
      not certified, have the curvature of the steepest direction known here and NaN below.
    * ``kkt_residual``  ‖P H g‖ / ‖g‖², the Riemannian gradient norm of ½ log ‖∇f‖²
    * ``alignment``     cos ∠(g, H g): 1 at a KKT point, and free of units
    """

    curvature: float
    kkt_residual: float
    alignment: float

    @classmethod
    def at(cls, point: Point) -> Certificate:
        """Certify ``point``; costs one HVP if it has not been spent there yet."""
        size = point.gradient_norm
        if size == 0.0 or not math.isfinite(size):
            return cls(math.nan, math.nan, math.nan)
        normal, image = point.normal, point.hessian_normal
        curvature_tensor = torch.dot(normal, image)
        tangential = image - curvature_tensor * normal
        curvature, residual, length = torch.stack([curvature_tensor, norm(tangential), norm(image)]).tolist()
        # H g = 0 satisfies the KKT conditions with λ = 0: nothing pulls the gradient away from itself.
        alignment = curvature / length if length > 0.0 else 1.0
        return cls(curvature, residual / size, alignment)

    @property
    def misalignment(self) -> float:
        """sin ∠(g, H g), the scale-free size of the KKT residual."""
        return math.sqrt(max(0.0, 1.0 - self.alignment**2)) if math.isfinite(self.alignment) else math.inf


@dataclass(frozen=True)
class TraceRow:
    """One iteration of a solver, for plots and tables."""

    iteration: int
    value: float
    violation: float
    gradient_norm: float
    kkt_residual: float
    alignment: float
    step: float
    cost: Cost


@dataclass(frozen=True)
class TeleportResult:
    """The outcome of :func:`levelport.teleport`. Value and gradient were evaluated at the very ``x`` returned.

    Attributes:
        x: the point, in the structure, dtype and device of the input.
        status: why it ended; ``success`` and ``message`` follow from it.
        value, value_start: f at ``x`` and at the start.
        gradient_norm, gradient_norm_start: ‖∇f‖ at both.
        kkt_residual, alignment, curvature: see :class:`Certificate`.
        cost: evaluations and seconds of this teleport.
        trace: a row per iteration.
    """

    x: Variables
    status: Status
    value: float
    value_start: float
    gradient_norm: float
    gradient_norm_start: float
    certificate: Certificate
    cost: Cost
    detail: str = ""
    trace: tuple[TraceRow, ...] = field(default=(), repr=False)

    @property
    def success(self) -> bool:
        """Whether a KKT point or the target was reached."""
        return self.status.success

    @property
    def message(self) -> str:
        """The status as a sentence, with what the solver adds to it."""
        sentence = self.status.value
        return f"{sentence} ({self.detail})" if self.detail else sentence

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
