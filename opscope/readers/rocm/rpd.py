"""Read rocmProfileData's ``.rpd``: calls, what they launched on a device, PyTorch's ops, samples.

Schema: ``rocpd_python/rocpd/schema_data/tableSchema.cmd`` of ROCm/rocmProfileData and what its data sources
(``rpd_tracer/*DataSource.cpp``) write. It is an ancestor of rocpd, not the same. Traps:

* ``rocpd_kernelapi`` has a grid as the call gives it: hipLaunchKernel counts blocks, hipExtModuleLaunchKernel
  and hipHccModuleLaunchKernel count work-items;
* ``args_id`` is a row of ``rocpd_ustring`` where that table exists, else of ``rocpd_string``;
* an op of type Barrier is a wait, not work; a copy's times may be wrong (end before start);
* the tracer records its own work among the calls (``OpTable::writeRows``).

Ranges are calls as well: ``UserMarker`` has its text in the arguments; PyTorch's ops (domain ``torch``) have
their name as the call's, and sequence number and sizes as JSON in the arguments.
"""

from __future__ import annotations

import json
from typing import Any, Final

import polars as pl

from opscope.readers.sqlite import Column, Database, Kind, filled

from .marks import ROCTX
from .parts import Parts
from .rocpd import _place, _Texts

#: Calls whose grid counts work-items: their parameter is globalWorkSize.
_WORK_ITEMS: Final = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
#: hipMemcpyKind (hip/include/hip/driver_types.h).
_KINDS: Final = {0: "HtoH", 1: "HtoD", 2: "DtoH", 3: "DtoD", 4: "unknown"}
_COPY: Final = r"(?i)copy|memcpy|fill|memset"
_SET: Final = r"(?i)fill|memset"
_WAIT: Final = r"(?i)barrier|marker"
_MARKERS: Final = ("UserMarker", "PytorchAutograd")
_CALL: Final = r"^(?:__)?(?:hip|hsa|cuda|cu[A-Z])"
_TRACER: Final = r"::|^(?:hcc_activity_callback|resourceLock|rlog)"
#: The domains that roctx writes where the schema has domains.
_ROCTX: Final = ("roctx", "nvtx")
#: The domain of ranges that are not ops: a framework's or a tool's own work.
_RUNTIME: Final = "runtime"
_NO_KERNELS: Final = "barriers of streams, which are waits: shown as such, not as work"


def read(database: Database, parts: Parts) -> None:
    """Add the data of the database to ``parts``. Raises BadInput."""
    parts.tool = "rocmProfileData"
    strings = _Texts(_small(database, "rocpd_string", {"id": "int", "string": "text"}), "string")
    arguments = strings
    if database.has("rocpd_ustring", "id", "string"):
        arguments = _Texts(
            _small(database, "rocpd_ustring", {"id": "int", "string": "text"}), "string"
        )
    calls = _calls(database, strings, arguments)
    _add_calls(calls, parts)
    _add_ops(database, calls, strings, parts)
    _add_samples(database, parts)


def _small(database: Database, table: str, columns: dict[str, Kind]) -> pl.DataFrame:
    return filled(database.rows(table, columns), columns)


def _large(database: Database, table: str, columns: dict[str, Column]) -> pl.DataFrame:
    pieces = database.scan(table, columns, lambda frame, _: filled(frame, columns))
    return pl.concat(pieces, how="vertical_relaxed") if pieces else filled(pl.DataFrame(), columns)


def _calls(database: Database, strings: _Texts, arguments: _Texts) -> pl.DataFrame:
    wanted: dict[str, Column] = dict.fromkeys(
        ("id", "pid", "tid", "start", "end", "apiName_id", "args_id", "domain_id", "category_id"),
        "int",
    )
    frame = _large(database, "rocpd_api", wanted)
    return frame.select(
        "id", "pid", "tid", "start", "end",
        strings.of(frame["apiName_id"]).cast(pl.String).alias("name"),
        arguments.of(frame["args_id"]).alias("args"),
        strings.of(frame["domain_id"]).cast(pl.String).alias("domain"),
        strings.of(frame["category_id"]).cast(pl.String).alias("category"),
    )  # fmt: skip


