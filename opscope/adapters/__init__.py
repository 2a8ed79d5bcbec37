"""Install the adapter of each framework that the program imports, now or later, and remove it again.

If an adapter cannot be installed and the user named it, ``install`` raises. If it was picked
automatically, opscope logs a warning and goes on without it. No error reaches the program's ``import``.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from opscope.core.capture import after_import, emit, host_stacks, session

from . import known
from .base import Adapter, AdapterError, Options
from .known import available

__all__ = [
    "Adapter",
    "AdapterError",
    "Options",
    "available",
    "chosen",
    "install",
    "installed",
    "uninstall",
]

_log = logging.getLogger(__name__)

_lock = threading.RLock()
_installed: dict[str, Adapter] = {}
#: Adapters that wait for an import: module → (adapter's name, import string, options) of each.
_waiting: dict[str, list[tuple[str, str, Options]]] = {}
_hooked: set[str] = set()
_unwatch: Callable[[], None] | None = None
_chosen = False
_refused: set[str] = set()


def chosen() -> bool:
    """Whether ``install`` was called since the last ``uninstall``, even if to observe no framework."""
    return _chosen


def installed() -> tuple[str, ...]:
    """Return the names of the installed adapters."""
    return tuple(_installed)


def install(frameworks: Iterable[str] | None, options: Options) -> None:
    """Install adapters: at once for frameworks that are already imported, on import for the others.

    ``frameworks`` None means every known framework, ``["simple"]`` none; ``pytorch`` and ``tensorflow2``
    are other names of ``torch`` and ``tensorflow``. What the mode of ``opscope run`` excludes is left out.
    A second call adds adapters that the first left out and changes nothing else. Raises AdapterError if a
    named framework is unknown, has an unsupported version or cannot be hooked.
    """
    global _chosen, _unwatch
    host_stacks.native = _native_stacks
    after_import.as_it_begins(_sample_stacks)
    with _lock:
        targets = available()
        names = list(targets) if frameworks is None else _name(frameworks, targets)
        options = replace(options, profiler=frameworks is not None)
        allowed = _allowed()
        if allowed is not None:
            if frameworks is not None:
                _refuse([name for name in names if name not in allowed])
            names = [name for name in names if name in allowed]
        _chosen = True
        if _unwatch is None and names:
            _unwatch = session.on_activity(_activity)
        for name in names:
            if name not in _installed:
                _install_or_warn(name, targets[name], options, requested=frameworks is not None)


def _native_stacks() -> host_stacks.Sampling:
    """Return the native sampler of stacks; ctypes is only loaded when it is needed."""
    from .shared import native_stacks

    return native_stacks.make()


def _sample_stacks() -> None:
    recorder = session.recorder()
    if recorder is not None:
        recorder.sample_stacks()


def _name(frameworks: Iterable[str], targets: Mapping[str, str]) -> list[str]:
    """Return the adapters that the user named. Raises AdapterError for an unknown name."""
    from . import modes  # only needed if the program names frameworks

    asked = list(frameworks)
    if modes.SIMPLE in asked:
        if len(asked) > 1:
            raise AdapterError(
                f"{modes.SIMPLE} observes no framework: it cannot be combined with others"
            )
        return []
    names = [modes.ALIASES.get(name, name) for name in asked]
    unknown = [name for name in names if name not in targets]
    if unknown:
        candidates = (*sorted(targets), modes.SIMPLE, *modes.ALIASES)
        raise AdapterError(f"no adapter for {unknown[0]!r}{modes.closest(unknown[0], candidates)}")
    return list(dict.fromkeys(names))


def _allowed() -> tuple[str, ...] | None:
    """Return the adapters that the mode of ``opscope run`` allows; None for all."""
    if not os.environ.get(known.MODE):
        return None
    from . import modes

    try:
        return modes.allowed()
    except ValueError as error:  # the user's program must run as it would without opscope
        _log.warning("opscope: %s is ignored: %s", known.MODE, error)
        return None


def _refuse(names: Iterable[str]) -> None:
    """Warn, once for each framework, that the program requests one that the run's mode excludes."""
    for name in names:
        if name not in _refused:
            _refused.add(name)
            mode = os.environ.get(known.MODE)
            _log.warning("opscope: %s is not observed: opscope run --mode %s", name, mode)


