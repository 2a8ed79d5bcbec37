"""Trace: the tables of one or several processes, which every reader returns and every analysis takes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from opscope.core.schema import TABLES
from opscope.core.tables.columns import known_sum, utf8
from opscope.core.tables.numbers import Numbers
from opscope.core.waits import OF_CALLS, ON_QUEUE

_POLARS: Final[Mapping[str, Any]] = {
    "i64": pl.Int64,
    "i32": pl.Int32,
    "f64": pl.Float64,
    "str": pl.String,
    "bool": pl.Boolean,
    "cat": pl.Categorical,
}
#: Key of a trace's origin: the part of the trace that was selected.
SELECTED: Final = "selected"
#: Key of a trace's origin: ``device`` and ``name`` of GPUs that the program saw and did not use.
IDLE_GPUS: Final = "idle_gpus"
#: Key of a trace's origin: the name that the user of DLProf gave the profile.
PROFILE_NAME: Final = "profile_name"
#: Key of a trace's origin: the configuration of the model that ran, as it was read.
MODEL_CONFIG: Final = "model_config"
#: Key of a trace's origin: the user gave the files as files of several jobs.
UNRELATED: Final = "unrelated"
#: Columns with numbers that are unique within one trace; joining traces shifts them.
_RENUMBERED: Final = {"process": "process", "parent": "process", "clock_domain": "clock_domain"}
_RANGE_IDS: Final = {"ranges": "id", "counters": "range_id"}
#: CUPTI numbers CUDA graphs and their nodes from 1 and writes 0 for work that no CUDA graph launched. Since
#: 2026, Kineto writes that 0 for every kernel, copy and set; if 0 were taken for a node's number, each of
#: these would lose its op.
_ZERO_IS_NONE: Final[Mapping[str, tuple[str, ...]]] = {
    "kernels": ("graph", "graph_node"),
    "memops": ("graph_node",),
    "graph_nodes": ("graph", "node", "original_node"),
}


#: Lock: analyses of one trace may run in several threads.
_noting: Final = threading.Lock()


def table_schema(table: str) -> dict[str, Any]:
    """Return the Polars schema of a trace table. Raises KeyError for an unknown table."""
    return {column: _POLARS[kind] for column, kind in TABLES[table].items()}


def conform(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``frame`` with the table's columns in order; absent columns are null.

    A CUDA graph or node numbered 0 becomes null. Raises ValueError if ``frame`` has other columns.
    """
    schema = table_schema(table)
    extra = set(frame.columns) - set(schema)
    if extra:
        raise ValueError(f"table {table!r} has no column {', '.join(sorted(extra))}")
    if not frame.width:  # Polars would create a new row for the nulls
        return pl.DataFrame(schema=schema)
    if frame.schema != schema:
        frame = frame.select(
            pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype).alias(name)
            for name, dtype in schema.items()
        )
    zero = [name for name in _ZERO_IS_NONE.get(table, ()) if (frame[name] == 0).any()]
    return frame.with_columns(pl.col(zero).replace(0, None)) if zero else frame


def range_ids(ranges: pl.DataFrame) -> pl.Series:
    """Return the ``id`` of each row of ``ranges``: the row's number if a lean reader left the column out."""
    ids = ranges["id"]
    if not ids.null_count():
        return ids
    return pl.select(
        pl.coalesce(ids, pl.int_range(len(ids), dtype=pl.Int64)).alias("id")
    ).to_series()


def next_range_id(ranges: pl.DataFrame) -> int:
    """Return the lowest id that is above all ids of ``ranges``."""
    top: Any = ranges["id"].max()
    following = 0 if top is None else int(top) + 1
    return max(following, len(ranges)) if ranges["id"].null_count() else following


