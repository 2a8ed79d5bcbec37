"""Decode the events of ONNX Runtime's profiler into one frame, for every version since 1.6.

The writer is microsoft/onnxruntime, onnxruntime/core/common/profiler.cc; node events are made in
onnxruntime/core/framework/sequential_executor.cc, kernels of GPUs in onnxruntime/core/common/
gpu_profiler_common.h and core/providers/{cuda,rocm}. Times are whole µs since profiling began, and names are
not escaped.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl
from msgspec import Raw, Struct

from opscope.readers.errors import BadInput
from opscope.readers.kineto.events import ABSENT, repair
from opscope.readers.kineto.json_events import KinetoFile, last_gap

#: Where the profiler stops recording (``Profiler::global_max_num_events_``).
MOST_RECORDED: Final = 1_000_000
#: Largest time and duration, µs, that fit in 64 bits as ns; others are left out.
_FAR: Final = 1 << 52
_KERNEL_TIME, _BEFORE, _AFTER = "_kernel_time", "_fence_before", "_fence_after"

_POOL: Final = ("pool_threads", "pool_run", "pool_wait")
_GPU: Final = ("parent_name", "stream", "grid", "block", "bytes")
SCHEMA: Final = {
    "cat": pl.String,
    "name": pl.String,
    "kind": pl.String,
    "pid": pl.Int64,
    "tid": pl.Int64,
    "start": pl.Int64,
    "duration": pl.Int64,
    "op_name": pl.String,
    "provider": pl.String,
    "node_index": pl.Int64,
    "inputs": pl.String,
    "outputs": pl.String,
    "activation_size": pl.Int64,
    "parameter_size": pl.Int64,
    "output_size": pl.Int64,
    "pool_threads": pl.Int64,
    "pool_run": pl.Int64,
    "pool_wait": pl.Int64,
    "parent_name": pl.String,
    "stream": pl.String,
    "grid": pl.String,
    "block": pl.String,
    "bytes": pl.Int64,
}
"""Columns of ``Events.frame``: one row an event, in the file's order.

