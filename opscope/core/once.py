"""A property that is computed once, by one thread, while other readers wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar, overload

_Owner = TypeVar("_Owner")
_Value = TypeVar("_Value")


class _Locks(dict[str, Any]):
    """The locks of an object's values. A copy of the object gets its own."""

    def __reduce__(self) -> tuple[type[_Locks], tuple[()]]:
        return _Locks, ()


#: Held only while a lock is created, never while a value is computed.
_making = threading.Lock()


def lock_of(owner: object, name: str) -> AbstractContextManager[Any]:
    """Return the lock of the value ``name`` of ``owner``, which needs a ``__dict__``. Each value has its own
    lock. Values depend on each other without cycles, so threads that wait for each other's values cannot
    deadlock."""
    locks: dict[str, Any] | None = owner.__dict__.get("_locks")
    lock: AbstractContextManager[Any] | None = None if locks is None else locks.get(name)
    if lock is None:
        with _making:
            held: _Locks = owner.__dict__.setdefault("_locks", _Locks())
            lock = held.setdefault(name, threading.RLock())
    return lock


class once(Generic[_Owner, _Value]):
    """Like ``functools.cached_property``, with a lock for each object and property. ``cached_property`` has
    no lock from Python 3.12 on, and before that one lock for all objects of a class."""

    def __init__(self, function: Callable[[_Owner], _Value]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, owner: None, kind: type[Any]) -> once[_Owner, _Value]: ...
    @overload
    def __get__(self, owner: _Owner, kind: type[Any]) -> _Value: ...

    def __get__(self, owner: _Owner | None, kind: type[Any]) -> once[_Owner, _Value] | _Value:
        if owner is None:
            return self
        with lock_of(owner, self.name):  # later readings find the value in the object itself
            if self.name not in owner.__dict__:
                owner.__dict__[self.name] = self.function(owner)
            value: _Value = owner.__dict__[self.name]
        return value
