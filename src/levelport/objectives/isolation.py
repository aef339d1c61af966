"""Evaluating a loss without leaving a trace: module buffers and random numbers stay as they were.

A loss is asked for many times during a teleport or a line search, but training must see none of it. Two things
move when a loss is merely evaluated: buffers of modules (the running statistics of BatchNorm) and the state of the
random number generators (dropout). Inside :func:`isolated` every module that is called works on copies of its
buffers, as do the modules inside it, and random numbers can be replayed. :func:`twice_differentiable` is the other half
of a solve: what training runs in half precision or in a fused kernel runs there in full, on operations that have second
derivatives.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from levelport.objective import ObjectiveError


@dataclass(frozen=True)
class RandomState:
    """The state of torch's generators: the CPU's, and that of one accelerator if the device is one."""

    cpu: Tensor
    accelerator: Tensor | None
    device: torch.device

    @classmethod
    def capture(cls, device: torch.device) -> RandomState:
        """The present state."""
        accelerator = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(torch.get_rng_state(), accelerator, device)

    def restore(self) -> None:
        """Make this state the present one."""
        torch.set_rng_state(self.cpu)
        if self.accelerator is not None:
            torch.cuda.set_rng_state(self.accelerator, self.device)


def finish(actions: list[Callable[[], object]]) -> None:
    """Run every action, however often an interrupt comes between; they must bear being run again. It comes after them.

    ``KeyboardInterrupt`` may arrive anywhere, also in a ``finally`` block: half-written parameters and borrowed buffers
    would stay behind.
    """
    interrupt: BaseException | None = None
    while actions:
        try:
            while actions:
                actions[0]()
                del actions[0]
        except Exception:
            raise
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def recover() -> None:
    """Finish what an interrupt has left unfinished in this thread; called where nothing can be under way."""


@contextmanager
def twice_differentiable(device: torch.device) -> Iterator[None]:
    """Autocast off, nothing compiled, and attention as the plain products and softmax that it is made of.

    Half-precision products would make f a staircase; the fused kernels behind ``scaled_dot_product_attention``, which
    is what most transformers call, have no second derivative, and neither have compiled backward passes.
    """
    with _without_autocast(device), _plain_attention(), eager():
        yield


def _without_autocast(device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()


def _plain_attention() -> AbstractContextManager[object]:
    """Free where a solver around it has asked for the same: torch's own context takes longer than a small loss."""
    cuda = torch.backends.cuda  # where torch asks on every device; not all versions know cuDNN's kernels
    fused = any(getattr(cuda, f"{kind}_sdp_enabled", bool)() for kind in ("flash", "mem_efficient", "cudnn"))
    return sdpa_kernel(SDPBackend.MATH) if fused or not cuda.math_sdp_enabled() else nullcontext()


@contextmanager
def eager() -> Iterator[None]:
    """Compiled modules run as they were before; only where something was compiled, since the compiler loads slowly."""
    stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    if stance is None or "torch._dynamo" not in sys.modules:
        yield
        return
    with stance("force_eager"), warnings.catch_warnings():
        # That a hook fires for the compiled module and for the one inside it does no harm here.
        warnings.filterwarnings("ignore", message="Using `torch.compile")
        yield


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """The caller's autocast and inference mode, which would reach into a solver's own products, are off in here.

    So are fused kernels of attention, once for all evaluations of a solve.
    """
    plain = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
    with plain, _without_autocast(device), _plain_attention():
        yield


