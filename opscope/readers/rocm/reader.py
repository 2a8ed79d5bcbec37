"""Read a file or a folder of AMD's profilers: the files of one run together, several runs side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.tables.trace import Trace, concat
from opscope.readers.errors import BadInput
from opscope.readers.heads import SQLITE
from opscope.readers.sqlite import Database

from . import (
    chrome_json,
    csv_runs,
    databases,
    rocpd,
    rocprof_db,
    rpd,
    rpd_json,
    statistics,
    tool_json,
)
from .kinds import BESIDE, RECORDS, WITHOUT, Run, kind_of, runs_in
from .parts import Parts, trace_of

#: Forms in which the same run may have been written, the most complete first: only one form is read.
_SAME_RUN: Final = (
    ("database",),
    ("tool_json",),
    ("dispatches", "counters", "api", "roctx", "copies", "operations", "allocations"),
    ("chrome_json",),
    ("rpd_json",),
)
_OTHER_FORMATS: Final = "files with the same run in another format, not read"
_OTHERS: Final = "traces of other tools in this folder, not read: open them by themselves"
_DIFFERING: Final = (
    "kernels whose number or time differs from the tool's own statistics beside this file"
)
_HEAD: Final = 65_536


def read(path: Path) -> Trace:
    """Return the trace of a file, or of the files in a folder. Raises BadInput."""
    path = Path(path)
    if not path.exists():
        raise BadInput(path, "no such file")
    try:
        if path.is_dir():
            return _folder(path)
        return _run(path, Run("", [(path, _kind(path))]))
    except pl.exceptions.PolarsError as error:
        raise BadInput(path, f"damaged: {str(error).splitlines()[0][:160]}") from error


def _kind(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise BadInput(path, error.strerror or str(error)) from error
    if head.startswith(SQLITE):
        return "database"
    from opscope.readers.formats import _head  # lazy: it imports this package's users

    kind = kind_of(
        _head(path) if head[:2] == b"\x1f\x8b" or head[:4] == b"\x28\xb5\x2f\xfd" else head
    )
    if kind is None:
        raise BadInput(
            path, "not a file of rocprof, rocprofv3, rocmProfileData or rocprofiler-compute"
        )
    return kind


def _folder(path: Path) -> Trace:
    runs = runs_in(path)
    complete_runs = [run for run in runs if any(kind in RECORDS for _, kind in run.files)]
    # agents and statistics with other names belong to the only run
    if len(complete_runs) == 1:
        for run in runs:
            if run is not complete_runs[0]:
                complete_runs[0].files += run.files
    if not complete_runs:
        raise BadInput(path, "a folder without records of AMD's profilers")
    traces = [_run(path, run) for run in complete_runs]
    joined = traces[0]
    if len(traces) > 1:
        joined = concat(traces)
        tool = traces[0].origin["tool"]
        joined.origin |= {"format": "rocm", "tool": tool, "paths": [os.fspath(path)]}
    others = _others(path, {file for run in runs for file, _ in run.files})
    if others:
        joined.note("warning", f"{_OTHERS}: {', '.join(others[:3])}", len(others))
    return joined


def _others(folder: Path, ours: set[Path]) -> list[str]:
    """Return the names of other tools' traces in the folder. Kineto's reader takes all JSON, so it is asked
    last."""
    from opscope.readers.formats import find  # lazy: it imports this package's users

    names = []
    for path in sorted(folder.iterdir()):
        if path in ours or path.is_dir() or path.suffix in (".csv", ".txt", ".md"):
            continue
        try:
            reader = find(path)
            other = reader is not None and reader.name != "rocm"
            if other and reader is not None and reader.name == "kineto":
                with path.open("rb") as file:
                    other = b'"traceEvents"' in file.read(_HEAD)
        except (BadInput, OSError):
            continue
        if other:
            names.append(path.name)
    return names


def _run(path: Path, run: Run) -> Trace:
    """Return the trace of one run's files. Raises BadInput."""
    parts = Parts(path, "rocprofv3", run.pid)
    chosen, left = _chosen(run)
    if not chosen:
        return _alone(run, parts)
    for file, kind in chosen:
        _read(file, kind, parts)
    if left:
        parts.note("info", _OTHER_FORMATS, len(left))
    for file, kind in run.files:
        if kind in ("agents", "system"):
            csv_runs.read(file, kind, parts)
    _once(parts)
    different = sum(
        statistics.differing(parts, file) for file, kind in run.files if kind == "statistics"
    )
    if different:
        parts.note("warning", _DIFFERING, different)
    return trace_of(parts)


