"""Clip or leave out records with impossible times, for every reader, and note which.

Rules, each counted and named in the notes of the trace:

* Records without a start, or with an end that is missing or before the start, are left out
  (``readers/sound.py``).
* What began at time 0, or more than an hour away from all that the host recorded, has no time: left out.
  CUPTI writes 0 for a time that it could not collect. What began then, an hour before all else, and ended
  among it has none either, even if all of a table did. So has device work that began before all launches and
  a second before its own, and what has no duration an hour away from its like. Where most of a table is
  there, clocks differ: nothing is left out.
* A stream runs its work in order. A kernel or copy in whose time its stream began and ended work of other
  launches did not last so long: clipped where the next of them begins. A stream whose other work overlaps
  too runs no such order (queues of AMD's, several ranks in one file): nothing is clipped, unless the time is
  ten times that of all other work. The work of one CUDA graph may run at the same time: there it must be over
  a second, and a hundred times.
* What a thread does nests. An op or call that outlives a range that it began in, and is ten times as long,
  is clipped where the thread's next range begins.
* A kernel that lasts over an hour is left out. Tables in another unit are only noted (``other_unit.py``).
* Device work that ends long after all else, host included, has no known end: clipped there. So are ranges
  and calls, from an hour on; sooner where they outlive a range of their thread that they began in.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.question import units

from .intervals import Ints
from .other_unit import NOT_KNOWN, SAID, TOO_LONG_SAID, TOO_SHORT_SAID, note_units, short
from .trace import Trace

#: Key in the attrs of a kernel of whose time only an upper bound is known.
CLIPPED: Final = '"clipped":true'
#: More than the difference of one machine's clocks, and longer than any profiler waits (ns).
FAR: Final = 3600 * 10**9
#: Each of two times may have been rounded to microseconds separately (ns).
_ROUNDED: Final = 2_000
#: A kernel that is this many times longer than all other work on its stream has a wrong time, whatever the
#: stream's order.
_ABSURD: Final = 10
#: The same limit for CUDA graphs, whose kernels may run at the same time.
_NEVER: Final = 100
#: One in this many kernels may overlap the next: one of 4,010 does in a trace of two H100, by 12 us.
_FEW: Final = 100
#: Number of the longest ranges and calls that are checked for outliving the range they began in.
_LOOKED_AT: Final = 20
#: The same over several streams: 3 of 59 do in DLProf's database of a small net.
_FEW_OF_SEVERAL: Final = 10
#: No kernel runs for a day (ns).
_DAY: Final = 24 * FAR
#: Device work may end this long (ns), or ten times the length of the trace, after all else.
_AFTER: Final = 10**9
#: The stream is taken to be in order if this many pieces of work lie inside another piece's time; and if this
#: many others confirm it.
_INSIDE, _OTHERS, _CLEAR = 2, 3, 5
#: Largest share of a stream's work that may be wrong; beyond it, the stream is not in order.
_WRONG: Final = 4
DEVICE: Final = ("kernels", "memops")
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
#: The reader's note on a trace that has ranges of the program but no op, call or kernel.
ONLY_RANGES: Final = "the file has ranges alone, and no ops"
#: The reader's note on work without a device.
NOWHERE: Final = "the device of some kernels, copies and sets is not known"
NO_TIME: Final = "left out: their times were not recorded"
IMPOSSIBLE: Final = f"{NOT_KNOWN}|when they ran is not known|{NO_TIME}|clocks differ, so idle"
#: If this share of a device's records, or of ops, has no time, results that rest on idle time are unknown; so
#: are they if this share of the kernels' time may be too long.
_MATTERS, _LONG_MATTERS = 0.01, 0.1


def without_impossible(trace: Trace) -> Trace:
    """Return the trace without impossible times; notes say what was clipped or left out."""
    if any(one.get("times") for one in (trace.origin, *trace.origin.get("parts", ()))):
        return trace  # a file of totals: its reader placed the times end to end
    recorded = {name for name in DEVICE if len(trace[name])}
    trace = _without_crossing_at_zero(_without_far(_without_lone(_without_spans(trace))))
    trace = _without_launched_later(trace)
    note_units(trace, nests=_has_nests(trace))
    trace = _without_overlaps(trace)
    trace = _clip_at_end(_clip_host_at_end(_clip_outliving(trace)))
    return without_timeless(_without_long(trace), recorded)


def without_timeless(trace: Trace, recorded: Set[str]) -> Trace:
    """Return the trace without those of the ``recorded`` tables that lost all rows: an empty table would say
    that the device did nothing."""
    lost = {name for name in recorded if not len(trace[name])}
    origin = {**trace.origin, "gpu": True} if lost else trace.origin
    return replace(trace, present=trace.present - lost, origin=origin)


def lack_of_times(trace: Trace, *names: str) -> str | None:
    """Return what is unknown about the times in these tables (kernels, memops; ranges), or about where they
    ran; None if only few rows are affected."""
    said = trace["notes"]["what"].cast(pl.String)
    if "memops" in names and said.eq(NOWHERE).any():
        return NOWHERE
    if not said.str.contains(IMPOSSIBLE).any():
        return None
    of = f"({'|'.join(names)})"
    left_out = trace["notes"].filter(said.str.contains(rf"^((rows of )?{of}|events)\b.*{NO_TIME}"))
    count, kept = int(left_out["how_many"].sum()), sum(len(trace[name]) for name in names)
    noun = "ops" if "ranges" in names else "kernels, copies and sets"
    if count and count >= _MATTERS * (count + kept):
        verb = "has" if count == 1 else "have"
        return f"{units.count(count)} of {units.count(count + kept)} {noun} {verb} no time"
    for tables in (of, "(ranges|calls)"):
        of_all = said.filter(said.str.contains(f"^{tables} ({SAID})"))
        if len(of_all):
            return str(of_all[0]).partition(":")[0]
    kernels = trace["kernels"] if "kernels" in names else trace["kernels"].clear()
    lasted = kernels["end"] - kernels["start"]
    most = int(lasted.filter(clip_marks(trace, kernels)).sum())
    if not most or most < _LONG_MATTERS * int(lasted.sum()):
        return None
    return f"how long kernels took that ran into others is not known (up to {units.time(most)})"


def without_device(trace: Trace) -> int:
    """Return how much work has no device, in processes that have one for the rest; 0 if little."""
    parts = [trace[name].select("process", pl.col("device").is_null()) for name in DEVICE]
    work = pl.concat(parts).group_by("process").agg(pl.col("device").sum(), pl.len())
    lost = int(work.filter(pl.col("device") < pl.col("len"))["device"].sum())
    return lost if lost >= _MATTERS * sum(map(len, parts)) else 0


def durations_unknown(trace: Trace) -> str | None:
    """Why no duration of a kernel is known; None if they are."""
    said = trace["notes"]["what"].cast(pl.String)
    why = said.filter(said.str.contains(f"^kernels ({TOO_SHORT_SAID}|{TOO_LONG_SAID}): "))
    return f"{str(why[0]).partition(':')[0]}: {NOT_KNOWN}" if len(why) else None


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
    if first > 0 and last - first < FAR:
        return trace
    host = [_typical(trace[name]["start"]) for name in ("ranges", "calls") if name in bounds]
    since_boot = trace.origin.get("format") == "rocm"
    for name in bounds:
        times = trace[name][_TIMED[name]]
        wrong, what = _far(times, bounds, name, host, since_boot)
        if 2 * int(wrong.sum()) < len(times) - times.null_count() + 1:
            trace = _leave_out(trace, name, wrong, what)
    return trace


def _leave_out(
    trace: Trace, name: str, wrong: pl.Series, where: str, all_of_them: bool = False
) -> Trace:
    """Return the trace without these rows of a table, which a note counts. If these are all rows, they
    stay, unless ``all_of_them`` is set."""
    count, table = int(wrong.sum()), trace[name]
    if not count or (count == len(table) and not all_of_them):
        return trace
    rows = table.filter(wrong)
    column = next((one for one in ("name", "text", "kind") if one in rows.columns), None)
    named = "" if column is None else f" ({short(rows[column][0])})"
    trace.note("warning", f"{name} {where}, {NO_TIME}{named}", count)
    return trace.replace(**{name: table.filter(~wrong)})


def _without_spans(trace: Trace) -> Trace:
    """Leave out records that began at time 0 or before, an hour before all else, and yet ended among the
    rest."""
    starts = [times.filter(times > 0).min() for times in (trace[n][c] for n, c in _TIMED.items())]
    following: Any = min((low for low in starts if low is not None), default=None)
    if following is None or following <= FAR:
        return trace
    for name in _SPANS:
        wrong = (trace[name]["start"] <= 0) & (trace[name]["end"] >= following - FAR)
        trace = _leave_out(trace, name, wrong.fill_null(False), "from time 0 on", all_of_them=True)
    return trace


def _without_long(trace: Trace) -> Trace:
    """Leave out kernels of over an hour, which do not exist; those beside other work on a stream were
    clipped before."""
    kernels = trace["kernels"]
    if not len(kernels) or _has_nests(trace):
        return trace
    long = (kernels["end"] - kernels["start"] > FAR).fill_null(False)
    return _leave_out(trace, "kernels", long, "that last over an hour", all_of_them=True)


def _without_lone(trace: Trace) -> Trace:
    """Leave out records without a duration an hour away from others of their table; for ranges, only
    several at one instant."""
    for name in ("kernels", "memops", "ranges"):
        table = trace[name]
        low, high = _bounds(table)
        if low is None or high - low < FAR:
            continue
        timed = table.filter(pl.col("end") > pl.col("start"))
        first, last = _typical((timed if len(timed) else table)["start"])
        start = pl.col("start")
        lone = (pl.col("end") == start) & ((start < first - FAR) | (start > last + FAR))
        if name == "ranges":
            lone &= (pl.col("kind").cast(pl.String) == "pushpop") & start.is_duplicated()
        wrong = table.select(lone.fill_null(False)).to_series()
        trace = _leave_out(trace, name, wrong, "without a duration, an hour from all others")
    return trace


def _without_crossing_at_zero(trace: Trace) -> Trace:
    """Leave out ranges at time 0 that end inside a later range of their thread, because ranges of a thread
    nest."""
    ranges = trace["ranges"]
    if not len(ranges) or ranges["start"].min() != 0:
        return trace
    nested = ranges.with_row_index("row").filter(pl.col("kind").cast(pl.String) == "pushpop")
    wrong = np.zeros(len(ranges), bool)
    threads = nested.filter(pl.col("start") == 0).select("process", "thread").unique()
    for process, thread in threads.rows():
        mine = nested.filter(
            pl.col("process").eq_missing(process), pl.col("thread").eq_missing(thread)
        )
        row, start, end = (mine[name].to_numpy() for name in ("row", "start", "end"))
        later = np.flatnonzero(start > 0)
        later = later[np.argsort(start[later], kind="stable")]
        reach = np.maximum.accumulate(end[later])
        at_zero = np.flatnonzero(start == 0)
        begun = np.searchsorted(start[later], end[at_zero] - _ROUNDED) - 1
        crosses = begun >= 0
        crosses[crosses] = reach[begun[crosses]] > end[at_zero[crosses]] + _ROUNDED
        wrong[row[at_zero[crosses]]] = True
    return _leave_out(trace, "ranges", pl.Series(wrong), "at time 0")


def _without_launched_later(trace: Trace) -> Trace:
    """Leave out device work that began before all launches of its process and over a second before its own
    launch; if the work began at time 0, any time before its launch is enough."""
    calls = (
        trace["calls"].select("process", "start", "correlation").filter(pl.col("correlation") > 0)
    )
    for name in DEVICE:
        table = trace[name]
        first: Any = table["start"].min()
        last: Any = calls["start"].max()
        if first is None or last is None or (first > last - _AFTER and first != 0):
            continue
        if table["start"].median() == first:
            continue  # most work has that one begin, so it is not a real time
        begun = calls.group_by("process").agg(pl.col("start").min().alias("begun"))
        rows = table.with_row_index("row").select("row", "process", "correlation", "start")
        rows = rows.join(begun, on="process", nulls_equal=True)
        rows = rows.filter(pl.col("start") < pl.col("begun") - _ROUNDED)
        own = calls.join(
            rows.select("process", "correlation"), on=["process", "correlation"], how="semi"
        )
        own = own.group_by("process", "correlation").agg(pl.col("start").min().alias("called"))
        lead = pl.col("called") - pl.col("start")
        rows = rows.join(own, on=["process", "correlation"])
        rows = rows.filter((lead > _AFTER) | ((pl.col("start") == 0) & (lead > _ROUNDED)))
        if 2 * len(rows) < len(table):
            wrong = pl.Series(np.isin(np.arange(len(table)), rows["row"].to_numpy()))
            trace = _leave_out(trace, name, wrong, "that began long before their launch")
    return trace


def _typical(times: pl.Series) -> tuple[int, int]:
    """Return the first and last time within an hour of their neighbours, going out from the median."""
    ordered = np.sort(times.drop_nulls().to_numpy())
    middle = len(ordered) // 2
    breaks = np.flatnonzero(np.diff(ordered) > FAR)
    after = breaks[breaks >= middle]
    before = breaks[breaks < middle]
    last = int(after[0]) if len(after) else len(ordered) - 1
    return int(ordered[before[-1] + 1 if len(before) else 0]), int(ordered[last])


def _far(
    times: pl.Series,
    bounds: dict[str, tuple[int, int]],
    name: str,
    host: list[tuple[int, int]],
    since_boot: bool,
) -> tuple[pl.Series, str]:
    """Return which times are impossible, and where they are, in words. ``since_boot``: the clock counts
    from the machine's start, as ROCm's does, so no kernel ran at 0."""
    zero = (times == 0).fill_null(False)
    nothing = zero & ~zero
    rest: Any = times.filter(times > 0).min()
    others = [low for other, (low, _) in bounds.items() if other != name and low > 0]
    following = min([rest] if rest is not None else others, default=0)
    apart = following > FAR
    if name in DEVICE and host and int(zero.sum()) > 1:
        # relative times may begin with one kernel at 0; several began at 0 only if the host did
        apart |= 0 < host[0][0] <= following
    apart |= name in DEVICE and since_boot and following > _AFTER
    if zero.any() and apart:
        return zero, "at time 0"
    if name in ("ranges", "calls"):
        return nothing, ""
    if not host:
        return nothing, ""
    low, high = min(one for one, _ in host), max(other for _, other in host)
    wrong = ((times < low - FAR) | (times > high + FAR)).fill_null(False)
    return wrong, "more than an hour from all that the host did"


# ------------------------------------------------------------------------------ streams run in order


@dataclass(frozen=True, slots=True)
class _Work:
    """Kernels and copies by stream and start. ``row``: rows of ``kernels`` first, then those of
    ``memops``; ``launch``: equal for the work of one CUDA graph's launch, which may run at the same time.
    ``known``: whether its stream is known; work of unknown streams may belong to several."""

    row: Ints
    lane: NDArray[np.integer[Any]]
    start: Ints
    end: Ints
    launch: Ints
    known: NDArray[np.bool_]


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
        clipped |= _clips(
            trace, _Work(row, work.lane[begin:after], start, end, launch, work.known[begin:after])
        )
    return _clip(trace, clipped) if clipped else trace


def _has_nests(trace: Trace) -> bool:
    """Return whether rows are not streams: a TPU's rows hold a loop and the operations in it, and no
    launches."""
    on_gpu = len(trace["calls"]) > 0 or _on_cuda(trace)
    return trace.origin.get("format") == "xplane" and not on_gpu


def _by_stream(trace: Trace) -> _Work | None:
    """Return the work on known streams, or None if there is none. Sorts only if needed: a million kernels
    that are in order take 30 ms."""
    columns = [
        trace[name].select(
            pl.col("process", "device", "context", "stream").cast(pl.Int64).fill_null(_NULL),
            "start",
            "end",
        )
        for name in DEVICE
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
    if len(order) < 2:
        return None
    nothing = np.empty(0, np.int64)
    return _Work(order, lane[order], start[order], end[order], nothing, stream[order] != _NULL)


def _launches(trace: Trace, work: _Work, begin: int, after: int) -> Ints:
    """Return for each row the number of its own launch, or of the launch of its CUDA graph; nodes of a
    graph without a launch record share one number."""
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
    """Return the new end of each row of one stream whose duration is impossible."""
    start, end, launch = work.start, work.end, work.launch
    after = np.searchsorted(start, end - _ROUNDED, side="left")
    long = np.flatnonzero(after - np.arange(len(start)) > 1)
    inside = np.zeros(len(start), np.int64)
    # includes work of the same launch, which a CUDA graph may run at the same time
    with_own = inside.copy()
    like_it = inside.copy()  # kernels in a kernel, copies in a copy: clocks of both may differ
    is_copy = work.row >= len(trace["kernels"])
    following = np.full(len(start), -1, np.int64)
    if len(long) > max(1, len(start) // _WRONG):
        return {}
    for row in long.tolist():
        within = np.arange(row + 1, int(after[row]))
        ended = end[within] < end[row] - _ROUNDED
        others = launch[within] != launch[row]
        inside[row], with_own[row] = (ended & others).sum(), ended.sum()
        like_it[row] = (ended & others & (is_copy[within] == is_copy[row])).sum()
        following[row] = start[within[others][0] if others.any() else row + 1]
    wrong = np.flatnonzero(with_own > 0)
    if not len(wrong) or len(wrong) > max(1, len(start) // _WRONG):
        return {}
    rest = np.setdiff1d(np.arange(len(start)), wrong)
    lasted = end - start
    longest = max(int(lasted[rest].max()) if len(rest) else 0, _ROUNDED)
    overlaps = int((start[rest[1:]] < end[rest[:-1]] - _ROUNDED).sum())
    known = bool(work.known[0])
    few = _FEW if known else _FEW_OF_SEVERAL
    serial = len(rest) >= _OTHERS and overlaps * few <= len(rest)
    in_order = serial and known and _on_cuda(trace)
    clips: dict[int, int] = {}
    for row in wrong.tolist():
        absurd = lasted[row] > _ABSURD * longest
        ordered = in_order and (like_it[row] >= _INSIDE or (like_it[row] > 0 and absurd))
        endless = lasted[row] > max(_AFTER, _NEVER * longest)
        clear = (known and inside[row] >= _CLEAR and absurd) or (
            serial and with_own[row] >= _CLEAR and endless
        )
        if ordered or (clear and (in_order or not _communicates(trace, int(work.row[row])))):
            clips[int(work.row[row])] = int(following[row])
    return clips


def _communicates(trace: Trace, row: int) -> bool:
    """Return whether the row may be a collective, which AMD's and Ascend's queues run beside other work."""
    if row >= len(trace["kernels"]):
        return True
    name = str(trace["kernels"]["name"][row]).lower()
    return any(part in name for part in ("ccl", "hcom", "reduce_scatter", "allgather", "allreduce"))


def _on_cuda(trace: Trace) -> bool:
    """Return whether streams are CUDA's, which run in order whichever call launched the work."""
    if trace.origin.get("format") in ("nsys", "nvprof", "dlprof", "pyprof"):
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
    """Return which rows of a table of device work were clipped, so their time is not known."""
    none: pl.Series = pl.Series([False]).new_from_index(0, len(table))
    noted = trace["notes"]["what"].cast(pl.String).str.contains(NOT_KNOWN, literal=True).any()
    if not noted or "attrs" not in table.columns:  # a search in a million texts takes 20 ms
        return none
    marked: pl.Series = table["attrs"].str.contains(CLIPPED, literal=True).fill_null(False)
    return marked


