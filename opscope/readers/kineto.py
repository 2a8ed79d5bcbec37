"""Kineto: the JSON traces of torch.profiler, 2021 to 2026, on NVIDIA and AMD GPUs.

Times are integer ns: Unix time where the trace tells its base, else as written. GPU rows belong to
the process whose call has their correlation id. ``External id`` is never used as a link: in most
real files it is a copy of the correlation id.

Ranges come in three domains. ``kineto``: what the framework ran, as opscope's range text.
``user``: ``record_function`` blocks and steps. ``python``: frames, where the trace has stacks;
``nn.Module: X_0`` has category ``layer``. On a backward row ``fwd_thread`` is the number that Kineto
gave the thread of its forward op, on a forward row the number of its own thread where it is known:
rows of one (process, fwd_thread, seq) are an op and its backward node.
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.columns import spread
from opscope.core.trace import Trace, conform

from . import kineto_links as links
from .errors import BadInput
from .kineto_columns import NONE, Columns, Gathered, Inexact
from .kineto_counters import counters
from .kineto_events import decode_events, decode_metrics
from .kineto_json import KinetoFile
from .kineto_target import devices, process_row, threads

_STEP = re.compile(r"ProfilerStep#([0-9]{1,18})\Z")
_BACKWARD = re.compile(
    r"autograd::engine::|torch::autograd::|.*Backward[0-9]*\Z|<backward op>\Z", re.S
)
_COMMUNICATION = re.compile(r"nccl:|c10d::|gloo:|record_param_comms\Z")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_COPY = re.compile(r"Memcpy (\w+)(?: \((\w+) -> (\w+)\))?|Copy(\w+)To(\w+)")
_SET = re.compile(r"Memset \((\w+)\)")
_LETTER: Final = {"Host": "H", "Device": "D"}


def read(path: str | PathLike[str]) -> Trace:
    """The trace in a Kineto JSON file, plain, gzip or zstd. Raises BadInput."""
    file = KinetoFile(Path(path))
    columns = Columns()
    metrics: list[dict[str, Any]] = []
    for events in file.blocks():
        try:
            columns.add(events)
        except Inexact:  # times that doubles do not hold to the ns
            columns.add(decode_events(file.body, exact=True) or [])
        if b"cuda_profiler_range" in file.body:
            metrics += decode_metrics(file.body, "cuda_profiler_range")
    unpaired = links.pair(columns)
    if not any(len(rows) for rows in columns.kinds.values()):
        raise BadInput(path, "traceEvents holds nothing that torch.profiler records")
    number = links.numbers(columns.places)
    files = links.processes(columns, number)
    base = _base(file.meta)
    tables = {"processes": process_row(file.meta, columns, files)}
    calls = _calls(columns, number, files, base)
    tables["threads"] = threads(columns, number, files)
    tables["clocks"] = pl.DataFrame(
        {
            "clock_domain": [0],
            "kind": ["unix" if base or _is_unix(columns) else "unknown"],
            "to_unix_ns": [0 if base or _is_unix(columns) else None],
        }
    )
    tables["ranges"] = _ranges(columns, number, files, base)
    recovered = 0
    if _traced_gpu(columns, file.meta):
        tables["calls"] = calls
        tables["kernels"], recovered = _kernels(columns, number, files, base, calls)
        tables["memops"] = _memops(columns, number, files, base, calls)
        tables["syncs"] = _syncs(columns, number, files, base, calls)
    tables["devices"] = devices(file.meta, files, tables)
    if len(columns["memory"]):
        tables["allocations"] = _allocations(columns, number, files, base)
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
    }
    trace = Trace.of(tables, origin)
    _notes(trace, file, columns, unpaired, recovered)
    if unlinked:
        trace.note("warning", unlinked, len(columns["metrics"]))
    return trace


def _base(meta: dict[str, Any]) -> int:
    base = meta.get("baseTimeNanoseconds")
    return base if type(base) is int and 0 <= base < 1 << 61 else 0


def _is_unix(columns: Columns) -> bool:
    """Whether times are Unix time as they are: after 2001."""
    for kind in ("call", "op", "kernel"):
        start = columns[kind].column("start")
        if len(start):
            return int(start.min()) > 10**18
    return False


def _traced_gpu(columns: Columns, meta: dict[str, Any]) -> bool:
    return bool(meta.get("deviceProperties")) or any(
        len(columns[kind]) for kind in ("call", "kernel", "memcpy", "memset", "metrics")
    )


# ------------------------------------------------------------------------------------ ranges


def _ranges(
    columns: Columns, number: NDArray[np.int64], files: links.Processes, base: int
) -> pl.DataFrame:
    frames = []
    attrs = [text.decode("utf-8", "replace") or None for text in columns.attrs]
    for kind in ("op", "user", "python"):
        rows = columns[kind]
        if len(rows):
            frames.append(_host(columns, kind, rows, number, files, base, attrs))
    if not frames:
        return pl.DataFrame({"id": []}, schema={"id": pl.Int64})
    return pl.concat(frames).with_row_index("id").cast({"id": pl.Int64})


def _host(
    columns: Columns,
    kind: str,
    rows: Gathered,
    number: NDArray[np.int64],
    files: links.Processes,
    base: int,
    attrs: list[str | None],
) -> pl.DataFrame:
    name = rows.column("name", np.int32)
    thread = number[rows.column("tid", np.int32)]
    process = files.of(number[rows.column("pid", np.int32)])
    text, texts = rows.column("text", np.int32), list(columns.texts)
    domain, category, own_text = _meanings(kind, list(columns.names), name)
    replaced = own_text[name]
    text = np.where(replaced >= 0, replaced + len(texts), text)
    texts += [_label(kind, label) for label in columns.names]
    direction = category[name]
    if kind == "op":
        direction = np.where(rows.column("fwd") > 0, _DIRECTION["backward"], direction)
    start, end = rows.column("start") + base, rows.column("end") + base
    return pl.DataFrame(
        {
            "process": process,
            "thread": thread,
            "end_thread": thread,
            "start": start,
            "end": end,
            "domain": spread("domain", _DOMAINS, domain[name]),
            "category": spread("category", _CATEGORIES, direction),
            "text": spread("text", texts, text),
            "seq": nullable(rows.column("seq")),
            "fwd_thread": nullable(
                links.forward_threads(columns, number, process, thread, rows)
                if kind == "op"
                else np.full(len(name), NONE)
            ),
            "attrs": spread("attrs", attrs, rows.column("attrs", np.int32)).cast(pl.String),
            "kind": spread("kind", ["pushpop"], np.zeros(len(name), np.int32)),
        }
    )


_DOMAINS: Final = ("kineto", "user", "python")
_CATEGORIES: Final = ("backward", "optimizer", "input", "communication", "step", "layer")
_DIRECTION: Final = {name: code for code, name in enumerate(_CATEGORIES)}


def _meanings(
    kind: str, names: list[str], used: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """For each distinct name its domain, its category, and its own number where it is its text."""
    domain = np.zeros(len(names), np.int32)
    category = np.full(len(names), -1, np.int32)
    text = np.full(len(names), -1, np.int32)
    for code in np.unique(used).tolist():
        name = names[code]
        found = _category(kind, name)
        if found is not None:
            category[code] = _DIRECTION[found]
        if kind == "python":
            domain[code], text[code] = 2, code
        elif found == "step" or (kind == "user" and found is None):
            domain[code], text[code] = 1, code
    return domain, category, text


def _category(kind: str, name: str) -> str | None:
    if kind == "python":
        return "layer" if name.startswith("nn.Module: ") else None
    if _STEP.match(name):
        return "step"
    if name.startswith("Optimizer."):
        return "optimizer"
    if name.startswith("enumerate(DataLoader)"):
        return "input"
    if _COMMUNICATION.match(name):
        return "communication"
    return "backward" if kind == "op" and _BACKWARD.match(name) else None


def _label(kind: str, name: str) -> str:
    """The text of a range that is no op; addresses differ from run to run and mean nothing."""
    step = _STEP.match(name)
    if step and kind != "python":
        return f"step {int(step[1])}"
    return _ADDRESS.sub("", name) if kind == "python" else name


# ------------------------------------------------------------------------------ device tables


def nullable(values: NDArray[np.int64]) -> pl.Series:
    """An integer column in which NONE is null."""
    series = pl.Series(values, dtype=pl.Int64)
    known = values != NONE
    if known.all():
        return series
    return series.to_frame("v").select(pl.when(pl.Series(known)).then(pl.col("v"))).to_series()


def _calls(
    columns: Columns, number: NDArray[np.int64], files: links.Processes, base: int
) -> pl.DataFrame:
    rows = columns["call"]
    return pl.DataFrame(
        {
            "process": files.of(number[rows.column("pid", np.int32)]),
            "thread": number[rows.column("tid", np.int32)],
            "start": rows.column("start") + base,
            "end": rows.column("end") + base,
            "name": spread("name", list(columns.names), rows.column("name", np.int32)),
            "correlation": nullable(rows.column("correlation")),
        }
    )


def _device(
    rows: Gathered,
    files: links.Processes,
    base: int,
    calls: pl.DataFrame,
    correlation: NDArray[np.int64],
) -> dict[str, Any]:
    owner = links.owners(
        files,
        calls["process"].to_numpy(),
        calls["correlation"].fill_null(NONE).to_numpy(),
        correlation,
    )
    return {
        "process": owner,
        "device": nullable(rows.column("device")),
        "context": nullable(rows.column("context")),
        "stream": nullable(rows.column("stream")),
        "start": rows.column("start") + base,
        "end": rows.column("end") + base,
        "correlation": nullable(correlation),
    }


def _linked(
    columns: Columns, number: NDArray[np.int64], kind: str, calls: pl.DataFrame
) -> tuple[NDArray[np.int64], int]:
    """The correlation ids of a kind's rows, by flow arrows where no call has the row's own id."""
    correlation = columns[kind].column("correlation").copy()
    missing = (correlation == NONE) | ~np.isin(
        correlation, calls["correlation"].drop_nulls().to_numpy()
    )
    rows, found = links.launches_by_flow(columns, number, kind, missing)
    correlation[rows] = found
    return correlation, len(rows)


def _kernels(
    columns: Columns,
    number: NDArray[np.int64],
    files: links.Processes,
    base: int,
    calls: pl.DataFrame,
) -> tuple[pl.DataFrame, int]:
    rows = columns["kernel"]
    correlation, recovered = _linked(columns, number, "kernel", calls)
    shapes = list(columns.shapes)
    attrs = [text.decode("utf-8", "replace") or None for text in columns.attrs]
    frame = pl.DataFrame(
        {
            **_device(rows, files, base, calls, correlation),
            "name": spread("name", list(columns.names), rows.column("name", np.int32)),
            "grid": spread("grid", shapes, rows.column("grid", np.int32)),
            "block": spread("block", shapes, rows.column("block", np.int32)),
            "registers": nullable(rows.column("registers")),
            # Kineto adds static and dynamic shared memory up
            "shared_dynamic": nullable(rows.column("shared")),
            "graph": nullable(rows.column("graph")),
            "graph_node": nullable(rows.column("graph_node")),
            "attrs": spread("attrs", attrs, rows.column("attrs", np.int32)).cast(pl.String),
        }
    )
    return frame, recovered


def _memops(
    columns: Columns,
    number: NDArray[np.int64],
    files: links.Processes,
    base: int,
    calls: pl.DataFrame,
) -> pl.DataFrame:
    frames = []
    for kind in ("memcpy", "memset"):
        rows = columns[kind]
        correlation, _ = _linked(columns, number, kind, calls)
        name = rows.column("name", np.int32)
        parts = [_memory_kinds(kind, label) for label in columns.names]
        frames.append(
            pl.DataFrame(
                {
                    **_device(rows, files, base, calls, correlation),
                    "kind": spread("kind", [part[0] for part in parts], name),
                    "src_kind": spread("src_kind", [part[1] for part in parts], name),
                    "dst_kind": spread("dst_kind", [part[2] for part in parts], name),
                    "bytes": nullable(rows.column("bytes")),
                    "graph_node": nullable(rows.column("graph_node")),
                }
            )
        )
    return pl.concat(frames)


def _memory_kinds(kind: str, name: str) -> tuple[str | None, str | None, str | None]:
    """Kind, source and target memory of a copy or set, from its name."""
    if kind == "memset":
        found = _SET.match(name)
        return "memset", None, found[1].lower() if found else None
    copy = _COPY.match(name)
    if copy is None:
        return None, None, None
    if copy[4]:  # ROCm: CopyHostToDevice
        ends = (_LETTER.get(copy[4]), _LETTER.get(copy[5]))
        return f"{ends[0]}to{ends[1]}" if all(ends) else None, copy[4].lower(), copy[5].lower()
    return copy[1], copy[2].lower() if copy[2] else None, copy[3].lower() if copy[3] else None


def _syncs(
    columns: Columns,
    number: NDArray[np.int64],
    files: links.Processes,
    base: int,
    calls: pl.DataFrame,
) -> pl.DataFrame:
    rows = columns["sync"]
    return pl.DataFrame(
        {
            **_device(rows, files, base, calls, rows.column("correlation")),
            "kind": spread("kind", list(columns.names), rows.column("kind", np.int32)),
            "event_id": nullable(rows.column("event_id")),
        }
    )


def _allocations(
    columns: Columns, number: NDArray[np.int64], files: links.Processes, base: int
) -> pl.DataFrame:
    rows = columns["memory"]
    return pl.DataFrame(
        {
            "process": files.of(number[rows.column("pid", np.int32)]),
            "device": nullable(rows.column("device")),
            "thread": number[rows.column("tid", np.int32)],
            "time": rows.column("start") + base,
            "address": nullable(rows.column("address")),
            "bytes": nullable(rows.column("bytes")),
            "total": nullable(rows.column("total")),
            "reserved": nullable(rows.column("reserved")),
        }
    )


def _notes(trace: Trace, file: KinetoFile, columns: Columns, unpaired: int, recovered: int) -> None:
    for what, count, severity in (
        ("events that are damaged JSON were left out", file.skipped, "warning"),
        ("blocks of the file had damaged text, which was repaired", file.repaired, "warning"),
        ("events without a time were left out", columns.untimed, "warning"),
        ("events of negative duration (rounded times) were given none", columns.negative, "info"),
        ("begin or end events without the other were left out", unpaired, "warning"),
        ("kernels were linked to their launch by flow arrows", recovered, "info"),
        (
            "annotations on GPU streams (gpu_user_annotation) repeat host ranges: left out",
            len(columns["gpu_user"]),
            "info",
        ),
    ):
        if count:
            trace.note(severity, what, count)
    for kind, count in sorted(columns.unknown.items()):
        if kind not in ("Trace", "i"):  # the span of the profile, and window marks
            trace.note("info", f"events of category {kind!r} are not used", count)
    if not columns.fractional:
        trace.note("info", "times are whole microseconds", 1)
