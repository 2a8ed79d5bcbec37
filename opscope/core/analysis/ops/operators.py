"""Operators by name: their calls, and their own and total time on host and device, as profilers list them.

Here every level of a nest of ops is a row: ``aten::linear`` has the time of the ``aten::addmm`` inside it in
its total. (``totals.op_totals`` gives the time to the one op of a nest that counts.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.executed import kernel_executions
from opscope.core.analysis.ops.grouped_table import EMPTY
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.units import share
from opscope.core.question.words import columns
from opscope.core.tables.columns import combined, compact, gather
from opscope.core.tables.forest import Forest
from opscope.core.tables.intervals import NONE, Ints

#: How these columns are shown; the reports by shape and by call stack show them the same way.
FORMS: Final = (
    Column("share", "of self", share, rank=1),
    Column("tc_eligible", "TC could", rank=7),
    Column("tensor_core_self", "TC self", share, rank=6),
    Column("tensor_core_total", "TC total", share, rank=8),
)
SHOWN: Final = (
    "share device_self device_total device_mean calls op host_self host_total host_mean tc_eligible"
    " tensor_core_self tensor_core_total reason"
)
#: The columns of the reports by shape and by call stack, around each report's own column.
AROUND: Final = (
    "share device_self device_total calls op {} host_self host_total tensor_core_self reason"
)


#: The words that distinguish operators besides their names: the shapes of their inputs, or the user's lines
#: that called them.
BY: Final = ("inputs", "source")
#: The columns of ``operators`` after the names, in order.
COLUMNS: Final = (
    *("op_type", "calls", "uncaptured", "device_self", "share", "device_total", "device_mean"),
    *("host_self", "host_total", "host_mean", "kernels", "tc_eligible"),
    *(
        "tensor_core_self",
        "tensor_core_total",
        "tensor_core_time",
        "tensor_core_undetermined_time",
        "reason",
    ),
)


@dataclass(frozen=True, slots=True)
class Nested:
    """The ops inside another op of the same name. (Only such ops can be in an op of the same row of the
    table.)

    ``forest``: of all ops; ``rows``: the places of these ops in it; ``times``: their times (ns) with the ops
    inside them, by the names of ``Inclusive.sums``.
    """

    forest: Forest
    rows: Ints
    times: dict[str, Ints]


@dataclass(frozen=True, slots=True)
class Inclusive:
    """Per identity of ops (``Ops.identities``) the sums over its ops, from which every table is made.

    ``sums``: the times (ns) on the host and the device, ``_self`` without the ops inside and ``_total`` with
    them; ``used_``: the part of a time in kernels that use Tensor Cores, ``hidden_``: the part in kernels of
    which this is not known; ``calls``, ``kernels``: numbers; ``known``: the calls whose kernels were
    captured, and ``known_total``: their time. ``eligible``: whether an op or one inside it could use Tensor
    Cores; ``judged``: whether that is known.
    """

    sums: dict[str, Ints]
    eligible: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    nested: Nested


#: The times that count only once if an op is inside another of the same row.
_OUTERMOST: Final = ("host_total", "device_total", "used_total", "hidden_total")


def inclusive(ops: Ops, executed: pl.DataFrame) -> Inclusive:
    """Return the times of the ops by identity; ``executed`` is ``executed_kernels(ops)``."""
    times, identities_of_ops, reading = ops.times, ops.identities, ops.attribution.meaning.reading
    identity, count = identities_of_ops.number[times.rows], len(identities_of_ops.row)
    forest = Forest(times.parent)
    sums = {
        "calls": np.bincount(identity, minlength=count).astype(np.int64),
        "kernels": _add(identity, count, times.kernels),
        "host_self": _add(identity, count, times.self_time),
    }
    outer: dict[str, Ints] = {"host_total": _lasted(ops)}
    eligible, judged = _judge(ops, forest, identity)
    nothing = np.zeros(len(identity), np.int64)
    for name, own in (
        ("device", nothing if times.device_time is None else times.device_time),
        *zip(("used", "hidden"), _of_tensor_cores(ops, executed), strict=True),
    ):
        sums[f"{name}_self"] = _add(identity, count, own)
        outer[f"{name}_total"] = forest.with_inside(own) if own.any() else nothing
    eligible[identity[outer["used_total"] > 0]] = True
    sums |= {name: _add(identity, count, values) for name, values in outer.items()}
    captured = (
        np.ones(count, bool) if identities_of_ops.captured is None else identities_of_ops.captured
    )
    captured = captured & (times.device_time is not None)
    sums["known"] = np.where(captured, sums["calls"], 0)
    sums["known_total"] = np.where(captured, sums["device_total"], 0)
    names, _ = compact(gather(ops.readings["op"], reading[identities_of_ops.row]))
    rows = np.flatnonzero(forest.inside_alike(names[identity]))
    nested = Nested(forest, rows, {name: values[rows] for name, values in outer.items()})
    return Inclusive(sums, eligible, judged, nested)


def _lasted(ops: Ops) -> Ints:
    """Return the duration of each op."""
    ranges = ops.attribution.trace["ranges"]
    lasted: Ints = (ranges["end"] - ranges["start"]).to_numpy()[ops.times.rows]
    return np.maximum(lasted, 0)


def _of_tensor_cores(ops: Ops, executed: pl.DataFrame) -> Iterator[Ints]:
    """Yield per op the time of its kernels that use Tensor Cores, then of those for which that is unknown."""
    op_count, op = len(ops.times.rows), ops.attribution.kernels.op
    if not len(executed):
        yield from (np.zeros(op_count, np.int64) for _ in range(2))
        return
    index = np.full(len(ops.attribution.is_op), NONE, np.int32)
    index[ops.times.rows] = np.arange(op_count, dtype=np.int32)
    duration, tensor_core = executed["duration"].to_numpy(), executed["tensor_core"]
    for which in (tensor_core.fill_null(False), tensor_core.is_null()):
        sums = np.zeros(op_count, np.int64)
        rows = np.flatnonzero(which.to_numpy() & (op >= 0))
        np.add.at(sums, index[op[rows]], duration[rows])
        yield sums


def _judge(
    ops: Ops, forest: Forest, identity: NDArray[np.signedinteger[Any]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return per identity whether an op or one in it could use Tensor Cores, and whether that is known."""
    rows, row = ops.times.rows, ops.identities.row
    could = ops.costs.catalogue["tc_eligible"].fill_null(False).to_numpy()
    own = could[ops.costs.place[rows]]
    uses = np.zeros(len(row), bool)
    if own.any():
        uses[identity[forest.with_inside(own.astype(np.int64)) > 0]] = True
    # a user's range that counts as an op could contain anything
    called = ops.attribution.meaning.each(lambda reading: reading.call is not None)
    judged = ops.readings["op_type"].is_not_null().to_numpy() & called
    return uses, judged[ops.attribution.meaning.reading[row]]


