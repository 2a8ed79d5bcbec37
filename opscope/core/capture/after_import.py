"""Call a function once the program has imported a module. This module uses wrapt, but imports it only when
one of the modules is imported. wrapt loads asyncio and takes 14 to 36 ms. Most Pythons that ``opscope
run`` starts import no framework, so a small finder replaces wrapt until one of the modules is imported."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_log = logging.getLogger(__name__)
_lock = threading.RLock()
#: Functions by the module that they wait for, until wrapt has them. The keys stay, because another thread may
#: still be using the finder when it is removed.
_waiting: dict[str, list[Callable[[Any], None]]] = {}
#: Called when the import of the first of the modules begins.
_beginning: list[Callable[[], None]] = []


def call(function: Callable[[Any], None], module: str) -> None:
    """Call ``function`` with ``module`` after its import; at once if the program has imported it.

    ``function`` must not raise, as that would break the program's ``import``.
    """
    with _lock:
        if module not in sys.modules and not _has_wrapt():
            _waiting.setdefault(module, []).append(function)
            if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
                sys.meta_path.insert(0, _Finder())
            return
    import wrapt

    wrapt.register_post_import_hook(function, module)


def as_it_begins(function: Callable[[], None]) -> None:
    """Call ``function`` when the import of an awaited module begins, before wrapt takes over."""
    if function not in _beginning:
        _beginning.append(function)


def _has_wrapt() -> bool:
    """Whether wrapt is completely imported, so that it can wait for the module itself."""
    spec = getattr(sys.modules.get("wrapt"), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


class _Finder:
    """Finds no module; hands over to wrapt when an awaited module is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        try:
            while _beginning:
                _beginning.pop(0)()
            _hand_over()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            _log.warning("opscope: %s is not observed", name, exc_info=True)
            return None
        # an import asks each finder once, and wrapt's finder is now in front of this one
        for finder in tuple(sys.meta_path):
            if type(finder).__module__ == "wrapt.importer":
                spec: ModuleSpec | None = finder.find_spec(name, path, target)
                return spec
        return None


def _hand_over() -> None:
    """Give wrapt all waiting functions, and remove the finder."""
    import wrapt

    if not _has_wrapt():
        # this thread is importing wrapt, which imports the module: the module is handed over with the others
        return
    with _lock:
        for module, functions in _waiting.items():
            while functions:
                wrapt.register_post_import_hook(functions.pop(0), module)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
