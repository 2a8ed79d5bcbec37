"""The kernels and copies of a trace, each with the op that launched it, its layer and step, and its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.costs import cost_column
from opscope.core.analysis.ops.executed import ALL_FLOPS, KernelCosts, kernel_executions
from opscope.core.analysis.ops.ops import Ops, first, op_index
from opscope.core.attribution.attribute import REASONS, Launched
from opscope.core.attribution.compiled_regions import GENERATED, name_fused, region_as_layer
from opscope.core.question.column import Frame
from opscope.core.question.record import Question
from opscope.core.question.words import columns
from opscope.core.tables.columns import any_matches, at, gather, matching, pieces, spread
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import range_ids

_ABOUT: Final = (
    "call_start", "call_end", "op_id", "op", "op_type", "direction", "seq", "layer", "step",
    "source", "range", "inputs", "outputs", "dtypes", "params",
)  # fmt: skip
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


#: Kernels per piece: all columns together take 200 bytes per kernel while they are computed.
_ROWS: Final = 125_000
_TENSOR_CORE = ("tc_eligible", "tc_ready", "tc_reason", "tc_unused")


def kernels_frame(ops: Ops, executed: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kernel, with the columns of ``Profile.kernels``. Times in ns, bytes, FLOP.

    ``executed`` is ``executed_kernels(ops)``.
    """
    return pl.concat(kernel_pieces(ops, executed))


