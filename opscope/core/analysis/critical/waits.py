"""Waits for device work: by blocking calls, and by streams that wait for an event of another stream."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.critical.work import COPY, Work
from opscope.core.tables.columns import at, compact, matching, pairs
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import Trace

#: Calls that return when the work of the device (or of a stream or an event) is done.
_DEVICE: Final = re.compile(r"\A(cuda|hip)(Device|Thread)Synchronize|\A(cu|hip)CtxSynchronize")
_STREAM: Final = re.compile(r"\A(cuda|cu|hip)StreamSynchronize")
_EVENT: Final = re.compile(r"\A(cuda|cu|hip)EventSynchronize")
#: Calls that may wait for the device: they count if work ended during the call.
_PERHAPS: Final = re.compile(
    r"\A(cuda|cu|hip)(Free|MemFree|FreeHost|MemHostAlloc|HostAlloc|MallocHost|HostFree|HostUnregister"
    r"|HostRegister)(?!Async)"
)
#: Copies that the host may wait for.
_COPIES: Final = re.compile(r"\A(cuda|cu|hip)Memcpy")
#: Notes on what was inferred.
INFERRED_STREAM: Final = (
    "critical path: the trace does not say for which stream or event a call waited; taken is the work that"
    " ended last during the call, else the stream of the thread's last launch"
)
INFERRED_EVENT: Final = (
    "critical path: the trace does not say which event a stream waited for; taken is the work of another"
    " stream that ended just before the waiting work began"
)
NO_EVENT: Final = (
    "critical path: a stream waited for an event whose record is not in the trace, so that this dependency is"
    " missing"
)


@dataclass(slots=True)
class Waits:
    """Blocking calls with the places of work that each waits for, and pairs of places across streams.

    ``call``, ``source``: a row of ``calls`` and a place of the work; one row for each stream that the call
    waits for. ``before``, ``after``: the work ``after`` begins no sooner than ``before`` ends. ``idle``: the
    synchronising calls that had nothing to wait for. ``notes``: the inferred or missing facts, with the
    number of cases.
    """

    call: Ints
    source: Ints
    before: Ints
    after: Ints
    idle: Ints
    notes: dict[str, int] = field(default_factory=dict)


#: Longest time (ns) between the end of work on another stream and the start of work that is then taken to
#: have waited for it, if its own stream does not explain the late start. In a training's trace 96 of 444 late
#: starts are within 10 us of such an end, 33 within 4 us, and only 13 more within 50 us: a longer limit would
#: mostly find coincidences.
_SOON: Final = 10_000
_WAIT_CALLS: Final = r"\A(cuda|cu|hip)StreamWaitEvent"


def coinciding(trace: Trace, work: Work, late: Ints) -> tuple[Ints, Ints]:
    """Return, for the places ``late`` of work that began later than its stream and launch can explain, the
    work of another stream of the device that ended just before, as pairs (before, after).

    None if the trace has synchronisation events, which show this exactly, or no call that makes a stream
    wait.
    """
    none = np.empty(0, np.int64)
    are_stated = trace["syncs"]["record"].is_not_null().any()
    if are_stated or not len(late) or not matching(trace["calls"]["name"], _WAIT_CALLS).any():
        return none, none
    before, after = [none], [none]
    devices = sorted({key[:2] for key in work.keys})
    device = np.array([devices.index(key[:2]) for key in work.keys])[work.lane]
    for number in range(len(devices)):  # a loop over devices
        here = np.flatnonzero(device == number)
        here = here[np.argsort(work.end[here], kind="stable")]
        mine = late[device[late] == number]
        index = np.searchsorted(work.end[here], work.start[mine], "right") - 1
        source = at(here, index)
        coincides = (index >= 0) & (work.start[mine] - at(work.end, source) <= _SOON)
        coincides &= (work.lane[source] != work.lane[mine]) & (
            work.launched[source] <= work.launched[mine]
        )
        before.append(source[coincides])
        after.append(mine[coincides])
    return np.concatenate(before), np.concatenate(after)


class _Streams:
    """Finds in each stream the work that was launched before a time and had ended by another time."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._reach = work.end.copy()
        for lane in range(len(work.keys)):
            part = work.stream(lane)
            np.maximum.accumulate(work.end[part], out=self._reach[part])

    def last(self, lane: int, before: Ints, by: Ints) -> Ints:
        """Return the place of the last work that was launched ``before`` one time and had ended ``by``
        another, for each pair of times."""
        part = self._work.stream(lane)
        launched = np.searchsorted(self._work.launched[part], before, "left")
        ended = np.searchsorted(self._reach[part], by, "right")
        index = np.minimum(launched, ended) - 1
        return np.where(index >= 0, index + part.start, NONE)

    def next(self, lane: int, after: Ints) -> Ints:
        """Return the place of the first work launched at or after each time, -1 for none."""
        part = self._work.stream(lane)
        index = np.searchsorted(self._work.launched[part], after, "left") + part.start
        return np.where(index < part.stop, index, NONE)


