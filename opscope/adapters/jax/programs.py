"""Record compilations: a phase while XLA compiles a program, and a spec of each of its operations."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from opscope.adapters.shared.patch import Patches
from opscope.core.capture.emit import Emitter
from opscope.core.hlo.calls import calls
from opscope.core.hlo.module import Module
from opscope.core.hlo.wire import WireError
from opscope.core.rangetext import format_spec
from opscope.core.schema import COMPILE

_log = logging.getLogger(__name__)

#: Compiled programs whose specs are emitted again for a new listener; if there are more, only the latest.
MAX_PROGRAMS: Final = 1024


class Programs:
    """Emits specs of compiled programs to NVTX, because its tools only get the names of XLA's ranges."""

    what: Final = "compilations"

    def __init__(
        self, emitter: Emitter, shapes: bool, source: bool, failed: Callable[[str], None]
    ) -> None:
        self._emitter = emitter
        self._shapes = shapes
        self._source = source
        self._failed = failed
        self._patches = Patches()
        self._alive: list[weakref.ref[Any]] = []

    def install(self) -> None:
        """Hook the compiler. Raises AttributeError or ImportError if this version of JAX has another."""
        compiler = import_module("jax._src.compiler")
        original = compiler.compile_or_get_cached
        emitter = self._emitter

        def compiled(*args: Any, **kwargs: Any) -> Any:
            active = emitter.active
            if active:
                emitter.push(emitter.prepare(COMPILE, "phase"))
            try:
                compilation = original(*args, **kwargs)
            finally:
                if active:
                    emitter.pop()
            self._made(compilation)
            return compilation

        self._patches.set(compiler, "compile_or_get_cached", compiled)

    def uninstall(self) -> None:
        self._patches.restore()
        self._alive = []

    def emit_specs(self) -> None:
        """Emit the specs of the programs that still exist."""
        if not self._emitter.active or not self._emitter.nvtx:
            return
        for reference in self._alive:
            program = reference()
            if program is not None:
                self._emit(program)

    def _made(self, program: Any) -> None:
        if not self._emitter.nvtx:
            return  # without an NVTX tool, XLA's profiler writes the programs itself
        try:
            self._alive.append(weakref.ref(program))
            del self._alive[:-MAX_PROGRAMS]
        except TypeError:  # no weak references in this version of JAX: specs are emitted once
            pass
        if self._emitter.active:
            self._emit(program)

    def _emit(self, program: Any) -> None:
        try:
            for hlo in program.hlo_modules():
                module = Module.of_module(hlo.as_serialized_hlo_module_proto())
                for key, call in calls(module):
                    described = call if self._shapes else replace(call, inputs=(), outputs=None)
                    described = described if self._source else replace(described, frames=())
                    text = format_spec(module.name, key, described)
                    self._emitter.mark(self._emitter.prepare(text, "spec"))
        except WireError as error:
            _log.warning("opscope: the HLO of a compiled program cannot be read: %s", error)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the operations of a compiled program could not be described")
