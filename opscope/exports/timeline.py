"""The timeline of a profile: threads, streams and counters as tracks, with the events on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.host.host_lines import known_stacks
from opscope.core.analysis.ops.call_tree import named_frame
from opscope.core.analysis.ops.kernels import told_of
from opscope.core.analysis.ops.op_frame import costs_of
from opscope.core.analysis.ops.ops import op_index
from opscope.core.schema import TABLES
from opscope.core.tables.columns import compact, distinct_values, least, numbers_of, pieces
from opscope.core.tables.intervals import NONE, Ints, in_order, windows
from opscope.core.tables.lanes import lanes, numbered_by, rows_of
from opscope.core.tables.mapped import POSSIBLE, Mapped, let_go, zeros
from opscope.exports.stacks import Stack, stacks

if TYPE_CHECKING:
    from opscope.core.analysis.ops.kernels import Told
    from opscope.profile import Profile

#: Kinds of tracks of a process: ranges on threads, CUDA calls, samples of Python stacks, work on a GPU,
#: counters.
THREAD, CALLS, LINES, STREAM, COUNTER = "thread", "calls", "lines", "stream", "counter"
#: Points in the curve of a device's use.
_POINTS: Final = 2_000
#: If there are more texts than this many times the rows, the rows are sorted; otherwise each text gets a
#: flag.
_SPARSE: Final = 8
#: The columns of ranges that are not read with the others: ``_APART``'s, and two that are never needed here.
_UNREAD: Final = frozenset({"seq", "fwd_thread", "payload", "end_thread"})
#: The columns of a saved profile's tables that are read: those that identify the op of a kernel, and those
#: that are shown.
_READ: Final = {
    "kernels": (
        *("process", "device", "context", "stream", "start", "end", "name", "correlation"),
        *("graph", "graph_node", "op_key", "attrs"),
    ),
    "calls": tuple(TABLES["calls"]),
    "ranges": tuple(column for column in TABLES["ranges"] if column not in _UNREAD),
}
#: Columns that may contain nulls, which columns in mapped files cannot hold.
_APART: Final = (("ranges", "seq"), ("ranges", "fwd_thread"))
Codes = NDArray[np.int32]
#: The columns of kernels and copies that are shown as details.
_TOLD: Final = ("op", "layer", "source", "direction", "inputs", "reason")
_COUNTED: Final = ("flops", "bytes", "step")


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the timeline. ``number``: unique, from 1 on. ``pid``, ``tid``: the system's ids, if the
    track is a thread; ``thread``: the thread that the track belongs to; ``unit``: the unit of a counter."""

    number: int
    kind: str
    process: int
    name: str
    pid: int
    tid: int | None = None
    unit: str = ""
    thread: int | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """A column of texts: a code for each row (-1: no text), and the text of each code."""

    codes: Codes
    texts: list[str]

    def used(self) -> tuple[list[int], NDArray[np.intp]]:
        """Return the codes in use, in order, and the place of each row's code among them."""
        if len(self.texts) > _SPARSE * len(self.codes):
            codes, index = np.unique(self.codes, return_inverse=True)
            return codes.tolist(), index.reshape(-1)
        seen = np.zeros(len(self.texts) + 1, bool)  # code -1 indexes the last element
        seen[self.codes] = True
        codes_seen = np.flatnonzero(seen)
        table = np.zeros(len(seen), np.intp)
        table[codes_seen] = np.arange(len(codes_seen))
        codes_used = codes_seen.tolist()
        if seen[-1]:
            codes_used[-1] = NONE
        return codes_used, table[self.codes]

    def part(self, rows: Ints) -> Words:
        """Return the words of the given rows."""
        return Words(self.codes[rows], self.texts)


@dataclass(frozen=True, slots=True)
class Details:
    """Values shown for some rows beside their names; a number is known only if its flag is set."""

    words: dict[str, Words] = field(default_factory=dict)
    numbers: dict[str, tuple[Ints, NDArray[np.bool_]]] = field(default_factory=dict)


