"""Read the files that MindSpore's profiler writes about operators on the CPU.

``FRAMEWORK`` (2.7 to 2.10 were run; the output folder itself in older versions) has, for each rank ``N``,

* ``cpu_op_execute_timestamp_N.txt``: ``name;HostCpuOps;start,duration,thread …``, a line per operator. The
  start is in ns, of Unix time (the sources of 2023 take a steady clock), the duration in ms of six digits;
* ``cpu_framework_N.txt``: ``kind;name;graph;input_1:[32, 1, 32, 32];…``, a line an execution, in their order.
  The name is the last part of the other file's; operators that PyNative mode runs without a graph have
  neither name nor shapes. No dtypes;
* ``cpu_op_detail_info_N.csv`` and ``cpu_op_type_info_N.csv``: totals of each operator and of each kind.

``ASCEND_PROFILER_OUTPUT/trace_view.json`` has the same executions, without shapes. It is read where the
others are missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from opscope.core import progress
from opscope.core.dialects.mindspore import DOMAIN
from opscope.core.rangetext import format_call
from opscope.core.schema import Arg, Dim, OpCall, TensorSpec
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.rows import MOST_COLUMNS, TWICE, is_appended
from opscope.readers.sound import sound_trace

TIMES: Final = "cpu_op_execute_timestamp_"
SHAPES: Final = "cpu_framework_"
TOTALS: Final = "cpu_op_detail_info_"
KINDS: Final = "cpu_op_type_info_"
VIEW: Final = "trace_view.json"
#: Subfolders of the profiler's output that have these files.
_FOLDERS: Final = ("", "FRAMEWORK", "profiler", "*_ascend_ms/FRAMEWORK", "*/FRAMEWORK")
_RANK: Final = re.compile(rf"{TIMES}([0-9]{{1,9}})\.txt\Z")
#: The folder of one process: ``host_pid_time_ascend_ms``.
_PROCESS: Final = re.compile(r"(.+)_([0-9]{1,10})_[0-9]{14,20}_ascend_ms\Z")
_INPUT: Final = re.compile(r"input_([0-9]{1,6}):([^;]*);")
_DIMS: Final = re.compile(r"\[([-0-9, ]*)\]")
#: Largest file in bytes, text of one operator's inputs, and number of sizes in it.
MAX_BYTES: Final = 1 << 31
MAX_INPUTS: Final = 1 << 20
MAX_RANK: Final = 64
#: Starts from this value on are Unix times (2001); smaller ones count from the machine's start.
UNIX: Final = 1_000_000_000_000_000_000
#: How much sums of durations with six digits may differ from MindSpore's sums of 32-bit floats, relatively.
PRECISION: Final = 1e-4

_DISAGREE: Final = (
    "operators whose total in cpu_op_detail_info is not that of their executions: some were lost"
)
SHAPELESS: Final = (
    "executions without shapes: MindSpore's profiler does not write those of operators that PyNative mode "
    "runs without a graph; opscope run does"
)
_UNPAIRED: Final = (
    "executions whose shapes are not known: cpu_framework has other operators than the times"
)


@dataclass(slots=True)
class Executions:
    """The executions of one rank's operators.

    ``table``, by start: ``node`` (the full name), ``thread`` (MindSpore's number of the thread; 0 for all
    threads that are not MindSpore's workers), ``start``, ``end`` (ns), ``inputs`` (text of the shapes, null
    if not known). ``unix``: whether times are Unix times. ``totals``: node → (executions, ms) as MindSpore
    adds them up.
    """

    path: Path
    rank: int
    table: pl.DataFrame
    unix: bool
    pid: int | None = None
    totals: dict[str, tuple[int, float]] = field(default_factory=dict)
    notes: list[tuple[str, str, int]] = field(default_factory=list)


def find(folder: Path) -> list[Path]:
    """Return the timestamp files of all ranks below the profiler's output folder, else its trace views."""
    for below in _FOLDERS:
        paths = sorted(folder.glob(f"{below}/{TIMES}*.txt" if below else f"{TIMES}*.txt"))
        paths = [path for path in paths if _RANK.match(path.name)]
        if paths:
            return paths
    for below in ("", "ASCEND_PROFILER_OUTPUT", "*/ASCEND_PROFILER_OUTPUT"):
        views = sorted(folder.glob(f"{below}/{VIEW}" if below else VIEW))
        if views:
            return views
    return []


