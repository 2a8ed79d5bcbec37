"""How many kernels the recording lost, by process: launches without a kernel, and steps with too few.

A launch without a kernel counts as a lost kernel, unless it was captured into a CUDA graph, forms one launch
with a call around or inside it, or the recording ended before its kernel did. Gaps in correlation ids prove
nothing: calls that are not recorded take ids too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.cuda_graph_captures import captures
from opscope.core.attribution.early_kernels import LATE, LATE_SAID
from opscope.core.dialects.launches import GRAPH_LAUNCH, LAUNCH
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Rows
from opscope.core.question.words import columns
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import at, matching
from opscope.core.tables.impossible import ONLY_RANGES, lack_of_times
from opscope.core.tables.intervals import NONE, Ints, merge
from opscope.core.tables.lanes import distinct_numbers
from opscope.core.tables.numbered import numbers_of
from opscope.core.tables.trace import SELECTED, Trace

from .lost_calls import unrecorded, without_launch
from .lost_ops import (
    lost_graph_kernels,
    lost_nodes,
    of_onnxruntime,
    op_names,
    ops_among_launches,
    share_missing,
)

#: Calls of other vendors' runtimes that launch a kernel.
_OTHER_LAUNCH: Final = (
    r"^(musa|mu|mc|maca|acl|aclrt|ze|ur|sycl|pi)\w*(Launch\w*Kernel|KernelLaunch|NDRange)"
)
#: From this share of lost kernels on, results that rest on idle time are unknown.
LEAST: Final = 0.01
#: The kernels of the last launches may end after the recording. That explains at most this share of the
#: launches (nsys's file of two H100 ends with 18 of 2,023).
_AT_END: Final = 0.02
#: If a smaller share of the kernels has a launch, the numbers of kernels and of launches may not be
#: comparable.
_LINKED: Final = 0.05
#: Of similar steps, those with fewer kernels than this share of the usual number lost some.
_FEWER: Final = 0.9
#: At the begin of an inferred step, this many kernels may belong to the neighbouring step.
_AT_EDGE: Final = 2
#: If this share of the kernels has an op other than in the next step, ops are lost: none of eight real traces
#: of repeating steps has one such kernel among up to 19,370.
_DIFFER: Final = 0.005
#: With fewer repeating kernels, a share is not a reliable estimate.
_COMPARED: Final = 20
#: An estimate is precise if two standard errors are no more than this share of it.
_NEAR: Final = 0.1
#: Steps are alike if the numbers of their ops differ by less than this share.
_ALIKE: Final = 0.01
#: Texts in which a recorder reports records that it could not keep.
_DROPPED: Final = r"(?i)\b(drop|dropped|overwrote|overwritten|lost|truncated|incomplete)\b"
#: The texts above that mean missing records in the middle of the run, on host and device.
_AMID: Final = (
    r"(?i)\b(records|events)\b.*\b(dropped|overw)|\b(dropped|overw\w*)\b.*\b(records|events)\b"
)
#: Text in which the reader reports a file that is not in the order of time, so that any kernel may be
#: missing.
CUT_OFF: Final = "what follows is missing"
#: The word that recorders use if their last records are missing.
LATER: Final = "later"
#: Calls after which the kernels of all launches before have ended.
_WAITS: Final = r"^(cuda|hip)DeviceSynchronize|^(cu|hip)CtxSynchronize"
#: Why the number is unknown: a closed list. XLA's traces of GPUs record launches, one a kernel (198 of 198).
NO_KERNELS: Final = "no kernel was recorded, so the process ran none or none was captured"
NO_LAUNCHES: Final = "the trace records no launches"
NOT_LINKED: Final = "most kernels have no launch record"
GRAPHS: Final = (
    "most kernels were launched by CUDA graphs, whose number of kernels the trace does not give"
)
WITHOUT_GRAPHS: Final = (
    "kernels that CUDA graphs launched are left out: the trace does not give their number"
)
A_PART: Final = "the profile is a part of what was recorded"
XLA: Final = "the trace is XLA's, whose launches need not be one for each kernel"
ANY_STREAM: Final = (
    "the trace records no launches: a stream without records in the file is not seen"
)
LEFT_OUT: Final = (
    "numbers that the profiler gave to kernels are missing: lost, or left out by a filter"
)
_NOUNS: Final = {
    "lost_launches": ("launch of a kernel", "launches of kernels"),
    "lost_steps": ("step", "steps"),
}
TOO_FEW: Final = "ops are missing in the file (95 % interval): too few runs repeat to say more"
SCHEMA: Final = {
    "process": pl.Int32,
    "kernels": pl.Int64,
    "kernel_launches": pl.Int64,
    "lost_kernels": pl.Int64,
    "lost_share": pl.Float64,
    "lost_launches": pl.Int64,
    "lost_ops": pl.Int64,
    "lost_steps": pl.Int64,
    "lost_error": pl.Int64,
    "lost_calls": pl.Int64,
    "lost_time": pl.Int64,
    "reason": pl.String,
}


def lost_kernels(attribution: Attribution) -> pl.DataFrame:
    """Return one row per process with kernels or launches, or with runs of ONNX Runtime: ``SCHEMA``.

    ``lost_error``: the standard error of ``lost_kernels`` or ``lost_ops``, if the estimate is from steps that
    each lack some. ``lost_calls`` and ``lost_time``: calls that were numbered while nothing was recorded
    (``unrecorded``). ``lost_kernels`` is an estimate; null, with ``reason``, if the trace does not show it.
    ``lost_launches``: kernels without a launch record, although later calls were recorded. ``lost_ops``: an
    estimate from steps that run the same kernels; null where none do. ``lost_steps``: missing numbers between
    those of steps, where the time of these steps is missing too.
    """
    trace, links = attribution.trace, attribution.kernels
    calls = trace["calls"]
    of_kernel, of_call, of_range = (
        table["process"].fill_null(NONE).to_numpy()
        for table in (trace["kernels"], calls, trace["ranges"])
    )
    runs = of_onnxruntime(trace)
    if not len(of_kernel) and not len(of_call) and not runs:
        return pl.DataFrame(schema=SCHEMA)
    launches = _launches(trace)
    lost = _launches_without_kernel(attribution, launches)
    graphed, linked = links.replay >= 0, links.call >= 0
    unnumbered = trace["kernels"]["correlation"].is_null().to_numpy()
    by_graph = matching(calls["name"], GRAPH_LAUNCH)
    if by_graph.any():
        graphed = graphed | at(by_graph, links.call, False)
    rows: list[dict[str, Any]] = []
    launched = distinct_numbers(of_call[launches])
    numbered_calls = set(of_call[calls["correlation"].is_not_null().to_numpy()].tolist())
    for process in sorted({*distinct_numbers(of_kernel), *launched, *runs}):
        mine = of_kernel == process
        replays = bool((by_graph & (of_call == process)).any())
        kernels, called = int(mine.sum()), int((launches & (of_call == process)).sum())
        of_graphs, tied = int((mine & graphed).sum()), int((mine & (linked | graphed)).sum())
        reason = _unknown(trace, kernels, called, of_graphs, tied)
        work = _work_of_steps(attribution, process, launches, lost)
        # steps of XLA's programs need not run the same kernels
        fewer, error = 0 if work is None or _is_xla(trace) else _lost_kernels(work), 0
        if reason == NO_LAUNCHES:
            fewer, error, reason = _without_launches(attribution, process, fewer)
        numbered = called or numbers_of(trace, process)[0] is not None
        seen = None if numbered else ANY_STREAM
        may_tell = (
            (reason is None and called)
            or (reason == NO_LAUNCHES and process in numbered_calls)
            or (reason == NOT_LINKED and not replays and linked[mine].mean() >= _LINKED)
        )
        bare = np.flatnonzero(mine & ~linked & ~graphed) if may_tell else None
        without = None if bare is None else without_launch(attribution, bare, process)
        if process in runs:
            nodes = lost_nodes(attribution, process, _numbered(attribution, process))
            ops, error = (None, 0) if nodes is None else nodes
            between = None if ops is None else _between(ops, error)
            if between:
                ops, reason = None, f"{between} {TOO_FEW}"
        else:
            ops = _lost_ops(work, int((attribution.is_op & (of_range == process)).sum()))
        # in a trace of chosen rows, ids are missing everywhere
        quiet = (0, 0) if reason == NOT_LINKED else unrecorded(trace, process)
        # a launch without a kernel may have launched a kernel that has no id
        number = int((of_call[lost] == process).sum())
        number -= min(number, int((mine & ~linked & unnumbered).sum()))
        # kernels without a launch are recorded, but count in no step
        number += max(fewer - (without or 0), 0)
        rows.append(
            {
                "process": None if process == NONE else int(process),
                "kernels": kernels,
                "kernel_launches": called,
                "lost_kernels": None if reason else number,
                "lost_share": None if reason else number / max(number + kernels, 1),
                "lost_launches": without,
                "lost_ops": ops,
                "lost_steps": _missing_steps(attribution, process),
                "lost_error": error,
                "lost_calls": quiet[0],
                "lost_time": quiet[1],
                "reason": reason or (WITHOUT_GRAPHS if replays else seen),
            }
        )
    return pl.DataFrame(rows, schema=SCHEMA)


def _without_launches(
    attribution: Attribution, process: int, fewer: int
) -> tuple[int, int, str | None]:
    """Return how many kernels are missing where no launch was recorded, the standard error, and why that is
    not known. The estimate is from ``fewer`` kernels in steps, from nodes that steps lack, or from the
    profiler's numbers of kernels."""
    if fewer:
        return fewer, 0, None
    nodes = lost_graph_kernels(attribution, process, _numbered(attribution, process))
    if nodes is not None:
        return *nodes, None
    missing, filtered = numbers_of(attribution.trace, process)
    if missing is None or (filtered and not missing):
        return 0, 0, NO_LAUNCHES
    return missing, 0, f"{LEFT_OUT} ({units.count(missing)} numbers)" if filtered else None


