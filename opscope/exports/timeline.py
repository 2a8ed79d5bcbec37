"""The timeline of a profile: threads, streams and counters as tracks, with what ran on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.call_tree import named_frame
from opscope.core.tables.columns import compact
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.lanes import lanes
from opscope.exports.stacks import Stack, stacks

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Tracks of a process: what threads did, the CUDA calls that they made, what ran on a GPU, curves.
THREAD, CALLS, STREAM, COUNTER = "thread", "calls", "stream", "counter"
#: The curve of a device's use has so many points.
_POINTS: Final = 2_000
Codes = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the timeline. ``number``: unlike those of all others, from 1 on. ``pid``, ``tid``: as the
    system knows them, if it is a thread; ``unit``: that of a counter."""

    number: int
    kind: str
    process: int
    name: str
    pid: int
    tid: int | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """A column of texts: a code for each row, -1 for none, and the text of each code."""

    codes: Codes
    texts: list[str]


@dataclass(slots=True)
class Slices:
    """What ran on a track, by row; times in ns.

    ``stack`` has the rows that nest, ``marks`` those without a length. ``words``, ``numbers``: details by
    name; a number is unknown where its flag is unset. ``flow``: rows of equal flow are joined by an arrow,
    from the call to what it launched; 0 for none. ``table``, ``row``: where each is in the trace; ``op``: the
    row in ``ranges`` of the op that launched it, -1 for none.
    """

    start: Ints
    end: Ints
    name: Words
    kind: Words
    stack: Stack
    marks: Ints
    flow: Ints
    table: str
    row: Ints
    op: Ints
    words: dict[str, Words] = field(default_factory=dict)
    numbers: dict[str, tuple[Ints, NDArray[np.bool_]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Curve:
    """The values of a counter from each time (ns) on."""

    time: Ints
    value: NDArray[np.float64]


class Timeline:
    """The tracks of a profile, one after the other."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._number = 0
        self.trace = profile.attribution.trace
        told = self.trace["processes"].unique("process", keep="first", maintain_order=True)
        self.pids: dict[int, int] = {}
        self.processes: dict[int, str] = {}
        for row in told.to_dicts():
            number, pid, rank = row["process"], row.get("pid"), row.get("rank")
            self.pids[number] = number if pid is None else int(pid)
            said = [row.get("name"), None if rank is None else f"rank {rank}", row.get("host")]
            self.processes[number] = (
                ", ".join(str(one) for one in said if one) or f"process {number}"
            )
        if len(set(self.pids.values())) < len(self.pids):  # two hosts may have one pid
            self.pids = {number: number + 1 for number in self.pids}
        # other tools take times that are not negative
        self.shift = max(0, -self._earliest())
        named = self.trace["threads"]
        self._threads = {
            (process, thread): name
            for process, thread, name in named.select("process", "thread", "name").rows()
            if name
        }

    def __len__(self) -> int:
        """The number of slices and marks on all tracks."""
        return sum(len(self.trace[name]) for name in ("ranges", "calls", "kernels", "memops"))

    def slices(self) -> Iterator[tuple[Track, Slices]]:
        """Yield each track on which something ran, threads before streams."""
        flows = self._flows()
        yield from self._on_threads()
        yield from self._calls(flows)
        yield from self._on_devices(flows)

    def curves(self) -> Iterator[tuple[Track, Curve]]:
        """Yield each counter's track and values: samples, memory, use of the devices."""
        samples = self.trace["samples"].filter(pl.col("value").is_not_null())
        keys = ["process", "device", "name"]
        for (process, device, name), part in samples.group_by(keys, maintain_order=True):
            part = part.sort("time")
            said, unit = _unit(str(name))
            yield self._counter(process, device, said, unit, part["time"], part["value"])
        for frame, columns in (
            (
                self._profile.memory_curve(),
                {"in_use": "memory in use", "reserved": "memory reserved"},
            ),
            (
                self._profile.device_curve(_POINTS).rename({"start": "time"}),
                {
                    "gpu_utilization": "GPU utilization",
                    "sm_efficiency": "SM efficiency (estimated)",
                },
            ),
        ):
            for (process, device), part in frame.group_by(
                ["process", "device"], maintain_order=True
            ):
                for column, name in columns.items():
                    known = part.filter(pl.col(column).is_not_null()).sort("time")
                    if len(known):
                        unit = "bytes" if column in ("in_use", "reserved") else "fraction"
                        yield self._counter(
                            process, device, name, unit, known["time"], known[column]
                        )

    # ------------------------------------------------------------------------------------------

    def _track(self, kind: str, process: Any, name: str, tid: int | None = None) -> Track:
        self._number += 1
        number = int(process) if process is not None and process >= 0 else NONE
        return Track(self._number, kind, number, name, self.pids.get(number, 0), tid)

    def _counter(
        self, process: Any, device: Any, name: str, unit: str, time: pl.Series, value: pl.Series
    ) -> tuple[Track, Curve]:
        where = "" if device is None else f"device {device}: "
        track = self._track(COUNTER, process, f"{where}{name}")
        track = Track(track.number, COUNTER, track.process, track.name, track.pid, None, unit)
        return track, Curve(time.to_numpy() + self.shift, value.cast(pl.Float64).to_numpy())

    def _stacked(
        self, kind: str, process: int, name: str, tid: int | None, rows: Ints, made: Any
    ) -> Iterator[tuple[Track, Slices]]:
        """Yield the tracks of one thread or stream: one, and more where intervals cross."""
        start, end = made.start[rows] + self.shift, made.end[rows] + self.shift
        marks = np.flatnonzero(end <= start)
        for level, stack in enumerate(stacks(start, end)):
            more = f" ({level + 1})" if level else ""
            whole = self._track(kind, process, name + more, None if level else tid)
            yield whole, made.part(rows, start, end, stack, marks)
            marks = marks[:0]
        if len(marks):
            none = np.empty(0, np.int64)
            track = self._track(kind, process, name, tid)
            yield track, made.part(rows, start, end, Stack(none, none, none, none), marks)

    def _on_threads(self) -> Iterator[tuple[Track, Slices]]:
        attribution, ranges = self._profile.attribution, self.trace["ranges"]
        if ranges.is_empty():
            return
        meaning = attribution.meaning
        frames = [named_frame(*pair) for pair in zip(meaning.readings, meaning.texts, strict=True)]
        known = np.array([one is not None for one in frames], bool)
        reading = meaning.reading.astype(np.int32)
        made = _Table(
            ranges["start"].fill_null(0).to_numpy(),
            ranges["end"].fill_null(0).to_numpy(),
            Words(reading, ["" if one is None else one[0] for one in frames]),
            Words(reading, ["" if one is None else one[1] for one in frames]),
            np.zeros(len(ranges), np.int64),
            "ranges",
        )
        made.words["text"] = Words(reading, list(meaning.texts))
        ops = self._profile.ops(categories=True)
        if len(ops):
            row = np.flatnonzero(attribution.is_op)
            if len(row) == len(ops):
                for name in ("layer", "source", "direction"):
                    made.words[name] = _spread(ops[name], row, len(ranges))
                for name in ("flops", "bytes", "step"):
                    made.numbers[name] = _numbers(ops[name], row, len(ranges))
        for (process, thread), rows in lanes(ranges).rows(known[reading]):
            name = self._threads.get((process, thread), f"thread {thread}")
            yield from self._stacked(THREAD, process, name, thread, rows, made)

    def _calls(self, flows: dict[str, Ints]) -> Iterator[tuple[Track, Slices]]:
        calls = self.trace["calls"].filter(
            pl.col("start").is_not_null() & pl.col("end").is_not_null()
        )
        if calls.is_empty():
            return
        whole = self.trace["calls"]
        flow = flows["calls"]
        if len(calls) < len(whole):
            flow = flow[(whole["start"].is_not_null() & whole["end"].is_not_null()).to_numpy()]
        made = _Table(
            calls["start"].to_numpy(),
            calls["end"].to_numpy(),
            _named(calls["name"], "(call)"),
            _all("call", len(calls)),
            flow,
            "calls",
        )
        for (process, thread), rows in lanes(calls).rows(np.ones(len(calls), bool)):
            name = self._threads.get((process, thread), f"thread {thread}")
            yield from self._stacked(CALLS, process, f"{name}: calls", None, rows, made)

    def _on_devices(self, flows: dict[str, Ints]) -> Iterator[tuple[Track, Slices]]:
        profile = self._profile
        for table, frame, name, launched in (
            ("kernels", profile.kernels(categories=True), "name", profile.attribution.kernels),
            ("memops", profile.memops(categories=True), "kind", profile.attribution.memops),
        ):
            if frame.is_empty():
                continue
            kind = "kernel" if table == "kernels" else "copy"
            made = _Table(
                frame["start"].fill_null(0).to_numpy(),
                frame["end"].fill_null(0).to_numpy(),
                _named(frame[name], f"({kind})"),
                _all(kind, len(frame)),
                flows[table],
                table,
                launched.op.astype(np.int64),
            )
            for column in ("op", "layer", "source", "direction", "inputs", "reason"):
                made.words[column] = _words(frame[column])
            for column in ("flops", "bytes", "step"):
                if column in frame.columns:
                    made.numbers[column] = _numbers(frame[column], None, len(frame))
            keys = ["process", "device", "context", "stream"]
            places = frame.select(keys).with_row_index("row")
            for key, part in places.group_by(keys, maintain_order=True):
                process, device, context, stream = key
                said = [f"device {device}", None if stream is None else f"stream {stream}"]
                said += [None if context in (None, 0) else f"context {context}"]
                title = " ".join(one for one in said if one) + (
                    ": copies" if kind == "copy" else ""
                )
                rows = part["row"].to_numpy().astype(np.int64)
                yield from self._stacked(STREAM, process, title, None, rows, made)

    def _earliest(self) -> int:
        times = [
            self.trace[table][column].min()
            for table, column in (
                ("ranges", "start"), ("calls", "start"), ("kernels", "start"), ("memops", "start"),
                ("samples", "time"), ("allocations", "time"),
            )
        ]  # fmt: skip
        return min((int(one) for one in times if isinstance(one, int)), default=0)

    def _flows(self) -> dict[str, Ints]:
        """Return for each call, kernel and copy the number of its flow: that of the call's row, from 1."""
        launched = self._profile.attribution.kernels, self._profile.attribution.memops
        found = {
            name: np.where(one.call >= 0, one.call.astype(np.int64) + 1, 0)
            for name, one in zip(("kernels", "memops"), launched, strict=True)
        }
        calls = np.zeros(len(self.trace["calls"]), np.int64)
        for one in found.values():
            used = one[one > 0]
            calls[used - 1] = used
        return found | {"calls": calls}


@dataclass(slots=True)
class _Table:
    """The rows of a table, of which tracks take their parts."""

    start: Ints
    end: Ints
    name: Words
    kind: Words
    flow: Ints
    table: str
    op: Ints | None = None
    words: dict[str, Words] = field(default_factory=dict)
    numbers: dict[str, tuple[Ints, NDArray[np.bool_]]] = field(default_factory=dict)

    def part(self, rows: Ints, start: Ints, end: Ints, stack: Stack, marks: Ints) -> Slices:
        def words(one: Words) -> Words:
            return Words(one.codes[rows], one.texts)

        return Slices(
            start,
            end,
            words(self.name),
            words(self.kind),
            stack,
            marks,
            self.flow[rows],
            self.table,
            rows,
            np.full(len(rows), NONE, np.int64) if self.op is None else self.op[rows],
            {name: words(one) for name, one in self.words.items()},
            {name: (value[rows], known[rows]) for name, (value, known) in self.numbers.items()},
        )


def _words(column: pl.Series) -> Words:
    codes, texts = compact(column.cast(pl.Categorical))
    missing = np.array([one is None for one in texts], bool)
    found = np.asarray(codes, np.int32)
    if missing.any():
        found = np.where(missing[found], NONE, found).astype(np.int32)
    return Words(found, [one or "" for one in texts])


def _named(column: pl.Series, otherwise: str) -> Words:
    """Return a column of names; where there is none, ``otherwise``."""
    made = _words(column)
    texts = [*made.texts, otherwise]
    codes = np.where(made.codes < 0, len(made.texts), made.codes)
    return Words(codes.astype(np.int32), texts)


def _spread(column: pl.Series, rows: Ints, many: int) -> Words:
    made = _words(column)
    codes = np.full(many, NONE, np.int32)
    codes[rows] = made.codes
    return Words(codes, made.texts)


def _numbers(column: pl.Series, rows: Ints | None, many: int) -> tuple[Ints, NDArray[np.bool_]]:
    known = column.is_not_null().to_numpy()
    value = column.fill_null(0).cast(pl.Int64).to_numpy()
    if rows is None:
        return value, known
    values, flags = np.zeros(many, np.int64), np.zeros(many, bool)
    values[rows], flags[rows] = value, known
    return values, flags


def _all(text: str, many: int) -> Words:
    return Words(np.zeros(many, np.int32), [text])


def _unit(name: str) -> tuple[str, str]:
    """Return a sample's name without its unit, and the unit: ``GPU power [W]``."""
    said, bracket, unit = name.rpartition(" [")
    return (said, unit[:-1]) if bracket and unit.endswith("]") else (name, "")
