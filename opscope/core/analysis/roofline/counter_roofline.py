"""The roofline as measured by counters beside the model's, op by op, with the differences.

The model gives the least work of an op; counters give the work of its kernels. Both get the same roof: a
difference of the FLOPs is padding, recomputation, a fast algorithm or an error of the model; a difference of
the bytes is cache reuse, spilling, or data that is read again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.roofline.counter_table import EMPTY, FORMS, beside_the_model
from opscope.core.analysis.roofline.counter_work import counted_work
from opscope.core.analysis.roofline.counters import Executions, counter_executions
from opscope.core.analysis.roofline.roofline import roofline
from opscope.core.perf import tensorcore
from opscope.core.perf.devices.kernel_names import which_use_tensor_cores
from opscope.core.perf.devices.of_trace import no_matrix_units
from opscope.core.perf.devices.peaks import Device
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, gather
from opscope.core.tables.intervals import NONE, Ints

#: The columns of ``counter_roofline``.
COLUMNS: Final = (
    *("op", "inputs", "direction", "name", "calls", "kernels", "duration"),
    *("model_flops", "counted_flops", "flops_difference"),
    *("model_bytes", "counted_bytes", "bytes_difference"),
    *("model_intensity", "counted_intensity", "model_bound", "counted_bound"),
    *("model_efficiency", "counted_efficiency", "model_reason", "counted_reason"),
)
_COST: Final = (
    *("matrix_flops", "vector_flops", "masked_flops", "bytes", "dtype", "reason", "bytes_reason"),
)
_KEYS: Final = ("op", "inputs", "direction", "name")
#: Precisions of tensors for which half-precision instructions count as an op's work.
_HALVES: Final = ("f16", "bf16")
_MOVES: Final = (
    "half-precision instructions ran, and the types of the op's tensors are not known: compilers also move"
    " constants by them"
)
_SOME: Final = "not all kernels of the op were measured"
_NO_OP: Final = "the kernel's op is not known"


def counter_roofline(
    ops: Ops, executions: Executions, kernels: pl.DataFrame, device: Device | None
) -> pl.DataFrame:
    """Return one row per op, inputs and direction with measured kernels, the most time first.

    ``kernels`` is ``measured_kernels``. A kernel without an op is in a row of its name. The sums of the model
    and of the counters are over the same ``calls``. FLOPs of counters are those of f64 and f32 instructions
    and of the Tensor Cores, and half-precision instructions if the op has a tensor of f16 or bf16. ``_bound``
    is the unit that takes the longest at its peak; the efficiencies are null without durations or a known
    device.
    """
    each = _kernels(ops, executions, kernels)
    calls = _calls(ops, each)
    grouped = _group(calls)
    grouped = _rate(grouped, device)
    order = pl.coalesce("duration", pl.lit(0))
    return grouped.sort(order, pl.coalesce("counted_flops", pl.lit(0)), "op", "inputs", "name",
                     descending=[True, True, False, False, False]).select(COLUMNS)  # fmt: skip


def _kernels(ops: Ops, executions: Executions, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return per measured kernel the op that its work counts for, and its FLOPs, bytes and time."""
    owner = ops.costs.cost_owners(executions.op)
    owner = np.where(owner >= 0, owner, executions.op)
    replay = at(ops.attribution.kernels.replay, executions.kernel)
    reading = at(ops.costs.place, owner)
    work = counted_work(executions.values, len(executions))
    proven = _without_products(ops, kernels["name"], executions.op)
    unknown = work["tensor_flops"].is_null()
    tensor = work["tensor_flops"].set(unknown & proven, 0)
    dtypes = _dtypes(ops, owner)
    half = dtypes.list.set_intersection(list(_HALVES)).list.len() > 0
    extra = (
        pl.when((pl.col("f16_flops") == 0) | pl.col("half").not_())
        .then(0)
        .when("half")
        .then("f16_flops")
    )
    each = work.with_columns(
        tensor.alias("tensor_flops"),
        half.alias("half"),
        pl.Series("owner", owner),
        pl.Series("replay", replay.astype(np.int64)),
        pl.Series("place", reading.astype(np.int64)),
        kernels["name"],
        kernels["duration"],
    )
    return each.with_columns(
        (pl.col("f64_flops") + pl.col("f32_flops") + extra).alias("off_tensor"),
        pl.coalesce("duration", "counted_time").alias("duration"),
    ).with_columns(
        (pl.col("off_tensor") + pl.col("tensor_flops")).alias("counted_flops"),
        pl.when(pl.col("off_tensor").is_null())
        .then(pl.coalesce("no_vector", pl.lit(_MOVES)))
        .when(pl.col("tensor_flops").is_null())
        .then("no_tensor")
        .alias("no_flops"),
    )


