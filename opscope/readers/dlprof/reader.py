"""Read DLProf's databases (``dlprof_dldb.sqlite``): ops, their instances, kernels, copies and calls.

DLProf has already linked kernels to ops. The trace gives ops as ranges in opscope's own text, and a call for
each kernel, so that attribution finds the same op again. DLProf's name of the op (``CONV2D_1``) is its
parameter ``op_id``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from opscope.core.dialects.markers import DTYPES, frames_of, layer_of
from opscope.core.rangetext import format_call
from opscope.core.schema import Arg, OpCall, TensorSpec
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.nsys.cuda import COPIES
from opscope.readers.nsys.strings import labels
from opscope.readers.nsys.target import capability
from opscope.readers.sound import sound_trace
from opscope.readers.sqlite import Database, Kind, filled, is_database

DOMAIN: Final = "opscope.dlprof"
_DIRECTIONS: Final = {"fprop": "forward", "bprop": "backward"}
_WHERE: Final[Mapping[str, Kind]] = dict.fromkeys(
    ("api_start", "api_stop", "gpu_start", "gpu_stop", "device_id", "process_id", "thread_id"),
    "int",
)
_OP: Final[Mapping[str, Kind]] = {
    "id": "int", "op_id": "text", "op_name": "text", "op_type_id": "int", "data_type_id": "int",
    "direction_id": "int", "stack_trace": "text",
}  # fmt: skip
_INSTANCE: Final[Mapping[str, Kind]] = dict.fromkeys(
    ("id", "read_only_ops_id", "cpu_start", "cpu_stop", "process_id", "thread_id",
     "input_shapes_id", "output_shapes_id"), "int"
)  # fmt: skip


def recognise(path: str | os.PathLike[str]) -> bool:
    """Whether the file is a DLProf database. Never raises."""
    return is_database(path, _is_ours)


def _is_ours(database: Database) -> bool:
    return database.has("read_only_ops", *_OP) and database.has(
        "read_only_op_instances", *_INSTANCE
    )


def read(path: str | os.PathLike[str], *, gpu: str | None = None) -> Trace:
    """Return the trace in a DLProf database; ``gpu`` names devices that the database does not name.

    Raises BadInput if the file is not a DLProf database.
    """
    with Database(path) as database:
        if not _is_ours(database):
            raise BadInput(path, "not a database of DLProf (it lacks DLProf's tables)")
        words = dict(_rows(database, "dictionary", {"id": "int", "string": "text"}).iter_rows())
        kernels = _launched(
            database, "read_only_kernels", ("long_name_id", "grid_id", "block_id"), 0
        )
        copies = _launched(database, "read_only_memcpys", ("name_id", "num_bytes", "copy_kind"), 1)
        sets = _launched(database, "read_only_memsets", ("name_id", "num_bytes"), 2)
        ranges = _ranges(database, words)
        pids = _numbered([ranges, kernels, copies, sets], "process_id")
        tables = {
            "ranges": ranges.drop("process_id"),
            "kernels": _kernels(database, kernels, words),
            "memops": _memops(copies, sets),
            "calls": _calls(database, words, kernels, copies, sets),
        }
        process = pl.lit(0, pl.Int32).alias("process")
        tables = {name: frame.with_columns(process) for name, frame in tables.items()}
        devices = _rows(
            database,
            "read_only_gpu_infos",
            {"device_id": "int", "gpu_name": "text", "compute_capability_major": "int",
             "compute_capability_minor": "int", "sm_count": "int"},
        )  # fmt: skip
        system = _rows(
            database, "read_only_system_config", {"framework": "text", "dlprof_version": "text"}
        )
        faults = database.faults()
    tables["devices"] = devices.select(
        process,
        pl.col("device_id").alias("device"),
        pl.col("gpu_name").fill_null(pl.lit(gpu)).alias("name"),
        pl.struct("compute_capability_major", "compute_capability_minor")
        .map_elements(lambda row: capability(*row.values()), pl.String)
        .alias("cc"),
        "sm_count",
    )
    framework = system["framework"][0] if system.height else None
    tables["processes"] = pl.DataFrame(
        {"process": [0], "pid": pids[:1] or [None], "framework": [framework]},
        schema={"process": pl.Int32, "pid": pl.Int64, "framework": pl.String},
    )
    threads = pl.concat([tables["ranges"].select("thread"), tables["calls"].select("thread")])
    tables["threads"] = threads.unique().sort("thread").with_columns(process, os_tid="thread")
    version = system["dlprof_version"][0] if system.height else None
    origin = {"format": "dlprof", "tool": "DLProf", "version": version, "paths": [str(path)]}
    trace = sound_trace(tables, origin)
    for note in faults:
        trace.note(*note)
    if len(pids) > 1:
        trace.note("warning", "processes in one DLProf database, shown as one process", len(pids))
    return trace


def _rows(database: Database, table: str, wanted: Mapping[str, Kind]) -> pl.DataFrame:
    """``database.rows``; columns that a damaged table lacks are null."""
    return filled(database.rows(table, wanted), wanted)


def _numbered(frames: list[pl.DataFrame], column: str) -> list[int]:
    values = pl.concat([frame.select(pl.col(column)) for frame in frames])[column]
    distinct: list[int] = values.drop_nulls().unique().sort().to_list()
    return distinct


def _launched(database: Database, table: str, more: tuple[str, ...], group: int) -> pl.DataFrame:
    """Read calls' work on the device, with new correlation ids, because DLProf dropped the original ones."""
    wanted: dict[str, Kind] = {**_WHERE, **dict.fromkeys(more, "int")}
    frame = _rows(database, table, wanted)
    number = pl.int_range(pl.len(), dtype=pl.Int64)
    return frame.with_columns((number * 3 + group + 1).alias("correlation"))


