"""Read the memory timelines of ``torch.profiler`` (``export_memory_timeline``): both of its JSON forms.

The layout is that of ``torch/profiler/_memory_profiler.py``, PyTorch 2.0 to 2.14: sums of each category by
time (``.json``, us), or single changes (``.raw.json.gz``, ns). Neither names the device, a block or a line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.kineto.json_events import whole_file
from opscope.readers.sound import sound_trace

#: Bytes of JSON: two million changes.
_MOST: Final = 64 << 20
#: PyTorch's categories, in the order of its numbers.
_CATEGORIES: Final = (
    "parameters", "optimizer state", "inputs", "temporaries", "activations", "gradients",
    "details of autograd", "unknown",
)  # fmt: skip
#: The action of the pair by which a block only changes its category.
_CHANGE: Final = 3
#: Times (ns) and sizes beyond these are invalid: the sum of two million sizes still fits in 64 bits.
_LAST_TIME: Final = 1 << 62
_LARGEST: Final = 1 << 41


def read(path: Path) -> Trace:
    """Return the trace of a timeline: what was in use after each change. Raises BadInput."""
    data = whole_file(path, _MOST, f"a memory timeline of more than {_MOST >> 20} MB")
    try:
        _, _, rest = data.partition(b"]")
        is_summed = rest[:64].lstrip(b" \t\r\n,").startswith(b"[[")
        time, sizes, total = _sums(data) if is_summed else _changes(data)
    except (msgspec.DecodeError, OverflowError, ValueError, RecursionError) as error:
        raise BadInput(path, f"not a memory timeline of torch.profiler: {error}") from error
    if not len(time):
        raise BadInput(path, "a memory timeline of torch.profiler without any change")
    changed = np.diff(total, prepend=0)
    rows = np.flatnonzero(changed)
    tables = {
        "processes": pl.DataFrame({"process": [0], "framework": ["torch"]}),
        "allocations": pl.DataFrame(
            {"time": time[rows], "bytes": changed[rows], "total": total[rows]}
        ).with_columns(process=pl.lit(0, pl.Int32)),
    }
    origin = {
        "format": "memory_snapshot",
        "tool": "torch.profiler's memory timeline",
        "version": None,
        "paths": [str(path)],
    }
    trace = sound_trace(tables, origin)
    peak = sizes[int(total.argmax())]
    parts = [(int(size), name) for size, name in zip(peak, _CATEGORIES, strict=True) if size]
    said = ", ".join(f"{size:,} {name}" for size, name in sorted(parts, reverse=True))
    trace.note(
        "info",
        f"bytes at the peak of {int(total.max()):,}, as torch.profiler sorted them: {said}",
        1,
    )
    trace.note("info", "a memory timeline does not tell its device, nor who allocated a block: the snapshot"
                       " of torch.cuda.memory._dump_snapshot does", 1)  # fmt: skip
    return trace


def _sums(data: bytes) -> tuple[Any, Any, Any]:
    """Return times (ns), bytes by category and their sums, of the form with sums. The first column is 0."""
    times, sizes = msgspec.json.decode(data, type=tuple[list[int], list[list[int]]])
    width = len(_CATEGORIES) + 1
    if len(times) != len(sizes) or any(len(row) != width for row in sizes):
        raise ValueError("its times and sizes differ in number, or a row lacks a category")
    by_category = np.array(sizes, np.int64).reshape(-1, width)[:, 1:]
    time = _check(np.array(times, np.int64), _LAST_TIME // 1000) * 1000
    return time, _check(by_category, _LARGEST), by_category.sum(axis=1)


def _changes(data: bytes) -> tuple[Any, Any, Any]:
    """Return the same for the form with single changes; earlier memory counts from the first change on."""
    rows = np.array(msgspec.json.decode(data, type=list[tuple[int, int, int, int]]), np.int64)
    time, action, size, category = rows.reshape(-1, 4).T
    timed = time[time >= 0]
    time = _check(np.where(time >= 0, time, timed.min() if len(timed) else 0), _LAST_TIME)
    _check(category, len(_CATEGORIES) - 1)
    by_category = np.zeros((len(rows), len(_CATEGORIES)), np.int64)
    by_category[np.arange(len(rows)), category] = _check(size, _LARGEST)
    by_category = by_category.cumsum(axis=0)
    kept = np.flatnonzero(action != _CHANGE)
    return time[kept], by_category[kept], by_category[kept].sum(axis=1)


def _check(values: Any, most: int) -> Any:
    """Return the integers, none of which is larger than ``most``. Raises ValueError."""
    if values.size and int(np.abs(values).max()) > most:
        raise ValueError("a number that is none of PyTorch's times, sizes or categories")
    return values
