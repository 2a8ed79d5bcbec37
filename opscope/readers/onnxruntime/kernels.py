"""Read the GPU events in a profile: kernels, copies and sets, which follow the event that launched them."""

from __future__ import annotations

from typing import Final

import polars as pl

#: Names of copies and sets (onnxruntime/core/providers/cuda/cupti_manager.cc, rocm/roctracer_manager.cc).
_COPY: Final = r"(?i)^(?:hip|cu|cuda)?Mem(?:cpy|set)|^Copy(?:Host|Device)|^FillBuffer"
_SET: Final = r"(?i)memset|FillBuffer"


def device_tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return ``kernels``, ``memops`` and ``calls`` of ``events.Events.frame``; nothing without GPU events.
    The profiler does not record launches. It writes events of a GPU after the event that launched them,
    and gives that event's name; for each such event, a call is made at the start of that event."""
    numbered = frame.with_row_index("row").with_columns(
        pl.when(pl.col("cat") != "Kernel").then(pl.col("row")).forward_fill().alias("parent")
    )
    gpu = numbered.filter(pl.col("cat") == "Kernel")
    if gpu.is_empty():
        return {}
    # versions before 1.14 write a node's kernels after its fence; the node itself is next to it
    ran = pl.when(pl.col("kind") == "kernel_time").then("start")
    node = pl.col("cat") == "Node"
    launched = (
        pl.when(node & (pl.col("kind") == "fence_before"))
        .then(ran.backward_fill().over("cat", "name", "tid"))
        .when(node & (pl.col("kind") == "fence_after"))
        .then(ran.forward_fill().over("cat", "name", "tid"))
    )
    parents = numbered.select(
        pl.col("row").alias("parent"),
        pl.coalesce(launched, "start").alias("launched"),
        pl.col("tid").alias("thread"),
        pl.col("op_name").alias("parent_op"),
        pl.concat_str(["name", pl.lit("_"), "kind"]).fill_null(pl.col("name")).alias("parent_full"),
    )
    gpu = gpu.drop("tid").join(parents, on="parent", how="left", maintain_order="left")
    # newer versions name the parent, older ones its op; without either, the launch is unknown
    sure = (
        pl.when(pl.col("parent_name").is_not_null())
        .then(pl.col("parent_name") == pl.col("parent_full"))
        .otherwise((pl.col("op_name") != "") & (pl.col("op_name") == pl.col("parent_op")))
    ).fill_null(False)
    streams = gpu["stream"].cast(pl.Int64, strict=False)
    if streams.null_count() > gpu["stream"].null_count():  # ROCm writes addresses
        codes = {
            text: n for n, text in enumerate(gpu["stream"].drop_nulls().unique(maintain_order=True))
        }
        streams = pl.Series([codes.get(text) for text in gpu["stream"]], dtype=pl.Int64)
    # a repeated record has the number of the first, so it is recognised and counted once
    same = [name for name in gpu.columns if name not in ("row", "parent")]
    number = pl.col("row").cast(pl.Int64) + 1
    number = pl.when(pl.col("duration") > 0).then(number.first().over(same)).otherwise(number)
    gpu = gpu.with_columns(
        streams.alias("stream"),
        pl.lit(0, pl.Int32).alias("process"),
        pl.lit(0, pl.Int32).alias("device"),
        (pl.col("start") + pl.col("duration")).alias("end"),
        pl.when(sure).then(number).alias("correlation"),
        pl.col("name").str.contains(_COPY).alias("copied"),
    )
    columns = ["process", "device", "stream", "start", "end", "correlation"]
    calls = gpu.filter(pl.col("correlation").is_not_null()).select(
        "process", "thread", pl.col("launched").alias("start"), pl.col("launched").alias("end"),
        "name", "correlation",
    )  # fmt: skip
    source = (
        pl.col("name")
        .str.extract(r"(?i)(Host|Device|H|D)(?:To|2)")
        .str.slice(0, 1)
        .str.to_uppercase()
    )
    target = (
        pl.col("name")
        .str.extract(r"(?i)(?:To|2)(Host|Device|H|D)")
        .str.slice(0, 1)
        .str.to_uppercase()
    )
    return {
        "kernels": gpu.filter(~pl.col("copied")).select(*columns, "name", "grid", "block"),
        "memops": gpu.filter(pl.col("copied")).select(
            *columns,
            pl.when(pl.col("name").str.contains(_SET)).then(pl.lit("memset"))
            .otherwise(pl.format("{}to{}", source, target)).alias("kind"),
            "bytes",
        ),
        "calls": calls,
    }  # fmt: skip
