"""Model FLOPs utilisation (MFU) and hardware FLOPs utilisation (HFU) of each step.

MFU counts the FLOPs that the model needs, forward and backward once; HFU counts those that were computed,
recomputation included (A. Chowdhery et al., "PaLM", 2022, appendix B; V. Korthikanti et al., "Reducing
Activation Recomputation", 2022). Both are divided by the dense peak of the dtype of most of the step's
FLOPs.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.op_frame import op_rows
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.ops.windows import captured_steps
from opscope.core.analysis.roofline.efficiency import replays
from opscope.core.analysis.summary.summary import FREE, ended_steps
from opscope.core.perf.devices.peaks import Device
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Table
from opscope.core.question.record import Question, Report, Rows, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns

#: Forward ops that are part of no backward: if one runs in backward, it recomputes an activation.
RECOMPUTED: Final = (
    r"^aten::(addmm|baddbmm|linear|convolution|_convolution|cudnn_convolution|mkldnn_convolution|"
    r"_flash_attention_forward|_efficient_attention_forward|_scaled_dot_product_\w+_attention)"
    r"(\.\w+)?$"
)
#: A fused attention's backward recomputes the scores: one of its five products (equal head sizes).
_SCORES_RECOMPUTED: Final = (1, 5)
COLUMNS: Final = (
    *("step", "process", "time", "done_flops", "model_flops", "dtype", "peak"),
    *("mfu", "hfu", "known"),
)


def step_utilization(
    ranges: pl.DataFrame,
    ops: pl.DataFrame,
    device: Device | None,
    devices: int = 1,
    *,
    recomputed: pl.Series | None = None,
    kernels: pl.DataFrame | None = None,
    replays: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return one row per step and process: step, process, time (ns), done_flops, model_flops, dtype, peak
    (FLOP/s of the process's devices together), mfu, hfu, known.

    ``ranges`` is the trace's table, ``ops`` the profile's ops (``op_id``, ``step``, ``process``,
    ``canonical``, ``op``, ``op_type``, ``direction``, ``dtypes``, ``matrix_flops``). ``recomputed`` marks the
    ops that ``Ops.recomputed`` found; ops whose name shows it count too. ``kernels``: the profile's frame,
    which gives the number of devices of a process (else ``devices``), and ``known``, the share of the step's
    device time whose FLOPs are known; below 1, MFU and HFU are lower bounds. ``replays`` has a row per replay
    of an op in a CUDA graph: op_id, time; such an op counts in the steps of its replays. Only matrix FLOPs
    count, as in both papers; mfu and hfu are null if the peak or all FLOPs are unknown.
    """
    steps = _steps(ranges)
    counted = _place(_count(ops, recomputed), replays, steps)
    main = (
        counted.group_by("process", "step", "dtype")
        .agg(pl.col("matrix_flops").sum())
        .sort("matrix_flops", "dtype", descending=[True, False])
        .group_by("process", "step", maintain_order=True)
        .agg(pl.col("dtype").first())
    )
    done = counted.group_by("process", "step").agg(
        pl.col("matrix_flops").sum().alias("done_flops"),
        (pl.col("matrix_flops") - pl.col("again")).sum().alias("model_flops"),
    )
    table = (
        steps.group_by("process", "step")
        .agg((pl.col("end") - pl.col("start")).sum().alias("time"))
        .join(done, on=["process", "step"], how="left")
        .join(main, on=["process", "step"], how="left")
        .join(_known(kernels, steps), on=["process", "step"], how="left")
        .join(_devices(kernels), on="process", how="left")
        .sort("process", "step")
    )
    peaks = {dtype: _peak(device, dtype) for dtype in table["dtype"].drop_nulls().unique()}
    peak = pl.col("dtype").replace_strict(peaks, default=None, return_dtype=pl.Float64)
    device_count = pl.col("devices").fill_null(devices)
    possible = pl.col("peak") * pl.col("time") / 1e9
    return (
        table.with_columns((peak * device_count).alias("peak"))
        .with_columns(
            pl.when(possible > 0).then(pl.col(flops) / possible).alias(name)
            for name, flops in (("mfu", "model_flops"), ("hfu", "done_flops"))
        )
        .select(COLUMNS)
    )


def _peak(device: Device | None, dtype: str) -> float | None:
    if device is None:
        return None
    return device.peak(dtype, True) or device.peak(dtype, False)


def _steps(ranges: pl.DataFrame) -> pl.DataFrame:
    text = pl.col("text").cast(pl.String)
    # at most 18 digits: more do not fit in 64 bits
    others = text.str.extract(r"(?:^|[^0-9])([0-9]{1,18})$")
    number = pl.coalesce(text.str.extract(r"^step (-[0-9]{1,18})$"), others)
    return (
        ended_steps(ranges)
        .select("process", number.cast(pl.Int64).alias("step"), "start", "end")
        .filter(pl.col("step").is_not_null())
        .sort("start")
    )