def operators(
    ops: Ops, inclusive: Inclusive, gaps: pl.DataFrame, by: tuple[str, ...] = ()
) -> pl.DataFrame:
    """Return one row per op name (with ``by`` also per ``inputs`` or ``source``), the most device time of its
    own first; device time without an op is one row per reason (``gaps``: ``totals.unattributed``).

    ``device_self``, ``host_self``: without the ops inside; the rows add up to the whole. ``device_total``,
    ``host_total``: with them; an op inside another of the same row is not counted again. ``device_mean``,
    ``host_mean``: of one call, with the ops inside. Times in ns.
    """
    group, names = _group(ops, by)
    frame = names.with_columns(_sum(ops, inclusive, group, len(names)))
    without = gaps.lazy().select(
        pl.col("reason").cast(pl.String),
        pl.col("time").cast(pl.Int64).alias("device_self"),
        (pl.col("kernels") + pl.col("copies")).cast(pl.Int64).alias("calls"),
        pl.col("kernels").cast(pl.Int64),
    )
    used, hidden = "tensor_core_time", "tensor_core_undetermined_time"
    return (
        pl.concat([frame.lazy(), without], how="diagonal")
        .with_columns(
            _share(used, hidden, "device_self").alias("tensor_core_self"),
            _share("used_total", "hidden_total", "device_total").alias("tensor_core_total"),
            (pl.col("device_self") / pl.col("device_self").sum().replace(0, None)).alias("share"),
        )
        .sort(
            "device_self",
            "host_self",
            *(pl.col(name).cast(pl.String) for name in ("op", *by, "reason")),
            descending=[True, True, *[False] * (2 + len(by))],
            nulls_last=True,
        )
        .select("op", *by, *COLUMNS)
        .collect()
    )


