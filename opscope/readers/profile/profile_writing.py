"""Write opscope's profiles, the folders that ``profile_folder`` reads.

A profile is written under another name and then renamed, so there is never half of one.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import secrets
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core import progress
from opscope.core.schema import TABLES
from opscope.core.tables.columns import hand_back, to_write
from opscope.core.tables.pool import Pool
from opscope.core.tables.trace import Trace
from opscope.version import __version__

from .profile_folder import META, VERSION

#: The names that a table may have.
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
#: Keys of a trace's origin that are never written: the process's environment is private.
_PRIVATE: Final = frozenset({"env", "environ", "environment"})
#: The most rows of extra tables that may wait to be written.
_MOST_WAITING: Final = 125_000
#: Rows of a group in a file of a trace's table. Polars makes a dictionary of a group's numbers if half of
#: them are repeated. Its own choice of 260,000 rows takes a quarter more time (for three million ranges and a
#: million calls) and 7 % more bytes; with 30,000, columns of texts take more. Results come in pieces of one
#: group each: two groups would take a seventh longer to read.
_GROUP: Final = 65_536
#: How long a table takes to write compared with others, which take 20 ms for a trace of 400,000 kernels.
_WEIGHTS: Final = {"ranges": 12, "kernels": 6, "calls": 4}
#: A table whose rows change rank more often than this is written to one file.
_MOST_PARTS: Final = 4096


def write(
    path: str | os.PathLike[str],
    trace: Trace,
    extra: Mapping[str, pl.DataFrame | Iterable[pl.DataFrame]] | None = None,
    meta: Mapping[str, Any] | None = None,
    force: bool = False,
    others: Iterable[str | os.PathLike[str]] = (),
    scratch: str | os.PathLike[str] | None = None,
) -> Path:
    """Write ``trace`` as the folder ``path``, with ``extra`` tables and JSON-able ``meta`` beside it.

    Extra tables are written in their order. They may come in pieces; each is made while the one before is
    written. Row order is kept, so extra tables may refer to rows by number. If ``path`` exists, it is
    replaced if ``force`` is set and it is a profile; otherwise the first free name of ``others`` is used.
    The profile is built in ``scratch``, a folder on the same disk. Returns the path that was written.

    Raises FileExistsError if no name is free, and ValueError for an invalid table name. If anything fails,
    ``path`` is unchanged.
    """
    target, rest = Path(path), iter(others)
    if not others:
        _refuse(target, force)
    for name in extra or ():
        if not _NAME.match(name):
            raise ValueError(f"not a valid table name: {name!r}")
    name = f".{target.name}.{secrets.token_hex(6)}.tmp"
    temporary = target.with_name(name) if scratch is None else Path(scratch, name)
    try:
        temporary.mkdir(parents=True)
        _fill(temporary, trace, extra or {}, meta or {})
        while True:
            try:
                _move_into_place(temporary, target, force)
                return target
            except FileExistsError:
                following = next(rest, None)
                if following is None:
                    raise
                target, force = Path(following), False
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def numbered(path: str | os.PathLike[str], first: int = 2) -> Iterator[Path]:
    """Return ``NAME-2.opscope``, ``NAME-3.opscope`` … for ``NAME.opscope``: alternative profile names."""
    target = Path(path)
    return (target.with_name(f"{target.stem}-{n}{target.suffix}") for n in itertools.count(first))


def _move_into_place(temporary: Path, target: Path, force: bool) -> None:
    """Give the finished profile its name. Raises FileExistsError if the name is taken."""
    _refuse(target, force)
    if target.exists():
        _replace(temporary, target)
        return
    try:
        temporary.rename(target)
    except OSError as error:  # the name was taken after the check
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(f"{target}: already exists") from error
        raise


def _refuse(target: Path, force: bool) -> None:
    if target.is_symlink() or target.exists():
        if not force:
            raise FileExistsError(f"{target}: already exists")
        if not (target / META).is_file():
            raise FileExistsError(f"{target}: exists and is not a profile, so it is not replaced")


def _replace(temporary: Path, target: Path) -> None:
    """Replace an older profile by the new one; a folder cannot be renamed over another."""
    old = target.with_name(f".{target.name}.{secrets.token_hex(6)}.old")
    target.rename(old)
    try:
        temporary.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _fill(
    folder: Path,
    trace: Trace,
    extra: Mapping[str, pl.DataFrame | Iterable[pl.DataFrame]],
    meta: Mapping[str, Any],
) -> None:
    # lazy: reading does not need this module
    from opscope.core.tables.redacted import hide_in_origin

    rank = _ranks(trace)
    tables: dict[str, Any] = {}
    others: dict[str, Any] = {}
    total = sum(_WEIGHTS.get(name, 1) for name in (*trace.present, *extra))
    with progress.stage("writing the profile", total) as stage, _Pen() as pen:
        for name in sorted(trace.present):
            ranks = rank if "process" in TABLES[name] else {}
            tables[name] = _store(pen, folder, name, trace[name], ranks)
            stage.add(_WEIGHTS.get(name, 1))
        for name, parts in extra.items():
            others[name] = _store_extra(pen, folder, f"extra.{name}", parts)
            stage.add(_WEIGHTS.get(name, 1))
    head = {
        "format": "opscope",
        "version": VERSION,
        "id": secrets.token_hex(16),
        "opscope": __version__,
        "origin": hide_in_origin(_public(trace.origin)),
        "tables": tables,
        "extra": others,
        "meta": _public(meta),
    }
    # a file's name may have bytes that UTF-8 lacks; escaped, they would be JSON that no reader accepts
    text = json.dumps(head, indent=1, ensure_ascii=False) + "\n"
    (folder / META).write_bytes(text.encode("utf-8", "replace"))


class _Pen:
    """A thread that writes into the folder, in order, while the next table is made."""

    def __init__(self) -> None:
        self._thread = Pool(1)
        self._jobs: deque[tuple[int, Future[Any]]] = deque()
        self._rows = 0

    def __call__(self, job: Callable[..., Any], *arguments: Any, rows: int = 0) -> None:
        """Schedule ``job(*arguments)``. The job keeps ``rows`` rows in memory; if too many rows wait to be
        written, wait. Raises the exception of an earlier job."""
        self._jobs.append((rows, self._thread.submit(job, *arguments)))
        self._rows += rows
        while self._jobs and (self._rows > _MOST_WAITING or self._jobs[0][1].done()):
            rows_of_job, done = self._jobs.popleft()
            self._rows -= rows_of_job
            done.result()

    def __enter__(self) -> _Pen:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown(cancel_futures=kind is not None)
        if kind is None:
            for _rows, done in self._jobs:
                done.result()


def _ranks(trace: Trace) -> dict[int, int]:
    """Return the rank of each process if there are several ranks; tables are then stored in a file per
    rank."""
    ranks_known = trace["processes"].select("process", "rank").drop_nulls()
    ranks = dict(ranks_known.rows())
    return ranks if len(set(ranks.values())) > 1 else {}


def _store(
    pen: _Pen, folder: Path, name: str, frame: pl.DataFrame, rank: dict[int, int]
) -> dict[str, Any]:
    files = []
    frame = _with_values(frame)
    parts = list(_parts(frame, rank)) if rank and name != "processes" else [(None, frame)]
    for number, (owner, part) in enumerate(parts):
        if owner is None:
            file = f"{name}.parquet"
        else:
            (folder / name).mkdir(exist_ok=True)
            file = f"{name}/{number:04}-rank{owner}.parquet"
        if len(part):
            pen(_write, part, folder / file, _GROUP)
            files.append(file)
    return {"rows": len(frame), "files": files}


def _with_values(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of a trace's table that have values; a column that a file lacks is null. Writing
    three million nulls takes 25 to 45 ms of CPU, and a generated Nsight trace has up to five such columns in
    a table. At least one column stays."""
    valued = [column for column in frame.get_columns() if column.null_count() < len(column)]
    return frame.select(valued) if valued else frame


