"""Kernels that the user wrote in Triton: a range around each launch, with its tensors, numbers and grid.

They are launched from Python and never pass PyTorch's dispatcher. While something listens, the method is
patched that launches every ``@triton.jit`` function. Kernels that Inductor generates do not pass there
(``inductor``). A kernel that its autotuner tries has a range too; those ranges are in the phase ``compile``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import torch

from opscope.adapters.shared.imported import when_imported
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import NOWHERE, Source, Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.schema import OpCall

from .call import Unsigned, describe, sign
from .dispatch import MAX_ENTRIES, MAX_VARIANTS, OpMode
from .dynamo import untraced
from .state import Threads

_JIT: Final = "triton.runtime.jit"
_AUTOTUNER: Final = "triton.runtime.autotuner"
#: With ``TRITON_INTERPRET=1``: it runs the function itself, block by block.
_INTERPRETER: Final = "triton.runtime.interpreter"
_TRITON: Final = "triton."
_node = torch._C._current_autograd_node
_grad_enabled = torch.is_grad_enabled
#: Types that are written as they are.
_PLAIN: Final = (torch.Tensor, torch.dtype, bool, int, float, str)
#: Attributes that identify an object: a descriptor's tensor; a constant's value; the name of a function or
#: dtype.
_TELLING: Final = (
    ("base", torch.Tensor), ("value", _PLAIN), ("__name__", str), ("name", str),
)  # fmt: skip


class TritonKernels:
    """Observes launches from ``install`` to ``uninstall``, while something listens."""

    def __init__(
        self,
        emitter: Emitter,
        mode: OpMode,
        threads: Threads,
        sources: Sources | None,
        shapes: bool,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._mode = mode
        self._threads = threads
        self._sources = sources
        self._shapes = shapes
        self._failed = failed
        self._patches = Patches()
        self._installed = False
        #: A call's key → its prepared text; the key without numbers → how many different numbers were seen.
        self._texts: dict[tuple[Any, ...], Prepared] = {}
        self._variants: dict[tuple[Any, ...], int] = {}

    def install(self) -> None:
        """Patch, as soon as Triton is imported and something listens."""
        self._installed = True
        for name in (_JIT, _AUTOTUNER, _INTERPRETER):
            when_imported(name, self._imported)

    def uninstall(self) -> None:
        """Remove every patch."""
        self._installed = False
        self._patches.restore()

    def _imported(self, module: Any) -> None:
        self.listen()

    def listen(self) -> None:
        """Follow the listener: patch, or restore."""
        if not self._installed or not self._emitter.active:
            self._patches.restore()
            return
        for module, name, method, make in (
            (_JIT, "JITFunction", "run", self._running),
            (_INTERPRETER, "InterpretedFunction", "run", self._running),
            (_AUTOTUNER, "Autotuner", "_bench", _trying),
        ):
            owner = getattr(sys.modules.get(module), name, None)
            if owner is not None and method in vars(owner) and not self._patches.has(owner, method):
                self._patches.wrap(owner, method, make)

    def _running(self, original: Any) -> Any:
        emitter, begin = self._emitter, self._begin

        @functools.wraps(original)
        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            # a warm-up compiles and launches nothing
            if not emitter.active or kwargs.get("warmup"):
                return original(kernel, *args, **kwargs)
            pushed = begin(kernel, args, kwargs)
            try:
                return original(kernel, *args, **kwargs)
            finally:
                if pushed:
                    emitter.pop()

        return untraced(run, below=False)

    def _begin(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Push the range of a launch; return whether there is one to pop."""
        try:
            self._emitter.push(self._text(kernel, args, kwargs))
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a Triton kernel could not be described")
            return False
        return True

    def _text(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Prepared:
        name = f"triton::{getattr(kernel, '__name__', None) or 'kernel'}"
        source = NOWHERE if self._sources is None else self._sources.find(_caller(sys._getframe(3)))
        category = self._category()
        given = dict(_given(kernel, args, kwargs)) if self._shapes else {}
        bare: list[Any] = [name, category, source, *given]
        key: list[Any] = list(bare)
        try:
            sign(bare, given.values(), False)
            sign(key, given.values())
        except Unsigned:
            return self._prepare(name, given, source, category)
        text = self._texts.get(tuple(key))
        if text is not None:
            return text
        if len(self._texts) >= MAX_ENTRIES or len(self._variants) >= MAX_ENTRIES:
            self._texts.clear()
            self._variants.clear()
        variant = tuple(bare)
        seen = self._variants.get(variant, 0)
        if seen >= MAX_VARIANTS:  # a number that changes all the time
            text = self._texts.get(variant)
            if text is None:
                text = self._texts[variant] = self._prepare(name, given, source, category, True)
            return text
        self._variants[variant] = seen + 1
        text = self._texts[tuple(key)] = self._prepare(name, given, source, category)
        return text

    def _prepare(
        self, name: str, given: dict[str, Any], source: Source, category: str, varies: bool = False
    ) -> Prepared:
        if not self._shapes:
            return self._emitter.prepare(OpCall(name, frames=source.frames), category)
        arguments = tuple((key, _has_tensor(value), None, None) for key, value in given.items())
        call = describe(name, arguments, tuple(given.values()), {}, source.frames, varies)
        return self._emitter.prepare(call, category)

    def _category(self) -> str:
        state = self._threads.current()
        if state.forced_category is not None:
            return state.forced_category
        # as in the dispatch mode: a checkpoint recomputes its forward within a node, with grad mode on
        if _node() is not None and (self._mode.creating or not _grad_enabled()):
            return "backward"
        return "optimizer" if state.optimizing and not _grad_enabled() else "forward"


def _given(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a launch by name; the grid too, unless a function of the arguments makes it."""
    names = list(getattr(kernel, "arg_names", ()))
    names += [f"arg{index}" for index in range(len(names), len(args))]
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        if name == "warmup" or value is None or (name == "grid" and callable(value)):
            continue
        if name == "grid":
            yield name, [int(number) for number in value]
        else:
            yield name, _write(value)


def _write(value: Any) -> Any:
    """Return the text of an argument. For an object, it is its name, value or type, never ``str()``: that
    of a tensor's descriptor contains the tensor's values, which would wait for the device."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        return [_write(item) for item in value]
    for attribute, kinds in _TELLING:
        value_of_attribute = getattr(value, attribute, None)
        if isinstance(value_of_attribute, kinds):
            return value_of_attribute
    return type(value).__name__


def _has_tensor(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, torch.Tensor)


def _caller(frame: FrameType | None) -> FrameType | None:
    """Return the frame that launched, below those of Triton."""
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_TRITON):
        frame = frame.f_back
    return frame


def _trying(original: Any) -> Any:
    @functools.wraps(original)
    def _bench(*args: Any, **kwargs: Any) -> Any:
        with session.phase("compile"):
            return original(*args, **kwargs)

    return untraced(_bench, below=False)
