"""The roofline: how near each kernel, op, layer or step comes to its device's limits, and which one binds.

The least time that the work can take is the longest of three: matrix FLOPs at the tensor peak, vector
FLOPs at the vector peak, bytes at the bandwidth. Efficiency is that time over the time taken, which is
attained over attainable (S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from opscope.core.perf.devices.peaks import MEASURED, Device

#: The order of magnitude (ns) of a kernel's start, ramp and drain. Work with a shorter ideal time that is far
#: from its roof is bound by latency, not by a unit.
LATENCY_NS: Final = 2_000
LATENCY_EFFICIENCY: Final = 0.5
#: A duration of fewer clock ticks than this is too coarse to judge by.
COARSE_TICKS: Final = 10
#: A working set of up to this many times the size of the last cache (L2, or a cache behind it) may
#: partly be in it.
CACHE_FACTOR: Final = 2

#: Dtypes that libraries compute on vector units if they choose no tensor kernel.
_PLAIN: Final = ("f32", "f64", "c64", "c128")
#: Columns that ``roofline`` adds.
ADDED: Final = (
    "intensity",
    "attained_flops",
    "attained_bandwidth",
    "attainable_flops",
    "ideal_time",
    "efficiency",
    "bound",
    "over_reason",
)


def roofline(frame: pl.DataFrame, device: Device | None, tick_ns: int = 1) -> pl.DataFrame:
    """Return the frame with its roofline columns; rows with unknown FLOPs or bytes get nulls.

    The frame needs ``duration`` (ns), ``matrix_flops``, ``vector_flops``, ``bytes``, ``dtype`` (of most
    FLOPs). It may have ``masked_flops``, ``tensor_core`` (null: not known), ``fast_algorithm``,
    ``over_link`` (its bytes cross a link to the host or another device, whose bandwidth is in no column:
    no roof) and ``kernels`` (how many durations were added up; 1 if absent). Adds ``intensity``
    (FLOP/byte), ``attained_flops`` (FLOP/s), ``attained_bandwidth`` (bytes/s), ``attainable_flops``
    (FLOP/s), ``ideal_time`` (ns), ``efficiency`` (1 is the roof), ``bound`` (``tensor``, ``vector``,
    ``memory``, ``latency``) and ``over_reason`` (null unless the efficiency is above 1:
    ``cache-resident``, ``timer resolution``, ``fast algorithm``, ``measured roof`` (of a CPU, which another
    library or dtype may exceed), else ``modelling error``). ``tick_ns`` is
    the resolution of the durations.
    """
    timed = frame.with_columns(
        *_ideal_times(frame, device),
        *_attained(frame.columns),
        _working_set_fits(device, frame.columns).alias("_cached"),
    )
    # if one part of the roof is unknown, so is the roof: max_horizontal would ignore a null
    is_stated = pl.all_horizontal(pl.col("_tensor", "_vector", "_memory").is_not_null())
    ideal = pl.when(is_stated & pl.col("matrix_flops").is_not_null()).then(
        pl.max_horizontal("_tensor", "_vector", "_memory")
    )
    rated = timed.with_columns(ideal.alias("ideal_time")).with_columns(
        pl.when((pl.col("duration") > 0) & (pl.col("ideal_time") > 0))
        .then(pl.col("ideal_time") / pl.col("duration"))
        .alias("efficiency"),
        pl.when(pl.col("ideal_time") > 0)
        .then(_work(frame.columns) / pl.col("ideal_time") * 1e9)
        .alias("attainable_flops"),
    )
    return (
        rated.with_columns(_bound().alias("bound"))
        .with_columns(_why_over(device, frame.columns, tick_ns).alias("over_reason"))
        .drop("_tensor", "_vector", "_memory", "_cached")
        .select(*frame.columns, *ADDED)
    )


def _given(columns: Sequence[str], name: str, otherwise: int | bool | None) -> pl.Expr:
    """Return the column, or the value ``otherwise`` if the frame does not have it."""
    return pl.col(name) if name in columns else pl.lit(otherwise)


def _matrix(columns: Sequence[str]) -> pl.Expr:
    """Return the matrix FLOPs without those that a mask makes unnecessary."""
    return pl.col("matrix_flops") - _given(columns, "masked_flops", 0)


def _work(columns: Sequence[str]) -> pl.Expr:
    return _matrix(columns) + pl.col("vector_flops")


def _ideal_times(frame: pl.DataFrame, device: Device | None) -> tuple[pl.Expr, ...]:
    """Return the least time (ns) of each unit (``_tensor``, ``_vector``, ``_memory``); null: not known."""
    on_tensor = _given(frame.columns, "tensor_core", None).cast(pl.Boolean)
    dtypes = frame["dtype"].unique().drop_nulls().cast(pl.String).to_list()
    matrix, vector, moved = _matrix(frame.columns), pl.col("vector_flops"), pl.col("bytes")
    ideal_matrix = pl.when(matrix > 0).then(matrix / _peak(device, dtypes, on_tensor) * 1e9)
    ideal_vector = (
        pl.when(vector > 0).then(vector / _vector_peak(device, dtypes) * 1e9).otherwise(0.0)
    )
    off_tensor = _on_vector_units(device, dtypes, on_tensor) & (matrix > 0)
    bandwidth = pl.lit(device.bandwidth if device is not None else None, pl.Float64)
    return (
        # matrix work off the tensor units is added to the vector units' own work
        pl.when((matrix > 0) & ~off_tensor).then(ideal_matrix).otherwise(0.0).alias("_tensor"),
        pl.when(off_tensor)
        .then(ideal_matrix + ideal_vector)
        .otherwise(ideal_vector)
        .alias("_vector"),
        pl.when(_given(frame.columns, "over_link", False))
        .then(None)
        .when(moved > 0)
        .then(moved / bandwidth * 1e9)
        .otherwise(pl.when(moved.is_null()).then(None).otherwise(0.0))
        .alias("_memory"),
    )


def _attained(columns: Sequence[str]) -> tuple[pl.Expr, ...]:
    """Return the intensity, the attained FLOP/s and the attained bytes/s."""
    work, moved, seconds = _work(columns), pl.col("bytes"), pl.col("duration") / 1e9
    return (
        (work / moved).alias("intensity"),
        pl.when(pl.col("duration") > 0).then(work / seconds).alias("attained_flops"),
        pl.when(pl.col("duration") > 0).then(moved / seconds).alias("attained_bandwidth"),
    )


def _bound() -> pl.Expr:
    """Return the unit whose ideal time is the longest, or latency."""
    latency = (pl.col("ideal_time") < LATENCY_NS) & (pl.col("efficiency") < LATENCY_EFFICIENCY)
    return (
        pl.when(pl.col("efficiency").is_null())
        .then(None)
        .when(latency)
        .then(pl.lit("latency"))
        .when(pl.col("_memory") >= pl.max_horizontal("_tensor", "_vector"))
        .then(pl.lit("memory"))
        .when(pl.col("_tensor") >= pl.col("_vector"))
        .then(pl.lit("tensor"))
        .otherwise(pl.lit("vector"))
    )


def _why_over(device: Device | None, columns: Sequence[str], tick_ns: int) -> pl.Expr:
    """Return why an efficiency is above 1; null if it is not."""
    is_measured = device is not None and device.source == MEASURED
    # each kernel's duration was rounded once
    longest = pl.col("duration") + _given(columns, "kernels", 1) * tick_ns
    return (
        pl.when(pl.col("efficiency").is_null() | (pl.col("efficiency") <= 1))
        .then(None)
        .when(_given(columns, "fast_algorithm", False))
        .then(pl.lit("fast algorithm"))
        .when((pl.col("bound") == "memory") & pl.col("_cached"))
        .then(pl.lit("cache-resident"))
        .when((pl.col("duration") < COARSE_TICKS * tick_ns) & (pl.col("ideal_time") <= longest))
        .then(pl.lit("timer resolution"))
        .otherwise(pl.lit("measured roof" if is_measured else "modelling error"))
    )


def _working_set_fits(device: Device | None, columns: Sequence[str]) -> pl.Expr:
    """Return whether the larger of the bytes read and the bytes written is within twice the largest cache.

    The previous op may have left the bytes read in the cache, the bytes written may stay there, and an op in
    place reads and writes the same tensor. If reads and writes are not known apart, their sum counts. A cache
    of unknown size (a CPU's, a computed device's) is assumed to fit any working set.
    """
    cache = device.cache() if device is not None else None
    if cache is None:
        return pl.lit(True)
    apart = {"bytes_read", "bytes_written"} <= set(columns)
    size = pl.max_horizontal("bytes_read", "bytes_written") if apart else pl.col("bytes")
    return (size <= CACHE_FACTOR * cache).fill_null(False)


def _by_dtype(rates: Mapping[str, float | None]) -> pl.Expr:
    known_rates = {dtype: rate for dtype, rate in rates.items() if rate}
    if not known_rates:
        return pl.lit(None, pl.Float64)
    return (
        pl.col("dtype")
        .cast(pl.String)
        .replace_strict(
            list(known_rates), list(known_rates.values()), default=None, return_dtype=pl.Float64
        )
    )


def _peak(device: Device | None, dtypes: list[str], on_tensor: pl.Expr) -> pl.Expr:
    """Return the matrix peak: the tensor units' if the dtype has one there, else the vector units'.

    f32 is TF32 on tensor units and plain f32 off them, so its peak depends on the kernel; if that is not
    known the higher peak counts. A narrower dtype that ran on vector units keeps the tensor peak, which it
    could have attained. A kernel on tensor units whose rate for the dtype is not known (f32 cast to f16 on
    Volta) has no known roof.
    """
    if device is None:
        return pl.lit(None, pl.Float64)
    used: dict[str, float | None] = {}
    high: dict[str, float | None] = {}
    plain: dict[str, float | None] = {}
    for dtype in dtypes:
        tensor, vector = device.peak(dtype, True), device.peak(dtype, False)
        used[dtype] = tensor
        high[dtype] = max(filter(None, (tensor, vector)), default=None)
        plain[dtype] = vector if dtype in _PLAIN else high[dtype]
    return (
        pl.when(on_tensor.is_null())
        .then(_by_dtype(high))
        .when(on_tensor)
        .then(_by_dtype(used))
        .otherwise(_by_dtype(plain))
    )


def _on_vector_units(device: Device | None, dtypes: list[str], on_tensor: pl.Expr) -> pl.Expr:
    """Return whether the peak of the matrix FLOPs (``_peak``) is that of the vector units."""
    if device is None:
        return pl.lit(False)
    without = [dtype for dtype in dtypes if device.peak(dtype, True) is None]
    off = pl.col("dtype").cast(pl.String).is_in(without)
    plain = ~on_tensor & pl.col("dtype").cast(pl.String).is_in(_PLAIN)
    return ((off & ~on_tensor.fill_null(False)) | plain.fill_null(False)).fill_null(False)


def _vector_peak(device: Device | None, dtypes: list[str]) -> pl.Expr:
    if device is None:
        return pl.lit(None, pl.Float64)
    # vector work in reduced precision uses f32 registers, at f32's rate or more
    rates: dict[str, float | None] = {}
    for dtype in dtypes:
        own, single = device.peak(dtype, False), device.peak("f32", False)
        rates[dtype] = (
            own if dtype in ("f64", "c128") else max(filter(None, (own, single)), default=None)
        )
    return _by_dtype(rates)


def tick(durations: pl.Series) -> int:
    """Return the resolution of the durations in ns: 1000 if all are whole µs, else 1.

    Some sources round to µs before they write. An empty column counts as exact.
    """
    timed = durations.drop_nulls()
    return 1000 if len(timed) and bool((timed % 1000 == 0).all()) else 1
