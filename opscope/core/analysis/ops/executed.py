"""The kernels and copies with only the columns that totals need: ten million kernels fit in memory."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.costs import Shares, Sharing, cost_column
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.attribution.attribute import REASONS, Launched
from opscope.core.attribution.compiled_regions import GENERATED, name_fused
from opscope.core.perf import tensorcore
from opscope.core.perf.devices.kernel_names import which_use_tensor_cores
from opscope.core.perf.devices.of_trace import no_matrix_units
from opscope.core.tables.columns import ahead, at, compact, gather, matching, pairs, pieces, spread
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.mapped import Mapped, zeros

_COSTS: Final = ("matrix_flops", "vector_flops", "bytes")
#: The column ``flops`` of ``executed_kernels``: computed when needed, to save 8 bytes per kernel.
ALL_FLOPS: Final = (pl.col("matrix_flops") + pl.col("vector_flops")).alias("flops")


def executed_kernels(ops: Ops) -> pl.DataFrame:
    """Return one row per kernel: process, device, start, end, duration (ns), name, launched, op, op_type,
    reason, matrix_flops, vector_flops, bytes, tensor_core; ALL_FLOPS adds up the two kinds of FLOPs.

    FLOPs and bytes are the op's, split over its kernels by duration; the parts sum to the op's total.
    ``launched`` is whether the kernel has a launch record.
    """
    table, launched = ops.attribution.trace["kernels"], ops.attribution.kernels
    frame = _where(table, launched).with_columns(_whose(ops, table, launched).get_columns())
    frame = frame.with_columns(kernel_costs(ops).get_columns())
    return frame.with_columns(
        _tensor_core(frame, no_matrix_units(ops.attribution.trace["devices"])),
    )


def kernel_costs(ops: Ops) -> pl.DataFrame:
    """Return matrix_flops, vector_flops and bytes of each kernel, as in ``executed_kernels``."""
    table, launched = ops.attribution.trace["kernels"], ops.attribution.kernels
    owners = _cost_owners(ops, launched.op)
    if owners.max(initial=NONE) == NONE:  # as in a trace without ops: one column of nulls is enough
        nothing = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(table))
        return _as_the_compiler_wrote(pl.DataFrame([nothing.alias(name) for name in _COSTS]), table)
    duration = table.select(pl.col("end") - pl.col("start")).to_series().to_numpy()
    sharing = Sharing(_executions(owners, launched.replay), duration)
    frame = pl.DataFrame(
        [sharing.split(cost_column(ops.costs, name, owners)).alias(name) for name in _COSTS]
    )
    return _as_the_compiler_wrote(frame, table)


class KernelCosts:
    """Returns for selected kernels the values of ``kernel_costs``, without computing the columns of all
    kernels."""

    def __init__(self, ops: Ops) -> None:
        mapped = ops.attribution.mapped
        self._ops, self._table = ops, ops.attribution.trace["kernels"]
        launched = ops.attribution.kernels
        self._owners = _cost_owners(ops, launched.op, mapped)
        executions = _executions(self._owners, launched.replay)
        self._shares = Shares(executions, self._table["start"], self._table["end"], mapped)

    def of(self, rows: Ints) -> pl.DataFrame:
        """Return matrix_flops, vector_flops and bytes of some kernels."""
        owners = self._owners[rows]
        if owners.max(initial=NONE) == NONE:
            nothing = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(rows))
            frame = pl.DataFrame([nothing.alias(name) for name in _COSTS])
        else:
            frame = pl.DataFrame(
                [
                    self._shares.split(rows, cost_column(self._ops.costs, name, owners)).alias(name)
                    for name in _COSTS
                ]
            )
        return _as_the_compiler_wrote(frame, self._table[rows])


def uses_tensor_cores(ops: Ops) -> pl.Series:
    """Return whether each kernel uses Tensor Cores, as in ``executed_kernels``; computed piece by piece,
    without the frame."""
    table, launched = ops.attribution.trace["kernels"], ops.attribution.kernels
    without = no_matrix_units(ops.attribution.trace["devices"])
    return pl.concat(
        _tensor_core(_whose(ops, table[part], launched.part(part)), without)
        for part in pieces(len(table))
    )


def _whose(ops: Ops, table: pl.DataFrame, launched: Launched) -> pl.DataFrame:
    """Return name, op, op_type and reason of kernels."""
    frame = pl.DataFrame(
        [
            table["name"],
            *_name(ops, launched),
            spread("reason", list(REASONS), launched.reason),
        ]
    )
    return name_fused(frame) if matching(table["name"], GENERATED).any() else frame


def _as_the_compiler_wrote(frame: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with the costs that Inductor recorded for its kernels (``kernel_flop``,
    ``kernel_num_gb``: 10^9 bytes).

    They replace the model's costs: the compiler knows what it fused.
    """
    if table.select(pl.col("attrs").null_count()).item() == len(table):
        return frame
    attrs = table["attrs"]
    has_cost = attrs.str.contains('"kernel_(flop|num_gb)"').fill_null(False)
    if not has_cost.any():
        return frame
    written = attrs.set(~has_cost, None)
    flop, giga = (
        written.str.json_path_match(f"$.{name}").cast(pl.Float64, strict=False)
        for name in ("kernel_flop", "kernel_num_gb")
    )
    is_stated = (flop.is_finite() & (flop >= 0)).fill_null(False)
    sized = (giga.is_finite() & (giga >= 0)).fill_null(False)
    return frame.with_columns(
        pl.when(is_stated)
        .then(flop.round().cast(pl.Int64, strict=False))
        .otherwise("matrix_flops")
        .alias("matrix_flops"),
        pl.when(is_stated).then(0).otherwise("vector_flops").alias("vector_flops"),
        pl.when(sized)
        .then((giga * 1e9).round().cast(pl.Int64, strict=False))
        .otherwise("bytes")
        .alias("bytes"),
    )


