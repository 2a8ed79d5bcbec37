"""Make the tables of device work from CUPTI's decoded records: kernels, copies and sets, calls, waits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.cupti import calls as call_names
from opscope.core.cupti import kinds
from opscope.core.dialects.demangle import all_demangled
from opscope.core.tables.columns import at, pairs, spread
from opscope.core.tables.intervals import Ints
from opscope.readers.recording.cupti_files import Facts, Note
from opscope.readers.recording.cupti_records import BUFFER, Columns
from opscope.readers.rows import of_successful

Decoded = Mapping[int, Columns]
#: Columns of the trace, by CUPTI's names of the fields.
_PLACED: Final = {
    "device": "deviceId", "context": "contextId", "stream": "streamId", "start": "start", "end": "end",
    "correlation": "correlationId",
}  # fmt: skip
_KERNEL: Final = {
    **_PLACED, "registers": "registersPerThread", "shared_static": "staticSharedMemory",
    "shared_dynamic": "dynamicSharedMemory", "local_memory": "localMemoryPerThread",
    "graph": "graphId", "graph_node": "graphNodeId",
}  # fmt: skip
#: Fields without a column go into ``attrs``: the name there, CUPTI's name, and the value that means nothing.
_RARE: Final = (
    ("shared_executed", "sharedMemoryExecuted", 0),
    ("channel", "channelID", kinds.NONE32),
    ("priority", "priority", 0),
    ("launch_type", "launchType", 0),
    ("device_launched", "isDeviceLaunched", 0),
)
#: CUpti_ActivityLaunchType; 0 is a regular launch.
_LAUNCHES: Final = {1: "cooperative", 2: "cooperative multi-device"}
_OVERHEADS: Final = {
    1: "driver compiler", 1 << 16: "buffer flush", 2 << 16: "instrumentation", 3 << 16: "resource",
    4 << 16: "module loading", 5 << 16: "lazy function loading", 6 << 16: "command buffer full",
    7 << 16: "buffer request", 8 << 16: "unified memory setup",
}  # fmt: skip
#: CUpti_ExternalCorrelationKind.
_EXTERNAL: Final = {1: "unknown", 2: "openacc", 3: "custom0", 4: "custom1", 5: "custom2"}
_HIGH: Final = 1 << 16
_ADDRESS: Final = (1 << 64) - 1


def kernels(decoded: Decoded, facts: Facts) -> pl.DataFrame | None:
    """The ``kernels`` table, with a row for each launch of a whole CUDA graph; None if there are no
    records of either."""
    parts = [
        _kernels(decoded[kind], facts)
        for kind in (kinds.KERNEL, kinds.CONCURRENT_KERNEL)
        if kind in decoded
    ]
    parts += [
        _graphs(decoded[kind])
        for kind in (kinds.GRAPH_TRACE, kinds.DEVICE_GRAPH_TRACE)
        if kind in decoded
    ]
    if not parts:
        return None
    return _with_external(pl.concat(parts, how="diagonal"), decoded)


def _with_external(kernels: pl.DataFrame, decoded: Decoded) -> pl.DataFrame:
    """Return the kernels with the ids that the program had pushed at their launches: ``external`` in
    attrs."""
    if kinds.EXTERNAL_CORRELATION not in decoded:
        return kernels
    records = decoded[kinds.EXTERNAL_CORRELATION]
    kind = _labels("kind", records["externalKind"], _EXTERNAL, "kind {}")
    ids = pl.DataFrame(
        {"correlation": records["correlationId"], "kind": kind, "id": records["externalId"]}
    )
    described = ids.group_by("correlation").agg(
        pl.format('"{}":{}', pl.col("kind").cast(pl.String), "id")
        .unique(maintain_order=True)
        .str.join(",")
        .alias("ids")
    )
    both = kernels.join(described, on="correlation", how="left", maintain_order="left")
    if "attrs" not in both.columns:
        both = both.with_columns(pl.lit(None, pl.String).alias("attrs"))
    before = pl.col("attrs").str.strip_suffix("}") + ","
    attrs = pl.concat_str(before.fill_null("{"), pl.lit('"external":{'), "ids", pl.lit("}}"))
    return both.with_columns(
        pl.when(pl.col("ids").is_not_null()).then(attrs).otherwise("attrs").alias("attrs")
    ).drop("ids")


def _kernels(found: Columns, facts: Facts) -> pl.DataFrame:
    columns = _place(found, _KERNEL)
    columns["name"] = _names(found, facts)
    for name in ("grid", "block", "cluster"):
        if f"{name}X" in found:
            columns[name] = _extent(name, *(found[name + axis] for axis in "XYZ"))
    attrs = _attrs(found)
    if attrs is not None:
        columns["attrs"] = attrs
    return pl.DataFrame(columns)


def _place(found: Columns, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns that are only renamed; a correlation id of 0 means none."""
    columns: dict[str, Any] = {
        ours: found[theirs] for ours, theirs in names.items() if theirs in found
    }
    if "correlation" in columns:
        columns["correlation"] = _null(columns["correlation"], columns["correlation"] == 0)
    return columns