def waits(trace: Trace, work: Work) -> Waits:
    """Return the calls and work of ``trace`` that wait for device work."""
    calls = trace["calls"]
    codes, names = compact(calls["name"])
    kind = np.array([_kind(name or "") for name in names] or [0], np.uint8)[codes]
    streams = _Streams(work)
    none = np.empty(0, np.int64)
    waits_of_run = Waits(none, none, none, none, none)
    syncs = _syncs(trace)
    parts = [_copies(trace, work, codes, names)]
    if len(work):
        parts.append(_calls(trace, work, streams, kind, syncs, waits_of_run.notes))
        event_waits, waits_of_run.before, waits_of_run.after = _events(
            trace, work, streams, syncs, waits_of_run.notes
        )
        parts.append(event_waits)
    waits_of_run.call, waits_of_run.source = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    waited = np.zeros(len(calls), bool)
    waited[waits_of_run.call] = True
    waits_of_run.idle = np.flatnonzero((kind > 0) & (kind < 4) & ~waited)
    return waits_of_run


_KINDS: Final = {1: _DEVICE, 2: _STREAM, 3: _EVENT, 4: _PERHAPS}


def _kind(name: str) -> int:
    return next((number for number, pattern in _KINDS.items() if pattern.search(name)), 0)


def _syncs(trace: Trace) -> pl.DataFrame:
    """Return the synchronisations with the rows of the calls that made them and that recorded the event."""
    calls = trace["calls"].select(
        "process", "correlation", pl.int_range(pl.len(), dtype=pl.Int64).alias("call")
    )
    syncs = (
        pl.concat([trace["syncs"]["correlation"], trace["syncs"]["record"]]).drop_nulls().unique()
    )
    calls = calls.filter(pl.col("correlation").is_in(syncs.implode())).unique(
        ["process", "correlation"], keep="last"
    )
    text = pl.col("kind").cast(pl.String).str.to_lowercase()
    return (
        trace["syncs"]
        .with_columns(
            pl.when(text.str.contains("wait"))
            .then(pl.lit("wait"))
            .when(text.str.contains("event"))
            .then(pl.lit("event"))
            .when(text.str.contains("stream"))
            .then(pl.lit("stream"))
            .otherwise(pl.lit("context"))
            .alias("what")
        )
        .join(calls, on=["process", "correlation"], how="left", maintain_order="left")
        .join(
            calls.rename({"correlation": "record", "call": "recorded"}),
            on=["process", "record"],
            how="left",
            maintain_order="left",
        )
    )


def _copies(
    trace: Trace, work: Work, codes: NDArray[np.int32], names: list[str | None]
) -> tuple[Ints, Ints]:
    """Return the copies whose call returned only after the copy had ended, so the host waited for them."""
    place = np.flatnonzero((work.what == COPY) & (work.call >= 0))
    call = work.call[place]
    copies = np.array([bool(_COPIES.search(name or "")) for name in names] or [False])[codes[call]]
    returned = trace["calls"]["end"].gather(call).to_numpy()
    side = trace["memops"]["kind"].gather(work.row[place]).cast(pl.String)
    by_host = side.str.contains("^H|H$").fill_null(False).to_numpy()
    synchronous = ~np.array(["Async" in (name or "") for name in names] or [False])[codes[call]]
    kept = copies & (by_host | synchronous) & (returned >= work.end[place])
    return call[kept].astype(np.int64), place[kept]


