"""Torch-TensorRT's modules: a range for each, named as the module, and its layers as specs.

``TorchTensorRTModule`` runs its engine in C++ or in Python. In Python the engine's own context is hooked
(``runs.py``); in C++ TensorRT's Python API is not called, so the module itself is asked for a description of
its layers. The module's class is hooked once the program has imported it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Final

from opscope.adapters.shared.patch import Patches
from opscope.core.capture.emit import Emitter

from .engines import Engine, Engines

#: Where Torch-TensorRT 2.x defines the module.
MODULE: Final = "torch_tensorrt.dynamo.runtime._TorchTensorRTModule"


class TorchModules:
    """The hook of ``TorchTensorRTModule.forward``."""

    def __init__(self, emitter: Emitter, engines: Engines, failed: Callable[[str], None]) -> None:
        self._emitter = emitter
        self._engines = engines
        self._failed = failed
        self._patches = Patches()
        self._known: weakref.WeakKeyDictionary[Any, Engine | None] = weakref.WeakKeyDictionary()
        self._done = False

    def install(self, module: Any) -> None:
        """Hook the class. Never raises: it runs while the program imports Torch-TensorRT."""
        try:
            if not self._done:
                self._patches.wrap(module.TorchTensorRTModule, "forward", self._around)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("Torch-TensorRT's modules could not be hooked")

    def uninstall(self) -> None:
        """Restore the class."""
        self._done = True
        self._patches.restore()

    def _around(self, original: Any) -> Any:
        @functools.wraps(original)
        def forward(module: Any, *inputs: Any, **kwargs: Any) -> Any:
            engine = self._begin(module) if self._emitter.active else None
            try:
                return original(module, *inputs, **kwargs)
            finally:
                if engine is not None:
                    self._emitter.pop()

        return forward

    def _begin(self, module: Any) -> Engine | None:
        try:
            if module not in self._known:
                self._known[module] = self._described(module)
            engine = self._known[module]
            if engine is None:
                return None
            if engine.run is None:
                engine.run = self._emitter.prepare(engine.graph, "graph")
            self._emitter.push(engine.run)
            return engine
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a module of Torch-TensorRT could not be described")
            return None

    def _described(self, module: Any) -> Engine | None:
        """The module's engine, if C++ owns it; None if Python owns it, because then its context is hooked."""
        engine = getattr(module, "engine", None)
        if engine is None or hasattr(engine, "cuda_engine"):
            return None
        return self._engines.added(str(getattr(module, "name", "") or ""), module.get_layer_info())
