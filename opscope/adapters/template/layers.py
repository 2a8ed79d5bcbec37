"""Push a range around each call of a layer. Its text is the layer's path within the enclosing layers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from opscope.core.capture.emit import Emitter


class _Open(threading.local):
    """The paths of the layers whose calls are open on this thread, outermost first."""

    def __init__(self) -> None:
        self.paths: list[str] = []


class Layers:
    """The hook of ``Layer.__call__``."""

    def __init__(self, emitter: Emitter, failed: Callable[[str], None]) -> None:
        self._emitter = emitter
        self._failed = failed
        self._open = _Open()

    def around(self, original: Any) -> Any:
        """Return the replacement of ``Layer.__call__``."""

        @functools.wraps(original)
        def __call__(layer: Any, *inputs: Any) -> Any:
            if not self._emitter.active or not self._begin(layer):
                return original(layer, *inputs)
            try:
                return original(layer, *inputs)
            finally:
                self._open.paths.pop()
                self._emitter.pop()

        return __call__

    def _begin(self, layer: Any) -> bool:
        """Push the layer's path. Return False on failure: a hook in the user's program never raises."""
        try:
            paths = self._open.paths
            path = f"{paths[-1]}/{layer.name}" if paths else str(layer.name)
            self._emitter.push(self._emitter.prepare(path, "layer"))
            paths.append(path)
            return True
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a layer could not be named")
            return False
