"""The iterations of a profile: their times and content, and which are warm-up or stable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.kernels import called
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.steps.detected_iterations import BURSTS_NAMED, iterated
from opscope.core.analysis.steps.outliers import NORMAL, SCORE
from opscope.core.analysis.steps.step_times import step_bounds
from opscope.core.analysis.steps.steps import slow_ones
from opscope.core.analysis.steps.warm_up import LEAST_ABOVE, warm_up
from opscope.core.attribution.known import Launched
from opscope.core.attribution.numbered_ranges import NAMED
from opscope.core.literals import json_object
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints, nest

#: Largest difference of a stable iteration from its usual number of ops, as a share.
SAME_WORK: Final = 0.1
#: Fewest iterations in a stable range.
FEWEST: Final = 3
#: Source of steps that are not inferred.
MARKED: Final = "marked"
FEW_IN_A_ROW: Final = f"no {FEWEST} iterations in a row are alike and neither warm-up nor slow"
ITERATIONS: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "iteration": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "duration": pl.Int64,
    "ops": pl.Int64,
    "kernels": pl.Int64,
    "device_time": pl.Int64,
    "warm_up": pl.Boolean,
    "slow": pl.Boolean,
    "stable": pl.Boolean,
    "found_by": pl.String,
    "certainty": pl.Float64,
    "is_step": pl.Boolean,
    "reason": pl.String,
}


#: The kind of a server's step; null for all other steps.
_KIND: Final = pl.col("found_by").str.extract(f"^(?:{NAMED}|{BURSTS_NAMED})(.*)$", 1).alias("kind")


@dataclass(frozen=True, slots=True)
class Stable:
    """The recommended iterations of a process, both included, None if there are none; and the reason."""

    process: int
    first: int | None
    last: int | None
    reason: str


def iterations(
    ops: Ops,
    steps: pl.DataFrame,
    is_step: Mapping[int, bool],
    doubts: Mapping[int, str],
    seen_device: bool,
) -> pl.DataFrame:
    """Return the iterations (``ITERATIONS``; ns) of a trace, which are its steps, by process and time.

    ``steps`` are those of ``step_times.steps_of(ops)``. ``is_step``: per process, whether its iterations are
    steps in all reports. ``doubts``: per process the doubt about its iterations, or why it has none; a
    process without any has one row. ``seen_device``: whether device work was recorded.
    """
    marked = steps.filter(pl.col("step").is_not_null())
    stated = _tell(ops)
    marked = marked.join(
        stated, on=["process", "start", "step"], how="left", nulls_equal=True, maintain_order="left"
    )
    alike = marked.with_columns(pl.struct("process", _KIND).rank("dense").alias("process"))
    marked = marked.with_columns(warm_up(alike), alike.select(slow_ones()).to_series())
    counted = _count(ops, marked, seen_device)
    table = (
        pl.concat([marked, counted], how="horizontal").with_columns(
            pl.col("step").alias("iteration"),
            pl.col("time").alias("duration"),
            pl.col("process").replace_strict(
                list(is_step), list(is_step.values()), default=True, return_dtype=pl.Boolean
            ).alias("is_step"),
            pl.coalesce(
                "reason",
                pl.col("process").replace_strict(
                    list(doubts), list(doubts.values()), default=None, return_dtype=pl.String
                ),
            ).alias("reason"),
        )
    )  # fmt: skip
    table = table.with_columns(_stable(table))
    rest = [
        {"process": process, "reason": why}
        for process, why in doubts.items()
        if process not in set(table["process"])
    ]
    ranks = ops.attribution.trace["processes"].select("process", "rank").unique("process")
    none = pl.DataFrame(rest, schema={"process": pl.Int32, "reason": pl.String}).join(
        ranks, on="process", how="left"
    )
    made = pl.concat([table.select(*ITERATIONS), none], how="diagonal_relaxed")
    return made.cast(dict(ITERATIONS.items())).sort("process", "start", nulls_last=True)


def _tell(ops: Ops) -> pl.DataFrame:
    """Return per step its source and certainty (null: the program marks it)."""
    meaning, ranges = ops.attribution.meaning, ops.attribution.trace["ranges"]
    numbers = pl.Series("step", [reading.step for reading in meaning.readings], pl.Int64)
    marks = np.flatnonzero(at(numbers.is_not_null().to_numpy(), meaning.reading, False))
    step = numbers.gather(meaning.reading[marks].astype(np.uint32))
    rows = ranges.select("process", "start", "domain", "attrs")[marks].with_columns(step)
    rows = rows.unique(["process", "start", "step"])
    inferred = (pl.col("domain").cast(pl.String) == "inferred").fill_null(False)
    texts = rows.filter(inferred)["attrs"].drop_nulls().unique().to_list()
    read = [json_object(text) for text in texts]
    return rows.select(
        "process",
        "start",
        "step",
        pl.when(inferred)
        .then(_map("attrs", texts, [attrs_of_step.get("by") for attrs_of_step in read], pl.String))
        .otherwise(pl.lit(MARKED))
        .alias("found_by"),
        pl.when(inferred)
        .then(
            _map(
                "attrs",
                texts,
                [attrs_of_step.get("confidence") for attrs_of_step in read],
                pl.Float64,
            )
        )
        .alias("certainty"),
    )


def _map(column: str, old: list[str], new: list[Any], dtype: Any) -> pl.Expr:
    return pl.col(column).replace_strict(old, new, default=None, return_dtype=dtype)


def _count(ops: Ops, found: pl.DataFrame, seen_device: bool) -> pl.DataFrame:
    """Return the ops, kernels and device time (ns) of each iteration: those that began or were launched in
    it."""
    if found.is_empty():  # no need to look up a million launches
        return pl.DataFrame(schema=dict.fromkeys(("ops", "kernels", "device_time"), pl.Int64))
    attribution, trace = ops.attribution, ops.attribution.trace
    rows = np.flatnonzero(attribution.is_op)
    process, _, start = ops.places(rows)
    own = _sums(found, process, start, None)[0]
    kernels, time = np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)
    for name, launched in (("kernels", attribution.kernels), ("memops", attribution.memops)):
        table = trace[name]
        duration = (table["end"] - table["start"]).fill_null(0).to_numpy()
        where = table["process"].fill_null(NONE).to_numpy()
        many, lasted = _sums(found, where, launch_times(ops, name, launched), duration)
        time += lasted
        kernels += many if name == "kernels" else 0
    is_counted = seen_device & found["seen"].fill_null(True)
    counts = pl.DataFrame(
        {"ops": own, "kernels": kernels, "device_time": time, "known": is_counted}
    )
    return counts.select(
        "ops", *(pl.when("known").then(name).alias(name) for name in ("kernels", "device_time"))
    )


def launch_times(ops: Ops, name: str, launched: Launched) -> Ints:
    """Return when (ns) each kernel or copy was launched: its op's start, else the call's, else its own."""
    trace = ops.attribution.trace
    call = np.where(launched.replay >= 0, launched.replay, launched.call)
    by_call = called(trace["calls"], call)[2]
    of_op = (launched.op >= 0) & (launched.replay < 0)
    by_op = at(trace["ranges"]["start"].to_numpy(), np.where(of_op, launched.op, NONE), NONE)
    own = trace[name]["start"].fill_null(NONE).to_numpy()
    return np.where(of_op, by_op, np.where(call >= 0, by_call, own))


def _sums(
    table: pl.DataFrame, process: Ints, time: Ints, duration: Ints | None
) -> tuple[Ints, Ints]:
    """Return for each iteration how many events began in it, and the sum of their durations."""
    counts, lasted = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    of = table["process"].fill_null(NONE).to_numpy()
    for number in np.unique(of).tolist():
        mine = np.flatnonzero(of == number)
        tree = nest(*(table[name].gather(mine).to_numpy() for name in ("start", "end")))
        here = np.flatnonzero(process == number)
        row = tree.innermost(time[here])
        here, row = here[row >= 0], mine[row[row >= 0]]
        counts += np.bincount(row, minlength=len(table))
        if duration is not None:
            np.add.at(lasted, row, duration[here])
    return counts, lasted


def _stable(table: pl.DataFrame) -> pl.Series:
    """Return whether each iteration is in its process's stable range.

    The stable range is the longest run of complete iterations that are not warm-up, neither slow nor short,
    and have the usual number of ops; for a server's steps, those of the most frequent kind.
    """
    is_stable = np.zeros(len(table), bool)
    for part in table.with_row_index("row").partition_by("process"):
        kind = part.select(_KIND).to_series()
        same = kind.eq_missing(kind.mode().sort()[0]) if kind.null_count() == 0 else kind.is_null()
        usual = part["ops"].filter(same).median()
        near = same & ((part["ops"] - usual).abs() <= SAME_WORK * usual)
        warm = part["warm_up"].fill_null(False)
        good = (
            near & ~warm & ~part["slow"].fill_null(False) & ~_short(part["duration"], same & ~warm)
        )
        seen = part["seen"].fill_null(True)
        good = good & seen if seen.any() else good
        flags = good.fill_null(False).to_numpy()
        edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
        begins, ends = edges[::2], edges[1::2]
        if not len(begins) or (ends - begins).max() < FEWEST:
            continue
        best = int(np.argmax(ends - begins))
        is_stable[part["row"].to_numpy()[begins[best] : ends[best]]] = True
    return pl.Series("stable", is_stable)


def _short(duration: pl.Series, usual: pl.Series) -> pl.Series:
    """Return whether each duration is an outlier below the median of the ``usual`` ones."""
    middle = float(duration.filter(usual).median() or 0)
    spread = float((duration.filter(usual) - middle).abs().median() or 0)
    return duration < middle - max(LEAST_ABOVE * middle, SCORE * spread / NORMAL)


def stable(table: pl.DataFrame) -> list[Stable]:
    """Return the recommended range of each process of ``iterations``, and why."""
    stretches = []
    for part in table.partition_by("process", maintain_order=True):
        process = part["process"][0]
        kept = part.filter("stable")
        if part["iteration"].null_count() == len(part):
            stretches.append(Stable(process, None, None, part["reason"][0]))
        elif kept.is_empty():
            stretches.append(Stable(process, None, None, FEW_IN_A_ROW))
        else:
            first, last = kept["iteration"][0], kept["iteration"][-1]
            stretches.append(Stable(process, first, last, _why(part, kept)))
    return stretches


def _why(part: pl.DataFrame, kept: pl.DataFrame) -> str:
    """Return the reason why ``kept`` of a process's iterations are the stable ones."""
    duration = kept["duration"].to_numpy()
    middle = float(np.median(duration))
    most = float(np.abs(duration - middle).max())
    spread = (
        f"each within {100 * most / middle:.0f} % of their median" if middle else "of no length"
    )
    warm = int(part["warm_up"].fill_null(False).sum())
    left = len(part) - len(kept) - warm
    why = [f"{len(kept)} in a row with the same work, {spread}"]
    if warm:
        why.append(f"after {warm} of warm-up")
    elif part["warm_up"].is_null().all():
        why.append("too few to tell warm-up")
    if left > 0:
        why.append(f"{left} left out: slow, short, cut off or of other work")
    return ", ".join(why)


