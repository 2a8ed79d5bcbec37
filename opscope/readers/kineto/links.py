"""Join rows across a whole Kineto trace: begin with end events, flows, forward threads, processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.columns import spread
from opscope.core.tables.intervals import Ints

from .columns import CATEGORIES, LAUNCH_FLOWS, NONE, Codes, Columns, Gathered, id_number
from .groups import with_members


def numbers(ids: Codes) -> Ints:
    """Return each pid or tid as a number; text that contains no number gets a negative one."""
    return np.array(
        [
            value if value is not None and abs(value) < 1 << 62 else -(1 << 40) - code
            for code, value in enumerate(map(id_number, ids))
        ],
        np.int64,
    )


@dataclass(slots=True)
class Processes:
    """The processes of a file: ``pids`` by process number, and ``main``, the one that drives the devices."""

    pids: list[int | None]
    main: int

    def of(self, pid: Ints) -> NDArray[np.int32]:
        """Return the process number of each pid; any other pid (a device's) gives the main process."""
        pids = np.array([NONE if p is None else p for p in self.pids], np.int64)
        index = np.searchsorted(pids, pid)
        index[index == len(pids)] = 0
        return np.where(pids[index] == pid, index, self.main).astype(np.int32)


def processes(columns: Columns, number: Ints) -> Processes:
    """Return the processes with host rows, or one process without a pid if there are none.

    A pid 0 beside others is not a process: Kineto uses it for frames whose thread it does not know.
    """
    rows: dict[int, list[int]] = {}
    for rank, kind in enumerate(("call", "op", "user", "python")):
        pids, counts = np.unique(number[columns[kind].column("pid", np.int32)], return_counts=True)
        for pid, count in zip(pids.tolist(), counts.tolist(), strict=True):
            rows.setdefault(pid, [0, 0, 0, 0])[rank] += count
    real = {pid: row for pid, row in rows.items() if pid > 0} or rows
    if not real:
        return Processes([None], 0)
    ordered = sorted(real)
    return Processes(list(ordered), ordered.index(max(real, key=lambda pid: real[pid])))


@dataclass(slots=True)
class Placed:
    """A file's columns, the ``number`` of each pid or tid, its processes, and the ``base`` of times (ns)."""

    columns: Columns
    number: Ints
    files: Processes
    base: int
    #: The ranks of each process group, from the head of the file.
    members: Mapping[str, str] = field(default_factory=dict)
    #: The record of the file's only process group; None if there are several.
    only_group: str | None = None
    #: How many device rows have a correlation id that belongs to launches of several processes.
    ambiguous: int = 0
    _names: list[str] = field(init=False)
    _attrs: list[str | None] = field(init=False)

    def __post_init__(self) -> None:
        self._names = list(self.columns.names)
        self._attrs = [
            with_members(text.decode("utf-8", "replace"), self.members) or None
            for text in self.columns.attrs
        ]

    def process(self, rows: Gathered) -> NDArray[np.int32]:
        """The process of each row."""
        return self.files.of(self.number[rows.column("pid", np.int32)])

    def thread(self, rows: Gathered) -> Ints:
        """The thread of each row, by the file's number."""
        return self.number[rows.column("tid", np.int32)]

    def start(self, rows: Gathered) -> Ints:
        """The start of each row (ns)."""
        return rows.column("start") + self.base

    def end(self, rows: Gathered) -> Ints:
        """The end of each row (ns)."""
        return rows.column("end") + self.base

    def name(self, rows: Gathered, into: str = "name") -> pl.Series:
        """The name of each row, or another column ``into`` that is coded like names."""
        return spread(into, self._names, rows.column(into, np.int32))

    def attrs(self, rows: Gathered) -> pl.Series:
        """The attributes of each row as JSON; null if it has none."""
        attrs = spread("attrs", self._attrs, rows.column("attrs", np.int32))
        texts: pl.Series = attrs.cast(pl.String)
        return texts


@dataclass(frozen=True, slots=True)
class Launches:
    """The calls of a file: their processes, correlation ids and starts."""

    process: NDArray[np.int32]
    correlation: Ints
    start: Ints


def owners(
    files: Processes, calls: Launches, correlation: Ints, lane: Ints, start: Ints
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the process of each device row: the process of the call with the row's correlation id, else
    the main process. Also return the rows whose id belongs to calls of several processes when nothing
    decides between them. ``lane``: the rows' devices. A device belongs to a process if some ids on it
    belong to that process alone; else if only that process has launches for all its work, each before the
    work began, and used them for nothing else."""
    process_of_launch = np.full(len(correlation), files.main, np.int32)
    unknown = np.zeros(len(correlation), bool)
    processes = np.unique(calls.process)
    if len(processes) < 2:
        return process_of_launch, unknown
    # when each process first used the row's id in a call; NONE: never
    called = np.stack([_first_call(calls, process, correlation) for process in processes])
    by = called != NONE
    several = by.sum(axis=0) > 1
    single = by.sum(axis=0) == 1
    process_of_launch[single] = processes[by.argmax(axis=0)[single]]
    unknown[several] = True
    open_lanes = set(np.unique(lane[several]).tolist())
    before: set[int] | None = None
    while open_lanes != before:  # knowing one device's process may decide another device's
        before = set(open_lanes)
        for number in sorted(before):
            rows = lane == number
            mine = several & rows
            owner = np.unique(process_of_launch[single & rows])
            if len(owner) != 1:
                # a clock's rounding may put a kernel a microsecond before its launch
                fits = (by[:, mine] & (called[:, mine] <= start[mine] + 1000)).all(axis=1)
                taken = several & ~unknown & np.isin(correlation, correlation[mine])
                owner = np.setdiff1d(processes[fits], process_of_launch[taken])
            if len(owner) == 1:
                here = mine & by[int(np.searchsorted(processes, owner[0]))]
                process_of_launch[here] = owner[0]
                unknown[here] = False
                open_lanes.discard(number)
    return process_of_launch, unknown


def _first_call(calls: Launches, process: int, correlation: Ints) -> Ints:
    """Return when the process first used each correlation id in a call; NONE: never."""
    mine = calls.process == process
    order = np.lexsort((calls.start[mine], calls.correlation[mine]))
    ids, starts = calls.correlation[mine][order], calls.start[mine][order]
    place = np.searchsorted(ids, correlation)
    place[place == len(ids)] = 0
    same = (ids[place] == correlation) & (correlation != NONE)
    return np.where(same, starts[place], NONE)


def launches_by_flow(
    columns: Columns, number: Ints, kind: str, missing: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Return the ``missing`` rows of ``kind`` that a flow arrow links to a call, and their correlation ids.

    An arrow starts at a call (its thread and start time) and ends at the work that the call launched
    (its device, stream and start time).
    """
    rows, calls = columns[kind], columns["call"]
    arrows = _arrows(columns, number, launches=True)
    if arrows is None or not len(calls) or not missing.any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # from the missing rows back to the calls: the rows are few, while arrows and calls fill most of a file
    wanted = _thread_starts(rows, number).with_row_index("row").filter(pl.Series(missing))
    ends = arrows.filter(~pl.col("begins")).join(wanted, on=_THREAD_START, how="semi")
    begins = arrows.filter("begins").join(ends, on="id", how="semi")
    called = _thread_starts(calls, number).with_columns(
        correlation=pl.Series(calls.column("correlation"))
    )
    called = called.filter(pl.col("correlation") != NONE).join(begins, on=_THREAD_START, how="semi")
    source = (
        begins.join(called, on=_THREAD_START, maintain_order="left_right")
        .select("id", "correlation")
        .unique("id", keep="first", maintain_order=True)
    )
    target = ends.join(source, on="id", maintain_order="left").unique(
        _THREAD_START, keep="first", maintain_order=True
    )
    linked = wanted.join(target, on=_THREAD_START, maintain_order="left").select(
        pl.col("row").cast(pl.Int64), "correlation"
    )
    return linked["row"].to_numpy(), linked["correlation"].to_numpy()


#: How many calls are compared with their ops; how many of them must lie outside; and the rounding of times
#: (ns).
_SAMPLE, _FEWEST, _ROUNDED = 1_000, 20, 2_000
#: The calls that may launch each kind of work.
_LAUNCHES: Final = {
    "kernel": "(?i)launch",
    "memcpy": "(?i)mem(?:cpy|ory_?copy)",
    "memset": "(?i)memset|fill",
}


def number_calls(columns: Columns) -> int:
    """Give calls without a correlation id one, if there is work without one; return the first of these ids.

    Arrows and external ids can link such work to such calls.
    """
    calls = columns["call"]
    correlation = calls.column("correlation")
    first = 1 + max(int(correlation.max(initial=0)), 0)
    for kind in _LAUNCHES:
        known = columns[kind].column("correlation")
        first = max(first, 1 + int(known.max(initial=0)))
    lacks = np.flatnonzero(correlation == NONE)
    if len(lacks) and any(
        (columns[kind].column("correlation") == NONE).any() for kind in _LAUNCHES
    ):
        correlation[lacks] = first + np.arange(len(lacks))
        block = {name: calls.column(name) for name in calls.blocks[0]}
        calls.blocks = [block | {"correlation": correlation}]
    return first


def launches_by_external(
    columns: Columns, kind: str, missing: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Return the ``missing`` rows of ``kind`` that share their external id with a call, and the
    correlation ids of these calls. The external id is that of the op: if an op has several launches, each
    gets one piece of work, in order, and the last one gets the rest."""
    rows, calls = columns[kind], columns["call"]
    wanted = missing & (rows.column("external") != NONE) if len(rows) else missing
    if not wanted.any() or not len(calls):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    turn = pl.int_range(pl.len(), dtype=pl.Int64).over("external")
    names = [re.search(_LAUNCHES[kind], name) is not None for name in columns.names]
    launches = pl.DataFrame(
        {
            "external": calls.column("external"),
            "start": calls.column("start"),
            "pid": calls.column("pid", np.int32),
            "correlation": calls.column("correlation"),
        }
    ).filter(
        pl.Series(np.array(names, bool)[calls.column("name", np.int32)]),
        pl.col("external") != NONE,
        pl.col("correlation") != NONE,
    )
    # if two processes use the same id, the file does not say which process it is
    launches = launches.filter(pl.col("pid").n_unique().over("external") == 1)
    launches = launches.sort("start", maintain_order=True).with_columns(
        turn.alias("turn"), pl.len().cast(pl.Int64).over("external").alias("many")
    )
    work = pl.DataFrame({"external": rows.column("external"), "start": rows.column("start")})
    work = work.with_row_index("row").filter(pl.Series(wanted))
    work = work.sort("start", maintain_order=True).with_columns(turn.alias("turn"))
    work = work.join(launches.select("external", "many").unique(), on="external")
    found = work.with_columns(pl.min_horizontal("turn", pl.col("many") - 1)).join(
        launches.select("external", "turn", "correlation"), on=["external", "turn"]
    )
    return found["row"].cast(pl.Int64).to_numpy(), found["correlation"].to_numpy()


def calls_apart(columns: Columns) -> int:
    """Return how many of a sample of calls began outside the op that their external id names, if most did;
    in 15 real traces none did. (An external id that equals the call's own correlation id names no op.)"""
    calls, ops = columns["call"], columns["op"]
    external = calls.column("external")
    rows = np.flatnonzero((external != NONE) & (external != calls.column("correlation")))
    rows = rows[:: max(1, len(rows) // _SAMPLE)]
    called = pl.DataFrame({"id": external[rows], "called": calls.column("start")[rows]})
    own = pl.DataFrame({name: ops.column(name) for name in ("external", "start", "end")})
    own = own.rename({"external": "id"}).join(called, on="id", how="semi")
    both = called.join(own.unique("id", keep="none"), on="id")
    within = pl.col("called").is_between(pl.col("start") - _ROUNDED, pl.col("end") + _ROUNDED)
    outside = len(both.filter(~within))
    return outside if outside >= _FEWEST and 2 * outside > len(both) else 0


_THREAD_START = ["pid", "tid", "start"]


def _thread_starts(rows: Gathered, number: Ints) -> pl.DataFrame:
    """Thread and start time of each row, which an arrow's end refers to."""
    return pl.DataFrame(
        {
            "pid": number[rows.column("pid", np.int32)],
            "tid": number[rows.column("tid", np.int32)],
            "start": rows.column("start"),
        }
    )


def _arrows(columns: Columns, number: Ints, launches: bool) -> pl.DataFrame | None:
    """The ends of the flow arrows from launches, or of the arrows from forward to backward ops."""
    flows = columns["flow"]
    if not len(flows):
        return None
    wanted = np.array([(name in LAUNCH_FLOWS) == launches for name in columns.categories], bool)
    chosen = wanted[flows.column("category")]
    if not chosen.any():
        return None
    return (
        _thread_starts(flows, number)
        .with_columns(id=pl.Series(flows.column("id")), begins=pl.Series(flows.column("begins")))
        .filter(pl.Series(chosen))
    )


def forward_threads(
    columns: Columns, number: Ints, process: NDArray[Any], thread: Ints, ops: Gathered
) -> Ints:
    """Return ``fwd_thread`` of every op row, so that (process, fwd_thread, seq) joins forward and backward.

    Kineto numbers the threads that ran forward ops from 1 and writes the number on backward rows only;
    forward rows have 0. The ``fwdbwd`` arrows, which run from a forward op to its backward node, show which
    thread a number means. Without arrows it is the thread whose forward ops have the sequence numbers of
    the backward rows. Null if neither decides.
    """
    seq, forward_number = ops.column("seq"), ops.column("fwd")
    result = np.where(forward_number > 0, forward_number, NONE)
    backward = (forward_number > 0) & (seq != NONE)
    forward = (forward_number == 0) & (seq != NONE)
    if not backward.any() or not forward.any():
        return result
    votes = _votes(columns, number, ops)
    thread_key = (process.astype(np.int64), thread)
    taken: set[tuple[int, int]] = set()
    for owner in np.unique(process[backward]).tolist():
        mine = backward & (process == owner)
        candidates = []
        for fwd in np.unique(forward_number[mine]).tolist():
            backward_seqs = np.unique(seq[mine & (forward_number == fwd)])
            for candidate in np.unique(thread[forward & (process == owner)]).tolist():
                theirs = forward & (thread_key[0] == owner) & (thread_key[1] == candidate)
                matches = int(np.isin(backward_seqs, seq[theirs]).sum())
                candidates.append((votes.get((fwd, candidate), 0), matches, fwd, candidate))
        done: set[int] = set()
        for voted, matches, fwd, candidate in sorted(candidates, reverse=True):
            if (voted or matches) and fwd not in done and (owner, candidate) not in taken:
                done.add(fwd)
                taken.add((owner, candidate))
                result[forward & (process == owner) & (thread == candidate)] = fwd
    return result


def _votes(columns: Columns, number: Ints, ops: Gathered) -> dict[tuple[int, int], int]:
    """Count the arrows for each pair: ``{(number of the forward thread, thread): arrows}``."""
    arrows = _arrows(columns, number, launches=False)
    if arrows is None:
        return {}
    backward = _thread_starts(ops, number).with_columns(fwd=pl.Series(ops.column("fwd")))
    source = arrows.filter("begins").select("id", pl.col("tid").alias("forward"))
    counted = (
        arrows.filter(~pl.col("begins"))
        .join(backward.filter(pl.col("fwd") > 0), on=_THREAD_START)
        .join(source, on="id")
        .group_by("fwd", "forward")
        .len()
    )
    return {(fwd, thread): count for fwd, thread, count in counted.rows()}


def pair(columns: Columns) -> int:
    """Turn begin and end events into complete ones; returns how many had no partner.

    On one thread an end closes the latest open begin, so at each depth begins and ends alternate.
    """
    opens = columns["open"]
    if not len(opens):
        return 0
    block = {name: opens.column(name) for name in opens.blocks[0]}
    # stable: keeps the file's order
    order = np.lexsort((block["start"], block["tid"], block["pid"]))
    begins = block["begins"][order]
    thread_key = block["pid"][order].astype(np.int64) << 32 | block["tid"][order]
    first = np.r_[True, thread_key[1:] != thread_key[:-1]]
    level = np.cumsum(np.where(begins, 1, -1))
    before = np.repeat(
        level[first] - np.where(begins[first], 1, -1),
        np.diff(np.r_[np.flatnonzero(first), len(level)]),
    )
    level = level - before + np.where(begins, 0, 1)  # an end has the same level as its begin
    by_level = np.lexsort((np.arange(len(level)), level, thread_key))
    a, b = by_level[:-1], by_level[1:]
    joined = (thread_key[a] == thread_key[b]) & (level[a] == level[b]) & begins[a] & ~begins[b]
    opened, closed = order[a[joined]], order[b[joined]]
    names = {code: name for name, code in columns.categories.items()}
    for code in np.unique(block["category"][opened]).tolist():
        own = block["category"][opened] == code
        rows = {name: values[opened[own]] for name, values in block.items()}
        rows["end"] = block["start"][closed[own]]
        columns[CATEGORIES[names[code]]].blocks.append({name: rows[name] for name in _HOST_COLUMNS})
    return len(begins) - 2 * int(joined.sum())


_HOST_COLUMNS = (
    "start", "end", "name", "pid", "tid", "seq", "fwd", "external", "text", "attrs",
)  # fmt: skip
