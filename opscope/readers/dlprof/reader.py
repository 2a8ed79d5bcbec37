"""Read DLProf's databases (``dlprof_dldb.sqlite``): ops, their instances, kernels, copies and calls.

DLProf has already linked kernels to ops. The trace gives ops as ranges in opscope's own text, and a call for
each kernel, so that attribution finds the same op again. DLProf's id of the op (``CONV2D_1``) is its
parameter ``op_id``; its name and call stack are a marker around it, as in the export that DLProf read.
DLProf's unassociated ops are not ops here, but calls outside all ops, as in any trace.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from opscope.core.dialects.markers import DTYPES, frames_of, layer_of
from opscope.core.rangetext import format_call
from opscope.core.schema import Arg, OpCall, TensorSpec
from opscope.core.tables.trace import PROFILE_NAME, Trace
from opscope.readers.errors import BadInput
from opscope.readers.nsys.cuda import COPIES
from opscope.readers.nsys.strings import labels
from opscope.readers.nsys.target import capability
from opscope.readers.sound import sound_trace
from opscope.readers.sqlite import Database, Kind, filled, is_database

DOMAIN: Final = "opscope.dlprof"
UNASSOCIATED: Final = "unassociated_"
#: The columns of DLProf's table with the process's versions.
_VERSIONS: Final = {
    "driver_version": "driver", "cuda_version": "cuda", "cudnn_version": "cudnn",
    "nsys_version": "nsys", "cpu_model": "cpu",
}  # fmt: skip
_DIRECTIONS: Final = {"fprop": "forward", "bprop": "backward"}
#: DLProf's number of a repeated call; markers write it as ``(2)``.
_REPEAT: Final = re.compile(r"\[([0-9]{1,9})\](?=/|\Z)")
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
_KERNEL: Final = ("long_name_id", "name_id", "grid_id", "block_id", "read_only_ops_id")
_SIZES: Final = "read_only_grid_block"
_COPIES: Final = "read_only_memcpys", "read_only_memsets"
_OTHER_CALLS: Final = "read_only_cuda_calls", "read_only_cuda_syncs"
#: Tables and columns without which nothing can be read. Databases from before 1.8 may lack others.
_NEEDED: Final = {
    "read_only_ops": ("id", "op_name"),
    "read_only_op_instances": ("id", "read_only_ops_id", "cpu_start", "cpu_stop", "thread_id"),
    "read_only_kernels": ("api_start", "api_stop", "gpu_start", "gpu_stop", "thread_id"),
}

#: The last version of DLProf. Its viewer took databases from 1.2 up to its own version.
_LAST: Final = (1, 8)
#: Where the version is: the table and its column.
_SAYS_VERSION: Final = (
    ("db_version", "current_version"),
    ("read_only_system_config", "dlprof_version"),
)
_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?\Z")


def recognise(path: str | os.PathLike[str]) -> bool:
    """Whether the file is a DLProf database, of any version. Never raises."""
    return is_database(path, lambda tables: _is_ours(tables) or _names_itself(tables))


def _is_ours(database: Database) -> bool:
    return all(database.has(table, *columns) for table, columns in _NEEDED.items())


def read(path: str | os.PathLike[str], *, gpu: str | None = None) -> Trace:
    """Return the trace in a DLProf database; ``gpu`` names devices that the database does not name.

    Raises BadInput if the file is not a DLProf database.
    """
    with Database(path) as database:
        if not _is_ours(database):
            if _names_itself(database):
                raise BadInput(path, _refusal(database))
            raise BadInput(path, "not a database of DLProf (it lacks DLProf's tables)")
        warnings = [_warning(database), _lacks(database)]
        texts = _rows(database, "dictionary", {"id": "int", "string": "text"})
        words = dict(texts.select("id", "string").iter_rows())
        kernels = _launch(
            database,
            "read_only_kernels",
            _KERNEL,
            0,
        )
        copies = _launch(database, _COPIES[0], ("name_id", "num_bytes", "copy_kind"), 1)
        sets = _launch(database, _COPIES[1], ("name_id", "num_bytes"), 2)
        ops = {
            row["id"]: row for row in _rows(database, "read_only_ops", _OP).iter_rows(named=True)
        }
        ranges = _ranges(database, words, ops)
        pids = _number([ranges, kernels, copies, sets], "process_id")
        tables = {
            "ranges": ranges.drop("process_id"),
            "kernels": _kernels(database, kernels, words),
            "calls": _calls(database, words, ops, kernels, copies, sets),
        }
        if any(map(database.has, _COPIES)):
            tables["memops"] = _memops(copies, sets)
        process = pl.lit(0, pl.Int32).alias("process")
        tables = {name: frame.with_columns(process) for name, frame in tables.items()}
        devices = _rows(
            database,
            "read_only_gpu_infos",
            {"device_id": "int", "gpu_name": "text", "compute_capability_major": "int",
             "compute_capability_minor": "int", "sm_count": "int"},
        )  # fmt: skip
        system = _rows(
            database,
            "read_only_system_config",
            dict.fromkeys(("framework", "dlprof_version", PROFILE_NAME, *_VERSIONS), "text"),
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
        {
            "process": [0],
            "pid": pids[:1] or [None],
            "framework": [framework],
            "versions": [_versions(system)],
        },
        schema={
            "process": pl.Int32, "pid": pl.Int64, "framework": pl.String, "versions": pl.String,
        },
    )  # fmt: skip
    threads = pl.concat([tables["ranges"].select("thread"), tables["calls"].select("thread")])
    tables["threads"] = threads.unique().sort("thread").with_columns(process, os_tid="thread")
    version = system["dlprof_version"][0] if system.height else None
    origin = {"format": "dlprof", "tool": "DLProf", "version": version, "paths": [str(path)]}
    if system.height and (name := system[PROFILE_NAME][0]):
        origin[PROFILE_NAME] = name
    trace = sound_trace(tables, origin)
    for note in faults:
        trace.note(*note)
    for warning in filter(None, warnings):
        trace.note("warning", warning, 1)
    if len(pids) > 1:
        trace.note("warning", "processes in one DLProf database, shown as one process", len(pids))
    return trace


def _lacks(database: Database) -> str | None:
    """Return the names of the tables and columns that the database lacks; their values are not known."""
    wanted = {
        "read_only_ops": _OP,
        "read_only_op_instances": _INSTANCE,
        "read_only_kernels": (*_WHERE, *_KERNEL),
    }
    tables = ("dictionary", _SIZES, *_COPIES, *_OTHER_CALLS)
    missing = [table for table in tables if not database.has(table)]
    missing += [
        f"{table}.{column}"
        for table, columns in wanted.items()
        for column in columns
        if not database.has(table, column)
    ]
    if not missing:
        return None
    return f"the database lacks what DLProf 1.8 has, so this is not known: {', '.join(missing)}"


def _versions(system: pl.DataFrame) -> str | None:
    """Return the versions of the machine's software as JSON."""
    row = next(system.iter_rows(named=True), {})
    versions_of_row = {key: row.get(name) for name, key in _VERSIONS.items()}
    return (
        json.dumps({key: value for key, value in versions_of_row.items() if value})
        if any(versions_of_row.values())
        else None
    )


