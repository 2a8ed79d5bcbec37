"""Read Kineto's JSON traces: torch.profiler, 2021 to 2026, on NVIDIA and AMD GPUs.

Times are integer ns: Unix time if the trace has its base, else as written. GPU rows belong to the process of
the call with their correlation id. ``External id`` links only work that has no correlation id: in most real
files it is a copy of the correlation id.

Ranges have three domains. ``kineto``: what the framework ran, as opscope's range text. ``user``:
``record_function`` blocks and steps. ``python``: Python frames, if the trace has stacks; ``nn.Module: X_0``
has category ``layer``. ``fwd_thread`` of a backward row is Kineto's number of its forward op's thread;
``fwd_thread`` of a forward row is the number of its own thread, if known. So rows with the same
(process, fwd_thread, seq) are an op and its backward node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.dialects.launches import LAUNCH, SHARED_IDS
from opscope.core.perf.devices.vendors import VENDOR, vendor_of_events
from opscope.core.tables.columns import matching, utf8
from opscope.core.tables.impossible import ONLY_RANGES
from opscope.core.tables.other_unit import APART
from opscope.core.tables.trace import Trace, conform
from opscope.readers import foreign
from opscope.readers.errors import TRUNCATED, BadInput, cut_off
from opscope.readers.owners import owner
from opscope.readers.sound import sound_trace

from . import device, links, other
from .columns import DEVICE, HOST, Columns, Inexact
from .counters import counters
from .events import decode_events, decode_metrics
from .groups import member_ranks, only_group
from .json_events import KinetoFile
from .ranges import ranges
from .samples import Note, Sampled, samples
from .target import devices, process_row, threads

#: Keys that Kineto always writes, whatever it recorded.
_KINETO: Final = {"schemaVersion", "baseTimeNanoseconds", "deviceProperties"}
#: The tables with the host's ops, calls and devices: all but annotations.
_WORK: Final = ("op", "python", "call", "memory", *DEVICE)
#: Calls of CUDA and HIP that give a device no work, such as the profiler's own ``cudaDeviceSynchronize``.
_WITHOUT_WORK: Final = re.compile(
    r"(?:__)?(?:cu|cuda|hip)(?!\w*(?:Launch|Mem(?:cpy|set)|Graph))\w+\Z"
)
_NO_KERNELS: Final = (
    "no kernels were recorded, although the machine has a GPU: all times are those of the CPU"
    " (ProfilerActivity.CUDA, or that of the device, records the GPU's)"
)


_EMPTY_STEP: Final = (
    "the trace has the mark of {} and no work: the profiler's schedule began a cycle as the program"
    " ended; the trace of the cycle before has the steps"
)
_UNSEEN_THREADS: Final = (
    "threads launched kernels and have no op in the trace: torch.profiler records the thread that starts it"
    " and autograd's, others only with profile_all_threads; their kernels have no op"
)


def read(path: str | PathLike[str]) -> Trace:
    """Return the trace in a Kineto JSON file, plain or compressed with gzip or zstd. Raises BadInput."""
    file = KinetoFile(Path(path))
    columns, metrics, sampled, start = _decode(file)
    names = (label for event, _, _, label in columns.meta if event == "process_name")
    other_reader = owner(names, columns.categories)
    if other_reader is not None:
        try:
            other_trace: Trace = import_module(f"opscope.readers.{other_reader}").read(Path(path))
            return other_trace
        except BadInput:
            if not any(len(columns[kind]) for kind in (*HOST, *DEVICE)):
                raise  # nor does the file have events of torch.profiler
    writer = columns.writer(file.meta.keys())
    complaint = foreign.of_events(writer)
    if complaint:
        raise BadInput(path, complaint)
    unpaired = links.pair(columns)
    number = links.numbers(columns.ids)
    left_out = other.left_out(columns, number)
    taken = other.adopt(columns, number)
    empty = not any(len(columns[kind]) for kind in (*HOST, *DEVICE, "call", "memory"))
    empty &= not len(sampled)
    if empty and file.truncated:
        raise BadInput(path, file.truncated)
    # other tools' files may have no events
    if empty and (left_out or not _KINETO & set(file.meta)):
        complaint = foreign.of_json(start)
        what = "traceEvents has nothing that torch.profiler records"
        raise BadInput(path, complaint or what + _hold(columns))
    files = links.processes(columns, number)
    base = _base(file.meta)
    first_given = links.number_calls(columns)
    group = only_group(file.meta, columns.attrs)
    placed = links.Placed(columns, number, files, base, member_ranks(file.meta), group)
    calls = device.calls(placed)
    tables = {
        "processes": process_row(file.meta, columns, files, utf8(Path(path).name)),
        "threads": threads(columns, number, files),
        "clocks": _clock(bool(base) or _is_unix(columns)),
        "ranges": ranges(placed),
    }
    ran = _Executed({})
    idle_gpu = _has_idle_gpu(columns, file.meta) and not left_out
    if _traced_gpu(columns) or left_out or (empty and file.meta.get("deviceProperties")):
        ran = _execute(placed, calls, bool(left_out))
        work = [ran.tables[name] for name in ("kernels", "memops") if name in ran.tables]
        calls = device.without_unused(calls, first_given, work)
        tables |= ran.tables | {"calls": calls}
    if not idle_gpu:
        tables["devices"] = devices(file.meta, files, tables)
    if len(columns["memory"]):
        tables["allocations"] = device.allocations(placed)
    notes = _add_counters(tables, placed, metrics, sampled, calls)
    origin = {
        "format": "kineto",
        "tool": "torch.profiler",
        "version": str(file.meta.get("schemaVersion", "")),
        "paths": [str(path)],
        "resolution_ns": 1 if columns.fractional else 1000,
        **({"gpu": True} if ran.unseen else {}),
    }
    vendor = vendor_of_events((*writer.categories, *writer.labels))
    if vendor is not None:
        origin[VENDOR] = vendor
    if file.truncated:
        origin[TRUNCATED] = file.truncated
    trace = sound_trace(tables, origin)
    _note_ends(trace, file)
    if empty:
        trace.note("warning", "the profiler recorded nothing: the trace has no events")
    if idle_gpu:
        trace.note("warning", _NO_KERNELS)
    _note_damage(trace, file, columns, unpaired, ran.recovered)
    _note_devices(trace, ran.lost, left_out, taken)
    _note_threads(trace, columns)
    if placed.ambiguous:
        trace.origin[SHARED_IDS] = placed.ambiguous
        trace.note(
            "warning",
            "launches of several processes share a correlation id, as in a file that was merged of several"
            " ranks, and nothing shows whose work it was: not attributed",
            placed.ambiguous,
        )
    for note in notes:
        trace.note(*note)
    return trace


def _add_counters(
    tables: dict[str, pl.DataFrame],
    placed: links.Placed,
    metrics: list[dict[str, Any]],
    sampled: Sampled,
    calls: pl.DataFrame,
) -> list[Note]:
    """Add the hardware counters of kernels, with their marks, and those that were sampled; return notes."""
    columns, process, base = placed.columns, placed.files.main, placed.base
    notes: list[Note] = []
    if len(sampled):
        tables["samples"], notes = samples(sampled, columns, process, base)
    if len(columns["metrics"]):
        first_id = len(tables["ranges"])
        table, marks, unlinked = counters(columns, metrics, process, base, calls, first_id)
        tables["counters"] = table
        both = (conform("ranges", tables["ranges"]), conform("ranges", marks))
        tables["ranges"] = pl.concat(both)
        if unlinked:
            notes.append(("warning", unlinked, len(columns["metrics"])))
    return notes


def _hold(columns: Columns) -> str:
    """Return the categories of unused events, the most frequent first."""
    counts = Counter(columns.unknown)
    for block in columns["other"].blocks:
        for code in block["category"].tolist():
            counts[list(columns.categories)[code]] += 1
    if not counts:
        return ""
    del counts[""]
    if not counts:
        return ""
    kinds = ", ".join(f"{name[:40]!r} ({count})" for name, count in counts.most_common(5))
    return f": its events are of the kinds {kinds}"


def _decode(file: KinetoFile) -> tuple[Columns, list[dict[str, Any]], Sampled, bytes]:
    """Return the file's events as columns, the unchanged ``args`` of CUPTI's range profiler, the samples of
    hardware counters, and the first block."""
    columns, sampled = Columns(), Sampled()
    start, blocks = b"", 0
    metrics: list[dict[str, Any]] = []
    for events in file.blocks():
        try:
            columns.add(events)
        except Inexact:  # a double cannot represent these times to the ns
            columns.add(decode_events(file.body, exact=True) or [])
        if (
            len(columns["metrics"].blocks) > blocks
        ):  # looking for their name in all bytes takes a tenth
            blocks += 1
            metrics += decode_metrics(file.body, "cuda_profiler_range")
        sampled.add(file.body, columns)
        start = start or file.body
    return columns, metrics, sampled, start


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
    """The work on GPUs. ``recovered``: number of kernels linked without a correlation id; ``lost``: number of
    launches if no kernel was recorded; ``unseen``: whether kernels ran that the file does not have."""

    tables: dict[str, pl.DataFrame]
    recovered: int = 0
    lost: int = 0
    unseen: bool = False


def _execute(placed: links.Placed, calls: pl.DataFrame, left_out: bool) -> _Executed:
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


def _traced_gpu(columns: Columns) -> bool:
    """Whether a device was given work, as far as the file shows: calls that launch nothing do not count."""
    if any(len(columns[kind]) for kind in ("kernel", "memcpy", "memset", "metrics")):
        return True
    called = np.unique(columns["call"].column("name", np.int32))
    names = list(columns.names)
    return not all(_WITHOUT_WORK.match(names[code]) for code in called.tolist())


def _has_idle_gpu(columns: Columns, meta: dict[str, Any]) -> bool:
    """Whether the machine has a GPU whose work was not recorded, although the CPU's was."""
    seen = bool(meta.get("deviceProperties")) or len(columns["call"]) > 0
    return seen and any(len(columns[kind]) for kind in HOST) and not _traced_gpu(columns)


