"""Push a range around each call of a layer. Its text is the layer's path in the model: ``Net.features.0``."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from opscope.core.capture.emit import Emitter


class _Open(threading.local):
    """The number of layers whose calls are open on this thread."""

    def __init__(self) -> None:
        self.depth = 0


class Layers:
    """The hook of ``Layer.__call__``."""

    def __init__(self, emitter: Emitter, failed: Callable[[str], None]) -> None:
        self._emitter = emitter
        self._failed = failed
        self._open = _Open()
        #: The path of every layer of a model, found when the model is called.
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def around(self, original: Any) -> Any:
        """Return the replacement of ``Layer.__call__``."""

        @functools.wraps(original)
        def __call__(layer: Any, *inputs: Any, **kwargs: Any) -> Any:
            if not self._emitter.active or not self._begin(layer):
                return original(layer, *inputs, **kwargs)
            try:
                return original(layer, *inputs, **kwargs)
            finally:
                self._open.depth -= 1
                self._emitter.pop()

        return __call__

    def _begin(self, layer: Any) -> bool:
        """Push the layer's path. Return False on failure: a hook in the user's program never raises."""
        try:
            path = self._paths.get(layer)
            if path is None or (not self._open.depth and path != type(layer).__name__):
                path = self._named(layer)
            self._emitter.push(self._emitter.prepare(path, "layer"))
            self._open.depth += 1
            return True
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a layer could not be named")
            return False

    def _named(self, model: Any) -> str:
        """Name every layer of a model by its path, and return the model's own."""
        name = type(model).__name__
        for path, layer in model.named_sublayers(prefix=name, include_self=True):
            self._paths[layer] = path
        return name
