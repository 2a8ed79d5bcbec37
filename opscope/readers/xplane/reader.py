"""Read XPlane files (``.xplane.pb`` of jax.profiler, TensorFlow and PyTorch/XLA) as trace tables.

Host lines give the calls that launch kernels, HLO operations that ran on the CPU (ranges in domain
``xla``), TensorFlow's ops (domain ``TSL``), steps, Python frames and the runtime's work. Device lines give
kernels and copies, each with its HLO operation (``op_key``). The programs, in plane ``/host:metadata``,
give the specs, which say what an operation's name means.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core import progress
from opscope.core.hlo.wire import WireError
from opscope.core.perf.devices.vendors import VENDOR, vendor_of_events
from opscope.core.tables.identity import decide, facts_of
from opscope.core.tables.trace import Trace, concat
from opscope.readers.errors import BadInput
from opscope.readers.sound import sound_trace

from .cupti import MAYBE_NOTE, OVERHEAD_LINE
from .device import DETAILS, device_rows, executed, with_kinds
from .found import SUFFIX, files, runs
from .host import HOST_STATS, Host
from .programs import Programs
from .space import Line, Plane, Space
from .viewer_json import JsonSpace

#: Protobuf's own limit; a larger file, unpacked, is not an XSpace.
LARGEST: Final = 2 << 30
_GZIP: Final = b"\x1f\x8b"
_BLOCK: Final = 4 << 20
#: The name of a stream's line. The viewer derives other lines from the streams: they would count twice.
_STREAM: Final = re.compile(r"Stream #([0-9]{1,18})(?![0-9])")
_REST: Final = {"_counters_": "samples of hardware counters and of the device's state, left out"}
_REST_ELSE: Final = "events of lines that only repeat the streams, left out"
_DEVICE: Final = re.compile(r"/device:(?:[A-Z_]+):(\d+)")
#: Suffix with the pid of a plane, if one process gathered those of several (MergeSubprocessXSpace).
_SUBPROCESS: Final = re.compile(r" \[(\d{1,9})\]$")


def read(path: str | os.PathLike[str]) -> Trace:
    """Return the trace in an XPlane file, in the trace viewer's JSON (both plain or gzip), or in a folder.

    Raises BadInput, which names the file, if it is none of these.
    """
    location = Path(path)
    if location.is_dir():
        paths = files(location)
        if not paths:
            raise BadInput(path, f"a folder without a {SUFFIX} file")
        traces = [read(path) for path in paths]
        facts = [facts_of(str(path), one) for path, one in zip(paths, traces, strict=True)]
        if (conflict := decide(facts, unrelated=True).conflict) is not None:
            raise BadInput(*conflict)
        trace = traces[0] if len(traces) == 1 else concat(traces)
        if len(others := runs(location)) > 1:
            newest = f"{paths[0].parent.name}, the newest of {len(others)} runs in this folder"
            trace.note("warning", f"read: {newest}; opscope view lists them", 1)
        return trace
    try:
        data = _bytes(location)
        if data[:1] == b"{":
            return _trace(location, JsonSpace(location, data))
        return _trace(location, Space(data))
    except WireError as error:
        raise BadInput(path, f"not an XPlane file: {error}") from None


def _bytes(file_path: Path) -> bytes:
    try:
        with file_path.open("rb") as file:
            packed = file.read(2) == _GZIP
            if not packed and file_path.stat().st_size > LARGEST:
                raise BadInput(file_path, f"over {LARGEST >> 30} GB, which protobuf does not allow")
            file.seek(0)
            if not packed:
                return file.read()
            parts, total = [], 0
            with gzip.GzipFile(fileobj=file) as unpacked:
                while block := unpacked.read(_BLOCK):
                    total += len(block)
                    if total > LARGEST:
                        raise BadInput(file_path, f"unpacks to over {LARGEST >> 30} GB")
                    parts.append(block)
            return b"".join(parts)
    except BadInput:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(file_path, f"damaged gzip: {error}") from None
    except OSError as error:
        raise BadInput(file_path, error.strerror or str(error)) from error


def _trace(file_path: Path, space: Space | JsonSpace) -> Trace:
    planes = list(space.planes())
    if not planes:
        raise BadInput(file_path, "the XSpace has no planes")
    processes: dict[int | None, list[Plane]] = {}
    for plane in planes:
        match = _SUBPROCESS.search(plane.name)
        if match:
            plane.name = plane.name[: match.start()]
        processes.setdefault(int(match.group(1)) if match else None, []).append(plane)
    start = _start(planes)
    # the process that wrote the file comes first
    ordered = sorted(processes.items(), key=lambda item: -1 if item[0] is None else item[0])
    traces = [_process(file_path, space, own, start, pid) for pid, own in ordered]
    for text in space.errors:
        traces[0].note("error", f"the profiler reported: {text[:200]}")
    for text in space.warnings:  # such as events that it dropped, because it keeps only two million
        traces[0].note("warning", f"the profiler reported: {text[:200]}")
    return concat(traces)


def _process(
    file_path: Path,
    space: Space | JsonSpace,
    planes: list[Plane],
    start: int | None,
    pid: int | None,
) -> Trace:
    """Return the trace of one process's planes."""
    programs = Programs(space.data, space.written if isinstance(space, JsonSpace) else None)
    for plane in planes:
        programs.add(plane)
    host = Host(programs)
    tables: dict[str, list[pl.DataFrame]] = {"kernels": [], "memops": [], "devices": []}
    counts: Counter[str] = Counter()
    for plane in planes:
        match = _DEVICE.match(plane.name)
        if match:
            if len(match.group(1)) > 9:
                raise BadInput(
                    file_path, f"a plane of device {match.group(1):.20}: no device has this number"
                )
            _device(file_path, space, plane, int(match.group(1)), programs, tables, counts)
        elif plane.name.startswith("/host:") and plane.name != "/host:metadata":
            for line in plane.lines:
                for events in space.batches(plane, line, HOST_STATS):
                    host.add(plane, line, events)
                _tell(file_path, space, line)
    low = min((line.time for plane in planes for line in plane.lines), default=0)
    tables_made: dict[str, pl.DataFrame] = {
        "processes": _process_row(space, programs, _pid(planes) if pid is None else pid),
        # newer profilers count from their start, older ones write Unix times
        "clocks": _clock(start if low < 1 << 59 else 0),
        "specs": programs.specs(),
        **host.tables(),
    }
    for name, frames in tables.items():
        if frames:
            tables_made[name] = pl.concat(frames)
    if "devices" in tables_made:  # a plane that is too large for one message is split into several
        tables_made["devices"] = tables_made["devices"].unique(
            ["process", "device"], keep="first", maintain_order=True
        )
    if "memops" in tables_made and "calls" in tables_made:
        tables_made["memops"] = with_kinds(tables_made["memops"], tables_made["calls"])
    has_device = any(_DEVICE.match(plane.name) for plane in planes)
    if has_device:
        for name in ("kernels", "memops"):
            tables_made.setdefault(name, executed(None))
    origin: dict[str, object] = {"format": "xplane", "paths": [str(file_path)]}
    vendor = vendor_of_events(plane.name for plane in planes)
    if vendor is not None:
        origin[VENDOR] = vendor
    trace = sound_trace(tables_made, origin)
    for message, how_many in counts.items():
        trace.note("info", message, how_many)
    for message, how_many in (*programs.notes(), *host.notes()):
        trace.note("warning", message, how_many)
    if not host.without_buffers and _may_lack_buffers(trace):
        trace.note("info", MAYBE_NOTE)
    return trace


