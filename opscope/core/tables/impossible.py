"""Clip or leave out records whose times cannot be, of any reader, and note which.

Rules, each counted and named in the notes of the trace:

* What began at time 0, or more than an hour away from all that the host recorded, has no time: left out.
  CUPTI writes 0 for a time that it could not collect. Where most of a table is there, clocks differ: nothing
  is left out.
* A stream runs its work in order. A kernel or copy in whose time its stream began and ended work of other
  launches did not last so long: clipped where the next of them begins. A stream whose other work overlaps
  too runs no such order (queues of AMD's, several ranks in one file): nothing is clipped, unless the time is
  ten times that of all other work. The work of one CUDA graph may run at the same time: there it must be over
  a second, and a hundred times.
* Device work that ends long after all else, host included, has no known end: clipped there. So are ranges
  and calls, from an hour on; sooner where they outlive a range of their thread that they began in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.question import units

from .intervals import Ints
from .trace import Trace

#: In attrs of a kernel: the time that it took is not known, only that it took no longer.
CLIPPED: Final = '"clipped":true'
#: What no clocks of one machine differ by, and no profiler waits for (ns).
_FAR: Final = 3600 * 10**9
#: Times of two records may be rounded to microseconds, each on its own (ns).
_ROUNDED: Final = 2_000
#: So much longer than all else on its stream is no time of a kernel, whatever the order of the stream.
_ABSURD: Final = 10
#: Of CUDA graphs, whose kernels may run at the same time.
_NEVER: Final = 100
#: One of so many kernels may overlap the next: one of 4,010 does in a trace of two H100, by 12 us.
_FEW: Final = 100
#: More ranges that end long after all else are a program's way of marking, and no errors.
_SOME: Final = 100
#: No kernel runs for a day (ns).
_DAY: Final = 24 * _FAR
#: Device work may go on so long after all else (ns), or ten times as long as the trace.
_AFTER: Final = 10**9
#: So many pieces of work in the time of another show the order of their stream; so many others confirm it.
_INSIDE, _OTHERS, _CLEAR = 2, 3, 5
#: At most this part of a stream's work is wrong; else it runs no order.
_WRONG: Final = 4
_DEVICE: Final = ("kernels", "memops")
_TIMED: Final = {
    "ranges": "start",
    "calls": "start",
    "kernels": "start",
    "memops": "start",
    "syncs": "start",
    "allocations": "time",
}
_SPANS: Final = ("ranges", "calls", "kernels", "memops", "syncs")
_NULL: Final = -(1 << 40)
_NAME: Final = 60
#: What the notes on impossible times say, those of readers and of linking (``early_kernels``) too.
_NOT_KNOWN: Final = "how long they took is not known"
_NO_TIME: Final = "left out: their times were not recorded"
IMPOSSIBLE: Final = f"{_NOT_KNOWN}|{_NO_TIME}|clocks differ, so idle"


def without_impossible(trace: Trace) -> Trace:
    """Return the trace without impossible times; notes say what was clipped and left out."""
    if any(one.get("times") for one in (trace.origin, *trace.origin.get("parts", ()))):
        return trace  # a file of totals: its reader laid the times end to end
    trace = _without_far(trace)
    trace = _without_overlaps(trace)
    return _clip_at_end(_clip_host_at_end(trace))


# ------------------------------------------------------------------------------ far from all else


def _without_far(trace: Trace) -> Trace:
    bounds: dict[str, tuple[int, int]] = {}
    for name, column in _TIMED.items():
        times = trace[name][column]
        if len(times) > times.null_count():
            low: Any = times.min()
            high: Any = times.max()
            bounds[name] = (int(low), int(high))
    first = min((low for low, _ in bounds.values()), default=1)
    last = max((high for _, high in bounds.values()), default=first)
    if first > 0 and last - first < _FAR:
        return trace
    host = [_typical(trace[name]["start"]) for name in ("ranges", "calls") if name in bounds]
    kept: dict[str, pl.DataFrame] = {}
    for name in bounds:
        times = trace[name][_TIMED[name]]
        wrong, what = _far(times, bounds, name, host)
        count = int(wrong.sum())
        if not count or 2 * count >= len(times) - times.null_count() + 1:
            continue
        kept[name] = trace[name].filter(~wrong)
        trace.note("warning", _loss_note(trace[name].filter(wrong), name, what), count)
    return trace.replace(**kept) if kept else trace


def _typical(times: pl.Series) -> tuple[int, int]:
    """Return the first and last time that is not further than an hour from the median's neighbours."""
    ordered = np.sort(times.drop_nulls().to_numpy())
    middle = len(ordered) // 2
    breaks = np.flatnonzero(np.diff(ordered) > _FAR)
    after = breaks[breaks >= middle]
    before = breaks[breaks < middle]
    last = int(after[0]) if len(after) else len(ordered) - 1
    return int(ordered[before[-1] + 1 if len(before) else 0]), int(ordered[last])


