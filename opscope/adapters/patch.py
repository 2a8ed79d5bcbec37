"""Attributes exchanged, and put back as they were."""

from __future__ import annotations

from typing import Any


class Patches:
    """Exchanged attributes of modules and classes."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any, bool]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Let ``owner.name`` be ``value``. Raises AttributeError where there is no such attribute."""
        before = getattr(owner, name)
        own = name in vars(owner)
        before = vars(owner)[name] if own else before
        setattr(owner, name, value)
        self._done.append((owner, name, value, before, own))

    def restore(self) -> None:
        """Put all back, unless another tool has replaced ours since."""
        while self._done:
            owner, name, value, before, own = self._done.pop()
            if vars(owner).get(name) is not value:
                continue
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)
