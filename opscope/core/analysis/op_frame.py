"""The frame of op instances, and the columns that identify an op."""

from __future__ import annotations

import numpy as np
import polars as pl

from opscope.core.analysis.op_times import device_column, with_descendants
from opscope.core.analysis.ops import Ops
from opscope.core.analysis.windows import reasons
from opscope.core.tables.columns import at, gather
from opscope.core.tables.intervals import Ints, depth
from opscope.core.tables.trace import range_ids

_CALL = ("inputs", "outputs", "dtypes", "params")
COST_COLUMNS = ("matrix_flops", "vector_flops", "flops", "bytes")


def ops_frame(ops: Ops) -> pl.DataFrame:
    """Return one row per op instance; times in ns, bytes, FLOP.

    ``device_time`` is the summed duration of the kernels and copies that the op and the ops inside it
    launched; on a CPU-only profile it is the op's self time; ``reason`` is why it is null. ``kernels``
    counts the kernels of the op and the ops inside it. Of nested ops only the one that counts
    (``canonical``) has FLOPs and bytes, so that they can be summed.
    """
    rows, times = ops.rows, ops.times
    ranges = ops.attribution.trace["ranges"]
    described = ops.describe(rows)
    ids = range_ids(ranges)
    leaf = np.ones(len(rows), bool)
    leaf[times.parent[times.parent >= 0]] = False
    device, many = times.device_time, len(rows)
    if device is not None and ops.on_device:
        device = with_descendants(device, times.parent)
    start, end = (ranges[name].gather(rows) for name in ("start", "end"))
    device_time = device_column("device_time", device, many, times.seen)
    return pl.DataFrame(
        {
            "op_id": ids.gather(rows),
            "parent_id": gather(ids, at(rows, times.parent)),
            "depth": depth(times.parent.astype(np.int64)),
            "leaf": leaf,
            "canonical": ops.costs.canonical[rows],
            "process": ranges["process"].gather(rows),
            "thread": ranges["thread"].gather(rows),
            "device": described.call["device"],
            "start": start,
            "end": end,
            "cpu_time": end - start,
            "self_time": times.self_time,
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
            "kernels": with_descendants(times.kernels, times.parent),
            "reason": reasons(ops.attribution.trace, device_time, times.seen),
        }
    )


def costs_of(ops: Ops, rows: Ints) -> dict[str, pl.Series]:
    """Return the columns of COST_COLUMNS for op rows: null but for ops that count or cost nothing."""
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
