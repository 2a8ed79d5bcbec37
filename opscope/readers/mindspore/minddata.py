"""Read the dataset files of MindSpore's profiler: its queues, its ops, and the processors' use.

The format is known from ``mindspore/ccsrc/minddata/dataset/engine/perf`` and from a run of 2.10:

* ``device_queue_profiling_N.txt`` (with dataset sink), ``dataset_iterator_profiling_N.txt`` (without;
  ``profiling.cc``): a line is ``type extra batch value [time]``. Type 0: ms that a batch took (extra 0: until
  the pipeline gave it, 1: to hand it on, 2: both); type 1: batches that were ready, extra: how many fit. The
  time is in ms; old files have none.
* ``pipeline_profiling_N.json`` (``connector_size.cc``), and ``minddata_pipeline_raw_N.csv``, which
  MindSpore makes of it: sizes of the output queue of each op.
* ``minddata_aicpu_N.txt``: ``GetNext… start end ready``: when the device waited for a batch, us of its clock.
  GPUs: ``minddata_getnext_profiling_N.txt``, in ns of the system's clock (``gpu/data/dataset_profiling.cc``).
* ``minddata_cpu_utilization_N.json`` (``cpu_sampler.cc``): whole percent, of all processors for the machine,
  of one for the process and for each op. The first value of the machine and of an op, of which there is no
  earlier reading, is 0.

Times in ms are of a clock that no other file has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import polars as pl

from opscope.core import progress
from opscope.core.schema import (
    INPUT_DOMAIN,
    MACHINE_CPU,
    PIPELINE,
    PIPELINE_BATCH,
    PIPELINE_CAPACITY,
    PIPELINE_CPU,
    PIPELINE_GET,
    PIPELINE_PUSH,
    PIPELINE_READY,
    PIPELINE_WORKERS,
    PROCESS_CPU,
    PROCESSORS,
)
from opscope.core.tables.trace import table_schema
from opscope.readers.errors import BadInput
from opscope.readers.rows import Note

from .files import DATASET as NAMES
from .tables import csv_frame, lines_once

OTHER_CLOCK: Final = (
    "samples of the processors and of the input pipeline are MindSpore's, whose times are of another clock "
    "than the ops': their means hold, and which op or step ran meanwhile is not known"
)
_NOT_THEN: Final = (
    "waits of the device for a batch, left out: they lie outside the time of its steps and tasks"
)
_NO_RECORD: Final = "lines of {} that are no record of the input pipeline, left out"
_NO_TIMES: Final = "{} has no times: each sample stands at the number of its batch"
_STAGES: Final = {"device_queue": "device queue", "dataset_iterator": "dataset iterator"}
#: The range of a wait of the device: it belongs to the graph, whatever thread the steps are on.
_GET_NEXT: Final = 'GetNext() {dataset="the device queue", in_graph=true}'
_MS: Final = 1_000_000
_RECORD: Final = (
    r"^(?<type>[01]) +(?<extra>[0-9]{1,9}) +(?<batch>[0-9]{1,9}) +(?<value>[0-9]{1,9})"
    r"(?: +(?<time>[0-9]{1,12}))? *$"
)
_WAIT: Final = r"^GetNext\S* +(?<start>{0}) +(?<end>{0}) +(?<ready>[0-9]{{1,9}}) *$"
#: The files of times: the number of ns in their unit, and the pattern of a time that fits 64 bits as ns.
_WAITS: Final = {
    "minddata_aicpu": (1000, "[0-9]{1,15}"),
    "minddata_getnext": (1, "[0-9]{1,18}|[1-8][0-9]{18}"),
}
_TIMES: Final = {"0": PIPELINE_GET, "1": PIPELINE_PUSH, "2": PIPELINE_BATCH}
#: Largest size of a file in bytes, most ops, most samples, and largest number.
_MOST: Final = 64 << 20
_MOST_OPS: Final = 10_000
_MOST_SAMPLES: Final = 4_000_000
_LONGEST: Final = 1 << 52
_OP: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_Rows: TypeAlias = "list[tuple[str, int, float | None]]"


def samples(paths: Iterable[Path], notes: list[Note]) -> pl.DataFrame:
    """Return the ``samples`` of one process (number 0) in the files of its dataset, in order of time."""
    of: dict[str, Path] = {}
    for path in paths:
        match = NAMES.fullmatch(path.name)
        if match:
            of.setdefault(match.group(1), path)
    frames = []
    usage: Mapping[str, Any] = {}
    if "minddata_cpu_utilization" in of:
        path = of["minddata_cpu_utilization"]
        frame, usage, note = processors(path)
        frames.append(frame)
        notes += [note] if note else []
    for kind, stage in _STAGES.items():
        if kind in of:
            frames.append(
                _guarded(of[kind], notes, lambda path, stage=stage: _queue(path, stage, notes))
            )
    raw = of.get("pipeline") or of.get("minddata_pipeline_raw")
    if raw is not None:
        frames.append(_guarded(raw, notes, lambda path: _ops(path, usage, notes)))
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return pl.DataFrame(schema=table_schema("samples"))
    notes.append(("info", OTHER_CLOCK, sum(len(frame) for frame in frames)))
    return pl.concat(frames).sort("time", maintain_order=True)


def waits(paths: Iterable[Path], span: tuple[int, int] | None, notes: list[Note]) -> pl.DataFrame:
    """Return the device's waits for a batch: start, end (ns), text, domain, category, payload (batches).
    ``span`` (ns): when its steps and tasks began and ended; waits outside it are on another clock."""
    schema = {
        "start": pl.Int64, "end": pl.Int64, "text": pl.String, "domain": pl.String, "category": pl.String,
        "payload": pl.Int64,
    }  # fmt: skip
    for path in paths:
        match = NAMES.fullmatch(path.name)
        if match is None or match.group(1) not in _WAITS:
            continue
        unit, time = _WAITS[match.group(1)]
        form = _WAIT.format(time)
        frame = _guarded(
            path, notes, lambda path, form=form: _fields(path, form, ("GetNext",), notes)
        )
        if not len(frame):
            continue
        frame = frame.select(
            *(pl.col(name).cast(pl.Int64) * unit for name in ("start", "end")),
            pl.lit(_GET_NEXT).alias("text"),
            pl.lit(INPUT_DOMAIN).alias("domain"),
            pl.lit("input").alias("category"),
            pl.col("ready").cast(pl.Int64).alias("payload"),
        )
        begin, end = span or (1, 0)
        near = frame.filter((pl.col("end") >= begin - (end - begin)) & (pl.col("start") <= end))
        if len(near) < len(frame):
            notes.append(("warning", _NOT_THEN, len(frame) - len(near)))
        return near
    return pl.DataFrame(schema=schema)


def _guarded(path: Path, notes: list[Note], read: Any) -> pl.DataFrame:
    """Return the result of ``read`` for the file; a damaged file is only noted, because other files have the
    ops' times."""
    try:
        if path.stat().st_size > _MOST:
            raise BadInput(path, f"over {_MOST >> 20} MiB")
        frame: pl.DataFrame = read(path)
        return frame
    except (
        OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError, AttributeError,
    ) as error:  # fmt: skip
        why = error.what if isinstance(error, BadInput) else type(error).__name__
        notes.append(("warning", f"{path.name} cannot be read: {why}", 1))
        return pl.DataFrame()