def _add_calls(calls: pl.DataFrame, parts: Parts) -> None:
    name, domain = pl.col("name").fill_null(""), pl.col("domain")
    marker = name.is_in(_MARKERS) | domain.is_in(_ROCTX).fill_null(False)
    call = domain.is_in(["hip", "hsa", "cuda"]).fill_null(False) | (
        domain.is_null() & name.str.contains(_CALL)
    )
    tracer = (domain == "rpd_tracer").fill_null(False) | (
        domain.is_null() & name.str.contains(_TRACER)
    )
    parts.add(
        "calls",
        calls.filter(call & ~marker).select(
            "pid", "tid", "start", "end", "name", pl.col("id").alias("correlation")
        ),
    )
    shown = ("pid", "tid", "start", "end")
    text = pl.col("args").cast(pl.String)
    marked = calls.filter(marker)
    if len(marked):
        instant = (pl.col("category") == "mark").fill_null(False)
        parts.add(
            "ranges",
            marked.select(
                *shown,
                text.alias("text"),
                pl.lit(ROCTX).alias("domain"),
                pl.when(instant).then(pl.lit("mark")).alias("kind"),
            ),
        )
    others = calls.filter(~(marker | call))
    if not len(others):
        return
    torch = others.filter((domain == "torch").fill_null(False))
    if len(torch):
        parts.add(
            "ranges", torch.select(*shown, _torch_texts(torch), pl.lit(ROCTX).alias("domain"))
        )
    rest = others.filter((domain != "torch").fill_null(True))
    if len(rest):
        own = (
            pl.when(tracer).then(pl.lit(_RUNTIME)).otherwise(pl.coalesce("domain", pl.lit("rlog")))
        )
        parts.add("ranges", rest.select(*shown, pl.col("name").alias("text"), own.alias("domain")))
        mine = int(rest.select(tracer.sum()).item())
        if mine:
            spent = rest.filter(tracer).select((pl.col("end") - pl.col("start")).sum()).item()
            parts.note(
                "info",
                f"calls of rocmProfileData's tracer itself, {int(spent or 0):,} ns in all",
                mine,
            )


def _torch_texts(rows: pl.DataFrame) -> pl.Series:
    """Return PyTorch's own texts (``aten::mm, seq = 3, op_id = 5, sizes = [[2, 3], [3, 4]]``)."""
    text_of_args: dict[tuple[str | None, str | None], str | None] = {}
    texts = []
    for key in rows.select("name", pl.col("args").cast(pl.String)).iter_rows():
        if key not in text_of_args:
            text_of_args[key] = _torch_text(*key)
        texts.append(text_of_args[key])
    return pl.Series("text", texts, dtype=pl.String)


def _torch_text(name: str | None, args: str | None) -> str | None:
    try:
        values: Any = json.loads(args) if args and len(args) < 1 << 16 else {}
    except (ValueError, RecursionError):
        values = {}
    if name is None or not isinstance(values, dict):
        return name
    seq, number, sizes = values.get("seq"), values.get("op_id"), values.get("sizes")
    text = name
    if isinstance(seq, int) and seq >= 0:
        text += f", seq = {seq}"
    if isinstance(number, int):
        text += f", op_id = {number}"
        if isinstance(sizes, list):
            text += f", sizes = {json.dumps(sizes)}"
    return text


# ------------------------------------------------------------------------------ what ran


def _add_ops(database: Database, calls: pl.DataFrame, strings: _Texts, parts: Parts) -> None:
    wanted: dict[str, Column] = dict.fromkeys(
        ("id", "gpuId", "queueId", "sequenceId", "start", "end", "description_id", "opType_id"),
        "int",
    )
    ops = _large(database, "rocpd_op", wanted)
    links = _large(database, "rocpd_api_ops", {"api_id": "int", "op_id": "int"}).drop_nulls()
    first = links.unique("op_id", keep="first", maintain_order=True)
    api = first["api_id"].gather(_place(first["op_id"], ops["id"])) if len(first) else None
    if api is None:
        api = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(ops))
    index = _place(calls["id"], api)
    frame = ops.with_columns(
        api.alias("correlation"),
        calls["pid"].gather(index).alias("pid"),
        calls["tid"].gather(index).alias("tid"),
        calls["name"].gather(index).alias("call"),
        strings.of(ops["description_id"]).alias("description"),
        strings.of(ops["opType_id"]).cast(pl.String).alias("type"),
    )
    kind = pl.col("type").fill_null("")
    described = pl.col("description").cast(pl.String).fill_null("") != ""
    wait = kind.str.contains(_WAIT)
    copy = kind.str.contains(_COPY) & ~wait
    parts.add("dispatches", _kernels(database, frame.filter(~(wait | copy)), strings, described))
    parts.add("copies", _copies(database, frame.filter(copy)))
    waits = frame.filter(wait)
    if len(waits):
        parts.note("info", _NO_KERNELS, len(waits))
        parts.add(
            "syncs",
            waits.select(
                "pid", "tid", "start", "end", "correlation",
                pl.col("gpuId").alias("device"),
                pl.col("queueId").alias("stream"),
                pl.lit("barrier").alias("kind"),
            ),
        )  # fmt: skip


