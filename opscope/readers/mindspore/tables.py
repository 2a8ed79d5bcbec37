"""Read the tables of MindSpore's profiler with times (kernels, tasks, steps), and those with shapes.

* ``kernel_details.csv`` (2.5 to 2.10) and CANN's ``op_summary_*.csv``, which it is made of
  (``mindspore/python/mindspore/profiler/analysis/viewer/ascend_kernel_details_viewer.py``; columns differ
  with level
  and version, so each is looked up by its name);
* ``output_timeline_data_N.txt`` (1.x), ``activity_execute_timestamp_N.txt`` with
  ``gpu_activity_data_N.csv`` (GPUs);
* ``step_trace_raw_N_detail_time.csv``: in units of 10 ns (``to_millisecond`` in
  ``mindspore/python/mindspore/profiler/common/util.py`` divides by 1e5), on GPUs too;
* ``step_trace_profiling_N.txt`` (GPUs), in ns, or 10 ns where an op's executions follow its name;
* ``framework_raw_N.csv`` (1.x): the shapes, dtypes and formats of each op.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from opscope.core import progress
from opscope.readers.errors import BadInput
from opscope.readers.rows import TWICE, UNEVEN, Note, csv_rows

from . import nodes
from .timeline import LATEST, tensor_of

LARGEST: Final = 1 << 31
#: ns per unit of ``step_trace_raw``.
TICK: Final = 10
#: Most rows and columns of a table of steps: it has three columns for each collective.
_MOST_STEPS: Final = 1 << 20
_REDUCE: Final = re.compile(r"stream_(?:ops_)?([0-9]{1,9})_([0-9]+|parallel_[0-9]+)(?:_(.+))?\Z")
_ID: Final = re.compile(r"(.*)_start_point\Z")
#: Names of columns in ``op_summary``, by those in ``kernel_details``.
_AS: Final = {
    "Op Name": "Name", "OP Type": "Type", "Task Type": "Accelerator Core", "Accelerator": "Accelerator Core",
    "Task Start Time(us)": "Start Time(us)", "Task Duration(us)": "Duration(us)",
}  # fmt: skip
_TENSORS: Final = ("Shapes", "Data Types", "Formats")


def text(path: Path) -> str:
    """Return the file's text. Raises BadInput."""
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(path, f"over {LARGEST >> 30} GiB")
        decoded = path.read_bytes().decode("utf-8-sig")
        progress.read_whole(path)
        return decoded
    except UnicodeDecodeError:
        raise BadInput(path, "not UTF-8 text") from None
    except OSError as error:
        raise BadInput(path, error.strerror or str(error)) from error


def lines_once(path: Path, notes: list[Note] | None = None) -> list[str]:
    """Return the distinct lines of a file in which equal lines mean that a line was written twice;
    ``notes`` receives the number of repeated lines. Raises BadInput."""
    lines = [line.rstrip("\r") for line in text(path).split("\n")]
    again = len([*filter(str.strip, lines)]) - len([*filter(str.strip, {*lines})])
    if again and notes is not None:
        notes.append(("warning", TWICE, again))
    return [*dict.fromkeys(lines)]


def csv_frame(path: Path, notes: list[Note] | None = None, totals: bool = False) -> pl.DataFrame:
    """Return a CSV file's columns as texts; names are stripped. ``notes`` receives what was left out.
    ``totals``: whether each row should occur only once. Raises BadInput."""
    data = "\n".join(lines_once(path, notes)) if totals else text(path)
    try:
        frame, uneven = csv_rows(data.encode())
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise BadInput(path, f"not CSV: {str(error).splitlines()[0][:120]}") from None
    names = [name.strip() for name in frame.columns]
    if len(set(names)) != len(names):
        raise BadInput(path, "not CSV: a column is there twice")
    frame.columns = names
    if uneven and notes is not None:
        notes.append(("warning", UNEVEN.format(path.name), uneven))
    return frame


