"""The Abacus adapter: which versions, what is hooked, what is emitted, how it is undone.

Abacus is made up, and this adapter is there to be copied (CONTRIBUTING.md, "Add an adapter"). It is
complete: ``tests/test_template.py`` runs it against the Abacus of ``tests/made_framework``.

While something listens: ``abacus.engine.run``, which every op goes through (ops), and
``Layer.__call__`` (layers). While nothing listens only ``Optimizer.step`` is hooked, to count steps.
"""

from __future__ import annotations

from typing import ClassVar

# Imported only once the program has imported the framework: it may stand at the top.
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
    #: Say why: 2.0 has ``engine.run``, which is what is hooked here.
    requires: ClassVar[str] = ">=2.0"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._ops: Ops | None = None
        self._layers: Layers | None = None
        #: What is exchanged always, and while something listens.
        self._always = Patches()
        self._hearing = Patches()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Count steps, and hook the rest if something listens already."""
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
        """Hook or unhook as the emitter is active or not: while nothing listens, an op costs nothing."""
        emitter, ops = self._emitter, self._ops
        if emitter is None or ops is None or self.broken:
            return
        if not emitter.active:
            self._hearing.restore()
        elif not self._hearing:
            self._hearing.wrap(engine, "run", ops.around)
            if self._layers is not None:
                self._hearing.wrap(training.Layer, "__call__", self._layers.around)

    def uninstall(self) -> None:
        """Put everything back."""
        self._hearing.restore()
        self._always.restore()
        self._emitter = self._ops = self._layers = None
