"""Put a phase ``checkpoint`` around functions that save a program's state, in any library.

Libraries are hooked once the program has imported them. If possible, functions that the library calls
internally are hooked, because the program may have imported the public names before. A save inside another
has no phase of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opscope.adapters.shared.imported import when_imported
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.reads import Around
from opscope.core.schema import CHECKPOINT


class Saves(Around):
    """The phases around the saves of one framework's programs."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        super().__init__(CHECKPOINT, failed)
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
            try:
                *owners, name = path.split(".")
                owner = functools.reduce(getattr, owners, module)
                if self._on and hasattr(owner, name) and not self._patches.has(owner, name):
                    self._patches.wrap(owner, name, self.around(CHECKPOINT))
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed(f"saves by {path} are not recorded")

    def _begin(self, name: str) -> bool:
        try:
            self._emitter.push(self._emitter.prepare(name, "phase"))
            self._local.within = True
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a checkpoint could not be recorded")
            return False
        return True