def _unknown(trace: Trace, kernels: int, called: int, graphed: int, linked: int) -> str | None:
    """Return why launches do not show how many kernels a process lost; None if they do.

    ``graphed``: kernels of CUDA graphs; ``linked``: these, and kernels whose launch is in the trace.
    """
    if _is_xla(trace) and not (called and 2 * linked >= kernels):
        return XLA
    for holds, reason in (
        (SELECTED in trace.origin, A_PART),
        (not kernels, lack_of_times(trace, "kernels") or NO_KERNELS),
        (not called, NO_LAUNCHES),
        (2 * graphed > kernels, GRAPHS),
        (2 * linked < kernels, NOT_LINKED),
    ):
        if holds:
            return reason
    return None


def _is_xla(trace: Trace) -> bool:
    return "xplane" in [origin.get("format") for origin in _origins(trace)]


def _origins(trace: Trace) -> list[Mapping[str, Any]]:
    return [trace.origin, *trace.origin.get("parts", ())]


def _launches(trace: Trace) -> NDArray[np.bool_]:
    """Return which calls launch one kernel each. A call that failed has no correlation id."""
    calls = trace["calls"]
    named = matching(calls["name"], f"{LAUNCH}|{_OTHER_LAUNCH}")
    found: NDArray[np.bool_] = named & calls["correlation"].is_not_null().to_numpy()
    return found