def _rows(database: Database, table: str, wanted: Mapping[str, Kind]) -> pl.DataFrame:
    """``database.rows``; columns that a damaged table lacks are null."""
    return filled(database.rows(table, wanted), wanted)


def _number(frames: list[pl.DataFrame], column: str) -> list[int]:
    values = pl.concat([frame.select(pl.col(column)) for frame in frames])[column]
    distinct: list[int] = values.drop_nulls().unique().sort().to_list()
    return distinct


def _launch(database: Database, table: str, more: tuple[str, ...], group: int) -> pl.DataFrame:
    """Read the work that calls launched on the device; give it new correlation ids, because DLProf dropped
    the original ones."""
    wanted: dict[str, Kind] = {**_WHERE, **dict.fromkeys(more, "int")}
    frame = _rows(database, table, wanted)
    number = pl.int_range(pl.len(), dtype=pl.Int64)
    return frame.with_columns((number * 3 + group + 1).alias("correlation"))


def _kernels(database: Database, frame: pl.DataFrame, words: Mapping[int, str]) -> pl.DataFrame:
    sizes = _rows(database, _SIZES, dict.fromkeys(("id", "x", "y", "z"), "int"))
    extents = {
        row[0]: f"{row[1]},{row[2]},{row[3]}" for row in sizes.iter_rows() if None not in row
    }
    has_text = pl.col("long_name_id").is_in(pl.Series(list(words), dtype=pl.Int64).implode())
    named = frame.select(pl.when(has_text).then("long_name_id").otherwise("name_id")).to_series()
    extent = [
        labels(frame[f"{name}_id"], extents, "?").alias(name)
        for name in ("grid", "block")
        if database.has(_SIZES) and database.has("read_only_kernels", f"{name}_id")
    ]
    return _place(frame).with_columns(labels(named, words, "?").alias("name"), *extent)


