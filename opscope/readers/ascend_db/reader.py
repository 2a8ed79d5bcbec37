"""Make the tables of a database of torch_npu's profiler or of CANN's msprof.

The layout is that of torch_npu 2.14 (``TableColumnsManager`` in
``torch_npu/profiler/analysis/prof_common_func/_constant.py``) and of CANN 8.5 ("Data in
ascend_pytorch_profiler_{Rank_ID}.db"). Names are numbers of ``STRING_IDS``, times Unix ns; in
``PYTORCH_API``, torch_npu writes times as texts. A kernel is launched by another thread than the thread of
its op: by the task queue's, and the queue's two ends (``Enqueue``, ``Dequeue``) share a connection.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.tables.trace import Trace
from opscope.core.waits import TASKS
from opscope.readers.errors import BadInput
from opscope.readers.kineto.ops import op_text
from opscope.readers.kineto.ranges import category_of
from opscope.readers.sound import sound_trace
from opscope.readers.sqlite import Database, Kind, is_database

_STRINGS: Final = "STRING_IDS"
#: Types of ``PYTORCH_API`` beside ops.
_QUEUE, _PYTHON, _MARK = 50002, 50003, 50004
#: Above the connections of CANN, those of the task queue.
_QUEUED: Final = 1 << 40
_TIMES: Final[dict[str, Kind]] = {"startNs": "int", "endNs": "int"}
_CALL: Final[dict[str, Kind]] = {
    **_TIMES, "globalTid": "int", "connectionId": "int", "name": "int", "type": "int",
}  # fmt: skip
_API: Final[dict[str, Kind]] = {
    **_CALL, "startNs": "text", "endNs": "text", "sequenceNumber": "int", "inputDtypes": "int",
    "inputShapes": "int",
}  # fmt: skip
_TASK: Final[dict[str, Kind]] = {
    **_TIMES, "deviceId": "int", "connectionId": "int", "globalTaskId": "int", "taskType": "int",
    "streamId": "int",
}  # fmt: skip
_MEMORY: Final[dict[str, Kind]] = {
    "size": "int", "allocationTime": "int", "releaseTime": "int", "allocationTotalAllocated": "int",
    "allocationTotalReserved": "int", "releaseTotalAllocated": "int", "releaseTotalReserved": "int",
    "deviceId": "int",
}  # fmt: skip
_SHORT: Final = {"startNs": "start", "endNs": "end", "deviceId": "device", "streamId": "stream"}
_PLACE: Final = ("device", "stream", "start", "end")


def recognise(path: Path) -> bool:
    """Whether the SQLite file is such a database. Never raises."""
    try:
        return is_database(path, _is_ours)
    except OSError:
        return False


def _is_ours(database: Database) -> bool:
    has_task = database.has("TASK", "startNs", "endNs", "globalTaskId")
    return database.has(_STRINGS, "id", "value") and (
        has_task or database.has("PYTORCH_API", "startNs", "endNs", "name")
    )


def read(path: Path) -> Trace:
    """Return the trace of a database. Raises BadInput."""
    with Database(path) as database:
        if not _is_ours(database):
            raise BadInput(path, "not a database of Ascend's profilers (it lacks their tables)")
        tables = _Read(database).tables()
        faults = database.faults()
        is_of_device = database.has("TASK", "startNs")
    origin: dict[str, Any] = {
        "format": "ascend_db",
        "tool": "Ascend's profiler",
        "version": None,
        "paths": [str(path)],
    }
    if is_of_device:
        origin["gpu"] = True
    trace = sound_trace(tables, origin)
    for fault in faults:
        trace.note(*fault)
    if not is_of_device:
        trace.note(
            "info",
            "the database has no tasks of a device: level 0, or the CPU alone was recorded",
            1,
        )
    return trace


class _Read:
    """The content of a database, table by table."""

    def __init__(self, database: Database) -> None:
        self._database = database
        strings = database.rows(_STRINGS, {"id": "int", "value": "text"})
        self._strings = strings.drop_nulls("id").unique("id", keep="first")

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return the tables of the trace."""
        api = self._with_texts(self._rows("PYTORCH_API", _API), "name")
        cann = self._with_texts(self._rows("CANN_API", _CALL), "name")
        api = api.join(self._connections(), left_on="connectionId", right_on="id", how="left")
        queued = _queue_of_launches(api, cann)
        tasks = self._rows("TASK", _TASK).join(queued, on="connectionId", how="left")
        tasks = tasks.with_columns(pl.coalesce("queued", "connectionId").alias("correlation"))
        pids = pl.concat([api["globalTid"], cann["globalTid"]]).drop_nulls() // (1 << 32)
        pid = next(iter(pids.mode()), None)
        process = pl.lit(0, pl.Int32).alias("process")
        work = {
            "kernels": pl.concat(
                [self._kernels(tasks), self._collectives(tasks)], how="diagonal_relaxed"
            ),
            "syncs": self._waits(tasks),
            "memops": self._copies(tasks),
            "calls": _calls(api, cann),
            "ranges": self._ranges(api),
            "allocations": self._allocations(),
        }
        tables = {name: frame.with_columns(process) for name, frame in work.items()}
        tables["processes"] = self._process(pid)
        tables["clocks"] = pl.DataFrame({"clock_domain": [0], "kind": ["unix"], "to_unix_ns": [0]})
        tables["devices"] = self._devices(tables["kernels"]).with_columns(process)
        return tables

    def _rows(self, table: str, columns: dict[str, Kind]) -> pl.DataFrame:
        """Return a table's rows with all of ``columns``, under our names; missing ones are null."""
        has = table in self._database.tables
        rows = self._database.rows(table, columns) if has else pl.DataFrame()
        lacks = [pl.lit(None, pl.Int64).alias(name) for name in columns if name not in rows.columns]
        numbers = rows.select(pl.all().cast(pl.Int64, strict=False)).with_columns(lacks)
        return numbers.select(
            pl.col(name).alias(_SHORT.get(name, name)) for name in columns
        )  # fmt: skip

    def _connections(self) -> pl.DataFrame:
        """The first connection of each number of ``PYTORCH_API``: the two ends of a queue have the same
        connection."""
        rows = self._rows("CONNECTION_IDS", {"id": "int", "connectionId": "int"}).drop_nulls()
        return rows.unique("id", keep="first").rename({"connectionId": "queue"})

    def _with_texts(self, rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
        """Return the rows with the texts of columns that are numbers of ``STRING_IDS``."""
        for name in columns:
            texts = self._strings.rename({"id": name, "value": f"{name}_text"})
            rows = rows.join(texts, on=name, how="left", maintain_order="left")
            rows = rows.drop(name).rename({f"{name}_text": name})
        return rows

    def _kernels(self, tasks: pl.DataFrame) -> pl.DataFrame:
        """The kernels: tasks with a line in ``COMPUTE_TASK_INFO``."""
        info = self._rows(
            "COMPUTE_TASK_INFO", {"globalTaskId": "int", "name": "int", "blockDim": "int"}
        )
        of_task = tasks.unique("globalTaskId", keep="first")
        joined = self._with_texts(info, "name").join(
            of_task, on="globalTaskId", maintain_order="left"
        )
        grid = pl.format("{},1,1", "blockDim").alias("grid")
        return joined.select(*_PLACE, "name", "correlation", grid)

    def _collectives(self, tasks: pl.DataFrame) -> pl.DataFrame:
        """The collectives, each as long as Ascend says; device and stream are taken from its tasks."""
        ops = self._rows(
            "COMMUNICATION_OP",
            {**_TIMES, "opName": "int", "connectionId": "int", "deviceId": "int"},
        )
        where = tasks.drop_nulls("connectionId").group_by("connectionId").agg(
            pl.col("device").first(), pl.col("stream").min(), pl.col("correlation").first()
        )  # fmt: skip
        joined = self._with_texts(ops, "opName").join(
            where, on="connectionId", how="left", maintain_order="left"
        )
        return joined.select(
            pl.coalesce("device_right", "device").alias("device"), "stream", "start", "end",
            pl.col("opName").alias("name"), "correlation",
        )  # fmt: skip

    def _waits(self, tasks: pl.DataFrame) -> pl.DataFrame:
        """The device's waits and signals, which are not work."""
        kinds = self._strings.filter(pl.col("value").str.contains(TASKS))["id"]
        waits = self._with_texts(
            tasks.filter(pl.col("taskType").is_in(kinds.implode())), "taskType"
        )
        return waits.select(*_PLACE, pl.col("taskType").str.to_lowercase().alias("kind"))

    def _copies(self, tasks: pl.DataFrame) -> pl.DataFrame:
        """The copies of a device. The file explains the values of ``memcpyOperation``."""
        info = self._rows(
            "MEMCPY_INFO", {"globalTaskId": "int", "size": "int", "memcpyOperation": "int"}
        )
        names = pl.DataFrame(schema={"memcpyOperation": pl.Int64, "kind": pl.String})
        if self._database.has("ENUM_MEMCPY_OPERATION", "id", "name"):
            enum = self._database.rows("ENUM_MEMCPY_OPERATION", {"id": "int", "name": "text"})
            names = enum.rename({"id": "memcpyOperation", "name": "kind"}).unique(
                "memcpyOperation", keep="first"
            )
        of_task = tasks.unique("globalTaskId", keep="first")
        joined = info.join(names, on="memcpyOperation", how="left").join(of_task, on="globalTaskId")
        ways = {
            "host to device": "HtoD",
            "device to host": "DtoH",
            "device to device": "DtoD",
            "host to host": "HtoH",
        }
        kind = pl.col("kind").str.to_lowercase()
        return joined.select(
            *_PLACE, kind.replace(ways).alias("kind"), pl.col("size").alias("bytes"), "correlation"
        )

    def _ranges(self, api: pl.DataFrame) -> pl.DataFrame:
        """The framework's ops with shapes, Python's frames, the program's marks, and steps."""
        rows = self._with_texts(api.filter(pl.col("type") != _QUEUE), "inputDtypes", "inputShapes")
        rows = rows.filter(pl.col("name").is_not_null())
        distinct = rows.select("type", "name", "inputShapes", "inputDtypes").unique(
            maintain_order=True
        )
        meanings = [_meaning(*row) for row in distinct.iter_rows()]
        schema = {"domain": pl.String, "category": pl.String, "text": pl.String}
        distinct = distinct.hstack(pl.DataFrame(meanings, schema=schema, orient="row"))
        joined = rows.join(distinct, on=["type", "name", "inputShapes", "inputDtypes"], how="left",
                           nulls_equal=True, maintain_order="left")  # fmt: skip
        seq = pl.col("sequenceNumber")
        frame = joined.select(
            _thread().alias("thread"), "start", "end", "domain", "category", "text",
            pl.when(seq >= 0).then(seq).alias("seq"), pl.lit("pushpop").alias("kind"),
        )  # fmt: skip
        return frame.with_row_index("id").cast({"id": pl.Int64})

    def _allocations(self) -> pl.DataFrame:
        rows = self._rows("OP_MEMORY", _MEMORY)
        total = (("allocation", 1), ("release", -1))
        sides = [
            rows.select(
                "device", pl.col(f"{side}Time").alias("time"),
                (pl.col("size") * sign).alias("bytes"), pl.col(f"{side}TotalAllocated").alias("total"),
                pl.col(f"{side}TotalReserved").alias("reserved"),
            ).filter(pl.col("time") > 0)
            for side, sign in total
        ]  # fmt: skip
        return pl.concat(sides).sort("time", maintain_order=True)

    def _process(self, pid: Any) -> pl.DataFrame:
        host = None
        if self._database.has("HOST_INFO", "hostName"):
            host = next(
                iter(self._database.rows("HOST_INFO", {"hostName": "text"})["hostName"]), None
            )
        ranks = self._rows("RANK_DEVICE_MAP", {"rankId": "int"})["rankId"].drop_nulls().unique()
        rank = int(ranks[0]) if len(ranks) == 1 and 0 <= int(ranks[0]) < 1 << 31 else None
        framework = "torch" if "PYTORCH_API" in self._database.tables else None
        return pl.DataFrame(
            {"process": [0], "pid": [pid], "host": [host], "rank": [rank], "framework": [framework],
             "clock_domain": [0]},
            schema_overrides={"pid": pl.Int64, "host": pl.String, "rank": pl.Int32, "framework": pl.String},
        )  # fmt: skip

    def _devices(self, kernels: pl.DataFrame) -> pl.DataFrame:
        named = pl.DataFrame(schema={"device": pl.Int64, "name": pl.String})
        if self._database.has("NPU_INFO", "id", "name"):
            named = self._database.rows("NPU_INFO", {"id": "int", "name": "text"}).rename(
                {"id": "device"}
            )
        ran = kernels.select(pl.col("device").drop_nulls().unique())
        of_number = named.drop_nulls("device").unique("device", keep="first")
        both = (
            pl.concat([of_number.select("device"), ran])
            .unique()
            .join(of_number, on="device", how="left")
        )
        return both.with_columns(pl.col("name").fill_null("Ascend NPU")).sort("device")


def _thread() -> pl.Expr:
    return pl.col("globalTid") % (1 << 32)


def _queue_of_launches(api: pl.DataFrame, cann: pl.DataFrame) -> pl.DataFrame:
    """Return for each connection of a launch within a ``Dequeue`` the connection of its ``Enqueue``."""
    taken = api.filter((pl.col("type") == _QUEUE) & pl.col("name").str.starts_with("Dequeue"))
    taken = taken.select("start", "globalTid", pl.col("end").alias("until"), "queue").drop_nulls()
    launches = cann.drop_nulls(["connectionId", "start"]).sort("start")
    inside = launches.join_asof(
        taken.sort("start"), on="start", by="globalTid", check_sortedness=False
    ).filter(pl.col("end") <= pl.col("until"))
    numbered = inside.select("connectionId", (pl.col("queue") + _QUEUED).alias("queued"))
    return numbered.unique("connectionId", keep="first", maintain_order=True)


def _calls(api: pl.DataFrame, cann: pl.DataFrame) -> pl.DataFrame:
    """The calls of CANN, and both ends of the task queue; only ``Enqueue`` launches something."""
    ends = api.filter(pl.col("type") == _QUEUE)
    puts = pl.col("name").str.starts_with("Enqueue")
    span = pl.struct("start", "end")
    both = [
        ends.with_columns(correlation=pl.when(puts).then(pl.col("queue") + _QUEUED)),
        # if a call and calls inside it share a connection, the outermost launches
        cann.sort("start", "end", descending=[False, True]).with_columns(
            correlation=pl.when(span == span.first().over("connectionId")).then("connectionId")
        ),
    ]
    return pl.concat(
        frame.select(_thread().alias("thread"), "start", "end", "name", "correlation")
        for frame in both
    )


def _meaning(
    kind: int, name: str, shapes: str | None, dtypes: str | None
) -> tuple[str, str | None, str]:
    """Return domain, category and text of a range of the framework."""
    if kind == _PYTHON:
        return "python", category_of("python", name), name
    if kind == _MARK:
        return "user", category_of("user", name), name
    category = category_of("op", name)
    if category == "step":
        return "user", category, f"step {name.rpartition('#')[2]}"
    return "kineto", category, op_text(name, *_arguments(shapes, dtypes), b"", b"", b"")


def _arguments(shapes: str | None, dtypes: str | None) -> tuple[bytes, bytes]:
    """Return sizes and dtypes of the arguments (``2,3;4`` and ``float;Scalar``) as Kineto's JSON has them."""
    if not shapes or len(shapes) > 1 << 14:
        return b"", b""
    try:
        sizes = [
            [int(size) for size in part.split(",")] if part.strip() else []
            for part in shapes.split(";")
        ]
    except ValueError:  # no sizes
        return b"", b""
    kinds = [*(dtypes or "").split(";"), *[""] * len(sizes)][: len(sizes)]
    return json.dumps(sizes).encode(), json.dumps(kinds).encode()