def _graphs(found: Columns) -> pl.DataFrame:
    graph = found["graphId"]
    distinct, code = np.unique(graph, return_inverse=True)
    columns = _place(found, _PLACED)
    texts = [f"CUDA graph {number}" for number in distinct.tolist()]
    return pl.DataFrame(
        {**columns, "name": spread("name", texts, code.reshape(-1)), "graph": graph}
    ).with_columns(pl.lit('{"graph_trace":true}').alias("attrs"))


def _names(columns: Columns, facts: Facts) -> pl.Series:
    """The kernels' names; null if the text at a name's address is not known."""
    texts: dict[str | None, int] = {None: 0}
    addresses, _, code = pairs(columns["name"], np.zeros(columns.many, np.int64))
    first = [facts.names.get(address & _ADDRESS, []) for address in addresses.tolist()]
    number = np.array(
        [
            texts.setdefault(names_of_kernel[0][1] if names_of_kernel else None, len(texts))
            for names_of_kernel in first
        ],
        np.int64,
    )
    numbers = number[code] if len(number) else code
    if BUFFER in columns:
        for index in [
            place for place, names_of_kernel in enumerate(first) if len(names_of_kernel) > 1
        ]:
            rows = np.flatnonzero(code == index)
            ordered = sorted(first[index])
            since = np.array([buffer for buffer, _ in ordered], np.int64)
            each = np.array([texts.setdefault(text, len(texts)) for _, text in ordered], np.int64)
            which = np.searchsorted(since, columns[BUFFER][rows], side="right") - 1
            numbers[rows] = each[np.maximum(which, 0)]
    return spread("name", all_demangled(list(texts)), numbers)


def _extent(name: str, x: Ints, y: Ints, z: Ints) -> pl.Series:
    """Return ``x,y,z``, made once per distinct extent; null if x is 0 or no launch can have it."""
    low = (y.clip(0, _HIGH - 1) << 16) | z.clip(0, _HIGH - 1)
    wide, rest, number = pairs(x, low)
    texts = [
        f"{first_part},{other >> 16},{other & (_HIGH - 1)}"
        if first_part > 0 and other >> 16 and other % _HIGH
        else None
        for first_part, other in zip(wide.tolist(), rest.tolist(), strict=True)
    ]
    odd = (y >= _HIGH) | (z >= _HIGH) | (y < 0) | (z < 0)
    return spread(name, texts, np.where(odd, -1, number) if odd.any() else number)


