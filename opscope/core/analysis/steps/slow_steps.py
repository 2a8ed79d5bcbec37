"""Why steps were slow: per slow step the parts that were longer than usual, and the ops in them. || Usual
means the median of the process's other steps that were recorded in the same way. Device work counts in the
step in which it ran, host work in the step in which it began. An op's excess is computed from its own
durations, so if events overlap, it may exceed the excess of its part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.steps.step_times import (
    NAMES,
    OTHER,
    PARTS,
    covered,
    loads,
    processes_of,
    step_at,
)
from opscope.core.analysis.steps.steps import table_of_steps
from opscope.core.job.exchanges import communicating
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.tables import with_step_notes
from opscope.core.question.words import columns
from opscope.core.schema import COMPILE
from opscope.core.tables.columns import compact, gather, pairs
from opscope.core.tables.intervals import NONE, merge

#: Parts and ops with less than this share of the step's excess are left out, and so are all but this many ops
#: per part.
LEAST: Final = 0.05
MOST: Final = 3
SCHEMA: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "step": pl.Int64,
    "time": pl.Int64,
    "usual": pl.Float64,
    "excess": pl.Float64,
    "part": pl.String,
    "part_time": pl.Int64,
    "part_excess": pl.Float64,
    "op": pl.String,
    "layer": pl.String,
    "op_time": pl.Int64,
    "op_excess": pl.Float64,
}
_WORK: Final = {
    "row": pl.Int64,
    "part": pl.String,
    "op": pl.String,
    "layer": pl.String,
    "time": pl.Int64,
}


def slow_steps(
    ops: Ops, table: pl.DataFrame, exchanged: Callable[[], pl.DataFrame]
) -> pl.DataFrame:
    """Return one row per slow step, part and op (``SCHEMA``; ns), the slowest step first.

    ``table`` is ``steps.step_table``. ``part`` is null if the parts of a step are unknown or do not explain
    the excess; ``op`` is null where no op explains the part.
    """
    rows = table.with_row_index("row").with_columns(
        pl.col("row").cast(pl.Int64), pl.col("slow").fill_null(False)
    )
    if not rows["slow"].any():
        return pl.DataFrame(schema=SCHEMA)
    usual = _usual_parts(rows)
    parts = usual.filter(pl.col("part_excess") >= LEAST * pl.col("excess"))
    wanted = frozenset(parts["part"].drop_nulls())
    work = _work(ops, table, exchanged, wanted)
    by_op = _usual_ops(work, rows, parts)
    head = rows.filter("slow").select("row", "process", "rank", "step", "time")
    return (
        head.join(usual.select("row", "usual", "excess").unique("row"), on="row", how="left")
        .join(parts.drop("usual", "excess"), on="row", how="left")
        .join(by_op, on=["row", "part"], how="left")
        .filter(
            pl.col("op_excess").is_null() | (pl.col("op_excess") >= LEAST * pl.col("excess"))
            | (pl.int_range(pl.len()).over("row", "part") == 0)
        )
        .sort(
            *("excess", "row", "part_excess", "op_excess", "op", "layer"),
            descending=[True, False, True, True, False, False],
            nulls_last=True,
        )
        .cast(dict(SCHEMA.items()))
        .select(*SCHEMA)
    )  # fmt: skip


def _usual_parts(rows: pl.DataFrame) -> pl.DataFrame:
    """Return per slow step and known part: usual (the step's), excess, part, part_time, part_excess."""
    alike = ["process", "seen"]
    others = rows.filter(~pl.col("slow") & pl.col("step").is_not_null())
    columns = ("time", *PARTS, OTHER)
    median = others.group_by(alike).agg(pl.col(name).median() for name in columns)
    slow = rows.filter("slow").select("row", *alike, *columns)
    both = slow.join(median, on=alike, how="left", suffix="_usual", nulls_equal=True)
    step = both.select(
        "row",
        pl.col("time_usual").alias("usual"),
        (pl.col("time") - pl.col("time_usual")).alias("excess"),
    )
    each = pl.concat(
        both.select(
            "row",
            pl.lit(NAMES[name]).alias("part"),
            pl.col(name).alias("part_time"),
            (pl.col(name) - pl.col(f"{name}_usual")).alias("part_excess"),
        )
        for name in columns[1:]
    )
    return step.join(each, on="row", how="left")


def _usual_ops(work: pl.DataFrame, rows: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Return per slow step and part the ops that took longest beyond their median over the other steps."""
    key = ["process", "seen", "part", "op", "layer"]
    which = rows.select("row", "process", "seen", "slow", pl.col("step").is_not_null().alias("is"))
    summed = (
        work.group_by("row", "part", "op", "layer")
        .agg(pl.col("time").sum())
        .join(which.filter("is"), on="row")
    )
    among = summed.filter("slow").join(parts.select("row", "part"), on=["row", "part"], how="semi")
    if among.is_empty():
        return among.select(
            *("row", "part", "op", "layer"),
            pl.col("time").alias("op_time"),
            pl.lit(0.0).alias("op_excess"),
        )
    others = which.filter(~pl.col("slow") & pl.col("is")).group_by("process", "seen").len("others")
    # the median with a 0 for each step in which the op did not run
    low = (pl.col("others") - 1) // 2 - (pl.col("others") - pl.len())
    high = pl.col("others") // 2 - (pl.col("others") - pl.len())
    ordered = pl.col("time").sort()
    median = (
        summed.filter(~pl.col("slow"))
        .join(others, on=["process", "seen"], nulls_equal=True)
        .with_columns(pl.col("others").cast(pl.Int64))
        .group_by(key)
        .agg(
            *(
                pl.when(position.first() >= 0)
                .then(ordered.get(position.first().clip(lower_bound=0), null_on_oob=True))
                .otherwise(0)
                .alias(name)
                for name, position in (("low", low), ("high", high))
            )
        )
        .with_columns(((pl.col("low") + pl.col("high")) / 2).alias("middle"))
    )
    return (
        among.join(median, on=key, how="left", nulls_equal=True)
        .with_columns((pl.col("time") - pl.col("middle").fill_null(0)).alias("op_excess"))
        .filter(pl.col("op_excess") > 0)
        .sort("op_excess", "op", "layer", descending=[True, False, False])
        .group_by("row", "part", maintain_order=True)
        .head(MOST)
        .select("row", "part", "op", "layer", pl.col("time").alias("op_time"), "op_excess")
    )


def _work(
    ops: Ops, table: pl.DataFrame, exchanged: Callable[[], pl.DataFrame], wanted: frozenset[str]
) -> pl.DataFrame:
    """Return the work in the steps: row of the step, part (``wanted`` ones), op, layer, time (ns)."""
    return pl.concat(
        [part.cast(dict(_WORK.items())) for part in _worked(ops, table, exchanged, wanted)]
        or [pl.DataFrame(schema=_WORK)]
    )


def _worked(
    ops: Ops, table: pl.DataFrame, exchanged: Callable[[], pl.DataFrame], wanted: frozenset[str]
) -> Iterator[pl.DataFrame]:
    attribution = ops.attribution
    trace = attribution.trace
    kernels, memops, calls, ranges = (
        trace[name] for name in ("kernels", "memops", "calls", "ranges")
    )
    said, computed, copied, was_set, called, loaded, worked = (NAMES[name] for name in PARTS)
    if wanted & {said, computed}:
        parts = (computed, said), communicating(attribution)
        yield _sum(table, kernels, *parts, _labels(ops, attribution.kernels.op, kernels["name"]))
    if wanted & {copied, was_set}:
        parts = (
            (copied, was_set),
            (memops["kind"].cast(pl.String) == "memset").fill_null(False).to_numpy(),
        )
        yield _sum(table, memops, *parts, _labels(ops, attribution.memops.op, memops["kind"]))
    if called in wanted:
        nothing = np.full(len(calls), NONE, np.int32)
        yield _sum(
            table,
            calls,
            (called,),
            np.zeros(len(calls), bool),
            _labels(ops, nothing, calls["name"]),
        )
    if wanted & {loaded, worked}:
        own = ranges[ops.rows].select("process", "start").with_columns(
            (pl.col("start") + pl.Series(ops.times.self_time)).alias("end")
        )  # fmt: skip
        loading = loads(ops)
        yield _sum(table, own, (worked, loaded), loading[ops.rows], _labels(ops, ops.rows, None))
        rest = np.flatnonzero(loading & ~attribution.is_op)
        nothing = np.full(len(rest), NONE, np.int32)
        labels = _labels(ops, nothing, ranges["text"].gather(rest))
        yield _sum(table, ranges[rest], (loaded,), np.zeros(len(rest), bool), labels)
    if NAMES[OTHER] in wanted:
        yield from _compiling(ops, table)
    if said in wanted and kernels.is_empty():
        ran = exchanged().filter(pl.col("start").is_not_null() & pl.col("end").is_not_null())
        nothing = np.full(len(ran), NONE, np.int32)
        yield _sum(
            table, ran, (said,), np.zeros(len(ran), bool), _labels(ops, nothing, ran["kind"])
        )


def _compiling(ops: Ops, table: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the time of each step in which a program was compiled. Such phases nest, and may begin before the
    step: each text counts with the part of the step that its ranges cover."""
    meaning, ranges = ops.attribution.meaning, ops.attribution.trace["ranges"]
    process = processes_of(ranges["process"])
    for code, (reading, text) in enumerate(zip(meaning.readings, meaning.texts, strict=True)):
        if reading.role != "phase" or text.split(" ", 1)[0] != COMPILE:
            continue
        rows = np.flatnonzero(meaning.reading == code)
        for number in np.unique(process[rows]).tolist():
            here = rows[process[rows] == number]
            spans = merge(*(ranges[name].gather(here).to_numpy() for name in ("start", "end")))
            steps = np.flatnonzero(processes_of(table["process"]) == number)
            start, end = (table[name].gather(steps).to_numpy() for name in ("start", "end"))
            time = covered(spans, start, end)
            yield (
                pl.DataFrame({"row": steps, "time": time})
                .filter(pl.col("time") > 0)
                .select(
                    "row",
                    pl.lit(NAMES[OTHER]).alias("part"),
                    pl.lit(text).alias("op"),
                    pl.lit(None, pl.String).alias("layer"),
                    "time",
                )
            )


_Labels = tuple[NDArray[np.int32], pl.Series, pl.Series]


def _sum(
    table: pl.DataFrame,
    happened: pl.DataFrame,
    parts: tuple[str, ...],
    which: NDArray[np.bool_],
    labels: _Labels,
) -> pl.DataFrame:
    """Return the summed durations by step, part (``parts`` by ``which``), op and layer."""
    label, op, layer = labels
    start = happened["start"].fill_null(0).to_numpy()
    frame = pl.DataFrame(
        {
            "row": step_at(table, processes_of(happened["process"]), start),
            "which": which.astype(np.uint32),
            "label": label,
            "time": happened["end"].fill_null(0).to_numpy() - start,
        }
    ).filter(pl.col("row") >= 0)
    # by numbers first: events are many, and labels few
    few = frame.group_by("row", "which", "label").agg(pl.col("time").sum())
    named = few.select(
        "row",
        pl.Series("part", parts, pl.String).gather(few["which"]),
        gather(op, few["label"].to_numpy()).cast(pl.String).alias("op"),
        gather(layer, few["label"].to_numpy()).cast(pl.String).alias("layer"),
        "time",
    )
    return named.group_by("row", "part", "op", "layer").agg(pl.col("time").sum())


def _labels(ops: Ops, rows: NDArray[np.signedinteger], otherwise: pl.Series | None) -> _Labels:
    """Return a number per event, and op and layer of each number.

    ``rows``: the op rows of the events; if -1, the name of the event is in ``otherwise`` (Categorical).
    """
    has = rows >= 0
    label = np.full(len(rows), NONE, np.int32)
    layered = rows[has].astype(np.int64)
    outline = ops.outline(layered) if len(layered) else [layered] * 5
    reading, layer_number = outline[0], outline[3]
    _, _, number = pairs(reading, layer_number)
    label[has] = number
    count = int(number.max(initial=-1)) + 1
    first = np.zeros(count, np.int64)
    first[number[::-1]] = layered[::-1]
    op = pl.Series("op", [], pl.Categorical)
    layer = pl.Series("layer", [], pl.Categorical)
    if count:
        about = ops.identify(first)
        op, layer = about.call["op"], about.layer
    if otherwise is not None and not has.all():
        codes, texts = compact(otherwise.cast(pl.Categorical))
        label[~has] = count + codes[~has]
        op = pl.concat([op.cast(pl.String), pl.Series(texts, dtype=pl.String)])
        layer = layer.cast(pl.String).extend_constant(None, len(texts))
    return label, op, layer


def answer(profile: Answers) -> pl.DataFrame:
    """The slow steps, and their parts and ops that took longer than the median of the process's other
    steps.

    A step is slow if its modified z-score is above 3.5 and it is 5 % longer than the median; fewer than
    five steps are not judged.
    """
    steps = profile.of(table_of_steps)
    return slow_steps(profile.of(op_index), steps, lambda: profile.of(exchanges))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "slow_steps()",
            "one row per slow step, part and op that took longer than usual",
            columns(
                "process rank step time usual excess part part_time part_excess op layer "
                "op_time op_excess",
                """
                time: ns: time from the step's start to its end
                usual: ns: median time of the process's steps that are not slow
                excess: ns: time - usual
                part: text: a part of the step's time; null if none explains the excess
                part_time: ns: time of the step in the part
                part_excess: ns: part_time - the median of the part over the process's other steps
                op: text: the op, or the call, kernel or collective if no op is known; null: none
                op_time: ns: durations of the op in the step added up: device time, or self time on the
                    host
                op_excess: ns: op_time - the median of the op over the process's other steps
                """,
            ),
        ),
    ),
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="slow_steps",
            title="Slow steps",
            empty="no step was slow (of a process with fewer than five steps none is judged)",
            shown="step process time excess part part_excess op layer op_excess",
            table=with_step_notes,
        ),
    ),
)
