"""Keep what was made last, up to a bound; each value is made by one thread while others wait for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Kept(Generic[_Value]):
    """Values by key, the least recently used given up first once their sizes exceed ``most``.

    ``size`` gives a value's size; without it each counts 1. ``dropped`` is called with each value that is
    given up. A value larger than ``most`` is returned and not kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: OrderedDict[Hashable, tuple[_Value, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}

    def get(
        self,
        key: Hashable,
        make: Callable[[], _Value],
        size: Callable[[_Value], int] = lambda value: 1,
        dropped: Callable[[_Value], object] | None = None,
    ) -> _Value:
        """Return the value of ``key``, made if it is not there. Raises what ``make`` raises."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key][0]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._held:  # another thread made it meanwhile
                    self._held.move_to_end(key)
                    return self._held[key][0]
            try:
                value = make()
                given_up = self._keep(key, value, size(value))
            finally:
                with self._lock:
                    self._making.pop(key, None)
        if dropped is not None:
            for one in given_up:
                dropped(one)
        return value

    def _keep(self, key: Hashable, value: _Value, size: int) -> list[_Value]:
        given_up: list[_Value] = []
        with self._lock:
            if size > self.most:
                return given_up
            self._held[key] = value, size
            self._size += size
            while self._size > self.most:
                _, (old, its_size) = self._held.popitem(last=False)
                self._size -= its_size
                given_up.append(old)
        return given_up
