"""``opscope kernels --style pyprof``: PyProf's listing, with its flags."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from . import common

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


def write(
    profile: Profile,
    chosen: str | None,
    sort: str,
    top: int | None,
    csv: bool,
    json: bool,
    width: int | None,
    empty: str,
) -> None:
    """Print every kernel in PyProf's columns; if there is none, also ``empty`` on stderr.

    Ends the command for an unknown column or a narrow width.
    """
    from opscope.core.pyprof.table import COLUMNS, DEFAULT
    from opscope.reports import files, pyprof

    if csv and width:
        common.fail("--csv and -w cannot be combined: choose one")
    columns = common.split(chosen) if chosen else list(DEFAULT)
    columns = list(COLUMNS) if columns == ["all"] else columns
    for name in (*columns, *([sort] if sort else ())):
        if name not in COLUMNS:
            from opscope.core.question.suggest import unknown

            common.fail(unknown("column", name, COLUMNS))
    twice = [name for name in COLUMNS if columns.count(name) > 1]
    if twice:
        common.fail(f"column {twice[0]!r} is given twice")
    try:
        if width:
            pyprof.widths(columns, width)
    except pyprof.TooNarrow as error:
        common.fail(str(error))
    if not len(profile.trace["kernels"]):
        common.say(empty)
    pieces = _first(_pieces(profile, columns, sort), top)
    if json:
        import polars as pl

        common.emit(files.rows_as_json(pl.concat(pieces)))
        return
    if csv:
        pieces = _check(pieces)
    common.stream(lambda out: pyprof.write(pieces, columns, out, csv=csv, width=width or 0))


def _pieces(profile: Profile, columns: Sequence[str], sort: str) -> Iterator[pl.DataFrame]:
    if not sort:
        yield from profile.pyprof_pieces(columns)
        return
    ordered, _ = common.arrange(profile.pyprof(list(dict.fromkeys((*columns, sort)))), sort, None)
    yield ordered.select(columns)


def _check(pieces: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the pieces, and at the end warn about cells that a spreadsheet would run."""
    from opscope.reports import files

    cells = 0
    for piece in pieces:
        cells += files.formulas(piece.drop("tc", strict=False))  # a dash alone is text
        yield piece
    common.warn_of(cells)


def _first(pieces: Iterator[pl.DataFrame], top: int | None) -> Iterator[pl.DataFrame]:
    """Yield the first ``top`` rows (None or 0: all) of the pieces."""
    if not top:
        yield from pieces
        return
    for piece in pieces:
        yield piece.head(top)
        top -= min(top, len(piece))
        if not top:
            return


def write_dictionaries(profile: Profile) -> None:
    """Print PyProf's intermediate file, a dictionary a kernel."""
    from opscope.core.pyprof.question import pyprof_dictionaries

    def write(out: TextIO) -> None:
        for piece in pyprof_dictionaries(profile):
            out.write(piece)

    common.stream(write)


def standard_input() -> list[str]:
    """Return the replacement for stdin, which PyProf reads if no file is named. Ends on a terminal."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        common.fail("FILE is missing, and nothing is piped into the command")
    return ["-"]