#: Returns the details of rows of a table.
_Telling: TypeAlias = Callable[[Ints], Details]
#: Returns the words of rows of a table.
_Naming: TypeAlias = Callable[[Ints], Words]


@dataclass(slots=True)
class Slices:
    """The events of a track, by row; times in ns.

    ``stack`` has the nested rows, ``marks`` the rows without a length. A long track on which something is
    always open is split into pieces, too: some rows of its stacks only close in a piece, or do not close yet.
    ``flow``: an arrow joins rows with equal flow, from the call to the work it launched; 0 for none.
    ``table``, ``row``: where each event is in the trace; ``op``: the row in ``ranges`` of the op that
    launched it, -1 for none. ``details``: a function that returns further values for some rows; for millions
    of rows at once these would take more memory than the trace.
    """

    start: Ints
    end: Ints
    name: Words
    kind: Words
    stack: Stack
    marks: Ints
    flow: Codes
    table: str
    row: Ints
    op: Codes
    tell: _Telling

    def details(self, chosen: Ints) -> Details:
        """Return the details of the given rows."""
        return self.tell(self.row[chosen])


@dataclass(frozen=True, slots=True)
class Curve:
    """The values of a counter, each with the time (ns) from which it holds."""

    time: Ints
    value: NDArray[np.float64]


