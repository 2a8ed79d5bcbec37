"""The adapter for PaddlePaddle: supported versions, hooks, and removal.

While something listens, it hooks the functions of ``paddle._C_ops`` and the operators of ``Tensor``, through
which Python calls every op of the dynamic graph, ``Layer.__call__``, and the entries of the backward pass.
While nothing listens, it hooks only the optimizers' ``step``, to count steps.
"""

from __future__ import annotations

from typing import ClassVar

# opscope imports this module only after the program has imported paddle
import paddle
from paddle import _C_ops
from paddle.base import core

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import Sources
from opscope.core.capture.emit import Emitter

from .backward import Backward
from .layers import Layers
from .ops import OPERATORS, Ops
from .steps import Steps, with_step


class PaddleAdapter(Adapter):
    """PaddlePaddle."""

    name: ClassVar[str] = "paddle"
    title: ClassVar[str] = "PaddlePaddle"
    module: ClassVar[str] = "paddle"
    #: 3.0 is the first whose dynamic graph runs each op by ``_C_ops`` alone, without ``_legacy_C_ops``.
    requires: ClassVar[str] = ">=3.0"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._ops: Ops | None = None
        self._layers: Layers | None = None
        self._backward: Backward | None = None
        #: Hooks that are always set, and hooks that are set while something listens.
        self._always = Patches()
        self._while_active = Patches()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the optimizers to count steps, and hook the rest if something already listens."""
        if self._emitter is not None:
            return
        self.broken = False
        sources = Sources() if options.source else None
        steps = Steps(options.steps)
        self._backward = Backward(emitter, self.failed)
        self._ops = Ops(emitter, sources, options.shapes, steps, self._backward, self.failed)
        self._layers = Layers(emitter, self.failed) if options.layers else None
        self._emitter = emitter
        for optimizer in with_step(paddle.optimizer.Optimizer):
            self._always.wrap(optimizer, "step", steps.around)
        self.listen()

    def listen(self) -> None:
        """Hook ops, layers and the backward pass while the emitter is active, else unhook them."""
        emitter, ops, backward = self._emitter, self._ops, self._backward
        if emitter is None or ops is None or backward is None or self.broken:
            return
        if not emitter.active:
            self._while_active.restore()
        elif not self._while_active:
            for name, function in list(vars(_C_ops).items()):
                if callable(function) and not name.startswith("_"):
                    self._while_active.wrap(_C_ops, name, ops.around(name))
            for method, name in OPERATORS.items():
                self._while_active.wrap(paddle.Tensor, method, ops.around(name, operator=True))
            for name in ("run_backward", "run_partial_grad"):
                self._while_active.wrap(core.eager, name, backward.around)
            if self._layers is not None:
                self._while_active.wrap(paddle.nn.Layer, "__call__", self._layers.around)

    def uninstall(self) -> None:
        """Restore everything."""
        self._while_active.restore()
        self._always.restore()
        self._emitter = self._ops = self._layers = self._backward = None
