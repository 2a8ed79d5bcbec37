"""Reports as files and as JSON: in nanoseconds and bytes; an unknown value is null."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opscope.core.question.registry import reports
from opscope.core.question.suggest import unknown
from opscope.core.tables.columns import to_write

if TYPE_CHECKING:
    import polars as pl

FORMATS: Final = ("csv", "json", "parquet")


class UnknownFormat(ValueError):
    """The format is not one that opscope writes; the message lists the known formats."""


def resolve(names: Iterable[str]) -> list[str]:
    """Return the named formats as spelled in ``FORMATS``, in its order. Raises UnknownFormat."""
    wanted = {name.strip().lower() for name in names}
    for name in sorted(wanted - set(FORMATS)):
        raise UnknownFormat(unknown("format", name, FORMATS))
    return [name for name in FORMATS if name in wanted]


def schema(command: str) -> dict[str, str]:
    """Return the first key of a command's JSON object: the command's name and the version of its format.

    The version changes when a key is removed or changes its meaning, not when keys are added.
    """
    return {"schema": f"opscope.{command}/{_VERSIONS[command]}"}


#: The version of each command's JSON object; docs/json.md describes the objects.
_VERSIONS: Final = {"report": 1, "advise": 1, "diff": 1, "doctor": 1}


def as_json(command: str, frames: Mapping[str, pl.DataFrame], **more: Any) -> str:
    """Return the reports as one JSON object: schema, summary, the others in the order given, ``more``."""
    names = sorted(frames, key=lambda name: name != "summary")
    return _dump(
        {**schema(command), **{name: _value(name, frames[name]) for name in names}, **more}
    )


#: The size limit of a small JSON object in bytes, and the most rows of each report in it.
SMALL: Final = 100_000
ROWS: Final = 20


def small_json(
    command: str, frames: Mapping[str, pl.DataFrame], most: int | None = None, **more: Any
) -> str:
    """Return ``as_json`` in at most ``SMALL`` bytes: with the first rows of each report, and the names of
    reports that were cut.

    ``cut`` has the full number of rows of each report that was cut. ``most``: most rows of a report.
    """
    return fitting(lambda rows: _cut_json(command, frames, rows, more), most)


def fitting(text: Callable[[int], str], most: int | None = None) -> str:
    """Return ``text`` with as many rows of each report as fit into ``SMALL`` bytes, at most ``most``."""
    rows = ROWS if most is None else most
    while len((written := text(rows)).encode()) > SMALL and rows:
        rows //= 2
    return written


def _cut_json(
    command: str, frames: Mapping[str, pl.DataFrame], rows: int, more: Mapping[str, Any]
) -> str:
    cut = {name: len(frame) for name, frame in frames.items() if len(frame) > rows}
    short = {
        name: frame if _is_single(name) else frame.head(rows) for name, frame in frames.items()
    }
    return as_json(command, short, **more, cut=cut)


def rows_as_json(frame: pl.DataFrame) -> str:
    """Return one frame as a JSON list of objects."""
    return _dump(_value("", frame))


def as_csv(frame: pl.DataFrame) -> str:
    """Return one frame as CSV; a null field is empty."""
    return flat(frame).write_csv()


def formulas(frame: pl.DataFrame) -> int:
    """Count the texts of the frame that a spreadsheet would run as formulas when it opens the CSV."""
    import polars as pl

    texts = frame.select(pl.col(pl.String, pl.Categorical).cast(pl.String))
    if not texts.width:
        return 0
    counts = texts.select(pl.all().str.contains(r"^\s*[=+@-]").sum())
    return int(counts.sum_horizontal().item())


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with lists and structs as JSON text, since a CSV field is a scalar."""
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    if not nested:
        return frame
    import polars as pl

    # a loop is fast enough: a report has few rows (one per distinct op or kernel), and Polars writes no
    # nested JSON
    return frame.with_columns(
        pl.Series(name, [None if v is None else _dump(_clean(v)) for v in frame[name]], pl.String)
        for name in nested
    )


def write(
    frames: Mapping[str, pl.DataFrame], formats: Iterable[str], folder: Path, base: str
) -> list[Path]:
    """Write a file ``base_report.format`` for each report and format; on an error while writing, none.

    Returns the paths. Raises UnknownFormat, and OSError if the folder cannot be written.
    """
    wanted = resolve(formats)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{base}-", dir=folder) as scratch_folder:
        done: list[Path] = []
        for name, frame in frames.items():
            for kind in wanted:
                path = Path(scratch_folder, f"{base}_{name}.{kind}")
                if kind == "parquet":
                    frame.write_parquet(to_write(path))
                elif kind == "csv":
                    path.write_text(as_csv(frame), encoding="utf-8")
                else:
                    path.write_text(_dump(_value(name, frame)) + "\n", encoding="utf-8")
                done.append(path)
        return [_move(path, folder / path.name) for path in done]


def _move(path: Path, to: Path) -> Path:
    os.replace(path, to)
    return to


def _value(name: str, frame: pl.DataFrame) -> Any:
    rows = [_clean(row) for row in frame.to_dicts()]
    return (rows[0] if rows else None) if _is_single(name) else rows


def _is_single(name: str) -> bool:
    """Return whether the report has a single row, which JSON shows as an object."""
    report = reports().get(name)
    return report is not None and report.single


def _clean(value: Any) -> Any:
    """Return ``value`` with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(_clean(value.to_list())) if hasattr(value, "to_list") else value


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