def _launches_without_kernel(attribution: Attribution, launches: NDArray[np.bool_]) -> Ints:
    """Return the rows of the calls whose kernels are not in the trace although they ran in its time."""
    trace, calls = attribution.trace, attribution.trace["calls"]
    executed = _executed(attribution)
    rows = np.flatnonzero(launches & ~executed)
    if not len(rows):
        return rows
    about = ("process", "thread", "start", "end", "correlation")
    table = calls[rows].select(*about).with_columns(pl.Series("row", rows))
    # the launch inside a runtime call has the same id; some runtimes also launch, in a wait, what the queue
    # waits for
    ids = pl.concat(trace[name].select("process", "correlation") for name in ("kernels", "syncs"))
    table = table.join(ids, on=["process", "correlation"], how="anti", nulls_equal=True)
    table = table.unique(["process", "correlation"], keep="last", maintain_order=True)
    rows = table["row"].to_numpy().astype(np.int64)
    taken = [capture.rows for capture in _captures(trace, executed)]
    if taken:
        rows = rows[~np.isin(rows, np.concatenate(taken))]
    rows = _outermost(calls, rows, np.flatnonzero(launches & executed))
    return _before_end(trace, rows, launches, executed)


def captured(profile: Answers) -> int:
    """Return how many launches, copies and sets went into CUDA graphs during capture, and did not run."""
    attribution = profile.attribution
    if not len(attribution.trace["calls"]):
        return 0
    return sum(
        len(capture.rows) for capture in captures(attribution.trace, _executed(attribution)).others
    )