def _attrs(columns: Columns) -> pl.Series | None:
    """Return JSON of the fields without a column; rows share the texts of the few distinct combinations."""
    rare = [
        field
        for field in _RARE
        if field[1] in columns and bool((columns[field[1]] != field[2]).any())
    ]
    number: NDArray[Any] = np.zeros(columns.many, np.int64)
    combinations: list[tuple[int, ...]] = [()]
    for _, theirs, _ in rare:
        before, value, number = pairs(number, columns[theirs])
        combinations = [
            (*combinations[number_before], other)
            for number_before, other in zip(before.tolist(), value.tolist(), strict=True)
        ]
    members = [_members(rare, values) for values in combinations]
    late = np.zeros(columns.many, bool)
    for name in ("queued", "submitted"):
        if name in columns:
            late |= columns[name] > 0
    if not rare and not late.any():
        return None
    texts = pl.Series(
        "attrs", [f"{{{member}}}" if member else None for member in members], dtype=pl.String
    )
    attrs = texts.gather(number.astype(np.uint32))
    if late.any():
        rows = np.flatnonzero(late)
        since = columns["start"][rows]
        own = [
            ",".join(
                ([members[kind]] if members[kind] else [])
                + [
                    f'"{name}_ns_before":{ago}'
                    for name, ago in (("queued", time_queued), ("submitted", other))
                    if ago
                ]
            )
            for kind, time_queued, other in zip(
                number[rows].tolist(),
                *(
                    np.where(columns[name][rows] > 0, since - columns[name][rows], 0).tolist()
                    for name in ("queued", "submitted")
                ),
                strict=True,
            )
        ]
        attrs = attrs.scatter(
            rows, [f"{{{attribute_text}}}" if attribute_text else None for attribute_text in own]
        )
    return attrs


def _members(rare: Sequence[tuple[str, str, int]], values: tuple[int, ...]) -> str:
    """Return the members of a JSON object, without its braces."""
    attributes: dict[str, Any] = {}
    for (name, theirs, nothing), value in zip(rare, values, strict=True):
        if value == nothing:
            continue
        if theirs == "launchType":
            attributes[name] = _LAUNCHES.get(value, value)
        else:
            attributes[name] = bool(value) if theirs == "isDeviceLaunched" else value
    return json.dumps(attributes, separators=(",", ":"))[1:-1]


def memops(decoded: Decoded) -> pl.DataFrame | None:
    """The ``memops`` table; None without a record of a copy or a set."""
    parts = []
    for kind in (kinds.MEMCPY, kinds.MEMCPY2):
        if kind in decoded:
            records = decoded[kind]
            columns = {
                **_work(records),
                "kind": _labels("kind", records["copyKind"], kinds.COPIES, "kind {}"),
                "src_kind": _labels("src_kind", records["srcKind"], kinds.MEMORIES, "unknown"),
                "dst_kind": _labels("dst_kind", records["dstKind"], kinds.MEMORIES, "unknown"),
                "bytes": records["bytes"],
            }
            if "dstDeviceId" in records:
                source, target = records["srcDeviceId"], records["dstDeviceId"]
                peer = np.where(target == records["deviceId"], source, target)
                columns["peer"] = _null(
                    peer, (peer == records["deviceId"]) | (peer == kinds.NONE32)
                )
            parts.append(pl.DataFrame(columns))
    if kinds.MEMSET in decoded:
        records = decoded[kinds.MEMSET]
        frame = pl.DataFrame({**_work(records), "bytes": records["bytes"]})
        memory = _labels("dst_kind", records["memoryKind"], kinds.MEMORIES, "unknown")
        parts.append(frame.with_columns(_constant("kind", "memset"), memory))
    if kinds.UNIFIED_MEMORY_COUNTER in decoded:
        parts.append(_unify(decoded[kinds.UNIFIED_MEMORY_COUNTER]))
    if kinds.MEM_DECOMPRESS in decoded:
        records = decoded[kinds.MEM_DECOMPRESS]
        frame = pl.DataFrame({**_work(records), "bytes": records["sourceBytes"]})
        parts.append(frame.with_columns(_constant("kind", "decompress")))
    return pl.concat(parts, how="diagonal") if parts else None


def _work(found: Columns) -> dict[str, Any]:
    columns = _place(found, _PLACED)
    if "graphNodeId" in found:
        columns["graph_node"] = found["graphNodeId"]
    return columns


