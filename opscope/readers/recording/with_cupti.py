"""Join a process's ranges with CUPTI's activity records of the same process, on the recorder's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.cupti import files, kinds
from opscope.core.cupti.layouts import Layout, UnknownVersion
from opscope.core.cupti.walk import chosen
from opscope.core.tables.clockfit import NEAR_DRIFT, ClockFit, fit
from opscope.core.tables.trace import Trace, table_schema
from opscope.readers.errors import BadInput
from opscope.readers.recording import cupti_tables, ring
from opscope.readers.recording.beside import ACCEPTED_NS, REACH_NS, joined
from opscope.readers.recording.cupti_files import (
    Buffers,
    Facts,
    Note,
    add_segment,
    read_buffers,
    read_facts,
)
from opscope.readers.recording.cupti_memory import allocations
from opscope.readers.recording.cupti_records import Columns, decoded
from opscope.readers.recording.kineto_threads import unseen, with_os_threads
from opscope.readers.recording.onclock import moved, to_unix
from opscope.readers.recording.windows import launched_within
from opscope.readers.rows import frame_of
from opscope.readers.sound import sound_trace

#: Columns that the recorder may fill in too, besides CUPTI's records.
_TOLD: Final = (
    "name", "uuid", "cc", "sm_count", "memory", "max_threads_per_sm", "clock_khz", "mem_bandwidth",
)  # fmt: skip


def devices(
    decoded: Mapping[int, Columns], facts: Facts, used: set[int]
) -> tuple[pl.DataFrame, list[Note]]:
    """Return the ``devices`` table, and notes: the devices that were ``used``, or else all that are known."""
    rows: dict[int, dict[str, Any]] = {}
    notes: list[Note] = []
    if kinds.DEVICE in decoded:
        records = decoded[kinds.DEVICE]
        for index in range(min(records.many, 4096)):
            row = {name: records[name][index] for name in records.by_name}
            device = int(row["id"])
            rows[device] = _row(row, facts)
            if row["isMigEnabled"] and (not used or device in used):
                notes.append(
                    (
                        "info",
                        f"device {device} is a slice of a GPU (MIG): GPU instance {row['gpuInstanceId']}, "
                        f"compute instance {row['computeInstanceId']}",
                        1,
                    )
                )
    for device, told in facts.devices.items():
        facts_of_device = rows.setdefault(device, {})
        for name in _TOLD:
            if facts_of_device.get(name) is None and isinstance(told.get(name), (int, str)):
                facts_of_device[name] = told[name]
    wanted = sorted(used) or sorted(rows)
    schema = table_schema("devices")
    wide = {name: pl.Int64 if dtype == pl.Int32 else dtype for name, dtype in schema.items()}
    kept = [{**rows.get(device, {}), "process": 0, "device": device} for device in wanted]
    return frame_of(kept, wide, notes, "devices"), notes


def _row(row: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    texts = facts.names.get(int(row["name"]) & ((1 << 64) - 1))
    major, minor = int(row["computeCapabilityMajor"]), int(row["computeCapabilityMinor"])
    mig = bool(row["isMigEnabled"])
    return {
        "name": texts[-1][1] if texts else None,
        "uuid": _uuid(row["migUuid" if mig else "uuid"], "MIG" if mig else "GPU"),
        "cc": f"{major}.{minor}" if 0 < major < 100 and minor < 100 else None,
        "sm_count": int(row["numMultiprocessors"]) or None,
        "memory": int(row["globalMemorySize"]) or None,
        "max_threads_per_sm": int(row["maxWarpsPerMultiprocessor"]) * int(row["numThreadsPerWarp"])
        or None,
        "clock_khz": int(row["coreClockRate"]) or None,
        "mem_bandwidth": int(row["globalMemoryBandwidth"]) * 1000 or None,  # CUPTI's are kB/s
    }


def _uuid(value: Any, kind: str) -> str | None:
    digits = bytes(value).ljust(16, b"\0").hex()
    if not digits.strip("0"):
        return None
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return f"{kind}-{'-'.join(parts)}"


#: Tables taken from CUPTI's records.
_TAKEN: Final = ("devices", "calls", "kernels", "memops", "syncs", "allocations")
#: The kinds of records that each table is made of; any one of them makes the table.
_KINDS: Final[Mapping[str, tuple[int, ...]]] = {
    "kernels": (kinds.KERNEL, kinds.CONCURRENT_KERNEL),
    "memops": (kinds.MEMCPY, kinds.MEMSET),
    "calls": (kinds.RUNTIME, kinds.DRIVER),
    "syncs": (kinds.SYNCHRONIZATION,),
    "allocations": (kinds.MEMORY2,),
}
_EVER: Final = 1 << 62


@dataclass(slots=True)
class Activity:
    """CUPTI's records of a process as a trace on CUPTI's own clock, and the facts beside them.

    ``nodes``: nodes of CUDA graphs as they were made, on the recorder's clock.
    """

    trace: Trace
    facts: Facts
    nodes: pl.DataFrame | None
    clone_nodes: pl.DataFrame | None


def load(path: Path) -> Activity:
    """Return CUPTI's records, from the part's ``cupti.jsonl`` and the buffers beside it. Raises BadInput if a
    file cannot be read, or if the layout of this version's records is not known."""
    facts = read_facts(path)
    raw = path.with_name(files.RAW)
    notes: list[Note] = [("info", f"CUPTI: {text}", 1) for text in facts.notes]
    read = [(0, read_buffers(raw, notes))]
    for segment in ring.segments(path.parent):
        before = add_segment(facts, segment / files.FACTS)
        read.append((before, read_buffers(segment / files.RAW, notes)))
    layout = _layout(facts, raw, [buffers for _, buffers in read])
    columns = {} if layout is None else decoded(read, layout, notes, facts.changed)
    tables = _tables(columns, facts, notes)
    notes += cupti_tables.overhead(columns)
    if facts.dropped:
        message = (
            "records that CUPTI dropped for want of room: kernels, copies or calls are missing"
        )
        notes.append(("warning", message, facts.dropped))
    used = {
        device
        for name in ("kernels", "memops")
        if name in tables
        for device in tables[name]["device"].drop_nulls().unique().to_list()
    }
    tables["devices"], device_notes = devices(columns, facts, used)
    tables["notes"] = pl.DataFrame(
        notes + device_notes,
        schema={"severity": pl.String, "what": pl.String, "how_many": pl.Int64},
        orient="row",
    )
    nodes = cupti_tables.graph_nodes(columns, facts)
    origin = {"format": "cupti", "version": facts.version, "paths": [str(raw)]}
    for name, frame in tables.items():
        if name not in ("notes", "devices"):
            tables[name] = frame.with_columns(pl.lit(0, pl.Int32).alias("process"))
    trace = sound_trace(tables, origin)
    return Activity(trace, facts, nodes, cupti_tables.source_nodes(columns, nodes))


