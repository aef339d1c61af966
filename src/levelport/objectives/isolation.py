"""Evaluating a loss without leaving a trace: module buffers and random numbers stay as they were.

A loss is asked for many times during a teleport or a line search, but training must see none of it. Two things
move when a loss is merely evaluated: buffers of modules (the running statistics of BatchNorm) and the state of the
random number generators (dropout). Inside :func:`isolated` every module that is called works on copies of its
buffers, as do the modules inside it, and random numbers can be replayed. :func:`twice_differentiable` is the other half
of a solve: what training runs in half precision or in a fused kernel runs there in full, on operations that have second
derivatives.

Hooks on module calls and the choice of attention kernels belong to the whole process. Threads share one hook, which
acts on modules of the evaluations of its own thread only, and the kernels are put back when the last of them is done.
Cleaning up is finished in spite of interrupts (:func:`restoring`), at the latest by the next call (:func:`recover`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import dropwhile
from traceback import walk_stack

import torch
from torch import Tensor, nn
from torch.backends import cuda
from torch.nn.modules import module as calls
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from levelport.objectives.structure import check_not_foreign


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


class _Local(threading.local):
    """Of each thread: the evaluations that are under way, and what has to be put back."""

    def __init__(self) -> None:
        self.active: list[_Evaluation] = []
        self.unfinished: list[Callable[[], object]] = []


_local = _Local()


@contextmanager
def restoring(action: Callable[[], object]) -> Iterator[None]:
    """Run ``action`` at the end of the block, in spite of interrupts; it must bear being run again.

    ``KeyboardInterrupt`` may arrive anywhere, also in a ``finally`` block: half-written parameters and borrowed buffers
    would stay behind. One that arrives in ``action`` is raised after it; where one prevents that ``action`` begins, the
    next call runs it (:func:`recover`).
    """
    unfinished = _local.unfinished
    unfinished.append(action)
    try:
        yield
    finally:
        interrupt: BaseException | None = None
        while action in unfinished:
            try:
                _settle(action)
            except Exception:
                raise  # of the action itself, which is settled by it
            except BaseException as error:
                interrupt = error  # comes again after the action
        if interrupt is not None:
            raise interrupt


def _settle(action: Callable[[], object]) -> None:
    """Run what is unfinished; an error ends it as well, an interrupt does not."""
    try:
        action()
    except Exception:
        _local.unfinished.remove(action)
        raise
    _local.unfinished.remove(action)


def recover() -> None:
    """Finish what an interrupt has left unfinished in this thread: what every call begins with."""
    while _local.unfinished and not _is_nested():
        _settle(_local.unfinished[-1])


def _is_nested() -> bool:
    """Return True if a loss or a callback that levelport has called is calling it: nothing is left unfinished then."""
    names = (frame.f_globals.get("__name__", "") for frame, _ in walk_stack(sys._getframe(2)))
    ours = [name.partition(".")[0] == "levelport" for name in names]
    return any(dropwhile(bool, ours))


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """``torch.set_grad_enabled`` that ends in spite of interrupts, also where one arrives in its ``__exit__``."""
    before = torch.is_grad_enabled()
    with restoring(lambda: torch.set_grad_enabled(before)):
        torch.set_grad_enabled(enabled)
        yield


class Shared:
    """A switch of the whole process that threads use together: the first one sets it, the last one puts it back.

    Args:
        begin, end: set it and put it back; both may be called again, also where an interrupt has stopped them.
    """

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin, self._end = begin, end
        self._lock = threading.RLock()
        self._users: set[object] = set()
        self._on = False

    def enter(self, user: object) -> None:
        """Set it for ``user``, once."""
        with self._lock:
            self._users.add(user)
            if not self._on:
                self._begin()
                self._on = True

    def leave(self, user: object) -> None:
        """``user`` needs it no longer; says so as often as it likes."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self._end()
                self._on = False

    def __call__(self) -> AbstractContextManager[None]:
        """Context for this thread; inside another one there is nothing to do."""
        return nullcontext() if threading.get_ident() in self._users else self._used()

    @contextmanager
    def _used(self) -> Iterator[None]:
        user = threading.get_ident()
        with restoring(lambda: self.leave(user)):
            self.enter(user)
            yield