@dataclass(slots=True)
class Trace:
    """All trace tables (``schema.TABLES``), each with all its columns; empty if the source had no rows.

    ``present``: the names of the tables that the source records at all. An empty table in it means that
    nothing happened; a table not in it was not recorded. ``origin``: where the trace comes from (keys:
    format, tool, version, paths). ``apart``: columns that are kept outside the tables, by the names of table
    and column.
    """

    tables: dict[str, pl.DataFrame]
    present: frozenset[str]
    origin: dict[str, Any] = field(default_factory=dict)
    apart: Mapping[tuple[str, str], Numbers] = field(default_factory=dict)

    @classmethod
    def of(
        cls, tables: Mapping[str, pl.DataFrame], origin: Mapping[str, Any] | None = None
    ) -> Trace:
        """Return a trace of the given tables; columns that a reader left out are null.

        Raises ValueError for an unknown table or column.
        """
        unknown = set(tables) - set(TABLES)
        if unknown:
            raise ValueError(f"no such trace table: {', '.join(sorted(unknown))}")
        full = {
            name: conform(name, tables[name])
            if name in tables
            else pl.DataFrame(schema=table_schema(name))
            for name in TABLES
        }
        return cls(full, frozenset(tables), dict(origin or {}))

    def has(self, table: str) -> bool:
        """Return whether the source recorded this table at all."""
        return table in self.present

    @property
    def used_gpu(self) -> bool:
        """Whether the program used a GPU, as far as the trace shows: kernels were captured, the source says
        so, or there are calls of the GPU's runtime, copies or sets without kernels."""
        return (
            self.has("kernels")
            or bool(self.origin.get("gpu"))
            or any(len(self[name]) for name in ("calls", "memops"))
        )

    def queue_waits(self) -> pl.DataFrame:
        """Return the rows of ``syncs`` in which a device's queue waited for an event, a queue or a rank."""
        kind = pl.col("kind").cast(pl.String).str
        return self["syncs"].filter(kind.contains(ON_QUEUE) & ~kind.contains(OF_CALLS))

    def __getitem__(self, table: str) -> pl.DataFrame:
        return self.tables[table]

    def numbers(self, table: str, column: str) -> Numbers:
        """Return a column of integers. If the column is kept apart, rows added to the table since it was
        read are null."""
        numbers_apart = self.apart.get((table, column))
        if numbers_apart is None:
            return Numbers.of(self[table][column])
        return numbers_apart.extended(len(self[table]) - len(numbers_apart))

    def replace(self, **tables: pl.DataFrame) -> Trace:
        """Return the same trace with some tables replaced."""
        changed = Trace.of(tables, self.origin)
        kept = {name: self.tables[name] for name in self.tables.keys() - tables.keys()}
        return Trace(
            {name: kept.get(name, changed.tables[name]) for name in TABLES},
            self.present | changed.present,
            changed.origin,
            self.apart,
        )

    def note(self, severity: str, message: str, how_many: int = 1, *, first: bool = False) -> None:
        """Add a row to ``notes``, something that the user must know; ``first``: put it before all others."""
        row = pl.DataFrame(
            {"severity": [severity], "what": [utf8(message)], "how_many": [how_many]},
            schema=table_schema("notes"),
        )
        with _noting:
            notes = [self.tables["notes"], row]
            self.tables["notes"] = pl.concat(notes[::-1] if first else notes)
            self.present |= {"notes"}


def concat(traces: Iterable[Trace]) -> Trace:
    """Join traces into one: processes, clocks and range ids are renumbered, equal processes are merged.

    Two processes are equal if host, pid and start time are known and equal: one process may have written
    several files.
    """
    parts = list(traces)
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, list[pl.DataFrame]] = {name: [] for name in TABLES}
    base = {"process": 0, "clock_domain": 0, "range": 0}
    present: set[str] = set()
    origins = []
    for part in parts:
        origins.append({**part.origin, "first_process": base["process"]})
        present |= part.present
        for name, frame in part.tables.items():
            moves = {
                column: base[kind]
                for column, kind in _RENUMBERED.items()
                if column in frame.columns
            }
            if name in _RANGE_IDS:
                moves[_RANGE_IDS[name]] = base["range"]
            if name == "ranges":
                frame = frame.with_columns(range_ids(frame))
            columns[name].append(
                frame.with_columns(pl.col(column) + by for column, by in moves.items() if by)
            )
        base["process"] = _past(columns["processes"][-1], "process", base["process"])
        base["clock_domain"] = _past(columns["clocks"][-1], "clock_domain", base["clock_domain"])
        base["range"] = _past(columns["ranges"][-1], "id", base["range"])
    tables = {name: pl.concat(frames) for name, frames in columns.items() if name in present}
    return _merge_processes(Trace.of(tables, {"format": "several", "parts": origins}))


def _past(frame: pl.DataFrame, column: str, least: int) -> int:
    top: Any = frame[column].max()
    return least if top is None else max(least, int(top) + 1)


def _merge_processes(trace: Trace) -> Trace:
    processes = trace["processes"]
    identity = ["host", "pid", "start_time"]
    identified = processes.filter(pl.all_horizontal(pl.col(identity).is_not_null()))
    first = identified.group_by(identity).agg(pl.col("process").min().alias("same"))
    moved = identified.join(first, on=identity).filter(pl.col("process") != pl.col("same"))
    return unite(trace, dict(moved.select("process", "same").rows()))


def unite(trace: Trace, same: Mapping[int, int]) -> Trace:
    """Return the trace with rows moved from some processes to others:
    ``{process: the process that it belongs to}``."""
    if not same:
        return trace
    old, new = list(same), list(same.values())
    tables = {
        name: trace[name].with_columns(pl.col("process").replace(old, new))
        for name in trace.present
        if "process" in trace[name].columns
    }
    if "processes" in tables:  # each recording of a process counts its own processor time
        used = known_sum("processor_time").over("process")
        tables["processes"] = tables["processes"].with_columns(used)
    for name in ("processes", "threads", "devices"):
        if name in tables:
            key = {"processes": ["process"], "threads": ["process", "thread"]}.get(
                name, ["process", "device"]
            )
            tables[name] = tables[name].unique(key, keep="first", maintain_order=True)
    return trace.replace(**tables)


def recorded_by(origin: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the backend of most processes and why it was chosen; None if the trace does not say.

    The reason also names the backends of other processes.
    """
    backends = [backend for backend in origin.get("backends") or () if isinstance(backend, Mapping)]
    if not backends:
        return None
    first, others = backends[0], backends[1:]
    # processes of one backend may have several reasons
    counts: dict[str, int] = {}
    for other in others:
        if other.get("backend") != first.get("backend"):
            name = str(other.get("backend"))
            counts[name] = counts.get(name, 0) + int(other.get("processes") or 0)
    more = [f"{name} in {n} process{'es' if n > 1 else ''}" for name, n in counts.items()]
    return str(first.get("backend")), "; ".join((str(first.get("reason") or ""), *more))
