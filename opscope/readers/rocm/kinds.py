"""Recognise the files of AMD's profilers by their beginning, and sort a folder's files into runs.

The format of each version is known from its sources (on GitHub):

* rocprof (v1): ``bin/tblextr.py`` of ROCm/rocprofiler, which makes ``results.csv``, ``.db`` and ``.json``;
  its first version has no more columns than Index, KernelName and four times;
* rocprofv2: ``plugin/file/file.cpp`` (``Dispatch_ID,GPU_ID,...``; ``hip_api_trace_*.csv`` and others) and
  ``plugin/file/file_v1.cpp`` (v1's columns) there; ROCm 5.5 had ``GRD,WGR,LDS,SCR`` (its CHANGELOG.md);
* rocprofv3: ``source/lib/output/generateCSV.cpp`` of ROCm/rocprofiler-sdk; ROCm 6.2 to 6.4 had
  ``Private_Segment_Size`` and ``Group_Segment_Size`` where later ones have ``Scratch_Size`` and
  ``LDS_Block_Size``, and no ``Stream_Id``; ``rocpd convert`` puts ``Guid`` first
  (``source/lib/python/rocpd/source/csv.cpp``);
* rocprofiler-compute (Omniperf): ``pmc_perf.csv``, ``timestamps.csv``, ``sysinfo.csv``, and one CSV a pass.
"""

from __future__ import annotations

import csv
import os
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from opscope.readers.heads import PACKED, SQLITE, is_json

#: Kinds with work that ran, or with calls.
RECORDS: Final = (
    "dispatches", "counters", "api", "roctx", "copies", "operations", "allocations", "tool_json",
    "chrome_json", "rpd_json", "database",
)  # fmt: skip
#: Kinds that only add to other files.
BESIDE: Final = ("agents", "system", "statistics", "names")
#: Kinds that contain nothing for a trace, and what they do contain.
WITHOUT: Final = {
    "empty": "rocprof's JSON of a run in which nothing ran",
    "samples": "samples of the program counter",
    "roofs": "measured roofs of the machine",
}
_HEAD: Final = 65_536
#: The most lines before a table's header, such as a program's output.
_PREAMBLE: Final = 400
#: The most entries of a folder that are examined.
_ENTRIES: Final = 20_000
_SEPARATORS: Final = (",", ";", "\t")
_TIMES: Final = (
    ("starttimestamp", "endtimestamp"),
    ("starttimestamp", "stoptimestamp"),
    ("beginns", "endns"),
)
#: Prefixes and suffixes of rocprofv3's and rocprofv2's file names; the rest names the run.
_ENDS: Final = re.compile(
    r"_?(?:kernel_trace|memory_copy_trace|memory_allocation_trace|scratch_memory_trace|"
    r"(?:hip|hip_runtime|hip_compiler|hsa|hsa_core|hsa_amd|marker|rccl|rocdecode|rocjpeg|ompt)(?:_api)?_trace|"
    r"counter_collection|agent_info|(?:\w+_)?stats|pc_sampling\w*|results)\Z"
)
_BEGINS: Final = re.compile(
    r"(?:hip_api_trace|hsa_api_trace|hcc_ops_trace|async_copy_trace|roctx_trace|pcs_trace|results)_"
)
#: Files of one output of rocprof v1: ``NAME.csv``, ``NAME.stats.csv``, ``NAME.hip_stats.csv`` …
_OF_V1: Final = re.compile(r"\.(?:\w+_)?stats\Z|\.sysinfo\Z")
_PID: Final = re.compile(r"(?:\A|_)([1-9][0-9]{0,9})\Z")


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a CSV table: its ``columns`` by their normal names, the line it is on, the separator."""

    columns: tuple[str, ...]
    line: int
    separator: str
    kind: str


@dataclass(slots=True)
class Run:
    """The files of one run, each with its kind. ``pid``: the process in the files' names, if any."""

    name: str
    files: list[tuple[Path, str]] = field(default_factory=list)

    @property
    def pid(self) -> int | None:
        match = _PID.search(self.name)
        return int(match.group(1)) if match else None


def normal(name: str) -> str:
    """Return a column's name without differences between versions: case, ``_``, ``-`` and spaces."""
    return re.sub(r"[\W_]", "", name.strip().strip('"')).lower()


def kind_of(head: bytes) -> str | None:
    """Return the kind of a file that begins with ``head``; None if it is not from AMD's profilers."""
    if is_json(head):
        return _json_kind(head)
    if not head.strip() or b"\0" in head:
        return None
    if is_empty_v1(head):
        return "empty"
    header = header_of(head)
    return None if header is None else header.kind


def header_of(head: bytes) -> Header | None:
    """Return the header of a table of these tools; None if no header is among the first lines."""
    text = head.decode("utf-8-sig", "replace")
    for number, line in enumerate(text.split("\n", _PREAMBLE)[:_PREAMBLE]):
        for separator in _SEPARATORS:
            if line.count(separator) < 2:
                continue
            try:
                names = next(csv.reader([line.rstrip("\r")], delimiter=separator))
            except (csv.Error, StopIteration):
                continue
            columns = tuple(normal(name) for name in names)
            kind = _table_kind(set(columns))
            if kind is not None:
                return Header(columns, number, separator, kind)
    return None


