"""Keeping our own frames and module hooks away from torch.compile's tracer."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import torch
from torch.nn.modules import module as registry

from opscope.adapters.patch import Patches

_Function = TypeVar("_Function")


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
#: Whether this torch lets frames be marked.
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


#: Where frames are traced, for torch.compile and for torch.export; older versions lack the second.
_TRACERS: Final = ("torch._dynamo.convert_frame", "torch._dynamo.functional_export")
#: What traces a frame there, or asks whether a module has hooks.
_TRACES: Final = ("_compile", "fullgraph_capture", "get_traced_fn")
#: The dictionaries that ours are in, as guards name them.
_OURS: Final = re.compile(r"_global_forward_(pre_hooks|hooks|hooks_always_called)('\])?$")
#: The dictionaries of global module hooks, by id.
_HOOKS: Final = [
    hooks
    for name, hooks in vars(registry).items()
    if re.fullmatch(r"_global_(forward|backward)_\w*hooks\w*", name)
]


class Hidden:
    """Global module hooks that are not there while torch.compile traces.

    It would trace through them, and though they leave nothing in the graph, it inlines a module with
    hooks in another way: the graph's inputs come in another order, so that the compile cache has
    another key; guards ask for the hooks, so that it compiles anew when they go; and torch.export
    refuses. What is made without them runs with them too, so no guard shall ask that there are none.
    Where others have global hooks all is left as it is. Other threads' modules lack ours meanwhile;
    there they do nothing anyway while anything is compiled.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._handles: list[Any] = []
        #: What was taken out: its dictionary, its id, the hook.
        self._taken: list[tuple[Any, int, Any]] = []
        self._depth = 0
        self._lock = threading.Lock()
        self._patches = Patches()
        self._installed = False

    def install(self) -> None:
        """Hide what is held from the tracer, now or when it is imported."""
        import wrapt

        self._installed = True
        for name in _TRACERS:
            wrapt.register_post_import_hook(self._wrap, name)
        self._patches.set(torch._guards.Guard, "create", self._creating(torch._guards.Guard.create))
        ask = getattr(registry, "_has_any_global_hook", None)
        if ask is not None:  # whether to warn the user
            self._patches.set(registry, "_has_any_global_hook", self._asking(ask))

    def uninstall(self) -> None:
        """Put the tracer back as it was."""
        self._installed = False
        self._patches.restore()

    @property
    def held(self) -> bool:
        return bool(self._handles)

    def hold(self, handles: list[Any]) -> None:
        """Hide the hooks of these handles when it traces."""
        with self._lock:
            self._handles = handles
            if self._depth:
                self._take()

    def remove(self) -> None:
        """Remove the hooks, hidden or not."""
        with self._lock:
            for handle in self._handles:
                handle.remove()
            self._handles, self._taken = [], []

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
        try:
            with self._lock:
                outermost = not self._depth
                self._depth += step
                if outermost:
                    self._take()
                elif not self._depth:
                    self._give_back()
        except Exception:  # noqa: BLE001 - raised into the user's compilation otherwise
            self._failed("module hooks could not be kept from torch.compile")

    def _take(self) -> None:
        if self._others():
            return
        for handle in self._handles:
            for hooks in (handle.hooks_dict_ref(), *(ref() for ref in handle.extra_dict_ref)):
                if hooks is not None and handle.id in hooks:
                    self._taken.append((hooks, handle.id, hooks.pop(handle.id)))

    def _give_back(self) -> None:
        for hooks, number, hook in self._taken:
            hooks[number] = hook
            for later in [one for one in hooks if one > number]:  # they are run in order of age
                hooks.move_to_end(later)
        self._taken = []

    def _others(self) -> bool:
        ours = {handle.id for handle in self._handles}
        return any(hooks.keys() - ours for hooks in _HOOKS)

    def _creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def create(guard: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if _OURS.search(guard.name) and not self._others():
                    return None
            except Exception:  # noqa: BLE001 - raised into the user's compilation otherwise
                self._failed("a guard of torch.compile could not be read")
            return original(guard, *args, **kwargs)

        return create

    def _asking(self, original: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(original)
        def _has_any_global_hook() -> Any:
            return self._others() if self._handles else original()

        return _has_any_global_hook
