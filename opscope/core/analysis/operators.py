"""Operators by name: their calls, and their own and total time on host and device, as profilers list them.

Here every level of a nest of ops is a row: ``aten::linear`` has the time of the ``aten::addmm`` inside it in
its total. (``totals.op_totals`` gives the time to the one op of a nest that counts.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops import Ops
from opscope.core.tables.columns import combined, pieces
from opscope.core.tables.forest import Forest
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.row_numbers import Numbering

#: The words by which operators can be told apart besides their names: the shapes of their inputs, or the
#: user's lines that called them.
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
class Inclusive:
    """Per op, in the order of ``Ops.rows``, the times (ns) of the op itself and with all ops inside it.

    ``alone``, ``total``: on the device; None if the kernels were not captured. ``used``, ``used_total``: the
    part of it in kernels that use Tensor Cores; ``hidden``, ``hidden_total``: in kernels of which it is not
    known. ``eligible``: whether the op or one inside it could use them; ``judged``: whether that is known.
    """

    forest: Forest
    alone: Ints | None
    total: Ints | None
    used: Ints
    used_total: Ints
    hidden: Ints
    hidden_total: Ints
    eligible: NDArray[np.bool_]
    judged: NDArray[np.bool_]


def inclusive(ops: Ops, executed: pl.DataFrame) -> Inclusive:
    """Return the device times of every op instance; ``executed`` is ``executed_kernels(ops)``."""
    times = ops.times
    forest = Forest(times.parent)
    own = times.device_time
    used, hidden = (np.zeros(len(times.rows), np.int64) for _ in range(2))
    if len(executed):
        place = np.full(len(ops.attribution.is_op), NONE, np.int32)
        place[times.rows] = np.arange(len(times.rows), dtype=np.int32)
        duration = executed["duration"].to_numpy()
        tensor_core = executed["tensor_core"]
        for sums, which in (
            (used, tensor_core.fill_null(False).to_numpy()),
            (hidden, tensor_core.is_null().to_numpy()),
        ):
            rows = np.flatnonzero(which & (ops.attribution.kernels.op >= 0))
            np.add.at(sums, place[ops.attribution.kernels.op[rows]], duration[rows])
    reading = ops.attribution.meaning.reading[times.rows]
    could = ops.costs.catalogue["tc_eligible"].fill_null(False).to_numpy()
    # a user's range that stands for an op could hold anything
    called = np.array([one.call is not None for one in ops.attribution.meaning.readings], bool)
    judged = (ops.readings["op_type"].is_not_null().to_numpy() & called)[reading]
    used_total = forest.with_inside(used)
    eligible = could[ops.costs.place[times.rows]].astype(np.int64)
    return Inclusive(
        forest,
        own,
        None if own is None else forest.with_inside(own),
        used,
        used_total,
        hidden,
        forest.with_inside(hidden),
        (forest.with_inside(eligible) > 0) | (used_total > 0),
        judged,
    )


def operators(
    ops: Ops, inclusive: Inclusive, gaps: pl.DataFrame, by: tuple[str, ...] = ()
) -> pl.DataFrame:
    """Return one row per op name (with ``by`` also per ``inputs`` or ``source``), the most device time of its
    own first; device time without an op is one row per reason (``gaps``: ``totals.unattributed``).

    ``device_self``, ``host_self``: without the ops inside; the rows add up to the whole. ``device_total``,
    ``host_total``: with them; an op inside another of the same row is not counted again. ``device_mean``,
    ``host_mean``: of one call, with the ops inside. Times in ns.
    """
    group, names = _grouped(ops, by)
    outermost = ~inclusive.forest.inside_alike(group)
    frame = names.with_columns(
        *_on_host(ops, group, outermost, len(names)),
        *_on_device(ops, inclusive, group, outermost, len(names)),
    )
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


def _grouped(ops: Ops, by: tuple[str, ...]) -> tuple[Ints, pl.DataFrame]:
    """Return the number of each op's row, and the texts of each row."""
    rows = ops.times.rows
    reading = ops.attribution.meaning.reading
    if not by:
        kind, of_kind = reading[rows], ops.readings
    else:
        # equal ops are described once: see ``totals.op_sums``
        numbering = Numbering(5)
        kind = np.empty(len(rows), np.int32)
        for part in pieces(len(rows)):
            kind[part] = numbering.of(*ops.outline(rows[part]))
        one = np.zeros(numbering.many, np.int64)
        one[kind] = rows
        same = ops.identify(one)
        of_kind = same.call.with_columns(same.source.alias("source"))
    keys = ("op", *by)
    number, values = combined([of_kind[name] for name in keys])
    group, used = _dense(number[kind], len(values[0]))
    families = of_kind["op_type"]
    family = np.zeros(len(used), np.int64)
    family[group] = kind
    texts = [column.gather(pl.Series(used, dtype=pl.UInt32)) for column in values]
    return group, pl.DataFrame([*texts, families.gather(family)])


