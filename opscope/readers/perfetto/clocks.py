"""Put the times of Perfetto's packets on one clock, that of its snapshots (boot time)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from opscope.core.hlo.wire import fields, number, spans
from opscope.core.tables.intervals import Ints

#: The clocks of the system: time of day, and time since boot, which is the default for a trace's times.
REALTIME, BOOT = 1, 6
#: Clocks from this number on belong to a sequence.
_OWN, _OWN_END = 64, 128
#: Marks an impossible time (ns).
_FAR: Final = 1 << 62


@dataclass(slots=True)
class _Snapshot:
    """A reading of a clock: its value ``value`` (in units of ``unit`` ns) was ``boot`` ns; ``row``: its row
    in the piece."""

    value: int
    boot: int
    unit: int
    adds: bool
    row: int


class Clocks:
    """The readings of all clocks in snapshots, by sequence (0: all) and number."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[_Snapshot]] = {}
        self.to_unix: int | None = None
        self.untold: set[int] = set()

    def snapshot(self, data: Any, message: Any, sequence: int, row: int) -> None:
        """Store the readings of the snapshot in the packet ``row`` of the piece."""
        readings = [fields(data, *span) for span in spans(message, 1)]
        values = {number(reading, 1): number(reading, 2) for reading in readings}
        primary = number(message, 2) or BOOT
        boot = values.get(BOOT, values.get(primary))
        if boot is None:
            return
        if REALTIME in values and self.to_unix is None:
            self.to_unix = values[REALTIME] - boot
        for reading in readings:
            clock = number(reading, 1)
            unit = number(reading, 4) or 1
            if not 0 < unit < 1 << 32:
                continue
            key = (sequence if _OWN <= clock < _OWN_END else 0, clock)
            taken = _Snapshot(number(reading, 2), boot, unit, bool(number(reading, 3)), row)
            self._known.setdefault(key, []).append(taken)

    def times(self, value: Ints, sequence: Ints, clock: Ints) -> Ints:
        """Return the times (ns) of a piece's packets; times of clocks without a snapshot are unchanged."""
        time = np.where((value < 0) | (value > _FAR), _FAR, value)
        other = np.flatnonzero((clock != 0) & (clock != BOOT))
        if len(other):
            own = (clock[other] >= _OWN) & (clock[other] < _OWN_END)
            keys = np.stack((np.where(own, sequence[other], 0), clock[other]), axis=1)
            pairs, index = np.unique(keys, axis=0, return_inverse=True)
            order = np.argsort(index.reshape(-1), kind="stable")
            edges = np.searchsorted(index.reshape(-1)[order], np.arange(len(pairs) + 1))
            for at, key in enumerate(pairs.tolist()):
                rows = other[order[edges[at] : edges[at + 1]]]
                self._place((key[0], key[1]), rows, value, time)
        for readings in self._known.values():  # the next piece counts its packets from 0 again
            del readings[:-1]
            readings[-1].row = -1
        return time

    def _place(self, key: tuple[int, int], rows: Ints, value: Ints, time: Ints) -> None:
        """Fill in the times of the packets of one clock."""
        readings = self._known.get(key)
        if not readings:
            self.untold.add(key[1])
            return
        edges = [
            0,
            *np.searchsorted(rows, [reading.row for reading in readings[1:]]).tolist(),
            len(rows),
        ]
        for reading, first, last in zip(readings, edges[:-1], edges[1:], strict=True):
            part = rows[first:last]
            if not len(part):
                continue
            bounded = np.clip(value[part], -_FAR // reading.unit, _FAR // reading.unit)
            if reading.adds:
                placed = reading.boot + np.cumsum(bounded) * reading.unit
                reading.boot = int(placed[-1])
            else:
                placed = reading.boot + (bounded - reading.value) * reading.unit
            time[part] = np.where((placed < 0) | (placed > _FAR), _FAR, placed)