def _fields(path: Path, form: str, begins: Sequence[str], notes: list[Note]) -> pl.DataFrame:
    """Return the named groups of ``form`` in each line, as texts; lines that only begin like it are noted."""
    lines = pl.Series("line", lines_once(path, notes), dtype=pl.String).str.strip_chars()
    fields = lines.str.extract_groups(form).struct.unnest()
    matches = fields.to_series(0).is_not_null()
    odd = ~matches & pl.Series([line.startswith(tuple(begins)) for line in lines], dtype=pl.Boolean)
    if odd.any():
        notes.append(("warning", _NO_RECORD.format(path.name), int(odd.sum())))
    return fields.filter(matches)


def _queue(path: Path, stage: str, notes: list[Note]) -> pl.DataFrame:
    """Return the samples of a queue of batches."""
    fields = _fields(path, _RECORD, "0123456789", notes)
    if fields["time"].null_count():
        notes.append(("info", _NO_TIMES.format(path.name), fields["time"].null_count()))
    time = pl.coalesce(pl.col("time").cast(pl.Int64) * _MS, pl.col("batch").cast(pl.Int64))
    is_time = pl.col("type") == "0"
    quantity = pl.when(is_time).then(pl.col("extra").replace_strict(_TIMES, default=None))
    value = pl.col("value").cast(pl.Float64)
    rows = fields.select(
        time.alias("time"),
        quantity.otherwise(pl.lit(PIPELINE_READY)).alias("quantity"),
        pl.when(is_time).then(value * _MS).otherwise(value).alias("value"),
    ).drop_nulls("quantity")
    sizes = fields.filter(~is_time).select(
        time.min().over("extra").alias("time"),
        pl.lit(PIPELINE_CAPACITY).alias("quantity"),
        pl.col("extra").cast(pl.Float64).alias("value"),
    )
    return _samples(
        pl.concat([rows, sizes.unique(maintain_order=True)]).select(
            (pl.lit(f"{PIPELINE}{stage}: ") + pl.col("quantity")).alias("name"), "time", "value"
        )
    )


def _samples(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        pl.lit(0, pl.Int32).alias("process"),
        pl.lit(None, pl.Int32).alias("device"),
        "time",
        pl.col("name").cast(pl.Categorical),
        "value",
    )


# ----------------------------------------------------------------------------------------- ops