def us(column: pl.Expr) -> pl.Expr:
    """Return texts of µs as exact ns; a double cannot hold a Unix time in ns."""
    value = column.str.strip_chars(" \t\"'")
    plain = value.str.extract(r"^([0-9]{1,16}(?:\.[0-9]{1,12})?)$", 1)
    microseconds = plain.str.extract(r"^([0-9]+)", 1).cast(pl.Int64, strict=False)
    part = plain.str.extract(r"\.([0-9]+)$", 1).fill_null("").str.pad_end(3, "0").str.slice(0, 3)
    number = value.cast(pl.Float64, strict=False)
    rounded = pl.when(number.is_finite() & (number.abs() < LATEST / 1000)).then(
        (number * 1000).round()
    )
    exact = pl.when(microseconds <= LATEST // 1000).then(
        microseconds * 1000 + part.cast(pl.Int64, strict=False)
    )
    return pl.coalesce(exact, rounded.cast(pl.Int64))


def kernel_details(
    path: Path, device: int, notes: list[Note] | None = None
) -> tuple[pl.DataFrame, list[tuple[int, int, int]]]:
    """Return device work (``nodes.RAN``), and the span of each step's kernels. Raises BadInput."""
    frame = csv_frame(path, notes)
    frame = frame.rename(
        {old: new for old, new in _AS.items() if old in frame.columns and new not in frame.columns}
    )
    missing = [
        name for name in ("Name", "Start Time(us)", "Duration(us)") if name not in frame.columns
    ]
    if missing:
        raise BadInput(path, f"no column {', '.join(missing)}")
    frame = frame.with_columns(
        start=us(pl.col("Start Time(us)")), duration=us(pl.col("Duration(us)"))
    )
    if len(frame) and frame.select((pl.col("start") + pl.col("duration")).is_null().all()).item():
        raise BadInput(path, "no row has a start and a duration")

    def column(name: str) -> pl.Expr:
        if name not in frame.columns:
            return pl.lit(None, pl.String)
        value = pl.col(name).str.strip_chars()
        return pl.when(value.is_in(["", "N/A", "NA", "null"])).then(None).otherwise(value)

    name = column("Name")
    device_id = column("Device_id").cast(pl.Int32, strict=False)
    kind = column("Type")
    launched = name.str.contains(r"(?:^|/)[A-Z]\w*(?:Framework)?::")
    ran = frame.select(
        device_id.fill_null(device).alias("device"),
        column("Stream ID").cast(pl.Int64, strict=False).alias("stream"),
        "start",
        (pl.col("start") + pl.col("duration")).alias("end"),
        name.str.extract(r"([^/]*)$", 1).alias("name"),
        # MindSpore puts its own launch before the kernel's name, which is not a cell
        pl.when(launched).then(name.str.extract(r"([^/]*)$", 1)).otherwise(name).alias("node"),
        pl.when(kind.str.contains(r"^[A-Za-z_]\w*$")).then(kind).alias("kind"),
        column("Accelerator Core").alias("core"),
        *(
            _tensors(frame, side).alias(name)
            for side, name in (("Input", "inputs"), ("Output", "outputs"))
        ),
        column("Step ID" if "Step ID" in frame.columns else "Step Id")
        .cast(pl.Int64, strict=False)
        .alias("step"),
    )
    steps = (
        ran.drop_nulls(["step", "start", "end"])
        .group_by("step")
        .agg(pl.col("start").min(), pl.col("end").max())
        .sort("step")
    )
    return nodes.conform(ran), [(step, start, end) for step, start, end in steps.rows()]


def _tensors(frame: pl.DataFrame, side: str) -> pl.Series:
    """Return the tensors of one side of each row, in the form of ``nodes.shapes_text``; null if not known."""
    columns = [f"{side} {property_name}" for property_name in _TENSORS]
    if columns[0] not in frame.columns:
        return pl.Series([None] * len(frame), dtype=pl.String)
    have = [name for name in columns if name in frame.columns]
    distinct = frame.select(have).unique(maintain_order=True)
    texts_made = [_list(dict(zip(have, row, strict=True)), side) for row in distinct.iter_rows()]
    distinct = distinct.with_columns(pl.Series("text", texts_made, dtype=pl.String))
    texts: pl.Series = frame.select(have).join(
        distinct, on=have, how="left", nulls_equal=True, maintain_order="left"
    )["text"]
    return texts


