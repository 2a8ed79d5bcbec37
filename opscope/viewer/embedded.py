"""The data of a single file: tables and answers as blocks of bytes, and the index that names them.

The blocks are bounded together. If every op, kernel, copy and slice of the timeline fits, their times are
stored once, as axes (``axes.py``). Else the timeline has its longest slices, and the largest tables keep
their first rows; the index has how many rows were left out, with the sums of their columns that add up.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import polars as pl

from opscope.core.not_merged import NotMerged
from opscope.reports import vendor_words

from . import rows, tables
from .axes import Axes, axes_of
from .op_guesses import EACH, op_guesses
from .packed import TRIED, Guesses, pack
from .question import Asked, BadParameter, Question, Unanswered
from .questions import source, table
from .questions.timeline_all import QUESTION as TIMELINE
from .registry import questions
from .timeline.index import timeline_of
from .timeline.whole import MOST, whole
from .whole_timeline import arrays

if TYPE_CHECKING:
    from .viewed import Viewed

#: Rows of a table that are packed at most; more do not fit, and packing takes time.
_ROWS: Final = 400_000
#: With at most this many rows in all tables, and slices in the timeline, all are tried first.
_WHOLE_ROWS: Final = 2_000_000
_WHOLE_SLICES: Final = 1_000_000
#: Rows that a table keeps even if there is little room.
_LEAST: Final = 200
#: Characters of source text in a file at most: about 400 kB as it is stored.
_TEXT: Final = 1 << 20


@dataclass(slots=True)
class Embedded:
    """``index`` and ``blocks``, each a gzip stream; a block is named by its position."""

    index: bytes
    blocks: list[bytes]
    #: By name: how many rows were left out of a table.
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Table:
    name: str
    page: dict[str, Any]
    frame: pl.DataFrame
    summed: list[str]
    packed: bytes = b""
    kept: int = 0
    axes: Axes | None = None
    guesses: Guesses | None = None

    def pack(self, kept: int) -> None:
        """Pack the first ``kept`` rows."""
        self.kept = kept
        guesses = self.guesses if self.axes and kept == self.frame.height else None
        self.packed = zipped(pack(self.frame.head(kept), self.axes, guesses))

    def entry(self, block: int) -> dict[str, Any]:
        """Return the table's entry in the index."""
        entry: dict[str, Any] = {"block": str(block), "page": self.page}
        if self.axes is not None:
            entry["axes"] = True
        left = self.frame.height - self.kept
        if left:
            entry["left_out"] = {
                "rows": left,
                "sums": rows.sums(self.frame.slice(self.kept), self.summed),
            }
        return entry


@dataclass(slots=True)
class _Times:
    """The axes of all times, and the timeline whose slices are on them; each as a gzip stream."""

    packed: bytes
    timeline: bytes


