"""Replace attributes of modules and classes, and restore them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Patches:
    """The attributes of modules and classes that are replaced; true while there are any."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any, bool]] = []

    def __bool__(self) -> bool:
        return bool(self._done)

    def has(self, owner: Any, name: str) -> bool:
        """Whether ``owner.name`` is replaced."""
        return any(
            patched_owner is owner and attribute == name
            for patched_owner, attribute, *_ in self._done
        )

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace ``owner.name`` with ``value``. Raises AttributeError if there is no such attribute."""
        self.wrap(owner, name, lambda _: value)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``owner.name`` with ``make(original)``. Raises AttributeError if there is none."""
        # vars() rather than getattr: a static or class method must be restored as such.
        own = name in vars(owner)
        before = vars(owner)[name] if own else getattr(owner, name)
        ours = make(before)
        setattr(owner, name, ours)
        self._done.append((owner, name, ours, before, own))

    def restore(self) -> None:
        """Restore every attribute, except those that another tool has replaced since."""
        while self._done:
            owner, name, ours, before, own = self._done.pop()
            if vars(owner).get(name) is not ours:
                continue
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)
