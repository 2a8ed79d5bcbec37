"""Find the iterations of processes that mark none: by a key node, or by what repeats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.kernels import called
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.steps.engine_kinds import bursts, kinds_of_steps
from opscope.core.analysis.steps.key_ops import Key, on_gpus, stop_times
from opscope.core.analysis.steps.step_times import stepping
from opscope.core.attribution.inferred_steps import (
    HIGH,
    KEY_NODE,
    SCHEMA,
    Found,
    frame_of,
    in_words,
    trains,
)
from opscope.core.attribution.inferred_steps import SCHEMA as INFERRED
from opscope.core.attribution.numbered_ranges import NAMED, as_iterations, numbered_iterations
from opscope.core.attribution.op_periods import Period, period
from opscope.core.attribution.sequence_steps import NO_OPS, Symbols, sequence_steps
from opscope.core.dialects.serving import IDLE
from opscope.core.tables.columns import compact
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.pool import Pool

#: Doubt if something is trained: the repeating part may be a part of a step, because gradients may be
#: accumulated.
TRAINED: Final = 0.7
ACCUMULATED: Final = "nothing shows after how many of them the weights are updated"
FEW: Final = "too few to be sure that they repeat"
BY_KERNELS: Final = "no ops were recorded: only the order of kernels repeats"
NO_KERNELS: Final = "no ops and no kernels in this process"
SERVED: Final = (
    "steps of prefill and of decode are different work: their mean says nothing of either"
)
NUMBERED: Final = "ranges of one name, each with its number, may be iterations or parts of one"
#: ``by`` of iterations that are bursts of ops; their kind follows.
BURSTS_NAMED: Final = "bursts: "
BY_BURSTS: Final = (
    "nothing marks them: they are bursts of equally many ops, prefill and decode told by their {by}"
)
MADE_UP: Final = "the source has no times of events"
#: Notes on where steps come from.
BY_KEY: Final = "steps are the iterations that a key node ends: {name}"
UNSURE: Final = (
    "steps detected from {by} (confidence {confidence:.2f}): they are steps here because a "
    "range of them was selected, and nowhere else"
)
#: Threads that examine a process each: NumPy and Polars release the GIL.
_THREADS: Final = 2
#: Iterations: rows of ``inferred_steps``, and the doubt. A process without any has one row with the reason
#: and nulls.
DETECTED: Final = {**SCHEMA, "doubt": pl.String}
#: A process, its iterations as rows of ``inferred_steps`` (None: none), and the doubt, or why there are none.
_OfProcess = tuple[int, pl.DataFrame | None, str | None]


def detected(ops: Ops, processes: list[int]) -> pl.DataFrame:
    """Return the repetitions (``DETECTED``) found in each of the processes, which have no steps."""
    parts = [pl.DataFrame(schema=DETECTED)]
    for process, iterations_of_process, doubt in _detected(ops, processes):
        if iterations_of_process is None:
            rows = pl.DataFrame([{"process": process, "doubt": doubt}], schema=DETECTED)
        else:
            rows = iterations_of_process.with_columns(pl.lit(doubt, pl.String).alias("doubt"))
        parts.append(rows)
    return pl.concat(parts)


def fits(table: pl.DataFrame, processes: list[int]) -> bool:
    """Return whether a stored table (``DETECTED``) can belong to these processes."""
    steps = table.filter(pl.col("step").is_not_null())
    none = table.filter(pl.col("step").is_null())
    return (
        set(table["process"].unique()) == set(processes)
        and not any(steps.drop("doubt").null_count().row(0))
        and not none["process"].is_duplicated().any()
        and none["doubt"].is_not_null().all()
        and not set(none["process"]) & set(steps["process"])
        and bool((steps["start"] < steps["end"]).all())
        and bool(steps["confidence"].is_between(0, 1).all())
    )


def _detected(ops: Ops, processes: list[int]) -> Iterator[_OfProcess]:
    attribution = ops.attribution
    trace, meaning = attribution.trace, attribution.meaning
    if not processes:
        return
    symbols = Symbols.of(meaning)
    trained = trains(meaning)
    of = trace["ranges"]["process"].fill_null(NONE).to_numpy()
    if any(part.get("times") for part in trace.origin.get("parts") or [trace.origin]):
        yield from ((number, None, MADE_UP) for number in processes)
        return

    served = ops.served_steps.filter((pl.col("engine") == 0) & (pl.col("kind") != IDLE))

    def found_in(number: int) -> _OfProcess:
        mine = of == number
        steps = served.filter(pl.col("process") == number)
        if len(steps):
            return number, as_iterations(steps, pl.format("{}{}", pl.lit(NAMED), "kind")), SERVED
        named = numbered_iterations(trace["ranges"], meaning, mine)
        steps_of_ops = sequence_steps(trace["ranges"], meaning, attribution.is_op, symbols, mine)
        by = "sequence"
        if steps_of_ops == NO_OPS:
            steps_of_ops, by = _by_kernels(ops, number), "kernels"
        if isinstance(steps_of_ops, str):
            if named is not None:
                return number, named, NUMBERED
            in_bursts = None if trained[meaning.reading[mine]].any() else _bursts(ops, number)
            return (number, None, steps_of_ops) if in_bursts is None else (number, *in_bursts)
        sequence, thread = steps_of_ops
        confidence, doubts = sequence.confidence, [sequence.doubt]
        if by == "kernels":
            doubts = [BY_KERNELS]
        elif trained[meaning.reading[mine]].any():
            confidence *= TRAINED
            doubts.append(ACCUMULATED)
        if confidence < HIGH and not any(doubts):
            doubts.append(FEW)
        why = "; ".join(doubt for doubt in doubts if doubt) or None
        return number, frame_of(Found(sequence.bounds, confidence, by), number, thread), why

    with Pool(min(_THREADS, len(processes))) as pool:
        yield from pool.map(found_in, processes)


def _bursts(ops: Ops, process: int) -> tuple[pl.DataFrame, str] | None:
    """If the kinds of a process's bursts of ops show steps of a language model, return the bursts as rows of
    ``inferred_steps``, and the doubt; else None."""
    steps = bursts(ops, process)
    kinds = None if steps is None else kinds_of_steps(ops, process, steps)
    if kinds is None:
        return None
    by = pl.concat_str(pl.lit(BURSTS_NAMED), pl.col("kind").fill_null("of no known kind"))
    rows = kinds.select(
        pl.lit(process).alias("process"), "thread", "start", "end",
        pl.int_range(pl.len(), dtype=pl.Int64).alias("step"), pl.col("sure").alias("confidence"),
        by.alias("by"),
    )  # fmt: skip
    ways = kinds["by"].drop_nulls().unique().sort().to_list()
    return rows.cast(dict(SCHEMA.items())), BY_BURSTS.format(by=", ".join(ways))


def _by_kernels(ops: Ops, process: int) -> tuple[Period, int] | str:
    """Return the repetitions in the kernels of a process, in the order of their launches."""
    trace = ops.attribution.trace
    kernels = trace["kernels"]
    rows = np.flatnonzero((kernels["process"] == process).fill_null(False).to_numpy())
    if not len(rows):
        return NO_KERNELS
    call = ops.attribution.kernels.call[rows]
    thread = NONE
    if (call >= 0).all():
        _, threads, start = called(trace["calls"], call)
        end = trace["calls"]["end"].gather(call.astype(np.uint32)).fill_null(0).to_numpy()
        thread = int(pl.Series(threads).mode().min())  # type: ignore[arg-type]
    else:
        start, end = (kernels[name].gather(rows).to_numpy() for name in ("start", "end"))
    order = np.argsort(start, kind="stable")
    codes, names = compact(kernels["name"].gather(rows))
    period_of_kernels = period(codes[order], start[order], end[order], np.zeros(len(names), bool))
    return period_of_kernels if isinstance(period_of_kernels, str) else (period_of_kernels, thread)


def by_key(ops: Ops, key: Key) -> pl.DataFrame:
    """Return the iterations that a key node ends, per process, as rows of ``inferred_steps``.

    The first begins with the process's first op, each other one where the one before ended. The time after
    the last end is not an iteration.
    """
    ranges = ops.attribution.trace["ranges"]
    process = ranges["process"].gather(key.rows).fill_null(NONE).to_numpy()
    ends = ranges["end"].gather(key.rows).to_numpy()
    places, gpu = on_gpus(ops, key.rows)
    parts = []
    for number in np.unique(process).tolist():
        here = process == number
        ours = here[places]
        stops = stop_times(gpu[ours], ends[places[ours]])
        bounds = np.append(min(_begin(ops, number), int(stops[0]) - 1), stops)
        thread = ranges["thread"].gather(key.rows[here]).drop_nulls()
        most = int(thread.mode().min()) if len(thread) else NONE  # type: ignore[arg-type]
        parts.append(frame_of(Found(bounds, 1.0, f"{KEY_NODE}{key.name}"), number, most))
    return pl.concat(parts)


def _begin(ops: Ops, process: int) -> int:
    """Return when (ns) the first op of a process, or else its first range, began."""
    attribution = ops.attribution
    ranges = attribution.trace["ranges"]
    mine = (ranges["process"].fill_null(NONE) == process).to_numpy()
    op_rows: Ints = np.flatnonzero(mine & attribution.is_op)
    rows = (
        op_rows
        if len(op_rows)
        else np.flatnonzero(mine & (attribution.meaning.role != ROLE["step"]))
    )
    return int(ranges["start"].gather(rows).min())  # type: ignore[arg-type]


def detected_steps(profile: Answers) -> pl.DataFrame:
    """The iterations of processes that mark none."""
    return profile._frame("detected_steps", lambda: _detect(profile))


def _detect(profile: Answers) -> pl.DataFrame:
    return detected(profile.of(op_index), profile.of(stepping)[1])


def iterated(profile: Answers) -> tuple[Answers, dict[int, bool], dict[int, str]]:
    """Return this profile with iterations for processes without steps; and per process whether these count as
    steps, and the doubt or the reason why there are none."""
    have, others = profile.of(stepping)
    iterations = detected_steps(profile)
    if not fits(iterations, others):  # a stored table may come from a stranger
        iterations = _detect(profile)
    doubtful = iterations.filter(pl.col("doubt").is_not_null()).unique(
        "process", maintain_order=True
    )
    doubts = dict(doubtful.select("process", pl.col("doubt").cast(pl.String)).rows())
    every = iterations.filter(pl.col("step").is_not_null()).select(
        pl.col(name).cast(kind) for name, kind in INFERRED.items()
    )
    iterating = every["process"].unique().sort().to_list()
    is_step = {**dict.fromkeys(have, True), **dict.fromkeys(iterating, False)}
    if not iterating:
        return profile, is_step, doubts
    by = ", ".join(in_words(by) for by in every["by"].unique().sort())
    note = UNSURE.format(by=by, confidence=float(every["confidence"].min()))  # type: ignore[arg-type]
    return profile._with_steps(every, note, True), is_step, doubts