``cat``: Session, Node, Kernel or Api. ``name``: a node's name without its suffix, which is ``kind``:
``kernel_time``, ``fence_before``, ``fence_after`` (null for other events). ``start``, ``duration``: ns since
profiling began. ``inputs``, ``outputs``: JSON, ``[{"float":[2,3]},…]``. Sizes in bytes. ``pool_threads``: how
many threads of the pool worked beside the caller; ``pool_run``, ``pool_wait``: the caller's µs in the pool.
``parent_name``, ``stream``, ``grid``, ``block``, ``bytes``: of events of GPUs.
"""


class _Main(Struct, gc=False):
    Run: int = 0
    Wait: int = 0


class _Sub(Struct, gc=False):
    num_run: int = 0


class _Pool(Struct, gc=False):
    main_thread: _Main | None = None
    sub_threads: dict[str, _Sub] | None = None


_Number = int | str | None


class Args(Struct, gc=False):
    """The ``args`` of an event; ONNX Runtime writes numbers as text."""

    op_name: str = ""
    provider: str | None = None
    node_index: _Number = None
    graph_index: _Number = None
    input_type_shape: Raw = ABSENT
    output_type_shape: Raw = ABSENT
    activation_size: _Number = None
    parameter_size: _Number = None
    output_size: _Number = None
    thread_scheduling_stats: Raw = ABSENT
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
_decode_pool = msgspec.json.Decoder(_Pool).decode
_decode_raw = msgspec.json.Decoder(list[Raw]).decode
_NO_ARGS: Final = Args()
#: The last event of a profile that its profiler did not keep whole.
_TRUNCATED: Final = "profile_truncated"
_CATEGORY: Final = b'"cat"'
#: A name between the keys around it, as the profiler writes a line.
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


def read(path: str | os.PathLike[str], pools: bool = False) -> Events:
    """Return the events of a profile. Raises BadInput if the file has none, or cannot be read.

    ``pools``: fill in the columns of the thread pool, which take as long as all others together.
    """
    file = KinetoFile(
        Path(path),
        decode=_decoded,
        mend=_mend,
        gap=_gap,
        what="a profile of ONNX Runtime",
    )
    parts, untimed, dropped = [], 0, 0
    for events in file.blocks():
        timed = events if _all_timed(events) else [event for event in events if _is_timed(event)]
        untimed += len(events) - len(timed)
        marks = [event for event in timed if event.name == _TRUNCATED]
        if marks:
            dropped += sum(_drop(event) for event in marks)
            timed = [event for event in timed if event.name != _TRUNCATED]
        if timed:
            parts.append(_frame(timed, pools))
    frame = _finish(pl.concat(parts)) if parts else pl.DataFrame(schema=SCHEMA)
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
    """Return how many events the profiler dropped, as its last event says; 1 where that is no number."""
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
    """Whether no event lacks its time: two passes over the times cost less than a call for each event."""
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
    """Return the events where some have values of unexpected types: those are left without a time."""
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
    """Return the text with what the profiler writes as it is, quotes and backslashes in names, escaped."""

    def escaped(match: re.Match[bytes]) -> bytes:
        return match[1] + _BARE_QUOTE.sub(rb'\\"', match[2]) + match[3]

    # an event is a line; repair takes control characters out, the ends of lines too
    return b"\n".join(_NAME.sub(escaped, repair(line)) for line in text.split(b"\n"))


# ------------------------------------------------------------------------------------ columns


def _frame(events: list[Event], pools: bool) -> pl.DataFrame:
    args = [event.args or _NO_ARGS for event in events]
    return pl.DataFrame(
        {
            "cat": [event.cat for event in events],
            "full": [event.name for event in events],
            "pid": _integers([event.pid for event in events]),
            "tid": _integers([event.tid for event in events]),
            "ts": pl.Series([event.ts for event in events], dtype=pl.Float64, strict=False),
            "dur": pl.Series([event.dur for event in events], dtype=pl.Float64, strict=False),
            "op_name": [arg.op_name for arg in args],
            "provider": pl.Series([arg.provider for arg in args], dtype=pl.String),
            "node_index": _numbers(
                [arg.graph_index if arg.node_index is None else arg.node_index for arg in args]
            ),
            "inputs": _texts([arg.input_type_shape for arg in args]),
            "outputs": _texts([arg.output_type_shape for arg in args]),
            "activation_size": _numbers([arg.activation_size for arg in args]),
            "parameter_size": _numbers([arg.parameter_size for arg in args]),
            "output_size": _numbers([arg.output_size for arg in args]),
            **_pool_columns(args, pools),
            **_gpu_columns(events, args),
        }
    )


def _finish(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of SCHEMA."""
    is_node = pl.col("cat") == "Node"
    kind: Any = pl.when(is_node & pl.col("full").str.ends_with(_KERNEL_TIME)).then(
        pl.lit(_KERNEL_TIME)
    )
    for suffix in (_BEFORE, _AFTER):
        kind = kind.when(is_node & pl.col("full").str.ends_with(suffix)).then(pl.lit(suffix))
    # in old files a node without a name has an empty one; the suffix is then all there is
    return frame.with_columns(kind.alias("suffix")).select(
        "cat",
        pl.coalesce(
            pl.col("full").str.slice(0, pl.col("full").str.len_chars() - pl.col("suffix").str.len_chars()),
            "full",
        ).alias("name"),
        pl.col("suffix").str.strip_prefix("_").alias("kind"),
        "pid", "tid",
        (pl.col("ts") * 1000).round().cast(pl.Int64).alias("start"),
        (pl.col("dur") * 1000).round().cast(pl.Int64).alias("duration"),
        *list(SCHEMA)[list(SCHEMA).index("op_name"):],
    )  # fmt: skip


def _pool_columns(args: list[Args], wanted: bool) -> dict[str, pl.Series]:
    threads: list[int | None] = [None] * len(args)
    run, wait = list(threads), list(threads)
    for n, arguments in enumerate(args if wanted else ()):
        pool = _pool(arguments.thread_scheduling_stats)
        if pool is not None and pool.sub_threads is not None:
            threads[n] = sum(sub.num_run > 0 for sub in pool.sub_threads.values())
        if pool is not None and pool.main_thread is not None:
            run[n], wait[n] = _bounded(pool.main_thread.Run), _bounded(pool.main_thread.Wait)
    each = zip(_POOL, (threads, run, wait), strict=True)
    return {name: pl.Series(values, dtype=pl.Int64) for name, values in each}


def _pool(raw: Raw) -> _Pool | None:
    if raw is ABSENT:
        return None
    try:
        return _decode_pool(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # without a pool it is an empty text


def _gpu_columns(events: list[Event], args: list[Args]) -> dict[str, pl.Series]:
    """Return the columns of events of GPUs; most profiles have none."""
    if not any(event.cat == "Kernel" for event in events):
        return {
            name: pl.Series([None], dtype=SCHEMA[name]).new_from_index(0, len(events))
            for name in _GPU
        }
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


def _texts(values: list[Raw]) -> pl.Series:
    raw = pl.Series(
        [None if value is ABSENT else bytes(value) for value in values], dtype=pl.Binary
    )
    texts: pl.Series = raw.cast(pl.String, strict=False)
    return texts


def _extent(x: _Number, y: _Number, z: _Number) -> str | None:
    # copies have a grid of -1
    return None if x is None or y is None or z is None or str(x) == "-1" else f"{x},{y},{z}"


def _bounded(value: int) -> int | None:
    return value if abs(value) < 1 << 62 else None
