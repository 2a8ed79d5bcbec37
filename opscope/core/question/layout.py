"""Lay out tables as text: styled on a terminal, plain in a pipe, with the same cells."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TextIO

from . import units
from .names import Cut, Parts, shortened

#: Width of a piped table in characters, unless ``COLUMNS`` sets it. It is fixed, so the same profile prints
#: the same lines everywhere.
PIPED_WIDTH: Final = 160
_GAP: Final = 2
#: Columns of reasons, which are useless if they are cut; their texts are then written below the table.
_REASONS: Final = ("why", "reason")
#: The most reasons that are written below a table.
_CUT: Final = 20


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in the rows, its heading, and the function that writes a value.

    The text of a ``flexible`` column may be shortened, to at least ``least`` characters: by whole ``parts``,
    first those that its rows share, preferably at the ``cut`` side. Numbers are never shortened. If the table
    is too wide, the columns with the highest ``rank`` are dropped first.
    """

    key: str
    title: str
    show: Callable[[object], str] = units.text
    flexible: bool = False
    cut: Cut = "end"
    rank: int = 0
    least: int = 12
    parts: Parts = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table of rows (mappings from column keys to values), with explanations below it.

    ``sentences`` are lines of any length above the rows, other than explanations.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    footnotes: Sequence[str] = ()
    headings: bool = True
    sentences: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Fitted:
    columns: list[Column]
    widths: list[int]
    cells: list[list[str]]
    dropped: list[str]


def _fit(table: Table, width: int) -> _Fitted:
    """Return the columns that fit in ``width`` characters (0: no limit), and how wide each is."""
    columns = list(table.columns)
    cells = {c.key: [c.show(row.get(c.key)) for row in table.rows] for c in columns}

    def natural(column: Column) -> int:
        return max([len(column.title) if table.headings else 0, *map(len, cells[column.key])])

    def least(column: Column) -> int:
        wide = natural(column)
        # on a screen so narrow that the column would fill it, shorten text before dropping numbers
        short = max(min(column.least, width // 2), len(column.title))
        return min(wide, short) if column.flexible else wide

    dropped: list[str] = []
    if width:
        while len(columns) > 1 and sum(map(least, columns)) + _GAP * (len(columns) - 1) > width:
            last = max(columns, key=lambda c: (c.rank, columns.index(c)))
            columns.remove(last)
            dropped.append(last.title or last.key)
    widths = [least(c) if width else natural(c) for c in columns]
    # give the remaining width to the flexible columns, one character at a time, to the one cut most; none
    # gets more than a quarter of the line before the others have their full width
    room = width - sum(widths) - _GAP * (len(columns) - 1)
    for most in (width // 4, width):
        wanted = [min(natural(c), most) for c in columns]
        while room > 0:
            short = max(range(len(columns)), key=lambda n: wanted[n] - widths[n])
            if wanted[short] <= widths[short]:
                break
            widths[short] += 1
            room -= 1
    texts = [
        shortened(cells[c.key], w if width else 0, c.cut, c.parts)
        for c, w in zip(columns, widths, strict=True)
    ]
    rows = [[column[n] for column in texts] for n in range(len(table.rows))]
    return _Fitted(columns, widths, rows, dropped[::-1])


Style = Literal["title", "heading", "row", "note"]


def lines(table: Table, width: int = PIPED_WIDTH) -> Iterable[tuple[Style, str]]:
    """Yield each line of the table, of at most ``width`` characters (0: no limit), with its style.

    A title, a sentence and a footnote may be longer.
    """
    fitted = _fit(table, width)
    if table.title:
        yield "title", table.title
    for sentence in table.sentences:
        yield "row", sentence
    if table.headings and table.rows:
        yield "heading", _line([column.title for column in fitted.columns], fitted)
    for cells in fitted.cells:
        yield "row", _line(cells, fitted)
    for column, *cells in zip(fitted.columns, *fitted.cells, strict=True):
        if column.key in _REASONS:
            every = dict.fromkeys(column.show(row.get(column.key)) for row in table.rows)
            shown = set(cells)
            cut = [text for text in every if text not in shown]
            for text in cut[:_CUT]:
                yield "note", f"{column.title}: {text}"
            if len(cut) > _CUT:
                yield "note", f"{len(cut) - _CUT:,} more: -w 0 shows all"
    *notes, last = table.footnotes or ("",)
    if fitted.dropped and table.rows:
        dropped = f"not shown for lack of width: {', '.join(fitted.dropped)} (-w 0 shows all)"
        joined = f"{last}; {dropped}" if last else dropped
        notes += [joined] if len(joined) <= width else [last, dropped]
    elif last:
        notes.append(last)
    for note in notes:
        yield "note", note


def _line(cells: Sequence[str], fitted: _Fitted) -> str:
    padded = (
        cell.ljust(wide) if column.flexible or column.show is units.text else cell.rjust(wide)
        for cell, wide, column in zip(cells, fitted.widths, fitted.columns, strict=True)
    )
    return (" " * _GAP).join(padded).rstrip()


def width_of(file: TextIO) -> int:
    """Return the width of tables in ``file`` in characters: ``COLUMNS``, the terminal's, or a pipe's."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    if not file.isatty():
        return PIPED_WIDTH
    from rich.console import Console

    return Console(file=file).width


def line_count(table: Table, width: int) -> int:
    """Return how many lines of a terminal ``width`` characters wide (0: no limit) the table takes."""
    return sum(-(-len(line) // width) if width and line else 1 for _, line in lines(table, width))


def write(tables: Sequence[Table], file: TextIO, width: int | None = None) -> None:
    """Write the tables to ``file``: styled by Rich on a terminal, else plain.

    ``width`` overrides the width in characters (``width_of``); 0 means no limit.
    """
    width = width_of(file) if width is None else width
    if not file.isatty():
        for number, table in enumerate(tables):
            if number:
                file.write("\n")
            for _, line in lines(table, width):
                file.write(line + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False)
    styles = {"title": "bold", "heading": "underline", "row": "", "note": "dim"}
    for number, table in enumerate(tables):
        if number:
            console.print()
        for kind, line in lines(table, width):
            # the lines already have their final width: Rich only colours them
            console.print(Text(line, style=styles[kind]), soft_wrap=True)