@contextmanager
def twice_differentiable(device: torch.device) -> Iterator[None]:
    """Autocast off, nothing compiled, and attention as the plain products and softmax that it is made of.

    Half-precision products would make f a staircase; the fused kernels behind ``scaled_dot_product_attention``, which
    is what most transformers call, have no second derivative, and neither have compiled backward passes.
    """
    half = torch.is_autocast_enabled(device.type)
    with torch.autocast(device.type, enabled=False) if half else nullcontext(), _plain_attention(), eager():
        yield


_KERNELS: list[tuple[Callable[[], bool], Callable[[bool], None], bool]] = [
    (cuda.flash_sdp_enabled, cuda.enable_flash_sdp, False),
    (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp, False),
    (cuda.math_sdp_enabled, cuda.enable_math_sdp, True),
]
if hasattr(cuda, "enable_cudnn_sdp"):
    _KERNELS.append((cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp, False))
_enabled_before: list[bool] = []


def _begin_plain_attention() -> None:
    if not _enabled_before:
        _enabled_before[:] = [enabled() for enabled, _, _ in _KERNELS]
    for _, enable, wanted in _KERNELS:
        enable(wanted)


def _end_plain_attention() -> None:
    for (_, enable, _), before in zip(_KERNELS, _enabled_before, strict=False):
        enable(before)
    _enabled_before.clear()


_plain_attention = Shared(_begin_plain_attention, _end_plain_attention)
"""Attention as products and softmax, on every device."""


def eager() -> AbstractContextManager[object]:
    """Compiled modules run as they were before; only where something was compiled, since the compiler loads slowly."""
    compiled = hasattr(torch.compiler, "set_stance") and "torch._dynamo" in sys.modules  # the first since torch 2.6
    if not compiled:
        return nullcontext()
    from levelport.objectives.compiled import force_eager

    return force_eager()


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """:func:`twice_differentiable` once for all evaluations of a solve, and the caller's inference mode is off."""
    plain = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
    with plain, twice_differentiable(device):
        yield


class BufferCopies:
    """Copies of buffers that stand in for the originals during one evaluation.

    A module may put another tensor in the place of a copy, and ``torch.func.functional_call`` puts its own in the place
    of a buffer until it returns. So each place remembers which original every tensor stands for that it held at the end
    of a call: it gets that one back if it holds such a tensor, and is left alone if another owner has put back another.
    """

    def __init__(self) -> None:
        self.modules: dict[int, nn.Module] = {}
        """By id: those that were called, and those inside them."""
        self._inside: dict[int, list[nn.Module]] = {}  # modules with buffers, by the one around them that was called
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}  # by original: modules may share one
        self._latest: dict[tuple[int, str], Tensor | None] = {}  # original of a place
        self._originals: dict[tuple[int, str, int], tuple[Tensor, Tensor | None]] = {}  # by place and what it held

    def _enter(self, module: nn.Module) -> None:
        """Those inside may be run without a call of their own: ``self.norm.forward(x)``, or in a scripted module."""
        self.modules[id(module)] = module
        parts = [module]
        for part in parts:
            for child in part._modules.values():
                if child is not None and id(child) not in self.modules:
                    self.modules[id(child)] = child
                    parts.append(child)
        self._inside[id(module)] = [part for part in parts if len(part._buffers) > 0]

    def insert(self, module: nn.Module) -> None:
        """Before a call: copies in the place of originals. Called twice within one loss, it goes on with its copies."""
        if id(module) not in self.modules:
            self._enter(module)
        for part in self._inside.get(id(module), (module,)):
            for name, buffer in part._buffers.items():
                if buffer is None:
                    self._latest.setdefault((id(part), name), None)
                elif (id(part), name, id(buffer)) not in self._originals:
                    if id(buffer) not in self._copies:
                        self._copies[id(buffer)] = buffer, buffer.clone()
                    copy = self._copies[id(buffer)][1]
                    self._latest[id(part), name] = buffer
                    self._originals[id(part), name, id(copy)] = copy, buffer
                    part._buffers[name] = copy  # last: an interrupt in between leaves the original in its place

    def follow(self, module: nn.Module) -> None:
        """After a call: what the module has put in the place of a copy stands for the same original."""
        for part in self._inside.get(id(module), (module,)):
            for name, buffer in part._buffers.items():
                key = id(part), name, id(buffer)
                if buffer is not None and key not in self._originals and key[:2] in self._latest:
                    self._originals[key] = buffer, self._latest[key[:2]]

    def restore(self) -> None:
        """Originals in the place of what stands for them."""
        for key, module in self.modules.items():
            for name, buffer in module._buffers.items():
                if buffer is None:
                    original = self._latest.get((key, name))
                else:
                    _, original = self._originals.get((key, name, id(buffer)), (None, buffer))
                if original is not buffer:
                    module._buffers[name] = original