def _dense(number: NDArray[np.signedinteger[Any]], many: int) -> tuple[Ints, Ints]:
    """Return the numbers without those that no row has, and the old number of each."""
    seen = np.zeros(many, bool)
    seen[number] = True
    used = np.flatnonzero(seen)
    place = np.zeros(many, np.int64)
    place[used] = np.arange(len(used))
    return place[number], used


def _added(group: Ints, many: int, values: Ints) -> Ints:
    sums = np.zeros(many, np.int64)
    np.add.at(sums, group, values)
    return sums


def _on_host(ops: Ops, group: Ints, outermost: NDArray[np.bool_], many: int) -> list[pl.Series]:
    """Return the number of calls of each row, and their times on the host."""
    times, ranges = ops.times, ops.attribution.trace["ranges"]
    start, end = (ranges[name].gather(times.rows).to_numpy() for name in ("start", "end"))
    lasted = np.maximum(end - start, 0)
    calls = np.bincount(group, minlength=many).astype(np.int64)
    return [
        pl.Series("calls", calls),
        pl.Series("host_self", _added(group, many, times.self_time)),
        pl.Series("host_total", _added(group[outermost], many, lasted[outermost])),
        pl.Series("host_mean", _added(group, many, lasted) / np.maximum(calls, 1)),
    ]


def _on_device(
    ops: Ops, inclusive: Inclusive, group: Ints, outermost: NDArray[np.bool_], many: int
) -> list[pl.Series]:
    """Return the times of each row's calls on the device; null where no call's kernels were captured."""
    times, total = ops.times, inclusive.total
    captured = np.ones(len(group), bool) if times.seen is None else times.seen
    if inclusive.alone is None or total is None:
        captured = np.zeros(len(group), bool)
        alone = total = np.zeros(len(group), np.int64)
    else:
        alone = inclusive.alone
    known = np.bincount(group[captured], minlength=many)
    sums = {
        "device_self": _added(group, many, alone),
        "device_total": _added(group[outermost], many, total[outermost]),
    }
    unknown = pl.Series((known == 0) & (sums["device_total"] == 0))
    calls = np.bincount(group, minlength=many)
    mean = _added(group[captured], many, total[captured]) / np.maximum(known, 1)
    eligible = np.bincount(group[inclusive.eligible], minlength=many) > 0
    judged = np.bincount(group[~inclusive.judged], minlength=many) == 0
    made = [
        *(pl.Series(name, values).set(unknown, None) for name, values in sums.items()),
        pl.Series("device_mean", mean).set(pl.Series(known == 0), None),
        pl.Series("uncaptured", (calls - known).astype(np.int64)),
        pl.Series("kernels", _added(group, many, times.kernels)),
        pl.Series("tc_eligible", eligible).set(pl.Series(~eligible & ~judged), None),
    ]
    work = {
        "tensor_core_time": _added(group, many, inclusive.used),
        "tensor_core_undetermined_time": _added(group, many, inclusive.hidden),
        "used_total": _added(group[outermost], many, inclusive.used_total[outermost]),
        "hidden_total": _added(group[outermost], many, inclusive.hidden_total[outermost]),
    }
    on_gpu = pl.Series([ops.on_device], dtype=pl.Boolean).new_from_index(0, many)
    return [*made, *(pl.Series(name, values).set(~on_gpu, None) for name, values in work.items())]


def _share(part: str, hidden: str, whole: str) -> pl.Expr:
    """A part of the time; null where nothing proves that any, or that none of it, is such a part."""
    proved = (pl.col(part) > 0) | (pl.col(hidden) == 0)
    return pl.when((pl.col(whole) > 0) & proved).then(pl.col(part) / pl.col(whole))
