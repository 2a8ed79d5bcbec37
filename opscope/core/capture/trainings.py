"""Callbacks that wait for a framework's own training loop, which an adapter adds to it when it begins."""

from __future__ import annotations

from typing import Any

_waiting: dict[str, list[Any]] = {}


def wait(framework: str, callback: Any) -> None:
    """Let the adapter of ``framework`` add ``callback`` to the next training. A second call does nothing."""
    callbacks = _waiting.setdefault(framework, [])
    if not any(other is callback for other in callbacks):
        callbacks.append(callback)


def leave(framework: str, callback: Any) -> None:
    """Take ``callback`` back, whether or not it waits."""
    callbacks = _waiting.get(framework, [])
    callbacks[:] = [other for other in callbacks if other is not callback]


def waiting(framework: str) -> list[Any]:
    """Return the callbacks that wait for a training of ``framework``, the first first."""
    return list(_waiting.get(framework, ()))
