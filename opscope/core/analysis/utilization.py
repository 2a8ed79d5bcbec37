"""Model FLOPs utilisation and hardware FLOPs utilisation of each step.

MFU counts what the model needs, forward and backward once; HFU counts what was done, recomputation
included (A. Chowdhery et al., "PaLM", 2022, appendix B; V. Korthikanti et al., "Reducing Activation
Recomputation", 2022). Both over the dense peak of the dtype that most of the step's FLOPs are in.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.perf.devices import Device

from .roofline import utilization
from .summary import ended_steps

#: Forward ops that no backward is made of: seen in backward, they compute an activation again.
RECOMPUTED: Final = (
    r"^aten::(addmm|baddbmm|linear|convolution|_convolution|cudnn_convolution|mkldnn_convolution|"
    r"_flash_attention_forward|_efficient_attention_forward|_scaled_dot_product_\w+_attention)"
    r"(\.\w+)?$"
)
#: A fused attention's backward makes the scores again: one of its five products (equal head sizes).
_SCORES_AGAIN: Final = (1, 5)


def step_utilization(
    ranges: pl.DataFrame, ops: pl.DataFrame, device: Device | None, devices: int = 1
) -> pl.DataFrame:
    """One row per step and process: step, process, time (ns), done_flops, model_flops, dtype, mfu, hfu.

    ``ranges`` is the trace's table, ``ops`` the profile's ops (``step``, ``process``, ``canonical``,
    ``op``, ``op_type``, ``direction``, ``dtypes``, ``matrix_flops``). ``devices`` is how many of the
    device a process uses. Matrix FLOPs alone count, as in both papers; mfu and hfu are null where the
    peak is not known.
    """
    steps = (
        ended_steps(ranges)
        .select(
            "process",
            pl.col("text").cast(pl.String).str.extract(r"(\d+)$").cast(pl.Int64).alias("step"),
            "start",
            "end",
        )
        .filter(pl.col("step").is_not_null())
        .group_by("process", "step")
        .agg((pl.col("end") - pl.col("start")).sum().alias("time"))
    )
    name = pl.col("op").cast(pl.String)
    backward = pl.col("direction").cast(pl.String) == "backward"
    over, under = _SCORES_AGAIN
    again = (
        pl.when(backward & name.str.contains(RECOMPUTED))
        .then(pl.col("matrix_flops"))
        .when(backward & (pl.col("op_type").cast(pl.String) == "attention"))
        .then(pl.col("matrix_flops") * over // under)
        .otherwise(0)
    )
    counted = ops.filter(pl.col("canonical") & (pl.col("matrix_flops") > 0)).select(
        "process",
        pl.col("step").cast(pl.Int64),
        "matrix_flops",
        again.alias("again"),
        pl.col("dtypes").cast(pl.String).str.split(",").list.first().alias("dtype"),
    )
    main = (
        counted.group_by("process", "step", "dtype")
        .agg(pl.col("matrix_flops").sum())
        .sort("matrix_flops", descending=True)
        .group_by("process", "step")
        .agg(pl.col("dtype").first())
    )
    done = counted.group_by("process", "step").agg(
        pl.col("matrix_flops").sum().alias("done_flops"),
        (pl.col("matrix_flops") - pl.col("again")).sum().alias("model_flops"),
    )
    table = (
        steps.join(done, on=["process", "step"], how="left")
        .join(main, on=["process", "step"], how="left")
        .sort("process", "step")
    )
    shares = [
        [
            None
            if row[column] is None or row["dtype"] is None
            else utilization(row[column], row["time"] * devices, device, row["dtype"])
            for row in table.iter_rows(named=True)
        ]
        for column in ("model_flops", "done_flops")
    ]
    return table.with_columns(
        pl.Series("mfu", shares[0], dtype=pl.Float64), pl.Series("hfu", shares[1], dtype=pl.Float64)
    ).select("step", "process", "time", "done_flops", "model_flops", "dtype", "mfu", "hfu")
