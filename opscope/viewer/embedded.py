"""The data of a single file: tables and answers as blocks of bytes, and the index that names them.

The blocks are bounded together: where the tables are larger, the largest keep their first rows, and the index
has how many rows were left out, with the sums of their columns that add up.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from . import rows, tables
from .packed import pack
from .question import Asked, BadParameter, Unanswered
from .questions import source, table
from .registry import questions

if TYPE_CHECKING:
    import polars as pl

    from .viewed import Viewed

#: Rows of a table that are packed at most; more do not fit, and packing takes time.
_ROWS: Final = 400_000
#: Rows that a table keeps however little room there is.
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

    def pack(self, kept: int) -> None:
        """Pack the first ``kept`` rows."""
        self.kept = kept
        self.packed = zipped(pack(self.frame.head(kept)))

    def entry(self, block: int) -> dict[str, Any]:
        """Return what the index has of the table."""
        entry: dict[str, Any] = {"block": str(block), "page": self.page}
        left = self.frame.height - self.kept
        if left:
            entry["left_out"] = {
                "rows": left,
                "sums": rows.sums(self.frame.slice(self.kept), self.summed),
            }
        return entry


def embed(viewed: Viewed, most: int, sources: bool = False) -> Embedded:
    """Return the data of a file about ``viewed``, of about ``most`` bytes in all.

    With ``sources`` the text of source files is in it, else never: only their lines' times. What
    answers need has the room first.
    """
    blocks: list[bytes] = []
    answers = []
    for name, params, answer in _answers(viewed, sources):
        answers.append({"question": name, "params": params, "block": str(len(blocks))})
        blocks.append(zipped(answer))
    found = list(_tables(viewed))
    for one in found:
        one.pack(min(one.frame.height, _ROWS))
    head = zipped(_json({"tables": {one.name: one.page for one in found}, "answers": answers}))
    _fit(found, most - len(head) - sum(map(len, blocks)))
    index: dict[str, Any] = {"answers": answers, "tables": {}}
    for one in found:
        index["tables"][one.name] = one.entry(len(blocks))
        blocks.append(one.packed)
    left = {one.name: one.frame.height - one.kept for one in found if one.kept < one.frame.height}
    return Embedded(zipped(_json(index)), blocks, left)


def zipped(data: bytes) -> bytes:
    """Return a gzip stream, the same for the same bytes: without a time."""
    return gzip.compress(data, 9, mtime=0)


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _answers(viewed: Viewed, sources: bool) -> Iterator[tuple[str, dict[str, str], bytes]]:
    """Yield the answers that questions want to be stored. What is not there is left out."""
    answer: Any
    for name, question in questions().items():
        if name == source.QUESTION.name:
            for params, answer in source.held(viewed, _TEXT if sources else None):
                yield name, params, _json(answer)
            continue
        for params in question.stored(viewed):
            try:
                answer = question.answer(Asked(viewed, params))
            except (Unanswered, BadParameter):
                continue
            whole = isinstance(answer, (bytes, bytearray, memoryview))
            yield name, params, bytes(answer) if whole else _json(answer)


def _tables(viewed: Viewed) -> Iterator[_Table]:
    for kind in tables.kinds().values():
        asked = Asked(viewed, {"name": kind.name, "rows": "0"})
        try:
            page = table.answer(asked)
            frame = table.frame_of(kind, asked)
        except Unanswered:  # of a difference, without a second run
            continue
        summed = list(page["sums_all"])
        for name in ("from", "matching", "sums", "values"):
            del page[name]
        yield _Table(kind.name, page, frame, summed)


def _fit(found: list[_Table], room: int) -> None:
    """Keep fewer rows of the largest tables until all take ``room`` bytes at most."""
    while True:
        size = sum(len(one.packed) for one in found)
        shrinking = [one for one in found if one.kept > _LEAST]
        if size <= room or not shrinking:
            return
        share = _share(sorted(len(one.packed) for one in found), room)
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