def _list(row: Mapping[str, str | None], side: str) -> str | None:
    """Return the tensors in ``"32,3,224,224;64"`` with dtypes ``FLOAT16;FLOAT`` and formats ``NCHW;ND``."""
    values = [
        (row.get(f"{side} {property_name}") or "").strip().strip('"') for property_name in _TENSORS
    ]
    if values[0] in ("", "N/A"):
        return None
    shapes, dtypes, formats = (value.split(";") for value in values)
    parts = []
    for number, shape in enumerate(shapes):
        dtype = dtypes[number] if number < len(dtypes) else ""
        form = formats[number] if number < len(formats) else ""
        parts.append((shape.strip(), dtype.strip(), "" if form in ("N/A", "") else form.strip()))
    return nodes.shapes_text(parts)


def framework_raw(path: Path) -> dict[str, tuple[str, str | None, str | None]]:
    """Return full name → (type, inputs, outputs) of the ops in ``framework_raw``. Raises BadInput."""
    frame = csv_frame(path)
    name = next(
        (column for column in ("full_op_name", "full_kernel_name") if column in frame.columns), None
    )
    kind = next((column for column in ("op_type", "kernel_type") if column in frame.columns), None)
    if name is None or kind is None or "op_info" not in frame.columns:
        raise BadInput(path, "no column full_op_name, op_type or op_info")
    info_of_nodes: dict[str, tuple[str, str | None, str | None]] = {}
    for node, op_kind, info in (
        frame.select(name, kind, "op_info").unique(maintain_order=True).iter_rows()
    ):
        if node and node not in info_of_nodes:
            info_of_nodes[node] = (op_kind or "", *_info(info))
    return info_of_nodes


