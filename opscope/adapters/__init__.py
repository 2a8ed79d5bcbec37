"""Which frameworks are observed: adapters installed where their framework is imported, now or later.

One policy: an adapter that was asked for by name raises where it cannot be installed; one that was
picked automatically says so in the log and is left out. Nothing raises into an ``import``.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from opscope.core.capture import session

from . import known
from .base import Adapter, AdapterError, Options
from .known import available

__all__ = ["Adapter", "AdapterError", "Options", "available", "install", "installed", "uninstall"]

_log = logging.getLogger(__name__)

_lock = threading.RLock()
_installed: dict[str, Adapter] = {}
#: Frameworks to install when they are imported: by module, those that wait for it (name, target, options).
_waiting: dict[str, list[tuple[str, str, Options]]] = {}
_hooked: set[str] = set()
_unwatch: Callable[[], None] | None = None


def installed() -> tuple[str, ...]:
    """The names of the adapters that are installed now."""
    return tuple(_installed)


def install(frameworks: Iterable[str] | None, options: Options) -> None:
    """Install adapters for frameworks that are imported, now, and for others when they are.

    ``frameworks`` None: all there are. A second call adds what the first left out and changes
    nothing else. Raises AdapterError for a framework that was named and is not known, is of an
    unsupported version or cannot be hooked.
    """
    global _unwatch
    with _lock:
        targets = available()
        names = list(targets) if frameworks is None else list(frameworks)
        unknown = [name for name in names if name not in targets]
        if unknown:
            raise AdapterError(
                f"no adapter for {', '.join(unknown)} (there are: {', '.join(sorted(targets))})"
            )
        if _unwatch is None:
            _unwatch = session.on_activity(_activity)
        for name in names:
            if name not in _installed:
                _install_or_say(name, targets[name], options, requested=frameworks is not None)


def uninstall() -> None:
    """Take all adapters out again; harmless when none is in."""
    global _unwatch
    with _lock:
        _waiting.clear()
        if _unwatch is not None:
            _unwatch()
            _unwatch = None
        while _installed:
            name, adapter = _installed.popitem()
            try:
                adapter.uninstall()
            except Exception:  # noqa: BLE001 - the other adapters are to be taken out too
                _log.exception("opscope: not every hook of %s could be taken away", name)


def _activity() -> None:
    for adapter in tuple(_installed.values()):
        try:
            adapter.listen()
        except Exception:  # noqa: BLE001 - a capture, and the program, go on without this adapter
            adapter.failed("hooks could not be set")


def _install_or_say(
    name: str, target: str, options: Options, *, requested: bool = False, imported: str = ""
) -> None:
    """Install the adapter or let it wait; where that fails, say so in the log, or raise where requested."""
    try:
        _install_or_wait(name, target, options, imported)
    except Exception as error:
        if requested:
            if isinstance(error, AdapterError):
                raise
            raise AdapterError(f"{name} cannot be observed: {error}") from error
        # Picked automatically: the user's program must run as if we were not there.
        _log.warning("opscope: %s is not observed: %s", name, error)


def _install_or_wait(name: str, target: str, options: Options, imported: str) -> None:
    """``imported``: the module whose import is just over, where that is why this is asked."""
    if not _is_imported(name, imported):
        _wait(name, name, target, options)
        return
    kind = known.load(target)
    if not _is_imported(kind.module, imported):  # a part of the framework, which not all need
        _wait(name, kind.module, target, options)
        return
    kind.check_version()
    adapter = kind()
    adapter.install(session.emitter(name), options)
    _installed[name] = adapter


def _is_imported(module: str, imported: str) -> bool:
    """Whether it is there, and its own import over (``init`` may be called from within it)."""
    if module not in sys.modules:
        return False
    spec = getattr(sys.modules[module], "__spec__", None)
    return module == imported or not getattr(spec, "_initializing", False)


def _wait(name: str, module: str, target: str, options: Options) -> None:
    # it is of use to programs alone that import a framework later
    import wrapt

    waiting = _waiting.setdefault(module, [])
    if all(name != one for one, *_ in waiting):
        waiting.append((name, target, options))
    # wrapt keeps its hooks for the life of the process: one a module, which asks who waits now.
    if module not in _hooked:
        _hooked.add(module)
        wrapt.register_post_import_hook(_imported, module)


def _imported(module: Any) -> None:
    """Nothing may be raised: it would be into the program's ``import``."""
    with _lock:
        for name, target, options in _waiting.pop(module.__name__, ()):
            if name not in _installed:
                _install_or_say(name, target, options, imported=module.__name__)
