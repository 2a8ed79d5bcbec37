"""The source lines of the host's time outside any op, from samples of the threads' Python stacks. || If
stacks were traced instead (``traced_frames``), the time between two changes of frames is a sample. A sample
represents the time outside any op until the thread's next sample; a sample inside an op represents the gaps
that follow, at the line that called the op. Time without a sample is ``not sampled``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.host import host_kinds
from opscope.core.analysis.host.host_kinds import COLLECTION, DEVICE, NOT_SAMPLED, PYTHON, WAITING
from opscope.core.analysis.host.traced_frames import DOMAIN as TRACED
from opscope.core.analysis.host.traced_frames import (
    frames_as_samples,
    is_of_library,
    threads_with_frames,
)
from opscope.core.analysis.ops.op_frame import op_rows
from opscope.core.analysis.ops.spans import selected_part
from opscope.core.analysis.ops.windows import captured_steps
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.code_files import StackFrame, is_ours, is_user_s, parse_stack
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.schema import READ_DOMAIN
from opscope.core.tables.columns import at, gather
from opscope.core.tables.intervals import NONE, Ints, intersect, merge, subtract
from opscope.core.tables.trace import Trace

#: The columns of ``outside_lines``.
LINES: Final = {
    "process": pl.Int32,
    "thread": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "line": pl.String,
    "function": pl.String,
    "kind": pl.String,
    "call": pl.String,
    "stack": pl.Categorical,
    "sample": pl.Int64,
    "samples": pl.Int64,
}
SCHEMA: Final = {
    "process": pl.Int32,
    "line": pl.String,
    "function": pl.String,
    "kind": pl.String,
    "call": pl.String,
    "samples": pl.Int64,
    "time": pl.Int64,
    "share": pl.Float64,
    "step_time": pl.Int64,
    "step_share": pl.Float64,
    "reason": pl.String,
}
NOT_ENOUGH: Final = "no sample fell into this time: samples are some ms apart, or had not begun"
#: The line of stacks without a frame of the user, in which opscope starts or ends the recording.
OURS: Final = "opscope itself"
#: Calls of a GPU's runtime in which the host waits for the device.
_SYNCHRONIZES: Final = r"(?i)synchronize"
_BY: Final = ("process", "line", "function", "kind")


def outside_lines(profile: Answers) -> pl.DataFrame:
    """Return what each sampled thread did outside any op, in order: process, thread, start, end (ns), line
    (``file:line``), function, kind (``host_kinds.KINDS``), call (what the line called, null if not known),
    stack (as in ``host_samples``), sample (a row number of that table), samples.

    Use it as ``profile.of(outside_lines)``. The intervals of a thread do not overlap; together they are its
    time outside any op from its first event or sample to its last. Rows of kind ``not sampled`` have no line.
    A trace without samples has no rows.
    """
    trace = profile.attribution.trace
    samples = trace["host_samples"].with_row_index("sample")
    sampled = {
        (int(process), int(thread)): part
        for (process, thread), part in samples.group_by("process", "thread", maintain_order=True)
        if process is not None and thread is not None and part["kind"].null_count()
    }
    if not sampled and TRACED not in profile.domains:
        return pl.DataFrame(schema=LINES)
    ops = profile.of(op_rows).filter(pl.col("parent_id").is_null())
    steps = captured_steps(trace, ended_steps(trace["ranges"]))
    traced = threads_with_frames(trace) if TRACED in profile.domains else {}
    at_work = set(pl.concat([table.select("process", "thread") for table in (ops, steps)]).rows())
    # a profiler traces all threads, including those that only watch
    traced = {key: part for key, part in traced.items() if key in at_work or not at_work}
    frames = [pl.DataFrame(schema=LINES)]
    stacks = known_stacks(samples)
    for (process, thread), part in (sampled | traced).items():
        spans, described = _thread_spans(trace, ops, steps, part, process, thread), stacks
        if spans is None:
            continue
        if (process, thread) in traced:
            part = frames_as_samples(part, (process, thread), spans[0])
            part = part.with_columns(pl.lit(None, pl.UInt32).alias("sample"))
            described = known_stacks(part, is_of_library)
        if len(part):
            frames.append(_of_thread(spans, part, described, _waits(trace, process, thread)))
    return pl.concat(frames).sort("process", "thread", "start")


def lines_of_steps(profile: Answers) -> pl.DataFrame:
    """Return ``outside_lines`` of the threads with steps, or, in a process without steps, of all threads:
    what other threads do beside the steps is not what the steps wait for."""
    lines = profile.of(outside_lines)
    ended = ended_steps(profile.attribution.trace["ranges"])
    steps = ended.select(
        "process", "thread"
    ).drop_nulls()  # steps that were inferred may have no thread
    mine = lines.join(steps, on=["process", "thread"], how="semi")
    return pl.concat([mine, lines.join(steps, on="process", how="anti")])


def busiest_line(
    within: tuple[Ints, Ints], lines: pl.DataFrame
) -> tuple[str | None, int, str | None]:
    """Return the source line with most of these disjoint intervals (``outside_lines``), its time (ns), and
    the kind of most of it (``host_kinds.KINDS``); None, 0 and None if no line is known."""
    if lines.is_empty() or not len(within[0]):
        return None, 0, None
    line, time = _longest(within, lines.drop_nulls("line"), "line")
    if line is None:
        return None, 0, None
    kind, _ = _longest(within, lines.filter(pl.col("line") == line), "kind")
    return line, time, kind


def _longest(within: tuple[Ints, Ints], lines: pl.DataFrame, column: str) -> tuple[str | None, int]:
    times = {}
    for (name,), part in lines.group_by(column, maintain_order=True):
        start, end = intersect(within, merge(part["start"].to_numpy(), part["end"].to_numpy()))
        times[str(name)] = int((end - start).sum())
    name, time = max(times.items(), key=lambda item: item[1], default=("", 0))
    return (name, time) if time else (None, 0)


def has_lines(profile: Answers) -> bool:
    """Whether time outside any op may have source lines: stacks were sampled, or frames traced."""
    return TRACED in profile.domains or len(profile.trace["host_samples"]) > 0


def known_stacks(
    samples: pl.DataFrame, is_library_s: Callable[[str], bool] = lambda file: False
) -> pl.DataFrame:
    """Return line, function and kind of each distinct stack and call of the samples; by names alone.

    The loop runs over distinct stacks. ``is_library_s``: tells whether a file is a library's, in addition to
    the known ones.
    """
    pairs = samples.select("stack", "call").unique(maintain_order=True)
    rows = []
    for stack, call in pairs.with_columns(pl.col("stack", "call").cast(pl.String)).rows():
        frames = parse_stack(stack or "")
        index = _place(frames, is_library_s)
        file, line, function = frames[index] if frames else (None, None, None)
        kind = host_kinds.kind_by_name(frames, call, index)
        shown = OURS if file and is_ours(file) else f"{file}:{line}" if frames else None
        rows.append((shown, function, *kind))
    schema = {
        "line": pl.String,
        "function": pl.String,
        "named": pl.String,
        "off": pl.Boolean,
    }
    return pl.concat([pairs, pl.DataFrame(rows, schema=schema, orient="row")], how="horizontal")


def _place(frames: list[StackFrame], is_library_s: Callable[[str], bool]) -> int:
    """Return the frame that a user looks for: the innermost of the user's own frames, else the innermost
    of all."""
    files = enumerate(frame[0] for frame in frames)
    return next((index for index, file in files if is_user_s(file) and not is_library_s(file)), 0)


def _thread_spans(
    trace: Trace,
    ops: pl.DataFrame,
    steps: pl.DataFrame,
    samples: pl.DataFrame,
    process: int,
    thread: int,
) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]] | None:
    """Return the thread's time outside any op, and its time in ops.

    The ops of threads without steps count for a thread with steps of their process, as everywhere.
    """
    stepping = steps.filter(pl.col("process") == process)["thread"].unique()
    own = ops.filter((pl.col("process") == process) & (pl.col("thread") == thread))
    counted = own
    if (stepping == thread).any():
        pool = ~pl.col("thread").is_in(stepping.implode())
        counted = ops.filter((pl.col("process") == process) & ((pl.col("thread") == thread) | pool))
    in_ops = merge(counted["start"].to_numpy(), counted["end"].to_numpy())
    times = pl.concat([samples.select("start", "end"), own.select("start", "end")])
    first, last = int(times["start"].to_numpy().min()), int(times["end"].to_numpy().max())
    if last <= first:
        return None
    extent = (np.array([first]), np.array([last]))
    outside = selected_part(trace, process, thread, subtract(extent, in_ops))
    return outside, in_ops


def _waits(trace: Trace, process: object, thread: object) -> tuple[Ints, Ints]:
    """Return when the thread waited for a device in a runtime call, or read an array's values."""
    reads = trace["ranges"].filter(
        (pl.col("domain").cast(pl.String) == READ_DOMAIN)
        & (pl.col("process") == process)
        & (pl.col("thread") == thread)
        & pl.col("end").is_not_null()
    )
    calls = trace["calls"].filter(
        (pl.col("process") == process)
        & (pl.col("thread") == thread)
        & pl.col("name").cast(pl.String).str.contains(_SYNCHRONIZES)
    )
    both = pl.concat([calls.select("start", "end"), reads.select("start", "end")])
    return merge(both["start"].to_numpy(), both["end"].to_numpy())