def with_ends(table: pl.DataFrame, ends: dict[int, int], mark: bool = True) -> pl.DataFrame:
    """Return the table with new ends for some rows; kernels are marked, because their durations are no
    longer reliable."""
    rows = pl.Series(list(ends), dtype=pl.UInt32)
    end = table["end"].clone().scatter(rows, pl.Series(list(ends.values()), dtype=pl.Int64))
    table = table.with_columns(end.alias("end"))
    if "attrs" not in table.columns or not mark:
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
        queue = "a stream" if stream is None else f"stream {stream}"
        what = (
            f"{name} that say they ran while {queue} of device {device} ran others, which cannot be:"
            f" clipped at the start of the next (the longest said {units.time(longest['lasted'])}:"
            f" {short(which)}); {NOT_KNOWN}"
        )
        trace.note("warning", what, len(here))


# ------------------------------------------------------------------------------ beyond the trace


def _bounds(table: pl.DataFrame) -> tuple[Any, Any]:
    return table["start"].min(), table["end"].max()


def _beyond(name: str, lasted: int, which: object) -> str:
    return (
        f"{name} that say they ran long after the end of the trace: clipped there (the longest said"
        f" {units.time(lasted)}: {short(which)}); {NOT_KNOWN}"
    )


def _clip_outliving(trace: Trace) -> Trace:
    """Clip ranges and calls that end after the range of their thread in which they began, and are ten times
    as long as that range. They then end where the thread's next range begins. User ranges stay as they are,
    because they may overlap."""
    changed = {}
    for name in ("ranges", "calls"):
        table = trace[name]
        lasted = (table["end"] - table["start"]).to_numpy()
        if not len(table) or int(lasted.max()) < _AFTER:
            continue
        rows = np.flatnonzero(lasted > _AFTER)
        rows = rows[np.argsort(lasted[rows], kind="stable")[::-1][:_LOOKED_AT]]
        around = trace["ranges"].filter(pl.col("kind").cast(pl.String) == "pushpop")
        ends: dict[int, int] = {}
        for row, one in zip(rows.tolist(), table[rows].iter_rows(named=True), strict=True):
            if name == "ranges" and one["domain"] == "user":
                continue
            at_once = [pl.col(key).eq_missing(one[key]) for key in ("process", "thread")]
            mine = around.filter(at_once, pl.col("end") > one["start"])
            low, high = mine["start"].to_numpy(), mine["end"].to_numpy()
            begun = (low < one["start"]) & (high < one["end"])
            if begun.any() and lasted[row] > _ABSURD * int((high - low)[begun].min()):
                following = low[low > one["start"]]
                ends[row] = int(min([high[begun].min(), *following]))
        if not ends:
            continue
        longest = max(ends, key=lambda row: int(lasted[row]))
        which = table["text" if name == "ranges" else "name"][longest]
        what = (
            f"{name} that outlive a range that they began in, which cannot be: clipped at the start of the"
            f" next (the longest said {units.time(int(lasted[longest]))}: {short(which)}); {NOT_KNOWN}"
        )
        trace.note("warning", what, len(ends))
        changed[name] = with_ends(table, ends, mark=False)
    return trace.replace(**changed) if changed else trace


