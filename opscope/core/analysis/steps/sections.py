"""Cut the run of each process into sections: before, building, step, evaluation, checkpoint, between, after.

Use ``profile.of(run_sections)``: it has one row per section (``SECTIONS``; ns), by process and time. The rows
of a process do not overlap and leave no gap between its first and its last event. A process without steps has
one row with a null ``section``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.ops.windows import bounds
from opscope.core.analysis.steps.step_times import made_up, processes_of, step_bounds
from opscope.core.attribution.inferred_steps import trains
from opscope.core.attribution.loop_steps import EVALUATIONS
from opscope.core.schema import CHECKPOINT
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import Ints, merge, nest

#: The sections. ``before``: until the first op, layer or phase. ``building``: from then to the first step.
#: ``evaluation``: forward passes outside steps. ``checkpoint``: saving the program's state, outside steps.
#: ``between``: other time between these sections. ``after``: the time after the last of these sections.
BEFORE, BUILDING, STEP, EVALUATION, CHECKPOINTING, BETWEEN, AFTER = (
    "before",
    "building",
    "step",
    "evaluation",
    CHECKPOINT,
    "between",
    "after",
)
SECTIONS: Final = {
    "process": pl.Int32,
    "start": pl.Int64,
    "end": pl.Int64,
    "section": pl.String,
    "step": pl.Int64,
}
_Row = tuple[int, int, str | None, int | None]


def sections(ops: Ops, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the sections (``SECTIONS``) of each process; ``steps`` is ``step_times.steps_of(ops)``."""
    trace = ops.attribution.trace
    runs = bounds(trace).filter(~made_up(trace) & (pl.col("end") > pl.col("start")))
    passes, saves, work = _marked(ops)
    functions = _runs(ops)
    rows: list[tuple[int, int, int, str | None, int | None]] = []
    for process, begin, end in runs.select("process", "start", "end").drop_nulls().rows():
        mine = steps.filter((pl.col("process") == process) & pl.col("step").is_not_null())
        mine = mine.sort("start")
        evaluating = _of(passes, process)
        if process in functions and len(mine):
            looped = _loops(
                functions[process], *(mine[name].to_numpy() for name in ("start", "end"))
            )
            evaluating = merge(
                *(np.concatenate(both) for both in zip(evaluating, looped, strict=True))
            )
        cut = _cut(
            (begin, end),
            mine.select("start", "end", "step").rows(),
            work.get(process),
            evaluating,
            _of(saves, process),
        )
        rows.extend((process, *row) for row in cut)
    return pl.DataFrame(rows, schema=SECTIONS, orient="row")


def _cut(
    run: tuple[int, int],
    steps: list[tuple[int, int, int]],
    work: int | None,
    passes: tuple[Ints, Ints],
    saves: tuple[Ints, Ints],
) -> Iterator[_Row]:
    """Yield the sections of one process, in order."""
    begin, end = run
    if not steps:
        yield begin, end, None, None
        return
    time, first = begin, True
    for start, stop, number in steps:
        start, stop = max(start, time), min(stop, end)
        if stop <= start:  # steps of other threads that overlap the one before
            continue
        if start > time:
            where = BUILDING if first else BETWEEN
            yield from _gap(time, start, where, work if first else None, passes, saves)
        yield start, stop, STEP, number
        time, first = stop, False
    if end > time:
        yield from _gap(time, end, AFTER, None, passes, saves)


def _gap(
    begin: int,
    end: int,
    section: str,
    work: int | None,
    passes: tuple[Ints, Ints],
    saves: tuple[Ints, Ints],
) -> Iterator[_Row]:
    """Yield the sections of a stretch without steps: time that is neither evaluation nor checkpoint is
    ``section``, but ``BETWEEN`` if it lies between two of these after the last step."""
    if work is not None and begin < min(work, end):
        yield begin, min(work, end), BEFORE, None
        begin = min(work, end)
    parts = [
        *((*span, EVALUATION) for span in _whole_passes(passes, saves, begin, end)),
        *((*span, CHECKPOINTING) for span in _within(saves, begin, end)),
    ]
    time = begin
    for low, high, name in sorted(parts):
        if low > time:
            yield time, low, BETWEEN if section == AFTER else section, None
        if high > max(low, time):
            yield max(low, time), high, name, None
        time = max(time, high)
    if end > time:
        yield time, end, section, None


def _whole_passes(
    passes: tuple[Ints, Ints], saves: tuple[Ints, Ints], begin: int, end: int
) -> Iterator[tuple[int, int]]:
    """Yield the evaluations of a stretch: its forward passes with the time between them.

    Two passes belong to one evaluation unless a checkpoint is between them, or a pause that is long compared
    with the stretch's longest pass and its usual pause.
    """
    spans = list(_within(passes, begin, end))
    if not spans:
        return
    start, stop = np.array(spans, np.int64).T
    apart = start[1:] - stop[:-1]
    usual = float(np.median(apart)) if len(apart) else 0.0
    most = APART * max(usual, float((stop - start).max()))
    low, high = spans[0]
    for after, until in spans[1:]:
        saved = any(low < save < after for save, _ in _within(saves, high, after))
        if saved or after - high > most:
            yield low, high
            low = after
        high = max(high, until)
    yield low, high


