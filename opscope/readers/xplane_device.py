"""Device lines of an XPlane file: kernels, copies and the device itself."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.trace import table_schema

from .xplane_programs import Programs
from .xplane_space import Events, Line, Plane, nulls

#: Statistics of a device's events that are used.
DETAILS: Final = frozenset(
    {
        "correlation_id",
        "kernel_details",
        "memcpy_details",
        "memset_details",
        "hlo_op",
        "hlo_module",
        "program_id",
        "tf_op",
        "name",
        "context_id",
    }
)
#: Copies and sets; ROCm's runtime does them by kernels of its own.
_COPY: Final = r"(?i)^mem(?:cpy|set)|^__amd_rocclr_(?:copy|fill)Buffer"
_SET: Final = r"(?i)memset|^__amd_rocclr_fillBuffer"
_DIRECTION: Final = r"(?i)mem(?:cpy)?(H2D|D2H|D2D|H2H|P2P)"
_CALL_DIRECTION: Final = r"^(?:cu|cuda|hip)Memcpy(HtoD|DtoH|DtoD|HtoH)"
_KINDS: Final = {"H2D": "HtoD", "D2H": "DtoH", "D2D": "DtoD", "H2H": "HtoH", "P2P": "PtoP"}


def device_rows(plane: Plane, number: int) -> pl.DataFrame:
    """The ``devices`` row of a plane."""
    stats: dict[str, Any] = plane.stats

    def whole(key: str, largest: int = 1 << 62) -> int | None:
        value = stats.get(key)
        return value if isinstance(value, int) and 0 <= value < largest else None

    major, minor = whole("compute_cap_major", 100), whole("compute_cap_minor", 100)
    # AMD's "compute capability" is no CUDA one
    cuda = stats.get("device_vendor") in (None, "Nvidia", "NVIDIA")
    clock = whole("clock_rate")
    return pl.DataFrame(
        {
            "process": [0],
            "device": [number],
            "name": [stats.get("device_type_string") or stats.get("device_vendor")],
            "uuid": [None],
            "cc": [
                f"{major}.{minor}" if cuda and major is not None and minor is not None else None
            ],
            "sm_count": [whole("core_count", 1 << 31)],
            "memory": [whole("memory_size")],
            "max_threads_per_sm": [None],
            "clock_khz": [clock],
            "mem_bandwidth": [whole("memory_bandwidth")],
        },
        schema=table_schema("devices"),
        strict=False,
    )


def executed(
    events: Events | None,
    plane: Plane | None = None,
    line: Line | None = None,
    device: int = 0,
    stream: int = 0,
    programs: Programs | None = None,
) -> Any:
    """A batch of a stream's events as rows of ``kernels`` and ``memops``; without one an empty table."""
    if events is None or plane is None or line is None or programs is None:
        return pl.DataFrame({"process": []}, schema={"process": pl.Int32})
    distinct, inverse = np.unique(events.number, return_inverse=True)
    known = [plane.events.get(int(number)) for number in distinct]
    names = pl.Series([one.name if one else None for one in known], dtype=pl.String)
    many = len(events.number)
    frame = pl.DataFrame(
        {
            "process": pl.Series([0], dtype=pl.Int32).new_from_index(0, many),
            "device": pl.Series([device], dtype=pl.Int32).new_from_index(0, many),
            "context": _stat(events, "context_id", many, pl.Int64),
            "stream": pl.Series([stream]).new_from_index(0, many),
            "start": line.time + events.start,
            "end": line.time + events.end,
            "name": names.gather(inverse.reshape(-1)),
            "correlation": _stat(events, "correlation_id", many, pl.Int64),
            "details": _stat(events, "kernel_details", many, pl.String),
            "copied": _stat(events, "memcpy_details", many, pl.String),
            "set": _stat(events, "memset_details", many, pl.String),
            "op_key": programs.keys(events, plane, many),
        }
    )
    is_copy = (
        pl.col("copied").is_not_null()
        | pl.col("set").is_not_null()
        | pl.col("name").str.contains(_COPY).fill_null(False)
    )
    return {"kernels": _kernels(frame.filter(~is_copy)), "memops": _memops(frame.filter(is_copy))}


def _stat(events: Events, name: str, many: int, dtype: Any) -> pl.Series:
    found = events.stats.get(name)
    if found is None or (found.dtype == pl.String) != (dtype == pl.String):
        return nulls(name, dtype, many)
    column: pl.Series = found.cast(dtype)
    return column


def _kernels(frame: pl.DataFrame) -> pl.DataFrame:
    details = pl.col("details")

    def number(pattern: str) -> pl.Expr:
        return details.str.extract(pattern).cast(pl.Int64, strict=False)

    return frame.select(
        "process", "device", "context", "stream", "start", "end", "name", "correlation",
        details.str.extract(r"grid:(\d+,\d+,\d+)").alias("grid"),
        details.str.extract(r"block:(\d+,\d+,\d+)").alias("block"),
        number(r"\bregs:(\d+)").alias("registers"),
        pl.coalesce(number(r"static_shared:(\d+)"), number(r"group_mem:(\d+)")).alias("shared_static"),
        pl.when(details.str.contains("group_mem:", literal=True)).then(0)
        .otherwise(number(r"dynamic_shared:(\d+)")).cast(pl.Int64).alias("shared_dynamic"),
        pl.coalesce(number(r"private_mem:(\d+)"), number(r"local_mem:(\d+)")).alias("local_memory"),
        "op_key",
    ).cast({key: dtype for key, dtype in table_schema("kernels").items() if key in _KERNEL})  # fmt: skip


_KERNEL: Final = (
    "process", "device", "context", "stream", "start", "end", "name", "correlation", "grid", "block",
    "registers", "shared_static", "shared_dynamic", "local_memory", "op_key",
)  # fmt: skip


def _memops(frame: pl.DataFrame) -> pl.DataFrame:
    details = pl.col("copied")
    direction = pl.col("name").str.extract(_DIRECTION).str.to_uppercase()
    is_set = pl.col("set").is_not_null() | pl.col("name").str.contains(_SET)
    made = frame.select(
        "process", "device", "context", "stream", "start", "end",
        pl.when(is_set).then(pl.lit("memset"))
        .otherwise(direction.replace_strict(_KINDS, default=None)).alias("kind"),
        details.str.extract(r"kind_src:(\w+)").str.to_lowercase().alias("src_kind"),
        details.str.extract(r"kind_dst:(\w+)").str.to_lowercase().alias("dst_kind"),
        pl.coalesce(details.str.extract(r"size:(\d+)"), pl.col("set").str.extract(r"num_bytes:(\d+)"))
        .cast(pl.Int64, strict=False).alias("bytes"),
        "correlation",
    )  # fmt: skip
    schema = table_schema("memops")
    return made.cast({name: schema[name] for name in made.columns})


def with_kinds(memops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """``memops``, the kind of a copy that does not tell it taken from the call that asked for it."""
    told = calls.select(
        "correlation", pl.col("name").cast(pl.String).str.extract(_CALL_DIRECTION).alias("asked")
    ).filter(pl.col("asked").is_not_null() & pl.col("correlation").is_not_null())
    told = told.unique("correlation", keep="last", maintain_order=True)
    joined = memops.join(told, on="correlation", how="left", maintain_order="left")
    kind = pl.coalesce(pl.col("kind").cast(pl.String), "asked").cast(memops.schema["kind"])
    return joined.with_columns(kind.alias("kind")).drop("asked")
