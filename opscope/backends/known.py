"""Find the backends: those that packages register in the entry-point group ``opscope.backends``.

The entry point is the only place that names a backend. opscope's own backends use it too::

    [project.entry-points."opscope.backends"]
    abacus = "opscope_abacus:ABACUS"

It names the object, an instance of a class derived from ``base.Backend``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final

from opscope.core import registered

from .base import Backend

_log = logging.getLogger(__name__)
GROUP: Final = "opscope.backends"


class BrokenBackend(RuntimeError):
    """A backend is registered but cannot be loaded; the message says why."""


@functools.cache
def available() -> Mapping[str, str]:
    """Return all backends, name → import string (``module:object``), without loading any.

    opscope's own names cannot be taken by another package. They are looked up once in a process.
    """
    backends = registered.entries(GROUP)
    own = {name: value for name, value in backends.items() if value.startswith(f"{__package__}.")}
    return {**backends, **(own or registered.of_checkout(GROUP))}


def load(name: str) -> Backend:
    """Return the backend ``name``.

    Raises ValueError if there is none, BrokenBackend if its module cannot be imported or names no backend.
    """
    targets = available()
    if name not in targets:
        raise ValueError(f"no backend {name!r}; choose one of: {', '.join(names(targets))}")
    return _loaded(name, targets[name])


def names(targets: Iterable[str] | None = None) -> list[str]:
    """Return what a user may choose, ``auto`` first."""
    return ["auto", *sorted(available() if targets is None else targets)]


def every() -> tuple[list[Backend], dict[str, str]]:
    """Return all backends, the highest rank first, and those that cannot be loaded with the reason."""
    backends, broken = [], {}
    for name, target in available().items():
        try:
            backends.append(_loaded(name, target))
        except BrokenBackend as error:
            broken[name] = str(error)
            _log.info("opscope: the backend %s is not used: %s", name, error)
    return sorted(backends, key=lambda backend: (-backend.rank, backend.name)), broken


@functools.cache
def _loaded(name: str, target: str) -> Backend:
    module, _, attribute = target.partition(":")
    try:
        backend: Any = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # another package's module may raise anything
        why = " ".join(str(error).split()) or type(error).__name__
        raise BrokenBackend(f"{target} cannot be loaded: {type(error).__name__}: {why}") from error
    if not isinstance(backend, Backend):
        raise BrokenBackend(f"{target} is no object of a class derived from {Backend.__name__}")
    if backend.name != name:
        raise BrokenBackend(f"{target} calls itself {backend.name!r}, its entry point {name!r}")
    lacks = [
        lacking
        for lacking, kind in (("gives", str), ("rank", int))
        if not isinstance(getattr(backend, lacking, None), kind)
    ]
    if lacks:
        raise BrokenBackend(f"{target} has no {' and no '.join(lacks)}")
    return backend
