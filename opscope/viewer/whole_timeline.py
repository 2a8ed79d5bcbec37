"""The timeline of a single file: the arrays of ``timeline/whole.py``, packed, with their times on the axes.
The page restores the arrays, so the code that draws the timeline sees no difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from .axes import headed
from .packed import pack, zigzag

if TYPE_CHECKING:
    from .axes import Slices
    from .timeline.index import Timeline


_SLICES: Final = {
    "start": pl.Int64, "end": pl.Int64, "name": pl.UInt32, "kind": pl.UInt8,
    "process": pl.Int32, "thread": pl.Int64, "device": pl.Int32, "stream": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arrays:
    """``head``: the answer's header; ``slices``: one row per slice, strip after strip, times in ns."""

    head: dict[str, Any]
    slices: pl.DataFrame

    def packed(self, slices: Slices) -> bytes:
        """Return the timeline as bytes; ``slices``: the positions of its times on the axes.

        The layout is a length (u32), a header in JSON (the answer's, and ``axis``: of each strip,
        ``sizes``), the positions of starts (each as the difference from the previous one in the
        strip) and of ends (as the difference from the start), both zigzag, byte plane by byte
        plane, and a packed table of the other columns.
        """
        firsts = np.cumsum([0, *(strip["many"] for strip in self._strips())])[:-1]
        filled = [
            first for first, strip in zip(firsts, self._strips(), strict=True) if strip["many"]
        ]
        steps = np.diff(slices.start, prepend=0)
        steps[filled] = slices.start[filled]
        sizes, pieces = zip(*map(zigzag, (steps, slices.end - slices.start)), strict=True)
        axis = [
            int(slices.axis[first]) if strip["many"] else 0
            for first, strip in zip(firsts, self._strips(), strict=True)
        ]
        head = {**self.head, "axis": axis, "sizes": sizes}
        return headed(head, *pieces, pack(self.slices.select("name", "kind")))

    def _strips(self) -> Iterator[dict[str, Any]]:
        return (strip for lane in self.head["lanes"] for strip in lane["strips"])


def arrays(answer: bytes, timeline: Timeline) -> Arrays:
    """Return the arrays of an answer of ``timeline/whole.py``; slices get the columns of their lane."""
    length = int.from_bytes(answer[:4], "little")
    head = json.loads(answer[4 : 4 + length])
    at = 4 + length + -(4 + length) % 8

    def take(count: int, kind: str) -> Any:
        nonlocal at
        values = np.frombuffer(answer, kind, count, at)
        at += len(values) * values.itemsize + -(len(values) * values.itemsize) % 8
        return values

    about = {lane_id: lane.about for lane_id, lane in timeline.all_lanes()}
    tables = []
    for lane in head["lanes"]:
        lane_facts = about[lane["id"]]
        for strip in lane["strips"]:
            many = strip["many"]
            kind = "<f8" if strip["wide"] else "<i4"
            start = take(many, kind).astype(np.int64) + int(head["start"])
            lasted = take(many, kind).astype(np.int64)
            tables.append(
                pl.DataFrame(
                    {"start": start, "end": start + lasted, "name": take(many, "<u4"),
                     "kind": take(many, "u1")}
                ).with_columns(
                    pl.lit(lane_facts.process, pl.Int32).alias("process"),
                    pl.lit(lane_facts.thread, pl.Int64).alias("thread"),
                    pl.lit(lane_facts.device, pl.Int32).alias("device"),
                    pl.lit(lane_facts.stream, pl.Int64).alias("stream"),
                )
            )  # fmt: skip
    slices = pl.concat(tables) if tables else pl.DataFrame(schema=_SLICES)
    return Arrays(head, slices)