def _group(ops: Ops, by: tuple[str, ...]) -> tuple[NDArray[np.int32], pl.DataFrame]:
    """Return per identity of ops the number of its row, and the texts of each row."""
    row = ops.identities.row
    if by:
        same = ops.identify(row)
        texts = same.call.with_columns(same.source.alias("source"))
    else:
        reading = ops.attribution.meaning.reading[row]
        texts = pl.DataFrame([gather(ops.readings[name], reading) for name in ("op", "op_type")])
    group, values = combined([texts[name] for name in ("op", *by)])
    order = np.argsort(row)
    last = np.zeros(len(values[0]), np.int64)
    last[group[order]] = order  # a row's family is that of its last op
    return group, pl.DataFrame([*values, texts["op_type"].gather(last)])


def _add(group: NDArray[np.signedinteger[Any]], count: int, values: Ints) -> Ints:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, values)
    return sums


def _sum(ops: Ops, inclusive: Inclusive, group: NDArray[np.int32], count: int) -> list[pl.Series]:
    """Return the numbers of each row's calls, and their times on the host and on the device; null where no
    call's kernels were captured."""
    sums = {name: _add(group, count, values) for name, values in inclusive.sums.items()}
    mean = sums["host_total"] / np.maximum(sums["calls"], 1)
    nested = inclusive.nested
    if len(nested.rows):
        of = group[ops.identities.number[ops.times.rows]]
        inside = nested.forest.inside_alike(of, nested.rows)
        for name in _OUTERMOST:
            np.subtract.at(sums[name], of[nested.rows[inside]], nested.times[name][inside])
    calls, timed = sums["calls"], sums["known"]
    unknown = pl.Series((timed == 0) & (sums["device_total"] == 0))
    eligible = np.bincount(group[inclusive.eligible], minlength=count) > 0
    judged = np.bincount(group[~inclusive.judged], minlength=count) == 0
    device_mean = pl.Series("device_mean", sums["known_total"] / np.maximum(timed, 1))
    columns = [
        *(pl.Series(name, sums[name]) for name in ("calls", "host_self", "host_total", "kernels")),
        pl.Series("host_mean", mean),
        *(
            pl.Series(name, sums[name]).set(unknown, None)
            for name in ("device_self", "device_total")
        ),
        device_mean.set(pl.Series(timed == 0), None),
        pl.Series("uncaptured", calls - timed),
        pl.Series("tc_eligible", eligible).set(pl.Series(~eligible & ~judged), None),
    ]
    work = {
        "tensor_core_time": sums["used_self"],
        "tensor_core_undetermined_time": sums["hidden_self"],
        "used_total": sums["used_total"],
        "hidden_total": sums["hidden_total"],
    }
    on_gpu = pl.Series([ops.on_device], dtype=pl.Boolean).new_from_index(0, count)
    return [
        *columns,
        *(pl.Series(name, values).set(~on_gpu, None) for name, values in work.items()),
    ]