def _kernels(
    database: Database, frame: pl.DataFrame, strings: _Texts, described: pl.Expr
) -> pl.DataFrame:
    sizes = [f"{of}{axis}" for of in ("grid", "workgroup") for axis in "XYZ"]
    wanted: dict[str, Column] = dict.fromkeys(
        ("api_ptr_id", *sizes, "groupSegmentSize", "privateSegmentSize", "kernelName_id"), "int"
    )
    # the first schema links it to the op, later ones to the call
    by_op = database.has("rocpd_kernelop", "op_ptr_id")
    table = "rocpd_kernelop" if by_op else "rocpd_kernelapi"
    if by_op:
        wanted = {"op_ptr_id": "int", **{k: v for k, v in wanted.items() if k != "api_ptr_id"}}
        if not database.has(table, "gridZ"):
            wanted = {("gridz" if name == "gridZ" else name): v for name, v in wanted.items()}
    shapes = _large(database, table, wanted)
    if "gridz" in shapes.columns:
        shapes = shapes.rename({"gridz": "gridZ"})
    key = shapes["op_ptr_id" if by_op else "api_ptr_id"]
    shaped = shapes.filter(key.is_not_null())
    index = _place(key.drop_nulls(), frame["id"] if by_op else frame["correlation"])
    columns = {
        name: shaped[name].gather(index)
        for name in (*sizes, "groupSegmentSize", "privateSegmentSize")
    }
    named = strings.of(shaped["kernelName_id"].gather(index)).cast(pl.String)
    frame = frame.with_columns(
        *(column.alias(name) for name, column in columns.items()), named.alias("launched")
    )
    # all readers of these tools count a grid in work-items
    by_call = pl.col("call").is_in(_WORK_ITEMS).fill_null(False) | pl.lit(by_op)
    items = [
        pl.when(by_call)
        .then(f"grid{axis}")
        .otherwise(pl.col(f"grid{axis}") * pl.col(f"workgroup{axis}"))
        .alias(f"g{axis.lower()}")
        for axis in "XYZ"
    ]
    return frame.select(
        "pid", "tid", "start", "end", "correlation",
        pl.col("gpuId").alias("device"),
        pl.col("queueId").alias("queue"),
        pl.when(described)
        .then(pl.col("description").cast(pl.String))
        .otherwise(pl.coalesce("launched", "type"))
        .alias("name"),
        *items,
        *(pl.col(f"workgroup{axis}").alias(f"w{axis.lower()}") for axis in "XYZ"),
        pl.col("groupSegmentSize").alias("lds"),
        pl.col("privateSegmentSize").alias("scratch"),
    )  # fmt: skip


def _copies(database: Database, frame: pl.DataFrame) -> pl.DataFrame:
    copied = _small(database, "rocpd_copyapi", {"api_ptr_id": "int", "size": "int", "kind": "int"})
    copied = copied.drop_nulls("api_ptr_id")
    index = _place(copied["api_ptr_id"], frame["correlation"])
    direction = (
        pl.col("type").str.extract(r"Copy(Host|Device)To(?:Host|Device)").str.slice(0, 1)
        + pl.lit("to")
        + pl.col("type").str.extract(r"Copy(?:Host|Device)To(Host|Device)").str.slice(0, 1)
    )
    asked = (
        copied["kind"].gather(index).replace_strict(_KINDS, default=None, return_dtype=pl.String)
    )
    sets = pl.col("type").str.contains(_SET) | pl.col("description").cast(pl.String).str.contains(
        "(?i)fill"
    ).fill_null(False)
    return frame.select(
        "pid", "tid", "start", "end", "correlation",
        pl.col("gpuId").alias("device"),
        pl.col("queueId").alias("stream"),
        pl.when(sets)
        .then(pl.lit("memset"))
        .otherwise(pl.coalesce(direction, asked.alias("asked"), pl.lit("unknown")))
        .alias("kind"),
        copied["size"].gather(index).alias("bytes"),
    )  # fmt: skip


def _add_samples(database: Database, parts: Parts) -> None:
    """``rocpd_monitor``: each GPU's clock (MHz), temperature or power from ``start`` to ``end``."""
    wanted: dict[str, Kind] = {
        "deviceType": "text", "deviceId": "int", "monitorType": "text", "start": "int", "value": "text",
    }  # fmt: skip
    if not database.has("rocpd_monitor", "monitorType", "start", "value"):
        return
    frame = _small(database, "rocpd_monitor", wanted)
    name = pl.col("monitorType")
    unit = name.replace_strict(
        {"sclk": "GPU clock [MHz]", "mclk": "memory clock [MHz]"},
        default=None,
        return_dtype=pl.String,
    )
    rows = frame.select(
        pl.col("deviceId").alias("device"),
        pl.col("start").alias("time"),
        pl.coalesce(unit, name).alias("name"),
        pl.col("value").cast(pl.Float64, strict=False),
    ).filter(pl.col("value").is_finite() & pl.col("name").is_not_null())
    if len(rows):
        parts.add("samples", rows)