def embed(viewed: Viewed, most: int, sources: bool = False) -> Embedded:
    """Return the data of a file on ``viewed``, with about ``most`` bytes in all. Only with ``sources``
    does it have the text of source files; else it has only the times of their lines. Answers get room
    first, then the timeline and each op, kernel and copy, if all of them fit."""
    blocks: list[bytes] = []
    answers = []
    for name, params, answer in _answers(viewed, sources):
        answers.append({"question": name, "params": params, "block": str(len(blocks))})
        blocks.append(zipped(answer))
    tables = list(_tables(viewed))
    head = zipped(
        _json({"tables": {table.name: table.page for table in tables}, "answers": answers})
    )
    index: dict[str, Any] = {"answers": answers, "tables": {}}
    room = most - len(head) - sum(map(len, blocks))
    times = _whole(viewed, tables, room)
    if times is not None:
        index["axes"], index["timeline"] = str(len(blocks)), str(len(blocks) + 1)
        blocks += [times.packed, times.timeline]
    else:
        answers.append({"question": TIMELINE.name, "params": {}, "block": str(len(blocks))})
        blocks.append(_longest_slices(viewed, room // 2))
        room -= len(blocks[-1])
        for one in tables:
            one.axes = one.guesses = None
            one.pack(min(one.frame.height, _ROWS))
        _fit(tables, room)
    for one in tables:
        index["tables"][one.name] = one.entry(len(blocks))
        blocks.append(one.packed)
    left = {
        table.name: table.frame.height - table.kept
        for table in tables
        if table.kept < table.frame.height
    }
    return Embedded(zipped(_json(index)), blocks, left)


def _whole(viewed: Viewed, tables: list[_Table], room: int) -> _Times | None:
    """Pack the tables so that every op, kernel, copy and slice of the timeline is there.

    Other tables keep their first rows if there is no room. Returns the times; None if these are too many.
    """
    if sum(table.frame.height for table in tables) > _WHOLE_ROWS:
        return None
    timeline = timeline_of(viewed.profile)
    answer = whole(timeline, _WHOLE_SLICES + 1)
    timeline_arrays = arrays(answer, timeline)
    if len(timeline_arrays.slices) > _WHOLE_SLICES:
        return None
    each = {table.name: table for table in tables if table.name in EACH}
    axes = axes_of(timeline_arrays.slices, {name: table.frame for name, table in each.items()})
    axes.add_missing(
        column for table in tables for column in table.frame if column.dtype == pl.Int64
    )
    if not axes.usable:
        return None
    slices = axes.slices(timeline_arrays.slices)
    times = _Times(zipped(axes.packed(slices)), zipped(timeline_arrays.packed(slices)))
    room -= len(times.packed) + len(times.timeline)
    if room < 0:
        return None
    each["each_op"].guesses = op_guesses(*(each[name].frame for name in EACH))
    for one in tables:
        # without them a small table is there at once
        one.axes = axes if one.frame.height >= TRIED else None
        one.pack(one.frame.height)
    room -= sum(len(table.packed) for table in each.values())
    rest = [table for table in tables if table.name not in each]
    if room < 0:
        return None
    _fit(rest, room)
    return times if sum(len(table.packed) for table in rest) <= room else None


def _longest_slices(viewed: Viewed, room: int) -> bytes:
    """Return the timeline's answer as a gzip stream: as many of the longest slices as there is room for."""
    most = MOST
    while True:
        answer = zipped(whole(timeline_of(viewed.profile), most))
        if len(answer) <= room or most <= _LEAST:
            return answer
        most = max(_LEAST, int(most * room / len(answer) * 0.9))


def zipped(data: bytes) -> bytes:
    """Return a gzip stream without a time, so that equal bytes give equal streams."""
    return gzip.compress(data, 9, mtime=0)


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _answers(viewed: Viewed, sources: bool) -> Iterator[tuple[str, dict[str, str], bytes]]:
    """Yield the answers that questions want stored. Unanswered ones are left out."""
    for name, question in questions().items():
        if name == source.QUESTION.name:
            for params, answer in source.held(viewed, _TEXT if sources else None):
                yield name, params, _json(answer)
        elif question is not TIMELINE:
            for params, bytes_ in _ask(viewed, question):
                yield name, params, bytes_


def _ask(viewed: Viewed, question: Question) -> Iterator[tuple[dict[str, str], bytes]]:
    for params in question.stored(viewed):
        try:
            answer = question.answer(Asked(viewed, params))
        except (Unanswered, BadParameter, NotMerged):
            continue
        binary = isinstance(answer, (bytes, bytearray, memoryview))
        yield params, bytes(answer) if binary else _json(answer)


def _tables(viewed: Viewed) -> Iterator[_Table]:
    vendor = vendor_words.vendor(viewed.profile)
    for kind in tables.kinds().values():
        asked = Asked(viewed, {"name": kind.name, "rows": "0"})
        try:
            page = table.answer(asked)
            frame = table.frame_of(kind, asked)
        except Unanswered:  # a difference without a second run
            continue
        summed = list(page["sums_all"])
        for name in ("from", "matching", "sums", "values"):
            del page[name]
        page["words"] = table.words(frame, vendor)  # the page was asked for no rows
        yield _Table(kind.name, page, frame, summed)


def _fit(tables: list[_Table], room: int) -> None:
    """Keep fewer rows of the largest tables until all take ``room`` bytes at most."""
    while True:
        size = sum(len(table.packed) for table in tables)
        shrinking = [table for table in tables if table.kept > _LEAST]
        if size <= room or not shrinking:
            return
        # room is a share of what is left by tables that cannot shrink: a share of all room could exceed the
        # size of each table that can
        room_left = room - size + sum(len(table.packed) for table in shrinking)
        share = _share(sorted(len(table.packed) for table in shrinking), room_left)
        for one in shrinking:
            if len(one.packed) > share:
                # a little less than in proportion: the first rows tend to be longer
                kept = int(one.kept * share / len(one.packed) * 0.97)
                one.pack(max(_LEAST, min(kept, one.kept - 1)))


def _share(sizes: list[int], room: int) -> int:
    """Return the size to which the largest of these ascending ``sizes`` are cut to fit in ``room``."""
    left = max(room, 0)
    for position, size in enumerate(sizes):
        share = left // (len(sizes) - position)
        if size > share:
            return share
        left -= size
    return sizes[-1] if sizes else 0