class Timeline:
    """The tracks of a profile, one after the other."""

    def __init__(
        self, profile: Profile, scratch: Path | None = None, largest: int | None = None
    ) -> None:
        """``scratch``: a folder for data too large for memory. If times begin at ``largest`` ns or later,
        they are shifted so that the first is 0; ``shift`` is the amount added to all times."""
        mapped = Mapped(scratch) if scratch is not None and POSSIBLE else None
        self._profile = profile = profile._narrow(_READ, mapped, _APART)
        self._number = 0
        self.trace = profile.attribution.trace
        processes = self.trace["processes"].unique("process", keep="first", maintain_order=True)
        self.pids: dict[int, int] = {}
        self.processes: dict[int, str] = {}
        for row in processes.to_dicts():
            number, pid, rank = row["process"], row.get("pid"), row.get("rank")
            self.pids[number] = number if pid is None else int(pid)
            said = [row.get("name"), None if rank is None else f"rank {rank}", row.get("host")]
            self.processes[number] = (
                ", ".join(str(text_part) for text_part in said if text_part) or f"process {number}"
            )
        if len(set(self.pids.values())) < len(self.pids):  # two hosts may use the same pid
            self.pids = {number: number + 1 for number in self.pids}
        # other tools expect times that are not negative
        first = self._earliest()
        self.shift = -first if first < 0 or (largest is not None and first >= largest) else 0
        named = self.trace["threads"]
        self._threads = {
            (process, thread): name
            for process, thread, name in named.select("process", "thread", "name").rows()
            if name
        }

    def __len__(self) -> int:
        """The number of slices and marks on all tracks."""
        tables = ("ranges", "calls", "host_samples", "kernels", "memops")
        return sum(len(self.trace[name]) for name in tables)

    def slices(self) -> Iterator[tuple[Track, Slices]]:
        """Yield the events of each track, threads before streams.

        A track comes in pieces in order of time, so that no track is in memory completely. If intervals
        cross, the pieces of a track alternate with those of its additional tracks.
        """
        yield from self._on_threads()
        yield from self._calls()
        yield from self._lines()
        yield from self._on_devices()

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
                    measured = part.filter(pl.col(column).is_not_null()).sort("time")
                    if len(measured):
                        unit = "bytes" if column in ("in_use", "reserved") else "fraction"
                        yield self._counter(
                            process, device, name, unit, measured["time"], measured[column]
                        )

    # ------------------------------------------------------------------------------------------

    def _track(
        self, kind: str, process: Any, name: str, tid: int | None = None, thread: int | None = None
    ) -> Track:
        self._number += 1
        number = int(process) if process is not None and process >= 0 else NONE
        return Track(self._number, kind, number, name, self.pids.get(number, 0), tid, "", thread)

    def _counter(
        self, process: Any, device: Any, name: str, unit: str, time: pl.Series, value: pl.Series
    ) -> tuple[Track, Curve]:
        where = "" if device is None else f"device {device}: "
        track = self._track(COUNTER, process, f"{where}{name}")
        track = Track(track.number, COUNTER, track.process, track.name, track.pid, None, unit)
        return track, Curve(time.to_numpy() + self.shift, value.cast(pl.Float64).to_numpy())

    def _stack(
        self, kind: str, process: int, name: str, thread: int | None, rows: Ints, table: Any
    ) -> Iterator[tuple[Track, Slices]]:
        """Yield the slices of a thread or stream in pieces; crossing intervals are put on additional
        tracks."""
        tracks: list[Track] = []

        def track(level: int) -> Track:
            while level >= len(tracks):
                more = f" ({len(tracks) + 1})" if tracks else ""
                tid = thread if kind == THREAD and not tracks else None
                tracks.append(self._track(kind, process, name + more, tid, thread))
            return tracks[level]

        none = np.empty(0, np.int64)
        nothing = Stack(none, none, none, none, none)
        levels = none  # indexes among the rows of the window
        rows = in_order(table.start, rows, self._profile.attribution.mapped)
        for window in windows(table.start, table.end, rows):
            let_go()
            part = np.concatenate((window.held, rows[window.rows]))
            start, end = table.start[part] + self.shift, table.end[part] + self.shift
            until = None if window.until is None else window.until + self.shift
            marks = np.flatnonzero(end <= start)
            on = np.concatenate((levels, np.full(len(part) - len(levels), NONE)))
            for level, stack in enumerate(stacks(start, end, levels, until)):
                on[stack.rows] = level
                if len(stack.rows) or len(stack.closing):
                    yield track(level), table.part(part, start, end, stack, marks)
                    marks = none
            if len(marks):
                yield track(0), table.part(part, start, end, nothing, marks)
            levels = none if until is None else on[end > until]

    def _on_threads(self) -> Iterator[tuple[Track, Slices]]:
        attribution, ranges = self._profile.attribution, self.trace["ranges"]
        if ranges.is_empty():
            return
        meaning = attribution.meaning
        frames = [named_frame(*pair) for pair in zip(meaning.readings, meaning.texts, strict=True)]
        is_drawn = np.array([frame is not None for frame in frames], bool)
        reading = meaning.reading.astype(np.int32, copy=False)
        ops, is_op = self._profile.of(op_index), attribution.is_op

        def tell(rows: Ints) -> Details:
            # the domain shows which program wrote a text, and so how to read it
            domain = ranges["domain"][pl.Series(rows, dtype=pl.UInt32)]
            details = Details(
                {"text": Words(reading[rows], list(meaning.texts)), "domain": _words(domain)}
            )
            at = np.flatnonzero(is_op[rows])
            if not len(at):
                return details
            of = rows[at]
            about = ops.identify(of)
            for name in ("layer", "source", "direction"):
                details.words[name] = _spread(getattr(about, name), at, len(rows))
            columns = {**costs_of(ops, of), "step": ops.context.step(*ops.places(of))}
            for name in ("flops", "bytes", "step"):
                details.numbers[name] = _numbers(columns[name], at, len(rows))
            return details

        table = _Table(
            ranges["start"].fill_null(0).to_numpy(),
            ranges["end"].fill_null(0).to_numpy(),
            Words(reading, ["" if frame is None else frame[0] for frame in frames]).part,
            Words(reading, ["" if frame is None else frame[1] for frame in frames]).part,
            lambda rows: np.zeros(len(rows), np.int32),
            "ranges",
            tell,
        )
        mapped = attribution.mapped
        drawn = zeros(mapped, len(reading), bool)
        for part in pieces(len(reading)):
            drawn[part] = is_drawn[reading[part]]
        for (process, thread), rows in lanes(ranges, mapped).rows(drawn, mapped):
            name = self._threads.get((process, thread), f"thread {thread}")
            yield from self._stack(THREAD, process, name, thread, rows, table)

    def _calls(self) -> Iterator[tuple[Track, Slices]]:
        calls = self.trace["calls"]
        if calls.is_empty():
            return
        mapped = self._profile.attribution.mapped
        timed = (calls["start"].is_not_null() & calls["end"].is_not_null()).to_numpy()
        table = _Table(
            calls["start"].fill_null(0).to_numpy(),
            calls["end"].fill_null(0).to_numpy(),
            _name(calls["name"], "(call)"),
            _all("call"),
            self._launching().__getitem__,
            "calls",
            lambda _: Details(),
        )
        for (process, thread), rows in lanes(calls, mapped).rows(timed, mapped):
            name = self._threads.get((process, thread), f"thread {thread}")
            yield from self._stack(CALLS, process, f"{name}: calls", thread, rows, table)

    def _lines(self) -> Iterator[tuple[Track, Slices]]:
        samples = self.trace["host_samples"]
        if samples.is_empty():
            return
        lines = samples.join(
            known_stacks(samples), on=["stack", "call"], how="left", nulls_equal=True
        )
        name = pl.coalesce(pl.col("kind").cast(pl.String), pl.col("line"), pl.lit("(no Python)"))

        def tell(rows: Ints) -> Details:
            shown = lines[pl.Series(rows, dtype=pl.UInt32)]
            return Details(
                {
                    column: _words(shown[column].cast(pl.String))
                    for column in ("function", "call", "stack")
                }
            )

        table = _Table(
            samples["start"].to_numpy(),
            samples["end"].to_numpy(),
            _name(lines.select(name.cast(pl.Categorical)).to_series(), "(no Python)"),
            _all("line"),
            lambda rows: np.zeros(len(rows), np.int32),
            "host_samples",
            tell,
        )
        timed = np.ones(len(samples), bool)
        for (process, thread), rows in lanes(samples).rows(timed):
            title = self._threads.get((process, thread), f"thread {thread}")
            yield from self._stack(LINES, process, f"{title}: sampled lines", thread, rows, table)

    def _on_devices(self) -> Iterator[tuple[Track, Slices]]:
        profile = self._profile
        for table, name, launched in (
            ("kernels", "name", profile.attribution.kernels),
            ("memops", "kind", profile.attribution.memops),
        ):
            frame = self.trace[table]
            if frame.is_empty():
                continue
            kind = "kernel" if table == "kernels" else "copy"
            facts = told_of(profile, table)
            made = _Table(
                frame["start"].fill_null(0).to_numpy(),
                frame["end"].fill_null(0).to_numpy(),
                _name(frame[name], f"({kind})"),
                _all(kind),
                partial(_flow, launched.call),
                table,
                partial(_details, facts),
                launched.op,
            )
            keys, of = numbered_by(frame, ("process", "device", "context", "stream"))
            for number, rows in rows_of(len(keys), of, None, profile.attribution.mapped):
                process, device, context, stream = keys[number]
                said = [f"device {device}", None if stream is None else f"stream {stream}"]
                said += [None if context in (None, 0) else f"context {context}"]
                title = " ".join(text_part for text_part in said if text_part) + (
                    ": copies" if kind == "copy" else ""
                )
                yield from self._stack(STREAM, process, title, None, rows, made)

    def _earliest(self) -> int:
        times = [
            least(self.trace[table][column])
            for table, column in (
                ("ranges", "start"), ("calls", "start"), ("kernels", "start"), ("memops", "start"),
                ("samples", "time"), ("allocations", "time"), ("host_samples", "start"),
            )
        ]  # fmt: skip
        return min((time_ for time_ in times if time_ is not None), default=0)

    def _launching(self) -> Codes:
        """Return for each call its flow number (its row, from 1 on); 0 if it launched nothing."""
        calls = zeros(self._profile.attribution.mapped, len(self.trace["calls"]), np.int32)
        for launched in (self._profile.attribution.kernels, self._profile.attribution.memops):
            for part in pieces(len(launched.call)):
                used = launched.call[part]
                used = used[used >= 0]
                calls[used] = used + 1
        return calls


