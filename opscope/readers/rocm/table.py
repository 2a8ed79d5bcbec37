"""Read a CSV table of AMD's profilers as columns, whatever comes before it and however its numbers look.

Columns have their normal names (``kinds.normal``), because versions write ``Kernel_Name``, ``KernelName``,
``gpu-id`` and ``GPU_ID``. All values are read as texts: a column's type differs between versions (an agent
is ``1`` or ``Agent 1``), and a damaged number must not change the type of its column.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from opscope.core import progress
from opscope.readers.errors import BadInput
from opscope.readers.heads import PACKED
from opscope.readers.kineto.json_events import whole_file
from opscope.readers.rows import csv_rows

from .kinds import Header, header_of, normal

#: Bytes of a table, unpacked.
LARGEST: Final = 8 << 30
_HEAD: Final = 1 << 20
#: Digits in groups of three: 1,048,576, 1 048 576 or 1'048'576.
_GROUPS: Final = r"^[+-]?[0-9]{1,3}(?:[,' \u00a0\u202f][0-9]{3})+(?:\.[0-9]*)?$"
_NOT_DIGITS: Final = r"[,' \u00a0\u202f]"


class Table:
    """The rows of a CSV file. ``names``: for each normalised name, the first column's name as written;
    ``uneven``: how many lines were left out."""

    def __init__(self, path: Path) -> None:
        data = _source(path)
        head = data[:_HEAD] if isinstance(data, bytes) else _head(path)
        header = header_of(head)
        if header is None:
            raise BadInput(path, "not a table of rocprof, rocprofv3 or rocprofiler-compute")
        self.path = path
        self.header = header
        self.rows, self.uneven = _read(path, data, header)
        self.names: dict[str, str] = {}
        for name in self.rows.columns:
            self.names.setdefault(normal(name), name)

    def __len__(self) -> int:
        return len(self.rows)

    def has(self, *names: str) -> bool:
        """Whether the table has all these columns (normal names)."""
        return all(name in self.names for name in names)

    def text(self, *names: str) -> pl.Series:
        """Return the first of these columns that the table has, as stripped texts; null where empty."""
        for name in names:
            if name in self.names:
                column: pl.Series = self.rows[self.names[name]].str.strip_chars(" \t\r")
                if column.is_in(["", "None", "N/A"]).any():
                    column = column.replace(["", "None", "N/A"], [None, None, None])
                return column.alias(name)
        absent: pl.Series = pl.Series(names[0], [None], pl.String).new_from_index(0, len(self.rows))
        return absent

    def whole(self, *names: str) -> pl.Series:
        """Return the first of these columns as integers; null if a value is not a whole number."""
        return whole(self.text(*names))

    def time(self, *names: str) -> pl.Series:
        """Return the first of these columns as times (ns); null where ``is_rounded``."""
        times: pl.Series = self.whole(*names).set(self.is_rounded(*names), None)
        return times

    def is_rounded(self, *names: str) -> pl.Series:
        """Return where a column of times has fewer digits than microseconds need: rocprofiler-compute
        wrote 8.1097E+14 on an MI300X, which is a time rounded to ten seconds."""
        parts = self.text(*names).str.extract_groups(r"^[0-9]+\.?([0-9]*)[eE]\+?([0-9]{1,2})$")
        digits, exponent = (parts.struct.field(number) for number in ("1", "2"))
        far = exponent.cast(pl.Int64) - digits.str.len_chars().cast(pl.Int64) > 3
        rounded: pl.Series = far.fill_null(False)
        return rounded

    def number(self, *names: str) -> pl.Series:
        """Return the first of these columns as numbers."""
        text = self.text(*names)
        floats: pl.Series = text.cast(pl.Float64, strict=False)
        if floats.null_count() > text.null_count():
            floats = _plain(text).cast(pl.Float64, strict=False)
        return floats

    def agent(self, *names: str) -> pl.Series:
        """Return the number in a column of agents: ``1``, ``Agent 1``, ``GPU 0``."""
        text = self.text(*names)
        integers: pl.Series = text.cast(pl.Int64, strict=False)
        if integers.null_count() > text.null_count():
            integers = text.str.extract(r"([0-9]{1,18})\s*\)?$").cast(pl.Int64, strict=False)
        return integers


def whole(text: pl.Series) -> pl.Series:
    """Return texts as integers: plain, with separators, ``5.000000``; null for all others."""
    integers: pl.Series = text.cast(pl.Int64, strict=False)
    if integers.null_count() > text.null_count():
        plain = _plain(text)
        exact = plain.str.extract(r"^([+-]?[0-9]{1,19})(?:\.0*)?$").cast(pl.Int64, strict=False)
        floats = plain.cast(pl.Float64, strict=False)
        rounded = floats.is_finite() & (floats.abs() < 2.0**53) & (floats == floats.round(0))
        rest = floats.set((~rounded).fill_null(True), None).cast(pl.Int64, strict=False)
        integers = exact.zip_with(exact.is_not_null(), rest)
    return integers


def _plain(text: pl.Series) -> pl.Series:
    stripped = text.str.strip_chars(" \"'")
    grouped = stripped.str.contains(_GROUPS)
    bare: pl.Series = stripped.str.replace_all(_NOT_DIGITS, "").zip_with(
        grouped.fill_null(False), stripped
    )
    return bare


def _source(path: Path) -> bytes | None:
    """Return the unpacked bytes of a packed file; None for a plain one, which is read in place."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if path.stat().st_size > LARGEST:
            raise BadInput(path, f"over {LARGEST >> 30} GiB")
    except OSError as error:
        raise BadInput(path, error.strerror or str(error)) from error
    if not magic.startswith(PACKED):
        return None
    message = f"over {LARGEST >> 32} GiB when unpacked: unpack it first"
    return whole_file(path, LARGEST >> 2, message)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)


def _read(path: Path, data: bytes | None, header: Header) -> tuple[pl.DataFrame, int]:
    try:
        source = path if data is None else data
        frame, uneven = csv_rows(source, header.separator, header.line, "utf8-lossy")
    except (pl.exceptions.PolarsError, ValueError, OSError) as error:
        raise BadInput(path, f"not CSV: {str(error).splitlines()[0][:120]}") from error
    progress.read_whole(path)
    blank = frame.select(pl.all_horizontal(pl.all().is_null()).alias("blank")).to_series()
    # rocprofv2 writes a blank line after the header
    return frame.filter(~blank) if blank.any() else frame, uneven
