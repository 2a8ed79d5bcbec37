"""Reports as files and as JSON: in nanoseconds and bytes; an unknown value is null."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opscope.core.question.registry import reports
from opscope.core.question.suggest import unknown

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


def as_json(frames: Mapping[str, pl.DataFrame]) -> str:
    """Return the reports as one JSON object with one key per report: the summary, then the order given."""
    names = sorted(frames, key=lambda name: name != "summary")
    return _dump({name: _value(name, frames[name]) for name in names})


def rows_as_json(frame: pl.DataFrame) -> str:
    """Return one frame as a JSON list of objects."""
    return _dump(_value("", frame))


def as_csv(frame: pl.DataFrame) -> str:
    """Return one frame as CSV; a null field is empty."""
    return flat(frame).write_csv()


def formulas(frame: pl.DataFrame) -> int:
    """Count the texts of the frame that a spreadsheet runs as formulas when it opens them as CSV."""
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
                    frame.write_parquet(path)
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
    report = reports().get(name)
    return (rows[0] if rows else None) if report is not None and report.single else rows


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