def _unify(columns: Columns) -> pl.DataFrame:
    """Return copies of pages of managed memory; the other counters (page faults, thrashing) are no copies."""
    rows = np.flatnonzero(np.isin(columns["counterKind"], list(kinds.UNIFIED_COPIES)))
    kind, source, target = (columns[name][rows] for name in ("counterKind", "srcId", "dstId"))
    outwards = kind == 2  # from the device to the host
    device = np.where(outwards, source, target)
    peer = np.where(kind == 8, source, kinds.NONE32)
    return pl.DataFrame(
        {
            "device": _null(device, device == kinds.NONE32),
            "stream": columns["streamId"][rows],
            "start": columns["start"][rows],
            "end": columns["end"][rows],
            "kind": _labels("kind", kind, kinds.UNIFIED_COPIES, "kind {}"),
            "peer": _null(peer, peer == kinds.NONE32),
            "bytes": columns["value"][rows],
        }
    )


def calls(decoded: Decoded, version: int) -> pl.DataFrame | None:
    """The ``calls`` table, with CUPTI's numbers of threads; None without a record of a call."""
    parts = []
    for kind in (kinds.RUNTIME, kinds.DRIVER):
        if kind not in decoded:
            continue
        records, names = decoded[kind], call_names.names(kind, version)
        distinct, code = np.unique(records["cbid"], return_inverse=True)
        texts = [
            names[number] if number < len(names) else f"cbid_{number}"
            for number in distinct.tolist()
        ]
        parts.append(
            pl.DataFrame(
                {
                    "thread": records["threadId"],
                    "start": records["start"],
                    "end": records["end"],
                    "name": spread("name", texts, code.reshape(-1)),
                    "correlation": of_successful(
                        pl.Series(records["correlationId"]), pl.Series(records["returnValue"])
                    ),
                }
            )
        )
    return pl.concat(parts) if parts else None


def syncs(decoded: Decoded) -> pl.DataFrame | None:
    """The ``syncs`` table; None without a record of a synchronisation."""
    if kinds.SYNCHRONIZATION not in decoded:
        return None
    records = decoded[kinds.SYNCHRONIZATION]
    event, stream = records["cudaEventId"], records["streamId"]
    columns = {
        "context": records["contextId"],
        "stream": _null(stream, stream == kinds.NONE32),
        "start": records["start"],
        "end": records["end"],
        "kind": _labels("kind", records["type"], kinds.SYNCS, "unknown"),
        "correlation": records["correlationId"],
        "event_id": _null(event, event == kinds.NONE32),
    }
    device = _devices_of(decoded, records["contextId"])
    columns["device"] = _null(device, device < 0)
    if kinds.CUDA_EVENT in decoded:
        record = _record(records, decoded[kinds.CUDA_EVENT])
        event_records = decoded[kinds.CUDA_EVENT]
        columns["record"] = _null(at(event_records["correlationId"], record), record < 0)
        columns["event_stream"] = _null(at(event_records["streamId"], record), record < 0)
    return pl.DataFrame(columns)


def _record(waits: Columns, records: Columns) -> Ints:
    """Return for each wait the row of the record of the event that it waits for; -1 if unknown. CUPTI numbers
    each record of an event since CUDA 12.8. Before that, it is the event's last record before the wait, by
    the numbers of the calls."""
    if "cudaEventSyncId" in waits and "cudaEventSyncId" in records:
        waited, other = waits["cudaEventSyncId"], records["cudaEventSyncId"]
        order = np.argsort(other, kind="stable")
        index = np.searchsorted(other[order], waited, side="right") - 1
        row = at(order, index)
        return np.where((at(other, row) == waited) & (waited > 0) & (row >= 0), row, -1)
    frame = pl.DataFrame(
        {
            "context": records["contextId"],
            "event": records["eventId"],
            "at": records["correlationId"],
            "row": np.arange(records.many),
        }
    ).sort("at")
    wanted = pl.DataFrame(
        {
            "context": waits["contextId"],
            "event": waits["cudaEventId"],
            "at": waits["correlationId"],
            "place": np.arange(waits.many),
        }
    ).sort("at")
    matched = wanted.join_asof(frame, on="at", by=["context", "event"], check_sortedness=False)
    rows: Ints = matched.sort("place")["row"].fill_null(-1).to_numpy()
    return np.where(waits["cudaEventId"] == kinds.NONE32, -1, rows)


