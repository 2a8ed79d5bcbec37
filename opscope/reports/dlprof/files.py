"""Write DLProf's reports as CSV, JSON and Parquet, all or none."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Final

import polars as pl

from opscope.core.tables.columns import to_write

from .csv_text import csv_pieces
from .sections import Section

#: Rows of a piece of JSON: a million kernels at once take 1.5 GB.
_ROWS: Final = 50_000


def write_section(sections: Sequence[Section], kind: str, path: Path) -> None:
    """Write one report in one format. Raises OSError."""
    if kind == "parquet":
        _as_one(sections).write_parquet(to_write(path), compression="zstd", compression_level=1)
        return
    if kind == "csv":
        with path.open("wb") as file:
            file.writelines(csv_pieces(sections))
        return
    with path.open("w", encoding="utf-8", newline="\n") as text:
        write_json(sections, text)


def _as_one(sections: Sequence[Section]) -> pl.DataFrame:
    """Return the sections as one frame; a report with several sections has a row for each figure."""
    if len(sections) == 1:
        return sections[0].frame
    rows = [
        {"section": section.title, "row": number, "name": name, "value": value}
        for section in sections
        for number, row in enumerate(section.frame.iter_rows())
        for name, value in zip(section.frame.columns, map(_cell, row), strict=True)
    ]
    schema = {"section": pl.String, "row": pl.Int64, "name": pl.String, "value": pl.String}
    return pl.DataFrame(rows, schema=schema)


def _cell(value: object) -> str | None:
    return None if value is None else str(value)


def write_json(sections: Sequence[Section], file: IO[str]) -> None:
    """Write an object with a key for each section, and ``notes`` if there are any."""
    file.write("{")
    for number, section in enumerate(sections):
        file.write((",\n" if number else "\n") + json.dumps(section.title) + ": ")
        if not section.single:
            file.write("[")
        for begin in range(0, len(section.frame), _ROWS):
            rows = section.frame[begin : begin + _ROWS].write_json()
            file.write((",\n" if begin else "") + rows[1:-1])
        if not section.single:
            file.write("]")
    notes = [note for section in sections for note in section.notes]
    if notes:
        file.write(',\n"notes": ' + json.dumps(notes, ensure_ascii=False))
    file.write("\n}\n")


def place(paths: Iterable[Path], folder: Path) -> list[Path]:
    """Move finished files into ``folder``; each replaces a file of the same name atomically."""
    targets = []
    for path in paths:
        target = folder / path.name
        os.replace(path, target)
        targets.append(target)
    return targets


def scratch(folder: Path, base: str) -> tempfile.TemporaryDirectory[str]:
    """Return a folder on the same disk in which files are made before they get their names."""
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=f".{base}-", dir=folder)