def _far(
    times: pl.Series,
    bounds: dict[str, tuple[int, int]],
    name: str,
    host: list[tuple[int, int]],
) -> tuple[pl.Series, str]:
    """Return which of the times cannot be, and where they are, in words."""
    zero = (times == 0).fill_null(False)
    nothing = zero & ~zero
    rest: Any = times.filter(times > 0).min()
    others = [low for other, (low, _) in bounds.items() if other != name and low > 0]
    following = min([rest] if rest is not None else others, default=0)
    apart = following > _FAR
    if name in _DEVICE and host and int(zero.sum()) > 1:
        # relative times may begin with one kernel; several began at 0 only if the host did
        apart |= 0 < host[0][0] <= following
    if zero.any() and apart:
        return zero, "at time 0"
    if name in ("ranges", "calls"):
        return nothing, ""
    if not host:
        return nothing, ""
    low, high = min(one for one, _ in host), max(other for _, other in host)
    wrong = ((times < low - _FAR) | (times > high + _FAR)).fill_null(False)
    return wrong, "more than an hour from all that the host did"


def _loss_note(rows: pl.DataFrame, name: str, where: str) -> str:
    named = f" ({_short(rows['name'][0])})" if "name" in rows.columns else ""
    return f"{name} {where}, {_NO_TIME}{named}"


# ------------------------------------------------------------------------------ streams run in order


@dataclass(frozen=True, slots=True)
class _Work:
    """Kernels and copies by stream and start. ``row``: of ``kernels``, and after those of ``memops``;
    ``launch``: equal for the work of one CUDA graph's launch, which may run at the same time."""

    row: Ints
    lane: NDArray[np.integer[Any]]
    start: Ints
    end: Ints
    launch: Ints


def _without_overlaps(trace: Trace) -> Trace:
    if not (len(trace["kernels"]) or len(trace["memops"])) or _has_nests(trace):
        return trace
    work = _by_stream(trace)
    if work is None:
        return trace
    edges = np.flatnonzero(np.diff(work.lane, prepend=-1, append=-1))
    clipped: dict[int, int] = {}
    for begin, after in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        end = work.end[begin:after]
        reach = np.maximum.accumulate(end)
        if not (end[1:] < reach[:-1] - _ROUNDED).any():  # nothing ends inside other work
            continue
        start, row = work.start[begin:after], work.row[begin:after]
        endless = np.flatnonzero(end - start > _DAY)
        endless = endless[endless < len(end) - 1]
        if len(endless):
            clipped |= zip(row[endless].tolist(), start[endless + 1].tolist(), strict=True)
            end = end.copy()
            end[endless] = start[endless + 1]
        launch = _launches(trace, work, begin, after)
        clipped |= _clips(trace, _Work(row, work.lane[begin:after], start, end, launch))
    return _clip(trace, clipped) if clipped else trace


def _has_nests(trace: Trace) -> bool:
    """Whether lines of work are no streams: a TPU's show a loop and the operations in it."""
    return trace.origin.get("format") == "xplane" and not _on_cuda(trace)