def _note_devices(
    trace: Trace, lost: int, left_out: Mapping[str, int], taken: Mapping[str, int]
) -> None:
    """Note kernels that are missing, and events that may be kernels."""
    if lost:
        trace.note("warning", "kernels were launched but not captured: the file has none", lost)
    for category, count in sorted(left_out.items()):
        message = (
            f"events of unknown category {category!r} were left out: they may have run on a device"
        )
        trace.note("warning", message, count)
    for category, count in sorted(taken.items()):
        message = (
            f"events of unknown category {category!r} ran on a device: they are counted as kernels"
        )
        trace.note("info", message, count)


def _note_threads(trace: Trace, columns: Columns) -> None:
    """Note a trace that has only a step's mark or only ranges, and threads whose launches have no ops."""
    if len(columns["user"]) and not any(len(columns[kind]) for kind in _WORK):
        steps = trace["ranges"]
        if (steps["category"].cast(pl.String) == "step").all() and len(steps):
            trace.note("warning", _EMPTY_STEP.format(steps["text"][0]), len(steps), first=True)
        else:
            trace.note("warning", f"{ONLY_RANGES}: ProfilerActivity.CPU records them")
    if "kernels" in trace.tables and len(columns["op"]):
        # most files have no thread without ops, so launches are looked for only among the calls of such
        # threads
        key, lane = ["process", "correlation"], ["process", "thread"]
        calls = trace["calls"].select(*lane, "correlation")
        without = (
            calls.select(lane)
            .unique()
            .join(trace["ranges"].select(lane).unique(), on=lane, how="anti")
        )
        if len(without):
            calls = calls.join(without, on=lane, how="semi")
            launches = calls.join(trace["kernels"].select(key), on=key, how="semi")
            unseen = launches.select(lane).n_unique()
            if unseen:
                trace.note("warning", _UNSEEN_THREADS, unseen)


