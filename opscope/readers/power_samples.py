"""Read samples of GPUs' power: a CSV of ``time``, ``power`` (W) and maybe ``device``; or nvidia-smi's.

``nvidia-smi --query-gpu=timestamp,index,power.draw --format=csv -lms 20`` writes local time without a zone,
which is taken as UTC: run it with ``TZ=UTC``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.schema import GPU_POWER
from opscope.core.tables.trace import Trace, conform
from opscope.readers.errors import BadInput
from opscope.readers.request_logs import span_of, text_of, unix_offset
from opscope.readers.time_columns import base_name, read_times

_TIME: Final = ("time", "timestamp")
_DEVICE: Final = ("device", "index", "gpu", "gpu_id")
_POWER: Final = r"^(?:power|power_draw|power\.draw(?:\.\w+)?|watts|power_w|power_mw)(?: ?\[m?w\])?$"
#: More than a rack consumes: such a value is wrong.
_MOST_WATTS: Final = 1e6


def with_power(trace: Trace, path: str | os.PathLike[str]) -> Trace:
    """Return ``trace`` with the samples of power in ``path`` on its clock. Raises BadInput."""
    file = Path(path)
    table = _read(file)
    offset, span = unix_offset(trace), span_of(trace)
    samples = table.with_columns(pl.col("time") - (offset or 0)).drop_nulls("time").sort("time")
    known = samples.filter(pl.col("value").is_between(0, _MOST_WATTS))
    if known.is_empty():
        raise BadInput(file, "has no time with a power")
    users = _users(trace)
    devices = users["device"].unique().to_list()
    if len(devices) == 1 and known["device"].n_unique() == 1:
        known = known.with_columns(pl.lit(devices[0], pl.Int32).alias("device"))
    joined = known.join(users, on="device", how="inner")
    if joined.is_empty():
        raise BadInput(file, "has power of devices that the trace does not use")
    named = joined.with_columns(pl.lit(GPU_POWER).cast(pl.Categorical).alias("name"))
    every = pl.concat([trace["samples"], conform("samples", named)], how="vertical_relaxed")
    made = trace.replace(samples=every)
    if len(known) < len(table):
        made.note(
            "warning",
            f"{file.name}: lines without a time or a power were left out",
            len(table) - len(known),
        )
    if len(joined) < len(known):
        what = f"{file.name}: samples of devices that the trace does not use were left out"
        made.note("info", what, len(known) - len(joined))
    if span and joined.filter(pl.col("time").is_between(*span)).is_empty():
        made.note(
            "warning",
            f"{file.name}: no sample lies within the trace: does its clock differ?",
            len(known),
        )
    return made


def _read(file: Path) -> pl.DataFrame:
    """Return time (ns, as written), device and value (W) of each line."""
    try:
        rows = pl.read_csv(text_of(file).encode(), infer_schema=False, truncate_ragged_lines=True)
    except pl.exceptions.PolarsError as error:
        raise BadInput(file, f"is no CSV of power: {error}") from None
    rows = rows.rename({name: name.strip().lower() for name in rows.columns})
    names = rows.columns
    time = next((name for name in names if name in _TIME or base_name(name) in _TIME), None)
    power = next((name for name in names if pl.Series([name]).str.contains(_POWER).item()), None)
    if time is None or power is None:
        raise BadInput(
            file, "has no power: a CSV with time and power (W), or nvidia-smi's, is needed"
        )
    device = next((name for name in names if name in _DEVICE), None)
    number = rows[power].str.extract(r"^\s*(\d{1,12}(?:\.\d+)?)", 1).cast(pl.Float64, strict=False)
    is_milli = power.endswith(("_mw", "[mw]"))
    return pl.DataFrame(
        {
            "time": read_times(rows[time]),
            "device": (
                pl.zeros(len(rows), pl.Int32, eager=True)
                if device is None
                else rows[device].str.strip_chars().cast(pl.Int32, strict=False)
            ),
            "value": number / 1000 if is_milli else number,
        }
    )


def _users(trace: Trace) -> pl.DataFrame:
    """Return each device that kernels ran on, with the first process that used it."""
    used = trace["kernels"].select("process", "device").drop_nulls()
    if used.is_empty():
        used = trace["devices"].select("process", "device").drop_nulls()
    return used.group_by("device").agg(pl.col("process").min())
