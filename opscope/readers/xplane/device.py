"""Read the device lines of an XPlane file: kernels, copies and the device itself."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.tables.trace import table_schema

from .cupti import (
    OVERHEAD,
    UNIFIED,
    UNIFIED_COPY,
    WHOLE_GRAPH,
    context_number,
    memory_kind,
)
from .programs import Programs
from .space import Events, Line, Plane, nulls

#: Statistics of device events that are read.
DETAILS: Final = frozenset(
    {
        "correlation_id",
        "kernel_details",
        "memcpy_details",
        "memset_details",
        "Memset_details",
        "MemoryResidency_details",
        "cuda_graph_id",
        "cuda_graph_node_id",
        "hlo_op",
        "hlo_module",
        "program_id",
        "tf_op",
        "name",
        "prefix",
        "context_id",
    }
)
#: Copies and sets; ROCm's runtime performs them with kernels of its own.
_COPY: Final = r"(?i)^mem(?:cpy|set)|^__amd_rocclr_(?:copy|fill)Buffer"
_SET: Final = r"(?i)memset|^__amd_rocclr_fillBuffer"
_DIRECTION: Final = r"(?i)mem(?:cpy)?(H2D|D2H|D2D|H2H|P2P)"
_CALL_DIRECTION: Final = r"^(?:cu|cuda|hip)Memcpy(HtoD|DtoH|DtoD|HtoH)"
_KINDS: Final = {"H2D": "HtoD", "D2H": "DtoH", "D2D": "DtoD", "H2H": "HtoH", "P2P": "PtoP"}
#: The letter in a copy's kind by the kind of memory at that end.
_ENDS: Final = {"device": "D", "array": "A", "pageable": "H", "pinned": "H"}
_DEVICES: Final = 4095
#: Events on streams that are neither kernels nor copies, as texts of notes.
_OTHERS: Final = {
    "overhead": "events of the profiler's own work (CUPTI overhead), left out",
    "residency": "lifetimes of allocations among the streams, left out",
    "unified": "events of unified memory that copied nothing, left out",
}


def device_rows(plane: Plane, number: int) -> pl.DataFrame:
    """Return the ``devices`` row of a plane."""
    stats: dict[str, Any] = plane.stats

    def whole(key: str, largest: int = 1 << 62, least: int = 1) -> int | None:
        value = stats.get(key)
        return value if isinstance(value, int) and least <= value < largest else None

    major, minor = whole("compute_cap_major", 100), whole("compute_cap_minor", 100, 0)
    # AMD's "compute capability" is not a CUDA one
    cuda = stats.get("device_vendor") in (None, "Nvidia", "NVIDIA")
    clock = whole("clock_rate")
    return pl.DataFrame(
        {
            "process": [0],
            "device": [number],
            "name": [_name(stats)],
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


def _name(stats: dict[str, Any]) -> str | None:
    """``gpu_device_name``, which NVIDIA's plane has (GetDeviceCapabilities), else device type or vendor."""
    candidates = (
        stats.get(key) for key in ("gpu_device_name", "device_type_string", "device_vendor")
    )
    return next((name for name in candidates if isinstance(name, str) and name), None)


def executed(
    events: Events | None,
    plane: Plane | None = None,
    line: Line | None = None,
    device: int = 0,
    stream: int = 0,
    programs: Programs | None = None,
) -> Any:
    """Return a batch of a stream's events as rows of ``kernels`` and ``memops``; an empty table without one.

    Any other key is the text of a note; its value is the number of events that are neither.
    """
    if events is None or plane is None or line is None or programs is None:
        return pl.DataFrame({"process": []}, schema={"process": pl.Int32})
    distinct, inverse = np.unique(events.number, return_inverse=True)
    known = [plane.events.get(int(number)) for number in distinct]
    names = pl.Series([event.name if event else None for event in known], dtype=pl.String)
    count = len(events.number)
    frame = pl.DataFrame(
        {
            "process": pl.Series([0], dtype=pl.Int32).new_from_index(0, count),
            "device": pl.Series([device], dtype=pl.Int32).new_from_index(0, count),
            "context": context_number(
                events.stats.get("context_id", nulls("context", pl.Int64, count))
            ),
            "stream": pl.Series([stream]).new_from_index(0, count),
            "start": line.time + events.start,
            "end": line.time + events.end,
            "name": names.gather(inverse.reshape(-1)),
            "correlation": _stat(events, "correlation_id", count, pl.Int64),
            "details": _stat(events, "kernel_details", count, pl.String),
            "copied": _stat(events, "memcpy_details", count, pl.String),
            "set": _either(events, ("Memset_details", "memset_details"), count),
            "residency": _stat(events, "MemoryResidency_details", count, pl.String),
            "graph": _stat(events, "cuda_graph_id", count, pl.Int64),
            "graph_node": _stat(events, "cuda_graph_node_id", count, pl.Int64),
            "op_key": programs.keys(events, plane, count),
        }
    ).with_columns(pl.col("graph", "graph_node").replace(0, None))
    plain = pl.all_horizontal(pl.col("details", "copied", "set", "correlation", "op_key").is_null())
    is_copy = (
        pl.col("copied").is_not_null()
        | pl.col("set").is_not_null()
        | pl.col("name").str.contains(_COPY).fill_null(False)
    )
    unified = stream >= UNIFIED
    table_of_event = frame.select(
        pl.when(pl.col("residency").is_not_null()).then(pl.lit("residency"))
        .when(plain & pl.col("name").is_in(OVERHEAD)).then(pl.lit("overhead"))
        .when(plain & unified & pl.col("name").str.contains(UNIFIED_COPY)).then(pl.lit("memops"))
        .when(plain & unified & pl.col("name").str.starts_with("UM_")).then(pl.lit("unified"))
        .when(is_copy).then(pl.lit("memops"))
        .otherwise(pl.lit("kernels")).alias("what")
    )["what"]  # fmt: skip
    if unified:
        frame = frame.with_columns(pl.lit(None, pl.Int64).alias("stream"))
    others = {text: int((table_of_event == key).sum()) for key, text in _OTHERS.items()}
    return {
        "kernels": _kernels(frame.filter(table_of_event == "kernels")),
        "memops": _memops(frame.filter(table_of_event == "memops")),
        **{text: other for text, other in others.items() if other},
    }


