"""Read CUDA's tables of an Nsight Systems export: calls, kernels, copies, syncs and CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from opscope.core.tables.columns import stacked
from opscope.readers.rows import of_successful
from opscope.readers.sqlite import ROW, Column, Kind, packed

from .source import Source
from .strings import Codes, Strings, Threads, constant, labels, named

_CALLS: Final = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_CALL: Final[Mapping[str, Kind]] = {
    "start": "int", "end": "int", "globalTid": "int", "correlationId": "int", "nameId": "int",
    "returnValue": "int",
}  # fmt: skip
_DEVICE_RECORD: Final[Mapping[str, Kind]] = {
    "start": "int", "end": "int", "globalPid": "int", "deviceId": "int", "contextId": "int",
    "streamId": "int", "correlationId": "int",
}  # fmt: skip
_KERNEL: Final[Mapping[str, Kind]] = {
    **_DEVICE_RECORD,
    "demangledName": "int", "registersPerThread": "int", "staticSharedMemory": "int",
    "dynamicSharedMemory": "int", "localMemoryPerThread": "int", "graphId": "int",
    "graphNodeId": "int",
}  # fmt: skip
_EXTENTS: Final[Mapping[str, Column]] = {
    name: (f"{name}X", f"{name}Y", f"{name}Z") for name in ("grid", "block", "cluster")
}
#: A kernel's launch geometry and resources: no total needs them.
_LAUNCH: Final = (
    *_EXTENTS, "contextId", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
    "localMemoryPerThread",
)  # fmt: skip
#: Columns that a program fills for each of its kernels or for none: one column shows which rows have them,
#: and reading only this column takes a seventh less time than reading all five.
_ALL_OR_NONE: Final[Mapping[str, tuple[str, ...]]] = {
    "graphId": ("graphId",), "graphNodeId": ("graphNodeId",),
    "cluster": ("clusterX", "clusterY", "clusterZ"),
}  # fmt: skip
#: Columns that every version has.
_NEEDED: Final = ("start", "end", "globalTid", "globalPid", "deviceId", "address")
#: A kernel column's name in the trace, and (``_SMALL``) its type if it is not a 64-bit integer.
_RENAMED: Final[Mapping[str, str]] = {
    "deviceId": "device", "contextId": "context", "streamId": "stream",
    "correlationId": "correlation", "registersPerThread": "registers",
    "staticSharedMemory": "shared_static", "dynamicSharedMemory": "shared_dynamic",
    "localMemoryPerThread": "local_memory", "graphId": "graph", "graphNodeId": "graph_node",
}  # fmt: skip
_SMALL: Final = {"device": pl.Int32, "registers": pl.Int32, "peer": pl.Int32}
#: CUpti_ActivityMemcpyKind as the trace's kinds; MEMORIES and SYNCS likewise for CUPTI's other enumerations.
COPIES: Final[Mapping[int, str]] = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "UvmHtoD", 12: "UvmDtoH", 13: "UvmDtoD",
}  # fmt: skip
MEMORIES: Final[Mapping[int, str]] = {
    0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device",
    6: "managed",
}  # fmt: skip
SYNCS: Final[Mapping[int, str]] = {
    1: "event", 2: "stream wait", 3: "stream", 4: "context",
}  # fmt: skip
#: CUPTI's value for "none" in 32 bits (a context-wide synchronisation has no stream).
_NONE32: Final = (1 << 32) - 1


def read_calls(source: Source, strings: Strings, threads: Threads) -> pl.DataFrame | None:
    """Return the ``calls`` table: runtime and driver calls. None if the export has neither."""

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        if "globalTid" not in frame.columns:
            frame = frame.with_columns(pl.lit(0, pl.Int64).alias("globalTid"))
        columns = [
            *threads.split(frame["globalTid"]),
            frame["start"],
            frame["end"],
        ]
        if "nameId" in frame.columns:
            columns.append(strings.categorical(frame["nameId"]).alias("name"))
        if "correlationId" in frame.columns:
            ids = frame["correlationId"].alias("correlation")
            if "returnValue" in frame.columns:
                ids = of_successful(ids, frame["returnValue"])
            columns.append(ids)
        return pl.DataFrame(columns)

    pieces = [piece for table in _CALLS for piece in scan(source, table, _CALL, convert)]
    return stacked(pieces) if pieces else None


def read_kernels(
    source: Source, strings: Strings, threads: Threads, lean: bool = False
) -> pl.DataFrame | None:
    """Return the ``kernels`` table, with demangled names. None if the export has no kernels.

    ``lean`` leaves out the columns of ``_LAUNCH``, which are half of what there is to read.
    """

    def convert(frame: pl.DataFrame, rare: pl.DataFrame | None) -> pl.DataFrame:
        if rare is not None:
            frame = _with_rare(frame, rare)
        columns = _place(frame, threads)
        columns.append(_kernel_names(frame, strings))
        for name in _EXTENTS:
            if name in frame.columns:
                columns.append(_triple(frame[name]).alias(name))
        for name in _KERNEL:
            if name in frame.columns and name in _RENAMED and name not in _DEVICE_RECORD:
                columns.append(_rename(frame[name]))
        return _without_empty(pl.DataFrame(columns))

    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    wanted: dict[str, Column] = {
        name: kind
        for name, kind in {**_KERNEL, **_EXTENTS}.items()
        if not (lean and name in _LAUNCH)
    }
    if not source.has(table, "demangledName"):
        wanted["shortName"] = "int"
    rare: dict[str, Kind] = {}
    for name, parts in _ALL_OR_NONE.items():
        if (
            name in wanted
            and source.has(table, *parts)
            and not any(source.mostly(table, part) for part in parts)
        ):
            del wanted[name]
            rare |= dict.fromkeys(parts, "int")
    pieces = scan(source, table, wanted, convert, rare)
    return stacked(pieces) if pieces else None


def read_memops(source: Source, threads: Threads) -> pl.DataFrame | None:
    """Return the ``memops`` table: copies and sets. None if the export has neither."""

    def copies(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        columns = _place(frame, threads)
        if "copyKind" in frame.columns:
            columns.append(labels(frame["copyKind"], COPIES, "kind {}").alias("kind"))
        for theirs, ours in (("srcKind", "src_kind"), ("dstKind", "dst_kind")):
            if theirs in frame.columns:
                columns.append(labels(frame[theirs], MEMORIES, "unknown").alias(ours))
        if "dstDeviceId" in frame.columns and "srcDeviceId" in frame.columns:
            other = frame["dstDeviceId"]
            same = other == frame["deviceId"]
            peer = frame["srcDeviceId"].zip_with(same.fill_null(False), other)
            columns.append(
                pl.select(
                    pl.when(peer.is_between(0, 4095) & (peer != frame["deviceId"])).then(peer)
                )
                .to_series()
                .cast(pl.Int32)
                .alias("peer")
            )
        return pl.DataFrame(columns + _size(frame))

    def sets(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        columns = _place(frame, threads)
        columns.append(constant("kind", "memset", pl.Categorical, frame.height))
        if "memKind" in frame.columns:
            columns.append(labels(frame["memKind"], MEMORIES, "unknown").alias("dst_kind"))
        return pl.DataFrame(columns + _size(frame))

    extra: dict[str, Kind] = {"bytes": "int", "graphNodeId": "int"}
    pieces = scan(
        source,
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        {
            **_DEVICE_RECORD, **extra, "copyKind": "int", "srcKind": "int", "dstKind": "int",
            "srcDeviceId": "int", "dstDeviceId": "int",
        },
        copies,
    )  # fmt: skip
    of_sets = {**_DEVICE_RECORD, **extra, "memKind": "int"}
    pieces += scan(source, "CUPTI_ACTIVITY_KIND_MEMSET", of_sets, sets)
    return stacked(pieces) if pieces else None


def read_syncs(source: Source, threads: Threads) -> pl.DataFrame | None:
    """Return the ``syncs`` table: synchronisations as the device recorded them. None if the export has
    none."""

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        columns = _place(frame, threads)
        if "syncType" in frame.columns:
            columns.append(labels(frame["syncType"], SYNCS, "unknown").alias("kind"))
        if "eventId" in frame.columns:
            columns.append(_none32(frame["eventId"]).alias("event_id"))
        table = pl.DataFrame(columns)
        if "stream" not in table.columns:
            return table
        return table.with_columns(
            pl.when(pl.col("stream") != _NONE32).then("stream").alias("stream")
        )

    pieces = scan(
        source,
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        {**_DEVICE_RECORD, "syncType": "int", "eventId": "int"},
        convert,
    )
    return stacked(pieces) if pieces else None


def read_graph_nodes(source: Source, threads: Threads) -> pl.DataFrame | None:
    """Return the ``graph_nodes`` table. Versions of 2022–23 call it CUDA_GRAPH_EVENTS, one row per node."""
    for table in ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS"):
        if source.has(table, "graphNodeId"):
            break
    else:
        return None

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        columns = [
            *threads.split(frame["globalTid"]),
            frame["graphNodeId"].alias("node"),
            frame["start"].alias("time"),
        ]
        for theirs, ours in (("graphId", "graph"), ("originalGraphNodeId", "original_node")):
            if theirs in frame.columns:
                columns.append(frame[theirs].alias(ours))
        return pl.DataFrame(columns)

    wanted: dict[str, Kind] = dict.fromkeys(
        ("start", "globalTid", "graphNodeId", "originalGraphNodeId", "graphId"), "int"
    )
    return stacked(scan(source, table, wanted, convert))


def read_graph_launches(source: Source, threads: Threads) -> pl.DataFrame | None:
    """Return CUDA graphs that were traced as one row per launch, as rows of ``kernels``.

    The capture recorded no kernels of these CUDA graphs: their device time is real, but what ran in it is
    not known. The rows are named ``CUDA graph N`` and have ``{"graph_trace": true}`` in ``attrs``.
    """
    table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    if not source.has(table, "start", "end"):
        return None

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        columns = _place(frame, threads)
        has_graphs = "graphId" in frame.columns
        graph = frame["graphId"] if has_graphs else pl.Series([None], dtype=pl.Int64)
        names = pl.DataFrame({"graph": graph}).select(
            pl.format("CUDA graph {}", pl.col("graph").cast(pl.String).fill_null("?"))
            .cast(pl.Categorical)
            .alias("name")
        )
        if has_graphs:
            columns += [names["name"], graph.alias("graph")]
        else:
            columns.append(names["name"].new_from_index(0, frame.height))
        columns.append(constant("attrs", '{"graph_trace":true}', pl.String, frame.height))
        return pl.DataFrame(columns)

    pieces = scan(
        source, table, {**_DEVICE_RECORD, "graphId": "int", "graphExecId": "int"}, convert
    )
    frame = stacked(pieces)
    return frame if frame.height else None


def scan(
    source: Source,
    table: str,
    wanted: Mapping[str, Column],
    convert: Callable[[pl.DataFrame, pl.DataFrame | None], pl.DataFrame],
    rare: Mapping[str, Kind] | None = None,
) -> list[pl.DataFrame]:
    """``source.scan``, with nulls for required columns that a damaged table lacks; ``sound`` notes them."""

    def whole(frame: pl.DataFrame, rare: pl.DataFrame | None) -> pl.DataFrame:
        absent = [name for name in _NEEDED if name in wanted and name not in frame.columns]
        nothing = (pl.lit(None, pl.Int64).alias(name) for name in absent)
        return convert(frame.with_columns(nothing), rare)

    return source.scan(table, wanted, whole, rare)


def _with_rare(frame: pl.DataFrame, rare: pl.DataFrame) -> pl.DataFrame:
    """The frame with the columns of ``_ALL_OR_NONE`` from the rows of ``rare``."""
    for name, parts in _ALL_OR_NONE.items():
        if not set(parts) <= set(rare.columns):
            continue
        numbers = rare[parts[0]] if len(parts) == 1 else packed(*(rare[part] for part in parts))
        column = constant(name, None, pl.Int64, frame.height)
        frame = frame.with_columns(column.scatter(rare[ROW], numbers))
    return frame


def _place(frame: pl.DataFrame, threads: Threads) -> list[pl.Series]:
    """Return process, device, context, stream, times and correlation: the columns of every device record."""
    pids = (
        frame["globalPid"]
        if "globalPid" in frame.columns
        else constant("globalPid", 0, pl.Int64, frame.height)
    )
    columns = [threads.process(pids)]
    for name in ("deviceId", "contextId", "streamId"):
        if name in frame.columns:
            columns.append(_rename(frame[name]))
    columns += [frame["start"], frame["end"]]
    if "correlationId" in frame.columns:
        columns.append(frame["correlationId"].alias("correlation"))
    return columns


def _rename(column: pl.Series) -> pl.Series:
    name = _RENAMED[column.name]
    if name in _SMALL:
        small = column.cast(_SMALL[name], strict=False)
        if small.null_count() == column.null_count():  # ``sound`` counts values that do not fit
            column = small
    return column.alias(name)


def _size(frame: pl.DataFrame) -> list[pl.Series]:
    columns = []
    if "bytes" in frame.columns:
        columns.append(frame["bytes"])
    if "graphNodeId" in frame.columns:
        columns.append(frame["graphNodeId"].alias("graph_node"))
    return columns


def _kernel_names(frame: pl.DataFrame, strings: Strings) -> pl.Series:
    for column in ("demangledName", "shortName"):
        if column in frame.columns:
            return strings.categorical(frame[column]).alias("name")
    return constant("name", None, pl.Categorical, frame.height)


def _triple(key: pl.Series) -> pl.Series:
    """``x,y,z`` as a Categorical, formatted once per distinct extent; null if x is 0."""
    codes = Codes()
    codes_of_triples = codes.of(key)
    texts = [f"{k >> 32},{k >> 16 & 0xFFFF},{k & 0xFFFF}" if k >> 32 else None for k in codes.keys]
    return named(codes_of_triples, texts)


def _none32(column: pl.Series) -> pl.Series:
    return column.set((column == _NONE32).fill_null(False), None)


def _without_empty(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        column
        for column in frame.get_columns()
        if column.null_count() < frame.height or not frame.height
    )