def answer(profile: Answers) -> pl.DataFrame:
    """The iterations of each process: the content of each, which were warm-up, and which are stable.

    They are the steps that the program marks; else those that ``key`` ends
    (``iterations(key="aten::mean")``); else those that repeat in the sequence of ops, or of kernels.
    ``certainty`` says how sure that is; only with ``is_step`` do other frames take them as steps. A
    process without any has one row and a reason. ``stable`` marks the longest range without warm-up,
    slow iterations and other work: it is the range to compare and to select
    (``profile.op_totals(steps=(first, last))``).
    """
    part, is_step, doubts = profile.of(iterated)
    bounds = part.of(step_bounds)
    return iterations(part.of(op_index), bounds, is_step, doubts, not profile.cpu_only)


def iterations_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the iterations, with begins relative to the first, and the recommended range with its reason."""
    frame = report.frame(profile)
    begin = pl.col("start") - pl.col("start").min()
    shown = frame.filter(pl.col("iteration").is_not_null()).with_columns(begin.alias("start"))
    table = listed(report, shown, view)
    several = frame["process"].n_unique() > 1
    notes = list(table.footnotes)
    ranges = stable(frame)
    for range_ in ranges:
        of = f" of process {range_.process}" if several else ""
        if range_.first is None:
            notes.append(f"no stable range{of}: {range_.reason}")
        else:
            notes.append(f"stable{of}: {range_.first} to {range_.last}, {range_.reason}")
    first = max((one.first for one in ranges if one.first is not None), default=None)
    last = min((one.last for one in ranges if one.last is not None), default=None)
    if first is not None and last is not None and first <= last:
        notes.append(f"to see them alone: --iter-start {first} --iter-stop {last}")
    notes.extend(_kinds(frame))
    unsure = frame.filter(pl.col("is_step") == pl.lit(False))
    if len(unsure):
        notes.append(
            "not sure, so other reports have no steps unless a range of them is selected:"
            f" {'; '.join(units.text(why) for why in unsure['reason'].drop_nulls().unique().sort())}"
        )
    return Table(table.title, table.columns, table.rows, list(dict.fromkeys(notes)))


def _kinds(frame: pl.DataFrame) -> Iterator[str]:
    """Yield a line for each kind of step that a server names: their number, length, and device time."""
    named = frame.with_columns(_KIND).drop_nulls("kind")
    for (kind,), part in named.group_by("kind", maintain_order=True):
        middle, busy = part["duration"].median(), part["device_time"]
        device = "" if busy.has_nulls() else f", {units.time(busy.sum())} of device time"
        yield f"{kind}: {len(part)}, {units.time(round(middle))} each (median){device}"  # type: ignore[arg-type]


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "iterations()",
            "one row per iteration and process; a process without any has one row, with a reason",
            columns(
                "process rank iteration start end duration ops kernels device_time warm_up "
                "slow stable found_by certainty is_step reason",
                """
                iteration: number: the iteration's number: the step's, or counted from 0; null for a
                    process without any
                duration: ns: end - start
                ops: count: ops that began in it
                kernels: count: kernels launched in it; null if none were captured then
                device_time: ns: durations of the kernels, copies and sets launched in it added up
                stable: yes/no: whether it is in the longest range of iterations without warm-up, slow
                    ones and other work
                found_by: text: marked by the program; key node and its name; global_step; what is called
                    (function, model or session, and its name); or what repeats: optimizer, function,
                    iteration, sequence (of ops), kernels, range (names that differ by numbers; of a
                    server with the kind of step, such as range: prefill), bursts (of ops, with the kind)
                certainty: fraction: how sure it is that these are the iterations; null if the program
                    marks them
                is_step: yes/no: whether it is a step in all frames; otherwise only where a range of them
                    is selected
                reason: text: what is in doubt, or why there are none
                """,
            ),
        ),
    ),
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="iterations",
            title="Iterations",
            empty="no iterations in this profile",
            shown=(
                "iteration process start duration ops kernels device_time warm_up slow stable "
                "found_by certainty"
            ),
            forms=[
                Column("start", "begin", units.time),
                Column("duration", "duration", units.time),
                Column("device_time", "device time", units.time),
                Column("found_by", "by", units.text),
                Column(
                    "certainty",
                    "certainty",
                    lambda value: "" if value is None else units.share(value),
                ),
            ],
            table=iterations_table,
            written=False,
        ),
    ),
)
