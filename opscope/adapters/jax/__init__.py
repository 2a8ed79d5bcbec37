"""The JAX adapter: supported versions, hooks, what each hook emits, and removal.

Programs run as modules compiled by XLA, and Python does not see their operations. XLA's profiler reports when
they ran, or XLA's own NVTX ranges do in GPU builds. This adapter reports their context: a range for each call
of a jitted function (category ``graph``), the steps and ranges that the program marks with ``jax.profiler``,
compilations, reads of arrays' values, and, for an NVTX tool, a spec of each compiled operation.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.saves import Saves
from opscope.core.capture.emit import Emitter

from .annotations import Annotations
from .calls import Calls
from .programs import Programs
from .reads import ValueReads

_log = logging.getLogger(__name__)
_SAVES = (
    "orbax.checkpoint:Checkpointer.save",
    "orbax.checkpoint:AsyncCheckpointer.save",
    "orbax.checkpoint:AsyncCheckpointer.wait_until_finished",
    "orbax.checkpoint:CheckpointManager.save",
    "orbax.checkpoint:CheckpointManager.wait_until_finished",
    "flax.training.checkpoints:save_checkpoint",
    "flax.serialization:to_bytes",
    "safetensors.numpy:serialize_file",
)


class JaxAdapter(Adapter):
    """JAX: jitted calls, steps, annotations, compiled programs."""

    name: ClassVar[str] = "jax"
    title: ClassVar[str] = "JAX"
    module: ClassVar[str] = "jax"
    requires: ClassVar[str] = ">=0.6"

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._saves = Saves(self.failed)

    def install(self, emitter: Emitter, options: Options) -> None:
        """Set the hooks. While nothing listens, a jitted call costs only one additional check."""
        if self._parts:
            return
        self.broken = False
        parts: list[Any] = [Calls(emitter, self.failed)]
        parts.append(Programs(emitter, options.shapes, options.source, self.failed))
        parts.append(ValueReads(options.source, self.failed))
        if options.steps:
            parts.append(Annotations(self.failed))
        for part in parts:
            try:
                part.install()
            except (AttributeError, ImportError, TypeError) as error:
                # these names are private and may differ in other versions; the other parts still work
                _log.warning(
                    "opscope: this version of JAX does not let opscope observe %s: %s",
                    part.what,
                    error,
                )
                part.uninstall()
            else:
                self._parts.append(part)
        if options.steps:
            self._saves.install(*_SAVES)
        self.listen()

    def listen(self) -> None:
        """A listener has begun or ended; for a new one, emit the specs of all programs again. While there is
        one, hear reads of memory."""
        for part in self._parts:
            if isinstance(part, Programs):
                part.emit_specs()
            elif isinstance(part, ValueReads):
                part.listen()

    def uninstall(self) -> None:
        """Restore every attribute. A function that was jitted meanwhile keeps a wrapper that does nothing."""
        self._saves.uninstall()
        for part in reversed(self._parts):
            part.uninstall()
        self._parts = []