def _store_extra(
    pen: _Pen, folder: Path, name: str, parts: pl.DataFrame | Iterable[pl.DataFrame]
) -> dict[str, Any]:
    """Store a table whose columns only its files define, so it gets a file even without rows."""
    files: list[str] = []
    rows = 0
    for part in (parts,) if isinstance(parts, pl.DataFrame) else parts:
        if len(files) == 1:
            (folder / name).mkdir()
            pen(os.rename, folder / files[0], folder / f"{name}/0000.parquet")
            files[0] = f"{name}/0000.parquet"
        files.append(f"{name}/{len(files):04}.parquet" if files else f"{name}.parquet")
        pen(_write, part, folder / files[-1], rows=len(part))
        rows += len(part)
    return {"rows": rows, "files": files}


def _write(frame: pl.DataFrame, file: Path, group: int | None = None) -> None:
    # level 1 gives the same size as 3 (ranges, op_totals; calls and kernels 4 % larger), and saves a tenth of
    # the time
    frame.write_parquet(
        to_write(file),
        compression="zstd",
        compression_level=1,
        statistics=True,
        row_group_size=group,
    )
    hand_back()


def _parts(frame: pl.DataFrame, rank: dict[int, int]) -> Iterator[tuple[int | None, pl.DataFrame]]:
    """Split the rows into runs of one rank, in row order."""
    column = frame["process"].replace_strict(rank, default=-1, return_dtype=pl.Int64).fill_null(-1)
    ranks = column.to_numpy()
    edges = np.flatnonzero(ranks[1:] != ranks[:-1]) + 1
    if len(edges) >= _MOST_PARTS or not len(frame) or bool((ranks < 0).any()):
        yield None, frame
        return
    for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(frame)], strict=True):
        yield int(ranks[start]), frame.slice(start, end - start)


def _public(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        str(key): _public(item) if isinstance(item, Mapping) else item
        for key, item in value.items()
        if str(key).lower() not in _PRIVATE
    }