def tables_of(folder: Path) -> Trace:
    """Return the operators of all ranks in the profiler's output ``folder`` as a trace.

    Ranges are in domain ``mindspore``; their texts are the operators' full names with the shapes of their
    inputs, of unknown dtype. Raises BadInput, which names the file, if one is missing or damaged.
    """
    paths = find(folder)
    if not paths:
        raise BadInput(folder, f"no {TIMES}*.txt of MindSpore's profiler here, and no {VIEW}")
    parts = []
    for path in paths:
        parts.append(executions(path))
        progress.read_whole(path)
    tables: dict[str, list[pl.DataFrame]] = {
        name: [] for name in ("processes", "threads", "ranges")
    }
    notes: list[tuple[str, str, int]] = []
    for number, part in enumerate(parts):
        notes += part.notes
        tables["processes"].append(_process(part, number, len(parts)))
        tables["threads"].append(_threads(part, number))
        tables["ranges"].append(ranges(part.table, number))
    tables_made = {name: pl.concat(frames) for name, frames in tables.items()}
    tables_made["ranges"] = tables_made["ranges"].with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id")
    )
    unix = all(part.unix for part in parts)
    tables_made["clocks"] = pl.DataFrame(
        {
            "clock_domain": [0],
            "kind": ["unix" if unix else "monotonic"],
            "to_unix_ns": pl.Series([0 if unix else None], dtype=pl.Int64),
        }
    )
    tables_made["notes"] = pl.DataFrame(
        notes,
        schema={"severity": pl.String, "what": pl.String, "how_many": pl.Int64},
        orient="row",
    )
    origin = {
        "format": "mindspore",
        "tool": "mindspore.profiler",
        "paths": [str(path) for path in paths],
    }
    return sound_trace(tables_made, origin)


def executions(path: Path) -> Executions:
    """Return the executions in a rank's timestamp file (or trace view) and the files beside it. Raises
    BadInput."""
    if path.name == VIEW:
        return _view(path)
    rank = int(_RANK.match(path.name)[1]) if _RANK.match(path.name) else 0  # type: ignore[index]
    table = _times(path)
    executions = Executions(path, rank, table.unique(maintain_order=True), _is_unix(path, table))
    again = len(table) - len(executions.table)
    table = executions.table
    beside = path.parent / f"{SHAPES}{rank}.txt"
    if beside.is_file():
        shapes = framework(beside)
        if len(shapes) == 2 * len(table) and is_appended(shapes.hash_rows()):
            again, shapes = again + len(table), shapes[: len(table)]
        executions.table, unpaired = with_shapes(table, shapes)
        if unpaired:
            executions.notes.append(("warning", _UNPAIRED, unpaired))
        without = int(executions.table["inputs"].is_null().sum()) - unpaired
        if without > 0:
            executions.notes.append(("info", SHAPELESS, without))
    details = path.parent / f"{TOTALS}{rank}.csv"
    if details.is_file():
        executions.totals, executions.pid = totals(details)
        lines = _lines(details)
        again += len(lines) - lines.n_unique()
        wrong = _disagreeing(executions)
        if wrong:
            executions.notes.append(("warning", _DISAGREE, wrong))
    if again > 0:
        executions.notes.append(("warning", TWICE, again))
    return executions


# ------------------------------------------------------------------------------- the files


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise BadInput(path, "no plain file")
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(path, f"larger than {MAX_BYTES} bytes")
        return path.read_bytes().decode()
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(path, "not UTF-8 text") from None


def _lines(path: Path) -> pl.Series:
    lines = pl.Series("line", _text(path).split("\n"), dtype=pl.String)
    filled: pl.Series = lines.filter(lines.str.strip_chars() != "")
    return filled


