"""Callbacks that wait for a framework's own training loop; an adapter adds them when the loop begins."""

from __future__ import annotations

from typing import Any

_waiting: dict[str, list[Any]] = {}


def wait(framework: str, callback: Any) -> None:
    """Let the adapter of ``framework`` add ``callback`` to the next training. A second call does nothing."""
    callbacks = _waiting.setdefault(framework, [])
    if not any(other is callback for other in callbacks):
        callbacks.append(callback)


def leave(framework: str, callback: Any) -> None:
    """Remove ``callback``, whether or not it is waiting."""
    callbacks = _waiting.get(framework, [])
    callbacks[:] = [other for other in callbacks if other is not callback]


def waiting(framework: str) -> list[Any]:
    """Return the callbacks that wait for a training of ``framework``, in the order in which they were
    added."""
    return list(_waiting.get(framework, ()))
