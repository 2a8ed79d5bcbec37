"""Keep the values used last, up to a bound; each value is made by one thread while others wait for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class LRUCache(Generic[_Value]):
    """Values by key; the least recently used are dropped once the sizes exceed ``most``.
    ``functools.lru_cache`` does not lock a key while its value is made, counts no sizes, and has no callback
    for dropped values. A value larger than ``most`` is returned and not kept."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, tuple[_Value, int]] = OrderedDict()
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
        """Return the value of ``key``, made if it is missing. Raises what ``make`` raises. ``dropped`` is
        called with each value that is dropped to make room."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._values:  # another thread has made it meanwhile
                    self._values.move_to_end(key)
                    return self._values[key][0]
            try:
                value = make()
                given_up = self._keep(key, value, size(value))
            finally:
                with self._lock:
                    self._making.pop(key, None)
        if dropped is not None:
            for old in given_up:
                dropped(old)
        return value

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Hashable]:
        """Iterate over the present keys, the least recently used first."""
        with self._lock:
            return iter([*self._values])

    def forget(self, value: _Value) -> None:
        """Drop ``value``, whatever its key."""
        with self._lock:
            for key in [key for key, (kept, _) in self._values.items() if kept is value]:
                self._size -= self._values.pop(key)[1]

    def _keep(self, key: Hashable, value: _Value, size: int) -> list[_Value]:
        given_up: list[_Value] = []
        with self._lock:
            if size > self.most:
                return given_up
            self._values[key] = value, size
            self._size += size
            while self._size > self.most:
                _, (old, its_size) = self._values.popitem(last=False)
                self._size -= its_size
                given_up.append(old)
        return given_up
