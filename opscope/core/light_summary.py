"""Light mode's summary of all steps and samples, in bounded memory: exact sums, sketches, chosen
steps.

* ``blocks``: sums of the steps that begin in each stretch of time. Beyond ``MAX_BLOCKS``, pairs are
  joined: stretches double and sums stay exact.
* ``lengths``: how many steps took how long, by phase, in buckets whose bounds grow by ``GROWTH``:
  any quantile is right within 1 %.
* ``kept``: whole steps: the slowest, the first, the last, and each 2^k-th of all.
* ``series``: samples in stretches that double in the same way: how many, sum, least, most.

NumPy processes many records at once: a second's steps at a time on the writer's thread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .light_format import (
    BEGIN,
    FIRST_PHASE,
    FULL,
    HEADER,
    MAGIC,
    NUMBER,
    PHASES,
    SAMPLE,
    STEP,
    TOOK,
    VERSION,
    WIDTH,
)

Ints = NDArray[np.int64]

MAX_BLOCKS: Final = 2048
#: A block is at first this long (ns).
BLOCK_NS: Final = 1_000_000_000
#: The columns of a block: its place (time / length), first step, number of steps, first begin, last end, the
#: sums of the steps and of their phases, the longest step.
BLOCK: Final = ("place", "first_step", "steps", "start", "end", "step", *PHASES, "longest")
_SUMS: Final = slice(5, 5 + 1 + len(PHASES))
#: Buckets of ``lengths``: bucket b holds lengths above GROWTH^(b-1) and up to GROWTH^b ns; bucket 0
#: those up to 1 ns.
GROWTH: Final = 1.02
BUCKETS: Final = 1600
_LOG: Final = math.log(GROWTH)
#: How many steps are kept: of the slowest, of the first, of the last, and of evenly spaced ones.
SLOWEST, FIRST, LAST, EVEN = 256, 64, 1024, 2048
#: The columns of a kept step: those of a record, with the rest of the step after the phases.
KEPT: Final = ("seq", "kind", "step", "start", "time", *PHASES)
MAX_POINTS: Final = 1024
#: Samples of the same stretch of time form one point. Stretches begin at this length (ns).
POINT_NS: Final = 250_000_000
#: The columns of a point.
POINT: Final = ("place", "time", "count", "sum", "least", "most")
#: Series beyond this many are left out.
MAX_SERIES: Final = 1024
_MAX_HEADER: Final = 4 << 20

_Rows = NDArray[Any]
#: How columns of rows of one position are joined.
_Sums = Sequence[tuple[np.ufunc, list[int]]]
_OF_POINT: Final[_Sums] = ((np.maximum, [1, 5]), (np.add, [2, 3]), (np.minimum, [4]))
_OF_BLOCK: Final[_Sums] = (
    (np.add, [2, *range(len(BLOCK))[_SUMS]]), (np.minimum, [3]), (np.maximum, [4, -1]),
)  # fmt: skip


class Unreadable(ValueError):
    """The bytes are not a snapshot of light mode; the message says why."""


class Series:
    """One quantity over time: points of float64, of ``POINT``'s columns."""

    def __init__(self) -> None:
        self.length = POINT_NS
        self.points = np.zeros((0, len(POINT)))

    def add(self, time: Ints, value: NDArray[np.float64]) -> None:
        """Add values at times (ns), in order of time. Values that are not numbers are left out."""
        is_finite = np.isfinite(value)
        time, value = time[is_finite], value[is_finite]
        if not len(time):
            return
        ones = np.ones_like(value)
        new = np.stack([time // self.length, time, ones, value, value, value], axis=1)
        self.points, self.length = _added(self.points, new, self.length, MAX_POINTS, _OF_POINT)


class Summary:
    """The summary of one process."""

    def __init__(self) -> None:
        #: Number of records added; number of steps added; number of steps recorded in full.
        self.records = self.steps = self.full = 0
        self.block_ns = BLOCK_NS
        self.blocks: Ints = np.zeros((0, len(BLOCK)), np.int64)
        self.lengths: Ints = np.zeros((1 + len(PHASES), BUCKETS), np.int64)
        self.slowest = self.first = self.last = self.even = np.zeros((0, len(KEPT)), np.int64)
        #: Each step whose position is a multiple of this is kept.
        self.stride = 1
        #: (number of the name, device) → the points of the series
        self.series: dict[tuple[int, int], Series] = {}

    def add(self, records: Ints) -> None:
        """Add records, in order, an array of ``WIDTH`` columns; records that were added before are
        skipped."""
        records = records[records[:, 0] >= self.records]
        if not len(records):
            return
        self.records = int(records[-1, 0]) + 1
        kind = records[:, 1]
        self._add_steps(records[(kind == STEP) | (kind == FULL)])
        self._add_samples(records[kind == SAMPLE])

    def _add_steps(self, records: Ints) -> None:
        if not len(records):
            return
        rest = records[:, TOOK] - records[:, FIRST_PHASE:].sum(axis=1)
        rows = np.concatenate([records, rest[:, None]], axis=1)
        full = rows[:, 1] == FULL
        self.full += int(full.sum())
        rows[~full, 0] = self.steps + np.arange(int((~full).sum()))
        self.last = np.concatenate([self.last, rows])[-LAST:]
        rows = rows[~full]
        if not len(rows):
            return
        self.steps += len(rows)
        self.first = np.concatenate([self.first, rows[: FIRST - len(self.first)]])
        least = self.slowest[:, TOOK].min() if len(self.slowest) == SLOWEST else -1
        slow = rows[rows[:, TOOK] > least]
        if len(slow):
            slow = np.concatenate([self.slowest, slow])
            if len(slow) > SLOWEST:
                slow = slow[np.argpartition(slow[:, TOOK], -SLOWEST)[-SLOWEST:]]
            self.slowest = slow
        new = rows[rows[:, 0] % self.stride == 0]
        self.even = _put(self.even, len(self.even), new, EVEN)
        while len(self.even) > EVEN:
            self.stride *= 2
            self.even = _put(self.even, 0, self.even[self.even[:, 0] % self.stride == 0], EVEN)
        lengths = np.concatenate([rows[:, TOOK : TOOK + 1], rows[:, FIRST_PHASE:]], axis=1)
        bucket_of_length = bucket(lengths)
        for column in range(lengths.shape[1]):
            self.lengths[column] += np.bincount(bucket_of_length[:, column], minlength=BUCKETS)
        self._add_blocks(rows)

    def _add_blocks(self, rows: Ints) -> None:
        ones, begin, took = np.ones(len(rows), np.int64), rows[:, BEGIN], rows[:, TOOK]
        new = np.column_stack(
            [begin // self.block_ns, rows[:, NUMBER], ones, begin, begin + took, took]
            + [rows[:, FIRST_PHASE + number] for number in range(len(PHASES))]
            + [took]
        )
        self.blocks, self.block_ns = _added(self.blocks, new, self.block_ns, MAX_BLOCKS, _OF_BLOCK)

    def _add_samples(self, records: Ints) -> None:
        if not len(records):
            return
        values = np.ascontiguousarray(records[:, 5]).view(np.float64)
        for name, device in {(int(a), int(b)) for a, b in records[:, 3:5]}:
            key = (name, device)
            if key not in self.series and len(self.series) >= MAX_SERIES:
                continue
            mine = (records[:, 3] == name) & (records[:, 4] == device)
            self.series.setdefault(key, Series()).add(records[mine, 2], values[mine])

    @property
    def totals(self) -> Ints:
        """The sums over all steps: of the steps, and of each phase (ns)."""
        sums: Ints = self.blocks[:, _SUMS].sum(axis=0)
        return sums

    def kept(self) -> Ints:
        """All kept steps in order, each once, of ``KEPT``'s columns."""
        rows = np.concatenate([self.slowest, self.first, self.last, self.even])
        rows = rows[np.lexsort((rows[:, 0], rows[:, 1], rows[:, BEGIN]))]
        once: Ints = rows[(np.diff(rows[:, :2], axis=0, prepend=-1) != 0).any(axis=1)]
        return once

    # ----------------------------------------------------------------------------- bytes

    def snapshot(self, facts: Mapping[str, Any]) -> list[Any]:
        """Return the summary, with ``facts`` (JSON) in the header, as pieces to write one after another. The
        pieces are the arrays themselves: joined, each snapshot took another 2 MB for a moment."""
        arrays = {
            "blocks": self.blocks,
            "lengths": self.lengths,
            "slowest": self.slowest,
            "first": self.first,
            "last": self.last,
            "even": self.even,
        }
        series = [[*key, points.length, len(points.points)] for key, points in self.series.items()]
        header = json.dumps(
            {
                "facts": dict(facts),
                "arrays": {name: len(array) for name, array in arrays.items()},
                "series": series,
                "records": self.records,
                "steps": self.steps,
                "full": self.full,
                "block_ns": self.block_ns,
                "stride": self.stride,
            }
        ).encode()
        pieces = [*arrays.values(), *(series.points for series in self.series.values())]
        head: list[Any] = [HEADER.pack(MAGIC, VERSION, len(header)), header]
        return head + [np.ascontiguousarray(piece) for piece in pieces]

    @classmethod
    def of(cls, data: bytes) -> tuple[Summary, dict[str, Any]]:
        """Return the summary and the facts that ``snapshot`` wrote. Raises Unreadable."""
        try:
            return cls._of(data)
        except Unreadable:
            raise
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise Unreadable(f"damaged: {type(error).__name__}") from None

    @classmethod
    def _of(cls, data: bytes) -> tuple[Summary, dict[str, Any]]:
        if len(data) < HEADER.size:
            raise Unreadable("it is too short")
        magic, version, size = HEADER.unpack_from(data)
        if magic != MAGIC:
            raise Unreadable("it does not begin like a summary of light mode")
        if version != VERSION:
            raise Unreadable(f"written in version {version}; this opscope reads {VERSION}")
        if size > _MAX_HEADER:
            raise Unreadable("its header is too long")
        at = HEADER.size + size
        header = json.loads(data[HEADER.size : at])
        summary = cls()
        for name in ("records", "steps", "full", "block_ns", "stride"):
            value = header[name]
            if type(value) is not int or not 0 <= value < 1 << 62:
                raise Unreadable(f"{name} is no count")
            setattr(summary, name, value)
        summary.block_ns, summary.stride = max(1, summary.block_ns), max(1, summary.stride)

        def take(rows: Any, columns: int, dtype: Any) -> Any:
            nonlocal at
            if type(rows) is not int or rows < 0 or at + rows * columns * 8 > len(data):
                raise Unreadable("it ends too early")
            values = np.frombuffer(data, dtype, rows * columns, at).reshape(rows, columns).copy()
            at += rows * columns * 8
            return values

        shapes = {"blocks": len(BLOCK), "lengths": BUCKETS}
        for name in ("blocks", "lengths", "slowest", "first", "last", "even"):
            array = take(header["arrays"][name], shapes.get(name, len(KEPT)), "<i8")
            setattr(summary, name, array)
        if len(summary.lengths) != 1 + len(PHASES):
            raise Unreadable("its phases are not light mode's")
        for name, device, length, rows in header["series"][:MAX_SERIES]:
            series = Series()
            series.length = max(1, int(length))
            series.points = take(rows, len(POINT), "<f8")
            summary.series[int(name), int(device)] = series
        facts = header["facts"]
        return summary, facts if isinstance(facts, dict) else {}


def bucket(length: Ints) -> Ints:
    """Return the bucket of each length (ns)."""
    # a length at a bound may fall into either bucket by rounding: both are within 1 %
    exact = np.ceil(np.log(np.maximum(length, 1)) / _LOG)
    buckets: Ints = np.minimum(exact.astype(np.int64), BUCKETS - 1)
    return buckets


def middle(bucket_number: int) -> float:
    """Return the length (ns) that represents a bucket: within 1 % of all lengths in it."""
    return 0.5 if bucket_number == 0 else 2 * GROWTH**bucket_number / (GROWTH + 1)


def quantile(counts: Ints, share: float) -> float | None:
    """Return the length (ns) below which ``share`` of the counted lengths lie, within 1 %; None if there
    are none."""
    total = int(counts.sum())
    if not total:
        return None
    index = int(np.searchsorted(np.cumsum(counts), max(1, math.ceil(share * total))))
    return middle(index) if index else 0.0


def read_records(data: bytes) -> Ints:
    """Return the complete records in a log's bytes."""
    record_count = len(data) // (8 * WIDTH)
    return np.frombuffer(data, "<i8", record_count * WIDTH).reshape(record_count, WIDTH)


def _added(old: _Rows, new: _Rows, length: int, most: int, sums: _Sums) -> tuple[_Rows, int]:
    """Return the sums by stretches of time, to which ``new`` ones are added, and the length of the
    stretches. Stretches begin as those of ``old``, and become twice as long if there are more than
    ``most``."""
    at = int(old[:, 0].searchsorted(new[:, 0].min()))
    rows = _put(old, at, _joined(np.concatenate([old[at:], new]), sums), most)
    while len(rows) > most:
        length *= 2
        rows[:, 0] //= 2
        rows = _put(rows, 0, _joined(rows, sums), most)
    return rows, length


def _put(old: _Rows, at: int, rows: _Rows, most: int) -> _Rows:
    """Return ``old`` up to row ``at``, and then ``rows``, in the memory of ``old``, which has place for
    ``most``: a new array each time made the memory of a process vary by 1 MB."""
    end, room = at + len(rows), old.base
    if room is None or len(room) < end:
        room = np.zeros((max(most, end) + LAST, old.shape[1]), old.dtype)
        room[:at] = old[:at]
    room[at:end] = rows
    return room[:end]


def _joined(rows: _Rows, sums: _Sums) -> _Rows:
    """Return the rows in order of position, with rows of equal position joined; columns that ``sums`` does
    not name have the values of the first row."""
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    starts = np.flatnonzero(np.diff(rows[:, 0], prepend=rows[0, 0] - 1))
    joined = rows[starts]
    for function, columns in sums:
        joined[:, columns] = function.reduceat(rows[:, columns], starts, axis=0)
    return joined