class _Evaluation:
    """The context of one evaluation of a loss, from :meth:`open` to :meth:`close`, which may be called again."""

    def __init__(self, device: torch.device, replay: RandomState | None, full_precision: bool) -> None:
        self.buffers = BufferCopies()
        self._device = device
        self._replay = replay
        self._before = RandomState.capture(device) if replay is not None else None
        self._full_precision = full_precision
        self._silenced: dict[int, tuple[DistributedDataParallel, bool, bool]] = {}

    def open(self) -> None:
        _local.active.append(self)
        _everyone.append(self)
        _calls.enter(self)
        if self._replay is not None:
            self._replay.restore()

    def prepare(self, module: nn.Module) -> None:
        """Before a call of ``module``."""
        if self._full_precision:
            if isinstance(module, DistributedDataParallel) and id(module) not in self._silenced:
                flags = module.require_backward_grad_sync, module.require_forward_param_sync
                self._silenced[id(module)] = module, *flags
                # Alone: it would send buffers and gradients, but no gradients of gradients.
                module.require_backward_grad_sync = module.require_forward_param_sync = False
            check_not_foreign(module)
            if torch.is_autocast_enabled(self._device.type):
                # Leaving the autocast block of the loss sets the state it found on entry: off.
                torch.set_autocast_enabled(self._device.type, False)
        self.buffers.insert(module)

    def close(self) -> None:
        for parallel, backward, forward in self._silenced.values():
            parallel.require_backward_grad_sync, parallel.require_forward_param_sync = backward, forward
        self.buffers.restore()
        if self._before is not None:
            self._before.restore()
        _calls.leave(self)
        for listed in (_everyone, _local.active):
            if self in listed:
                listed.remove(self)


_everyone: list[_Evaluation] = []


def _concerned(module: nn.Module) -> list[_Evaluation]:
    """The evaluations of this thread; in a thread of autograd's, which runs checkpointed modules again, their owner."""
    if _local.active or not isinstance(threading.current_thread(), threading._DummyThread):
        return _local.active
    return [evaluation for evaluation in list(_everyone) if id(module) in evaluation.buffers.modules]


def _before_call(module: nn.Module, _inputs: object) -> None:
    for evaluation in _concerned(module):
        evaluation.prepare(module)


def _after_call(module: nn.Module, *_: object) -> None:
    for evaluation in _concerned(module):
        evaluation.buffers.follow(module)


# The handles are made beforehand: functions that register hooks write before they return one, and an interrupt may come
# between.
_call = RemovableHandle(calls._global_forward_pre_hooks)
_return = RemovableHandle(calls._global_forward_hooks, extra_dict=calls._global_forward_hooks_always_called)


def _notice_calls() -> None:
    calls._global_forward_hooks_always_called[_return.id] = True  # also where the module raises
    calls._global_forward_hooks[_return.id] = _after_call
    calls._global_forward_pre_hooks[_call.id] = _before_call


def _ignore_calls() -> None:
    _call.remove()
    _return.remove()


_calls = Shared(_notice_calls, _ignore_calls)


@contextmanager
def before_calls(hook: Callable[[nn.Module, object], None]) -> Iterator[None]:
    """``hook`` runs before every call of a module, in any thread."""
    handle = RemovableHandle(calls._global_forward_pre_hooks)
    with restoring(handle.remove):
        calls._global_forward_pre_hooks[handle.id] = hook
        yield


@contextmanager
def isolated(
    device: torch.device, *, replay: RandomState | None = None, full_precision: bool = False
) -> Iterator[BufferCopies]:
    """Whatever modules do to their buffers in here is undone at the end.

    Modules are noticed when they are called, in this thread. One that is run by ``module.forward(x)`` alone, with no
    call of it or of a module around it, moves its buffers for good.

    Args:
        device: where the parameters live.
        replay: random numbers start from this state, so that every evaluation sees the same dropout mask, and the
            generators are put back at the end; None leaves them alone.
        full_precision: :func:`twice_differentiable`, autocast also where the loss switches it on around a module.
            DistributedDataParallel modules run alone, for the ranks' numbers are summed by
            :class:`~levelport.DistributedObjective`.
    """
    evaluation = _Evaluation(device, replay, full_precision)
    with restoring(evaluation.close):
        evaluation.open()
        with twice_differentiable(device) if full_precision else eager():
            yield evaluation.buffers