def _executed(attribution: Attribution) -> NDArray[np.bool_]:
    """Return for each call whether it executed anything."""
    executed = np.zeros(len(attribution.trace["calls"]), bool)
    for launched in (attribution.kernels, attribution.memops):
        executed[launched.call[launched.call >= 0]] = True
        executed[launched.replay[launched.replay >= 0]] = True
    return executed


def _captures(trace: Trace, executed: NDArray[np.bool_]) -> list[Any]:
    found = captures(trace, executed)
    return [*found.named.values(), *found.others]


def _outermost(calls: pl.DataFrame, rows: Ints, executed: Ints) -> Ints:
    """Return the launches of ``rows`` that are not inside another launch and contain no launch that
    executed."""
    kept = np.ones(len(rows), bool)
    every = np.concatenate([rows, executed])
    process, thread, start, end = (
        calls[name].gather(every).fill_null(NONE).cast(pl.Int64).to_numpy()
        for name in ("process", "thread", "start", "end")
    )
    order = np.lexsort((-end, start, thread, process))
    same = (process[order[1:]] == process[order[:-1]]) & (thread[order[1:]] == thread[order[:-1]])
    inside = np.zeros(len(every), bool)
    nested = same & (end[order[1:]] <= end[order[:-1]]) & (start[order[1:]] < end[order[:-1]])
    inside[order[1:][nested]] = True
    holds = np.zeros(len(every), bool)
    holds[order[:-1][nested & (order[1:] >= len(rows))]] = True
    kept = ~inside[: len(rows)] & ~holds[: len(rows)]
    return rows[kept]


def _before_end(
    trace: Trace, rows: Ints, launches: NDArray[np.bool_], executed: NDArray[np.bool_]
) -> Ints:
    """Return the launches of ``rows`` except those at the end of a process, or of one of its windows, whose
    kernels may have ended after the recording: a few launches, after all that executed, with no later call
    that waited for the device."""
    calls = trace["calls"]
    process, start = calls["process"].fill_null(NONE).to_numpy(), calls["start"].to_numpy()
    waits = matching(calls["name"], _WAITS)
    kept = np.ones(len(rows), bool)
    for number in np.unique(process[rows]).tolist():
        mine, here = process == number, np.flatnonzero(process[rows] == number)
        windows = trace["windows"].filter(pl.col("process").fill_null(NONE) == number)
        low, high = merge(*(windows[name].to_numpy() for name in ("start", "end")))
        if len(low):
            kept[here] = start[rows[here]] < at(
                high, np.searchsorted(low, start[rows[here]], "right") - 1, 0
            )
        edges = (
            [*low[1:].tolist(), np.iinfo(np.int64).max] if len(low) else [np.iinfo(np.int64).max]
        )
        since = np.iinfo(np.int64).min
        for until in edges:
            inside = mine & (start >= since) & (start < until)
            some = here[(start[rows[here]] >= since) & (start[rows[here]] < until)]
            since = until
            last, waited = start[inside & launches & executed], start[inside & waits]
            after = some[start[rows[some]] > last.max()] if len(last) else some[:0]
            few = len(after) <= max(1, _AT_END * int((inside & launches).sum()))
            if len(after) and few:
                kept[after] &= bool(len(waited) and waited.max() > start[rows[after]].min())
    return rows[kept]


