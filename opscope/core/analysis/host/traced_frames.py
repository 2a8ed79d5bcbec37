"""Python frames traced by a profiler (torch.profiler's ``with_stack``), converted to samples of stacks.

Such a frame is a range of the domain ``python``: ``train.py(42): step``, with the line where the function
begins, or ``<built-in method acquire of _thread.lock object at 0x7f>``. Between two begins or ends of frames,
a thread was in one path of frames. This is a sample whose ``start`` and ``end`` were traced (``samples`` 0).
"""

from __future__ import annotations

import re
import sys
from typing import Final

import numpy as np
import polars as pl

from opscope.core.code_files import is_internal_package
from opscope.core.tables.columns import at, distinct_values, numbers_of
from opscope.core.tables.intervals import NONE, Ints, nest
from opscope.core.tables.trace import Trace, table_schema

DOMAIN: Final = "python"
_FRAME: Final = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>.*)", re.DOTALL)
_BUILT_IN: Final = re.compile(
    r"<built-in (?:method|function) (?P<name>\w+)(?: of (?P<owner>[\w.]+)(?: object)?\b.*)?>?",
    re.DOTALL,
)
#: The most frames of a path that are kept.
_MAX_DEPTH: Final = 512
_NEVER: Final = np.iinfo(np.int64).max


def threads_with_frames(trace: Trace) -> dict[tuple[int, int], pl.DataFrame]:
    """Return the traced frames of each thread that has any: start, end (ns), text; in no order.

    Processes whose stacks were sampled are left out.
    """
    ranges = trace["ranges"]
    mine = ranges.lazy().filter(
        pl.col("domain").cast(pl.String) == DOMAIN,
        pl.col("process").is_not_null() & pl.col("thread").is_not_null(),
        ~pl.col("process").is_in(trace["host_samples"]["process"].unique().implode()),
    )
    rows = mine.select("process", "thread", "start", "end", "text").collect()
    return {
        (int(process), int(thread)): part
        for (process, thread), part in rows.group_by("process", "thread", maintain_order=True)
    }


def frames_as_samples(
    frames: pl.DataFrame, key: tuple[int, int], outside: tuple[Ints, Ints]
) -> pl.DataFrame:
    """Return the samples (as ``host_samples``) of a thread's frames that touch the intervals ``outside``."""
    nested = nest(frames["start"].to_numpy(), frames["end"].to_numpy())
    times = np.unique(np.concatenate([nested.start, nested.end]))
    start, end = times[:-1], times[1:]
    following = np.searchsorted(outside[1], start, side="right")
    touching = at(np.append(outside[0], _NEVER), following) < end
    start, end = start[touching], end[touching]
    row = nested.innermost(start)
    start, end, row = start[row >= 0], end[row >= 0], row[row >= 0]
    distinct = distinct_values(frames["text"])
    code = numbers_of(distinct)(frames["text"]).astype(np.int64)
    row_of_frame = np.zeros(len(frames), np.int64)
    row_of_frame[nested.order] = np.arange(len(nested.order))
    owner = row_of_frame[row]
    path, last = _paths(nested.parent, code[nested.order], owner)
    texts = distinct.cast(pl.String).fill_null("").to_list()
    described = [_stack_and_call(texts, number, last) for number in range(len(last))]
    index = path[owner]
    schema = table_schema("host_samples")
    return pl.DataFrame(
        {
            "process": np.full(len(index), key[0]),
            "thread": np.full(len(index), key[1]),
            "start": start,
            "end": end,
            "kind": pl.Series([None] * len(index), dtype=pl.Categorical),
            "stack": _categories([stack for stack, _ in described], index),
            "call": _categories([call for _, call in described], index),
            "samples": np.zeros(len(index), np.int64),
            "cpu": pl.Series([None] * len(index), dtype=pl.Int64),
        }
    ).select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def _categories(texts: list[str | None], index: Ints) -> pl.Series:
    column: pl.Series = pl.Series(texts, dtype=pl.String).cast(pl.Categorical).gather(index)
    return column


def _paths(parent: Ints, code: Ints, owner: Ints) -> tuple[Ints, list[tuple[int, int]]]:
    """Number the distinct paths of frames: for each place of a nest its path (-1: not needed), and for each
    path the enclosing path (-1: none) and its innermost text. ``owner``: the places that are needed, those
    around them included. Each round is a level of the nest."""
    needed = np.zeros(len(code), bool)
    climbing = np.unique(owner)
    while len(climbing):
        needed[climbing] = True
        climbing = np.unique(parent[climbing])
        climbing = climbing[climbing >= 0]
        climbing = climbing[~needed[climbing]]
    path = np.full(len(code), NONE, np.int64)
    last: list[tuple[int, int]] = []
    left = np.flatnonzero(needed)
    while len(left):
        here = (parent[left] < 0) | (at(path, parent[left]) >= 0)
        level, left = left[here], left[~here]
        around = at(path, parent[level])
        keys, number = np.unique(np.stack([around, code[level]]), axis=1, return_inverse=True)
        path[level] = number.reshape(-1) + len(last)
        last += [(int(outer), int(text)) for outer, text in keys.T.tolist()]
    return path, last


def _stack_and_call(
    texts: list[str], number: int, last: list[tuple[int, int]]
) -> tuple[str | None, str | None]:
    """Return the stack of a path, as in ``host_samples``, and the call made by its innermost frame."""
    frames: list[str] = []
    call: str | None = None
    while number >= 0 and len(frames) < _MAX_DEPTH:
        number, code = last[number]
        text = texts[code]
        match = _FRAME.fullmatch(text)
        if match is not None:
            parts = (_plain(match["file"]), str(int(match["line"])), _plain(match["function"]))
            frames.append("\t".join(parts))
        elif not frames and call is None:
            built_in = _BUILT_IN.match(text)
            if built_in is not None:
                call = ".".join(filter(None, (built_in["owner"], built_in["name"])))
    return "\n".join(frames) or None, call


def _plain(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")


def is_of_library(file: str) -> bool:
    """Return whether a file, written by a profiler without its folder, belongs to Python or a framework."""
    package = file.replace("\\", "/").partition("/")[0].removesuffix(".py")
    if file.startswith(("/", ".")) or ":" in file[:3]:
        return False
    return is_internal_package(package) or package in sys.stdlib_module_names