def _times(path: Path) -> pl.DataFrame:
    """Return node, thread, start and end of each execution, by start."""
    lines = _lines(path)
    fields = lines.str.splitn(";", 3).struct.unnest()
    fields.columns = ["node", "side", "executions"]
    bad = fields["executions"].is_null() | (fields["node"] == "")
    if bad.any():
        line = lines.filter(bad)[0]
        raise BadInput(path, f"not a line of operator times: {line[:60]!r}")
    each = (
        fields.select("node", pl.col("executions").str.strip_chars().str.split(" "))
        .explode("executions")
        .filter(pl.col("executions") != "")
    )
    parts = each["executions"].str.splitn(",", 4).struct.unnest()
    parts.columns = ["start", "duration", "thread", "more"]
    table = each.select("node").with_columns(
        parts["start"].cast(pl.Int64, strict=False),
        parts["duration"].cast(pl.Float64, strict=False),
        # versions before 2.0 write no thread
        parts["thread"].fill_null("0").cast(pl.Int64, strict=False),
    )
    ms = pl.col("duration")
    wrong = (
        pl.any_horizontal(pl.col("start", "duration", "thread").is_null())
        | ~ms.is_finite()
        | (ms < 0)
        | (ms > 1e11)
        | (pl.col("start") < 0)
        | (pl.col("start") >= 1 << 62)
    )
    odd = table.select(wrong).to_series() | parts["more"].is_not_null()
    if odd.any():
        raise BadInput(
            path, f"not start,duration,thread: {each['executions'].filter(odd)[0][:60]!r}"
        )
    return (
        table.select(
            "node",
            "thread",
            "start",
            (pl.col("start") + (ms * 1e6).round().cast(pl.Int64)).alias("end"),
        )
        .sort("start", "end", maintain_order=True)
        .with_columns(pl.lit(None, pl.String).alias("inputs"))
    )


def _is_unix(path: Path, table: pl.DataFrame) -> bool:
    unix = table["start"] >= UNIX
    if unix.any() and not unix.all():
        raise BadInput(path, "its times are of two clocks")
    return bool(unix.any())


def framework(path: Path) -> pl.DataFrame:
    """Return ``name`` and ``inputs`` of each execution in ``cpu_framework``; empty texts if it has none.

    Raises BadInput.
    """
    lines = _lines(path)
    fields = lines.str.splitn(";", 4).struct.unnest()
    fields.columns = ["kind", "name", "graph", "inputs"]
    bad = fields["inputs"].is_null()
    if bad.any():
        raise BadInput(path, f"not a line of an operator's inputs: {lines.filter(bad)[0][:60]!r}")
    if (fields["inputs"].str.len_bytes() > MAX_INPUTS).any():
        raise BadInput(path, f"an operator's inputs take more than {MAX_INPUTS} bytes")
    return fields.select("name", "inputs")