def _devices_of(decoded: Decoded, context: Ints) -> Ints:
    """The device of each context, from the records of contexts, and of work that ran in them; -1 if
    unknown."""
    device_of_context: dict[int, int] = {}
    for kind in (kinds.MEMCPY, kinds.MEMSET, kinds.KERNEL, kinds.CONCURRENT_KERNEL, kinds.CONTEXT):
        if kind in decoded:
            contexts, other, _ = pairs(decoded[kind]["contextId"], decoded[kind]["deviceId"])
            device_of_context |= dict(zip(contexts.tolist(), other.tolist(), strict=True))
    distinct, code = np.unique(context, return_inverse=True)
    device = np.array([device_of_context.get(number, -1) for number in distinct.tolist()], np.int64)
    return device[code.reshape(-1)] if len(device) else np.empty(0, np.int64)


def graph_nodes(decoded: Decoded, facts: Facts) -> pl.DataFrame | None:
    """Return nodes of CUDA graphs when they were created, on the recorder's clock; None if none is known."""
    if not facts.nodes:
        return None
    return pl.DataFrame(
        facts.nodes,
        schema={
            "time": pl.Int64, "thread": pl.Int64, "graph": pl.Int64, "node": pl.Int64,
            "original_node": pl.Int64,
        },
        orient="row",
    )  # fmt: skip


def source_nodes(decoded: Decoded, nodes_known: pl.DataFrame | None) -> pl.DataFrame | None:
    """Return executed nodes with the nodes that they were instantiated from, at the time of their first
    run. (CUPTI reports these since CUDA 13.4.) Only nodes that ``nodes_known`` lacks are returned; None if
    there are none."""
    parts = []
    for kind in (kinds.KERNEL, kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET):
        if kind in decoded and "sourceGraphNodeId" in decoded[kind]:
            records = decoded[kind]
            rows = records["sourceGraphNodeId"] != 0
            parts.append(
                pl.DataFrame(
                    {
                        "time": records["start"][rows],
                        "graph": records["graphId"][rows],
                        "node": records["graphNodeId"][rows],
                        "original_node": records["sourceGraphNodeId"][rows],
                    }
                )
            )
    if not parts:
        return None
    every = pl.concat(parts).filter(pl.col("time") > 0)
    first = every.group_by("graph", "node", "original_node").agg(pl.col("time").min())
    if nodes_known is not None:
        first = first.join(nodes_known.select("node").unique(), on="node", how="anti")
    return first.sort("node") if len(first) else None


def overhead(decoded: Decoded) -> list[Note]:
    """Return a note on the time that CUPTI and the driver took for themselves, by reason."""
    if kinds.OVERHEAD not in decoded:
        return []
    records = decoded[kinds.OVERHEAD]
    frame = pl.DataFrame(
        {"kind": records["overheadKind"], "took": np.maximum(records["end"] - records["start"], 0)}
    )
    sums = frame.group_by("kind").agg(pl.col("took").sum(), pl.len()).sort("took", descending=True)
    listed = ", ".join(
        f"{_OVERHEADS.get(kind, f'kind {kind}')} {took / 1e6:.3f} ms ({count})"
        for kind, took, count in sums.iter_rows()
    )
    return [("info", f"CUPTI's overhead by reason (times it occurred): {listed}", records.many)]


def _labels(name: str, numbers: Ints, names: Mapping[int, str], other: str) -> pl.Series:
    distinct, code = np.unique(numbers, return_inverse=True)
    texts = [names.get(number, other.format(number)) for number in distinct.tolist()]
    return spread(name, texts, code.reshape(-1))


def _null(values: NDArray[Any], where: NDArray[np.bool_]) -> pl.Series:
    column = pl.Series(values.astype(np.int64))
    return column.set(pl.Series(where), None) if where.any() else column


def _constant(name: str, text: str) -> pl.Expr:
    return pl.lit(text).cast(pl.Categorical).alias(name)
