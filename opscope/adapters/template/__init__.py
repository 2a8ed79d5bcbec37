"""The adapter for Abacus: supported versions, hooks, what each hook emits, and removal.

Abacus is invented, and this adapter is a template to copy (CONTRIBUTING.md, "Add an adapter"). It is
complete: ``tests/test_template.py`` runs it with the Abacus of ``tests/made_framework``.

While something listens, it hooks ``abacus.engine.run``, which runs every op, and ``Layer.__call__``.
While nothing listens, it hooks only ``Optimizer.step``, to count steps.
"""

from __future__ import annotations

from typing import ClassVar

# opscope imports this module only after the program has imported Abacus, so it may import Abacus here.
from abacus import engine, training

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import Sources
from opscope.core.capture.emit import Emitter

from .layers import Layers
from .ops import Ops
from .steps import Steps


class AbacusAdapter(Adapter):
    """Abacus."""

    name: ClassVar[str] = "abacus"
    title: ClassVar[str] = "Abacus"
    module: ClassVar[str] = "abacus"
    #: Give the reason for the version: 2.0 is the first with ``engine.run``, which this adapter hooks.
    requires: ClassVar[str] = ">=2.0"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._ops: Ops | None = None
        self._layers: Layers | None = None
        #: Hooks that are always set, and hooks that are set while something listens.
        self._always = Patches()
        self._while_active = Patches()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the optimizer to count steps, and hook the rest if something already listens."""
        if self._emitter is not None:
            return
        self.broken = False
        self._emitter = emitter
        sources = Sources() if options.source else None
        steps = Steps(options.steps)
        self._ops = Ops(emitter, sources, options.shapes, steps, self.failed)
        self._layers = Layers(emitter, self.failed) if options.layers else None
        self._always.wrap(training.Optimizer, "step", steps.around)
        self.listen()

    def listen(self) -> None:
        """Hook ops and layers while the emitter is active, else unhook them so that an op costs nothing."""
        emitter, ops = self._emitter, self._ops
        if emitter is None or ops is None or self.broken:
            return
        if not emitter.active:
            self._while_active.restore()
        elif not self._while_active:
            self._while_active.wrap(engine, "run", ops.around)
            if self._layers is not None:
                self._while_active.wrap(training.Layer, "__call__", self._layers.around)

    def uninstall(self) -> None:
        """Restore everything."""
        self._while_active.restore()
        self._always.restore()
        self._emitter = self._ops = self._layers = None