#: Least number of runs of a function between two steps that make a loop.
LOOP: Final = 3
#: Longest pause within an evaluation, as a multiple of a pass or of the usual pause.
APART: Final = 10


def _within(spans: tuple[Ints, Ints], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of the spans that are in a stretch."""
    start, stop = spans
    for row in range(
        int(np.searchsorted(stop, begin, "right")), int(np.searchsorted(start, end, "left"))
    ):
        yield max(int(start[row]), begin), min(int(stop[row]), end)


_Spans = dict[int, tuple[Ints, Ints]]
_NO_SPANS: Final = (np.empty(0, np.int64), np.empty(0, np.int64))


def _of(spans: _Spans, process: int) -> tuple[Ints, Ints]:
    return spans.get(process, _NO_SPANS)


def _runs(ops: Ops) -> dict[int, tuple[Ints, Ints, Ints]]:
    """Return the runs of compiled functions in each process that trains: start, end (ns), function."""
    ranges, meaning = ops.attribution.trace["ranges"], ops.attribution.meaning
    rows = np.flatnonzero(meaning.role == ROLE["graph"])
    if not len(rows):
        return {}
    names = {text: number for number, text in enumerate(dict.fromkeys(meaning.texts))}
    code = np.array([names[text] for text in meaning.texts], np.int64)
    process = processes_of(ranges["process"])
    trained = np.unique(process[trains(meaning)[meaning.reading]])
    runs = {}
    for number in np.intersect1d(trained, process[rows]).tolist():
        mine = rows[process[rows] == number]
        start, end = (
            ranges[name].gather(mine).fill_null(0).to_numpy() for name in ("start", "end")
        )
        runs[int(number)] = (start, end, code[meaning.reading[mine]])
    return runs


def _loops(runs: tuple[Ints, Ints, Ints], begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return runs after the first step, outside steps, of functions that no step runs and that run at
    least ``LOOP`` times in a row: such a loop evaluates."""
    start, end, code = runs
    index = np.searchsorted(begins, start, "right") - 1
    inside = (index >= 0) & (start < np.append(ends, 0)[index])
    outside = (index >= 0) & ~inside & ~np.isin(code, code[inside])
    rows = np.flatnonzero(outside)
    _, group, often = np.unique(
        np.stack((index[rows], code[rows])), axis=1, return_inverse=True, return_counts=True
    )
    rows = rows[often[group.reshape(-1)] >= LOOP]
    return start[rows], end[rows]


def _marked(ops: Ops) -> tuple[_Spans, _Spans, dict[int, int]]:
    """Return per process the forward passes and the checkpoints (each a union), and when its first op, layer
    or phase began."""
    ranges, meaning = ops.attribution.trace["ranges"], ops.attribution.meaning
    on_host = ranges["thread"].is_not_null().to_numpy()
    process = processes_of(ranges["process"])
    start, end = (ranges[name].fill_null(0).to_numpy() for name in ("start", "end"))
    evaluating, passing = (
        meaning.phases(*names)[meaning.reading] & on_host for names in (EVALUATIONS, ("forward",))
    )
    # if nothing is trained, a forward pass is not an evaluation; nor is one that builds the model
    passing &= np.isin(process, process[trains(meaning)[meaning.reading]])
    passing |= evaluating
    saving = meaning.phases(CHECKPOINT)[meaning.reading] & on_host
    working = (ops.attribution.is_op | np.isin(meaning.role, _WORK)) & on_host
    return (
        _by_process(process, start, end, passing),
        _by_process(process, start, end, saving),
        {
            int(number): int(start[(process == number) & working].min())
            for number in np.unique(process[working]).tolist()
        },
    )


_WORK: Final = [ROLE[name] for name in ("layer", "phase", "graph", "loader")]


def _by_process(process: Ints, start: Ints, end: Ints, chosen: NDArray[np.bool_]) -> _Spans:
    spans = {}
    for number in np.unique(process[chosen]).tolist():
        rows = np.flatnonzero(chosen & (process == number))
        tree = nest(start[rows], end[rows])
        top = rows[tree.order[tree.parent < 0]]
        spans[int(number)] = merge(start[top], end[top])
    return spans


def run_sections(profile: Answers) -> pl.DataFrame:
    """The sections of each process's run (``SECTIONS``; ns): before, building, step, evaluation, …"""
    return sections(profile.of(op_index), profile.of(step_bounds))