def with_shapes(table: pl.DataFrame, shapes: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the executions with ``inputs``, and how many have none although their name is in both files. The
    rows of ``cpu_framework`` are in the order of the executions. If kernels run concurrently, that order may
    differ: then the k-th row of a name belongs to the k-th execution of that name."""
    last = table["node"].str.extract(r"([^/]*)\z", 1).alias("name")
    has_number = last.str.contains(r"-op[0-9]+\z")
    given = pl.Series("name", [None], dtype=pl.String)
    if len(shapes) == len(table):
        given = shapes["name"]
        agree = (given == last) | ((given == "") & ~has_number)
        if agree.all():
            inputs = pl.select(
                pl.when(given != "").then(shapes["inputs"]).alias("inputs")
            ).to_series()
            return table.with_columns(inputs), 0
    turn = pl.int_range(pl.len(), dtype=pl.Int64).over("name").alias("turn")
    named = table.select("node").with_columns(last).with_columns(turn)
    rows = shapes.filter(pl.col("name") != "").with_columns(turn)
    counts = rows.group_by("name").agg(pl.len().alias("rows"))
    ran = named.group_by("name").agg(pl.len().alias("ran"))
    sure = counts.join(ran, on="name").filter(pl.col("rows") == pl.col("ran")).select("name")
    described_nodes = named.join(
        rows.join(sure, on="name", how="semi"),
        on=["name", "turn"],
        how="left",
        maintain_order="left",
    )["inputs"]
    return table.with_columns(described_nodes), int((described_nodes.is_null() & has_number).sum())


def totals(path: Path) -> tuple[dict[str, tuple[int, float]], int | None]:
    """Return node → (executions, total ms) of ``cpu_op_detail_info``, and the process's pid if it says.

    Raises BadInput.
    """
    frame = _csv(path, ("full_op_name", "op_occurrences", "op_total_time(ms)"))
    counts = frame["op_occurrences"].cast(pl.Int64, strict=False)
    total = frame["op_total_time(ms)"].cast(pl.Float64, strict=False)
    if counts.is_null().any() or total.is_null().any():
        raise BadInput(path, "a number is missing")
    totals_of_nodes: dict[str, tuple[int, float]] = {}
    for node, count, ms in zip(frame["full_op_name"], counts, total, strict=True):
        if node is None:
            raise BadInput(path, "a name is missing")
        before = totals_of_nodes.get(node, (0, 0.0))
        totals_of_nodes[node] = (before[0] + count, before[1] + ms)
    pids = frame["pid"].cast(pl.Int64, strict=False).unique() if "pid" in frame.columns else []
    pid = pids[0] if len(pids) == 1 else None
    return totals_of_nodes, pid if pid is not None and 0 < pid < 1 << 31 else None


def kinds(path: Path) -> dict[str, tuple[int, float]]:
    """Return kind → (executions, total ms) of ``cpu_op_type_info``. Raises BadInput."""
    frame = _csv(path, ("op_type", "type_occurrences", "total_compute_time"))
    counts = frame["type_occurrences"].cast(pl.Int64, strict=False)
    total = frame["total_compute_time"].cast(pl.Float64, strict=False)
    if counts.is_null().any() or total.is_null().any() or frame["op_type"].is_null().any():
        raise BadInput(path, "a number or a name is missing")
    rows = zip(frame["op_type"], counts, total, strict=True)
    return {str(kind): (int(count), float(ms)) for kind, count, ms in rows}


def _csv(path: Path, wanted: Sequence[str]) -> pl.DataFrame:
    data = _text(path)
    header = data.partition("\n")[0].strip().split(",")
    missing = [name for name in wanted if name not in header]
    if missing:
        raise BadInput(path, f"no column {', '.join(missing)}")
    if len(header) > MOST_COLUMNS:
        raise BadInput(path, f"not CSV: more than {MOST_COLUMNS:,} columns")
    try:
        frame = pl.read_csv(data.encode(), infer_schema=False, truncate_ragged_lines=False)
        return frame.unique(maintain_order=True)
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise BadInput(path, f"not CSV: {str(error).splitlines()[0]}") from None


def _disagreeing(executions: Executions) -> int:
    """Return how many operators have a different total in MindSpore's own file."""
    mine = executions.table.group_by("node").agg(
        pl.len().alias("many"), (pl.col("end") - pl.col("start")).sum().alias("ns")
    )
    here = {node: (count, ns / 1e6) for node, count, ns in mine.rows()}
    wrong = 0
    for node, (many, ms) in executions.totals.items():
        have, sum_ms = here.get(node, (0, 0.0))
        wrong += have != many or abs(sum_ms - ms) > PRECISION * max(ms, 1e-3)
    return wrong + len(set(here) - set(executions.totals))


# ------------------------------------------------------------------------------ the trace view


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: str | float = 0
    dur: str | float = 0
    args: dict[str, Any] = {}


def _view(path: Path) -> Executions:
    """Return the executions in a trace view: those of its process ``CPU OP``."""
    try:
        events = msgspec.json.decode(_text(path), type=list[_Event])
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(path, f"not a trace view of MindSpore's profiler: {error}") from None
    cpu = {
        event.pid
        for event in events
        if event.ph == "M" and event.name == "process_name" and event.args.get("name") == "CPU OP"
    }
    chosen = [event for event in events if event.ph == "X" and event.pid in cpu]
    if not chosen:
        raise BadInput(path, "a trace view without operators on the CPU")
    try:
        start = np.array([_ns(event.ts) for event in chosen], np.int64)
        span = np.array([_ns(event.dur) for event in chosen], np.int64)
        thread = np.array([int(event.tid) for event in chosen], np.int64)
    except (ValueError, OverflowError):
        raise BadInput(path, "a time is no number") from None
    table = pl.DataFrame(
        {
            "node": [event.name for event in chosen],
            "thread": thread,
            "start": start,
            "end": start + span,
            "inputs": pl.Series([None] * len(chosen), dtype=pl.String),
        }
    ).sort("start", "end", maintain_order=True)
    return Executions(path, 0, table, _is_unix(path, table))


def _ns(us: str | float) -> int:
    """Return µs, a number or text with up to three decimals, as exact ns; a double cannot hold Unix ns."""
    microseconds, _, part = str(us).partition(".")
    ns = int(microseconds) * 1000 + int((part + "000")[:3])
    if not 0 <= ns < 1 << 62:
        raise ValueError
    return ns


# ----------------------------------------------------------------------------------- the trace


def inputs_of(text: str) -> tuple[Arg, ...]:
    """Return the inputs in ``input_1:[32, 84];input_2:NoShape;``, of unknown dtype.

    A scalar or an absent input is None; trailing ones are left out.
    """
    args: list[Arg] = []
    for number, shape in _INPUT.findall(text):
        while len(args) < min(int(number) - 1, 1 << 12):
            args.append(None)
        tensors = [_tensor(dims) for dims in _DIMS.findall(shape)]
        if len(tensors) == 1 and shape.strip().startswith("["):
            args.append(tensors[0])
        else:
            args.append(tuple(tensors) or None)
    while args and args[-1] is None:
        args.pop()
    return tuple(args)


def _tensor(dims: str) -> TensorSpec | None:
    sizes: list[Dim] = []
    for word in dims.split(","):
        size = word.strip()
        if not size:
            continue
        if size == "-2":  # not even the number of dimensions is known
            return None
        if len(size) > 18 or not size.lstrip("-").isdigit():
            return None
        sizes.append("?" if size.startswith("-") else int(size))
    return TensorSpec("?", tuple(sizes)) if len(sizes) <= MAX_RANK else None


def ranges(table: pl.DataFrame, process: int) -> pl.DataFrame:
    """Return the ``ranges`` table (without ids) of executions."""
    kinds_of = table.select("node", "inputs").unique(maintain_order=True)
    texts = [
        format_call(OpCall(node, inputs_of(inputs or "")), None) if inputs else node
        for node, inputs in kinds_of.rows()
    ]
    named = table.join(
        kinds_of.with_columns(pl.Series("text", texts, dtype=pl.String)),
        on=["node", "inputs"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return named.select(
        pl.lit(process, pl.Int32).alias("process"),
        "thread",
        pl.col("thread").alias("end_thread"),
        "start",
        "end",
        pl.lit(DOMAIN).cast(pl.Categorical).alias("domain"),
        pl.col("text").cast(pl.Categorical),
        pl.lit("pushpop").cast(pl.Categorical).alias("kind"),
    )


def _process(part: Executions, number: int, count: int) -> pl.DataFrame:
    folder = next((part for part in part.path.parts[::-1] if _PROCESS.match(part)), "")
    name = _PROCESS.match(folder)
    pid = part.pid if part.pid is not None else int(name[2]) if name else None
    return pl.DataFrame(
        {
            "process": pl.Series([number], dtype=pl.Int32),
            "host": pl.Series([name[1] if name else None], dtype=pl.String),
            "pid": pl.Series([pid], dtype=pl.Int64),
            "rank": pl.Series([part.rank if count > 1 or part.rank else None], dtype=pl.Int32),
            "clock_domain": pl.Series([0], dtype=pl.Int32),
            "framework": ["mindspore"],
        }
    )


def _threads(part: Executions, number: int) -> pl.DataFrame:
    threads = part.table["thread"].unique().sort()
    return pl.DataFrame(
        {
            "process": pl.Series([number] * len(threads), dtype=pl.Int32),
            "thread": threads,
            "name": [f"MindSpore thread {thread}" for thread in threads],
        },
        schema_overrides={"name": pl.String},
    )
