"""Compilations: a phase range while torch.compile compiles a frame or the backward pass of a graph.

A frame is compiled when it is called with arguments that no earlier compilation fits. The backward pass of
its FX graph is compiled most often when it first runs. Compilations inside another are part of it.
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

#: Frames in this folder wrap the call of one of PyTorch's own modules, and all have the same name.
_WRAPPERS: Final = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "_dynamo", "")
_FRAMES: Final = ("torch._dynamo.convert_frame", "_compile")
#: The context in which PyTorch compiles a backward pass on its first run. This module uses it for no other
#: purpose.
_BACKWARDS: Final = ("torch._functorch._aot_autograd.runtime_wrappers", "track_graph_compiling")


class Compilations:
    """Observes compilations from ``install`` to ``uninstall``, without importing the compiler.

    PyTorch's own callbacks (``torch._dynamo.callback``) do not suffice: ``torch._dynamo.reset`` drops them,
    older versions do not call them for backward passes, and for simultaneous compilations on several threads
    they report only the first start and the last end.
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
        """Wrap the compiler's two functions, as soon as the compiler is imported."""
        self._installed = True
        when_imported(_FRAMES[0], self._observe_frames)
        when_imported(_BACKWARDS[0], self._observe_backwards)

    def uninstall(self) -> None:
        """Restore both functions."""
        self._installed = False
        self._patches.restore()

    def _observe_frames(self, module: Any) -> None:
        self._wrap(_FRAMES[1], self._frames, module)

    def _observe_backwards(self, module: Any) -> None:
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
        # Autograd may call this between two FX graphs, where Dynamo traces frames.
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
        """Begin the phase; return whether it began, so that ``_end`` is due. ``code`` is None for a backward
        pass."""
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
            self._failed("the start of a compilation could not be recorded")
            return False
        return True

    def _end(self) -> None:
        try:
            self._phases.end(self._threads.current(), COMPILE)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the end of a compilation could not be recorded")

    def _text(self, code: Any, number: Any) -> str:
        """Return ``compile 0/1 Net.forward @net.py:12``, with Dynamo's number as in compiled regions."""
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
