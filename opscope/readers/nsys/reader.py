"""Read Nsight Systems, 2020 to 2026: SQLite, Parquet and Arrow exports, and reports by ``nsys export``.

Times are ns from the session's start, as in the export. A process is a small number, in order of pid; a
thread is its operating-system id. Tables and columns that a version does not write are absent, never zero.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from opscope.core import progress
from opscope.core.tables.amended import amended
from opscope.core.tables.columns import pairs
from opscope.core.tables.impossible import DEVICE, without_timeless
from opscope.core.tables.pool import Pool
from opscope.core.tables.ranks import with_facts, with_ranks
from opscope.core.tables.trace import IDLE_GPUS, Trace
from opscope.readers.errors import BadInput
from opscope.readers.open_ranges import CUT_OFF, open_at_end
from opscope.readers.sound import sound, sound_trace
from opscope.readers.sqlite import MAGIC, Database, Kind

from . import cuda, samples
from . import target as nsys_target
from .nvtx import Ranges, ranges_of, read_events
from .source import Folder, Source, Versioned, base_name
from .strings import TID_BITS, Codes, Strings, Threads

_TABLE: Final = "SCHED_EVENTS"
RUNNING: Final = "running"
OFF: Final = "off the CPU"


def read_states(source: Source, threads: Threads) -> pl.DataFrame | None:
    """Return the ``thread_states`` table: a row from each event of a thread to its next event.

    The state is ``running`` after the thread was put on a CPU, and ``off the CPU``, with the reason if
    the export has it, after it was taken off. The states before a thread's first event and after its last
    are unknown. Only processes known so far are read. Returns None if the export has no such table.
    """
    if not source.has(_TABLE, "start", "isSchedIn", "globalTid"):
        return None
    states = _labels(source, "ENUM_SAMPLING_THREAD_STATE", ("Unknown", "Running"))
    blocks = _labels(source, "ENUM_SCHEDULING_THREAD_BLOCK", ("Unknown", "NonBlocked"))
    wanted: dict[str, Kind] = dict.fromkeys(
        ("start", "isSchedIn", "globalTid", "threadState", "threadBlock"), "int"
    )
    process_keys = pl.Series(threads.processes.keys, dtype=pl.Int64)

    def convert(frame: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
        rows = frame.filter((pl.col("globalTid") // (1 << TID_BITS)).is_in(process_keys.implode()))
        reasons = [
            pl.col(name).replace_strict(labels, default=None, return_dtype=pl.String)
            for name, labels in (("threadBlock", blocks), ("threadState", states))
            if name in rows.columns
        ]
        why = pl.coalesce(*reasons, pl.lit(None, pl.String)).str.to_lowercase()
        off = pl.when(why.is_null()).then(pl.lit(OFF)).otherwise(pl.format(OFF + ": {}", why))
        return rows.select(
            *threads.split(rows["globalTid"]),
            "start",
            pl.when(pl.col("isSchedIn") > 0)
            .then(pl.lit(RUNNING))
            .otherwise(off)
            .cast(pl.Categorical)
            .alias("state"),
        )

    found = pl.concat(source.scan(_TABLE, wanted, convert)).sort("process", "thread", "start")
    thread = ["process", "thread"]
    return found.with_columns(pl.col("start").shift(-1).over(thread).alias("end")).filter(
        pl.col("end") > pl.col("start")
    )


def _labels(source: Source, table: str, nothing: tuple[str, ...]) -> dict[int, str]:
    """The labels of an enumeration by number, without the meaningless labels in ``nothing``."""
    frame = source.rows(table, {"id": "int", "label": "text"})
    rows = frame.drop_nulls().rows() if {"id", "label"} <= set(frame.columns) else []
    return {number: label for number, label in rows if label not in nothing}


_REPORTS: Final = (".nsys-rep", ".qdrep", ".qdstrm")
#: A database with StringIds and any of these tables is an Nsight Systems export.
_KNOWN: Final = (
    "NVTX_EVENTS",
    "OSRT_API",
    "PROCESSES",
    "ThreadNames",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_KERNEL",
)
#: The columns without which a table is useless.
_NEEDED: Final = {
    "NVTX_EVENTS": ("start", "end", "eventType"),
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "deviceId"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "correlationId"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end", "deviceId"),
}
#: Columns that only a table of ranges, or of kernels, has.
_OWN: Final = {
    "NVTX_EVENTS": ("eventType", "start", "end", "textId", "domainId"),
    "CUPTI_ACTIVITY_KIND_KERNEL": ("gridX", "blockX", "start", "end"),
}


def recognise(path: str | os.PathLike[str]) -> bool:
    """Whether the file or folder is an Nsight Systems report or export. Never raises."""
    path = Path(path)
    try:
        if path.is_dir():
            names = {base_name(file.name.partition(".")[0]) for file in path.iterdir()}
            return "StringIds" in names and any(name in names for name in _KNOWN)
        if path.suffix in _REPORTS:
            return True
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return False
        tables = set(map(base_name, Database(path).tables))
    except (OSError, BadInput):
        return False
    return "StringIds" in tables and any(name in tables for name in _KNOWN)


def read(path: str | os.PathLike[str], *, gpu: str | None = None, lean: bool = False) -> Trace:
    """Return the trace in an Nsight Systems export or report.

    ``gpu`` names devices that the export does not name. ``lean`` leaves out what totals do not need: the
    kernels' launch geometry, registers and memory, and the ranges' payloads and ids. Raises BadInput if the
    file is not an export or report or is damaged, or if it is a report and ``nsys`` is not on PATH.
    """
    path = Path(path)
    if not path.exists():
        raise BadInput(path, "no such file")
    if path.is_dir():
        return _read(Folder(path), gpu, lean)
    if path.suffix in _REPORTS and not _is_sqlite(path):
        return _read_report(path, gpu, lean)
    with Database(path) as database:
        return _read(database, gpu, lean)


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _read_report(path: Path, gpu: str | None, lean: bool) -> Trace:
    """Export the report to SQLite in a temporary folder, read that, and delete the folder."""
    tool = shutil.which("nsys")
    if tool is None:
        raise BadInput(
            path,
            "opscope reads an Nsight Systems report through `nsys`, which is not on PATH; on a machine that "
            f"has it, run: nsys export --type sqlite {path.name}",
        )
    with tempfile.TemporaryDirectory(prefix="opscope-nsys-") as folder:
        target = Path(folder) / "report.sqlite"
        with progress.stage("exporting the report by nsys"):
            done = subprocess.run(
                [tool, "export", "--type", "sqlite", "--output", str(target), str(path)],
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                check=False,
            )
        if done.returncode or not target.exists():
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise BadInput(
                path, f"nsys export failed: {lines[-1][:300] if lines else 'no message'}"
            )
        with progress.stage("reading what nsys exported"), Database(target) as database:
            trace = _read(database, gpu, lean)
    trace.origin["paths"] = [str(path)]
    return trace


def _read(source: Source, gpu: str | None, lean: bool) -> Trace:
    source = Versioned(source)
    if "StringIds" not in source.tables or not any(name in source.tables for name in _KNOWN):
        raise BadInput(source.path, "not an Nsight Systems export (it lacks the tables of one)")
    strings, threads = Strings(source), Threads()
    meta = nsys_target.read_meta(source)
    notes = nsys_target.read_notes(source)
    notes[:0] = _unknown(source)
    named: Future[Ranges] | None = None
    with Pool(1) as beside:
        if source.has("NVTX_EVENTS", "start", "end", "eventType"):
            events = read_events(source, strings, threads)
            # one core assembles the ranges while the others continue to read
            named = beside.submit(ranges_of, events, strings, threads.processes)
        tables = _tables(source, strings, threads, lean)
    graphs = cuda.read_graph_launches(source, threads)
    if graphs is not None:
        kernels = tables["kernels"]
        joined = [graphs] if kernels is None else [kernels, graphs]
        tables["kernels"] = pl.concat(joined, how="diagonal_relaxed")
        message = (
            "CUDA graph launches traced as a whole: their device time is counted, their kernels are not "
            "known (capture with --cuda-graph-trace=node)"
        )
        notes.append(("warning", message, graphs.height))
    if named is not None:
        tables["ranges"] = named.result().frame
        notes += named.result().notes
    if graphs is None and tables["kernels"] is not None and tables["memops"] is None:
        # an export omits tables without rows, and copies are traced with kernels
        tables["memops"] = pl.DataFrame()
    present = {name: frame for name, frame in tables.items() if frame is not None}
    recorded = {name for name in DEVICE if len(present.get(name, ()))}
    notes += _mend(present, nsys_target.read_duration(source), lean)
    states = read_states(source, threads)
    if states is not None:
        present["thread_states"] = states
    processes = threads.processes
    _renumber(present, processes)
    if "calls" in present and "kernels" not in present:
        notes.append(("warning", "CUDA calls were recorded, but no kernels", 1))
    present["processes"] = nsys_target.read_processes(source, strings, processes)
    present["threads"] = nsys_target.read_threads(source, strings, threads)
    present["clocks"] = nsys_target.read_clock(source)
    devices = _devices(present)
    present["devices"], unnamed = nsys_target.read_devices(source, processes, devices, gpu)
    if unnamed and gpu is None:
        message = "devices that the trace does not name; give their name with --gpu"
        notes.append(("warning", message, unnamed))
    notes += source.faults()
    present["notes"] = pl.DataFrame(
        notes, schema={"severity": pl.String, "what": pl.String, "how_many": pl.Int64}, orient="row"
    )
    origin = nsys_target.origin_of(source, meta)
    if idle := nsys_target.idle_gpus(source, present["devices"]):
        origin[IDLE_GPUS] = idle
    return with_ranks(with_facts(without_timeless(sound_trace(present, origin), recorded)))


def _unknown(source: Versioned) -> list[tuple[str, str, int]]:
    """Notes on tables of other versions: which tables are read as if they were of the known version, and
    which cannot be read."""
    notes = [
        ("info", f"the table {name} was read as {base}", 1) for base, name in source.renamed.items()
    ]
    for base, columns in _NEEDED.items():
        own = set(_OWN.get(base, ()))
        alike = [
            name
            for name, held in source.tables.items()
            if name != base and (name.startswith(f"{base}_") or (own and own <= set(held)))
        ]
        name = source.renamed.get(base)
        if source.has(base, *columns) or not (alike or name):
            continue
        what = f"the export has no table {base} that can be read; {name or alike[0]} looks like it"
        notes.append(("warning", f"{what}: opscope does not know this version", 1))
    return notes


def _tables(
    source: Source, strings: Strings, threads: Threads, lean: bool
) -> dict[str, pl.DataFrame | None]:
    """The large tables except the ranges; None for tables that the export lacks."""
    return {
        "kernels": cuda.read_kernels(source, strings, threads, lean),
        "calls": cuda.read_calls(source, strings, threads),
        "memops": cuda.read_memops(source, threads),
        "syncs": cuda.read_syncs(source, threads),
        "graph_nodes": cuda.read_graph_nodes(source, threads),
        "allocations": samples.read_allocations(source, threads),
        "samples": samples.read_samples(source, strings, threads),
    }


def _mend(
    tables: dict[str, pl.DataFrame], duration: int | None, lean: bool
) -> list[tuple[str, str, int]]:
    """Cut ranges that were open when the capture ended, and drop records without a time.

    ``duration`` is the end of the capture (ns) if the export has it. Adds ``id``, the row number, to ranges
    unless ``lean``. Returns notes on what was done.
    """
    notes = sound(tables, opened=True)
    if "ranges" in tables:
        opened = open_at_end(tables, duration)
        if opened:
            notes.append(("info", CUT_OFF, opened))
        ranges = {"ranges": tables["ranges"]}
        notes += sound(ranges)
        frame = amended(ranges["ranges"])
        if lean:  # an id is the row number, and steps have theirs from the payload already
            frame = frame.drop("payload", strict=False)
        else:
            frame = frame.with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
        tables["ranges"] = frame
    return notes


def _renumber(tables: dict[str, pl.DataFrame], processes: Codes) -> None:
    """Renumber processes in order of pid; before, each has a code in order of appearance."""
    order = np.argsort(np.argsort(np.array(processes.keys, dtype=np.int64)))
    if (order == np.arange(len(order))).all():
        return
    numbers = pl.Series("process", order, dtype=pl.Int32)
    for name, frame in tables.items():
        if "process" in frame.columns:
            tables[name] = frame.with_columns(numbers.gather(frame["process"]))


def _devices(tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """The distinct (process, device) pairs that executed something."""
    devices: set[tuple[int, int]] = set()
    for name in ("kernels", "memops"):
        if name in tables and "device" in tables[name].columns:
            both = tables[name].select("process", "device")
            if both["process"].null_count() or both["device"].null_count():
                both = both.drop_nulls()
            # through a table of pairs: ``unique`` takes ten times as long
            process_codes, other, _ = pairs(both["process"].to_numpy(), both["device"].to_numpy())
            devices |= set(zip(process_codes.tolist(), other.tolist(), strict=True))
    schema = {"process": pl.Int32, "device": pl.Int32}
    return pl.DataFrame(sorted(devices), schema=schema, orient="row")