def kernel_pieces(ops: Ops, executed: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield ``kernels_frame`` in pieces that fit in memory, in order; at least one piece."""
    table, launched = ops.attribution.trace["kernels"], ops.attribution.kernels
    # one kernel on Tensor Cores proves that its op used them; if no kernel did, the most likely reason is
    # given
    used, hidden = (np.zeros(len(ops.attribution.is_op), bool) for _ in range(2))
    for marks, which in (
        (used, executed["tensor_core"].fill_null(False)),
        (hidden, executed["tensor_core"].is_null()),
    ):
        of = launched.op[which.to_numpy()]
        marks[of[of >= 0]] = True
    for part in pieces(len(table), _ROWS):
        yield _piece(ops, table[part], executed[part], launched.part(part), used, hidden)


def _piece(
    ops: Ops,
    table: pl.DataFrame,
    executed: pl.DataFrame,
    launched: Launched,
    on_tensor_cores: NDArray[np.bool_],
    hidden: NDArray[np.bool_],
) -> pl.DataFrame:
    owners = ops.costs.cost_owners(launched.op.astype(np.int64))
    about = _described(ops, launched)
    frame = table.select(
        "process",
        "device",
        "context",
        "stream",
        "start",
        "end",
        *("name", "correlation", "grid", "block", "registers"),
        shared_memory().alias("shared_memory"),
        *("graph", "graph_node"),
    ).with_columns(
        *(column for column in about if column.name not in executed.columns),
        *executed.with_columns(ALL_FLOPS)
        .drop("process", "device", "start", "end", "name", "launched")
        .get_columns(),
        *(cost_column(ops.costs, n, owners) for n in _TENSOR_CORE),
        pl.Series("inferred", launched.inferred),
    )
    used = pl.lit(pl.Series(at(on_tensor_cores, launched.op, False)))
    # give the reason why Tensor Cores were not used only if they are known not to have been used
    unused = pl.when(~pl.lit(pl.Series(at(hidden, launched.op, False)))).then("tc_unused")
    why = pl.when(pl.col("tc_ready").is_null()).then(pl.coalesce(unused, "tc_reason"))
    frame = frame.with_columns(
        pl.when(pl.col("tc_eligible") & used).then(True).otherwise("tc_ready").alias("tc_ready"),
        pl.when(pl.col("tc_eligible") & ~used)
        .then(why.otherwise(pl.coalesce("tc_reason", unused)))
        .alias("tc_reason"),
    )
    if matching(table["name"], GENERATED).any():
        region = about[_ABOUT.index("op")]
        frame = frame.with_columns(region_as_layer(frame, region))
    return frame.select(KERNEL_COLUMNS)


def shared_memory() -> pl.Expr:
    """A kernel's shared memory: static plus dynamic, or the only figure of the source, which is then the
    sum."""
    both = pl.col("shared_static", "shared_dynamic")
    is_stated = pl.any_horizontal(both.is_not_null())
    return pl.when(is_stated).then(pl.sum_horizontal("shared_static", "shared_dynamic"))


def memops_frame(ops: Ops) -> pl.DataFrame:
    """Return one row per copy or set: its device and stream, times (ns), kind, bytes, and its op."""
    table, launched = ops.attribution.trace["memops"], ops.attribution.memops
    duration = (table["end"] - table["start"]).alias("duration")
    reason = spread("reason", list(REASONS), launched.reason)
    frame = table.with_columns(duration, *_described(ops, launched), reason)
    return frame.select(MEMOP_COLUMNS)


class Told:
    """Looks up the op and the costs of selected rows of ``kernels`` or ``memops``: the columns of
    ``kernels_frame`` and ``memops_frame``, using memory for these rows only."""

    def __init__(self, ops: Ops, table: str, costs: pl.DataFrame | None = None) -> None:
        """``costs``: matrix_flops, vector_flops and bytes of each kernel, where they are known already."""
        self._ops, self._table = ops, ops.attribution.trace[table]
        self._launched: Launched = getattr(ops.attribution, table)
        self._generated = table == "kernels" and any_matches(self._table["name"], GENERATED)
        if table == "memops":
            self._costs: Callable[[Ints], pl.DataFrame] = self._table.select("bytes").__getitem__
        elif costs is not None:
            self._costs = costs.select(ALL_FLOPS, "bytes").__getitem__
        else:
            kernel_costs = KernelCosts(ops)
            self._costs = lambda rows: kernel_costs.of(rows).select(ALL_FLOPS, "bytes")

    def of(self, rows: Ints) -> pl.DataFrame:
        """Return op, layer, source, direction, inputs, reason, flops (of kernels), bytes and step of rows."""
        ops, launched = self._ops, self._launched.part(rows)
        distinct, code = _distinct_ops(launched)
        about = ops.identify(distinct, inherit=True)
        step = gather(ops.context.step(*ops.places(distinct)), code)
        table = pl.DataFrame(
            [
                *(gather(about.call[name], code) for name in ("op", "op_type", "inputs")),
                _layers(ops, launched, gather(about.layer, code)).alias("layer"),
                gather(about.source, code),
                gather(about.direction, code),
                spread("reason", list(REASONS), launched.reason),
                *self._costs(rows).get_columns(),
                _executed_in(ops, launched, step).alias("step"),
            ]
        )
        if self._generated:
            named = name_fused(table.with_columns(self._table["name"].gather(rows)))
            table = named.with_columns(region_as_layer(named, table["op"])).drop("name")
        return table.drop("op_type")


def _distinct_ops(launched: Launched) -> tuple[Ints, NDArray[np.int32]]:
    """Return the ops of kernels or copies, each once, and the op of each kernel or copy (-1: none)."""
    distinct, index = np.unique(launched.op[launched.op >= 0], return_inverse=True)
    code = np.full(len(launched.op), NONE, np.int32)
    code[launched.op >= 0] = index
    return distinct.astype(np.int64), code


def _layers(ops: Ops, launched: Launched, layer: pl.Series) -> pl.Series:
    """Return the layers of kernels or copies, given their ops' layers ``layer``."""
    bare = np.flatnonzero((launched.op < 0) & (launched.call >= 0))
    if len(bare):  # without an op, the launch gives the layer
        where = called(ops.attribution.trace["calls"], launched.call[bare])
        layer = layer.scatter(bare, ops.context.layer(*where))
    return layer


def _described(ops: Ops, launched: Launched) -> list[pl.Series]:
    """Return the launch's times and the op's columns, in the order of ``_ABOUT``; each op described once."""
    ranges, calls = ops.attribution.trace["ranges"], ops.attribution.trace["calls"]
    distinct, code = _distinct_ops(launched)
    about = ops.describe(distinct, inherit=True)
    inside = first(launched_in(ops, launched.call), gather(about.range, code))
    step = _executed_in(ops, launched, gather(about.step, code))
    layer = _layers(ops, launched, gather(about.layer, code))
    columns = [
        about.call["op"],
        about.call["op_type"],
        about.direction,
        about.seq,
    ]
    return [
        gather(calls["start"], launched.call).alias("call_start"),
        gather(calls["end"], launched.call).alias("call_end"),
        gather(range_ids(ranges), launched.op).alias("op_id"),
        *(gather(column, code) for column in columns),
        layer.alias("layer"),
        step.alias("step"),
        gather(about.source, code),
        inside.alias("range"),
        *(gather(about.call[name], code) for name in ("inputs", "outputs", "dtypes", "params")),
    ]


def kernel_steps(ops: Ops, launched: Launched) -> pl.Series:
    """Return the step of each kernel or copy, as in ``kernels_frame``; null if it is not known."""
    distinct, code = _distinct_ops(launched)
    steps = ops.context.step(*ops.places(distinct))
    return _executed_in(ops, launched, gather(steps, code))


def _executed_in(ops: Ops, launched: Launched, step: pl.Series) -> pl.Series:
    """Return the steps of kernels, given their ops' steps ``step``."""
    calls = ops.attribution.trace["calls"]
    replayed = np.flatnonzero(launched.replay >= 0)
    if len(replayed):  # an op in a CUDA graph is captured in one step and its kernels run in others
        step = step.scatter(replayed, ops.context.step(*called(calls, launched.replay[replayed])))
    bare = np.flatnonzero((launched.op < 0) & (launched.call >= 0))
    if len(bare):  # without an op, the launch gives the step
        step = step.scatter(bare, ops.context.step(*called(calls, launched.call[bare])))
    return step


def launched_in(ops: Ops, call: NDArray[np.int32]) -> pl.Series:
    """Return the innermost user range open at the start of each call (-1: null), Categorical."""
    return ops.context.user(*called(ops.attribution.trace["calls"], call)).alias("range")


def called(calls: pl.DataFrame, call: NDArray[np.int32]) -> tuple[Ints, Ints, Ints]:
    """Return process, thread and start (ns) of calls; for -1, values that no range has."""
    process, thread, time = (
        gather(calls[name].fill_null(NONE), call).fill_null(NONE - 1).to_numpy()
        for name in ("process", "thread", "start")
    )
    return process, thread, time


def told_of(profile: Answers, table: str) -> Told:
    """Look up the op and the costs of any rows of ``kernels`` or ``memops``, without the frames of all
    rows."""
    costs = None
    if table == "kernels" and profile._has(kernel_executions):
        costs = profile.of(kernel_executions)
    return Told(profile.of(op_index), table, costs)


def answer_kernels(profile: Answers, *, categories: bool = False) -> pl.DataFrame:
    """Every kernel execution, with the op that launched it; ``reason`` says why a kernel has no op.

    An op's FLOPs and bytes are divided among its kernels by duration, so that columns can be added up.
    """
    return kernels_frame(profile.of(op_index), profile.of(kernel_executions))


def answer_memops(profile: Answers, *, categories: bool = False) -> pl.DataFrame:
    """Every copy and set, with the op that launched it; ``reason`` says why a copy or set has no op."""
    return memops_frame(profile.of(op_index))


QUESTION = (
    Question(
        answer=answer_kernels,
        frames=(
            Frame(
                "kernels()",
                (
                    "one row per kernel execution; an op's FLOPs and bytes are divided among its "
                    "kernels by duration"
                ),
                columns(
                    "process device context stream start end duration name correlation grid "
                    "block registers shared_memory graph graph_node call_start call_end op_id "
                    "op op_type direction seq layer step source range inputs outputs dtypes "
                    "params matrix_flops vector_flops flops bytes tensor_core tc_eligible "
                    "tc_ready tc_reason reason inferred",
                    """
                    graph: number: the CUDA graph that replayed it
                    tc_ready: yes/no: whether this call of the op can use Tensor Cores
                    tc_reason: text: why Tensor Cores are not used although they could be
                    inferred: yes/no: whether its op was inferred from an order instead of read from the
                        trace
                    """,
                ),
            ),
        ),
    ),
    Question(
        answer=answer_memops,
        frames=(
            Frame(
                "memops()",
                "one row per copy or set",
                columns(
                    "process device context stream start end duration kind src_kind dst_kind "
                    "peer bytes correlation graph_node call_start call_end op_id op op_type "
                    "direction seq layer step source range inputs outputs dtypes params reason",
                    """
                    kind: text: direction of a copy: HtoD, DtoH, DtoD, HtoH, PtoP …; memset for a set
                    peer: number: the other device of a copy between two devices
                    bytes: bytes: bytes copied or set
                    """,
                ),
            ),
        ),
    ),
)