def merge(ranges: Trace, activity: Activity) -> Trace:
    """Return the recorder's part ``ranges`` with the tables of ``activity``, all on the recorder's clock.

    The facts' pairs of readings give the offset of the clocks, else the Unix clock does. A note says which,
    and its error. Durations are unchanged.
    """
    trace, facts = activity.trace, activity.facts
    clock, note = _clock(ranges, facts)
    numbers = pl.DataFrame(
        facts.threads, schema={"number": pl.Int64, "thread": pl.Int64}, orient="row"
    )
    calls, unclear = with_os_threads(trace["calls"], ranges, clock, numbers)
    threads = pl.concat([ranges["threads"], unseen(calls, ranges["threads"])])
    if trace.has("calls"):
        trace = trace.replace(calls=calls)
    changed = {"threads": threads}
    nodes = [] if activity.nodes is None else [activity.nodes]
    if activity.clone_nodes is not None:
        nodes.append(moved(activity.clone_nodes, clock))
    if nodes:
        frame = pl.concat(nodes, how="diagonal")
        changed["graph_nodes"] = frame.with_columns(pl.lit(0, pl.Int32).alias("process"))
    if ranges.has("allocations") and trace.has("allocations"):
        # a framework's allocations are parts of what its allocator requested from the driver
        trace = Trace({**trace.tables}, trace.present - {"allocations"}, trace.origin)
        trace.note(
            "info", "CUPTI's records of memory are left out: the framework's own were recorded"
        )
    merged = joined(ranges, trace, _TAKEN, clock, "cupti", changed)
    if "ring" in ranges.origin:
        merged = _since(merged, ranges.origin["recorded"][0])
    merged.origin["kernels"] = trace.origin
    merged.note(*note)
    if unclear:
        message = (
            "GPU runtime calls whose thread is not known: several threads share CUPTI's number"
        )
        merged.note("warning", message, unclear)
    return merged


