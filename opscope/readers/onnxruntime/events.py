"""Decode the events of ONNX Runtime's profiler into one frame, for every version since 1.6.

The writer is microsoft/onnxruntime, onnxruntime/core/common/profiler.cc; node events are made in
onnxruntime/core/framework/sequential_executor.cc, kernels of GPUs in onnxruntime/core/common/
gpu_profiler_common.h and core/providers/{cuda,rocm}. Times are whole µs since profiling began, and names are
not escaped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl
from msgspec import Raw, Struct

from opscope.readers.errors import BadInput
from opscope.readers.kineto.columns import Codes
from opscope.readers.kineto.events import ABSENT, repair
from opscope.readers.kineto.json_events import KinetoFile, last_gap

#: Where the profiler stops recording (``Profiler::global_max_num_events_``).
MOST_RECORDED: Final = 1_000_000
#: Largest time and duration, µs, that fit in 64 bits as ns; others are left out.
_FAR: Final = 1 << 52
_KERNEL_TIME, _BEFORE, _AFTER = "_kernel_time", "_fence_before", "_fence_after"

_GPU: Final = ("parent_name", "stream", "grid", "block", "bytes")
SCHEMA: Final = {
    "cat": pl.Categorical,
    "name": pl.String,
    "kind": pl.Categorical,
    "pid": pl.Int64,
    "tid": pl.Int64,
    "start": pl.Int64,
    "duration": pl.Int64,
    "op_name": pl.Categorical,
    "provider": pl.Categorical,
    "node_index": pl.Int64,
    "inputs": pl.Categorical,
    "outputs": pl.Categorical,
    "parent_name": pl.String,
    "stream": pl.String,
    "grid": pl.String,
    "block": pl.String,
    "bytes": pl.Int64,
}
"""Columns of ``Events.frame``: one row an event, in the file's order.