def _steps(attribution: Attribution, process: int) -> pl.DataFrame:
    """Return start, end (ns) and number of the steps of a process that have ended, by start."""
    ranges, meaning = attribution.trace["ranges"], attribution.meaning
    ended = ~pl.col("attrs").str.contains(UNCLOSED_MARK, literal=True).fill_null(False)
    of = pl.col("process").fill_null(NONE) == process
    steps = ranges.with_row_index("_row").filter((pl.col("category") == "step") & ended & of)
    numbers = [meaning.readings[code].step for code in meaning.reading[steps["_row"].to_numpy()]]
    inferred = (pl.col("domain").cast(pl.String) == "inferred").alias("inferred")
    number = pl.Series("step", numbers, dtype=pl.Int64)
    frame = steps.select("start", "end", inferred, number)
    return frame.unique(maintain_order=True).sort("start")


def _place_in(steps: pl.DataFrame) -> Callable[[Ints], Ints]:
    """Return a function that gives the place in ``steps`` (``_steps``) of times; NONE outside."""
    low, high = steps["start"].to_numpy(), steps["end"].to_numpy()

    def place(times: Ints) -> Ints:
        number = np.searchsorted(low, times, side="right") - 1
        return np.where(times < at(high, number, 0), number, NONE).astype(np.int64)

    return place


def _numbered(attribution: Attribution, process: int) -> tuple[int, Callable[[Ints], Ints]]:
    steps = _steps(attribution, process)
    return len(steps), _place_in(steps)


@dataclass(frozen=True, slots=True)
class _Work:
    """The kernels (those without a record by their launches) and ops of each step of a process; ``differ``:
    the share of kernels whose op differs from that of the same kernel in the next step; ``missing``: the
    share of ops that a step lacks and other steps have at the same place. None if unknown."""

    kernels: Ints
    ops: Ints
    inferred: bool
    differ: float | None
    missing: float | None


def _work_of_steps(
    attribution: Attribution, process: int, launches: NDArray[np.bool_], lost: Ints
) -> _Work | None:
    trace, links = attribution.trace, attribution.kernels
    steps = _steps(attribution, process)
    if len(steps) < 3:
        return None
    low, high = steps["start"].to_numpy(), steps["end"].to_numpy()

    place_of = _place_in(steps)

    def per_step(times: Ints) -> Ints:
        place = place_of(times)
        found: Ints = np.bincount(place[place >= 0], minlength=len(low)).astype(np.int64)
        return found

    calls, ranges = trace["calls"], trace["ranges"]
    mine = (trace["kernels"]["process"].fill_null(NONE) == process).to_numpy()
    called, begun = (table["start"].to_numpy() for table in (calls, ranges))
    by_call, by_op = mine & (links.call >= 0), mine & (links.call < 0) & (links.op >= 0)
    kernels = per_step(called[links.call[by_call]]) + per_step(begun[links.op[by_op]])
    of_lost = calls["process"].fill_null(NONE).gather(lost).to_numpy() == process
    kernels = kernels + per_step(called[lost[of_lost]])
    ops = attribution.is_op & (ranges["process"].fill_null(NONE) == process).to_numpy()
    differ = _differing(attribution, np.flatnonzero(by_call), low, high)
    missing = None
    if differ is not None and differ >= _DIFFER:
        of = launches & (calls["process"].fill_null(NONE) == process).to_numpy()
        launch, op = (
            (table["thread"].fill_null(NONE).to_numpy()[rows], place_of(start[rows]), start[rows])
            for table, start, rows in ((calls, called, of), (ranges, begun, ops))
        )
        name = op_names(attribution, np.flatnonzero(ops))
        missing = share_missing(ops_among_launches(launch, op, name, _by_chance(attribution)))
    return _Work(kernels, per_step(begun[ops]), bool(steps["inferred"].any()), differ, missing)


def _by_chance(attribution: Attribution) -> Ints:
    """Return the names (``op_names``) of ops some of which do not count as ops, because rounding left them no
    duration."""
    ranges = attribution.trace["ranges"]
    return np.unique(
        op_names(attribution, np.flatnonzero((ranges["end"] == ranges["start"]).to_numpy()))
    )


