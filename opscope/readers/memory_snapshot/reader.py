"""Make the tables of a memory snapshot: each change of its history, and the segments and blocks at its end.

The layout is that of PyTorch's ``torch/csrc/cuda/memory_snapshot.cpp`` and ``torch/cuda/_memory_viz.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.pickled import read_values
from opscope.readers.rows import frame_of
from opscope.readers.sound import sound_trace

from .history import History
from .stacks import Stacks

Note = tuple[str, str, int]
_SEGMENT: Final = {
    "device": pl.Int32, "stream": pl.Int64, "address": pl.Int64, "bytes": pl.Int64, "kind": pl.String,
    "pool": pl.String, "expandable": pl.Boolean,
}  # fmt: skip
_BLOCK: Final = {
    "device": pl.Int32, "segment": pl.Int64, "address": pl.Int64, "bytes": pl.Int64, "requested": pl.Int64,
    "state": pl.String, "stack": pl.String,
}  # fmt: skip
#: The stages of an annotation of the program.
_STEP: Final = r"\AProfilerStep#([0-9]{1,18})\z"
_BEGUN, _ENDED = "START", "END"
_TEXT: Final = 4096


def read(path: Path) -> Trace:
    """Return the trace of a snapshot. Raises BadInput.

    ``allocations`` has each allocation and each release of the history, with the memory in use and reserved
    after it. Both are counted back from the segments at the end, since a history may have lost its beginning.
    A block is released when its memory may be used again (``free_completed``).
    """
    stacks = Stacks()
    history = History(stacks)
    snapshot = read_values(path, history.take)
    if not isinstance(snapshot, dict) or not isinstance(
        snapshot.get("segments", snapshot.get("device_traces")), (list, tuple)
    ):
        raise BadInput(path, "a pickle without the segments and traces of a memory snapshot")
    notes: list[Note] = []
    segments, blocks = _held(snapshot.get("segments", ()), stacks, notes)
    changes = history.changes(_lengths(snapshot.get("device_traces", ())), notes)
    ranges = _annotations(snapshot.get("external_annotations", ()), notes)
    tables = _tables(segments, blocks, changes, ranges, history.timed)
    trace = sound_trace(tables, _origin(path, snapshot.get("allocator_settings")))
    for note in notes:
        trace.note(*note)
    return trace


def _origin(path: Path, settings: Any) -> dict[str, Any]:
    origin: dict[str, Any] = {
        "format": "memory_snapshot",
        "tool": "PyTorch's caching allocator",
        "version": None,
        "paths": [str(path)],
        "gpu": True,
    }
    if isinstance(settings, dict):
        origin["allocator_settings"] = {
            str(key)[:_TEXT]: value if isinstance(value, (bool, int, float)) else str(value)[:_TEXT]
            for key, value in settings.items()
            if not isinstance(value, (dict, list, tuple))
        }
    return origin


def _tables(
    segments: pl.DataFrame,
    blocks: pl.DataFrame,
    changes: pl.DataFrame,
    ranges: pl.DataFrame,
    timed: bool,
) -> dict[str, pl.DataFrame]:
    process = pl.lit(0, pl.Int32).alias("process")
    active = blocks.filter(pl.col("state").str.starts_with("active"))
    ends = (
        segments.group_by("device")
        .agg(pl.col("bytes").sum().alias("end_reserved"))
        .join(
            active.group_by("device").agg(pl.col("bytes").sum().alias("end")),
            on="device",
            how="left",
        )
        .with_columns(pl.col("end").fill_null(0))
    )
    size, grown = pl.col("bytes"), pl.col("grown")
    in_order = changes.sort("device", "time", maintain_order=True).join(
        ends, on="device", how="left", maintain_order="left"
    )
    allocations = in_order.with_columns(
        (
            size.cum_sum().over("device") + pl.col("end").fill_null(0) - size.sum().over("device")
        ).alias("total"),
        (
            grown.cum_sum().over("device")
            + pl.col("end_reserved").fill_null(0)
            - grown.sum().over("device")
        ).alias("reserved"),
    ).filter(size != 0)
    devices = pl.concat([segments["device"], changes["device"]]).drop_nulls().unique().sort()
    return {
        "processes": pl.DataFrame({"process": [0], "framework": ["torch"], "clock_domain": [0]}),
        "clocks": pl.DataFrame(
            {
                "clock_domain": [0],
                "kind": ["unix" if timed else "unknown"],
                "to_unix_ns": [0 if timed else None],
            }
        ),
        "devices": pl.DataFrame({"device": devices}).with_columns(process),
        "allocations": allocations.drop("grown", "end", "end_reserved").with_columns(process),
        "memory_segments": segments.with_columns(process),
        "memory_blocks": blocks.with_columns(process),
        "ranges": ranges.with_columns(process),
    }


def _lengths(traces: Any) -> list[int]:
    """Return how many changes each device has; the entries were taken while the file was read."""
    if not isinstance(traces, (list, tuple)):
        return []
    return [len(entries) if isinstance(entries, (list, tuple)) else 0 for entries in traces]


def _held(segments: Any, stacks: Stacks, notes: list[Note]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the segments and their blocks; unreadable ones are left out and counted."""
    rows: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    odd = 0
    for segment in segments if isinstance(segments, (list, tuple)) else ():
        if not isinstance(segment, dict):
            odd += 1
            continue
        address, device = segment.get("address"), segment.get("device", 0)
        rows.append(
            {
                "device": device,
                "stream": segment.get("stream"),
                "address": address,
                "bytes": segment.get("total_size"),
                "kind": _text(segment.get("segment_type")),
                "pool": _pool(segment.get("segment_pool_id")),
                "expandable": segment.get("is_expandable"),
            }
        )
        odd += _blocks_of(segment.get("blocks", ()), address, device, parts, stacks)
    if odd:
        notes.append(("warning", "segments and blocks that cannot be read, left out", odd))
    return frame_of(rows, _SEGMENT, notes, "memory_segments"), frame_of(
        parts, _BLOCK, notes, "memory_blocks"
    )