def _of_thread(
    spans: tuple[tuple[Ints, Ints], tuple[Ints, Ints]],
    rows: pl.DataFrame,
    known: pl.DataFrame,
    waits: tuple[Ints, Ints],
) -> pl.DataFrame:
    outside, in_ops = spans
    collected = rows.filter(pl.col("kind") == COLLECTION)
    collections = merge(collected["start"].to_numpy(), collected["end"].to_numpy())
    taken = rows.filter(pl.col("kind").is_null()).sort("start", maintain_order=True)
    start, end = taken["start"].to_numpy(), taken["end"].to_numpy()
    edges = [start, end, *collections, *waits]
    cut_start, cut_end = _cut(outside, edges)
    index = np.searchsorted(start, cut_start, side="right") - 1
    covered = (index >= 0) & (cut_start < at(end, index, 0))
    owner = np.where(covered, index, NONE)
    named = taken.join(known, on=["stack", "call"], how="left", nulls_equal=True)
    share = named["cpu"] / pl.Series(np.maximum(end - start, 1))
    between = pl.Series(~_inside(start, in_ops))
    kinds = named.select(
        pl.when(
            pl.col("named").is_not_null()
            & ~(pl.col("off") & (share > host_kinds.RAN).fill_null(False))
        )
        .then("named")
        .when((share < host_kinds.WAITED).fill_null(False) & between)
        .then(pl.lit(WAITING))
        .otherwise(pl.lit(PYTHON))
        .alias("kind")
    )["kind"]
    in_collection, in_wait = (_inside(cut_start, of) for of in (collections, waits))
    frame = pl.DataFrame(
        {
            "process": np.full(len(cut_start), rows["process"][0]),
            "thread": np.full(len(cut_start), rows["thread"][0]),
            "start": cut_start,
            "end": cut_end,
            **{name: gather(named[name], owner) for name in ("line", "function")},
            "kind": gather(kinds, owner),
            "call": gather(named["call"], np.where(in_collection, NONE, owner)),
            **{name: gather(named[name], owner) for name in ("stack", "sample", "samples")},
            "collected": in_collection,
            "waited": in_wait,
        }
    )
    return frame.select(
        pl.when("collected")
        .then(pl.lit(COLLECTION))
        .when("waited")
        .then(pl.lit(DEVICE))
        .otherwise(pl.col("kind").fill_null(NOT_SAMPLED))
        .alias("kind")
        if name == "kind"
        else pl.col(name).cast(dtype)
        for name, dtype in LINES.items()
    )


