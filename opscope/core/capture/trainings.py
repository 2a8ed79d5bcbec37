"""Callbacks that wait for a framework's own training loop, which an adapter adds to it when it begins."""

from __future__ import annotations

from typing import Any

_waiting: dict[str, list[Any]] = {}


def wait(framework: str, callback: Any) -> None:
    """Let the adapter of ``framework`` add ``callback`` to the next training. A second call does nothing."""
    found = _waiting.setdefault(framework, [])
    if not any(one is callback for one in found):
        found.append(callback)


def leave(framework: str, callback: Any) -> None:
    """Take ``callback`` back, whether or not it waits."""
    found = _waiting.get(framework, [])
    found[:] = [one for one in found if one is not callback]


def waiting(framework: str) -> list[Any]:
    """Return the callbacks that wait for a training of ``framework``, the first first."""
    return list(_waiting.get(framework, ()))