def _table_kind(names: set[str]) -> str | None:
    timed = any({start, end} <= names for start, end in _TIMES)
    if {"countername", "countervalue", "dispatchid"} <= names:
        return "counters"
    if "kernelname" in names and (names & {"gpuid", "agentid"} or {"index", "beginns"} <= names):
        bare = not timed and not names & {"gridsize", "grd", "workgroupsize", "wgr"}
        return "names" if bare else "dispatches"
    if {"domain", "operation"} <= names and timed:
        return "operations"
    if {"domain", "function"} <= names and timed:
        return "api"
    if {"domain", "roctxid", "timestamp"} <= names:
        return "roctx"
    if {"kind", "direction"} <= names and timed:
        return "copies"
    if {"kind", "operation"} <= names and timed:
        return "allocations"
    if {"nodeid", "agenttype"} <= names:
        return "agents"
    if {"gpuarch", "cupergpu"} <= names or {"gpusoc", "cupergpu"} <= names:
        return "system"
    if {"name", "calls", "totaldurationns"} <= names:
        return "statistics"
    if {"sampletimestamp", "execmask"} <= names:
        return "samples"
    return "roofs" if {"device", "hbmbw", "fp32flops"} <= names else None


_SDK: Final = re.compile(rb'\A\s*\{\s*"rocprofiler-sdk-tool"\s*:\s*\[')
#: rocprof v1: an empty object, then the names of its sections, and kernels with the fields of its CSV
_V1_JSON: Final = re.compile(
    rb'\A\s*\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}\s*,\s*\{\s*"args"\s*:\s*\{\s*"name"\s*:\s*'
    rb'"(?:COPY|GPU[0-9]+|CPU HIP API|CPU HSA API|Markers and Ranges|HCC ops|ROCTX)'
)
#: rocmProfileData's ``rpd2tracing.py``: an empty object, then the names of GPUs.
_RPD_JSON: Final = re.compile(
    rb'\A\s*\[\s*\{\s*\}\s*,\s*\{\s*"name"\s*:\s*"process_name"\s*,\s*"ph"\s*:\s*"M"\s*,\s*"pid"\s*:\s*"?[0-9]+"?\s*,'
    rb'\s*"args"\s*:\s*\{\s*"name"\s*:\s*"GPU[0-9]+"'
)
#: rocprof v1 leaves this file if nothing ran
_V1_EMPTY: Final = re.compile(rb'\A\s*,\s*\{\s*"args"\s*:\s*\{\s*"name"\s*:\s*"(?:COPY|GPU[0-9]+)"')


def _json_kind(head: bytes) -> str | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if _SDK.match(start):
        return "tool_json"
    if _RPD_JSON.match(start):
        return "rpd_json"
    return "chrome_json" if _V1_JSON.match(start) else None


def is_empty_v1(head: bytes) -> bool:
    """Whether it is rocprof v1's JSON of a run in which nothing ran: one name, and no array around it."""
    return bool(_V1_EMPTY.match(head))


# ------------------------------------------------------------------------------ folders


def looks_ours(folder: Path) -> bool:
    """Whether a folder holds output of AMD's profilers and no trace of other tools. Never raises."""
    return any(kind in RECORDS for run in runs_in(folder) for _, kind in run.files)


def runs_in(folder: Path) -> list[Run]:
    """Return the runs whose files lie in ``folder``, sorted by name."""
    runs: dict[str, Run] = {}
    for path, kind in sorted(_known(folder)):
        name = _run_of(path, kind)
        runs.setdefault(name, Run(name)).files.append((path, kind))
    return list(runs.values())


def _run_of(path: Path, kind: str) -> str:
    """Return the name of the run that a file belongs to; all files of rocprofiler-compute's workload are one
    run."""
    stem = path.name
    for suffix in (".gz", ".zst", ".csv", ".json", ".db", ".rpd", ".txt"):
        stem = stem.removesuffix(suffix)
    stem = _OF_V1.sub("", stem)
    if (path.parent / "pmc_perf.csv").is_file():
        return ""
    run = _ENDS.sub("", stem)
    begun = _BEGINS.match(run)
    return run[begun.end() :] if begun and kind != "database" else run


def _known(folder: Path) -> Iterable[tuple[Path, str]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)[:_ENTRIES]
    except OSError:
        return
    for entry in entries:
        if not entry.name.endswith(
            (".csv", ".json", ".db", ".rpd", ".gz", ".zst", ".txt", ".sqlite")
        ):
            continue
        if not entry.is_file():
            continue
        kind = _kind_of_file(Path(entry.path))
        if kind is not None:
            yield Path(entry.path), kind


def _kind_of_file(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    if head.startswith(SQLITE):
        from . import databases  # lazy: it loads Polars

        return "database" if databases.recognise(path) else None
    if head.startswith(PACKED[0]):
        try:
            head = zlib.decompressobj(31).decompress(head, _HEAD)
        except zlib.error:
            return None
    return kind_of(head)