def _cut(spans: tuple[Ints, Ints], edges: list[Ints]) -> tuple[Ints, Ints]:
    """Return the intervals, cut at each of the ``edges`` (ns)."""
    first, last = spans
    cuts = np.unique(np.concatenate([first, last, *edges]).astype(np.int64))
    start, end = cuts[:-1], cuts[1:]
    of = np.searchsorted(first, start, side="right") - 1
    inside = (of >= 0) & (end <= at(last, of, 0))
    return start[inside], end[inside]


def _inside(time: Ints, spans: tuple[Ints, Ints]) -> NDArray[np.bool_]:
    """Return whether each time (ns) lies in one of the disjoint intervals."""
    index = np.searchsorted(spans[0], time, side="right") - 1
    inside: NDArray[np.bool_] = (index >= 0) & (time < at(spans[1], index, 0))
    return inside


def answer(profile: Answers) -> pl.DataFrame:
    """The host's time outside any op by source line and kind: running, sleeping, waiting for what."""
    lines = profile.of(outside_lines)
    if lines.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    trace = profile.attribution.trace
    steps = captured_steps(trace, ended_steps(trace["ranges"]))
    length = pl.col("end") - pl.col("start")
    in_steps, in_all = _time_in_steps(lines, steps)
    sums = (
        lines.with_columns(pl.Series("in_steps", in_steps), length.alias("time"))
        .group_by(*_BY, "call", maintain_order=True)
        .agg(
            pl.col("samples").filter(pl.col("sample").is_first_distinct()).sum(),
            pl.col("time", "in_steps").sum(),
        )
        .sort("time", descending=True, maintain_order=True)
        .group_by(_BY, maintain_order=True)
        .agg(
            pl.col("call").first(),
            pl.col("samples", "time").sum(),
            pl.col("in_steps").sum().alias("step_time"),
        )
    )
    missed = pl.col("kind") == NOT_SAMPLED
    total = int(sums["time"].sum()) or None
    return sums.sort("time", *_BY, descending=[True, *[False] * len(_BY)], nulls_last=True).select(
        {
            "share": pl.col("time") / total,
            "step_share": pl.col("step_time") / in_all,
            "reason": pl.when(missed).then(pl.lit(NOT_ENOUGH)),
        }.get(name, pl.col(name))
        .cast(dtype)
        .alias(name)
        for name, dtype in SCHEMA.items()
    )


