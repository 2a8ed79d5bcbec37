"""DLProf's CSV: titled sections separated by blank lines, names in quotes, averages with one decimal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Final

import numpy as np
import polars as pl

from opscope.core.tables.columns import compact

from .sections import QUOTED, Section

#: Rows of one piece of text: a piece of the widest report takes 0.1 GB.
_ROWS: Final = 100_000
#: opscope's own columns whose figures need more than one decimal.
_EXACT: Final = frozenset(
    {"Attained FLOP/s", "Arithmetic Intensity (FLOP/B)", "Roofline Efficiency %"}
)


def csv_pieces(sections: Iterable[Section]) -> Iterator[bytes]:
    """Yield the text of a report, as UTF-8, in pieces; a null is an empty field."""
    for number, section in enumerate(sections):
        yield (("\n" if number else "") + section.title + "\n").encode()
        if section.single:
            row = section.frame.row(0, named=True)
            yield "".join(f"{name},{_plain(value)}\n" for name, value in row.items()).encode()
            continue
        yield (",".join(section.frame.columns) + "\n").encode()
        for begin in range(0, len(section.frame), _ROWS):
            part = section.frame[begin : begin + _ROWS]
            lines = part.select(
                pl.concat_str([_text(part[name]) for name in part.columns], separator=",")
            )
            # Polars writes the lines: a list of Python strings takes three times as long
            piece = BytesIO()
            lines.write_csv(piece, include_header=False, quote_style="never")
            yield piece.getvalue()
        yield "".join(f"# {note}\n" for note in section.notes).encode()


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.1f}"
    return _field(value) if isinstance(value, str) else str(value)


def _field(text: str) -> str:
    """Return a text that DLProf writes without quotes; it is quoted only if necessary."""
    if any(sign in text for sign in ',"\n\r'):
        return _quote(text)
    return text


def _quote(text: str | None) -> str:
    return '"' + (text or "").replace('"', '""') + '"'


def _text(column: pl.Series) -> pl.Series:
    """Return the fields of a column."""
    dtype = column.dtype
    if dtype in (pl.String, pl.Categorical):
        write = _quote if column.name in QUOTED else lambda text: _field(text or "")
        if dtype == pl.Categorical:  # each distinct text is written once
            codes, texts = compact(column)
            written = pl.Series(column.name, [write(text) for text in texts], pl.String)
            gathered: pl.Series = written.gather(codes.astype(np.uint32))
            return gathered
        if column.name in QUOTED:
            inner = pl.col("text").fill_null("").str.replace_all('"', '""', literal=True)
            quoted = column.to_frame("text").select(pl.format('"{}"', inner))
            return quoted.to_series().alias(column.name)
        return pl.Series(column.name, [write(text) for text in column.to_list()], pl.String)
    if dtype.is_float() and column.name not in _EXACT:
        return _tenths(column)
    plain: pl.Series = column.cast(pl.String).fill_null("")
    return plain


def _tenths(column: pl.Series) -> pl.Series:
    """Return numbers with one decimal, rounded as C does: to the decimal nearest to the binary value."""
    integers = column.cast(pl.Int64, strict=False)
    texts: pl.Series = (integers.cast(pl.String) + ".0").fill_null("")
    # most averages equal a single value; the loop writes only the others
    places = np.flatnonzero((column != integers).fill_null(False).to_numpy())
    if not len(places):
        return texts
    written = [f"{value:.1f}" for value in column.gather(places).to_list()]
    done: pl.Series = texts.scatter(places, written)
    return done
