"""Which frameworks are observed: adapters found, versions checked, installed now or on import.

One policy: an adapter that was asked for by name raises where it cannot be installed; one that was
picked automatically says so in the log and is left out. Nothing raises into an ``import``.
"""

from __future__ import annotations

import importlib.metadata
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final

from opscope.core.capture import session

from .base import Adapter, Options

_log = logging.getLogger(__name__)

GROUP: Final = "opscope.adapters"
#: Adapters of this package, so that they are found from a source tree too: name → object, module.
BUILT_IN: Final = {
    "jax": "opscope.adapters.jax:JaxAdapter",
    "torch": "opscope.adapters.torch:TorchAdapter",
    "tensorflow": "opscope.adapters.tensorflow:TensorFlowAdapter",
    "keras": "opscope.adapters.keras:KerasAdapter",
    "flax": "opscope.adapters.flax:FlaxAdapter",
    "optax": "opscope.adapters.optax:OptaxAdapter",
}
#: The import that makes each built-in adapter installable, so that none is imported to ask it.
_MODULES: Final = {
    "jax": "jax",
    "torch": "torch",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "flax": "flax.nnx",
    "optax": "optax",
}


class AdapterError(RuntimeError):
    """A framework that was asked for cannot be observed; the message says why."""


_lock = threading.RLock()
_installed: dict[str, Adapter] = {}
#: Frameworks to install when they are imported: by module, those that wait for it.
_waiting: dict[str, list[tuple[str, Options]]] = {}
_hooked: set[str] = set()
_unwatch: Callable[[], None] | None = None


def available() -> dict[str, str]:
    """Every adapter there is: name → import string. Loads none of them."""
    found = dict(BUILT_IN)
    for point in importlib.metadata.entry_points(group=GROUP):
        found.setdefault(point.name, point.value)
    return found


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
        known = available()
        names = list(known) if frameworks is None else list(frameworks)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise AdapterError(
                f"no adapter for {', '.join(unknown)} (there are: {', '.join(sorted(known))})"
            )
        if _unwatch is None:
            _unwatch = session.on_activity(_activity)
        for name in names:
            if name not in _installed:
                _install_or_wait(name, known[name], options, frameworks is not None)


def uninstall() -> None:
    """Take all adapters out again; harmless when none is in."""
    global _unwatch
    with _lock:
        _waiting.clear()
        if _unwatch is not None:
            _unwatch()
            _unwatch = None
        while _installed:
            _, adapter = _installed.popitem()
            adapter.uninstall()


def _activity() -> None:
    for adapter in tuple(_installed.values()):
        adapter.listen()


def _install_or_wait(name: str, target: str, options: Options, requested: bool) -> None:
    try:
        module = _MODULES.get(name) or _load(target).module
        if module in sys.modules and not _importing(module):
            _install(name, target, options)
        else:
            _wait(name, module, options)
    except Exception as error:
        if requested:
            if isinstance(error, AdapterError):
                raise
            raise AdapterError(f"{name} cannot be observed: {error}") from error
        # Picked automatically: the user's program must run as if we were not there.
        _log.warning("opscope: %s is not observed: %s", name, error)


def _importing(module: str) -> bool:
    """Whether the module's own import is still running (``init`` was called from within it)."""
    spec = getattr(sys.modules[module], "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _load(target: str) -> type[Any]:
    module, _, attribute = target.partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


def _install(name: str, target: str, options: Options) -> None:
    kind = _load(target)
    _check_version(name, kind)
    adapter: Adapter = kind()
    adapter.install(session.emitter(name), options)
    _installed[name] = adapter


def _check_version(name: str, kind: type[Any]) -> None:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    text = str(getattr(sys.modules[kind.module.partition(".")[0]], "__version__", ""))
    try:
        version = Version(text)
    except InvalidVersion:
        raise AdapterError(f"{name} has no version that can be read: {text!r}") from None
    if not SpecifierSet(kind.requires).contains(version, prereleases=True):
        raise AdapterError(f"{name} {text} is not supported (needs {kind.requires})")


def _wait(name: str, module: str, options: Options) -> None:
    import wrapt

    waiting = _waiting.setdefault(module, [])
    if all(name != one for one, _ in waiting):
        waiting.append((name, options))
    # wrapt keeps its hooks for the life of the process: one a module, which asks who waits now.
    if module not in _hooked:
        _hooked.add(module)
        wrapt.register_post_import_hook(_imported, module)


def _imported(module: Any) -> None:
    with _lock:
        known = available()
        for name, options in _waiting.pop(module.__name__, ()):
            if name in _installed:
                continue
            try:
                _install(name, known[name], options)
            except Exception as error:  # noqa: BLE001 - an import must never fail because of us
                _log.warning("opscope: %s is not observed: %s", name, error)
