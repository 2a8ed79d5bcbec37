"""The samples of a recording: of its process, and of the queues of its data loaders."""

from __future__ import annotations

import polars as pl

from opscope.core.schema import INPUT_DOMAIN, INPUT_QUEUE
from opscope.core.tables.trace import table_schema

#: Values over time: name and device (None: the process or its machine) → times in ns, values.
Sampled = dict[tuple[str, int | None], tuple[list[int], list[float | None]]]


def samples(taken: Sampled, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the ``samples`` table: ``taken`` and a sample for each wait for a data loader whose number of
    ready batches is known. Values that are not numbers are null."""
    frames = [pl.DataFrame(schema=table_schema("samples"))]
    for (name, device), (times, values) in taken.items():
        frame = pl.DataFrame(
            {"time": times, "value": values}, schema={"time": pl.Int64, "value": pl.Float64}
        )
        frames.append(
            _of(
                name,
                frame.with_columns(
                    pl.col("value").replace([float("inf"), -float("inf")], None).fill_nan(None)
                ),
                device,
            )
        )
    waits = ranges.filter(
        (pl.col("domain") == INPUT_DOMAIN)
        & (pl.col("category") == "input")
        & pl.col("payload").is_not_null()
    )
    frames.append(
        _of(
            INPUT_QUEUE,
            waits.select(
                pl.col("start").alias("time"), pl.col("payload").cast(pl.Float64).alias("value")
            ),
        )
    )
    return pl.concat(frames).sort("time", maintain_order=True)


def _of(name: str, frame: pl.DataFrame, device: int | None = None) -> pl.DataFrame:
    return frame.select(
        pl.lit(0, pl.Int32).alias("process"),
        pl.lit(device, pl.Int32).alias("device"),
        "time",
        pl.lit(name).cast(pl.Categorical).alias("name"),
        "value",
    )