def _count(ops: pl.DataFrame, recomputed: pl.Series | None) -> pl.DataFrame:
    """Return the ops whose matrix FLOPs count, with the FLOPs that recompute something in ``again``."""
    name = pl.col("op").cast(pl.String)
    backward = pl.col("direction").cast(pl.String) == "backward"
    over, under = _SCORES_RECOMPUTED
    marked = pl.lit(False) if recomputed is None else pl.lit(recomputed)
    repeated = (
        pl.when(marked | (backward & name.str.contains(RECOMPUTED)))
        .then(pl.col("matrix_flops"))
        .when(backward & (pl.col("op_type").cast(pl.String) == "attention"))
        .then(pl.col("matrix_flops") * over // under)
        .otherwise(0)
    )
    ids = ["op_id"] if "op_id" in ops.columns else []
    return ops.select(
        *ids,
        "process",
        "canonical",
        pl.col("step").cast(pl.Int64),
        "matrix_flops",
        repeated.alias("again"),
        pl.col("dtypes").cast(pl.String).str.split(",").list.first().alias("dtype"),
    ).filter(pl.col("canonical") & (pl.col("matrix_flops") > 0))


def _place(
    counted: pl.DataFrame, replays: pl.DataFrame | None, steps: pl.DataFrame
) -> pl.DataFrame:
    """Return the ops; an op of a CUDA graph once per replay, in the step in which that was launched."""
    if replays is None or replays.is_empty():
        return counted
    replayed = replays.join(counted.drop("step"), on="op_id", how="inner")
    captured = counted.join(replays, on="op_id", how="anti")
    return pl.concat(
        [captured, _in_steps(replayed, "time", steps).select(captured.columns)],
        how="vertical_relaxed",
    )


def _in_steps(frame: pl.DataFrame, time: str, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the ``step`` of their process that is open at ``time``; null outside steps."""
    placed = frame.filter(pl.col(time).is_not_null()).sort(time)
    if steps.is_empty() or placed.is_empty():
        return placed.with_columns(pl.lit(None, pl.Int64).alias("step"))
    steps_of_kernels = placed.join_asof(
        steps.select("process", "step", "start", pl.col("end").alias("_end")),
        left_on=time,
        right_on="start",
        by="process",
        check_sortedness=False,
    )
    inside = pl.col(time) < pl.col("_end")
    return steps_of_kernels.with_columns(pl.when(inside).then("step").alias("step"))


def _known(kernels: pl.DataFrame | None, steps: pl.DataFrame) -> pl.DataFrame:
    """Return per process and step the share of launched kernel time whose FLOPs are known."""
    empty = {"process": pl.Int32, "step": pl.Int64, "known": pl.Float64}
    if kernels is None or kernels.is_empty() or steps.is_empty():
        return pl.DataFrame(schema=empty)
    free = pl.col("op_type").cast(pl.String).is_in(FREE).fill_null(False)
    is_stated = pl.col("flops").is_not_null() | free
    slim = kernels.select("process", "call_start", "duration", is_stated.alias("sure"))
    return (
        _in_steps(slim, "call_start", steps)
        .filter(pl.col("step").is_not_null())
        .group_by("process", "step")
        .agg(
            (pl.col("duration").filter(pl.col("sure")).sum() / pl.col("duration").sum()).alias(
                "known"
            )
        )
    )


def _devices(kernels: pl.DataFrame | None) -> pl.DataFrame:
    if kernels is None:
        return pl.DataFrame(schema={"process": pl.Int32, "devices": pl.Int64})
    return kernels.group_by("process").agg(
        pl.col("device").n_unique().cast(pl.Int64).alias("devices")
    )


def answer(profile: Answers) -> pl.DataFrame:
    """Model and hardware FLOPs utilization (MFU, HFU) of each step and process."""
    ops = profile.of(op_index)
    return step_utilization(
        # outside the window, the kernels that CUDA graphs replayed are not known
        captured_steps(profile.trace, ended_steps(profile.attribution.trace["ranges"])),
        profile.of(op_rows),
        profile.device[0],
        recomputed=pl.Series(ops.recomputed(ops.rows)),
        kernels=None if profile.cpu_only else profile.kernels(categories=True),
        replays=replays(ops),
    )


#: Below this share of known FLOPs the utilization is called a lower bound.
_ALMOST_ALL: Final = 0.98


def utilization_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the MFU and HFU of each step, with notes on their definition and their limits."""
    frame = report.frame(profile)
    device, why = profile.device
    against = f", against {device.name}" if device is not None else f", no peak: {why}"
    table = listed(report, frame, view, f"{report.title}{against}")
    notes = list(table.footnotes)
    if len(frame):
        notes.append(
            "MFU: model FLOPs (forward and backward once) / (wall time * dense peak of the dtype of most of "
            "them); HFU: also counts what was computed again (activation checkpointing, the scores in an "
            "attention's backward)"
        )
        if device is not None and "tf32" in device.tensor and (frame["dtype"] == "f32").any():
            notes.append(
                "f32 is compared with TF32's peak, which f32 can reach only if TF32 is allowed"
            )
        low = frame["known"].min()
        if isinstance(low, float) and low < _ALMOST_ALL:
            notes.append(
                f"lower bounds: in some step the FLOPs of only {units.share(low)} of kernel time are known "
                "(--reports missing lists the other ops)"
            )
        if frame["done_flops"].null_count() == len(frame):
            notes.append("no step has an op whose FLOPs are known; the trace may have no shapes")
    if device is not None and device.note:
        notes.append(f"warning: {device.note}")
    return Table(table.title, table.columns, table.rows, notes)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "utilization()",
            "one row per step and process",
            columns(
                "step process time done_flops model_flops dtype peak mfu hfu known",
                """
                time: ns: wall time of the step
                done_flops: FLOP: matrix FLOPs of the step, recomputation included
                peak: FLOP/s: dense peak of the dtype, summed over the process's devices
                mfu: fraction: model FLOPs utilization: model_flops / (time · peak); null if the peak is
                    not known
                hfu: fraction: hardware FLOPs utilization: done_flops / (time · peak)
                known: fraction: part of the step's kernel time whose FLOPs are known; below 1, mfu and
                    hfu are lower bounds
                """,
            ),
        ),
    ),
    merged=(Rows(),),
    reports=(
        Report(
            name="utilization",
            title="FLOPs utilization by step",
            empty="no steps in this profile",
            table=utilization_table,
            sums="",
            aliases=("mfu",),
        ),
    ),
)