def _differing(attribution: Attribution, rows: Ints, low: Ints, high: Ints) -> float | None:
    """Return the share of the kernels ``rows`` of steps (from ``low`` to ``high``) whose op has another name
    than the op of the same kernel in the next step; None if no two steps run the same kernels."""
    trace, links = attribution.trace, attribution.kernels
    called = trace["calls"]["start"].to_numpy()[links.call[rows]]
    place = np.searchsorted(low, called, side="right") - 1
    order = np.lexsort((called, place))
    order = order[(place[order] >= 0) & (called[order] < at(high, place[order], 0))]
    rows, place = rows[order], place[order]
    kernel = trace["kernels"]["name"].gather(rows).to_physical().to_numpy()
    op = op_names(attribution, links.op[rows].astype(np.int64))
    edges = np.searchsorted(place, np.arange(len(low) + 1))
    same = apart = 0
    for step in range(len(low) - 1):
        one, other = (slice(edges[n], edges[n + 1]) for n in (step, step + 1))
        if len(op[one]) != len(op[other]):
            continue
        alike = kernel[one] == kernel[other]
        if alike.any() and alike.mean() >= _FEWER:
            apart += int((op[one] != op[other])[alike].sum())
            same += int(alike.sum())
    return apart / same if same >= _COMPARED else None


def _lost_kernels(work: _Work) -> int:
    """Return how many kernels are missing, in addition to those that launches show, from steps that have as
    many ops as other steps."""
    missing, steps = _fewer(work.kernels, work.ops)
    return 0 if work.inferred and missing <= _AT_EDGE * steps else missing


def _lost_ops(work: _Work | None, ops: int) -> int | None:
    """Return how many ops are missing in addition to ``ops``: ops that some steps lack although these
    launched as many kernels as other steps, and ops that every step may lack. None if no two steps run the
    same kernels.

    Let p be the share of all ops that is missing. A kernel has the same innermost op in two steps if both
    records of the op exist, with probability (1 - p)^2; or if both are missing, p^2, and the op around it is
    again the same. Together this is (1 - p) / (1 + p). So if a share d of kernels have ops that differ, p = d
    / (2 - d).
    """
    if work is None or work.inferred or not work.kernels.any():
        return None
    fewer = _fewer(work.ops, work.kernels)[0]
    if work.differ is None:
        return fewer or None
    if work.differ < _DIFFER:
        return fewer
    share = work.missing if work.missing is not None else work.differ / (2 - work.differ)
    return max(fewer, round(ops * share / (1 - share)))


def _fewer(counts: Ints, beside: Ints) -> tuple[int, int]:
    """Of the steps with the usual number in ``beside``: return by how much ``counts`` fall below their usual
    number, and in how many steps. Both are 0 if fewer than half of these steps have the same number."""
    if counts.min() >= _FEWER * np.median(counts):
        return 0, 0
    alike = np.abs(beside - np.median(beside)) <= _ALIKE * np.median(beside)
    usual = float(np.median(counts[alike])) if alike.sum() >= 3 else 0.0
    agree = np.abs(counts[alike] - usual) <= _ALIKE * usual
    if not usual or 2 * int(agree.sum()) <= int(alike.sum()):
        return 0, 0
    short = alike & (counts < _FEWER * usual)
    return round(float((usual - counts[short]).sum())), int(short.sum())


def _missing_steps(attribution: Attribution, process: int) -> int:
    """Return how many numbers are missing between those of steps whose time is missing, too, or is part of
    the previous step."""
    trace = attribution.trace
    if len(trace["windows"]) or SELECTED in trace.origin:
        return 0
    steps = _steps(attribution, process).drop_nulls("step")
    if len(steps) < 3:
        return 0
    number, low, high = (steps[name].to_numpy() for name in ("step", "start", "end"))
    gap, missing = low[1:] - high[:-1], np.diff(number) - 1
    length = float(np.median(high - low))
    # if only the mark of a step is missing, the previous step contains its work
    held = (np.abs((high - low)[:-1] / max(length, 1) - missing - 1) < 0.5) & (gap < length / 2)
    return int(missing[(missing > 0) & (held | (gap >= 0.5 * length * missing))].sum())


