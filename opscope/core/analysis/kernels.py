"""The kernels and copies of a trace, each with the op that launched it, what encloses it, its cost."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.costs import Sharing, cost_column
from opscope.core.analysis.ops import Ops
from opscope.core.attribute import REASONS, Launched
from opscope.core.columns import compact, gather, matching, spread
from opscope.core.compiled import GENERATED, name_fused
from opscope.core.intervals import NONE, Ints
from opscope.core.perf.tensorcore import used

_ABOUT: Final = (
    "call_start",
    "call_end",
    "op_id",
    "op",
    "op_type",
    "direction",
    "seq",
    "layer",
    "step",
    "source",
    "inputs",
    "outputs",
    "dtypes",
    "params",
)
_WHERE: Final = ("process", "device", "context", "stream", "start", "end", "duration")
#: The columns of ``kernels_frame``, in order.
KERNEL_COLUMNS: Final = (
    *_WHERE,
    *("name", "correlation", "grid", "block", "registers", "shared_memory", "graph", "graph_node"),
    *_ABOUT,
    *("matrix_flops", "vector_flops", "flops", "bytes"),
    *("tensor_core", "tc_eligible", "tc_ready", "tc_reason", "reason", "inferred"),
)
#: The columns of ``memops_frame``, in order.
MEMOP_COLUMNS: Final = (
    *_WHERE,
    *("kind", "src_kind", "dst_kind", "peer", "bytes", "correlation", "graph_node"),
    *_ABOUT,
    "reason",
)


def kernels_frame(ops: Ops) -> pl.DataFrame:
    """One row per kernel execution, the columns of ``Profile.kernels``. Times in ns, bytes, FLOP.

    FLOPs and bytes are the op's, split over its kernels by duration; the parts of an op sum to it.
    """
    trace = ops.attribution.trace
    table, launched = trace["kernels"], ops.attribution.kernels
    op = launched.op.astype(np.int64)
    duration = (table["end"] - table["start"]).to_numpy()
    costing = ops.costs.costing(op)
    sharing = Sharing(_executions(costing, launched.replay), duration)
    shares = {
        name: sharing.split(cost_column(ops.costs, name, costing))
        for name in ("matrix_flops", "vector_flops", "bytes")
    }
    shares["flops"] = (shares["matrix_flops"] + shares["vector_flops"]).alias("flops")
    tensor = {
        name: cost_column(ops.costs, name, costing)
        for name in ("tc_eligible", "tc_ready", "tc_reason")
    }
    shared = pl.sum_horizontal("shared_static", "shared_dynamic", ignore_nulls=False)
    own = table.select("process", "device", "context", "stream", "start", "end").with_columns(
        (pl.col("end") - pl.col("start")).alias("duration")
    )
    described = _described(ops, launched)
    frame = pl.concat(
        [
            own,
            table.select("name", "correlation", "grid", "block", "registers"),
            table.select(shared.alias("shared_memory")),
            table.select("graph", "graph_node"),
            described,
            pl.DataFrame(
                [
                    shares["matrix_flops"],
                    shares["vector_flops"],
                    shares["flops"],
                    shares["bytes"],
                    _tensor_core(table["name"]),
                    tensor["tc_eligible"],
                    tensor["tc_ready"],
                    tensor["tc_reason"],
                    spread("reason", list(REASONS), launched.reason),
                    pl.Series("inferred", launched.inferred),
                ]
            ),
        ],
        how="horizontal",
    )
    return name_fused(frame) if matching(table["name"], GENERATED).any() else frame


def _executions(costing: Ints, replay: NDArray[np.int32]) -> Ints:
    """Per kernel a number for each time that its op ran: each replay of a graph is one more."""
    if not (replay >= 0).any():
        return costing
    _, number = np.unique(np.stack((costing, replay), axis=1), axis=0, return_inverse=True)
    return np.where(costing >= 0, number.reshape(-1), NONE)


def memops_frame(ops: Ops) -> pl.DataFrame:
    """One row per copy or set: where, when (ns), kind, bytes, and the op that asked for it."""
    table, launched = ops.attribution.trace["memops"], ops.attribution.memops
    own = table.select("process", "device", "context", "stream", "start", "end").with_columns(
        (pl.col("end") - pl.col("start")).alias("duration")
    )
    rest = table.select(
        "kind", "src_kind", "dst_kind", "peer", "bytes", "correlation", "graph_node"
    )
    reason = spread("reason", list(REASONS), launched.reason)
    return pl.concat(
        [own, rest, _described(ops, launched), pl.DataFrame([reason])], how="horizontal"
    )


def _described(ops: Ops, launched: Launched) -> pl.DataFrame:
    """The launch's times and the op's columns; each distinct op is described once."""
    ranges, calls = ops.attribution.trace["ranges"], ops.attribution.trace["calls"]
    distinct, place = np.unique(launched.op[launched.op >= 0], return_inverse=True)
    code = np.full(len(launched.op), NONE, np.int64)
    code[launched.op >= 0] = place
    about = ops.describe(distinct.astype(np.int64), inherit=True)
    return pl.DataFrame(
        [
            gather(calls["start"], launched.call).alias("call_start"),
            gather(calls["end"], launched.call).alias("call_end"),
            gather(ranges["id"], launched.op).alias("op_id"),
            gather(about.call["op"], code),
            gather(about.call["op_type"], code),
            gather(about.direction, code),
            gather(about.seq, code),
            gather(about.layer, code),
            gather(about.step, code),
            gather(about.source, code),
            *(gather(about.call[name], code) for name in ("inputs", "outputs", "dtypes", "params")),
        ]
    )


def _tensor_core(names: pl.Series) -> pl.Series:
    """Whether each kernel, by its name, computes on Tensor Cores; null where the name cannot tell."""
    codes, distinct = compact(names)
    known = pl.Series([None if name is None else used(name) for name in distinct], dtype=pl.Boolean)
    return gather(known, codes).alias("tensor_core")
