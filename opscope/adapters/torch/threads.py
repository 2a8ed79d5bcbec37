"""Pushes the dispatch mode on threads: the current one, new ones, and any that a hook runs on."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import Any

from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack,
    _len_torch_dispatch_stack,
    _pop_mode,
    _push_mode,
)

from .dispatch import OpMode
from .dynamo import untraced

_modes: weakref.WeakSet[OpMode] = weakref.WeakSet()


def enter(mode: OpMode) -> None:
    """Put the mode at the bottom of this thread's stack of dispatch modes.

    At the bottom, because a ``with`` block of the user pops the topmost mode when it ends. The mode's
    ``__enter__`` is not used: it keeps flags of the whole process in the order of nesting.
    """
    if mode.native is not None:
        return
    state = mode.threads.current()
    if state.entered:
        return
    state.entered = mode.ever_entered = True
    if mode in _get_current_dispatch_mode_stack():
        return  # an autograd thread or a forked worker inherited it
    above = [_pop_mode() for _ in range(_len_torch_dispatch_stack())]
    for each_mode in (mode, *reversed(above)):
        _push_mode(each_mode)


def leave(mode: OpMode) -> None:
    """Remove the mode from this thread's stack, at whatever depth."""
    if mode.native is not None:
        return
    state = mode.threads.current()
    state.entered = False
    if mode not in _get_current_dispatch_mode_stack():
        return
    above = [_pop_mode() for _ in range(_len_torch_dispatch_stack())]
    for each_mode in reversed(above):
        if each_mode is not mode:
            _push_mode(each_mode)


class NewThreads:
    """Pushes the mode on new Python threads.

    Every Python thread begins in ``Thread._bootstrap_inner``, also where ``run`` is overridden.
    """

    def __init__(self, mode: OpMode) -> None:
        self._mode = mode
        self._original: Any = None
        self._patched: Any = None

    def install(self) -> None:
        if self._original is not None:
            return
        mode = self._mode
        original = self._original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        @functools.wraps(original)
        def bootstrap(self: threading.Thread) -> Any:
            if not mode.on:
                return original(self)
            enter(mode)
            try:
                return original(self)
            finally:
                leave(mode)

        self._patched = untraced(bootstrap, below=False)
        threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]
        _watch_forks()
        _modes.add(mode)

    def uninstall(self) -> None:
        # Where another tool has patched on top of our patch, ours stays below it and does nothing.
        if threading.Thread.__dict__.get("_bootstrap_inner") is self._patched:
            threading.Thread._bootstrap_inner = self._original  # type: ignore[attr-defined]
            self._original = None


@functools.lru_cache(maxsize=1)
def _watch_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    for mode in _modes:
        mode.threads.after_fork()