def idle_unknown(profile: Answers) -> str | None:
    """Why it is unknown when a device was idle: lost kernels may have run then. None if it is known, for
    example if less than 1 % of the kernels of each process are lost.
    """
    cut = [text for text in losses(profile) if CUT_OFF in text]
    if cut:
        return _not_known(cut[0])
    # finding lost kernels links the launches, which makes the first of these notes
    said_of_times = profile.trace["notes"]["what"].cast(pl.String)
    if said_of_times.str.contains(LATE_SAID, literal=True).any():
        return _not_known(LATE.partition(", so")[0])
    why = lack_of_times(profile.trace, "kernels", "memops")
    if why is not None:
        return _not_known(why)
    said = _drop(profile.trace).filter(pl.col("what").cast(pl.String).str.contains(_AMID))
    if len(said):
        number = int(said["how_many"].sum())
        what = units.text(said["what"][0]) if len(said) == 1 else "records were dropped"
        return _not_known(f"{what} ({units.count(number)})")
    lost = profile.ask("lost_kernels")
    quiet = _quiet(lost)
    if quiet is not None:
        return _not_known(quiet)
    if not lost.filter(pl.col("lost_share") >= LEAST).is_empty():
        return _not_known(in_words(lost) or "")
    for process, kernels in _left_out(lost).select("process", "kernels").iter_rows():
        missing, _ = numbers_of(profile.trace, NONE if process is None else process)
        if (missing or 0) >= LEAST * (kernels + (missing or 0)):
            return _not_known(_left_out(lost)["reason"][0])
    return None


def totals_only(trace: Trace) -> bool:
    """Return whether a reader of totals laid the work end to end, as its note says."""
    return any(origin.get("times") for origin in _origins(trace))


def _left_out(lost: pl.DataFrame) -> pl.DataFrame:
    return lost.filter(pl.col("reason").str.starts_with(LEFT_OUT).fill_null(False))


def _reasons(lost: pl.DataFrame, part: str) -> list[str]:
    return [text for text in lost["reason"].drop_nulls() if part in text]


def ops_unknown(profile: Answers) -> str | None:
    """Why it is not known what ran outside any op: ops are missing. None if less than 1 % of them are."""
    said = profile.trace["notes"]["what"].cast(pl.String)
    if said.str.starts_with(ONLY_RANGES).any():
        return ONLY_RANGES
    lost = profile.ask("lost_kernels")
    unsure = _reasons(lost, TOO_FEW)
    if unsure:
        return unsure[0]
    missing = int(lost["lost_ops"].sum() or 0)
    if not missing or missing < LEAST * (missing + int(profile.attribution.is_op.sum())):
        return None
    return _ops_missing(lost)


def launches_unknown(profile: Answers) -> str | None:
    """Why it is unknown what a device waited for: launches are missing. None if less than 1 % of them are."""
    lost = profile.ask("lost_kernels")
    if lost.filter(pl.col("lost_launches") >= LEAST * pl.col("kernels")).is_empty():
        return None
    return f"{_missing('lost_launches', lost)}, so what the device waited for is not known"


def _ops_missing(lost: pl.DataFrame) -> str:
    number = int(lost["lost_ops"].sum() or 0)
    verb = "is" if number == 1 else "are"
    return f"about {units.counted(number, 'op', 'ops')} {verb} missing in the file"


def _between(number: int, error: int) -> str:
    """Return the 95 % bounds of an estimate with this standard error, as text; empty if they are close."""
    if 2 * error <= max(_AT_EDGE, _NEAR * number):
        return ""
    return f"{units.count(max(number - 2 * error, 0))} to {units.count(number + 2 * error)}"


def not_comparable(profile: Answers) -> str | None:
    """The missing kernels and launches that make a profile incomparable; None if less than 1 % are
    missing."""
    lost = profile.ask("lost_kernels")
    few = pl.max_horizontal(
        pl.col("lost_kernels").fill_null(0), pl.col("lost_launches").fill_null(0)
    )
    amid = lost.filter(
        few >= LEAST * (pl.col("kernels") + pl.col("lost_kernels").fill_null(0)).clip(1)
    )
    if amid.is_empty() and profile.of(idle_unknown) is None:
        return None
    return "; ".join(profile.of(losses)) or None


def _not_known(what: str) -> str:
    return f"{what}: idle time, and what rests on it, is not known"