def _pool(value: Any) -> str | None:
    """The two numbers of a pool."""
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2
    return (
        f"{value[0]},{value[1]}" if is_pair and all(type(part) is int for part in value) else None
    )


def _blocks_of(
    blocks: Any, segment: Any, device: Any, parts: list[dict[str, Any]], stacks: Stacks
) -> int:
    """Append the blocks of a segment; return how many cannot be read."""
    odd, at = 0, segment
    for block in blocks if isinstance(blocks, (list, tuple)) else ():
        if not isinstance(block, dict) or type(block.get("size")) is not int:
            odd += 1
            continue
        frames, requested = block.get("frames"), block.get("requested_size")
        past = block.get("history")  # before PyTorch 2.1
        if isinstance(past, (list, tuple)) and past and isinstance(past[0], dict):
            frames, requested = past[0].get("frames"), past[0].get("real_size")
        state = _text(block.get("state"))
        parts.append(
            {
                "device": device,
                "segment": segment,
                "address": block.get("address", at),
                "bytes": block["size"],
                "requested": requested
                if state is not None and state.startswith("active")
                else None,
                "state": state,
                "stack": stacks.text(stacks.number(frames)),
            }
        )
        at = at + block["size"] if type(at) is int else None
    return odd


def _text(value: object) -> str | None:
    return value[:_TEXT] if isinstance(value, str) else None


def _annotations(entries: Any, notes: list[Note]) -> pl.DataFrame:
    """Return the program's annotations as ranges: each END closes the latest START of its name."""
    opened: dict[str, list[int]] = {}
    rows: list[tuple[str, int, int]] = []
    lost = 0
    for name, stage, time in _marks(entries):
        if stage == _BEGUN:
            opened.setdefault(name, []).append(time)
        elif stage == _ENDED and opened.get(name):
            rows.append((name, opened[name].pop(), time))
        else:
            lost += 1
    lost += sum(map(len, opened.values()))
    if lost:
        notes.append(("info", "annotations that have only a beginning or an end, left out", lost))
    frame = pl.DataFrame(
        rows, schema={"text": pl.String, "start": pl.Int64, "end": pl.Int64}, orient="row"
    ).sort("start", maintain_order=True)
    step = pl.col("text").str.extract(_STEP)
    return frame.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit(0, pl.Int64).alias("thread"),
        "start",
        "end",
        pl.lit("user").alias("domain"),
        pl.when(step.is_not_null()).then(pl.lit("step")).alias("category"),
        pl.coalesce(pl.format("step {}", step), "text").alias("text"),
        pl.lit("startend").alias("kind"),
    )


def _marks(entries: Any) -> Iterable[tuple[str, str, int]]:
    """Yield name, stage and time (ns) of each distinct mark: every device repeats it."""
    seen: set[tuple[str, str, int]] = set()
    for entry in entries if isinstance(entries, (list, tuple)) else ():
        if not isinstance(entry, Mapping):
            continue
        name, stage, time = (entry.get(key) for key in ("name", "stage", "time_us"))
        if (
            isinstance(name, str)
            and isinstance(stage, str)
            and type(time) is int
            and abs(time) < 1 << 51
        ):
            mark = (name[:_TEXT], stage, time * 1000)
            if mark not in seen:
                seen.add(mark)
                yield mark