def uninstall() -> None:
    """Remove all adapters and their hooks. Does nothing if none is installed."""
    global _chosen, _unwatch
    with _lock:
        _chosen = False
        _waiting.clear()
        if _unwatch is not None:
            _unwatch()
            _unwatch = None
        while _installed:
            name, adapter = _installed.popitem()
            try:
                adapter.uninstall()
            except Exception:  # noqa: BLE001 - the other adapters must still be removed
                _log.exception("opscope: some hooks of %s could not be removed", name)


@functools.lru_cache(maxsize=1)
def _write_natively() -> None:
    """Let native code write ranges from now on. If it cannot, Python goes on writing. Tried once."""
    try:
        from .shared import ranges  # ctypes is only loaded when it is needed

        emit.write_natively(ranges.load())
    except Exception as error:  # noqa: BLE001 - a fault of ours must not be the program's
        _log.debug("opscope: ranges are written from Python: %s", error)


def _activity() -> None:
    if _installed and session.recorder() is not None:
        _write_natively()
    for adapter in tuple(_installed.values()):
        try:
            adapter.listen()
        except Exception:  # noqa: BLE001 - the capture and the program go on without this adapter
            adapter.failed("hooks could not be set")


def _install_or_warn(
    name: str, target: str, options: Options, *, requested: bool = False, imported: str = ""
) -> None:
    """Install the adapter now or on import. On failure raise if ``requested``, else log a warning."""
    try:
        _install_or_wait(name, target, options, imported)
    except (Exception, SystemExit) as error:  # a broken package may call sys.exit when imported
        if requested:
            if isinstance(error, AdapterError):
                raise
            raise AdapterError(f"{name} cannot be observed: {error}") from error
        # The adapter was picked automatically: the program must run as it would without opscope.
        _log.warning("opscope: %s is not observed: %s", name, error)


def _install_or_wait(name: str, target: str, options: Options, imported: str) -> None:
    """Install the adapter, or register it to be installed once its module is imported.

    ``imported`` names the module whose import has just ended and triggered this call, if any.
    """
    if not _is_imported(name, imported):
        _wait(name, name, target, options)
        return
    kind = known.load(target)
    if not _is_imported(kind.module, imported):  # a submodule that not every program imports
        _wait(name, kind.module, target, options)
        return
    kind.check_version()
    adapter = kind()
    adapter.install(session.emitter(name), options)
    _installed[name] = adapter
    if session.recorder() is not None:
        _write_natively()


def _is_imported(module: str, imported: str) -> bool:
    """Whether the module is in ``sys.modules`` and its import has ended.

    ``init`` may be called while the module is still being imported.
    """
    if module not in sys.modules:
        return False
    spec = getattr(sys.modules[module], "__spec__", None)
    return module == imported or not getattr(spec, "_initializing", False)


def _wait(name: str, module: str, target: str, options: Options) -> None:
    waiting = _waiting.setdefault(module, [])
    if all(name != awaited for awaited, *_ in waiting):
        waiting.append((name, target, options))
    # a hook is kept until the process ends, so register one hook per module; the hook reads ``_waiting``.
    if module not in _hooked:
        _hooked.add(module)
        after_import.call(_import, module)


def _import(module: Any) -> None:
    """Install the adapters that wait for ``module``. Never raises, as that would break the ``import``."""
    with _lock:
        for name, target, options in _waiting.pop(module.__name__, ()):
            if name not in _installed:
                _install_or_warn(name, target, options, imported=module.__name__)
