"""Read Kineto's JSON traces: torch.profiler, 2021 to 2026, on NVIDIA and AMD GPUs.

Times are integer ns: Unix time if the trace has its base, else as written. GPU rows belong to the process of
the call with their correlation id. ``External id`` is never used as a link: in most real files it is a copy
of the correlation id.

Ranges have three domains. ``kineto``: what the framework ran, as opscope's range text. ``user``:
``record_function`` blocks and steps. ``python``: Python frames, if the trace has stacks; ``nn.Module: X_0``
has category ``layer``. ``fwd_thread`` of a backward row is Kineto's number of its forward op's thread;
``fwd_thread`` of a forward row is the number of its own thread, if known. So rows with the same
(process, fwd_thread, seq) are an op and its backward node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.dialects.launches import LAUNCH
from opscope.core.tables.columns import matching
from opscope.core.tables.trace import Trace, conform
from opscope.readers.errors import BadInput
from opscope.readers.sound import sound_trace

from . import device, links, other
from .columns import Columns, Inexact
from .counters import counters
from .events import decode_events, decode_metrics
from .groups import member_ranks
from .json_events import KinetoFile
from .ranges import ranges
from .target import devices, process_row, threads

#: Keys that Kineto always writes, whatever it recorded.
_KINETO: Final = {"schemaVersion", "baseTimeNanoseconds", "deviceProperties"}


def read(path: str | PathLike[str]) -> Trace:
    """Return the trace in a Kineto JSON file, plain or compressed with gzip or zstd. Raises BadInput."""
    file = KinetoFile(Path(path))
    columns, metrics = _decoded(file)
    unpaired = links.pair(columns)
    number = links.numbers(columns.ids)
    left_out = other.left_out(columns, number)
    taken = other.adopt(columns, number)
    empty = not any(len(rows) for rows in columns.kinds.values())
    if empty and not _KINETO & set(file.meta):  # other tools' files may also have no events
        raise BadInput(path, "traceEvents has nothing that torch.profiler records")
    files = links.processes(columns, number)
    base = _base(file.meta)
    placed = links.Placed(columns, number, files, base, member_ranks(file.meta))
    calls = device.calls(placed)
    tables = {
        "processes": process_row(file.meta, columns, files, Path(path).name),
        "threads": threads(columns, number, files),
        "clocks": _clock(bool(base) or _is_unix(columns)),
        "ranges": ranges(placed),
    }
    ran = _Executed({})
    if _traced_gpu(columns, file.meta) or left_out:
        ran = _executed(placed, calls, bool(left_out))
        tables |= ran.tables
    tables["devices"] = devices(file.meta, files, tables)
    if len(columns["memory"]):
        tables["allocations"] = device.allocations(placed)
    unlinked = None
    if len(columns["metrics"]):
        tables["counters"], marks, unlinked = counters(
            columns, metrics, files.main, base, calls, len(tables["ranges"])
        )
        tables["ranges"] = pl.concat(
            [conform("ranges", tables["ranges"]), conform("ranges", marks)]
        )
    origin = {
        "format": "kineto",
        "tool": "torch.profiler",
        "version": str(file.meta.get("schemaVersion", "")),
        "paths": [str(path)],
        "resolution_ns": 1 if columns.fractional else 1000,
        **({"gpu": True} if ran.unseen else {}),
    }
    trace = sound_trace(tables, origin)
    if empty:
        trace.note("warning", "the profiler recorded nothing: the trace has no events")
    _note_damage(trace, file, columns, unpaired, ran.recovered)
    _note_devices(trace, ran.lost, left_out, taken)
    if placed.ambiguous:
        trace.note(
            "warning",
            "launches of several processes share a correlation id, as in a file that was merged of several"
            " ranks, and nothing shows whose work it was: not attributed",
            placed.ambiguous,
        )
    if unlinked:
        trace.note("warning", unlinked, len(columns["metrics"]))
    return trace


def _decoded(file: KinetoFile) -> tuple[Columns, list[dict[str, Any]]]:
    """The file's events as columns, and the ``args`` of CUPTI's range profiler unchanged."""
    columns = Columns()
    metrics: list[dict[str, Any]] = []
    for events in file.blocks():
        try:
            columns.add(events)
        except Inexact:  # a double cannot represent these times to the ns
            columns.add(decode_events(file.body, exact=True) or [])
        if b"cuda_profiler_range" in file.body:
            metrics += decode_metrics(file.body, "cuda_profiler_range")
    return columns, metrics


def _clock(is_unix: bool) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "clock_domain": [0],
            "kind": ["unix" if is_unix else "unknown"],
            "to_unix_ns": [0 if is_unix else None],
        }
    )


@dataclass(frozen=True, slots=True)
class _Executed:
    """What ran on the GPUs. ``recovered``: number of kernels linked by flow arrows; ``lost``: number of
    launches if no kernel was recorded; ``unseen``: whether kernels ran and the file has none."""

    tables: dict[str, pl.DataFrame]
    recovered: int = 0
    lost: int = 0
    unseen: bool = False


def _executed(placed: links.Placed, calls: pl.DataFrame, left_out: bool) -> _Executed:
    """Return the tables of GPU work, without ``kernels`` if kernels ran and were not recorded.

    ``left_out``: whether the file has events that may have run on a device and are not read.
    """
    kernels, recovered = device.kernels(placed, calls)
    tables = {
        "calls": calls,
        "kernels": kernels,
        "memops": device.memops(placed, calls),
        "syncs": device.syncs(placed, calls),
    }
    if len(kernels):
        return _Executed(tables, recovered)
    lost = int(matching(calls["name"], LAUNCH).sum())
    unseen = bool(lost) or left_out
    if unseen:  # CUPTI's range profiler, which measures counters, keeps kernels from being recorded
        del tables["kernels"]
        if not len(tables["memops"]):
            del tables["memops"]
    return _Executed(tables, recovered, lost, unseen)


def _base(meta: dict[str, Any]) -> int:
    base = meta.get("baseTimeNanoseconds")
    return base if type(base) is int and 0 <= base < 1 << 61 else 0


def _is_unix(columns: Columns) -> bool:
    """Whether times are already Unix time: later than 2001."""
    for kind in ("call", "op", "kernel"):
        start = columns[kind].column("start")
        if len(start):
            return int(start.min()) > 10**18
    return False


def _traced_gpu(columns: Columns, meta: dict[str, Any]) -> bool:
    return bool(meta.get("deviceProperties")) or any(
        len(columns[kind]) for kind in ("call", "kernel", "memcpy", "memset", "metrics")
    )


def _note_devices(
    trace: Trace, lost: int, left_out: Mapping[str, int], taken: Mapping[str, int]
) -> None:
    """Note kernels that are missing, and events that may be kernels."""
    if lost:
        trace.note("warning", "kernels were launched but not captured: the file has none", lost)
    for category, count in sorted(left_out.items()):
        what = (
            f"events of unknown category {category!r} were left out: they may have run on a device"
        )
        trace.note("warning", what, count)
    for category, count in sorted(taken.items()):
        what = (
            f"events of unknown category {category!r} ran on a device: they are counted as kernels"
        )
        trace.note("info", what, count)


def _note_damage(
    trace: Trace, file: KinetoFile, columns: Columns, unpaired: int, recovered: int
) -> None:
    for what, count, severity in (
        ("events with damaged JSON were left out", file.skipped, "warning"),
        ("blocks of the file with damaged text were repaired", file.repaired, "warning"),
        ("events without a time were left out", columns.untimed, "warning"),
        (
            "events with a negative duration (rounded times) got duration 0",
            columns.negative,
            "info",
        ),
        (
            "begin events without an end, or ends without a begin, were left out",
            unpaired,
            "warning",
        ),
        ("kernels were linked to their launch by flow arrows", recovered, "info"),
        (
            "annotations on GPU streams (gpu_user_annotation) were left out: they repeat host ranges",
            len(columns["gpu_user"]),
            "info",
        ),
    ):
        if count:
            trace.note(severity, what, count)
    for kind, count in sorted(columns.unknown.items()):
        if kind not in ("Trace", "i"):  # the span of the profile, and marks of profiling windows
            trace.note("info", f"events of category {kind!r} are not used", count)
    if not columns.fractional and len(trace["calls"]) + len(trace["ranges"]):
        trace.note("info", "times are whole microseconds", 1)
