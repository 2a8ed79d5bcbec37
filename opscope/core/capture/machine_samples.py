"""Sample what a process and its children read and write, their memory, and the machine's network.

Rates are differences of the system's counters, so nothing between two samples is missed. On Linux a process's
counters of its disk include those of children that have ended and were waited for, as with its processor
time. Only bytes that reach the disk count, not those served by the page cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opscope.core.schema import (
    CHILDREN_MEMORY,
    DISK_READ,
    DISK_WRITTEN,
    NETWORK_RECEIVED,
    NETWORK_SENT,
)


class MachineSamples:
    """Reads the counters; a counter that the system refuses is noted once and left out from then on."""

    names = (CHILDREN_MEMORY, DISK_READ, DISK_WRITTEN, NETWORK_RECEIVED, NETWORK_SENT)

    def __init__(self, psutil: Any, process: Any, note: Callable[[str, str], object]) -> None:
        self._psutil = psutil
        self._process = process
        self._note = note
        self._refused: set[str] = set()
        self._before: dict[str, tuple[int, float, float]] = {}

    def sample(self, now: int, children: Iterable[Any] | None) -> list[float | None]:
        """Return a value for each of ``names`` at ``now`` (ns); None: not known.

        ``children``: the living child processes; None if the system does not list them.
        """
        child_list = None if children is None else list(children)
        memory = None
        if child_list is not None:
            memory = sum(self._of_child(child, _memory) for child in child_list)
        disk = self._read("the process's disk", lambda: self._disk(child_list or ()))
        network = self._read("the machine's network", self._network)
        return [memory, *self._rates("disk", now, disk), *self._rates("network", now, network)]

    def _rates(
        self, key: str, now: int, totals: tuple[float, float] | None
    ) -> tuple[float | None, float | None]:
        if totals is None:
            return None, None
        before = self._before.get(key)
        self._before[key] = (now, *totals)
        if before is None or now <= before[0]:
            return None, None
        seconds = (now - before[0]) / 1e9
        # the bytes of a child that ended unobserved are lost with it
        first, second = (max(0.0, totals[i] - before[1 + i]) / seconds for i in range(2))
        return first, second

    def _disk(self, children: Iterable[Any]) -> tuple[float, float]:
        read, written = _disk(self._process)
        for child in children:
            more = self._of_child(child, _disk_sum)
            read, written = read + more.real, written + more.imag
        return read, written

    def _of_child(self, child: Any, function: Callable[[Any], Any]) -> Any:
        try:
            return function(child)
        except (self._psutil.Error, OSError, AttributeError):
            # the process has ended, or belongs to another user
            return 0

    def _network(self) -> tuple[float, float]:
        received = sent = 0.0
        for name, counters in self._psutil.net_io_counters(pernic=True).items():
            if name != "lo" and not name.startswith("lo0"):
                received, sent = received + counters.bytes_recv, sent + counters.bytes_sent
        return received, sent

    def _read(
        self, key: str, read: Callable[[], tuple[float, float]]
    ) -> tuple[float, float] | None:
        if key in self._refused:
            return None
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - whatever a system refuses, the rest is sampled
            self._refused.add(key)
            self._note("info", f"{key} is not sampled: {type(error).__name__}: {error}")
            return None


def _memory(process: Any) -> float:
    return float(process.memory_info().rss)


def _disk(process: Any) -> tuple[float, float]:
    counted = process.io_counters()
    return float(counted.read_bytes), float(counted.write_bytes)


def _disk_sum(process: Any) -> complex:
    return complex(*_disk(process))
