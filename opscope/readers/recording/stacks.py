"""Read the samples of Python stacks of a recording as the table ``host_samples``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.recording_format import COLLECTED, STACK_RECORD, STACK_SAMPLES
from opscope.core.tables.trace import table_schema
from opscope.readers.recording.parts import records as stored

_DTYPE: Final = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("cpu", "<i8"),
        ("thread", "<i4"),
        ("node", "<i4"),
        ("samples", "<i4"),
        ("kind", "<i4"),
    ]
)
assert _DTYPE.itemsize == STACK_RECORD.size
#: The most frames of a stack that are read; a damaged tree may have more.
_MAX_DEPTH: Final = 512
_MAX_NODES: Final = 1 << 20
_LONGEST: Final = 4096


def host_samples(
    folders: Sequence[Path],
    begin: int | None,
    lines: Iterable[Any],
    notes: list[tuple[str, str, int]],
) -> pl.DataFrame:
    """Return the samples of a part and its segments from ``begin`` on; ``lines``: the lines of its
    ``stacks.jsonl``.

    A sample whose stack is not described, as in a damaged recording, has no stack. Appends to ``notes`` what
    was left out. Raises BadInput if a file cannot be read.
    """
    records = np.concatenate([stored(folder / STACK_SAMPLES, _DTYPE) for folder in folders])
    sound = (records["end"] >= records["start"]) & np.isin(records["kind"], (0, COLLECTED))
    sound &= (records["start"] >= 0) & (records["end"] < 1 << 61)
    if not sound.all():
        notes.append(
            ("warning", "samples of Python stacks are damaged, left out", int((~sound).sum()))
        )
        records = records[sound]
    if begin is not None:
        records = records[records["end"] > begin]
        records["start"] = np.maximum(records["start"], begin)
        records["cpu"] = np.minimum(records["cpu"], records["end"] - records["start"])
    used = np.unique(records["node"])
    stacks, calls = _described(used[used >= 0], lines)
    lost = sum(number not in stacks for number in used.tolist() if number >= 0)
    if lost:
        notes.append(("warning", "Python stacks are not described in the recording", lost))
    node = pl.Series("node", records["node"].astype(np.int64))
    cpu = pl.Series(records["cpu"].astype(np.int64))
    return (
        pl.DataFrame(
            {
                "process": np.zeros(len(records), np.int32),
                "thread": records["thread"].astype(np.int64),
                "start": records["start"].astype(np.int64),
                "end": records["end"].astype(np.int64),
                "kind": pl.Series(records["kind"] == COLLECTED),
                "stack": _texts(node, stacks),
                "call": _texts(node, calls),
                "samples": records["samples"].astype(np.int64),
                "cpu": cpu.set(cpu < 0, None),
            }
        )
        .with_columns(
            pl.when("kind").then(pl.lit("garbage collection")).cast(pl.Categorical).alias("kind")
        )
        .select(table_schema("host_samples").keys())
    )


def _texts(node: pl.Series, texts: Mapping[int, str]) -> pl.Series:
    numbers = list(texts)
    described: pl.Series = node.replace_strict(
        numbers, [texts[number] for number in numbers], default=None, return_dtype=pl.String
    )
    column: pl.Series = described.cast(pl.Categorical)
    return column


def _described(used: NDArray[Any], lines: Iterable[Any]) -> tuple[dict[int, str], dict[int, str]]:
    """Return the stack of each used node, and what its innermost frame called; malformed lines are left out.
    The loops run over distinct stacks."""
    codes: dict[int, tuple[str, str]] = {}
    nodes: dict[int, tuple[int, str]] = {}
    calls: dict[int, str] = {}
    for line in lines:
        match line:
            case ["code", int(number), str(file), str(function)]:
                codes[number] = _plain(file), _plain(function)
            case ["node", int(number), int(parent), int(code), int(at)] if (
                code in codes and len(nodes) < _MAX_NODES
            ):
                file, function = codes[code]
                nodes[number] = parent, f"{file}\t{max(0, at) % 10**9}\t{function}"
            case ["call", int(number), str(call)]:
                calls[number] = call[:_LONGEST]
    stacks = {}
    for number in used.tolist():
        frames: list[str] = []
        at = number
        while at in nodes and len(frames) < _MAX_DEPTH:
            at, frame = nodes[at]
            frames.append(frame)
        if frames:
            stacks[number] = "\n".join(frames)
    return stacks, calls


def _plain(text: str) -> str:
    """Return a file's or function's name without the separators of a stack's text."""
    return text[:_LONGEST].replace("\t", " ").replace("\n", " ")


def described_sampling(line: Mapping[str, Any]) -> str:
    """Return a note on how the recording sampled stacks. Raises KeyError, TypeError, ValueError."""
    said = line["stacks"]
    rate, longest = float(said["rate"]), int(said["longest"])
    lowest = f", at the least {1e9 / longest:.3g}" if longest > 0 else ""
    dropped = int(said["dropped"])
    lost = f"; {dropped} samples were lost" if dropped else ""
    return (
        f"Python stacks were sampled {rate:.3g} times a second{lowest} ({str(said['how'])[:80]}), so that it"
        f" takes 1 % of the time at most{lost}"
    )
