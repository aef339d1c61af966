"""What a solver may ask of a function: value, gradient, Hessian-vector product, and what they cost.

Three small ideas live here, because each is meaningless without the others:

* :class:`Cost` counts evaluations. One axis, where one is needed, is the *gradient equivalent*:
  a value costs ½, a gradient 1 (its value included), a Hessian-vector product (HVP) 2.
* :class:`Point` is x together with everything known of f there: f(x), ∇f(x) and v ↦ ∇²f(x) v. Its x never
  changes, so a value can never belong to one x and a gradient to another; what was evaluated is cached.
* :class:`Objective` makes points and keeps the ledger. A :class:`WrappedObjective` asks another one.

Points live in ℝᵈ as flat vectors. What the user calls x (a tensor of any shape, a list or dict of tensors,
the parameters of a module) is translated at the border, in :mod:`levelport.objectives`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.vectors import norm, read


class ObjectiveError(ValueError):
    """The function cannot serve as an objective; the message names the cause and the remedy."""


class NotDeterministicError(ObjectiveError):
    """Two evaluations at one point differ. A kind of its own, because training can go on where teleports cannot."""

    @classmethod
    def between(cls, first: float, second: float, name: str) -> NotDeterministicError:
        """Two values at the same point."""
        return cls(
            f"{name} is not deterministic: two evaluations at the same point gave {first!r} and {second!r}. Switch "
            "dropout and random augmentation off (module.eval()), fix the batch, or seed the generator inside the "
            "loss, so that every evaluation sees the same function."
        )


@dataclass(frozen=True)
class Cost:
    """Evaluations spent, and the wall-clock time of the work that spent them."""

    values: int = 0
    gradients: int = 0
    hvps: int = 0
    seconds: float = 0.0

    @property
    def gradient_equivalents(self) -> float:
        """½ per value, 1 per gradient, 2 per Hessian-vector product."""
        return 0.5 * self.values + self.gradients + 2.0 * self.hvps

    @property
    def nfev(self) -> int:
        """Evaluations of f as SciPy counts them: those that came with a gradient included."""
        return self.values + self.gradients

    def __str__(self) -> str:
        named = (self.values, "value"), (self.gradients, "gradient"), (self.hvps, "Hessian-vector product")
        counts = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in named)
        return f"{self.gradient_equivalents:g} gradient equivalents ({counts}), {self.seconds:.3g} s"

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.values + other.values,
            self.gradients + other.gradients,
            self.hvps + other.hvps,
            self.seconds + other.seconds,
        )

    def __sub__(self, other: Cost) -> Cost:
        return self + Cost(-other.values, -other.gradients, -other.hvps, -other.seconds)


class Ledger:
    """The running count behind an objective. Solvers read it as a :class:`Cost`."""

    __slots__ = ("differences", "gradients", "hvps", "values")

    def __init__(self) -> None:
        self.values = 0
        self.gradients = 0
        self.hvps = 0
        self.differences = 0  # products made of a difference of gradients, which are counted above

    @property
    def products(self) -> int:
        """Hessian-vector products however they were made: what a budget of them bounds."""
        return self.hvps + self.differences

    def read(self) -> Cost:
        """The evaluations spent so far."""
        return Cost(self.values, self.gradients, self.hvps)


def _without_graph(v: Tensor) -> Tensor:
    """Derivatives of an objective whose data have ``requires_grad`` come with graphs that are not needed."""
    return v.detach() if v.requires_grad else v


class Point(ABC):
    """x, which stays as it is, with a cache of f(x), ∇f(x) and ∇²f(x): evaluated on demand, once.

    A gradient that follows a value at the same point reuses its forward pass, so the ledger turns that value
    into a part of the gradient instead of charging both.
    """

    shares_forward: bool = True
    """True if a gradient reuses the forward pass of a value; if not, both are charged."""

    inner: Point | None = None
    """The point of another objective that this one asks, None if it evaluates f itself."""

    def __init__(self, x: Tensor, ledger: Ledger) -> None:
        self.x = x
        self._ledger = ledger
        self._value: float | Tensor | None = None  # a tensor until it is read from the device
        self._gradient: Tensor | None = None
        self._gradient_norm: float | None = None
        self._hessian_normal: Tensor | None = None
        self.product_sizes: tuple[float, float, float] | None = None
        """⟨n, ∇²f n⟩, the length of ∇²f n across n and its length, once they have been taken: enough to certify x."""

    @abstractmethod
    def _evaluate_value(self) -> float | Tensor: ...

    @abstractmethod
    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        """f(x), which may stay on the device for now, and ∇f(x)."""

    @abstractmethod
    def _evaluate_hvp(self, v: Tensor) -> Tensor: ...

    @property
    def value(self) -> float:
        """f(x)."""
        value = self._value
        if type(value) is float:  # asked for some twenty times per iteration of a solver
            return value
        if value is None:
            self._ledger.values += 1
            value = self._evaluate_value()
        self._value = float(_without_graph(value) if isinstance(value, Tensor) else value)
        return self._value

    @property
    def gradient(self) -> Tensor:
        """∇f(x)."""
        if self._gradient is None:
            if self._value is not None and self.shares_forward:
                self._ledger.values -= 1
            self._ledger.gradients += 1
            self._value, gradient = self._evaluate_gradient()
            self._gradient = _without_graph(gradient)
        return self._gradient

    @property
    def gradient_norm(self) -> float:
        """‖∇f(x)‖₂; the value comes with the same read from the device, if it is not known yet."""
        if self._gradient_norm is None:
            gradient = self.gradient
            unread = [_without_graph(self._value)] if isinstance(self._value, Tensor) else []
            *values, self._gradient_norm = read(unread, [gradient])
            if values:
                (self._value,) = values
        return self._gradient_norm

    def release(self) -> None:  # noqa: B027  (most points hold no graph)
        """Release graphs. Cached values are kept; further derivatives need another forward pass."""

    def forget_product(self) -> None:
        """Release the vector :attr:`hessian_normal`; its sizes are kept, and the next access evaluates it again."""
        self._hessian_normal = None

    def hvp(self, v: Tensor) -> Tensor:
        """∇²f(x) v."""
        self._ledger.hvps += 1
        return _without_graph(self._evaluate_hvp(v))

    @property
    def normal(self) -> Tensor:
        """n = ∇f(x)/‖∇f(x)‖; the gradient must not vanish."""
        limits = torch.finfo(self.gradient.dtype)
        if limits.tiny <= self.gradient_norm <= limits.max:
            return self.gradient / self.gradient_norm
        scaled = self.gradient / self.gradient.abs().max()  # the norm itself is no number of this dtype
        return scaled / float(norm(scaled))

    @property
    def hessian_normal(self) -> Tensor:
        """∇²f(x) n for the unit normal n, kept: it is the ascent direction of log ‖∇f‖ and certifies a KKT point.

        The unit vector keeps the product in range: ∇²f ∇f over- or underflows in float32 long before f does.
        """
        return self.hessian_normal_of(self.normal) if self._hessian_normal is None else self._hessian_normal

    def hessian_normal_of(self, normal: Tensor) -> Tensor:
        """The same for a caller that has the normal."""
        if self._hessian_normal is None:
            self._hessian_normal = self.hvp(normal)
        return self._hessian_normal

    @property
    def finite(self) -> bool:
        """True if f(x) and ‖∇f(x)‖ are numbers."""
        return math.isfinite(self.value) and math.isfinite(self.gradient_norm)


class Objective(ABC):
    """A smooth function on ℝᵈ that counts its evaluations.

    Attributes:
        dimension: d.
        dtype, device: of every vector that goes in or comes out.
        deterministic: True where two evaluations at one x agree by construction; otherwise
            :func:`levelport.teleport` evaluates twice, once per objective, to make sure.
        cheap_products: True where a Hessian-vector product costs no more than a gradient, so that solvers need no
            differences of gradients in its place.
        inner: the objective that this one asks, None if it evaluates f itself.
        name: what messages call f.
    """

    name: str = "the loss"
    dimension: int
    dtype: torch.dtype
    device: torch.device
    deterministic: bool = False
    cheap_products: bool = False
    inner: Objective | None = None

    def __init__(self) -> None:
        self.ledger = Ledger()

    @abstractmethod
    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        """The point at the flat vector ``x``, which must not be changed afterwards.

        ``curvature=True`` announces that HVPs will follow, so that the graph of the gradient is built at once
        instead of by a second backward pass. It never changes a result.
        """

    @property
    def cost(self) -> Cost:
        """All evaluations so far."""
        return self.ledger.read()

    def verify_deterministic(self, point: Point) -> None:
        """Raise :class:`ObjectiveError` if a second evaluation at ``point`` gives another value.

        Costs one value, once per objective; nothing for closed forms.
        """
        if self.deterministic:
            return
        first, second = point.value, self.at(point.x).value
        if not math.isfinite(first) or not math.isfinite(second):
            return  # numerical trouble is answered by a status, not by an error
        # Parallel reductions may differ in the last bits; noise from dropout is far above this. In half precision a
        # thousand times the last bit would be the number itself.
        eps = torch.finfo(self.dtype).eps
        slack = min(1e3 * eps, max(4.0 * eps, 1e-2)) * max(abs(first), abs(second))
        if abs(first - second) > slack:
            raise NotDeterministicError.between(first, second, self.name)
        self.deterministic = True

    def verify_curvature(self, point: Point) -> str | None:
        """Raise :class:`ObjectiveError` if ∇²f n is reported as zero at ``point`` although ∇f changes along n there.

        A custom backward pass that detaches its inputs makes automatic HVPs silently zero. Then the gradient changes in
        proportion to the step, and by the opposite amount for the opposite step; where ∇²f n = 0 is true (an inflection
        of f, a kink) it does not. Free where the HVP does not vanish; up to four gradients where it does. A loss
        that is detached in parts is not found: the other parts make a product that is not zero, only wrong.

        Returns:
            A sentence where the gradient changes in another way: a doubt, not an error.
        """
        if not point.finite or point.gradient_norm == 0.0 or bool(point.hessian_normal.any()):
            return None
        eps, tiny = torch.finfo(self.dtype).eps, torch.finfo(self.dtype).tiny
        largest = float(point.gradient.abs().max())
        scale = math.sqrt(eps) * max(float(point.x.abs().max()), math.sqrt(eps))
        direction = point.gradient / largest
        odd: list[Tensor] = []
        for length in (scale, 0.25 * scale):
            forth = self.at(point.x + length * direction).gradient - point.gradient
            size = float(forth.abs().max())
            # Noise, far below the √eps/4 by which the shorter step changes what it may; or zero is the nearest number.
            if size <= 30.0 * eps * largest or size <= tiny * length:
                return None
            back = self.at(point.x - length * direction).gradient - point.gradient
            if not float((forth + back).abs().max()) <= 0.1 * size < math.inf:
                return _DOUBT
            odd.append(0.5 * (forth - back))
        if not float((odd[0] - 4.0 * odd[1]).abs().max()) <= 0.1 * float(odd[0].abs().max()):
            return _DOUBT
        if float(point.x.abs().max()) > tiny ** (-1 / 6):  # so far out second derivatives may underflow inside f
            return _DOUBT
        raise ObjectiveError(
            "the second derivative is reported as zero, but the gradient changes in proportion to x: some operation "
            "of the loss has a backward pass that cannot be differentiated (it works on detached data or "
            "NumPy). Write that backward pass with differentiable torch operations."
        )


_DOUBT = (
    "the second derivative vanishes at the start although the gradient changes around it: an inflection, a kink, an "
    "underflow, or a backward pass that cannot be differentiated"
)


class WrappedObjective(Objective):
    """Another objective in other variables, with other products, or summed over processes.

    The ledger is that of ``inner``, whose points do the counting.
    """

    inner: Objective

    def __init__(self, inner: Objective) -> None:
        self.inner = inner
        self.ledger = inner.ledger
        self.dimension, self.dtype, self.device = inner.dimension, inner.dtype, inner.device
        self.deterministic, self.cheap_products = inner.deterministic, inner.cheap_products

    def verify_deterministic(self, point: Point) -> None:
        # The function underneath knows more about itself than its value, such as whether a derivative reaches x.
        assert point.inner is not None, "a point of this objective"
        self.inner.verify_deterministic(point.inner)


class WrappedPoint(Point):
    """A point of a :class:`WrappedObjective`; ``inner`` is the point underneath, which has the same value."""

    inner: Point

    def __init__(self, x: Tensor, inner: Point) -> None:
        super().__init__(x, Ledger())
        self.inner = inner

    def release(self) -> None:
        self.inner.release()

    def _evaluate_value(self) -> float:
        return self.inner.value


class SumPoint(Point):
    """A point of Σ_b weight_b f_b(x), evaluated part by part: no graph outlives its part.

    ``parts(curvature)`` yields the weights and points of the parts. Their ledgers are their own: together they make up
    one evaluation of f.
    """

    shares_forward = False

    def __init__(self, x: Tensor, ledger: Ledger, parts: Callable[[bool], Iterator[tuple[float, Point]]]) -> None:
        super().__init__(x, ledger)
        self._parts = parts

    def _evaluate_value(self) -> float:
        return sum(weight * part.value for weight, part in self._parts(False))

    def _evaluate_gradient(self) -> tuple[float, Tensor]:
        value, gradient = 0.0, torch.zeros_like(self.x)
        for weight, part in self._parts(False):
            gradient.add_(part.gradient, alpha=weight)
            value += weight * part.value
        return value, gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        product = torch.zeros_like(v)
        for weight, part in self._parts(True):
            product.add_(part.hvp(v), alpha=weight)
        return product