def _time_in_steps(lines: pl.DataFrame, steps: pl.DataFrame) -> tuple[Ints, int | None]:
    """Return how long (ns) each row lies in its thread's steps, and the time of these steps; None without
    steps."""
    inside = np.zeros(len(lines), np.int64)
    total = 0
    rows = lines.with_row_index("row")
    for (process, thread), part in rows.group_by("process", "thread"):
        mine = steps.filter((pl.col("process") == process) & (pl.col("thread") == thread))
        spans = merge(mine["start"].to_numpy(), mine["end"].to_numpy())
        total += int((spans[1] - spans[0]).sum())
        row = part["row"].to_numpy()
        start, end = part["start"].to_numpy(), part["end"].to_numpy()
        inside[row] = _before(end, spans) - _before(start, spans)
    return inside, total or None


def _before(time: Ints, spans: tuple[Ints, Ints]) -> Ints:
    """Return how much (ns) of the disjoint intervals is before each time."""
    start, end = spans
    if not len(start):
        return np.zeros(len(time), np.int64)
    sums = np.concatenate(([0], np.cumsum(end - start)))
    index = np.searchsorted(start, time, side="right") - 1
    last = np.maximum(index, 0)
    part = np.clip(time - start[last], 0, end[last] - start[last])
    before: Ints = np.where(index >= 0, sums[last] + part, 0)
    return before


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "host_lines()",
            "one row per source line and kind of what the host did outside any op",
            columns(
                "process line function kind call samples time share step_time step_share reason",
                f"""
                line: text: file and line: the user's innermost, else a library's; null if not sampled
                function: text: the function that the line belongs to
                kind: text: {"; ".join(f"{kind}: {meaning}" for kind, meaning in host_kinds.KINDS.items())}
                call: text: what the innermost frame called for most of the time, as the program writes it;
                    null if nothing, or if it is not known
                samples: count: samples that fell here
                time: ns: time outside any op that the samples stand for
                share: fraction: time / all time outside any op of the sampled threads
                step_time: ns: part of time inside the thread's steps
                step_share: fraction: step_time / the time of these steps
                reason: text: why the line is not known
                """,
            ),
        ),
    ),
    merged=lacking.MOMENTS,
    reports=(
        Report(
            name="host_lines",
            title="Time outside any op, by source line",
            empty="not known: no Python stacks were recorded",
            sums="time step_time samples",
            shown="line function kind call samples time share step_share",
            written=False,
        ),
    ),
)
