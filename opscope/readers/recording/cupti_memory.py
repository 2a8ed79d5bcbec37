"""Make the ``allocations`` table from CUPTI's records of memory and memory pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from opscope.core.cupti import kinds
from opscope.core.recording_format import CPU_DEVICE
from opscope.readers.recording.cupti_records import Columns
from opscope.readers.sound import CHANGE

#: CUpti_ActivityMemoryOperationType and CUpti_ActivityMemoryPoolType.
_RELEASE: Final = 2
_LOCAL: Final = 1
#: CUpti_ActivityMemoryPoolOperationType: the pool's memory is returned.
_DESTROYED: Final = 2
_HOST: Final = ("pageable", "pinned")


def allocations(decoded: Mapping[int, Columns]) -> pl.DataFrame | None:
    """Return the ``allocations`` table by time, releases with negative bytes; None without such records.

    ``total`` counts from the beginning of the recording, per device (-1: memory of the host). ``reserved``:
    memory outside pools, and the sizes of the pools.
    """
    if kinds.MEMORY2 not in decoded:
        return None
    records = decoded[kinds.MEMORY2]
    local = records["memoryPoolConfig.memoryPoolType"] == _LOCAL
    memory = pl.Series(records["memoryKind"]).replace_strict(
        dict(kinds.MEMORIES), default=None, return_dtype=pl.String
    )
    rows = pl.DataFrame(
        {
            "device": records["deviceId"],
            "memory": memory,
            "time": records["timestamp"],
            "address": records["address"],
            "bytes": records["bytes"],
            "release": records["memoryOperationType"] == _RELEASE,
            "pool": pl.Series(records["memoryPoolConfig.address"]).set(pl.Series(~local), None),
            "size": records["memoryPoolConfig.pool.size"],
        }
    ).with_columns(
        pl.when(pl.col("memory").is_in(_HOST).fill_null(False))
        .then(pl.lit(CPU_DEVICE, pl.Int64))
        .otherwise("device")
        .alias("device"),
        pl.when(pl.col("release")).then(-pl.col("bytes")).otherwise("bytes").alias("bytes"),
    )
    every = [rows.drop("memory", "release")]
    if kinds.MEMORY_POOL in decoded:
        every.append(_pools(decoded[kinds.MEMORY_POOL]))
    changes = pl.concat(every, how="diagonal").sort("time", maintain_order=True)
    size = pl.when(pl.col("bytes").is_between(*CHANGE)).then("bytes")
    pool = pl.when(pl.col("size").is_between(0, CHANGE[1])).then("size")
    pooled = pl.col("pool").is_not_null()
    grown = pool - pool.forward_fill().shift(1).over("device", "pool").fill_null(0)
    return (
        changes.with_columns(
            size.cum_sum().over("device").alias("total"),
            pl.when(pooled)
            .then(grown)
            .otherwise(size)
            .fill_null(0)
            .cum_sum()
            .over("device")
            .alias("reserved"),
        )
        .filter(pl.col("address").is_not_null())
        .select("device", "time", "address", "bytes", "total", "reserved")
    )


def _pools(columns: Columns) -> pl.DataFrame:
    """Return changes of whole pools: rows without an address of their own."""
    gone = columns["memoryPoolOperationType"] == _DESTROYED
    size = pl.Series(columns["size"]).set(pl.Series(gone), 0)
    return pl.DataFrame(
        {
            "device": columns["deviceId"],
            "time": columns["timestamp"],
            "pool": columns["address"],
            "size": size,
        }
    ).filter(pl.Series(columns["memoryPoolType"] == _LOCAL))