def _note_ends(trace: Trace, file: KinetoFile) -> None:
    """Note first what is missing at the file's end, then the file's contents."""
    if file.truncated:
        trace.note("warning", cut_off(file.path, file.truncated), first=True)
    if file.arrays > 1:
        trace.note(
            "info", "arrays of events, one after another in the file, were joined", file.arrays
        )
    if file.unclosed:
        trace.note(
            "info", "the array of events has no closing bracket: events may be missing at its end"
        )
    if file.unread:
        trace.note("warning", "bytes after the end of the JSON were not read", file.unread)


def _note_damage(
    trace: Trace, file: KinetoFile, columns: Columns, unpaired: int, recovered: int
) -> None:
    for message, count, severity in (
        ("events with damaged JSON were left out", file.skipped, "warning"),
        ("blocks of the file with damaged text were repaired", file.repaired, "warning"),
        ("events without a time were left out", columns.untimed, "warning"),
        (
            "events with a negative duration (rounded times) got duration 0",
            columns.negative,
            "info",
        ),
        (
            "events with a negative duration of a microsecond or more (-1: unfinished) got duration 0: how"
            " long they took is not known",
            columns.unfinished,
            "warning",
        ),
        (
            "events with an impossible duration (over 73 years) got duration 0: how long they took is not"
            " known",
            columns.endless,
            "warning",
        ),
        (APART, links.calls_apart(columns), "warning"),
        (
            "begin events without an end, or ends without a begin, were left out",
            unpaired,
            "warning",
        ),
        (
            "kernels were linked to their launch by flow arrows or the id of their op",
            recovered,
            "info",
        ),
        (
            "annotations on GPU streams (gpu_user_annotation) were left out: they repeat host ranges",
            len(columns["gpu_user"]),
            "info",
        ),
    ):
        if count:
            trace.note(severity, message, count)
    for kind, count in sorted(columns.unknown.items()):
        if count and kind not in (
            "Trace",
            "i",
        ):  # the span of the profile, and marks of profiling windows
            trace.note("info", f"events of category {kind!r} are not used", count)
    if not columns.fractional and len(trace["calls"]) + len(trace["ranges"]):
        trace.note("info", "times are whole microseconds", 1)