def _without_products(ops: Ops, names: pl.Series, op: Ints) -> pl.Series:
    """Return whether each kernel is proven to use no Tensor Cores: by its name, its op or its device."""
    if no_matrix_units(ops.attribution.trace["devices"]):
        return pl.repeat(True, len(names), eager=True)
    distinct = names.unique(maintain_order=True)
    by_name = dict(zip(distinct.to_list(), which_use_tensor_cores(distinct.to_list()), strict=True))
    named = pl.Series([by_name[name] for name in names.to_list()], dtype=pl.Boolean)
    kind = gather(ops.readings["op_type"], at(ops.attribution.meaning.reading, op)).cast(pl.String)
    by_op = kind.is_in(list(tensorcore.WITHOUT_PRODUCTS)).fill_null(False)
    without: pl.Series = (~named).fill_null(False) | (by_op & named.is_null())
    return without


def _dtypes(ops: Ops, rows: Ints) -> pl.Series:
    """Return the dtypes of each op's tensors, as a list; null if they are not known."""
    distinct, index = np.unique(rows, return_inverse=True)
    described = ops.identify(distinct.astype(np.int64), inherit=True)
    texts = described.call["dtypes"].cast(pl.String)
    dtypes = texts.str.extract_all(r"[a-z]+\d\w*|bool")
    dtypes = dtypes.set(dtypes.list.len() == 0, None)
    return gather(dtypes, np.where(rows >= 0, index.reshape(-1), NONE))


def _calls(ops: Ops, each: pl.DataFrame) -> pl.DataFrame:
    """Return one row per execution of an op with measured kernels; an incomplete side is null."""
    launched = ops.attribution.kernels
    owners = ops.costs.cost_owners(launched.op.astype(np.int64))
    owners = np.where(owners >= 0, owners, launched.op)
    measured = (
        pl.DataFrame({"owner": owners.astype(np.int64), "replay": launched.replay.astype(np.int64)})
        .group_by("owner", "replay")
        .agg(pl.len().alias("launched"))
    )
    # a kernel without an op is an execution by itself
    alone = pl.when(pl.col("owner") < 0).then("execution").otherwise(NONE).alias("alone")
    sums = each.with_columns(alone).group_by("owner", "replay", "place", "alone").agg(
        pl.len().alias("kernels"),
        pl.col("name").first(),
        *(
            pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)
            for name in ("duration", "off_tensor", "tensor_flops", "counted_flops", "dram_bytes")
        ),
        *(pl.col(name).drop_nulls().first() for name in ("no_flops", "no_dram")),
        pl.col("execution").min(),
    )  # fmt: skip
    sums = sums.join(measured, on=["owner", "replay"], how="left").sort("execution")
    part = (pl.col("owner") >= 0) & (pl.col("launched") > pl.col("kernels")).fill_null(False)
    counted = ("duration", "off_tensor", "tensor_flops", "counted_flops", "dram_bytes")
    sums = sums.with_columns(
        *(pl.when(~part).then(name).alias(name) for name in counted),
        pl.when(part).then(pl.lit(_SOME)).otherwise("no_flops").alias("no_flops"),
        pl.when(part).then(pl.lit(_SOME)).otherwise("no_dram").alias("no_dram"),
        pl.when(pl.col("owner") < 0).then("name").alias("name"),
    )
    owner, reading = sums["owner"].to_numpy(), sums["place"].to_numpy()
    described = ops.identify(owner, inherit=True)
    catalogue = ops.costs.catalogue
    cost = {name: gather(catalogue[name], reading) for name in _COST}
    masked = cost["masked_flops"].fill_null(0)
    why = pl.coalesce("reason", "bytes_reason")
    return sums.with_columns(
        described.call["op"].cast(pl.String).alias("op"),
        described.call["inputs"].cast(pl.String).alias("inputs"),
        described.direction.cast(pl.String).alias("direction"),
        (cost["matrix_flops"] - masked).alias("model_matrix"),
        cost["vector_flops"].alias("model_vector"),
        cost["bytes"].alias("model_bytes"),
        cost["dtype"].alias("dtype"),
        cost["reason"],
        cost["bytes_reason"],
    ).with_columns(
        pl.when(pl.col("owner") < 0).then(pl.lit(_NO_OP)).otherwise(why).alias("model_reason")
    )