``cat``: Session, Node, Kernel or Api. ``name``: a node's name without its suffix, which is ``kind``:
``kernel_time``, ``fence_before``, ``fence_after`` (null for other events). ``start``, ``duration``: ns since
profiling began. ``inputs``, ``outputs``: JSON, ``[{"float":[2,3]},…]``. ``parent_name``, ``stream``,
``grid``, ``block``, ``bytes``: of events of GPUs.
"""


_Number = int | str | None


class Args(Struct, gc=False):
    """The ``args`` of an event; ONNX Runtime writes numbers as text."""

    op_name: str = ""
    provider: str | None = None
    node_index: _Number = None
    graph_index: _Number = None
    input_type_shape: Raw = ABSENT
    output_type_shape: Raw = ABSENT
    parent_name: str | None = None
    stream: _Number = None
    grid_x: _Number = None
    grid_y: _Number = None
    grid_z: _Number = None
    block_x: _Number = None
    block_y: _Number = None
    block_z: _Number = None
    size: _Number = None
    dropped_event_count: _Number = None


class Event(Struct, gc=False):
    """One event, times in µs."""

    cat: str = ""
    pid: int = 0
    tid: int = 0
    dur: int | float = 0
    ts: int | float | None = None
    ph: str = "X"
    name: str = ""
    args: Args | None = None


_decode = msgspec.json.Decoder(list[Event]).decode
_decode_one = msgspec.json.Decoder(Event).decode
_decode_raw = msgspec.json.Decoder(list[Raw]).decode
_NO_ARGS: Final = Args()
#: Columns that the runs of a node mostly share.
_OF_EVENT: Final = attrgetter("cat", "name")
_OF_ARGS: Final = attrgetter("op_name", "provider", "node_index", "graph_index")
_SHAPES: Final = (attrgetter("input_type_shape"), attrgetter("output_type_shape"))
#: The last event of a profile whose profiler dropped events.
_TRUNCATED: Final = "profile_truncated"
_CATEGORY: Final = b'"cat"'
#: A name between its neighbouring keys, as the profiler writes a line.
_NAME: Final = re.compile(rb'("name" ?: ?")([^\n]*?)(" ?, ?"args" ?: ?\{)')
_BARE_QUOTE: Final = re.compile(rb'(?<!\\)"')


@dataclass(slots=True)
class Events:
    """The events of a profile; ``truncated``: how the file ends before its array does; ``left_out``: events
    without a time or of damaged JSON; ``repaired``: blocks with names that the profiler did not escape;
    ``dropped``: events that the profiler says it dropped."""

    frame: pl.DataFrame
    truncated: str = ""
    left_out: int = 0
    repaired: int = 0
    dropped: int = 0
    notes: list[tuple[str, str, int]] = field(default_factory=list)


def read(path: str | os.PathLike[str]) -> Events:
    """Return the events of a profile. Raises BadInput if the file has none, or cannot be read."""
    file = KinetoFile(
        Path(path),
        decode=_decoded,
        mend=_mend,
        gap=_gap,
        what="a profile of ONNX Runtime",
    )
    parts, kinds, untimed, dropped = [], Codes(), 0, 0
    for events in file.blocks():
        timed = events if _all_timed(events) else [event for event in events if _is_timed(event)]
        untimed += len(events) - len(timed)
        if _TRUNCATED in map(attrgetter("name"), timed):
            dropped += sum(_drop(event) for event in timed if event.name == _TRUNCATED)
            timed = [event for event in timed if event.name != _TRUNCATED]
        if timed:
            parts.append(_frame(timed, kinds))
    frame = (
        _finish(pl.concat(parts, how="diagonal"), kinds) if parts else pl.DataFrame(schema=SCHEMA)
    )
    if not frame["cat"].is_in(["Session", "Node"]).any():
        if file.truncated or file.unclosed:
            raise BadInput(path, "truncated: the JSON ends before its first event")
        raise BadInput(path, "not a profile of ONNX Runtime: no event of a session or a node")
    return Events(
        frame,
        file.truncated or ("the array has no end" if file.unclosed else ""),
        file.skipped + untimed,
        file.repaired,
        dropped,
    )


def _drop(event: Event) -> int:
    """Return how many events the profiler dropped, according to its last event; 1 if that has no number."""
    text = str(event.args.dropped_event_count) if event.args is not None else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 1


def _gap(block: bytes) -> int:
    """Return where the last complete event of a block ends; 0 if there is none.

    Shapes are lists of objects too, so the last ``}, {`` is mostly inside an event, and half of the time
    went into blocks that had to be decoded again. Every event begins with its category.
    """
    at = len(block)
    for _ in range(4):
        at = block.rfind(_CATEGORY, 0, at)
        if at < 0:
            break
        before = block[max(0, at - 64) : at].rstrip()
        if before.endswith(b"{") and before[:-1].rstrip().endswith(b","):
            comma = before[:-1].rstrip()[:-1].rstrip()
            if comma.endswith(b"}"):
                return max(0, at - 64) + len(comma)
    return last_gap(block)


def _all_timed(events: list[Event]) -> bool:
    """Whether all events have a time: two passes over the times cost less than a call for each event."""
    times: list[Any] = [event.ts for event in events]
    durations = [event.dur for event in events]
    if None in times or not events:
        return False
    return bool(max(map(abs, (min(times), max(times), min(durations), max(durations)))) < _FAR)


def _is_timed(event: Event) -> bool:
    ts = event.ts
    return ts is not None and -_FAR < ts < _FAR and -_FAR < event.dur < _FAR


def _decoded(text: bytes) -> list[Event] | None:
    """Return the events of a JSON array; None if it is not valid JSON."""
    try:
        return _decode(text)
    except msgspec.ValidationError:
        return _decoded_loosely(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _decoded_loosely(text: bytes) -> list[Event] | None:
    """Return the events if some have values of unexpected types: those events are left without a time."""
    events = []
    try:
        each = _decode_raw(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for raw in each:
        try:
            events.append(_decode_one(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            events.append(Event())
    return events


def _mend(text: bytes) -> bytes:
    """Return the text with quotes and backslashes in names escaped, which the profiler does not do."""

    def escaped(match: re.Match[bytes]) -> bytes:
        return match[1] + _BARE_QUOTE.sub(rb'\\"', match[2]) + match[3]

    # an event is a line; repair also removes the ends of lines, as control characters
    return b"\n".join(_NAME.sub(escaped, repair(line)) for line in text.split(b"\n"))


# ------------------------------------------------------------------------------------ columns


def _frame(events: list[Event], kinds: Codes) -> pl.DataFrame:
    """Return the columns that vary by event, and an index into ``kinds``, the columns that runs of a node
    share."""
    args = [event.args or _NO_ARGS for event in events]
    shapes = (map(bytes, map(each, args)) for each in _SHAPES)
    shared = zip(map(_OF_EVENT, events), map(_OF_ARGS, args), *shapes, strict=True)
    return pl.DataFrame(
        {
            "kinds": np.fromiter(map(kinds.__getitem__, shared), np.int32, len(events)),
            "pid": _integers([event.pid for event in events]),
            "tid": _integers([event.tid for event in events]),
            "ts": pl.Series([event.ts for event in events], dtype=pl.Float64, strict=False),
            "dur": pl.Series([event.dur for event in events], dtype=pl.Float64, strict=False),
            **_gpu_columns(events, args),
        }
    )


def _finish(frame: pl.DataFrame, kinds: Codes) -> pl.DataFrame:
    """Return the columns of SCHEMA; the texts of each kind of event are stored once, and rows refer to
    them."""
    own = frame.select(
        "pid", "tid",
        (pl.col("ts") * 1000).round().cast(pl.Int64).alias("start"),
        (pl.col("dur") * 1000).round().cast(pl.Int64).alias("duration"),
        *(name if name in frame.columns else pl.lit(None, SCHEMA[name]).alias(name) for name in _GPU),
    )  # fmt: skip
    texts = _texts_of(kinds)
    texts = texts.cast({name: SCHEMA[name] for name in texts.columns if name in SCHEMA})
    return texts[frame["kinds"]].hstack(own).select(*SCHEMA)


def _texts_of(kinds: Codes) -> pl.DataFrame:
    of_events, of_args, inputs, outputs = zip(*kinds, strict=True)
    cats, names = zip(*of_events, strict=True)
    ops, providers, nodes, graphs = zip(*of_args, strict=True)
    is_node = pl.col("cat") == "Node"
    kind: Any = pl.when(is_node & pl.col("full").str.ends_with(_KERNEL_TIME)).then(
        pl.lit(_KERNEL_TIME)
    )
    for suffix in (_BEFORE, _AFTER):
        kind = kind.when(is_node & pl.col("full").str.ends_with(suffix)).then(pl.lit(suffix))
    frame = pl.DataFrame(
        {
            "cat": cats,
            "full": names,
            "op_name": ops,
            "provider": pl.Series(providers, dtype=pl.String),
            "node_index": _numbers(
                [graph if node is None else node for node, graph in zip(nodes, graphs, strict=True)]
            ),
            "inputs": _texts(inputs),
            "outputs": _texts(outputs),
        }
    )
    # in old files a nameless node has an empty name, so only the suffix is there
    return frame.with_columns(kind.alias("suffix")).with_columns(
        pl.coalesce(
            pl.col("full").str.slice(0, pl.col("full").str.len_chars() - pl.col("suffix").str.len_chars()),
            "full",
        ).alias("name"),
        pl.col("suffix").str.strip_prefix("_").alias("kind"),
    )  # fmt: skip


def _gpu_columns(events: list[Event], args: list[Args]) -> dict[str, pl.Series]:
    """Return the columns of events of GPUs; most profiles have none."""
    if "Kernel" not in map(attrgetter("cat"), events):
        return {}
    texts: dict[str, list[str | None]] = {
        "parent_name": [arg.parent_name for arg in args],
        "stream": [None if arg.stream is None else str(arg.stream) for arg in args],
        "grid": [_extent(arg.grid_x, arg.grid_y, arg.grid_z) for arg in args],
        "block": [_extent(arg.block_x, arg.block_y, arg.block_z) for arg in args],
    }
    columns = {name: pl.Series(values, dtype=pl.String) for name, values in texts.items()}
    return {**columns, "bytes": _numbers([arg.size for arg in args])}


def _integers(values: list[int]) -> pl.Series:
    try:
        return pl.Series(values, dtype=pl.Int64)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):  # over 64 bits
        return pl.Series(
            [value if abs(value) < 1 << 62 else None for value in values], dtype=pl.Int64
        )


def _numbers(values: list[Any]) -> pl.Series:
    """Return numbers that are written as text; null for others."""
    try:
        texts = pl.Series(values, dtype=pl.String)
    except (TypeError, pl.exceptions.PolarsError):
        texts = pl.Series(
            [None if value is None else str(value) for value in values], dtype=pl.String
        )
    numbers: pl.Series = texts.cast(pl.Int64, strict=False)
    return numbers


def _texts(values: Sequence[bytes]) -> pl.Series:
    raw = pl.Series([value or None for value in values], dtype=pl.Binary)
    texts: pl.Series = raw.cast(pl.String, strict=False)
    return texts


def _extent(x: _Number, y: _Number, z: _Number) -> str | None:
    # copies have a grid of -1
    return None if x is None or y is None or z is None or str(x) == "-1" else f"{x},{y},{z}"
