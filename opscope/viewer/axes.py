"""Store each time of a single file once, in a sorted list per lane; tables and timeline refer to positions.

Times differ from step to step, but the order of begins and ends is the same. So a column of times is stored
as positions on these axes, which compress well. The times themselves compress badly, and are in the file only
once, though ops, kernels, calls, the critical path and the timeline all use them.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

Times = NDArray[np.int64]

#: The most axes: the axis of a position is stored in a byte.
MOST: Final = 255
#: Number of values examined to see whether a column holds times.
_LOOKED_AT: Final = 512


@dataclass(slots=True)
class Axes:
    """Sorted distinct times by lane: of a thread ``(process, thread)``, of a stream ``(process, device,
    stream)``; the last axis may have times that are on no lane."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    times: list[Times] = field(default_factory=list)

    @classmethod
    def of(cls, lanes: Mapping[Hashable, list[Times]]) -> Axes:
        """Return the axes of these lanes; none if there are too many lanes."""
        if len(lanes) >= MOST:
            return cls()
        times = [np.unique(np.concatenate(parts)) for parts in lanes.values()]
        return cls({key: number for number, key in enumerate(lanes)}, times)

    def add_missing(self, columns: Iterable[pl.Series]) -> None:
        """Add an axis for times in ``columns`` that are on no axis; other columns are ignored."""
        if not self.times:
            return
        missing = [
            values[self._axis(values, None)[0] == MOST]
            for column in columns
            if self._are_times(values := _known(column))
        ]
        left = np.unique(np.concatenate(missing)) if missing else np.zeros(0, np.int64)
        if len(left):
            self.times.append(left)

    def lanes_of(self, frame: pl.DataFrame) -> NDArray[np.uint8] | None:
        """Return the axis on which each row's times are likely to be, from the columns that say its lane."""
        lane_of_row = np.full(len(frame), MOST, np.uint8)
        for key in (("process", "thread"), ("process", "device", "stream")):
            if self.times and set(key) <= set(frame.columns):
                for values, rows in frame.select(key).with_row_index("at").partition_by(
                    key, as_dict=True
                ).items():  # fmt: skip
                    number = self.numbers.get(values)
                    # for events without a device the thread decides: a kernel's device may be unknown
                    if number is not None and ("device" not in key or values[1] is not None):
                        lane_of_row[rows["at"].to_numpy()] = number
        return lane_of_row if (lane_of_row != MOST).any() else None

    def places(
        self, values: Times, likely: NDArray[np.uint8] | None
    ) -> tuple[NDArray[np.uint8], Times] | None:
        """Return each value's axis and position; None if any value is on no axis."""
        if not self._are_times(values):
            return None
        axis, index = self._axis(values, likely)
        return None if (axis == MOST).any() else (axis, index)

    def _are_times(self, values: Times) -> bool:
        if not self.times or not len(values):
            return False
        some = values[:: max(1, len(values) // _LOOKED_AT)]
        return bool((self._axis(some, None)[0] != MOST).mean() > 0.5)

    def _axis(
        self, values: Times, likely: NDArray[np.uint8] | None
    ) -> tuple[NDArray[np.uint8], Times]:
        axis = np.full(len(values), MOST, np.uint8)
        index = np.zeros(len(values), np.int64)
        if likely is not None:
            for number in np.unique(likely):
                if number != MOST:
                    self._look(int(number), np.flatnonzero(likely == number), values, axis, index)
        left = np.flatnonzero(axis == MOST)
        if len(left):
            some = values[left[:: max(1, len(left) // _LOOKED_AT)]]
            hits = [int(_find(some, times)[0].sum()) for times in self.times]
            for number in np.argsort(hits, kind="stable")[::-1]:
                self._look(int(number), left, values, axis, index)
                left = left[axis[left] == MOST]
                if not len(left):
                    break
        return axis, index

    def _look(
        self, number: int, rows: Times, values: Times, axis: NDArray[np.uint8], times: Times
    ) -> None:
        """Write the positions of the values that are on this axis."""
        is_here, at = _find(values[rows], self.times[number])
        axis[rows[is_here]] = number
        times[rows[is_here]] = at[is_here]

    @property
    def usable(self) -> bool:
        """Whether there are axes, each short enough that JavaScript holds differences of its times
        exactly."""
        return bool(self.times) and all(
            int(time_[-1]) - int(time_[0]) < 2**53 for time_ in self.times
        )

    def slices(self, frame: pl.DataFrame) -> Slices:
        """Return where the slices of a timeline are, each on the axis of its lane."""
        axis = self.lanes_of(frame) if len(frame) else None
        if axis is None:
            none = np.zeros(0, np.int64)
            return Slices(none.astype(np.uint8), none, none, none.astype(np.uint32))
        start, end = np.zeros(len(frame), np.int64), np.zeros(len(frame), np.int64)
        for number in np.unique(axis):
            rows = np.flatnonzero(axis == number)
            for name, index in (("start", start), ("end", end)):
                values = frame[name].to_numpy()[rows]
                index[rows] = np.searchsorted(self.times[number], values)
        return Slices(axis, start, end, frame["name"].to_numpy())

    def packed(self, slices: Slices) -> bytes:
        """Return the axes as bytes; ``slices``: all slices of the timeline.

        The layout is a length (u32), a header in JSON (``axes``: how many times each has and the
        first, as text; ``unit``, ``size``), and the difference of each time from the one before, in
        units, axis by axis, byte plane by byte plane. Within an axis, differences that lead to the
        same kind of event are stored together, so that constant durations compress to almost
        nothing. The page knows from the timeline which slice begins or ends where.
        """
        events = slices.events([len(time_) for time_ in self.times])
        steps = [np.diff(times, prepend=times[:1]) for times in self.times]
        every = np.concatenate(
            [
                column[np.argsort(event, kind="stable")]
                for column, event in zip(steps, events, strict=True)
            ]
        ).view(np.uint64)
        unit = max(1, int(np.gcd.reduce(every)))
        every = every // np.uint64(unit)
        size = max(1, (int(every.max()).bit_length() + 7) // 8)
        axes = [{"many": len(time_), "first": str(time_[0])} for time_ in self.times]
        head = {"axes": axes, "unit": unit, "size": size}
        return headed(head, planes(every, size))


@dataclass(frozen=True, slots=True)
class Slices:
    """The timeline's slices: the axis of each, the places of its start and end, the number of its name."""

    axis: NDArray[np.uint8]
    start: Times
    end: Times
    name: NDArray[np.uint32]

    def events(self, sizes: list[int]) -> list[NDArray[np.uint32]]:
        """Return for each position of each axis a number for the event there; 0 for none."""
        events = [np.zeros(size, np.uint32) for size in sizes]
        for place, kind in ((self.start, 1), (self.end, 2)):
            event = self.name.astype(np.uint32) * 2 + kind
            for number in np.unique(self.axis):
                rows = np.flatnonzero(self.axis == number)
                # of several slices at a position the last counts
                events[number][place[rows]] = event[rows]
        return events


def axes_of(slices: pl.DataFrame, each: Mapping[str, pl.DataFrame]) -> Axes:
    """Return the axes of a timeline's slices and of the tables of each op, kernel and copy."""
    lanes: dict[Hashable, list[Times]] = {}
    host, stream = ("process", "thread"), ("process", "device", "stream")
    on_host = pl.col("device").is_null()
    parts = [(each["each_op"], host), (each["each_kernel"], stream), (each["each_copy"], stream)]
    if len(slices):
        parts = [(slices.filter(on_host), host), (slices.filter(~on_host), stream), *parts]
    for frame, key in parts:
        for lane, rows in frame.select(*key, "start", "end").partition_by(
            list(key), as_dict=True
        ).items():  # fmt: skip
            lanes.setdefault(lane, []).extend(_known(rows[name]) for name in ("start", "end"))
    return Axes.of(lanes)


def headed(head: dict[str, Any], *pieces: bytes) -> bytes:
    """Return a header's length (u32), the header as JSON, and the data after it."""
    text = json.dumps(head, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = text.encode("utf-8", "surrogatepass")
    return b"".join((len(data).to_bytes(4, "little"), data, *pieces))


def planes(values: NDArray[Any], size: int) -> bytes:
    """Return the lowest ``size`` bytes of each number, plane by plane: gzip makes them much smaller."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    single = little.view(np.uint8).reshape(len(values), little.itemsize)
    planes_joined: bytes = single[:, :size].T.tobytes()
    return planes_joined


def _find(values: Times, times: Times) -> tuple[NDArray[np.bool_], Times]:
    at = np.searchsorted(times, values)
    at[at == len(times)] = 0
    return times[at] == values, at


def _known(column: pl.Series) -> Any:
    return column.drop_nulls().to_numpy()