def _group(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the sums over equal calls; a sum is null if one of its calls is not known."""
    summed = (
        *("duration", "off_tensor", "tensor_flops", "counted_flops", "dram_bytes"),
        *("model_matrix", "model_vector", "model_bytes"),
    )
    grouped = calls.group_by(_KEYS, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("kernels").sum().cast(pl.Int64),
        *(
            pl.when(pl.col(counter).null_count() == 0).then(pl.col(counter).sum()).alias(counter)
            for counter in summed
        ),
        pl.col("dtype").drop_nulls().first(),
        pl.col("model_reason").drop_nulls().first(),
        pl.col("no_flops").drop_nulls().first(),
        pl.col("no_dram").drop_nulls().first(),
    )
    both = pl.concat_str("no_flops", "no_dram", separator="; ", ignore_nulls=True)
    same = pl.col("no_flops") == pl.col("no_dram")
    return grouped.with_columns(
        (pl.col("model_matrix") + pl.col("model_vector")).alias("model_flops"),
        pl.col("dram_bytes").alias("counted_bytes"),
        pl.when(same)
        .then("no_flops")
        .when(pl.col("no_flops").is_not_null() | pl.col("no_dram").is_not_null())
        .then(both)
        .alias("counted_reason"),
    ).with_columns(
        _difference("counted_flops", "model_flops").alias("flops_difference"),
        _difference("counted_bytes", "model_bytes").alias("bytes_difference"),
    )


def _difference(counted: str, model: str) -> pl.Expr:
    return pl.when(pl.col(model) > 0).then(pl.col(counted) / pl.col(model) - 1)


def _rate(table: pl.DataFrame, device: Device | None) -> pl.DataFrame:
    """Return the groups with the roofline of either side."""
    timed = pl.col("duration").is_not_null()
    for side, matrix, vector, moved in (
        ("model", "model_matrix", "model_vector", "model_bytes"),
        ("counted", "tensor_flops", "off_tensor", "counted_bytes"),
    ):
        work = table.select(
            # without a duration, only the bound is needed, which then depends on the units alone
            pl.coalesce("duration", pl.lit(1)).alias("duration"),
            timed.alias("timed"),
            pl.col(matrix).alias("matrix_flops"),
            pl.col(vector).alias("vector_flops"),
            pl.col(moved).alias("bytes"),
            pl.coalesce("dtype", pl.lit("f32")).alias("dtype"),
            (pl.col("tensor_flops") > 0).alias("tensor_core"),
        )
        rated = roofline(work, device)
        table = table.with_columns(
            rated["intensity"]
            .set(~rated["intensity"].is_finite(), None)
            .alias(f"{side}_intensity"),
            rated["bound"].cast(pl.String).alias(f"{side}_bound"),
            rated["efficiency"].set(~rated["timed"], None).alias(f"{side}_efficiency"),
        )
    return table


def answer(profile: Answers) -> pl.DataFrame:
    """The measured roofline beside the model's, by op and inputs, with the differences.

    Both sides are sums over the same calls. A side that is not known for all calls is null, with a
    reason.
    """
    executions = profile.of(counter_executions)
    return counter_roofline(profile.of(op_index), executions, profile.counters(), profile.device[0])


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "counter_roofline()",
            (
                "one row per op, inputs and direction of which kernels were measured, by duration; "
                "kernels without an op are one row per name"
            ),
            columns(
                "op inputs direction name calls kernels duration model_flops counted_flops "
                "flops_difference model_bytes counted_bytes bytes_difference "
                "model_intensity counted_intensity model_bound counted_bound "
                "model_efficiency counted_efficiency model_reason counted_reason",
                """
                name: text: the kernel's name, if its op is not known
                calls: count: executions of the op of which kernels were measured
                kernels: count: kernels that were measured
                duration: ns: durations of these kernels; null if the trace and the counters have none
                model_flops: FLOP: FLOPs of these calls by the cost model, without those that a mask saves
                counted_flops: FLOP: FLOPs that counters measured, on and off the Tensor Cores
                flops_difference: fraction: counted_flops / model_flops - 1
                model_bytes: bytes: minimum bytes that the ops must read and write, by the cost model
                counted_bytes: bytes: bytes read from and written to the device's memory, as measured
                bytes_difference: fraction: counted_bytes / model_bytes - 1
                model_intensity: FLOP/byte: model_flops / model_bytes
                counted_intensity: FLOP/byte: counted_flops / counted_bytes
                model_bound: text: the unit that takes the longest by the model: tensor, vector, memory;
                    latency
                counted_bound: text: the unit that takes the longest as measured: tensor, vector, memory;
                    latency
                model_efficiency: fraction: time at the roof by the model's FLOPs and bytes / duration
                counted_efficiency: fraction: time at the roof by the measured FLOPs and bytes / duration
                model_reason: text: why the model's FLOPs or bytes are null; null if they are known
                counted_reason: text: why the measured FLOPs or bytes are null; null if they are known
                """,
            ),
        ),
    ),
    merged=lacking.EXECUTIONS,
    reports=(
        Report(
            name="counter_roofline",
            title="Roofline measured and modelled",
            empty=EMPTY,
            shown=(
                "op inputs name calls duration model_flops counted_flops flops_difference "
                "model_bytes counted_bytes bytes_difference model_intensity counted_intensity "
                "model_bound counted_bound model_efficiency counted_efficiency counted_reason "
                "model_reason"
            ),
            forms=FORMS,
            table=beside_the_model,
            gpu_only=True,
            aliases=("measured_roofline",),
        ),
    ),
)