def _ops(path: Path, usage: Mapping[str, Any], notes: list[Note]) -> pl.DataFrame:
    """Return the samples of the pipeline's ops. ``usage``: the content of ``minddata_cpu_utilization``."""
    listed, interval = _listed(path, notes)
    if len(listed) > _MOST_OPS:
        raise BadInput(path, f"more than {_MOST_OPS:,} ops")
    parents = {child: op["op_id"] for op in listed for child in op.get("children") or ()}
    stamps = [time * _MS for time in _numbers(usage.get("time_stamp", ()))]
    cpu = {op.get("op_id"): op.get("metrics") for op in usage.get("op_info") or ()}
    rows: _Rows = []
    for op in listed:
        number, kind, workers = op["op_id"], op.get("op_type"), op.get("num_workers")
        if type(number) is not int or not 0 <= number < _LONGEST:
            raise BadInput(path, "an op without a number")
        kind = kind if isinstance(kind, str) and _OP.fullmatch(kind) else "op"
        parent = parents.get(number)
        stage = f"{PIPELINE}{kind} {number}" + ("" if parent is None else f" of {parent}") + ": "
        queue = (op.get("metrics") or {}).get("output_queue") or {}
        sizes = _numbers(queue.get("size") or ())
        times = stamps if len(stamps) == len(sizes) else [interval * n for n in range(len(sizes))]
        first = times[0] if times else 0
        rows += [(stage + PIPELINE_READY, *at) for at in zip(times, map(float, sizes), strict=True)]
        for name, value in ((PIPELINE_CAPACITY, queue.get("length")), (PIPELINE_WORKERS, workers)):
            if type(value) is int and 0 <= value < _LONGEST:
                rows.append((stage + name, first, float(value)))
        busy = _both(cpu[number], len(stamps)) if cpu.get(number) else []
        if busy:
            pairs = zip(stamps, (None, *busy[1:]), strict=True)
            rows += [(stage + PIPELINE_CPU, *pair) for pair in pairs]
        if len(rows) > _MOST_SAMPLES:
            raise BadInput(path, f"more than {_MOST_SAMPLES:,} samples")
    return _samples(_frame(rows))


def _listed(path: Path, notes: list[Note]) -> tuple[list[dict[str, Any]], int]:
    """Return the ops in ``pipeline_profiling``, and the time between samples (ns)."""
    if path.suffix == ".json":
        about = json.loads(path.read_bytes())
        progress.read_whole(path)
        return [op for op in about["op_info"] if op], _numbers([about["sampling_interval"]])[
            0
        ] * _MS
    frame = csv_frame(path, notes, totals=True)
    rows: list[dict[str, Any]] = []
    interval = 0
    for row in frame.to_dicts():
        interval = _numbers([row["sample_interval"]])[0] * _MS
        cells = {
            name: json.loads(row.get(name) or "null")
            for name in ("op_id", "num_workers", "output_queue_size", "output_queue_length", "children_id")
        }  # fmt: skip
        queue = {"size": cells["output_queue_size"], "length": cells["output_queue_length"]}
        rows.append(
            {
                "op_id": cells["op_id"],
                "op_type": row.get("op_type"),
                "num_workers": cells["num_workers"],
                "children": cells["children_id"],
                "metrics": {"output_queue": queue},
            }
        )
    return rows, interval


def _frame(rows: _Rows) -> pl.DataFrame:
    return pl.DataFrame(
        rows, schema={"name": pl.String, "time": pl.Int64, "value": pl.Float64}, orient="row"
    )


# ---------------------------------------------------------------------------------- processors


def processors(path: Path) -> tuple[pl.DataFrame, Mapping[str, Any], Note | None]:
    """Return the samples of the processors, the rest of the file, and a note; empty if the file is
    damaged."""
    try:
        if path.stat().st_size > _MOST:
            raise ValueError("too large")
        about = json.loads(path.read_bytes())
        progress.read_whole(path)
        times = _numbers(about["time_stamp"])
        machine, process = about["device_info"], about["process_info"]
        busy = _both(machine, len(times))
        own = _both(process, None)
        count = about.get("cpu_processor_num")
    except (
        OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError, AttributeError,
    ) as error:  # fmt: skip
        message = (
            f"{path.name} cannot be read: no samples of the processors ({type(error).__name__})"
        )
        return pl.DataFrame(schema=table_schema("samples")), {}, ("info", message, 1)
    rows: _Rows = []
    for name, values in ((MACHINE_CPU, busy[1:]), (PROCESS_CPU, own[-(len(times) - 1) :])):
        if times and len(values) == len(times) - 1:
            rows += [
                (name, time, value) for time, value in zip(times, (None, *values), strict=True)
            ]
    if times and type(count) is int and 0 < count < 1 << 20:
        rows.append((PROCESSORS, times[-1], float(count)))
    frame = _frame(rows).with_columns(pl.col("time") * _MS)
    return _samples(frame), about, None


def _numbers(values: Any) -> list[int]:
    numbers = [int(value) for value in values]
    if any(not 0 <= number < _LONGEST // 1_000_000 * 1000 for number in numbers):
        raise ValueError("out of range")
    return numbers


def _both(of: Any, processors: int | None) -> list[float]:
    """Return user and system utilization added up."""
    user, system = _numbers(of["user_utilization"]), _numbers(of["sys_utilization"])
    if len(user) != len(system) or (processors is not None and len(user) != processors):
        raise ValueError("of different lengths")
    return [float(user_part + other) for user_part, other in zip(user, system, strict=True)]
