"""Hides opscope's frames and its wrapper of module calls from torch.compile's tracer."""

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
#: Whether this torch can exclude frames, and the frames that they call, from compilation.
CAN_MARK: Final = _mark is not None


def untraced(function: _Function, below: bool = True) -> _Function:
    """Mark ``function`` so that torch.compile does not compile its frames; return it.

    torch.compile would otherwise compile a hook that is called between two FX graphs. Once compiled, the hook
    would always take itself for part of a compilation. With ``below``, the functions that it calls are not
    compiled either; without it, the user's code below still is. Where the function is traced as part of a
    graph, nothing changes.
    """
    if _mark is not None:
        _mark(function.__code__, below)  # type: ignore[attr-defined]
    return function


def skipped(function: _Function) -> _Function:
    """``untraced(function, below=False)``, on older torch too."""
    if _mark is None:
        from torch._C._dynamo.eval_frame import skip_code  # type: ignore[attr-defined,unused-ignore]

        skip_code(function.__code__)  # type: ignore[attr-defined]
    return untraced(function, below=False)


def shielded(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """``untraced(function)``, on older torch too, for functions that are never traced as part of a graph."""
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


#: The modules that trace frames, for torch.compile and for torch.export; older versions lack the second.
_TRACERS: Final = ("torch._dynamo.convert_frame", "torch._dynamo.functional_export")
#: Their functions that trace a frame, or look up how a module is called.
_TRACES: Final = ("_compile", "fullgraph_capture", "get_traced_fn")


class Hidden:
    """A wrapper of module calls that is removed while torch.compile traces.

    Tracing through the wrapper adds nothing to the FX graph, but torch.compile inlines a module differently
    if its call is not PyTorch's own: the graph's inputs come in another order, which changes the compile
    cache's key. During a trace, modules on other threads run without the wrapper too; it does nothing for
    them anyway while anything is compiled.
    """

    def __init__(self) -> None:
        #: Our ``nn.Module._call_impl``, and the original.
        self._ours: Callable[..., Any] | None = None
        self._original: Callable[..., Any] | None = None
        self._depth = 0
        self._lock = threading.Lock()
        self._patches = Patches()
        self._installed = False

    def install(self) -> None:
        """Hide the wrapper from the tracer, as soon as the tracer is imported."""
        self._installed = True
        for name in _TRACERS:
            when_imported(name, self._wrap)

    def uninstall(self) -> None:
        """Restore the tracer's functions."""
        self._installed = False
        self._patches.restore()

    def hold(self, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Call modules through ``around(nn.Module._call_impl)``, except during a trace."""
        with self._lock:
            if self._ours is None:
                self._original = nn.Module._call_impl
                self._ours = around(nn.Module._call_impl)
                if not self._depth:
                    nn.Module._call_impl = self._ours

    def remove(self) -> None:
        """Restore PyTorch's method, unless another tool has patched on top of ours."""
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
                # The second module imports from the first, perhaps a wrapper of ours: restore that too.
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