def _flow(call: Codes, rows: Ints) -> Codes:
    """Return the flow number of kernels or copies: the number of the call that launched each."""
    return np.maximum(call[rows] + 1, 0).astype(np.int32)


@dataclass(slots=True)
class _Table:
    """The rows of a table, from which tracks take their parts."""

    start: Ints
    end: Ints
    name: _Naming
    kind: _Naming
    flow: Callable[[Ints], Codes]
    table: str
    tell: _Telling
    op: NDArray[np.int32] | None = None

    def part(self, rows: Ints, start: Ints, end: Ints, stack: Stack, marks: Ints) -> Slices:
        return Slices(
            start,
            end,
            self.name(rows),
            self.kind(rows),
            stack,
            marks,
            self.flow(rows),
            self.table,
            rows,
            np.full(len(rows), NONE, np.int32) if self.op is None else self.op[rows],
            self.tell,
        )


def _details(facts: Told, rows: Ints) -> Details:
    """Return the details of the given rows of kernels or copies."""
    part = facts.of(rows)
    return Details(
        {name: _words(part[name]) for name in _TOLD},
        {name: _numbers(part[name], None, len(part)) for name in _COUNTED if name in part.columns},
    )


def _words(column: pl.Series) -> Words:
    codes, texts = compact(column.cast(pl.Categorical))
    missing = np.array([text is None for text in texts], bool)
    numbers = np.asarray(codes, np.int32)
    if missing.any():
        numbers = np.where(missing[numbers], NONE, numbers).astype(np.int32)
    return Words(numbers, [text or "" for text in texts])


