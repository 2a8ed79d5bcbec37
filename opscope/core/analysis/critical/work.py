"""Device work in the order of its streams: kernels, copies and sets, with the call that launched each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.job.exchanges import communicating
from opscope.core.tables.columns import at, compact, matching, pairs
from opscope.core.tables.intervals import NONE, Ints

#: Kinds of rows.
KERNEL, COPY, SET, COMMUNICATION = range(4)
#: Launch number of work without a launch record: before all others, because the recording began after the
#: launch.
_BEFORE: Final = np.iinfo(np.int64).min // 4
_STREAM: Final = ("process", "device", "context", "stream")


@dataclass(frozen=True, slots=True)
class Work:
    """All device work, stream by stream, in each stream by start; times in ns.

    ``row``: the row of ``kernels``, or of ``memops`` where ``what`` is COPY or SET. ``call``: the row of
    ``calls`` that launched it, -1 for none; ``op``: the row of ``ranges``. ``lane``: the number of its
    stream; ``first`` has each stream's first place and the number of all work at its end. ``keys``: each
    stream's (process, device, context, stream), -1 where unknown. ``launched``: when the stream had received
    all launches up to this one (the start of its call; work without a call was launched before all others).
    """

    row: NDArray[np.int32]
    what: NDArray[np.uint8]
    start: Ints
    end: Ints
    call: NDArray[np.int32]
    op: NDArray[np.int32]
    lane: NDArray[np.int32]
    first: Ints
    keys: list[tuple[int, int, int, int]]
    launched: Ints

    def __len__(self) -> int:
        return len(self.row)

    def stream(self, lane: int) -> slice:
        """Return the places of the work of stream ``lane``."""
        return slice(int(self.first[lane]), int(self.first[lane + 1]))


def device_work(attribution: Attribution) -> Work:
    """Return the kernels, copies and sets of an attributed trace, stream by stream."""
    trace = attribution.trace
    tables = (trace["kernels"], trace["memops"])
    parts = (attribution.kernels, attribution.memops)
    kinds = np.concatenate(
        [
            np.where(communicating(attribution), COMMUNICATION, KERNEL),
            np.where(matching(tables[1]["kind"], r"(?i)memset"), SET, COPY),
        ]
    ).astype(np.uint8)
    row = np.concatenate([np.arange(len(table), dtype=np.int32) for table in tables])
    start, end = (
        np.concatenate([table[name].fill_null(0).to_numpy() for table in tables])
        for name in ("start", "end")
    )
    call = np.concatenate([np.where(part.call >= 0, part.call, part.replay) for part in parts])
    op = np.concatenate([part.op for part in parts])
    columns = [
        np.concatenate([table[name].fill_null(NONE).cast(pl.Int64).to_numpy() for table in tables])
        for name in _STREAM
    ]
    keys, lane = _number(columns)
    order = _by_lane(lane, start)
    lane = lane[order]
    first = np.searchsorted(lane, np.arange(len(keys) + 1))
    end, start, call = np.maximum(end, start)[order], start[order], call[order].astype(np.int32)
    called = at(trace["calls"]["start"].fill_null(0).to_numpy(), call)
    launched = np.where(call >= 0, np.minimum(called, start), _BEFORE)
    for begin, last in pairwise(first):  # a loop over streams
        np.maximum.accumulate(launched[begin:last], out=launched[begin:last])
    return Work(
        row[order], kinds[order], start, end, call, op[order].astype(np.int32), lane, first, keys,
        launched,
    )  # fmt: skip


def _number(columns: list[Ints]) -> tuple[list[tuple[int, int, int, int]], NDArray[np.int32]]:
    """Return the distinct (process, device, context, stream) in order, and for each row the number of its
    own."""
    keys = [np.unique(columns[0])]
    lane = np.searchsorted(keys[0], columns[0]).astype(np.int32)
    for column in columns[1:]:
        of, values, lane = pairs(lane, column)
        keys = [*(key[of] for key in keys), values]
    return list(zip(*(key.tolist() for key in keys), strict=True)), lane


def _by_lane(lane: NDArray[np.int32], start: Ints) -> Ints:
    """Return the rows by lane, then by start; each table is nearly in order, which the sorts use."""
    order = np.argsort(start, kind="stable")
    small = lane.astype(np.uint16) if int(lane.max(initial=0)) < 1 << 16 else lane
    rows: Ints = order[np.argsort(small[order], kind="stable")]
    return rows


def names(work: Work, attribution: Attribution, places: Ints) -> pl.Series:
    """Return the name of each place: a kernel's own, else ``memcpy HtoD`` and the like; Categorical."""
    trace = attribution.trace
    memop = np.isin(work.what[places], (COPY, SET))
    kernels, called = compact(trace["kernels"]["name"])
    kinds, copied = compact(trace["memops"]["kind"])
    texts: list[str | None] = [*called, *(_copy(kind) for kind in copied)]
    code: NDArray[Any] = np.full(len(places), NONE, np.int64)
    code[~memop] = kernels[work.row[places[~memop]]]
    code[memop] = kinds[work.row[places[memop]]] + len(called)
    names_of_work: pl.Series = (
        pl.Series("name", texts, dtype=pl.String).cast(pl.Categorical).gather(code)
    )
    return names_of_work


def _copy(kind: str | None) -> str:
    return kind if kind is not None and kind.lower() == "memset" else f"memcpy {kind or ''}".strip()