def _calls(
    trace: Trace,
    work: Work,
    streams: _Streams,
    kind: NDArray[np.uint8],
    syncs: pl.DataFrame,
    notes: dict[str, int],
) -> tuple[Ints, Ints]:
    """Return the synchronising calls with the last work of each stream that they wait for."""
    calls = trace["calls"]
    rows = np.flatnonzero(kind > 0)
    process, thread, begin, end = (
        calls[name].gather(rows).fill_null(NONE).to_numpy()
        for name in ("process", "thread", "start", "end")
    )
    kinds = kind[rows]
    stated = syncs.filter(pl.col("call").is_not_null() & (pl.col("what") != "wait")).unique(
        "call", keep="last"
    )
    table = pl.DataFrame({"call": rows}).join(stated, on="call", how="left", maintain_order="left")
    stream, device = (
        table[name].fill_null(NONE).cast(pl.Int64).to_numpy() for name in ("stream", "device")
    )
    # if the record of an event is known, it identifies the event
    kinds = np.where(
        (table["what"] == "event").fill_null(False) & (table["recorded"] >= 0), 9, kinds
    )
    best = np.full(len(rows), NONE, np.int64)  # the last to end during the call
    parts: list[tuple[Ints, Ints]] = []
    for lane, key in enumerate(work.keys):
        here = (process == key[0]) & ((device < 0) | (device == key[1]))
        last = np.where(here, streams.last(lane, begin, end), NONE)
        streams_waited = np.flatnonzero((last >= 0) & (kinds == 1))
        # if a later call of the same thread waits for the same work, it adds nothing
        _, _, once = pairs(thread[streams_waited], last[streams_waited])
        streams_waited = (
            streams_waited[np.sort(np.unique(once, return_index=True)[1])]
            if len(streams_waited)
            else streams_waited
        )
        mine = np.flatnonzero((last >= 0) & (kinds == 2) & (stream == key[3]))
        for rows_of_kind in (streams_waited, mine):
            parts.append((rows[rows_of_kind], last[rows_of_kind]))
        unsaid = (kinds == 4) | (kinds == 3) | ((kinds == 2) & (stream < 0))
        ends = at(work.end, last)
        during = (last >= 0) & unsaid & (ends > begin) & (ends > at(work.end, best))
        best[during] = last[during]
    unsaid = ((kinds == 3) | ((kinds == 2) & (stream < 0))) & (best < 0)
    best[unsaid] = _of_last_launch(trace, work, streams, (process, thread, begin, end), unsaid)
    inferred = best >= 0
    told_of = int((inferred & (kinds != 4)).sum())
    if told_of:
        notes[INFERRED_STREAM] = told_of
    parts.append((rows[inferred], best[inferred]))
    call, source = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return call.astype(np.int64), source


def _of_last_launch(
    trace: Trace,
    work: Work,
    streams: _Streams,
    where: tuple[Ints, Ints, Ints, Ints],
    wanted: NDArray[np.bool_],
) -> Ints:
    """Return for the ``wanted`` calls the last work of the stream to which their thread launched last."""
    process, thread, begin, end = (column[wanted] for column in where)
    last = np.full(len(begin), NONE, np.int64)
    if not len(begin):
        return last
    launching = np.flatnonzero(work.call >= 0)
    owner = [trace["calls"][name].gather(work.call[launching]) for name in ("process", "thread")]
    theirs = pl.DataFrame(
        {
            "process": owner[0].cast(pl.Int64),
            "thread": owner[1],
            "at": trace["calls"]["start"].gather(work.call[launching]),
            "lane": work.lane[launching].astype(np.int64),
        }
    ).sort("at")
    asked = (
        pl.DataFrame({"process": process.astype(np.int64), "thread": thread, "at": begin})
        .with_row_index("row")
        .sort("at")
        .join_asof(theirs, on="at", by=["process", "thread"], check_sortedness=False)
        .sort("row")
    )
    lane = asked["lane"].fill_null(NONE).to_numpy()
    for number in np.unique(lane[lane >= 0]).tolist():
        here = lane == number
        last[here] = streams.last(number, begin[here], end[here])
    return last


def _events(
    trace: Trace, work: Work, streams: _Streams, syncs: pl.DataFrame, notes: dict[str, int]
) -> tuple[tuple[Ints, Ints], Ints, Ints]:
    """Return the calls that wait for an event, and the pairs of work in which one stream waits for
    another."""
    rows = syncs.filter(pl.col("what").is_in(["wait", "event"]))
    start = trace["calls"]["start"].to_numpy()
    call, recorded, process, device, stream, event_stream = (
        rows[name].fill_null(NONE).cast(pl.Int64).to_numpy()
        for name in ("call", "recorded", "process", "device", "stream", "event_stream")
    )
    is_wait = (rows["what"] == "wait").to_numpy()
    is_linked = (recorded >= 0) & (call >= 0)
    source = np.full(len(rows), NONE, np.int64)
    target = np.full(len(rows), NONE, np.int64)
    far = np.iinfo(np.int64).max
    for lane, key in enumerate(work.keys):
        same = is_linked & (process == key[0]) & ((device < 0) | (device == key[1]))
        mine = np.flatnonzero(same & (event_stream == key[3]))
        source[mine] = streams.last(lane, start[recorded[mine]], np.full(len(mine), far, np.int64))
        waiting = np.flatnonzero(same & is_wait & (stream == key[3]))
        target[waiting] = streams.next(lane, start[call[waiting]])
    missing = int((is_wait & (recorded < 0)).sum())
    if missing:
        notes[NO_EVENT] = missing
    by_call = np.flatnonzero(~is_wait & (source >= 0))
    ended = at(work.end, source[by_call]) <= trace["calls"]["end"].to_numpy()[call[by_call]]
    by_call = by_call[ended]
    both = np.flatnonzero(is_wait & (source >= 0) & (target >= 0))
    # events of a stream's own work add nothing
    both = both[work.lane[source[both]] != work.lane[target[both]]]
    both = both[work.end[source[both]] <= work.start[target[both]]]
    return (call[by_call], source[by_call]), source[both], target[both]