def _name(column: pl.Series, otherwise: str) -> _Naming:
    """Return a function that gives the names in rows of a column; ``otherwise`` if a row has none."""
    column = column.cast(pl.Categorical)
    distinct = distinct_values(column)
    numbers = numbers_of(distinct)
    texts = [text_or_null or "" for text_or_null in distinct.cast(pl.String).to_list()]
    if not distinct.null_count():
        return lambda rows: Words(numbers(column.gather(rows)), texts)
    missing = distinct.is_null().arg_max()
    texts.append(otherwise)

    def named(rows: Ints) -> Words:
        codes = numbers(column.gather(rows))
        return Words(np.where(codes == missing, len(texts) - 1, codes).astype(np.int32), texts)

    return named


def _spread(column: pl.Series, rows: Ints, count: int) -> Words:
    words_made = _words(column)
    codes = np.full(count, NONE, np.int32)
    codes[rows] = words_made.codes
    return Words(codes, words_made.texts)


def _numbers(column: pl.Series, rows: Ints | None, count: int) -> tuple[Ints, NDArray[np.bool_]]:
    is_known = column.is_not_null().to_numpy()
    value = column.fill_null(0).cast(pl.Int64).to_numpy()
    if rows is None:
        return value, is_known
    values, flags = np.zeros(count, np.int64), np.zeros(count, bool)
    values[rows], flags[rows] = value, is_known
    return values, flags


def _all(text: str) -> _Naming:
    return lambda rows: Words(np.zeros(len(rows), np.int32), [text])


def _unit(name: str) -> tuple[str, str]:
    """Return a sample's name without its unit, and the unit: ``GPU power [W]``."""
    said, bracket, unit = name.rpartition(" [")
    return (said, unit[:-1]) if bracket and unit.endswith("]") else (name, "")
