"""A partial as a file: one Parquet table with a row per table of statistics, each packed as an Arrow stream.

All tables are in one file because the footers of separate files took more room than the numbers. The first
row, ``about``, says which file the partial was made from and by which analysis; the last, ``digest``, is the
digest of all rows before it.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.tables.columns import to_read, to_write
from opscope.profile.profile import ANALYSIS
from opscope.readers.errors import BadInput
from opscope.version import __version__

from .sound import check

#: The version of the layout; a reader refuses every other version.
LAYOUT: Final = 2
_ABOUT, _DIGEST = "about", "digest"
_MAGIC: Final = "opscope partial"
_SCHEMA: Final = {"name": pl.String, "rows": pl.Int64, "data": pl.Binary}
_DAMAGE: Final = (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


class OtherAnalysis(BadInput):
    """The partial was made by another version, whose numbers may mean other things; it is not merged."""


@dataclass(frozen=True, slots=True)
class Partial:
    """The statistics of one file: ``about`` (JSON: its source, and what it recorded), and the tables by
    name."""

    name: str
    about: dict[str, Any]
    tables: dict[str, pl.DataFrame]


def write(path: Path, about: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> None:
    """Write a partial as the local file ``path``."""
    data = {name: _packed(frame) for name, frame in tables.items()}
    head = {
        "format": _MAGIC,
        "layout": LAYOUT,
        "analysis": ANALYSIS,
        "opscope": __version__,
        # the digest covers the tables only: otherwise a copy of a file under another name would count twice
        "content": hashlib.sha256(b"".join(data.values())).hexdigest(),
        **about,
    }
    rows = [(_ABOUT, 1, json.dumps(head).encode())]
    rows += [(name, len(frame), data[name]) for name, frame in tables.items()]
    rows.append((_DIGEST, 1, _digest(rows)))
    pl.DataFrame(rows, schema=_SCHEMA, orient="row").write_parquet(
        to_write(path), compression="zstd", compression_level=6, statistics=False
    )


def _digest(rows: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return the digest of the rows: their names, row counts and contents."""
    digest = hashlib.sha256()
    for name, row_count, data in rows:
        digest.update(json.dumps([name, row_count, len(data)]).encode())
        digest.update(data)
    return digest.digest()


def _packed(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    # plain texts: categories of many files would have to be joined one by one
    frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).write_ipc_stream(buffer)
    return buffer.getvalue()


def read(path: Path, shown: str) -> Partial:
    """Return the partial in the local file ``path``, shown as ``shown`` in messages.

    Raises BadInput if it is damaged, not a partial, or of another analysis.
    """
    try:
        rows = pl.read_parquet(to_read(path), glob=False)
    except _DAMAGE as error:
        raise BadInput(shown, f"not a partial, or a damaged one: {_line(error)}") from error
    return _unpack(rows, shown)


def read_all(files: Mapping[str, Path], report: Callable[[BadInput], None]) -> Iterator[Partial]:
    """Yield the partials in local files with their names, in order; ``report`` is called with the error of
    each that cannot be read."""
    paths = list(files.values())
    try:
        together = pl.read_parquet(
            [to_read(path) for path in paths], glob=False, include_file_paths="path"
        )
        by = together.partition_by("path", as_dict=True, include_key=False, maintain_order=True)
        rows_of_files = [by.get((str(path),)) for path in paths]
    except (*_DAMAGE, TypeError):  # a file of the batch is bad: read each alone to find which
        rows_of_files = [None] * len(paths)
    for (name, path), rows in zip(files.items(), rows_of_files, strict=True):
        try:
            partial = read(path, name) if rows is None else _unpack(rows, name)
        except BadInput as error:
            report(error)
            continue
        yield partial


def _unpack(rows: pl.DataFrame, shown: str) -> Partial:
    if rows.schema != _SCHEMA or not len(rows):
        raise BadInput(shown, "not a partial")
    names, counts, data = (rows[name].to_list() for name in _SCHEMA)
    try:
        about = json.loads(data[0]) if names[0] == _ABOUT else None
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(shown, f"not a partial, or a damaged one: {_line(error)}") from error
    if not isinstance(about, dict) or about.get("format") != _MAGIC:
        raise BadInput(shown, "not a partial")
    _refuse(about, shown)
    entries = [*zip(names, counts, data, strict=True)]
    if names[-1] != _DIGEST or None in names + counts + data or data[-1] != _digest(entries[:-1]):
        raise BadInput(shown, "damaged: its content is not what was written (its digest differs)")
    tables = {}
    for name, row_count, packed in entries[1:-1]:
        try:
            tables[name] = pl.read_ipc_stream(io.BytesIO(packed))
        except (*_DAMAGE, TypeError) as error:
            raise BadInput(shown, f"damaged: table {name}: {_line(error)}") from error
        if len(tables[name]) != row_count:
            raise BadInput(
                shown, f"damaged: table {name} has {len(tables[name])} of {row_count} rows"
            )
    check(shown, about, tables)
    return Partial(shown, about, tables)


def _refuse(about: Mapping[str, Any], shown: str) -> None:
    """Raise BadInput for a partial that another version made: its numbers may mean other things."""
    if (about.get("layout"), about.get("analysis")) == (LAYOUT, ANALYSIS):
        return
    raise OtherAnalysis(
        shown,
        f"made by opscope {about.get('opscope')} (analysis {about.get('analysis')}, layout"
        f" {about.get('layout')}), and this is opscope {__version__} (analysis {ANALYSIS}, layout {LAYOUT}):"
        " make it again with this version (opscope partial)",
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
