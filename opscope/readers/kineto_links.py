"""What must be found across a whole Kineto trace: begin/end pairs, flows, forward threads, processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .kineto_columns import LAUNCH_FLOWS, NONE, Codes, Columns, Gathered, place_number

Ints = NDArray[np.int64]


def numbers(places: Codes) -> Ints:
    """Each pid or tid as written as a number; text that holds none gets one below zero."""
    return np.array(
        [
            value if value is not None and abs(value) < 1 << 62 else -(1 << 40) - code
            for code, value in enumerate(map(place_number, places))
        ],
        np.int64,
    )


def pair(columns: Columns) -> int:
    """Turn begin and end events into complete ones; how many had no partner.

    On one thread an end closes the latest begin that is open, so at each depth they alternate.
    """
    opens = columns["open"]
    if not len(opens):
        return 0
    block = {name: opens.column(name) for name in opens.blocks[0]}
    order = np.lexsort((~block["begins"], block["start"], block["tid"], block["pid"]))
    begins = block["begins"][order]
    place = block["pid"][order].astype(np.int64) << 32 | block["tid"][order]
    first = np.r_[True, place[1:] != place[:-1]]
    level = np.cumsum(np.where(begins, 1, -1))
    before = np.repeat(level[first] - np.where(begins[first], 1, -1), np.diff(np.r_[np.flatnonzero(first), len(level)]))
    level = level - before + np.where(begins, 0, 1)  # an end has the level of its begin
    by_level = np.lexsort((np.arange(len(level)), level, place))
    a, b = by_level[:-1], by_level[1:]
    joined = (place[a] == place[b]) & (level[a] == level[b]) & begins[a] & ~begins[b]
    opened, closed = order[a[joined]], order[b[joined]]
    names = {code: name for name, code in columns.categories.items()}
    from .kineto_columns import CATEGORIES

    for code in np.unique(block["category"][opened]).tolist():
        own = block["category"][opened] == code
        rows = {name: values[opened[own]] for name, values in block.items()}
        rows["end"] = block["start"][closed[own]]
        columns[CATEGORIES[names[code]]].blocks.append(
            {name: rows[name] for name in _HOST_COLUMNS}
        )
    return len(begins) - 2 * int(joined.sum())


_HOST_COLUMNS = (
    "start", "end", "name", "pid", "tid", "seq", "fwd", "external", "text", "attrs",
)  # fmt: skip


@dataclass(slots=True)
class Processes:
    """The processes of a file: ``pids`` by number, and which of them drives the devices."""

    pids: list[int | None]
    main: int

    def of(self, pid: Ints) -> NDArray[np.int32]:
        """The number of each pid; a pid that is none of them (a device's) is the main process."""
        known = np.array([NONE if p is None else p for p in self.pids], np.int64)
        place = np.searchsorted(known, pid)
        place[place == len(known)] = 0
        return np.where(known[place] == pid, place, self.main).astype(np.int32)


def processes(columns: Columns, number: Ints) -> Processes:
    """The processes that called something; one without a pid where none did.

    A stray pid 0 is no process: Kineto files frames there whose thread it does not know.
    """
    rows: dict[int, list[int]] = {}
    for rank, kind in enumerate(("call", "op", "user", "python")):
        pids, counts = np.unique(number[columns[kind].column("pid", np.int32)], return_counts=True)
        for pid, count in zip(pids.tolist(), counts.tolist(), strict=True):
            rows.setdefault(pid, [0, 0, 0, 0])[rank] += count
    real = {pid: found for pid, found in rows.items() if pid > 0} or rows
    if not real:
        return Processes([None], 0)
    ordered = sorted(real)
    return Processes(list(ordered), ordered.index(max(real, key=lambda pid: real[pid])))


def owners(
    files: Processes, call_process: NDArray[np.int32], calls: Ints, correlation: Ints
) -> NDArray[np.int32]:
    """The process of each device row: that of the call with its correlation id, else the main one."""
    found = np.full(len(correlation), files.main, np.int32)
    if len(np.unique(call_process)) < 2:
        return found
    order = np.lexsort((call_process != files.main, calls))  # of equal ids the main process's first
    known = calls[order]
    place = np.searchsorted(known, correlation)
    place[place == len(known)] = 0
    same = (known[place] == correlation) & (correlation != NONE)
    return np.where(same, call_process[order][place], found).astype(np.int32)


def launches_by_flow(
    columns: Columns, number: Ints, kind: str, missing: NDArray[np.bool_]
) -> dict[int, int]:
    """Correlation ids for rows of ``kind`` that have no call of their own, by the flow arrows.

    An arrow starts at a call (thread and start time) and ends at what it launched (stream and start
    time). Returns ``{row: correlation of the call}``.
    """
    flows, calls, rows = columns["flow"], columns["call"], columns[kind]
    if not len(flows) or not len(calls) or not missing.any():
        return {}
    wanted = np.array([name in LAUNCH_FLOWS for name in columns.categories], bool)
    chosen = wanted[flows.column("category")]
    begins, ids = flows.column("begins")[chosen], flows.column("id")[chosen]
    start = flows.column("start")[chosen]
    thread = number[flows.column("tid")[chosen]]
    call_at = {
        key: row
        for row, key in enumerate(
            zip(
                number[calls.column("tid")].tolist(), calls.column("start").tolist(), strict=True
            )
        )
    }
    source = {
        flow: call_at[thread_time]
        for flow, thread_time in zip(
            ids[begins].tolist(),
            zip(thread[begins].tolist(), start[begins].tolist(), strict=True),
            strict=True,
        )
        if thread_time in call_at
    }
    target = {
        place: flow
        for place, flow in zip(
            zip(thread[~begins].tolist(), start[~begins].tolist(), strict=True),
            ids[~begins].tolist(),
            strict=True,
        )
        if flow in source
    }
    correlation = calls.column("correlation")
    stream, time = number[rows.column("tid")], rows.column("start")
    found = {}
    for row in np.flatnonzero(missing).tolist():
        flow = target.get((int(stream[row]), int(time[row])))
        if flow is not None and correlation[source[flow]] != NONE:
            found[row] = int(correlation[source[flow]])
    return found


def forward_threads(
    columns: Columns, number: Ints, process: NDArray[Any], thread: Ints, ops: Gathered
) -> Ints:
    """``fwd_thread`` of every op row, so that (process, fwd_thread, seq) joins forward and backward.

    Kineto numbers the threads that ran forward ops from 1, and tells the number on backward rows
    only; on forward rows it writes 0. Which thread a number means follows from the ``fwdbwd`` arrows,
    which run from a forward op to its backward node, and where there are none from the thread whose
    forward ops have the sequence numbers that the backward rows name. Null where neither tells.
    """
    seq, given = ops.column("seq"), ops.column("fwd")
    result = np.where(given > 0, given, NONE)
    backward = (given > 0) & (seq != NONE)
    forward = (given == 0) & (seq != NONE)
    if not backward.any() or not forward.any():
        return result
    votes = _arrows(columns, number, thread, ops)
    place = (process.astype(np.int64), thread)
    taken: set[tuple[int, int]] = set()
    for owner in np.unique(process[backward]).tolist():
        mine = backward & (process == owner)
        found = []
        for fwd in np.unique(given[mine]).tolist():
            named = np.unique(seq[mine & (given == fwd)])
            for candidate in np.unique(thread[forward & (process == owner)]).tolist():
                theirs = forward & (place[0] == owner) & (place[1] == candidate)
                matches = int(np.isin(named, seq[theirs]).sum())
                found.append((votes.get((fwd, candidate), 0), matches, fwd, candidate))
        done: set[int] = set()
        for voted, matches, fwd, candidate in sorted(found, reverse=True):
            if (voted or matches) and fwd not in done and (owner, candidate) not in taken:
                done.add(fwd)
                taken.add((owner, candidate))
                result[forward & (process == owner) & (thread == candidate)] = fwd
    return result


def _arrows(columns: Columns, number: Ints, thread: Ints, ops: Gathered) -> dict[tuple[int, int], int]:
    """``{(number of the forward thread, thread): arrows that say so}``."""
    flows = columns["flow"]
    if not len(flows):
        return {}
    wanted = np.array([name not in LAUNCH_FLOWS for name in columns.categories], bool)
    chosen = wanted[flows.column("category")]
    if not chosen.any():
        return {}
    begins, ids = flows.column("begins")[chosen], flows.column("id")[chosen]
    on, start = number[flows.column("tid")[chosen]], flows.column("start")[chosen]
    source = dict(zip(ids[begins].tolist(), on[begins].tolist(), strict=True))
    given = ops.column("fwd")
    rows = np.flatnonzero(given > 0)
    at = {
        key: fwd
        for key, fwd in zip(
            zip(thread[rows].tolist(), ops.column("start")[rows].tolist(), strict=True),
            given[rows].tolist(),
            strict=True,
        )
    }
    votes: dict[tuple[int, int], int] = {}
    for flow, *key in zip(ids[~begins].tolist(), on[~begins].tolist(), start[~begins].tolist(), strict=True):
        fwd = at.get((key[0], key[1]))
        if fwd is not None and flow in source:
            votes[fwd, source[flow]] = votes.get((fwd, source[flow]), 0) + 1
    return votes