def _drop(trace: Trace) -> pl.DataFrame:
    """Return the notes in which the recorder says that it dropped records."""
    notes = trace["notes"]
    # an error note names a file that was left out
    serious = notes["severity"].cast(pl.String) == "warning"
    what = notes["what"].cast(pl.String)
    dropped = what.str.contains(_DROPPED) | what.str.contains(CUT_OFF, literal=True)
    return notes.filter(serious & dropped)


def _quiet(lost: pl.DataFrame) -> str | None:
    """Return in words how long nothing was recorded while calls were made; None if that never happened."""
    calls, time = (int(lost[name].sum() or 0) for name in ("lost_calls", "lost_time"))
    if not calls:
        return None
    return (
        f"nothing was recorded for {units.time(time)}, in which about {units.count(calls)} calls were made,"
        " by the numbers of the calls before and after"
    )


def in_words(lost: pl.DataFrame) -> str | None:
    """Return the estimate in words: ``about 30 of 32 kernels (93.8 %) are missing``; None if none are."""
    known = lost.filter(pl.col("lost_kernels").is_not_null())
    missing, kernels = int(known["lost_kernels"].sum()), int(known["kernels"].sum())
    if not missing:
        return None
    whole = missing + kernels
    verb = "is" if missing == 1 else "are"
    between = _between(missing, int(known.filter(pl.col("lost_kernels") > 0)["lost_error"].sum()))
    return (
        f"about {units.count(missing)} of {units.count(whole)} kernels ({units.share(missing / whole)})"
        f"{between and f' ({between})'}"
        f" {verb} missing in the file"
    )


def _missing(name: str, lost: pl.DataFrame) -> str | None:
    number = int(lost[name].sum() or 0)
    verb = "is" if number == 1 else "are"
    return f"{units.counted(number, *_NOUNS[name])} {verb} missing in the file" if number else None


def losses(profile: Answers) -> list[str]:
    """What the data lacks, a sentence each: kernels, launches, steps, and what the recorder dropped."""
    lost = profile.ask("lost_kernels")
    found = [in_words(lost)]
    found.append(_ops_missing(lost) if lost["lost_ops"].sum() else None)
    found += [_missing(name, lost) for name in _NOUNS]
    found.append(_quiet(lost))
    found += [*_reasons(lost, LEFT_OUT), *_reasons(lost, TOO_FEW)]
    for what, number in _drop(profile.trace).select("what", "how_many").rows():
        found.append(units.text(what) + (f" ({units.count(number)})" if (number or 0) > 1 else ""))
    return [text for text in found if text]


def answer(profile: Answers) -> pl.DataFrame:
    """How many kernels the recording lost, by process: an estimate from launches and repeated steps.

    Null, with the reason, where the trace does not tell. Of a selection: of all that was recorded.
    """
    # in a selection, calls stay even if their kernels are not selected
    of = profile if profile._part_of is None else profile._part_of[0]
    return lost_kernels(of.attribution)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "lost_kernels()",
            "one row per process that launched or ran kernels",
            columns(
                "process kernels kernel_launches lost_kernels lost_share lost_launches lost_ops "
                "lost_steps lost_error lost_calls lost_time reason",
                """
                kernels: count: kernels in the file
                kernel_launches: count: calls that launch a kernel each, CUDA graphs left out
                lost_kernels: count: kernels that ran and are not in the file, estimated; null if the
                    trace does not tell
                lost_share: fraction: lost_kernels / (kernels + lost_kernels)
                lost_launches: count: kernels whose launch is not in the file although it was made while
                    launches were recorded
                lost_ops: count: ops that are not in the file, estimated from steps that run the same kernels
                    under other ops or under fewer; null where no steps do
                lost_steps: count: steps whose numbers are missing between others, and whose times are or are
                    in the step before
                lost_error: count: standard error of lost_kernels, or of lost_ops, where steps tell it that
                    lack some each
                lost_calls: count: calls that were numbered while nothing was recorded, as where a ring
                    wrapped
                lost_time: ns: how long that was
                reason: text: why the number of lost kernels is not known, or what it leaves out
                """,
            ),
        ),
    ),
    merged=(Rows(),),
    reports=(
        Report(
            name="lost_kernels",
            title="Lost kernels",
            empty="no kernels and no launches in this profile",
            gpu_only=True,
        ),
    ),
)