def _process_row(space: Space | JsonSpace, programs: Programs, pid: int | None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "process": [0],
            "host": [space.hosts[0] if space.hosts else None],
            "pid": [pid],
            "start_time": [None],
            "clock_domain": [0],
            "framework": [programs.framework],
            "versions": [programs.versions],
        },
        schema_overrides={"pid": pl.Int64, "start_time": pl.Int64, "host": pl.String},
    )


def _clock(to_unix_ns: int | None) -> pl.DataFrame:
    return pl.DataFrame(
        {"clock_domain": [0], "kind": ["xplane"], "to_unix_ns": [to_unix_ns]},
        schema_overrides={"to_unix_ns": pl.Int64},
    )


def _may_lack_buffers(trace: Trace) -> bool:
    """Whether XLA's kernels ran on CUDA devices, none in a CUDA graph: whether one would have is unknown."""
    kernels, devices = trace["kernels"], trace["devices"]
    return bool(
        len(trace["specs"])
        and devices["cc"].is_not_null().any()
        and kernels["op_key"].is_not_null().any()
        and kernels["graph"].null_count() == len(kernels)
    )


def _start(planes: Sequence[Plane]) -> int | None:
    """The start of the profile (Unix ns), if a plane has it."""
    starts = [
        plane.stats["profile_start_time"] for plane in planes if "profile_start_time" in plane.stats
    ]
    return starts[-1] if starts and isinstance(starts[-1], int) else None


def _pid(planes: Sequence[Plane]) -> int | None:
    """The process's id, if a plane has it."""
    pids = [plane.stats["process_id"] for plane in planes if "process_id" in plane.stats]
    return pids[-1] if pids and isinstance(pids[-1], int) and 0 <= pids[-1] < 1 << 31 else None


def _tell(file_path: Path, space: Space | JsonSpace, line: Line) -> None:
    """Report how far the file is decoded: up to the end of this line."""
    if len(line.ends) and space.data:
        progress.read_share(file_path, int(line.ends[-1]) / len(space.data))


def _device(
    file_path: Path,
    space: Space | JsonSpace,
    plane: Plane,
    number: int,
    programs: Programs,
    tables: dict[str, list[pl.DataFrame]],
    counts: Counter[str],
) -> None:
    properties = ("gpu_device_name", "core_count", "memory_size", "compute_cap_major")
    if any(key in plane.stats for key in properties):
        tables["devices"].append(device_rows(plane, number))
    streams = [(line, at) for line in plane.lines if (at := _stream(line)) is not None]
    used = streams or [(line, line.number) for line in plane.lines if line.name == "XLA Ops"]
    taken = {id(line) for line, _ in used}
    for line in plane.lines:
        if id(line) not in taken and len(line.starts):
            counts[_REST.get(line.name, _REST_ELSE)] += len(line.starts)
    for line, stream in used:
        _tell(file_path, space, line)
        for events in space.batches(plane, line, DETAILS):
            rows = executed(events, plane, line, number, stream, programs)
            if not len(events.number):
                continue
            for name, row in rows.items():
                if not isinstance(row, pl.DataFrame):
                    counts[name] += row
                elif len(row):
                    tables[name].append(row)


def _stream(line: Line) -> int | None:
    """The stream of a line; None for a line that is derived from the streams."""
    match = _STREAM.match(line.name)
    if match:
        return int(match.group(1))
    # a stream on which the profiler worked too has only that work's name
    return line.number if line.name == OVERHEAD_LINE else None
