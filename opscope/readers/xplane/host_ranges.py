"""Classify events of the host's threads: TensorFlow's eager ops, tf.data's work, the user's own ranges. TSL's
profiler writes them as it writes its own events. Work that one thread hands to another has a context: the
producer's statistics ``_pt`` and ``_p`` are the consumer's ``_ct`` and ``_c``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.rangetext import format_call, parse
from opscope.core.schema import OpCall
from opscope.core.tables.intervals import NONE, Ints, nest

from .space import Events, integers, strings

_CONTEXT: Final = {
    "producer_type": "_pt",
    "producer": "_p",
    "consumer_type": "_ct",
    "consumer": "_c",
}
#: Statistics that ``described`` reads, and the columns that it returns.
STATS: Final = frozenset({"eager_op", "is_func", "tf_function_call", *_CONTEXT.values()})
DESCRIBED: Final = (
    "eager",
    "of_graph",
    "called",
    "data",
    "module",
    "program",
    "ordinal",
    *_CONTEXT,
)
EAGER_ELSEWHERE: Final = (
    "eager ops that ran on another thread than their call: time not known, left out"
)
#: Attributes of a user's range on a thread to which work was handed inside the range.
CONTINUED: Final = '{"continued":true}'
_LOCAL: Final = r"^EagerLocalExecute: (.+)$"
#: The type in TensorFlow's own name of an op: ``net/MatMul:MatMul``.
_TYPE: Final = r"([^:/]+)$"
_GRAPH: Final = r"^__(?:inference|forward|backward)_"
#: The run of an eager op's kernel: an op's own time. The call around it copies inputs and finds the kernel.
_KERNEL: Final = r"^KernelAndDevice(?:Func|Op)::Run$"
#: Threads and calls of tf.data, which prepare the program's input.
_DATA_THREAD: Final = r"^tf_data_"
#: Ops that make, call or free the iterators of the input.
_INPUT_OP: Final = r"Dataset|Iterator|^Optional"
#: Ops that only a gradient's computation calls (what transposed convolutions run is not among them), and ops
#: that only an optimizer calls.
_GRADIENT: Final = r"Grad(?:V[0-9])?\(|BackpropFilter"
_UPDATE: Final = r"^Resource(?:Sparse)?Apply"
_DATA_CALL: Final = r"^InstantiatedCapturedFunction::"
#: Calls into a framework that run something, beside jitted calls.
_CALL: Final = r"^(?:PmapFunction\(|TFE_Py_|EagerExecute$|ExecuteReplicated)|Executable::"
#: The event on the caller's thread that represents a run, with the run's number.
_RUN: Final = r"Executable::Execute"
_SORT: Final = "hlo::sort("
#: Names that TensorFlow's and XLA's own code gives to its work around such calls.
_OURS: Final = r"^(?:tf\.constant|convert_to_tensor|tf\.function-graph_building|end: .*)$|^\$|::"
_BEGUN, _OVER = "ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion"
#: Work is passed from thread to thread at most this often.
_HANDS: Final = 16


def described(events: Events, thread_name: str, many: int) -> dict[str, pl.Series]:
    """Return the columns of a batch of a thread's events that the functions below read."""
    return {
        "eager": strings(events, "eager_op", many),
        "of_graph": integers(events, "is_func", many),
        "module": strings(events, "hlo_module", many),
        "program": integers(events, "program_id", many),
        "ordinal": integers(events, "device_ordinal", many),
        "called": strings(events, "tf_function_call", many),
        "data": pl.Series([thread_name]).str.contains(_DATA_THREAD).new_from_index(0, many),
        **{name: integers(events, stat, many) for name, stat in _CONTEXT.items()},
    }