def _memops(copies: pl.DataFrame, sets: pl.DataFrame) -> pl.DataFrame:
    copied = _place(copies).with_columns(
        labels(copies["copy_kind"], COPIES, "kind {}").alias("kind"),
        copies["num_bytes"].alias("bytes"),
    )
    was_set = _place(sets).with_columns(
        pl.lit("memset", pl.Categorical).alias("kind"), sets["num_bytes"].alias("bytes")
    )
    return pl.concat([copied, was_set])


def _place(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        pl.col("device_id").alias("device"),
        pl.col("gpu_start").alias("start"),
        pl.col("gpu_stop").alias("end"),
        "correlation",
    )


def _calls(
    database: Database,
    words: Mapping[int, str],
    ops: Mapping[int, Mapping[str, Any]],
    kernels: pl.DataFrame,
    *named_calls: pl.DataFrame,
) -> pl.DataFrame:
    columns = [
        pl.col("thread_id").alias("thread"),
        pl.col("api_start").alias("start"),
        pl.col("api_stop").alias("end"),
        pl.col("correlation"),
    ]
    # DLProf gives the name of the kernel and not of the launch, except for a launch outside all ops, which is
    # an op of its own
    launches = {number: words.get(op["op_type_id"]) for number, op in ops.items() if _is_call(op)}
    parts = [
        kernels.select(
            *columns,
            pl.col("read_only_ops_id")
            .replace_strict(launches, default=None, return_dtype=pl.String)
            .cast(pl.Categorical)
            .alias("name"),
        )
    ]
    for frame in named_calls:
        names = labels(frame["name_id"], words, "?").alias("name")
        parts.append(frame.with_columns(names).select(*columns, "name"))
    none = pl.lit(None, pl.Int64).alias("correlation")
    for table in _OTHER_CALLS:
        others = _rows(
            database,
            table,
            dict.fromkeys(("name_id", "api_start", "api_stop", "thread_id"), "int"),
        )
        names = labels(others["name_id"], words, "?").alias("name")
        parts.append(others.with_columns(names, none).select(*columns, "name"))
    return pl.concat(parts, how="diagonal").sort("start")


def _is_call(op: Mapping[str, Any]) -> bool:
    """Return whether an op of DLProf's is really a CUDA call outside all ops."""
    return (op["op_name"] or "").startswith(UNASSOCIATED)