def _kernels(database: Database, frame: pl.DataFrame, words: Mapping[int, str]) -> pl.DataFrame:
    sizes = _rows(database, "read_only_grid_block", dict.fromkeys(("id", "x", "y", "z"), "int"))
    extents = {
        row[0]: f"{row[1]},{row[2]},{row[3]}" for row in sizes.iter_rows() if None not in row
    }
    return _placed(frame).with_columns(
        labels(frame["long_name_id"], words, "?").alias("name"),
        labels(frame["grid_id"], extents, "?").alias("grid"),
        labels(frame["block_id"], extents, "?").alias("block"),
    )


def _memops(copies: pl.DataFrame, sets: pl.DataFrame) -> pl.DataFrame:
    copied = _placed(copies).with_columns(
        labels(copies["copy_kind"], COPIES, "kind {}").alias("kind"),
        copies["num_bytes"].alias("bytes"),
    )
    was_set = _placed(sets).with_columns(
        pl.lit("memset", pl.Categorical).alias("kind"), sets["num_bytes"].alias("bytes")
    )
    return pl.concat([copied, was_set])


def _placed(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        pl.col("device_id").alias("device"),
        pl.col("gpu_start").alias("start"),
        pl.col("gpu_stop").alias("end"),
        "correlation",
    )


def _calls(
    database: Database, words: Mapping[int, str], kernels: pl.DataFrame, *named_calls: pl.DataFrame
) -> pl.DataFrame:
    columns = [
        pl.col("thread_id").alias("thread"),
        pl.col("api_start").alias("start"),
        pl.col("api_stop").alias("end"),
        pl.col("correlation"),
    ]
    parts = [kernels.select(columns)]  # DLProf has the kernel's name, not the launch's
    for frame in named_calls:
        names = labels(frame["name_id"], words, "?").alias("name")
        parts.append(frame.with_columns(names).select(*columns, "name"))
    others = _rows(
        database,
        "read_only_cuda_calls",
        dict.fromkeys(("name_id", "api_start", "api_stop", "thread_id"), "int"),
    )
    names = labels(others["name_id"], words, "?").alias("name")
    none = pl.lit(None, pl.Int64).alias("correlation")
    parts.append(others.with_columns(names, none).select(*columns, "name"))
    return pl.concat(parts, how="diagonal").sort("start")


def _ranges(database: Database, words: Mapping[int, str]) -> pl.DataFrame:
    """Return an op range for each instance, inside a layer range if the op's name contains the layer."""
    ops = {row["id"]: row for row in _rows(database, "read_only_ops", _OP).iter_rows(named=True)}
    frame = _rows(database, "read_only_op_instances", _INSTANCE)
    # instances of one op with the same shapes share a text
    key = ["read_only_ops_id", "input_shapes_id", "output_shapes_id"]
    kinds = frame.select(key).unique(maintain_order=True)
    found = [_text(ops.get(row[0]), words, row[1], row[2]) for row in kinds.iter_rows()]
    kinds = kinds.with_columns(
        pl.Series("op_text", [text for text, _, _ in found], dtype=pl.String),
        pl.Series("direction", [direction for _, direction, _ in found], dtype=pl.String),
        pl.Series("layer", [layer for _, _, layer in found], dtype=pl.String),
    )
    joined = frame.join(kinds, on=key, how="left", nulls_equal=True, maintain_order="left")
    thread_and_times = ["process_id", "thread_id", "cpu_start", "cpu_stop"]
    layers = joined.drop_nulls("layer").select(
        *thread_and_times, text="layer", category=pl.lit("layer"), outer=pl.lit(0)
    )
    calls = joined.select(*thread_and_times, text="op_text", category="direction", outer=pl.lit(1))
    both = pl.concat([layers, calls]).sort("cpu_start", "outer", maintain_order=True)
    return both.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        "process_id",
        pl.col("thread_id").alias("thread"),
        pl.col("cpu_start").alias("start"),
        pl.col("cpu_stop").alias("end"),
        pl.lit(DOMAIN, pl.Categorical).alias("domain"),
        pl.col("category").cast(pl.Categorical),
        pl.col("text").cast(pl.Categorical),
        pl.lit("pushpop", pl.Categorical).alias("kind"),
    )


def _text(
    op: Mapping[str, Any] | None, words: Mapping[int, str], inputs: int | None, outputs: int | None
) -> tuple[str | None, str | None, str | None]:
    """Return the text, direction and layer of an op with these shapes."""
    if op is None:
        return None, None, None
    dtype = DTYPES.get(words.get(op["data_type_id"]) or "", "?")
    shapes = _shapes(words.get(inputs or 0), dtype)
    results = _shapes(words.get(outputs or 0), dtype)
    call = OpCall(
        words.get(op["op_type_id"]) or op["op_id"] or "?",
        shapes or (),
        results,
        params=(("op_id", op["op_id"]),),
        frames=frames_of((op["stack_trace"] or "").splitlines()),
    )
    path = (op["op_name"] or "").replace("[", "(").replace("]", ")")
    direction = _DIRECTIONS.get(words.get(op["direction_id"]) or "")
    return format_call(call, None), direction, layer_of(path)


def _shapes(text: str | None, dtype: str) -> tuple[Arg, ...] | None:
    """Return the tensors of ``[[32,3,32,32],[6]]``; None if DLProf has no shapes."""
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list):
        return None
    return tuple(
        TensorSpec(dtype, tuple(dim if type(dim) is int and dim >= 0 else "?" for dim in shape))
        for shape in value
        if isinstance(shape, list)
    )
