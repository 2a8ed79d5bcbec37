"""Keeping our own frames, and our way of calling modules, away from torch.compile's tracer."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from torch import nn

from opscope.adapters.shared.imported import when_imported
from opscope.adapters.shared.patch import Patches

_Function = TypeVar("_Function")
_Result = TypeVar("_Result")


def _strategies() -> Any:
    try:
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )
    except ImportError:  # older torch
        return None

    def mark(code: Any, below: bool) -> None:
        follow = _FrameAction.SKIP if below else _FrameAction.DEFAULT
        set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, follow))

    return mark


_mark: Final = _strategies()
#: Whether this torch lets frames be marked, with what they call.
CAN_MARK: Final = _mark is not None


def untraced(function: _Function, below: bool = True) -> _Function:
    """``function``, its frames run as they are where torch.compile would compile them.

    That happens to a hook that is called between two graphs: compiled, it would think for good that
    it is part of a compilation. ``below``: what it calls is not compiled either; without, the user's
    code below still is. Where the function is traced as part of a graph, nothing changes.
    """
    if _mark is not None:
        _mark(function.__code__, below)  # type: ignore[attr-defined]
    return function


def skipped(function: _Function) -> _Function:
    """``untraced``, but for the user's code below, on older torch too."""
    if _mark is None:
        from torch._C._dynamo.eval_frame import skip_code  # type: ignore[attr-defined,unused-ignore]

        skip_code(function.__code__)  # type: ignore[attr-defined]
    return untraced(function, below=False)


def shielded(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """``untraced``, on older torch too; for what is never traced as part of a graph."""
    if _mark is not None:
        return untraced(function)
    from torch._C._dynamo.eval_frame import set_eval_frame

    @functools.wraps(function)
    def alone(*args: Any) -> _Result:
        tracer = set_eval_frame(None)
        try:
            return function(*args)
        finally:
            set_eval_frame(tracer)

    return skipped(alone)


#: Where frames are traced, for torch.compile and for torch.export; older versions lack the second.
_TRACERS: Final = ("torch._dynamo.convert_frame", "torch._dynamo.functional_export")
#: What traces a frame there, or asks how a module is called.
_TRACES: Final = ("_compile", "fullgraph_capture", "get_traced_fn")


class Hidden:
    """A way of calling modules that is not there while torch.compile traces.

    It would trace through ours, and though that leaves nothing in the graph, it inlines a module
    whose call is not PyTorch's own in another way: the graph's inputs come in another order, so that
    the compile cache has another key. Other threads' modules are called as without us meanwhile; we do
    nothing for them anyway while anything is compiled.
    """

    def __init__(self) -> None:
        #: ``nn.Module._call_impl``, and what was there before us.
        self._ours: Callable[..., Any] | None = None
        self._original: Callable[..., Any] | None = None
        self._depth = 0
        self._lock = threading.Lock()
        self._patches = Patches()
        self._installed = False

    def install(self) -> None:
        """Hide what is held from the tracer, now or when it is imported."""
        self._installed = True
        for name in _TRACERS:
            when_imported(name, self._wrap)

    def uninstall(self) -> None:
        """Put the tracer back as it was."""
        self._installed = False
        self._patches.restore()

    def hold(self, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Let modules be called by what ``around`` makes of PyTorch's way, but not when it traces."""
        with self._lock:
            if self._ours is None:
                self._original = nn.Module._call_impl
                self._ours = around(nn.Module._call_impl)
                if not self._depth:
                    nn.Module._call_impl = self._ours

    def remove(self) -> None:
        """Put PyTorch's own way back, unless another tool has patched on top of us."""
        with self._lock:
            self._exchange(self._ours, self._original)
            self._ours = self._original = None

    def _exchange(self, old: Any, new: Any) -> None:
        if new is not None and nn.Module.__dict__["_call_impl"] is old:
            nn.Module._call_impl = new

    def _wrap(self, tracer: Any) -> None:
        for name in _TRACES:
            function = getattr(tracer, name, None)
            if self._installed and function is not None:
                # The second imports from the first what may be ours already: to be undone there too.
                original = getattr(function, "_opscope", function)
                setattr(tracer, name, original)
                self._patches.set(tracer, name, self._around(original))

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            self._within(1)
            try:
                return function(*args, **kwargs)
            finally:
                self._within(-1)

        traced._opscope = function  # type: ignore[attr-defined]
        return traced

    def _within(self, step: int) -> None:
        with self._lock:
            before = self._depth
            self._depth += step
            if not before:
                self._exchange(self._ours, self._original)
            elif not self._depth:
                self._exchange(self._original, self._ours)
