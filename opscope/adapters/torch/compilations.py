"""Compilations: a phase while torch.compile compiles a frame, or the backward pass of one.

The frame is compiled when it is first called with what no earlier compilation serves, the backward pass of
its graph most often when that first runs. What is compiled meanwhile is part of it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final

import torch

from opscope.adapters.shared.imported import when_imported
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import Sources
from opscope.core.capture.emit import Emitter
from opscope.core.schema import COMPILE

from .dispatch import OpMode
from .dynamo import shielded, skipped
from .phases import Phases
from .state import Threads

#: Frames here stand around the call of a module of PyTorch's own, and are named alike for all.
_WRAPPERS: Final = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "_dynamo", "")
_FRAMES: Final = ("torch._dynamo.convert_frame", "_compile")
#: What a backward pass that is compiled when it first runs is compiled within. In this module it is used
#: for nothing else.
_BACKWARDS: Final = ("torch._functorch._aot_autograd.runtime_wrappers", "track_graph_compiling")


class Compilations:
    """Hears of compilations from ``install`` to ``uninstall``; nothing is imported for it.

    PyTorch's own callbacks for this (``torch._dynamo.callback``) are forgotten at
    ``torch._dynamo.reset``, in older versions not told of backward passes, and of compilations on
    several threads at once only that the first began and the last ended.
    """

    def __init__(
        self, emitter: Emitter, mode: OpMode, threads: Threads, phases: Phases,
        source: bool, failed: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._emitter = emitter
        self._mode = mode
        self._threads = threads
        self._phases = phases
        self._failed = failed
        self._sources = Sources() if source else None
        self._patches = Patches()
        self._installed = False

    def install(self) -> None:
        """Hear of them, from when the compiler is imported."""
        self._installed = True
        when_imported(_FRAMES[0], self._hear_frames)
        when_imported(_BACKWARDS[0], self._hear_backwards)

    def uninstall(self) -> None:
        """Put both back."""
        self._installed = False
        self._patches.restore()

    def _hear_frames(self, module: Any) -> None:
        self._wrap(_FRAMES[1], self._frames, module)

    def _hear_backwards(self, module: Any) -> None:
        self._wrap(_BACKWARDS[1], self._backwards, module)

    def _wrap(self, name: str, around: Callable[[Any], Any], module: Any) -> None:
        if self._installed and hasattr(module, name):
            self._patches.wrap(module, name, around)

    def _frames(self, original: Any) -> Any:
        begin, end = self._begin, self._end

        @functools.wraps(original)
        def _compile(*args: Any, **kwargs: Any) -> Any:
            begun = begin(args[0] if args else kwargs.get("code"), kwargs.get("compile_id"))
            try:
                return original(*args, **kwargs)
            finally:
                if begun:
                    end()

        return _compile

    def _backwards(self, original: Any) -> Any:
        # Autograd may call this from between two graphs, where frames are traced.
        begin, end = shielded(self._begin), shielded(self._end)

        def within(*args: Any, **kwargs: Any) -> Iterator[None]:
            begun = begin(None, None)
            try:
                with original(*args, **kwargs):
                    yield
            finally:
                if begun:
                    end()

        functools.update_wrapper(within, original)
        return contextmanager(skipped(within))

    def _begin(self, code: Any, number: Any) -> bool:
        """Whether it has begun here, and is to be ended; ``code`` is None for a backward pass."""
        try:
            if not self._mode.on:
                return False
            state = self._threads.current()
            if COMPILE in state.open:
                return False
            prepared = self._emitter.prepare(self._text(code, number), "phase")
            state.open.append(COMPILE)
            self._emitter.push(prepared)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a compilation could not be begun")
            return False
        return True

    def _end(self) -> None:
        try:
            self._phases.end(self._threads.current(), COMPILE)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a compilation could not be ended")

    def _text(self, code: Any, number: Any) -> str:
        """``compile 0/1 Net.forward @net.py:12``: Dynamo's number, as compiled regions have it."""
        number = number or torch._guards.CompileContext.current_compile_id()
        words = [COMPILE, str(number or "?")]
        if code is None:
            words.append("backward")
        elif isinstance(code, CodeType) and not code.co_filename.startswith(_WRAPPERS):
            words.append(getattr(code, "co_qualname", code.co_name))
            file = self._sources and self._sources.users(code.co_filename)
            if file:
                words.append(f"@{file}:{code.co_firstlineno}")
        return " ".join(words)