def _by_stream(trace: Trace) -> _Work | None:
    """Return the work on known streams, or None if there is none. Sorts only where it must: a million
    kernels in order take 30 ms."""
    columns = [
        trace[name].select(
            pl.col("process", "device", "context", "stream").cast(pl.Int64).fill_null(_NULL),
            "start",
            "end",
        )
        for name in _DEVICE
        if len(trace[name])
    ]
    frame = pl.concat(columns) if len(columns) > 1 else columns[0]
    stream = frame["stream"].to_numpy()
    lane = np.zeros(len(frame), np.int64)
    for name in ("process", "device", "context", "stream"):
        values = frame[name]
        if values.min() == values.max():
            continue
        distinct = np.sort(values.unique().to_numpy())
        lane = lane * len(distinct) + np.searchsorted(distinct, values.to_numpy())
    if len(frame) and int(lane.max()) >= 1 << 15:
        lane = np.unique(lane, return_inverse=True)[1]
    start, end = frame["start"].to_numpy(), frame["end"].to_numpy()
    order = np.arange(len(frame))
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
    if lane.any():
        small = lane[order].astype(np.int16) if int(lane.max()) < 1 << 15 else lane[order]
        order = order[np.argsort(small, kind="stable")]
    known = stream[order] != _NULL
    if not known.all():
        order = order[known]
    if len(order) < 2:
        return None
    nothing = np.empty(0, np.int64)
    return _Work(order, lane[order], start[order], end[order], nothing)


def _launches(trace: Trace, work: _Work, begin: int, after: int) -> Ints:
    """Return a number for the launch of each row: its own, or that of its CUDA graph; nodes of a graph
    without a launch record share one number."""
    rows = work.row[begin:after]
    kernels = len(trace["kernels"])
    found = np.empty(len(rows), np.int64)
    for name, here, low in (("kernels", rows < kernels, 0), ("memops", rows >= kernels, kernels)):
        of = rows[here] - low
        ids = trace[name]["correlation"].gather(of)
        is_node = trace[name]["graph_node"].gather(of).is_not_null()
        alone = pl.Series(-2 - rows[here])
        without = alone.zip_with(~is_node, pl.Series(np.full(len(of), -1, np.int64)))
        found[here] = ids.zip_with(ids.is_not_null(), without).to_numpy()
    return found


