"""speedscope's JSON: one evented profile (open and close events) for each thread and stream."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import polars as pl

from opscope.core import progress
from opscope.core.tables.columns import pieces
from opscope.exports.timeline import Slices, Timeline, Track

if TYPE_CHECKING:
    from opscope.profile import Profile

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
#: Edges that are written at a time.
_AT_ONCE: Final = 400_000


def write(profile: Profile, out: BinaryIO, scratch: Path | None = None) -> dict[str, int]:
    """Write a profile for each track; return how many there are, and how many slices. Times are ns.

    Marks, which have no length, are left out: the format has only frames that open and close. Times are
    relative to the first, because readers of the format hold them in 53 bits.
    """
    timeline = Timeline(profile, scratch)
    with progress.stage("writing the timeline", len(timeline), progress.SLICES) as stage:
        return _write(timeline, out, stage)


def _write(timeline: Timeline, out: BinaryIO, stage: progress.Stage) -> dict[str, int]:
    frames: dict[str, int] = {}
    counts = {"profiles": 0, "slices": 0}
    tracks: dict[int, tuple[Track, list[Slices]]] = {}
    for track, table in timeline.slices():
        if len(table.stack.rows) or len(table.stack.closing):
            tracks.setdefault(track.number, (track, []))[1].append(table)
    begun = [int(parts[0].start[parts[0].stack.rows].min()) for _, parts in tracks.values()]
    first = min(begun, default=0)
    out.write(f'{{"$schema":"{_SCHEMA}","exporter":"opscope","profiles":[\n'.encode())
    names = _names(timeline, [track for track, _ in tracks.values()])
    for number, (name, (_, parts)) in enumerate(zip(names, tracks.values(), strict=True)):
        if number:
            out.write(b",\n")
        _profile(name, parts, first, frames, out, stage)
        counts["profiles"] += 1
        counts["slices"] += sum(len(part.stack.rows) for part in parts)
    named = ",".join(json.dumps({"name": name}, ensure_ascii=False) for name in frames)
    out.write(f'],"shared":{{"frames":[{named}]}}}}\n'.encode())
    return counts


def _names(timeline: Timeline, tracks: list[Track]) -> list[str]:
    """Return a unique name for each track; equal names get their pid, thread or number added."""
    names = [
        f"{timeline.processes.get(track.process, '')}: {track.name}".removeprefix(": ")
        for track in tracks
    ]
    for tell in (
        [f"pid {track.pid}" for track in tracks],
        [f"thread {track.tid}" if track.tid is not None else "" for track in tracks],
        [f"track {track.number}" for track in tracks],
    ):
        often = Counter(names)
        names = [
            f"{name} ({more})" if often[name] > 1 and more else name
            for name, more in zip(names, tell, strict=True)
        ]
    return names


def _profile(
    name: str,
    parts: list[Slices],
    first: int,
    frames: dict[str, int],
    out: BinaryIO,
    stage: progress.Stage,
) -> None:
    begin = int(parts[0].start[parts[0].stack.rows].min()) - first
    end = max(int(part.end[part.stack.closing].max(initial=first)) for part in parts) - first
    head: dict[str, Any] = {"type": "evented", "name": name, "unit": "nanoseconds"}
    head |= {"startValue": begin, "endValue": end}
    out.write(json.dumps(head, ensure_ascii=False)[:-1].encode() + b', "events":[')
    for number, made in enumerate(parts):
        if number:
            out.write(b",")
        _events(made, first, frames, out, stage)
    out.write(b"]}")


def _events(
    slices: Slices, first: int, frames: dict[str, int], out: BinaryIO, stage: progress.Stage
) -> None:
    """Write the edges of the nested rows, in order."""
    stack = slices.stack
    count = len(stack.rows) + len(stack.closing)
    time, frame, opens = np.empty(count, np.int64), np.empty(count, np.int64), np.zeros(count, bool)
    for positions, rows, when, yes in (
        (stack.opens, stack.rows, slices.start, True),
        (stack.closes, stack.closing, slices.end, False),
    ):
        used, of = slices.name.part(rows).used()
        code = [frames.setdefault(slices.name.texts[at], len(frames)) for at in used]
        time[positions] = when[rows] - first
        frame[positions] = np.array(code, np.int64)[of]
        opens[positions] = yes
    for some in pieces(len(time), _AT_ONCE):
        is_opening = pl.Series(opens[some])
        lines = pl.select(
            pl.concat_str(
                pl.when(is_opening)
                .then(pl.lit('{"type":"O","frame":'))
                .otherwise(pl.lit('{"type":"C","frame":')),
                pl.Series(frame[some]).cast(pl.String),
                pl.lit(',"at":'),
                pl.Series(time[some]).cast(pl.String),
                pl.lit("}"),
            )
        ).to_series()
        out.write((b"," if some.start else b"") + str(lines.str.join(",").item()).encode())
        stage.add(len(is_opening) // 2)