def _either(events: Events, titles: tuple[str, ...], count: int) -> pl.Series:
    """The first of several statistics that the events have, as text."""
    for title in titles:
        if title in events.stats:
            return _stat(events, title, count, pl.String)
    return nulls(titles[0], pl.String, count)


def _stat(events: Events, name: str, count: int, dtype: Any) -> pl.Series:
    stat_column = events.stats.get(name)
    if stat_column is None or (stat_column.dtype == pl.String) != (dtype == pl.String):
        return nulls(name, dtype, count)
    column: pl.Series = stat_column.cast(dtype)
    return column


def _kernels(frame: pl.DataFrame) -> pl.DataFrame:
    details = pl.col("details")

    def number(pattern: str) -> pl.Expr:  # ``sound`` counts impossible numbers
        return details.str.extract(pattern).cast(pl.Int64, strict=False)

    graph = pl.col("name").str.extract(WHOLE_GRAPH)
    return frame.select(
        "process", "device", "context", "stream", "start", "end",
        # as in an Nsight export: what ran in the CUDA graph was not recorded
        pl.when(graph.is_not_null()).then(pl.format("CUDA graph {}", graph))
        .otherwise("name").alias("name"),
        "correlation",
        details.str.extract(r"grid:(\d+,\d+,\d+)").alias("grid"),
        details.str.extract(r"block:(\d+,\d+,\d+)").alias("block"),
        number(r"\bregs:(\d+)").alias("registers"),
        pl.coalesce(number(r"static_shared:(\d+)"), number(r"group_mem:(\d+)")).alias("shared_static"),
        pl.when(details.str.contains("group_mem:", literal=True)).then(0)
        .otherwise(number(r"dynamic_shared:(\d+)")).cast(pl.Int64).alias("shared_dynamic"),
        pl.coalesce(number(r"private_mem:(\d+)"), number(r"local_mem:(\d+)")).alias("local_memory"),
        "graph",
        "graph_node",
        "op_key",
        pl.when(graph.is_not_null()).then(pl.lit('{"graph_trace":true}')).alias("attrs"),
    ).cast({key: dtype for key, dtype in table_schema("kernels").items() if key in _KERNEL})  # fmt: skip


_KERNEL: Final = (
    "process", "device", "context", "stream", "start", "end", "name", "correlation", "grid", "block",
    "shared_static", "shared_dynamic", "local_memory", "graph", "graph_node", "op_key",
    "attrs",
)  # fmt: skip


def _memops(frame: pl.DataFrame) -> pl.DataFrame:
    details = pl.col("copied")
    source, target = (memory_kind(details, end) for end in ("src", "dst"))
    direction = pl.col("name").str.extract(_DIRECTION).str.to_uppercase()
    unified = pl.col("name").str.extract(UNIFIED_COPY).replace_strict(
        {"HTOD": "UvmHtoD", "DTOH": "UvmDtoH", "DTOD": "UvmDtoD"}, default=None
    )  # fmt: skip
    ends = [kind.replace_strict(_ENDS, default=None) for kind in (source, target)]
    is_set = pl.col("set").is_not_null() | pl.col("name").str.contains(_SET)
    other = details.str.extract(r"\bdest:(\d+)").cast(pl.Int64, strict=False)
    memops = frame.select(
        "process", "device", "context", "stream", "start", "end",
        pl.when(is_set).then(pl.lit("memset"))
        .otherwise(pl.coalesce(
            unified, direction.replace_strict(_KINDS, default=None), pl.format("{}to{}", *ends)))
        .alias("kind"),
        source.alias("src_kind"),
        target.alias("dst_kind"),
        pl.when(other.is_between(0, _DEVICES) & (other != pl.col("device"))).then(other)
        .cast(pl.Int32).alias("peer"),
        pl.coalesce(details.str.extract(r"size:(\d+)"), pl.col("set").str.extract(r"num_bytes:(\d+)"))
        .cast(pl.Int64, strict=False).alias("bytes"),
        "correlation",
        "graph_node",
        "op_key",
    )  # fmt: skip
    schema = table_schema("memops")
    return memops.cast({name: schema[name] for name in memops.columns})


def with_kinds(memops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return ``memops``; a copy without a kind gets it from the name of the call that requested it."""
    directions = calls.select(
        "correlation",
        pl.col("name").cast(pl.String).str.extract(_CALL_DIRECTION).alias("requested"),
    ).filter(pl.col("requested").is_not_null() & pl.col("correlation").is_not_null())
    directions = directions.unique("correlation", keep="last", maintain_order=True)
    joined = memops.join(directions, on="correlation", how="left", maintain_order="left")
    kind = pl.coalesce(pl.col("kind").cast(pl.String), "requested").cast(memops.schema["kind"])
    return joined.with_columns(kind.alias("kind")).drop("requested")
