"""The JAX adapter: which versions, what is hooked, what is emitted, how it is undone.

Programs run as compiled modules, of whose operations Python hears nothing: XLA's profiler tells when
they ran, or its own NVTX ranges in GPU builds. So this adapter tells what they are part of: a range
for each call of a jitted function (category ``graph``), the steps and ranges that the program marks
by ``jax.profiler``, compilations, and, for an NVTX tool, a spec of each compiled operation.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from opscope.adapters.base import Adapter, Options
from opscope.core.capture.emit import Emitter

from .annotations import Annotations
from .calls import Calls
from .programs import Programs

_log = logging.getLogger(__name__)


class JaxAdapter(Adapter):
    """JAX: jitted calls, steps, annotations, compiled programs."""

    name: ClassVar[str] = "jax"
    title: ClassVar[str] = "JAX"
    module: ClassVar[str] = "jax"
    requires: ClassVar[str] = ">=0.6"

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook. What costs a call while nothing listens is one question a jitted call."""
        if self._parts:
            return
        self.broken = False
        parts: list[Any] = [Calls(emitter, self.failed)]
        parts.append(Programs(emitter, options.shapes, options.source, self.failed))
        if options.steps:
            parts.append(Annotations(self.failed))
        for part in parts:
            try:
                part.install()
            except (AttributeError, ImportError, TypeError) as error:
                # private names: another version may have others, and the rest still serves
                _log.warning("opscope: in this JAX %s cannot be observed: %s", part.what, error)
                part.uninstall()
            else:
                self._parts.append(part)
        self.listen()

    def listen(self) -> None:
        """Something began to listen, or ceased: programs are told again to whom begins."""
        for part in self._parts:
            if isinstance(part, Programs):
                part.tell()

    def uninstall(self) -> None:
        """Put every attribute back. A function that was jitted meanwhile keeps an empty shell."""
        for part in reversed(self._parts):
            part.uninstall()
        self._parts = []