def executed_memops(ops: Ops) -> pl.DataFrame:
    """Return one row per copy or set: process, device, start, end, duration (ns), launched, bytes, reason."""
    table, launched = ops.attribution.trace["memops"], ops.attribution.memops
    return _where(table, launched).with_columns(
        table["bytes"], spread("reason", list(REASONS), launched.reason)
    )


def _where(table: pl.DataFrame, launched: Launched) -> pl.DataFrame:
    return table.select(
        "process",
        "device",
        "start",
        "end",
        (pl.col("end") - pl.col("start")).alias("duration"),
        pl.Series("launched", launched.call >= 0),
    )


def _name(ops: Ops, launched: Launched) -> list[pl.Series]:
    reading = at(ops.attribution.meaning.reading, launched.op)
    return [gather(ops.readings[name], reading) for name in ("op", "op_type")]


def _cost_owners(
    ops: Ops, op: NDArray[np.int32], mapped: Mapped | None = None
) -> NDArray[np.int32]:
    """Return ``Costs.cost_owners`` of op rows, a piece at a time: ten million at once take half a GiB."""
    costs, owner = ops.costs, zeros(mapped, len(op), np.int32)
    for part, rows in ahead(lambda part: costs.cost_owners(op[part].astype(np.int64)), len(op)):
        owner[part] = rows
    return owner


def _executions(owners: NDArray[np.int32], replay: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return per kernel a number for the execution of its op: each replay of a CUDA graph is another."""
    if not any((replay[part] >= 0).any() for part in pieces(len(replay))):
        return owners
    return np.where(owners >= 0, pairs(owners, replay)[2], NONE)


def _tensor_core(frame: pl.DataFrame, without: bool) -> pl.Series:
    """Return whether each kernel computes on Tensor Cores; null if it cannot be proved.

    The kernel's name may prove that it does or that it does not; its op or its device can only prove that it
    does not. ``without``: no device has Tensor Cores.
    """
    codes, distinct = compact(frame["name"])
    named = gather(pl.Series(which_use_tensor_cores(distinct), dtype=pl.Boolean), codes)
    if without:
        return named.fill_null(False).alias("tensor_core")
    families, kinds = compact(frame["op_type"])
    proven = [False if kind in tensorcore.WITHOUT_PRODUCTS else None for kind in kinds]
    by_op = gather(pl.Series(proven, dtype=pl.Boolean), families)
    return pl.select(pl.coalesce(named, by_op).alias("tensor_core")).to_series()


def kernel_executions(profile: Answers) -> pl.DataFrame:
    """The kernels with only the columns that totals need."""
    return executed_kernels(profile.of(op_index))


def copy_executions(profile: Answers) -> pl.DataFrame:
    """The copies and sets with only the columns that totals need."""
    return executed_memops(profile.of(op_index))
