"""The frame of op instances, and the columns that identify an op."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.op_times import device_column, with_descendants
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.ops.windows import reasons
from opscope.core.question.column import Frame
from opscope.core.question.record import Question
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, gather
from opscope.core.tables.intervals import Ints, depth
from opscope.core.tables.trace import range_ids

_CALL = ("inputs", "outputs", "dtypes", "params")
KNOWN = ("flops_known", "bytes_known")
COST_COLUMNS = ("matrix_flops", "vector_flops", "flops", "bytes")


def ops_frame(ops: Ops, places: Ints | None = None) -> pl.DataFrame:
    """Return one row per op instance, only those at ``places`` if given; times in ns, bytes, FLOP.

    ``device_time`` is the summed duration of the kernels and copies that the op and the ops inside it
    launched; on a CPU-only profile it is ``Ops.counted_time``; ``reason`` is why it is null. ``kernels``
    counts the kernels of the op and the ops inside it. Of nested ops only the one that counts
    (``canonical``) has FLOPs and bytes, so that they can be summed.
    """
    times = ops.times
    here: Any = slice(None) if places is None else places
    rows, parent = ops.rows[here], times.parent[here]
    ranges = ops.attribution.trace["ranges"]
    described = ops.describe(rows)
    ids = range_ids(ranges)
    leaf = np.ones(len(ops.rows), bool)
    leaf[times.parent[times.parent >= 0]] = False
    device = times.device_time
    if device is not None:
        device = with_descendants(device, times.parent) if ops.on_device else ops.counted_time
    start, end = (ranges[name].gather(rows) for name in ("start", "end"))
    seen = None if times.seen is None else times.seen[here]
    device_part = None if device is None else device[here]
    device_time = device_column("device_time", device_part, len(rows), seen)
    return pl.DataFrame(
        {
            "op_id": ids.gather(rows),
            "parent_id": gather(ids, at(ops.rows, parent)),
            "depth": depth(times.parent.astype(np.int64))[here],
            "leaf": leaf[here],
            "canonical": ops.costs.canonical[rows],
            "process": ranges["process"].gather(rows),
            "thread": ranges["thread"].gather(rows),
            "device": described.call["device"],
            "start": start,
            "end": end,
            "cpu_time": end - start,
            "self_time": times.self_time[here],
            "device_time": device_time,
            "op": described.call["op"],
            "op_type": described.call["op_type"],
            "direction": described.direction,
            "seq": described.seq,
            "forward_op_id": gather(ids, described.forward),
            "layer": described.layer,
            "step": described.step,
            "source": described.source,
            "range": described.range,
            **{name: described.call[name] for name in _CALL},
            **costs_of(ops, rows),
            "kernels": with_descendants(times.kernels, times.parent)[here],
            "reason": reasons(ops.attribution.trace, device_time, seen),
        }
    )


def costs_of(ops: Ops, rows: Ints) -> dict[str, pl.Series]:
    """Return the columns of COST_COLUMNS for op rows: null except for ops that count or cost nothing."""
    places = ops.costs.priced(rows)
    return {name: gather(ops.costs.catalogue[name], places) for name in COST_COLUMNS}


def identity_of(ops: Ops, rows: Ints) -> dict[str, pl.Series]:
    """Return the columns that identify an op (``totals.SAME_OP``) for op rows."""
    identified = ops.identify(rows)
    return {
        "op": identified.call["op"],
        "op_type": identified.call["op_type"],
        "direction": identified.direction,
        "layer": identified.layer,
        "source": identified.source,
        **{name: identified.call[name] for name in _CALL},
    }


def op_rows(profile: Answers) -> pl.DataFrame:
    """The frame of every op, with texts as categories."""
    return ops_frame(profile.of(op_index))


def rows_with_known_costs(profile: Answers) -> pl.DataFrame:
    """``op_rows``, with KNOWN: whether the FLOPs and the bytes of the work in each op's own time are known,
    no matter which op of the nest they are counted at."""
    ops = profile.of(op_index)
    sources = ops.costs.sources(ops.rows)
    flops, sizes = KNOWN
    return profile.of(op_rows).with_columns(
        pl.Series(flops, sources >= 0), ops.costs.sized(sources).alias(sizes)
    )


def answer(profile: Answers, *, categories: bool = False) -> pl.DataFrame:
    """Every op instance, with its times, layer, source line, shapes and cost.

    Only one op of each nest (``canonical``) has FLOPs and bytes, so that columns can be added up.
    """
    return profile.of(op_rows)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "ops()",
            "one row per op instance",
            columns(
                "op_id parent_id depth leaf canonical process thread device start end "
                "cpu_time self_time device_time op op_type direction seq forward_op_id "
                "layer step source range inputs outputs dtypes params matrix_flops "
                "vector_flops flops bytes kernels reason",
                """
                parent_id: number: op_id of the op around it
                leaf: yes/no: whether no op is inside it
                canonical: yes/no: whether its FLOPs and bytes count: one op of each nest counts, so that
                    they can be added up
                device: text: the device named in the call: cpu, cuda:0 …
                device_time: ns: durations of the kernels, copies and sets that the op and the ops inside
                    it launched; without a GPU, self_time with that of the ops inside whose cost counts
                    in this op; null if they were not captured
                forward_op_id: number: op_id of the forward op whose gradient this op computes
                kernels: count: kernels that the op and the ops inside it launched
                reason: text: why the device time is not known; null if it is known
                """,
            ),
        ),
    ),
)