def _clips(trace: Trace, work: _Work) -> dict[int, int]:
    """Return the new end of each row of one stream that did not last as long as it says."""
    start, end, launch = work.start, work.end, work.launch
    after = np.searchsorted(start, end - _ROUNDED, side="left")
    long = np.flatnonzero(after - np.arange(len(start)) > 1)
    inside = np.zeros(len(start), np.int64)
    with_own = inside.copy()  # of its own launch too, which a CUDA graph may run at the same time
    following = np.full(len(start), -1, np.int64)
    if len(long) > max(1, len(start) // _WRONG):
        return {}
    for row in long.tolist():
        within = np.arange(row + 1, int(after[row]))
        ended = end[within] < end[row] - _ROUNDED
        others = launch[within] != launch[row]
        inside[row], with_own[row] = (ended & others).sum(), ended.sum()
        following[row] = start[within[others][0] if others.any() else row + 1]
    wrong = np.flatnonzero(with_own > 0)
    if not len(wrong) or len(wrong) > max(1, len(start) // _WRONG):
        return {}
    rest = np.setdiff1d(np.arange(len(start)), wrong)
    lasted = end - start
    longest = max(int(lasted[rest].max()) if len(rest) else 0, _ROUNDED)
    overlaps = int((start[rest[1:]] < end[rest[:-1]] - _ROUNDED).sum())
    serial = len(rest) >= _OTHERS and overlaps * _FEW <= len(rest)
    in_order = serial and _on_cuda(trace)
    clips: dict[int, int] = {}
    for row in wrong.tolist():
        absurd = lasted[row] > _ABSURD * longest
        ordered = in_order and (inside[row] >= _INSIDE or (inside[row] > 0 and absurd))
        endless = lasted[row] > max(_AFTER, _NEVER * longest)
        clear = (inside[row] >= _CLEAR and absurd) or (
            serial and with_own[row] >= _CLEAR and endless
        )
        if ordered or (clear and (in_order or not _communicates(trace, int(work.row[row])))):
            clips[int(work.row[row])] = int(following[row])
    return clips


def _communicates(trace: Trace, row: int) -> bool:
    """Whether the row may be a collective, which AMD's and Ascend's queues run beside other work."""
    if row >= len(trace["kernels"]):
        return True
    name = str(trace["kernels"]["name"][row]).lower()
    return any(part in name for part in ("ccl", "hcom", "reduce_scatter", "allgather", "allreduce"))


def _on_cuda(trace: Trace) -> bool:
    """Whether streams are CUDA's, which run in order whatever launches on them."""
    if trace.origin.get("format") in ("nsys", "nvprof", "dlprof"):
        return True
    calls = trace["calls"]["name"].head(1000).drop_nulls().unique().cast(pl.String)
    if calls.str.starts_with("cu").any():
        return True
    names = trace["devices"]["name"].drop_nulls().cast(pl.String)
    return bool(names.str.contains(r"(?i)nvidia|tesla|geforce|quadro|rtx|[AHV]100").any())


def _clip(trace: Trace, clips: dict[int, int]) -> Trace:
    kernels = len(trace["kernels"])
    changed = {}
    for name, low, high in (
        ("kernels", 0, kernels),
        ("memops", kernels, kernels + len(trace["memops"])),
    ):
        mine = {row - low: end for row, end in clips.items() if low <= row < high}
        if mine:
            _note_clipped(trace, name, mine)
            changed[name] = with_ends(trace[name], mine)
    return trace.replace(**changed)


def clip_marks(trace: Trace, table: pl.DataFrame) -> pl.Series:
    """Return which rows of a table of device work were clipped: their time is not known."""
    none: pl.Series = pl.Series([False]).new_from_index(0, len(table))
    noted = trace["notes"]["what"].cast(pl.String).str.contains(_NOT_KNOWN, literal=True).any()
    if not noted or "attrs" not in table.columns:  # a search in a million texts takes 20 ms
        return none
    marked: pl.Series = table["attrs"].str.contains(CLIPPED, literal=True).fill_null(False)
    return marked


def with_ends(table: pl.DataFrame, ends: dict[int, int]) -> pl.DataFrame:
    """Return the table with new ends of some rows; kernels are marked, as nothing follows from their time."""
    rows = pl.Series(list(ends), dtype=pl.UInt32)
    end = table["end"].clone().scatter(rows, pl.Series(list(ends.values()), dtype=pl.Int64))
    table = table.with_columns(end.alias("end"))
    if "attrs" not in table.columns:
        return table
    attrs = table["attrs"].gather(rows).fill_null("{}").str.strip_chars()
    members = attrs.str.strip_suffix("}")
    marked = pl.Series(
        [f"{text}{'' if text.strip() == '{' else ','}{CLIPPED}}}" for text in members.to_list()],
        dtype=pl.String,
    )
    return table.with_columns(table["attrs"].clone().scatter(rows, marked).alias("attrs"))


def _note_clipped(trace: Trace, name: str, ends: dict[int, int]) -> None:
    rows = np.array(list(ends), np.int64)
    table = trace[name].select(
        "process", "device", "stream", "start", "end", "name" if name == "kernels" else "kind"
    )
    part = table[rows].with_columns(pl.Series("row", rows))
    part = part.with_columns((pl.col("end") - pl.col("start")).alias("lasted"))
    for (_, device, stream), here in part.group_by(
        "process", "device", "stream", maintain_order=True
    ):
        longest = here.sort("lasted", descending=True).row(0, named=True)
        which = longest.get("name") or longest.get("kind")
        what = (
            f"{name} that say they ran while stream {stream} of device {device} ran others, which cannot be:"
            f" clipped at the start of the next (the longest said {units.time(longest['lasted'])}:"
            f" {_short(which)}); {_NOT_KNOWN}"
        )
        trace.note("warning", what, len(here))


# ------------------------------------------------------------------------------ beyond the trace


def _bounds(table: pl.DataFrame) -> tuple[Any, Any]:
    return table["start"].min(), table["end"].max()


def _beyond(name: str, lasted: int, which: object) -> str:
    return (
        f"{name} that say they ran long after the end of the trace: clipped there (the longest said"
        f" {units.time(lasted)}: {_short(which)}); {_NOT_KNOWN}"
    )


def _clip_host_at_end(trace: Trace) -> Trace:
    """Clip ranges and calls that end over an hour, and a hundred times the trace, after all else began; those
    that outlive a range that they began in, from a second on."""
    starts = [trace[name][column] for name, column in _TIMED.items() if len(trace[name])]
    first: Any = min((column.min() for column in starts), default=None)  # type: ignore[type-var]
    last: Any = max((column.max() for column in starts), default=None)  # type: ignore[type-var]
    if first is None or last is None:
        return trace
    late = last + max(_FAR, _NEVER * (last - first))
    soon = last + max(_AFTER, _NEVER * (last - first))
    changed = {}
    for name in ("ranges", "calls"):
        table = trace[name]
        most: Any = table["end"].max()
        if most is None or most <= soon:
            continue
        wrong = (table["end"] > late).fill_null(False) | _outlives(trace, table, soon)
        if not wrong.any():
            continue
        rows = table.filter(wrong).with_columns((pl.col("end") - pl.col("start")).alias("lasted"))
        longest = rows.sort("lasted", descending=True).row(0, named=True)
        ends = [trace[of]["end"].filter(trace[of]["end"] <= soon).max() for of in _SPANS]
        cut = max([last, *(end for end in ends if end is not None)])
        which = longest.get("text") or longest.get("name")
        trace.note("warning", _beyond(name, longest["lasted"], which), len(rows))
        end = pl.when(pl.Series(wrong)).then(pl.lit(cut)).otherwise(pl.col("end"))
        changed[name] = table.with_columns(end.cast(pl.Int64).alias("end"))
    return trace.replace(**changed) if changed else trace


def _outlives(trace: Trace, table: pl.DataFrame, soon: int) -> pl.Series:
    """Return which rows end after ``soon`` although they began in a range of their thread that ended before:
    what a thread does nests."""
    long = (table["end"] > soon).fill_null(False)
    rows = np.flatnonzero(long)
    if not len(rows) or len(rows) > _SOME:
        return long & ~long
    around = trace["ranges"].filter(
        pl.col("kind").cast(pl.String) == "pushpop", pl.col("end") <= soon
    )
    wrong = np.zeros(len(table), bool)
    for row, process, thread, start in zip(
        rows, *(table[rows][name] for name in ("process", "thread", "start")), strict=True
    ):
        mine = pl.col("process").eq_missing(process) & pl.col("thread").eq_missing(thread)
        inside = (pl.col("start") < start) & (pl.col("end") > start)
        wrong[row] = not around.filter(mine & inside).is_empty()
    return pl.Series(wrong)


def _clip_at_end(trace: Trace) -> Trace:
    """Clip device work that ends long after all else."""
    host = [
        (int(low), int(high))
        for name in ("ranges", "calls")
        for low, high in [_bounds(trace[name])]
        if low is not None and high is not None
    ]
    first, last = (
        min((low for low, _ in host), default=0),
        max((high for _, high in host), default=0),
    )
    changed = {}
    for name in _DEVICE:
        table = trace[name]
        most: Any = (table["end"] - table["start"]).max() if len(table) else 0
        if most <= _AFTER:
            continue
        start, end = table["start"].to_numpy(), table["end"].to_numpy()
        rows = np.flatnonzero(end - start > _DAY)
        late = last + max(_AFTER, _ABSURD * (last - first))
        beyond = np.flatnonzero((end > late) & (start <= last)) if host else rows
        if len(beyond) <= max(1, len(end) // _WRONG):
            rows = np.union1d(rows, beyond)
        if not len(rows):
            continue
        rest = np.delete(end, rows)
        cut = max(last, int(rest.max()) if len(rest) else last)
        column = "name" if name == "kernels" else "kind"
        longest = int(rows[(end - start)[rows].argmax()])
        lasted = int(end[longest] - start[longest])
        trace.note("warning", _beyond(name, lasted, table[column][longest]), len(rows))
        changed[name] = with_ends(table, {row: max(cut, int(start[row])) for row in rows.tolist()})
    return trace.replace(**changed) if changed else trace


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= _NAME else text[: _NAME - 1] + "…"
