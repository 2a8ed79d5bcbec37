"""PyProf's listing of kernels: CSV, columns of a given width, or words separated by spaces, for awk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    import polars as pl

#: The text that PyProf writes for an unknown value.
UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, its least width in columnated output, and whether it is a number."""

    title: str
    width: int
    number: bool = False


#: PyProf's columns by the names that choose them. Kernel and parameters share the width that is left.
COLUMNS: Final = {
    "idx": Column("Idx", 7, True),
    "seq": Column("SeqId", 7),
    "altseq": Column("AltSeqId", 7),
    "tid": Column("TId", 12, True),
    "layer": Column("Layer", 10),
    "trace": Column("Trace", 25),
    "dir": Column("Direction", 5),
    "sub": Column("Sub", 3, True),
    "mod": Column("Module", 15),
    "op": Column("Op", 15),
    "kernel": Column("Kernel", 0),
    "params": Column("Params", 0),
    "sil": Column("Sil(ns)", 10, True),
    "tc": Column("TC", 2),
    "device": Column("Device", 3, True),
    "stream": Column("Stream", 3, True),
    "grid": Column("Grid", 12),
    "block": Column("Block", 12),
    "flops": Column("FLOPs", 12, True),
    "bytes": Column("Bytes", 12, True),
}
_FLEXIBLE: Final = ("kernel", "params")


class TooNarrow(ValueError):
    """The columns do not fit in the width; the message gives the least width."""


def widths(columns: Sequence[str], width: int) -> dict[str, int]:
    """Return the width of each column so that together they have ``width``; a space follows each.

    Raises TooNarrow.
    """
    width_of_column = {name: COLUMNS[name].width for name in columns}
    least = sum(width_of_column.values())
    if least > width:
        raise TooNarrow(
            f"the columns {', '.join(columns)} need a width of at least {least}, not {width}"
        )
    flexible = [name for name in _FLEXIBLE if name in width_of_column]
    for name in flexible:
        width_of_column[name] = (width - least) // len(flexible)
    return width_of_column


def write(
    pieces: Iterable[pl.DataFrame], columns: Sequence[str], file: TextIO, *, csv: bool = False,
    width: int = 0,
) -> None:  # fmt: skip
    """Write the pieces of ``Profile.pyprof`` with a line of headings before them.

    ``csv``: CSV with every field in quotes. ``width``: aligned columns with this total width, where a call
    stack is shown by its last file. Otherwise the values, which contain no spaces, are separated by a space.
    Raises TooNarrow before anything is written.
    """
    lay = _Columnated(widths(columns, width)) if width else None
    titles = [COLUMNS[name].title for name in columns]
    if lay is not None:
        heading = "".join(
            f"{COLUMNS[name].title:{wide}.{wide}} " for name, wide in lay.wide.items()
        )
    else:
        heading = ",".join(f'"{title}"' for title in titles) if csv else " ".join(titles)
    show = _visible if file.isatty() else str
    file.write(heading + "\n")
    for piece in pieces:
        if lay is not None:
            file.write(show(lay.lines(piece)))
        elif csv:
            text = _texts(piece).write_csv(include_header=False, quote_style="always")
            file.write(show(text))
        else:
            file.write(show(_join(_texts(piece), " ")))


def _visible(text: str) -> str:
    from opscope.core.question.units import visible

    return visible(text, allowed="\n")


def _texts(piece: pl.DataFrame) -> pl.DataFrame:
    """Return all columns as text; an unknown value is a dash."""
    import polars as pl

    return piece.select(pl.all().cast(pl.String).fill_null(UNKNOWN))


def _join(texts: pl.DataFrame, separator: str) -> str:
    import polars as pl

    lines = texts.select(pl.concat_str(pl.all(), separator=separator)).to_series().to_list()
    return "\n".join([*lines, ""])


@dataclass(frozen=True, slots=True)
class _Columnated:
    """Lays out pieces in columns of the widths ``wide``: texts are cut, numbers are not."""

    wide: dict[str, int]

    def lines(self, piece: pl.DataFrame) -> str:
        """Return the lines of a piece."""
        import polars as pl

        if "trace" in piece.columns:
            last = pl.col("trace").str.split(",").list.last().str.split("/").list.last()
            piece = piece.with_columns(last)
        laid = [
            pl.col(name).str.pad_start(wide) if COLUMNS[name].number
            else pl.col(name).str.slice(0, wide).str.pad_end(wide)
            for name, wide in self.wide.items()
        ]  # fmt: skip
        return _join(_texts(piece).select(each + " " for each in laid), "")