def _clip_host_at_end(trace: Trace) -> Trace:
    """Clip ranges and calls that end over an hour, and a hundred times the trace's length, after the last
    begin."""
    # a table may have no row of known time
    starts = [trace[name][column].drop_nulls() for name, column in _TIMED.items()]
    starts = [column for column in starts if len(column)]
    first: Any = min((column.min() for column in starts), default=None)  # type: ignore[type-var]
    last: Any = max((column.max() for column in starts), default=None)  # type: ignore[type-var]
    if first is None or last is None:
        return trace
    late = last + max(FAR, _NEVER * (last - first))
    changed = {}
    for name in ("ranges", "calls"):
        table = trace[name]
        most: Any = table["end"].max()
        if most is None or most <= late:
            continue
        rows = table.filter(pl.col("end") > late)
        rows = rows.with_columns((pl.col("end") - pl.col("start")).alias("lasted"))
        longest = rows.sort("lasted", descending=True).row(0, named=True)
        ends = [trace[of]["end"].filter(trace[of]["end"] <= late).max() for of in _SPANS]
        cut = max([last, *(end for end in ends if end is not None)])
        which = longest.get("text") or longest.get("name")
        trace.note("warning", _beyond(name, longest["lasted"], which), len(rows))
        end = pl.when(pl.col("end") > late).then(pl.lit(cut)).otherwise(pl.col("end"))
        changed[name] = table.with_columns(end.cast(pl.Int64).alias("end"))
    return trace.replace(**changed) if changed else trace


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
    for name in DEVICE:
        table = trace[name]
        most: Any = (table["end"] - table["start"]).max() if len(table) else 0
        if most <= _AFTER:
            continue
        start, end = table["start"].to_numpy(), table["end"].to_numpy()
        rows = _endless(start, end)
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


def _endless(start: Ints, end: Ints) -> Ints:
    """Return which work lasted over an hour and a hundred times as long as all other work together; or
    over a day."""
    lasted = end - start
    rows = np.flatnonzero(lasted > FAR)
    rest = np.delete(np.arange(len(start)), rows)
    beside = int(end[rest].max() - start[rest].min()) if len(rest) else _DAY
    return rows[(lasted[rows] > _NEVER * beside) | (lasted[rows] > _DAY)]