def with_eager_ops(ranges: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return ``ranges`` in which the runs of eager ops' kernels are replaced by the ops, and how many ops ran
    elsewhere.

    The name of an op is in the call around the run of its kernel. A call in which TensorFlow names the op
    itself, as it does on GPUs, is left as it is.
    """
    text = ranges["text"]
    named = ranges["eager"].is_not_null() & (ranges["of_graph"].fill_null(0) == 0)
    names = ranges["eager"]
    if not ranges["eager"].is_not_null().any():  # before TensorFlow 2.10
        names = text.str.extract(_LOCAL, 1)
        named = names.is_not_null()
    named &= ~names.str.contains(_GRAPH).fill_null(False)
    calls = np.flatnonzero(named.to_numpy())
    if not len(calls):
        return ranges, 0
    runs = np.flatnonzero(text.str.contains(_KERNEL).to_numpy())
    around = _around(ranges, calls, runs)
    runs, around = runs[around >= 0], around[around >= 0]
    _, first = np.unique(around, return_index=True)
    runs, around = runs[first], around[first]
    ops = np.flatnonzero((ranges["domain"] == "TSL").to_numpy())
    inside = _around(ranges, calls, ops)
    same = text.gather(ops).str.extract(_TYPE, 1) == names.gather(np.maximum(inside, 0))
    own = np.unique(inside[same.fill_null(False).to_numpy()])
    left = ~np.isin(around, own)
    runs, around = runs[left], around[left]
    op = np.full(len(ranges), NONE, np.int64)
    op[runs] = around
    is_op = pl.Series(op >= 0)
    calls_of = {name: format_call(OpCall(name)) for name in names.gather(around).unique()}
    of = names.gather(np.maximum(op, 0)).replace(calls_of)
    return ranges.with_columns(
        pl.when(is_op).then(pl.lit("opscope.tensorflow")).otherwise("domain").alias("domain"),
        pl.when(is_op).then(of).otherwise("text").alias("text"),
        pl.when(is_op & of.str.contains(_INPUT_OP))
        .then(pl.lit("input"))
        .when(is_op & of.str.contains(_GRADIENT))
        .then(pl.lit("backward"))
        .when(is_op & of.str.contains(_UPDATE))
        .then(pl.lit("optimizer"))
        .otherwise("category")
        .alias("category"),
    ), len(calls) - len(np.union1d(around, own[own >= 0]))


def with_copies(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ``ranges`` in which the copies that XLA makes of a sort's operands are copies.

    XLA:CPU sorts in place. It first copies operands that are needed later, under the sort's own name.
    """
    is_op = ranges["domain"] == "xla"
    if not (is_op & ranges["text"].str.starts_with(_SORT)).any():
        return ranges
    stretches = (
        ranges.with_row_index("row")
        .filter(is_op)
        .sort("thread", maintain_order=True)
        .group_by(pl.struct("thread", "run", "text").rle_id().alias("stretch"), maintain_order=True)
        .agg(pl.col("row"), pl.col("text").first())
        .filter(pl.col("text").str.starts_with(_SORT) & (pl.col("row").list.len() > 1))
    )
    rows: list[int] = []
    texts: list[str] = []
    for _, row, text in stretches.rows():
        call = parse(text)
        operands, copies = call.inputs, row[:-1]
        if len(copies) > len(operands):  # a loop that only sorts
            continue
        which = operands if len(copies) == len(operands) or len(set(operands)) == 1 else ()
        params = tuple(param for param in call.params if param[0] != "dimensions")
        for place, copied in enumerate(copies):
            of = (which[place],) if which else ()
            made = replace(call, name="hlo::copy", inputs=of, outputs=of or None, params=params)
            rows.append(copied)
            texts.append(format_call(made))
    return ranges.with_columns(text=ranges["text"].scatter(rows, texts)) if rows else ranges


def with_devices(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ``ranges`` in which XLA's operations name their device, if they ran on several of the CPU's."""
    is_op = (ranges["domain"] == "xla") & ranges["ordinal"].is_not_null()
    calls = ranges.filter(is_op).select("text", "ordinal").unique(maintain_order=True)
    if calls["ordinal"].n_unique() < 2:
        return ranges
    named = [
        format_call(replace(parse(text), device=f"cpu:{ordinal}")) for text, ordinal in calls.rows()
    ]
    text = ranges.join(
        calls.with_columns(pl.Series("named", named)),
        on=["text", "ordinal"],
        how="left",
        maintain_order="left",
    )["named"]
    return ranges.with_columns(text=text.zip_with(text.is_not_null() & is_op, ranges["text"]))


def inputs(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ``ranges`` in which TensorFlow's ops that tf.data runs are of category ``input``."""
    is_op = (ranges["domain"] == "TSL").to_numpy()
    data = ranges["data"].to_numpy()
    calls = np.flatnonzero(ranges["text"].str.contains(_DATA_CALL).to_numpy())
    if not is_op.any() or not (data.any() or len(calls)):
        return ranges
    handed = _hand(ranges, calls)
    within = _inside(handed, ranges["thread"].to_numpy(), ranges["start"].to_numpy()) >= 0
    return ranges.with_columns(
        pl.when(pl.Series(is_op & (data | within)))
        .then(pl.lit("input"))
        .otherwise("category")
        .alias("category")
    )


def user_ranges(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ``ranges`` with the user's own in their domain, also on the threads to which they hand work.

    The profiler does not say who wrote an event, so ranges count as the user's if they are around a call into
    the framework and inside no such call. A range around other work, such as loading data, looks like the
    runtime's.
    """
    text = ranges["text"]
    is_call = (ranges["category"] == "graph").fill_null(False) | (
        (ranges["domain"] == "runtime") & text.str.contains(_CALL)
    )
    may_be = (
        ranges["plain"]
        & ~is_call
        & ranges["called"].is_null()
        & ~text.str.contains(_OURS)
        & ~text.str.contains(_GRAPH)
        & (ranges["end"] > ranges["start"])
    )
    calls, rows = np.flatnonzero(is_call.to_numpy()), np.flatnonzero(may_be.to_numpy())
    if not len(calls) or not len(rows):
        return ranges
    rows = rows[_around(ranges, calls, rows) < 0]
    thread, start, end = (ranges[name].to_numpy() for name in ("thread", "start", "end"))
    encloses = np.zeros(len(rows), bool)
    for number in np.unique(thread[rows]):
        begun = np.sort(start[calls[thread[calls] == number]])
        mine = np.flatnonzero(thread[rows] == number)
        before, after = (np.searchsorted(begun, one[rows[mine]]) for one in (start, end))
        encloses[mine] = before < after
    rows = rows[encloses]
    if not len(rows):
        return ranges
    own = np.zeros(len(ranges), bool)
    own[rows] = True
    ranges = ranges.with_columns(
        pl.when(pl.Series(own)).then(pl.lit("opscope.user")).otherwise("domain").alias("domain")
    )
    return pl.concat([ranges, _continued(ranges, rows)]).sort(
        "start", "end", descending=[False, True], maintain_order=True
    )


def _continued(ranges: pl.DataFrame, users: Ints) -> pl.DataFrame:
    """Return the user's ranges ``users`` again, around the ops that other threads run for them.

    An op of a program belongs to the call that began its run. Other ops belong to the work that was handed to
    their thread: a thread that ends one run may continue with a later one, which waited for its result.
    """
    ops = np.flatnonzero(ranges["domain"].is_in(["xla", "TSL"]).to_numpy())
    ops = ops[_around(ranges, users, ops) < 0]
    thread, start, end = (ranges[name].to_numpy() for name in ("thread", "start", "end"))
    handed = _hand(ranges, users)
    place = _inside(handed, thread[ops], start[ops])
    owner = np.where(place >= 0, handed["row"].to_numpy()[np.maximum(place, 0)], NONE)
    runs = pl.concat([_runs_by_name(ranges, users), _runs_by_number(ranges, users)])
    keys = ("module", "program", "run")
    own = ranges.select(keys)[ops].join(
        runs.unique(keys, keep="last"), on=keys, how="left", nulls_equal=True, maintain_order="left"
    )["user"]
    owner = own.fill_null(pl.Series(owner)).to_numpy()
    order = np.argsort(start[ops], kind="stable")
    order = order[np.argsort(thread[ops[order]], kind="stable")]
    ops, owner = ops[order], owner[order]
    spans = (
        pl.DataFrame({"row": owner, "thread": thread[ops], "start": start[ops], "end": end[ops]})
        .group_by(pl.struct("row", "thread").rle_id().alias("stretch"), maintain_order=True)
        .agg(pl.col("row", "thread", "start").first(), pl.col("end").max())
        .filter(pl.col("row") >= 0)
    )
    return ranges[spans["row"]].with_columns(
        *(spans[name] for name in ("thread", "start", "end")), pl.lit(CONTINUED).alias("attrs")
    )


def _runs_by_number(ranges: pl.DataFrame, users: Ints) -> pl.DataFrame:
    """Return module, program, run, and the user's range (a row, -1: none) of runs that their call numbers."""
    is_call = ranges["run"].is_not_null() & (ranges["domain"] == "runtime")
    is_call &= ranges["text"].str.contains(_RUN)
    calls = np.flatnonzero(is_call.to_numpy())
    runs = ranges.filter(pl.col("domain") == "xla").select("module", "program", "run").unique()
    user = pl.DataFrame({"run": ranges["run"][calls], "user": _around(ranges, users, calls)})
    return runs.join(user.unique("run", keep="first"), on="run")


def _runs_by_name(ranges: pl.DataFrame, users: Ints) -> pl.DataFrame:
    """Return the call of each run, for runs whose calls have the name of their module: runs begin in the
    order of the calls.

    If calls and runs differ in number, the first runs were called before the recording began, or the last
    calls ended after it. If a run would begin before its call, no call is known.
    """
    runs = (
        ranges.filter((pl.col("domain") == "xla") & pl.col("run").is_not_null())
        .group_by("module", "program", "run")
        .agg(pl.col("start").min())
    )
    known = runs.clear().select("module", "program", "run", pl.lit(0, pl.Int64).alias("user"))
    calls = ranges.with_row_index("row").filter(pl.col("category") == "graph")
    for (module,), mine in runs.drop_nulls("module").group_by("module"):
        named = calls.filter(pl.col("text").is_in([module, f"jit_{module}"])).sort("start")
        # a program numbers its own runs; the time distinguishes runs of several programs
        mine = mine.sort("run" if mine["program"].n_unique() == 1 else "start")
        mine, named = mine.tail(len(named)), named.head(len(mine))
        if (mine["start"] >= named["start"]).all():
            user = _around(ranges, users, named["row"].to_numpy().astype(np.int64))
            found = mine.select("module", "program", "run", pl.Series("user", user))
            known = pl.concat([known, found])
    return known


def _around(ranges: pl.DataFrame, outer: Ints, inner: Ints) -> Ints:
    """Return for each row of ``inner`` the innermost of ``outer`` around its start on its thread, or -1."""
    thread, start, end = (ranges[name].to_numpy() for name in ("thread", "start", "end"))
    found = np.full(len(inner), NONE, np.int64)
    for number in np.unique(thread[outer]):
        mine = outer[thread[outer] == number]
        here = np.flatnonzero(thread[inner] == number)
        place = nest(start[mine], end[mine]).innermost(start[inner[here]])
        found[here[place >= 0]] = mine[place[place >= 0]]
    return found


def _inside(spans: pl.DataFrame, thread: Ints, time: Ints) -> Ints:
    """Return for each time on a thread the innermost of ``spans``, or -1."""
    window_of_row = np.full(len(time), NONE, np.int64)
    of, start, end = (spans[name].to_numpy() for name in ("thread", "start", "end"))
    for number in np.unique(of):
        mine = np.flatnonzero(of == number)
        here = np.flatnonzero(thread == number)
        place = nest(start[mine], end[mine]).innermost(time[here])
        window_of_row[here[place >= 0]] = mine[place[place >= 0]]
    return window_of_row


def _hand(ranges: pl.DataFrame, rows: Ints) -> pl.DataFrame:
    """Return the spans of ``rows``, and the spans of work that was handed to other threads during them.

    Columns: row, thread, start, end.
    """
    times = ranges.select("thread", "start", "end")
    spans = times.select(
        pl.lit(pl.Series("row", rows)),
        *(pl.col(name).gather(rows) for name in times.columns),
    )
    producers = ranges.filter(pl.col("producer").is_not_null()).select(
        "thread", "start", "producer_type", "producer"
    )
    consumers = _consumers(ranges)
    if not len(producers) or not len(consumers):
        return spans
    for _ in range(_HANDS):
        place = _inside(spans, producers["thread"].to_numpy(), producers["start"].to_numpy())
        within = producers.with_columns(_row_at(spans["row"], place)).drop_nulls("row")
        within = within.unique(["producer_type", "producer"], keep="last", maintain_order=True)
        new = consumers.join(
            within.select("producer_type", "producer", "row"),
            left_on=["consumer_type", "consumer"],
            right_on=["producer_type", "producer"],
            maintain_order="left",
        ).select("row", "thread", "start", "end")
        here = _inside(spans, new["thread"].to_numpy(), new["start"].to_numpy())
        new = new.filter(_row_at(spans["row"], here).ne_missing(new["row"]))
        if not len(new):
            break
        spans = pl.concat([spans, new.filter(pl.Series(_roots(new)))])
    return spans


def _row_at(rows: pl.Series, place: Ints) -> pl.Series:
    """Return the row at each place, null at -1."""
    column: pl.Series = rows.gather(pl.Series(place).replace(NONE, None).cast(pl.UInt32)).alias(
        "row"
    )
    return column


def _roots(spans: pl.DataFrame) -> NDArray[np.bool_]:
    """Return which spans lie in no other span of their thread."""
    thread, start, end = (spans[name].to_numpy() for name in ("thread", "start", "end"))
    found = np.zeros(len(spans), bool)
    for number in np.unique(thread):
        mine = np.flatnonzero(thread == number)
        tree = nest(start[mine], end[mine])
        found[mine[tree.order[tree.parent < 0]]] = True
    return found


def _consumers(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the spans of work that has a producer: the span of the event itself, or in a thread pool the
    time up to the pool's next stop.

    The last work of a thread may have no stop: the recording ended before it.
    """
    columns = ("thread", "start", "end", "consumer_type", "consumer")
    used = ranges.filter(pl.col("consumer").is_not_null()).select(*columns, "text")
    begun = used.filter(pl.col("text") == _BEGUN).sort("start")
    over = ranges.filter(pl.col("text") == _OVER).select("thread", pl.col("start").alias("over"))
    last = ranges.group_by("thread").agg(pl.col("end").max().alias("last"))
    regions = (
        begun.join_asof(
            over.sort("over"),
            left_on="start",
            right_on="over",
            by="thread",
            strategy="forward",
            check_sortedness=False,  # both are sorted, which Polars cannot see in groups
        )
        .join(last, on="thread", how="left")
        .with_columns(pl.coalesce("over", "last").alias("end"))
    )
    spans = pl.concat(
        [used.filter(pl.col("text") != _BEGUN).select(columns), regions.select(columns)]
    )
    return spans.filter(pl.col("end") > pl.col("start"))