def _since(trace: Trace, begin: int | None) -> Trace:
    """Return the trace of a ring, without calls before its ``begin`` and without work that was launched
    before it."""
    if begin is None:
        return trace
    changed = {
        name: launched_within(trace[name], trace["calls"], begin, _EVER)
        for name in ("kernels", "memops")
        if trace.has(name)
    }
    for name, time in (("calls", "start"), ("syncs", "start"), ("allocations", "time")):
        if trace.has(name) and name in _TAKEN:
            changed[name] = trace[name].filter(pl.col(time) >= begin)
    return trace.replace(**changed)


def _layout(facts: Facts, raw: Path, read: Sequence[Buffers]) -> Layout | None:
    """The layout of the records; None if no buffer was written. Raises BadInput."""
    if not any(len(buffers.begins) for buffers in read):
        return None
    every = chain.from_iterable(buffers.each() for buffers in read)
    try:
        return chosen(facts.version, every, facts.sizes)
    except UnknownVersion as error:
        raise BadInput(raw, str(error)) from None


def _tables(
    columns: dict[int, Columns], facts: Facts, notes: list[Note]
) -> dict[str, pl.DataFrame]:
    found = {
        "kernels": cupti_tables.kernels(columns, facts),
        "memops": cupti_tables.memops(columns),
        "calls": cupti_tables.calls(columns, facts.version),
        "syncs": cupti_tables.syncs(columns),
        "allocations": allocations(columns),
    }
    # a table without rows means that nothing happened; if none of its kinds was enabled, it is not known
    # whether anything happened, so the table is left out
    empty = {name: pl.DataFrame(schema=table_schema(name)) for name in found}
    tables = {
        name: empty[name] if frame is None else frame
        for name, frame in found.items()
        if frame is not None or not facts.kinds.isdisjoint(_KINDS[name])
    }
    for name in ("kernels", "memops"):
        if name in tables:
            tables[name] = _time(name, tables[name], notes)
    if "kernels" in tables:
        kernels = tables["kernels"]
        if "attrs" in kernels.columns:
            is_graph = kernels["attrs"].str.contains('"graph_trace"', literal=True).fill_null(False)
            if count := int(is_graph.sum()):
                message = (
                    "CUDA graph launches traced as a whole: their device time is counted, their kernels "
                    "are not known"
                )
                notes.append(("warning", message, count))
        missing = kernels["name"].null_count()
        if missing:
            notes.append(("warning", "kernels whose name was not recorded", missing))
    return tables


def _time(name: str, frame: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    """Remove work whose times CUPTI could not take: it writes 0 for both."""
    untimed = (pl.col("start") == 0) & (pl.col("end") == 0)
    timed = frame.filter(~untimed)
    if len(timed) < len(frame):
        message = f"{name} without times, which CUPTI could not take: left out"
        notes.append(("warning", message, len(frame) - len(timed)))
    return timed


def _clock(ranges: Trace, facts: Facts) -> tuple[ClockFit, tuple[str, str]]:
    """Return the clock by which the records are moved, and the text of a note."""
    if not facts.clocks:
        guess = -to_unix(ranges)
        return ClockFit(0, guess, 0.0, REACH_NS, 0, 0), (
            "warning",
            "no pair of readings of CUPTI's and the recorder's clock: kernels are placed by the Unix clock",
        )
    pairs = np.array(facts.clocks, np.int64)
    theirs, ours, uncertain = pairs[np.argsort(pairs[:, 0], kind="stable")].T
    width = np.abs(uncertain)
    fitted = fit(ours - width, ours + width, theirs, theirs, NEAR_DRIFT)
    good = fitted.error_ns <= ACCEPTED_NS and fitted.slack_ns >= 0
    edges = "" if good else "; work at the edges of ranges may be counted in a neighbouring range"
    return fitted, (
        "info" if good else "warning",
        f"kernels are placed on the recorder's clock to within {fitted.error_ns} ns by {fitted.readings} "
        f"pairs of readings{edges}",
    )
