"""Put a phase ``checkpoint`` around functions that save a program's state, in any library.

Libraries are hooked once the program has imported them. If possible, functions that the library calls
internally are hooked, because the program may have imported the public names before. A save inside another
has no phase of its own.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from opscope.adapters.shared.imported import when_imported
from opscope.adapters.shared.patch import Patches
from opscope.core.capture import session
from opscope.core.schema import CHECKPOINT


class _Local(threading.local):
    """Whether a thread saves."""

    within = False


class Saves:
    """The phases around the saves of one framework's programs."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._emitter = session.emitter(CHECKPOINT)
        self._local = _Local()
        self._patches = Patches()
        self._on = False
        #: The functions to hook, by module.
        self._paths: dict[str, list[str]] = {}

    def install(self, *names: str) -> None:
        """Hook functions named ``package.module:Class.method``, now or when their module is imported;
        functions that the library's version lacks are left out."""
        self._on = True
        for name in names:
            module, _, path = name.partition(":")
            paths = self._paths.setdefault(module, [])
            if path not in paths:
                paths.append(path)
        for module in self._paths:
            when_imported(module, self._hook_all)

    def uninstall(self) -> None:
        """Remove the hooks."""
        self._on = False
        self._patches.restore()

    def _hook_all(self, module: Any) -> None:
        for path in self._paths[module.__name__]:
            self._hook(path, module)

    def _hook(self, path: str, module: Any) -> None:
        try:
            *owners, name = path.split(".")
            owner = functools.reduce(getattr, owners, module)
            if self._on and hasattr(owner, name) and not self._patches.has(owner, name):
                self._patches.wrap(owner, name, self._around)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed(f"saves by {path} are not seen")

    def _around(self, save: Any) -> Any:
        def saving(*args: Any, **kwargs: Any) -> Any:
            if not self._emitter.active or self._local.within or not self._begin():
                return save(*args, **kwargs)
            try:
                return save(*args, **kwargs)
            finally:
                self._local.within = False
                self._emitter.pop()

        return functools.wraps(save)(saving) if isinstance(save, FunctionType) else saving

    def _begin(self) -> bool:
        try:
            self._emitter.push(self._emitter.prepare(CHECKPOINT, "phase"))
            self._local.within = True
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a checkpoint could not be recorded")
            return False
        return True