def _share(part: str, hidden: str, total: str) -> pl.Expr:
    """A share of the time; 0 only if that is proven, null if it may be 0 or more."""
    proved = (pl.col(part) > 0) | (pl.col(hidden) == 0)
    return pl.when((pl.col(total) > 0) & proved).then(pl.col(part) / pl.col(total))


def inclusive_times(profile: Answers) -> Inclusive:
    """The times of ops with those inside them."""
    return inclusive(profile.of(op_index), profile.of(kernel_executions))


def answer(profile: Answers, *by: str) -> pl.DataFrame:
    """Operators by name, as the PyTorch profiler's operator view and ``key_averages`` list them.

    Every level of a nest of ops is a row: ``device_total`` and ``host_total`` contain the ops inside,
    ``device_self`` and ``host_self`` do not, and add up to the whole; time without an op is a row for
    each reason. An op inside another of the same row is counted once in the totals. With ``inputs``
    each shape is a row, with ``source`` each call stack of the user's lines. ``op_totals()`` gives a
    nest's time to the one op that counts instead. Raises ValueError for any other ``by``.
    """
    keys = tuple(word for word in BY if word in by)
    without = profile.ask("unattributed", categories=True)
    return operators(profile.of(op_index), profile.of(inclusive_times), without, keys)


#: Words of this question alone: unit and meaning.
_WORDS: Final = """
op: text: the op's name
share: fraction: device_self / device_self of all rows
kernels: count: kernels that it launched itself
device_mean: ns: mean of one call's device time with the ops inside, over the captured calls
host_mean: ns: mean of one call's time on the host with the ops inside
tc_eligible: yes/no: whether the op, or one inside it, could use Tensor Cores in some dtype; null for an
    unknown op
tensor_core_self: fraction: part of device_self in kernels that use Tensor Cores; a lower bound if
    tensor_core_undetermined_time is not 0; null if nothing shows either
tensor_core_total: fraction: the same part of device_total
tensor_core_time: ns: part of device_self in kernels that use Tensor Cores
tensor_core_undetermined_time: ns: part of device_self in kernels of which neither name nor op shows whether
    they use Tensor Cores
uncaptured: count: calls outside the time in which kernels were captured
"""


def _frame(call: str, row: str, keys: str) -> Frame:
    return Frame(
        call,
        f"one row per {row}, by device time of its own; time without an op is one row per reason",
        columns(
            f"{keys} op_type calls uncaptured device_self share device_total device_mean host_self host_total"
            " host_mean kernels tc_eligible tensor_core_self tensor_core_total tensor_core_time"
            " tensor_core_undetermined_time reason",
            _WORDS,
        ),
    )


QUESTION = Question(
    answer=answer,
    frames=(
        _frame("operators()", "op name", "op"),
        _frame('operators("inputs")', "op name and inputs", "op inputs"),
        _frame('operators("source")', "op name and call stack", "op source"),
    ),
    parameters={"by": parameters.choice("what a row is besides the name", BY, several=True)},
    merged=lacking.MEDIANS,
    reports=(
        Report(
            name="operators",
            title="Operators, all levels of each nest",
            empty=EMPTY,
            shown=SHOWN,
            forms=FORMS,
            sums="calls device_self host_self",
            aliases=("operator", "key_averages"),
        ),
        Report(
            name="operators_by_inputs",
            title="Operators, all levels of each nest, one row per shape",
            empty=EMPTY,
            asked={"by": ("inputs",)},
            shown=AROUND.format("inputs"),
            forms=FORMS,
            sums="calls device_self host_self",
            written=False,
        ),
        Report(
            name="operators_by_source",
            title="Operators, all levels of each nest, one row per call stack",
            empty=EMPTY,
            asked={"by": ("source",)},
            shown=AROUND.format("source"),
            forms=FORMS,
            sums="calls device_self host_self",
            written=False,
        ),
    ),
)