def _chosen(run: Run) -> tuple[list[tuple[Path, str]], list[Path]]:
    """Return the files to read, and those with the same data in another format."""
    for kinds in _SAME_RUN:
        ours = [(file, kind) for file, kind in run.files if kind in kinds]
        if ours:
            chosen = [file for file, _ in ours]
            left = [file for file, kind in run.files if kind in RECORDS and file not in chosen]
            return _in_order(ours), left
    return [], []


def _in_order(files: list[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """The files; rocprofiler-compute's ``timestamps.csv`` and then ``pmc_perf.csv`` come first.

    Tables of operations come last: they have the kernels of other tables, without their sizes.
    """
    first = {"timestamps.csv": 0, "pmc_perf.csv": 1}
    return sorted(
        files,
        key=lambda file: (file[1] == "operations", first.get(file[0].name, 2), str(file[0])),
    )


def _read(file: Path, kind: str, parts: Parts) -> None:
    if kind == "database":
        with Database(file) as database:
            which = databases.format_of(database)
            if which is None:
                raise databases.unknown(file)
            {"rocpd": rocpd.read, "rpd": rpd.read, "rocprof": rocprof_db.read}[which](
                database, parts
            )
            parts.notes += database.faults()
    elif kind == "tool_json":
        tool_json.read(file, parts)
    elif kind == "chrome_json":
        chrome_json.read(file, parts)
    elif kind == "rpd_json":
        rpd_json.read(file, parts)
    else:
        csv_runs.read(file, kind, parts)


def _alone(run: Run, parts: Parts) -> Trace:
    """Return the trace of files that only add to others. Raises BadInput."""
    file, kind = run.files[0]
    if kind == "statistics":
        statistics.read(file, parts)
        return trace_of(parts)
    if kind in WITHOUT:
        raise BadInput(file, f"{WITHOUT[kind]}, no kernels: open the files of the run beside it")
    assert kind in BESIDE
    contents = {
        "agents": "what the devices are",
        "system": "what the machine is",
        "names": "names of kernels, without both the start and the end of each",
    }
    raise BadInput(
        file,
        f"only {contents[kind]}: open its folder, or the table of kernels that lies beside this file",
    )


def _once(parts: Parts) -> None:
    """Keep each dispatch once: tables of counters repeat the kernels', and passes repeat each other."""
    counted = parts.frames.pop("counted", [])
    tables = parts.frames.get("dispatches", [])
    if parts.tool == "rocprofiler-compute" and len(tables) > 1:
        # each pass ran the same dispatches in a process of its own; the first table's times are shown
        parts.frames["dispatches"] = tables[:1]
        parts.note(
            "info",
            "passes of counters over the same kernels: the times are from the first pass",
            len(tables),
        )
    if parts.tool == "rocprofiler-compute" and "counters" in parts.frames:
        counters = pl.concat([frame.drop("pid", "tid") for frame in parts.frames["counters"]])
        parts.frames["counters"] = [
            counters.unique(["correlation", "name"], keep="first", maintain_order=True)
        ]
        parts.pid = None
    if not counted:
        return
    rows = pl.concat(counted, how="diagonal_relaxed")
    if tables:
        dispatches = pl.concat([frame.select("dispatch") for frame in tables]).drop_nulls().unique()
        rows = rows.join(dispatches, on="dispatch", how="anti", maintain_order="left")
    rows = (
        rows.unique(["pid", "guid", "dispatch"], keep="first", maintain_order=True)
        if "guid" in rows.columns
        else rows
    )
    parts.only_counted = not tables or bool(len(rows))
    if parts.only_counted:
        parts.add("dispatches", rows)