def _info(text: str | None) -> tuple[str | None, str | None]:
    try:
        values = msgspec.json.decode((text or "{}").encode(), type=dict[str, dict[str, str | None]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, None

    def side(name: str) -> str | None:
        keys = [key for key in values if re.fullmatch(rf"{name}_[0-9]{{1,3}}", key)]
        ordered = sorted(keys, key=lambda key: int(key.rpartition("_")[2]))
        return nodes.shapes_text([tensor_of(values[key]) for key in ordered])

    return side("input"), side("output")


def with_shapes(
    ran: pl.DataFrame, info_of_nodes: Mapping[str, tuple[str, str | None, str | None]]
) -> pl.DataFrame:
    """Return device work, with missing types and tensors taken from a file of shapes."""
    if not info_of_nodes or not len(ran):
        return ran
    rows = [(node, *values) for node, values in info_of_nodes.items()]
    schema = {"node": pl.String, "a_kind": pl.String, "a_in": pl.String, "a_out": pl.String}
    return ran.join(
        pl.DataFrame(rows, schema=schema, orient="row"), on="node", how="left", maintain_order="left"
    ).with_columns(
        pl.coalesce("kind", "a_kind").alias("kind"),
        pl.coalesce("inputs", "a_in").alias("inputs"),
        pl.coalesce("outputs", "a_out").alias("outputs"),
    ).drop("a_kind", "a_in", "a_out")  # fmt: skip


def timestamps(path: Path, device: int, notes: list[Note] | None = None) -> pl.DataFrame:
    """Return the work in ``output_timeline_data``, whose times are ms. Raises BadInput."""
    frame = csv_frame(path, notes)
    if len(frame.columns) < 4:
        raise BadInput(path, "fewer than four columns")
    node, stream, start, duration = (pl.col(name).str.strip_chars() for name in frame.columns[:4])
    begin = (start.cast(pl.Float64, strict=False) * 1e6).round().cast(pl.Int64, strict=False)
    length = (duration.cast(pl.Float64, strict=False) * 1e6).round().cast(pl.Int64, strict=False)
    return nodes.conform(
        frame.select(
            pl.lit(device).alias("device"),
            stream.cast(pl.Int64, strict=False).alias("stream"),
            begin.alias("start"),
            (begin + length).alias("end"),
            node.str.extract(r"([^/]*)$", 1).alias("name"),
            node.alias("node"),
            pl.lit("AI_CORE").alias("core"),
        )
    )


def activities(path: Path, about: Path | None, device: int) -> pl.DataFrame:
    """Return the GPU's kernels in ``activity_execute_timestamp``: ``name;stream;start in ns;duration in us``.

    ``about``: ``gpu_activity_data``, which names the grid, the block and the first op of each kernel name.
    Raises BadInput.
    """
    lines = pl.Series("line", text(path).split("\n"), dtype=pl.String)
    lines = lines.filter(lines.str.strip_chars() != "")
    parts = lines.str.extract_groups(
        r"^(.*);([0-9]{1,9});([0-9]{1,19});([0-9.e+-]{1,24})\r?$"
    ).struct.unnest()
    parts.columns = ["name", "stream", "start", "duration"]
    if parts["start"].is_null().any():
        line = lines.filter(parts["start"].is_null())[0]
        raise BadInput(path, f"not a line of a kernel's times: {line[:60]!r}")
    start = pl.col("start").cast(pl.Int64, strict=False)
    length = (
        (pl.col("duration").cast(pl.Float64, strict=False) * 1000)
        .round()
        .cast(pl.Int64, strict=False)
    )
    ran = parts.select(
        pl.lit(device).alias("device"),
        pl.col("stream").cast(pl.Int64, strict=False),
        start.alias("start"),
        (start + length).alias("end"),
        "name",
        pl.lit("GPU").alias("core"),
    )
    if about is not None:
        ran = ran.join(activity_data(about), on="name", how="left", maintain_order="left")
    return nodes.conform(ran)


def activity_data(path: Path) -> pl.DataFrame:
    """Return name, grid, block and ``node`` (the first op) of each kernel name. Raises BadInput."""
    frame = csv_frame(path)
    wanted = {"name": "name", "op_full_name": "node", "block_dim": "block", "grid_dim": "grid"}
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise BadInput(path, f"no column {', '.join(missing)}")
    return frame.select(pl.col(old).alias(new) for old, new in wanted.items()).unique(
        "name", keep="first"
    )


def steps(
    path: Path, device: int, notes: list[Note]
) -> tuple[list[tuple[int, int, int]], pl.DataFrame]:
    """Return the steps (number, start, end in ns) of ``step_trace_raw``, and its collectives.

    The last row is the average, not a step. Raises BadInput.
    """
    rows = _rows(path, notes)
    header = next(rows, [])
    column_index = {name.strip(): number for number, name in enumerate(header)}
    need = ("step_num", "start_point", "end_point")
    if any(name not in column_index for name in need):
        raise BadInput(path, "no column step_num, start_point or end_point")
    marks = [
        (
            match.group(1),
            column_index[f"{match.group(1)}_start_point"],
            column_index.get(f"{match.group(1)}_end_point"),
        )
        for name in column_index
        if (match := _ID.match(name)) and _REDUCE.match(match.group(1))
    ]
    step_rows: list[tuple[int, int, int]] = []
    ran: list[dict[str, object]] = []
    for row in rows:
        number, start, end = (_whole(row, column_index[name]) for name in need)
        if number is None or start is None or end is None or not end or number < 1:
            continue
        step_rows.append((number, start * TICK, end * TICK))
        for name, at, until in marks:
            begin, stop = _whole(row, at), None if until is None else _whole(row, until)
            of = _REDUCE.match(name)
            if not begin or not stop or of is None:
                continue
            ran.append(
                {
                    "device": device,
                    "stream": int(of.group(1)),
                    "start": begin * TICK,
                    "end": stop * TICK,
                    "name": of.group(3) or name,
                    "node": of.group(3) or "AllReduce",
                    "core": "HCCL",
                }
            )
    return step_rows, nodes.frame(ran)


def step_points(path: Path) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Return per step of ``step_trace_raw`` (as ``steps`` returns it) when forward begins and backward ends
    (ns). Raises BadInput."""
    rows = _rows(path, None)
    column_index = {name.strip(): number for number, name in enumerate(next(rows, []))}
    need = ("step_num", "start_point", "end_point", "fp_point", "bp_point")
    if any(name not in column_index for name in need):
        return {}
    points = {}
    for row in rows:
        number, start, end, first, last = (_whole(row, column_index[name]) for name in need)
        if None not in (number, start, end) and first and last:
            points[number, start * TICK, end * TICK] = first * TICK, last * TICK  # type: ignore[operator]
    return points  # type: ignore[return-value]


def _rows(path: Path, notes: list[Note] | None) -> Iterator[list[str]]:
    csv.field_size_limit(1 << 20)
    try:
        for number, row in enumerate(csv.reader(lines_once(path, notes))):
            if number > _MOST_STEPS:
                raise BadInput(path, f"more than {_MOST_STEPS} steps")
            yield row
    except csv.Error as error:
        raise BadInput(path, f"not CSV: {error}") from None


def _whole(row: list[str], index: int) -> int | None:
    value = row[index].strip() if index < len(row) else ""
    return int(value) if re.fullmatch(r"[0-9]{1,17}", value) else None


def gpu_steps(path: Path, notes: list[Note] | None = None) -> list[tuple[int, int, int]]:
    """Return the steps in a GPU's ``step_trace_profiling``. Raises BadInput.

    A line is a step, ``op,ns`` of its first, forward's first, backward's last and last op; or, in the older
    form, an op with ``start,end`` in 10 ns for each step, in the order of those three ops.
    """
    lines = _step_lines(path, notes)
    step_rows: list[tuple[int, int, int]] = []
    if lines and "," not in lines[0][0]:
        if len(lines) < 3:
            return []
        spans = [_pairs(words[1:]) for words in (lines[0], lines[2])]
        for number, (first, last) in enumerate(zip(*spans, strict=False), 1):
            step_rows.append((number, first[0] * TICK, last[1] * TICK))
        return step_rows
    for number, words in enumerate(lines[:_MOST_STEPS], 1):
        times = [word.rpartition(",")[2] for word in words[:4]]
        if len(times) < 4 or not all(re.fullmatch(r"[0-9]{1,19}", time_) for time_ in times):
            raise BadInput(path, f"not a line of a step's ops: {' '.join(words)[:60]!r}")
        first, last = int(times[0]), int(times[3])
        if max(first, last) < LATEST:
            step_rows.append((number, first, last))
    return step_rows


def gpu_points(path: Path) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Return per step of ``gpu_steps`` when forward begins and backward ends (ns). Raises BadInput."""
    lines = _step_lines(path)
    if lines and "," not in lines[0][0]:
        ends = [last * TICK for _, last in _pairs(lines[1][1:])] if len(lines) > 2 else []
        return {step: (step[1], end) for step, end in zip(gpu_steps(path), ends, strict=False)}
    of_step = {
        number: (int(words[1].rpartition(",")[2]), int(words[2].rpartition(",")[2]))
        for number, words in enumerate(lines[:_MOST_STEPS], 1)
        if all(re.fullmatch(r"[0-9]{1,18}", word.rpartition(",")[2]) for word in words[1:3])
        and len(words) > 3
    }
    return {step: of_step[step[0]] for step in gpu_steps(path) if step[0] in of_step}


def _step_lines(path: Path, notes: list[Note] | None = None) -> list[list[str]]:
    """Return the words of each line; in the older form return all lines, because two of its three may be
    of the same op."""
    lines = [line.split() for line in text(path).split("\n") if line.strip()]
    if lines and "," not in lines[0][0]:
        return lines
    return [line.split() for line in lines_once(path, notes) if line.strip()]


def _pairs(words: list[str]) -> list[tuple[int, int]]:
    matches = (re.fullmatch(r"([0-9]{1,17}),([0-9]{1,17})", word) for word in words)
    return [(int(match.group(1)), int(match.group(2))) for match in matches if match]