class BufferCopies:
    """Copies of buffers that stand in for the originals during one evaluation.

    A module may put another tensor in the place of a copy, and ``torch.func.functional_call`` puts its own in the place
    of a buffer until it returns. So each place remembers which original every tensor stands for that it held at the end
    of a call: it gets that one back if it holds such a tensor, and is left alone if somebody else has put back another.
    """

    def __init__(self) -> None:
        self._modules: dict[int, nn.Module] = {}
        self._inside: dict[int, list[nn.Module]] = {}  # modules with buffers, by the one around them that was called
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}  # by original: modules may share one
        self._latest: dict[tuple[int, str], Tensor | None] = {}  # original of a place
        self._originals: dict[tuple[int, str, int], tuple[Tensor, Tensor | None]] = {}  # by place and what it held
        self._following: RemovableHandle | None = None  # from the first call on of a module with buffers

    @property
    def noticed(self) -> bool:
        """Whether a module was called."""
        return bool(self._modules)

    def _enter(self, module: nn.Module) -> None:
        """Those inside may be run without a call of their own: ``self.norm.forward(x)``, or in a scripted module."""
        self._modules[id(module)] = module
        parts = [module]
        for part in parts:
            for child in part._modules.values():
                if child is not None and id(child) not in self._modules:
                    self._modules[id(child)] = child
                    parts.append(child)
        self._inside[id(module)] = [part for part in parts if len(part._buffers) > 0]
        if self._inside[id(module)] and self._following is None:
            self._following = register_module_forward_hook(self.follow, always_call=True)

    def insert(self, module: nn.Module) -> None:
        """Before a call: copies in the place of originals. Called twice within one loss, it goes on with its copies."""
        if id(module) not in self._modules:
            self._enter(module)
        for part in self._inside.get(id(module), (module,)):
            for name, buffer in part._buffers.items():
                if buffer is None:
                    self._latest.setdefault((id(part), name), None)
                elif (id(part), name, id(buffer)) not in self._originals:
                    if id(buffer) not in self._copies:
                        self._copies[id(buffer)] = buffer, buffer.clone()
                    part._buffers[name] = copy = self._copies[id(buffer)][1]
                    self._latest[id(part), name] = buffer
                    self._originals[id(part), name, id(copy)] = copy, buffer

    def follow(self, module: nn.Module, *_: object) -> None:
        """After a call: what the module has put in the place of a copy stands for the same original."""
        for part in self._inside.get(id(module), (module,)):
            for name, buffer in part._buffers.items():
                key = id(part), name, id(buffer)
                if buffer is not None and key not in self._originals and key[:2] in self._latest:
                    self._originals[key] = buffer, self._latest[key[:2]]

    def restore(self) -> None:
        """Originals in the place of what stands for them."""
        if self._following is not None:
            self._following.remove()
        for key, module in self._modules.items():
            for name, buffer in module._buffers.items():
                if buffer is None:
                    original = self._latest.get((key, name))
                else:
                    _, original = self._originals.get((key, name, id(buffer)), (None, buffer))
                if original is not buffer:
                    module._buffers[name] = original


@contextmanager
def isolated(
    device: torch.device, *, replay: RandomState | None = None, full_precision: bool = False
) -> Iterator[BufferCopies]:
    """Whatever modules do to their buffers in here is undone at the end.

    Modules are noticed when they are called. One that is run by ``module.forward(x)`` alone, with no call of it or of a
    module around it, moves its buffers for good.

    Args:
        device: where the parameters live.
        replay: random numbers start from this state, so that every evaluation sees the same dropout mask, and the
            generators are put back at the end; None leaves them alone.
        full_precision: :func:`twice_differentiable`, autocast also where the loss switches it on around a module.
            DistributedDataParallel modules run alone, for the ranks' numbers are summed by
            :class:`~levelport.DistributedObjective`.
    """
    before = RandomState.capture(device) if replay is not None else None
    copies = BufferCopies()
    silenced: dict[int, tuple[DistributedDataParallel, bool, bool]] = {}

    def prepare(module: nn.Module, _inputs: object) -> None:
        if full_precision:
            if isinstance(module, DistributedDataParallel) and id(module) not in silenced:
                silenced[id(module)] = module, module.require_backward_grad_sync, module.require_forward_param_sync
                # Alone: it would send buffers and gradients, but no gradients of gradients.
                module.require_backward_grad_sync = module.require_forward_param_sync = False
            _reject_foreign(module)
            if torch.is_autocast_enabled(device.type):
                # Leaving the autocast block of the loss sets the state it found on entry: off.
                torch.set_autocast_enabled(device.type, False)
        copies.insert(module)

    handle = register_module_forward_pre_hook(prepare)
    try:
        if replay is not None:
            replay.restore()
        with twice_differentiable(device) if full_precision else eager():
            yield copies
    finally:
        handle.remove()
        for parallel, backward, forward in silenced.values():
            parallel.require_backward_grad_sync, parallel.require_forward_param_sync = backward, forward
        copies.restore()
        if before is not None:
            before.restore()


def _reject_foreign(module: nn.Module) -> None:
    """Modules of which a framework takes the backward pass into its own hands, in hooks that know first ones alone."""
    name = type(module).__name__
    if name.startswith(("FullyShardedDataParallel", "FSDP")):
        raise ObjectiveError(
            "the loss calls a module that FSDP has sharded, whose second derivatives do not reach the shards. Teleport "
            "before sharding, or replicate the model by DistributedDataParallel, with which teleports work."
        )
    if name == "_FabricModule":
        raise ObjectiveError(
            "the loss calls a module that Fabric has set up, which allows no derivatives but those of fabric.backward. "
            "Call the one inside it, model.module: it has the same parameters."
        )
