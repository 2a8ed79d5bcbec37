"""Records higher-order ops (``cond``, ``while_loop``, ``flex_attention``) under the native observer.

They are called from Python and never pass PyTorch's dispatcher in C++, so a callback there sees the ops that
they call but not the higher-order ops themselves. A dispatch mode is called for each; it needs only ``Rules``
of this module, in versions (2.6) that refuse a higher-order op without a rule for the mode.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import Sources
from opscope.core.capture.emit import Emitter
from opscope.core.schema import OpCall

from .call import describe, with_result
from .dispatch import OpMode
from .dynamo import untraced

_MODES: Final = tuple(
    getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL")
)


class HigherOrder:
    """Puts a range around each call of a higher-order op, with the same text as the dispatch mode."""

    def __init__(
        self,
        emitter: Emitter,
        sources: Sources | None,
        shapes: bool,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._sources = sources
        self._shapes = shapes
        self._failed = failed
        self._local = threading.local()
        self._patches = Patches()

    def install(self) -> None:
        """Wrap the ``__call__`` that all higher-order ops share."""
        if self._patches:
            return
        original = HigherOrderOperator.__call__
        begin, end, local = self._begin, self._end, self._local
        compiler = torch.compiler

        @functools.wraps(original)
        def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            # The op calls itself again for each dispatch key: only the outermost call is a range.
            if compiler._is_compiling_flag or getattr(local, "inside", None) is self or _tracing():
                return original(self, *args, **kwargs)
            outer = getattr(local, "inside", None)
            call = begin(self, args, kwargs)
            local.inside = self
            result = None
            try:
                result = original(self, *args, **kwargs)
                return result
            finally:
                local.inside = outer
                if call is not None:
                    end(call, args, kwargs, result)

        self._patches.set(HigherOrderOperator, "__call__", untraced(__call__, below=False))

    def uninstall(self) -> None:
        """Restore ``__call__``, unless another tool has patched on top of ours."""
        self._patches.restore()

    def _begin(self, op: Any, args: Any, kwargs: Any) -> OpCall | None:
        try:
            name = f"{getattr(op, 'namespace', None) or 'higher_order'}::{op.name()}"
            source = None if self._sources is None else self._sources.find(sys._getframe(2))
            frames = () if source is None else source.frames
            if self._shapes:
                call = describe(name, None, args, kwargs, frames)
            else:
                call = OpCall(name, frames=frames)
            self._emitter.push(self._emitter.prepare(call, "forward"))
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a higher-order op could not be described")
            return None
        return call

    def _end(self, call: OpCall, args: Any, kwargs: Any, result: Any) -> None:
        complete = None
        try:
            if self._shapes and result is not None:
                call_with_result = with_result(call, None, args, kwargs, result)
                new = call.device is None
                complete = self._emitter.prepare(call_with_result, "forward", device_is_new=new)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the result of a higher-order op could not be described")
        self._emitter.pop(complete)


class Rules:
    """Adds a rule for the dispatch mode to higher-order ops, in versions that require one.

    The rule is added at the op's first call, because ops are made later too, when their modules are imported.
    """

    def __init__(self) -> None:
        self._original: Any = None
        self._patched: Any = None

    def install(self) -> None:
        """Wrap the method that looks the rule up."""
        if self._patched is not None or hasattr(
            TorchDispatchMode, "supports_higher_order_operators"
        ):
            return
        original = self._original = HigherOrderOperator.dispatch

        @functools.wraps(original)
        def dispatch(self: Any, /, dispatch_key: Any, *args: Any, **kwargs: Any) -> Any:
            self.python_key_table.setdefault(OpMode, functools.partial(_by_mode, self))
            return original(self, dispatch_key, *args, **kwargs)

        self._patched = untraced(dispatch, below=False)
        HigherOrderOperator.dispatch = self._patched

    def uninstall(self) -> None:
        """Remove the rules."""
        if self._patched is None:
            return
        if HigherOrderOperator.__dict__.get("dispatch") is self._patched:
            HigherOrderOperator.dispatch = self._original
        self._original = self._patched = None
        for op in torch._ops._higher_order_ops.values():
            op.python_key_table.pop(OpMode, None)


def _by_mode(op: Any, mode: OpMode, /, *args: Any, **kwargs: Any) -> Any:
    return mode.__torch_dispatch__(op, (), args, kwargs)


def _tracing() -> bool:
    """Whether a compiler or an exporter traces the program with fake tensors."""
    return any(torch._C._get_dispatch_mode(key) is not None for key in _MODES)
