"""Read rocprofv3's JSON (``rocprofiler-sdk-tool``): each process of a run with its agents, names, records.

Written by ``source/lib/output/generateJSON.cpp`` of ROCm/rocprofiler-sdk;
``source/docs/data/rocprofv3-schema.json`` describes it. A record names its kind and operation by their
places in ``strings``; a marker's text is found by its correlation id, a kernel's name by its kernel id, an
agent by its handle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from opscope.readers.errors import BadInput
from opscope.readers.kineto.json_events import whole_file
from opscope.readers.rows import TWICE, decode

from . import agents
from .csv_runs import allocations_of, copies_of
from .marks import ROCTX
from .parts import Parts

#: Bytes of a file, unpacked: decoded it takes about as much again.
LARGEST: Final = 2 << 30
#: Calls that only end, name or control ranges.
_NO_RANGE: Final = (
    "roctxRangePop",
    "roctxRangeStop",
    "roctxProfiler",
    "roctxName",
    "roctxGetThreadId",
)


class _Handle(msgspec.Struct):
    handle: int | None = None


class _Size(msgspec.Struct):
    x: int | None = None
    y: int | None = None
    z: int | None = None


class _Link(msgspec.Struct):
    internal: int | None = None


class _Info(msgspec.Struct):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    kernel_id: int | None = None
    dispatch_id: int | None = None
    private_segment_size: int | None = None
    group_segment_size: int | None = None
    workgroup_size: _Size = msgspec.field(default_factory=_Size)
    grid_size: _Size = msgspec.field(default_factory=_Size)


class _Record(msgspec.Struct):
    kind: int | str | None = None
    operation: int | str | None = None
    thread_id: int | None = None
    correlation_id: _Link = msgspec.field(default_factory=_Link)
    start_timestamp: int | None = None
    end_timestamp: int | None = None


class _Dispatch(_Record):
    dispatch_info: _Info = msgspec.field(default_factory=_Info)
    stream_id: _Handle = msgspec.field(default_factory=_Handle)
    graph_exec_id: int | None = None
    graph_node_id: int | None = None


class _Copy(_Record):
    stream_id: _Handle = msgspec.field(default_factory=_Handle)
    src_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    dst_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    bytes: int | None = None


class _Allocation(_Record):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    address: int | str | _Handle | None = None
    allocation_size: int | None = None


class _Count(msgspec.Struct):
    counter_id: _Handle = msgspec.field(default_factory=_Handle)
    value: float | None = None


class _Collected(msgspec.Struct):
    dispatch_data: _Dispatch = msgspec.field(default_factory=_Dispatch)
    records: list[_Count] = []
    thread_id: int | None = None


class _Names(msgspec.Struct):
    kind: str = ""
    operations: list[str] = []


class _Marker(msgspec.Struct):
    key: int | None = None
    value: str | None = None


class _Strings(msgspec.Struct):
    buffer_records: list[_Names] = []
    marker_api: list[_Marker] = []


class _Symbol(msgspec.Struct):
    kernel_id: int | None = None
    kernel_name: str | None = None
    formatted_kernel_name: str | None = None
    demangled_kernel_name: str | None = None
    arch_vgpr_count: int | None = None
    accum_vgpr_count: int | None = None
    sgpr_count: int | None = None
    group_segment_size: int | None = None


class _Counter(msgspec.Struct):
    id: _Handle = msgspec.field(default_factory=_Handle)
    name: str | None = None


class _Metadata(msgspec.Struct):
    pid: int | None = None
    command: list[str] | str | None = None


class _Callbacks(msgspec.Struct):
    counter_collection: list[_Collected] = []


class _Buffers(msgspec.Struct):
    kernel_dispatch: list[_Dispatch] | None = None
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    marker_api: list[_Record] = []
    rccl_api: list[_Record] = []
    memory_copy: list[_Copy] | None = None
    memory_allocation: list[_Allocation] = []


class _Process(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[dict[str, Any]] = []
    counters: list[_Counter] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = []
    callback_records: _Callbacks = msgspec.field(default_factory=_Callbacks)
    buffer_records: _Buffers = msgspec.field(default_factory=_Buffers)


class _Document(msgspec.Struct):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


def read(path: Path, parts: Parts) -> None:
    """Add the data of the file to ``parts``. Raises BadInput."""
    parts.tool = "rocprofv3"
    data = document(path)
    try:
        found = decode(data, _Document, strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise BadInput(path, f"damaged JSON of rocprofv3: {str(error)[:200]}") from error
    for process in found.processes:
        _process(process, parts)


def document(path: Path) -> bytes:
    """Return the unpacked bytes of a JSON file. Raises BadInput."""
    message = f"over {LARGEST >> 30} GiB of JSON: write rocpd or CSV instead"
    data = whole_file(path, LARGEST, message)
    # names of kernels may be cut in the middle of a character
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").encode()


def _process(process: _Process, parts: Parts) -> None:
    pid = process.metadata.pid
    number = _numbers(process.agents, parts)
    names = _Lookup(process.strings.buffer_records)
    records = process.buffer_records
    if records.kernel_dispatch is not None:
        rows = _dispatches(records.kernel_dispatch, process, number)
        parts.add("dispatches", rows.with_columns(pl.lit(pid, pl.Int64).alias("pid")))
    for table in (records.hip_api, records.hsa_api):
        if table:
            parts.add("calls", _calls(table, names, pid))
    _markers(process, names, pid, parts)
    if records.memory_copy is not None:
        parts.add("copies", _copy(records.memory_copy, names, number, pid))
    if records.memory_allocation:
        parts.add("allocations", _allocate(records.memory_allocation, names, number, pid))
    if process.callback_records.counter_collection:
        _count(process, number, pid, parts)


def _numbers(listed: Sequence[Mapping[str, Any]], parts: Parts) -> dict[int, int]:
    """Return the number of each GPU by its handle, and fill in the facts about it."""
    number_of_agent: dict[int, int] = {}
    for agent in listed:
        handle, node = agent.get("id"), agent.get("node_id")
        handle = handle.get("handle") if isinstance(handle, dict) else None
        if not isinstance(handle, int):
            continue
        number = node if isinstance(node, int) and 0 <= node < 1 << 16 else len(number_of_agent)
        number_of_agent[handle] = number
        if agent.get("type") in (agents.GPU, "GPU"):
            parts.devices[number] = agents.facts(agent)
    return number_of_agent


class _Lookup:
    """Names of kinds and operations."""

    def __init__(self, listed: Sequence[_Names]) -> None:
        self._listed = listed

    def kind(self, record: _Record) -> str | None:
        if isinstance(record.kind, str):
            return record.kind
        is_listed = record.kind is not None and 0 <= record.kind < len(self._listed)
        return self._listed[record.kind].kind if is_listed and record.kind is not None else None

    def operation(self, record: _Record) -> str | None:
        if isinstance(record.operation, str):
            return record.operation
        if not isinstance(record.kind, int) or not 0 <= record.kind < len(self._listed):
            return None
        names, index = self._listed[record.kind].operations, record.operation
        return names[index] if index is not None and 0 <= index < len(names) else None


def _times(rows: Sequence[_Record]) -> dict[str, list[int | None]]:
    return {
        "tid": [row.thread_id for row in rows],
        "start": [row.start_timestamp for row in rows],
        "end": [row.end_timestamp for row in rows],
        "correlation": [row.correlation_id.internal for row in rows],
    }


def _fit(values: Iterable[int | None]) -> list[int | None]:
    """The values that fit in 64 bits: handles are addresses or anything."""
    return [
        value if value is not None and -(1 << 63) <= value < 1 << 63 else None for value in values
    ]


def _frame(columns: Mapping[str, list[Any]], texts: Sequence[str] = ()) -> pl.DataFrame:
    fitting = {n: values if n in texts else _fit(values) for n, values in columns.items()}
    return pl.DataFrame(fitting, schema={n: pl.String if n in texts else pl.Int64 for n in columns})


def _dispatches(
    rows: Sequence[_Dispatch], process: _Process, number: Mapping[int, int]
) -> pl.DataFrame:
    symbols = {kernel_symbol.kernel_id: kernel_symbol for kernel_symbol in process.kernel_symbols}
    infos = [row.dispatch_info for row in rows]
    nothing = _Symbol()
    kernels = [symbols.get(info.kernel_id, nothing) for info in infos]
    columns: dict[str, list[Any]] = {
        **_times(rows),
        "name": [
            kernel.formatted_kernel_name or kernel.demangled_kernel_name or kernel.kernel_name
            for kernel in kernels
        ],
        "device": [number.get(_handle(info.agent_id)) for info in infos],
        "queue": [info.queue_id.handle for info in infos],
        "stream": [row.stream_id.handle for row in rows],
        "dispatch": [info.dispatch_id for info in infos],
        "lds": [
            kernel.group_segment_size
            if kernel.group_segment_size is not None
            else info.group_segment_size
            for kernel, info in zip(kernels, infos, strict=True)
        ],
        "lds_dynamic": [
            info.group_segment_size - kernel.group_segment_size
            if info.group_segment_size is not None
            and kernel.group_segment_size is not None
            and info.group_segment_size >= kernel.group_segment_size
            else None
            for kernel, info in zip(kernels, infos, strict=True)
        ],
        "scratch": [info.private_segment_size for info in infos],
        "arch_vgpr": [kernel.arch_vgpr_count for kernel in kernels],
        "accum_vgpr": [kernel.accum_vgpr_count for kernel in kernels],
        "sgpr": [kernel.sgpr_count for kernel in kernels],
        "graph": [row.graph_exec_id or None for row in rows],
        "graph_node": [row.graph_node_id or None for row in rows],
    }
    for axis in "xyz":
        columns[f"g{axis}"] = [getattr(info.grid_size, axis) for info in infos]
        columns[f"w{axis}"] = [getattr(info.workgroup_size, axis) for info in infos]
    return _frame(columns, ("name",))


def _handle(of: _Handle) -> int:
    return -1 if of.handle is None else of.handle


def _calls(rows: Sequence[_Record], names: _Lookup, pid: int | None) -> pl.DataFrame:
    frame = _frame({**_times(rows), "name": [names.operation(row) for row in rows]}, ("name",))
    return frame.with_columns(pl.lit(pid, pl.Int64).alias("pid"))


def _markers(process: _Process, names: _Lookup, pid: int | None, parts: Parts) -> None:
    records = process.buffer_records
    texts = {entry.key: entry.value for entry in process.strings.marker_api}
    owner = pl.lit(pid, pl.Int64).alias("pid")
    if records.marker_api:
        kept, words, kinds = [], [], []
        for row in records.marker_api:
            operation = names.operation(row) or ""
            if operation.startswith(_NO_RANGE):
                continue
            kept.append(row)
            words.append(texts.get(row.correlation_id.internal) or operation or None)
            kinds.append(kind_of_marker(operation))
        frame = _frame({**_times(kept), "text": words, "kind": kinds}, ("text", "kind"))
        parts.add(
            "ranges", frame.drop("correlation").with_columns(owner, pl.lit(ROCTX).alias("domain"))
        )
    if records.rccl_api:
        frame = _frame(
            {
                **_times(records.rccl_api),
                "text": [names.operation(row) for row in records.rccl_api],
            },
            ("text",),
        )
        parts.add(
            "ranges", frame.drop("correlation").with_columns(owner, pl.lit("NCCL").alias("domain"))
        )


def kind_of_marker(operation: str) -> str | None:
    """Return the kind of a range from the call that made it; None if the call does not show it."""
    if operation.startswith("roctxMark"):
        return "mark"
    if operation.startswith(("roctxRangeStart", "roctxProcessRange")):
        return "startend"
    return "pushpop" if operation.startswith(("roctxRangePush", "roctxThreadRange")) else None


def _copy(
    rows: Sequence[_Copy], names: _Lookup, number: Mapping[int, int], pid: int | None
) -> pl.DataFrame:
    frame = _frame(
        {
            **_times(rows),
            "direction": [names.operation(row) for row in rows],
            "source": [number.get(_handle(row.src_agent_id)) for row in rows],
            "target": [number.get(_handle(row.dst_agent_id)) for row in rows],
            "stream": [row.stream_id.handle for row in rows],
            "bytes": [row.bytes for row in rows],
        },
        ("direction",),
    )
    return copies_of(frame).with_columns(pl.lit(pid, pl.Int64).alias("pid"))


def _allocate(
    rows: Sequence[_Allocation], names: _Lookup, number: Mapping[int, int], pid: int | None
) -> pl.DataFrame:
    addresses: list[int | None] = []
    for row in rows:
        value = row.address.handle if isinstance(row.address, _Handle) else row.address
        try:
            addresses.append(int(value, 0) if isinstance(value, str) else value)
        except ValueError:
            addresses.append(None)
    times = _times(rows)
    frame = _frame(
        {
            "tid": times["tid"],
            "time": times["start"],
            "operation": [names.operation(row) for row in rows],
            "device": [number.get(_handle(row.agent_id)) for row in rows],
            "bytes": [row.allocation_size for row in rows],
            "address": addresses,
        },
        ("operation",),
    )
    return allocations_of(frame).with_columns(pl.lit(pid, pl.Int64).alias("pid"))


def _count(process: _Process, number: Mapping[int, int], pid: int | None, parts: Parts) -> None:
    """Counters: one record of a counter for each of its instances, which are added up as the CSV does."""
    collected = process.callback_records.counter_collection
    collected = [*{msgspec.json.encode(record): record for record in collected}.values()]
    if again := len(process.callback_records.counter_collection) - len(collected):
        parts.note("warning", TWICE, again)
    names = {_handle(counter.id): counter.name for counter in process.counters}
    rows = [
        (
            record.dispatch_data.dispatch_info.dispatch_id,
            record.dispatch_data.correlation_id.internal,
            number.get(_handle(record.dispatch_data.dispatch_info.agent_id)),
            record.thread_id,
            names.get(_handle(count.counter_id)),
            count.value,
        )
        for record in collected
        for count in record.records
    ]
    schema = {
        "dispatch": pl.Int64, "correlation": pl.Int64, "device": pl.Int64, "tid": pl.Int64,
        "name": pl.String, "value": pl.Float64,
    }  # fmt: skip
    columns: dict[str, list[Any]] = {n: [row[at] for row in rows] for at, n in enumerate(schema)}
    fitting = {n: _fit(of) if schema[n] == pl.Int64 else of for n, of in columns.items()}
    frame = pl.DataFrame(fitting, schema=schema)
    keys = ["dispatch", "correlation", "device", "tid", "name"]
    total = (
        frame.filter(pl.col("name").is_not_null() & pl.col("value").is_finite())
        .group_by(keys, maintain_order=True)
        .agg(pl.col("value").sum())
    )
    owner = pl.lit(pid, pl.Int64).alias("pid")
    parts.add("counters", total.drop("dispatch").with_columns(owner))
    for one in collected:
        one.dispatch_data.thread_id = one.thread_id
    counted = _dispatches([record.dispatch_data for record in collected], process, number)
    timed = counted.drop_nulls(["start", "end"]).filter(pl.col("start") > 0)
    if len(timed):
        parts.add("counted", timed.with_columns(owner))