def _ranges(
    database: Database, words: Mapping[int, str], ops: Mapping[int, Mapping[str, Any]]
) -> pl.DataFrame:
    """Return an op range for each instance, inside DLProf's marker with the op's name and call stack.

    That is inside a layer range if the op's name contains the layer.
    """
    calls = [number for number, op in ops.items() if _is_call(op)]
    frame = _rows(database, "read_only_op_instances", _INSTANCE)
    frame = frame.filter(~pl.col("read_only_ops_id").is_in(calls).fill_null(False))
    # instances of one op with the same shapes share a text
    key = ["read_only_ops_id", "input_shapes_id", "output_shapes_id"]
    kinds = frame.select(key).unique(maintain_order=True)
    texts_of_ops = [_text(ops.get(row[0]), words, row[1], row[2]) for row in kinds.iter_rows()]
    kinds = kinds.with_columns(
        pl.Series("op_text", [text for text, _, _ in texts_of_ops], dtype=pl.String),
        pl.Series("direction", [direction for _, direction, _ in texts_of_ops], dtype=pl.String),
        pl.Series("layer", [layer for _, _, layer in texts_of_ops], dtype=pl.String),
        pl.Series("marker", [_marker(ops.get(row[0])) for row in kinds.iter_rows()], pl.String),
    )
    joined = frame.join(kinds, on=key, how="left", nulls_equal=True, maintain_order="left")
    thread_and_times = ["process_id", "thread_id", "cpu_start", "cpu_stop"]
    layers = joined.drop_nulls("layer").select(
        *thread_and_times,
        text="layer",
        category=pl.lit("layer"),
        domain=pl.lit(DOMAIN),
        outer=pl.lit(0),
    )
    markers = joined.drop_nulls("marker").select(
        *thread_and_times,
        text="marker",
        category=pl.lit(None, pl.String),
        domain=pl.lit(None, pl.String),
        outer=pl.lit(1),
    )
    op_ranges = joined.select(
        *thread_and_times,
        text="op_text",
        category="direction",
        domain=pl.lit(DOMAIN),
        outer=pl.lit(2),
    )
    every = pl.concat([layers, markers, op_ranges]).sort("cpu_start", "outer", maintain_order=True)
    return every.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        "process_id",
        pl.col("thread_id").alias("thread"),
        pl.col("cpu_start").alias("start"),
        pl.col("cpu_stop").alias("end"),
        pl.col("domain").cast(pl.Categorical),
        pl.col("category").cast(pl.Categorical),
        pl.col("text").cast(pl.Categorical),
        pl.lit("pushpop", pl.Categorical).alias("kind"),
    )


def _marker(op: Mapping[str, Any] | None) -> str | None:
    """Return a marker with the op's name and call stack, as DLProf read it; None for an op without a name."""
    if op is None or not op["op_name"]:
        return None
    stack = _REPEAT.sub(r"(\1)", op["op_name"])
    return str({"traceMarker": (op["stack_trace"] or "").splitlines(), "funcStack": stack})


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
        words.get(op["op_type_id"]) or _last_call(op["op_name"]) or op["op_id"] or "?",
        shapes or (),
        results,
        params=(("op_id", op["op_id"]),),
        frames=frames_of((op["stack_trace"] or "").splitlines()),
    )
    path = (op["op_name"] or "").replace("[", "(").replace("]", ")")
    direction = _DIRECTIONS.get(words.get(op["direction_id"]) or "")
    return format_call(call, None), direction, layer_of(path)


def _last_call(name: str | None) -> str | None:
    """Return the type of an op whose name is a call hierarchy of PyTorch: the last call of it."""
    is_hierarchy = (name or "").startswith("/")
    return _REPEAT.sub("", (name or "").rpartition("/")[2]) or None if is_hierarchy else None


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


def _names_itself(database: Database) -> bool:
    """Whether the database names the DLProf that wrote it, as databases of every kept version do."""
    return any(database.has(table, column) for table, column in _SAYS_VERSION)


def _version(database: Database) -> tuple[int, int] | None:
    """Return the version that wrote the database; None if DLProf never had such a version."""
    for table, column in _SAYS_VERSION:
        if not database.has(table, column):
            continue
        for text in database.rows(table, {column: "text"})[column].to_list()[:1]:
            match = _VERSION.match(text or "")
            if match is not None:
                return int(match[1]), int(match[2])
    return None


def _refusal(database: Database) -> str:
    """Return why a database without the tables of ops cannot be read, and what to do instead."""
    version_there = _version(database)
    whose = "a database of DLProf of an unknown version"
    if version_there is not None:
        whose = f"a database of DLProf {version_there[0]}.{version_there[1]}"
    newer = version_there is not None and version_there > _LAST
    what_is_known = (
        f"which is newer than any that is known (1.{_LAST[1]} was the last)"
        if newer
        else "without the tables of ops and kernels by which those of 1.2 to 1.8 are read"
    )
    return (
        f"{whose}, {what_is_known}: give the export of Nsight Systems that it was made from"
        " (nsys_profile.sqlite)"
    )


def _warning(database: Database) -> str | None:
    """Return a warning about a readable database; None if its version is one of DLProf's."""
    version_there = _version(database)
    if version_there is None:
        return "the database does not name the version of DLProf that wrote it"
    if version_there > _LAST:
        return (
            f"the database is of DLProf {version_there[0]}.{version_there[1]}, newer than any that is known "
            f"(1.{_LAST[1]} was the last)"
        )
    return None
