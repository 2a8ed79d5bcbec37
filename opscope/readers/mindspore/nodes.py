"""Make the kernels, copies, synchronisations and specs of a trace from the work of a device."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import polars as pl

from opscope.core.communication import is_node
from opscope.core.dialects.mindspore import node_name
from opscope.core.rangetext import format_call
from opscope.core.schema import DTYPE_NAMES, Arg, Dim, OpCall, ParamValue, TensorSpec
from opscope.core.waits import TASKS
from opscope.readers.rows import frame_of

#: The framework and the graph in the specs of these ops.
FRAMEWORK: Final = "mindspore"
#: The columns of device work. ``node``: the op's full name, null for work without an op. ``kind``: its type,
#: if the file has it. ``core``: what it ran on (AI_CORE, AI_CPU, HCCL, …). ``inputs``, ``outputs``: texts of
#: ``shapes_text``, null if not known. ``scope``: the op's full name in another file.
RAN: Final = {
    "device": pl.Int32, "stream": pl.Int64, "start": pl.Int64, "end": pl.Int64, "name": pl.String,
    "node": pl.String, "kind": pl.String, "core": pl.String, "inputs": pl.String, "outputs": pl.String,
    "grid": pl.String, "block": pl.String,
}  # fmt: skip
#: CANN's task types (``Task Type`` in its files) that control other tasks and compute nothing.
_STEERS: Final = (
    r"(?i)^(?:EVENT_|NOTIFY_|CAPTURE_|STREAM_|LABEL_|MODEL_|PROFILER_|FFTS_PLUS$|WRITE[_ ]VALUE|CMO|DSA_|"
    r"PLACE[_ ]HOLDER|END_GRAPH|FLIP|MAINTENANCE|SET_STREAM|BARRIER|CONDITION|IPC_|NOP$|FUSION_ISSUE|RDMA_DB)"
)
_COPY: Final = r"(?i)^(?:MEMCPY|SDMA|PCIE_DMA|REDUCE_ASYNC)"
_RUN: Final = re.compile(r"(-op[0-9]+)_[0-9]+\Z")
#: Formats that keep the tensor's own sizes. Others (NC1HWC0, FRACTAL_Z) pad and block them.
_PLAIN: Final = frozenset(
    ("DefaultFormat", "ND", "NCHW", "NHWC", "NCL", "NCDHW", "NDHWC", "HWCN", "DHWCN", "NC", "N",
     "FORMAT_ND", "")
)  # fmt: skip
_DTYPES: Final = {
    **DTYPE_NAMES, "float": "f32", "double": "f64", "fp16": "f16", "fp32": "f32", "fp64": "f64", "bf16":
      "bf16",
    "hf32": "f32", "half": "f16", "bool_": "bool", "int": "i32", "uint": "u32", "float8e4m3fn": "f8e4m3fn",
    "float8e5m2": "f8e5m2", "complex": "c64",
}  # fmt: skip
#: The largest text of one op's tensors, number of tensors, and number of sizes of one.
_MOST_TEXT: Final = 1 << 16
_MOST: Final = 256
_RANK: Final = 32


def frame(rows: Iterable[dict[str, object]]) -> pl.DataFrame:
    """Return device work as a frame; columns that a row lacks are null."""
    return frame_of(rows, RAN)


def conform(ran: pl.DataFrame) -> pl.DataFrame:
    """Return ``ran`` with all columns of ``RAN``; missing ones are null."""
    return ran.select(
        pl.col(name).cast(dtype, strict=False).alias(name)
        if name in ran.columns
        else pl.lit(None, dtype).alias(name)
        for name, dtype in RAN.items()
    )


def tables_of(ran: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return ``kernels``, ``memops``, ``syncs`` and ``specs`` (process 0) of device work. Work without an op
    is a copy or a synchronisation by its type; work of an op, such as a copy of a collective, is a kernel."""
    ran = conform(ran)
    task = pl.coalesce("core", "name").fill_null("")
    alone = pl.col("node").is_null()
    name = pl.col("name").fill_null("")
    waits = task.str.contains(TASKS) | (alone & name.str.contains(TASKS))
    steers = alone & (task.str.contains(_STEERS) | name.str.contains(_STEERS))
    copy = alone & (task.str.contains(_COPY) | name.str.contains(_COPY))
    label = (
        pl.when(waits | steers).then(pl.lit("sync"))
        .when(copy).then(pl.lit("copy"))
        .otherwise(pl.lit("kernel"))
    )  # fmt: skip
    placed = ran.with_columns(label.alias("what"))
    kernels, specs = _with_keys(placed.filter(pl.col("what") == "kernel"))
    where = ["process", "device", "stream", "start", "end"]
    process = pl.lit(0, pl.Int32).alias("process")
    copies = placed.filter(pl.col("what") == "copy").with_columns(process)
    syncs = placed.filter(pl.col("what") == "sync").with_columns(process)
    tables_made = {
        "kernels": kernels.with_columns(process).select(
            *where,
            pl.col("name").cast(pl.Categorical),
            pl.col("grid").cast(pl.Categorical),
            pl.col("block").cast(pl.Categorical),
            pl.col("op_key").cast(pl.Categorical),
        ),
        "specs": specs,
    }
    if len(copies):
        # these files do not say which memories a copy connects
        tables_made["memops"] = copies.select(
            *where, pl.col("name").str.to_lowercase().cast(pl.Categorical).alias("kind")
        )
    if len(syncs):
        tables_made["syncs"] = syncs.select(
            *where, pl.col("name").str.to_lowercase().cast(pl.Categorical).alias("kind")
        )
    return tables_made


def _with_keys(kernels: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the kernels with ``op_key``, and the spec of each op; an op with several shapes has several
    specs."""
    by = ["node", "kind", "core", "inputs", "outputs"]
    kinds = kernels.filter(pl.col("node").is_not_null()).select(by).unique(maintain_order=True)
    turn = pl.int_range(pl.len(), dtype=pl.Int64).over("node")
    key = (
        pl.when(turn == 0)
        .then(pl.col("node"))
        .otherwise(pl.concat_str("node", pl.lit("#"), turn.cast(pl.String)))
    )
    kinds = kinds.with_columns(key.alias("key"))
    texts = [op_text(*row) for row in kinds.select(by).iter_rows()]
    kinds = kinds.with_columns(pl.Series("text", texts, dtype=pl.String))
    keyed = kernels.join(kinds, on=by, how="left", nulls_equal=True, maintain_order="left")
    op_key = pl.when(pl.col("key").is_not_null()).then(
        pl.concat_str(pl.lit(f"{FRAMEWORK}/"), pl.col("key"))
    )
    specs = kinds.select(
        pl.lit(0, pl.Int32).alias("process"),
        pl.lit(FRAMEWORK).cast(pl.Categorical).alias("framework"),
        pl.lit(FRAMEWORK).cast(pl.Categorical).alias("graph"),
        pl.col("key").cast(pl.Categorical),
        pl.lit(None, pl.Int64).alias("time"),
        pl.col("text").cast(pl.Categorical),
    )
    return keyed.with_columns(op_key.alias("op_key")), specs


def op_text(
    node: str, kind: str | None, core: str | None, inputs: str | None, outputs: str | None
) -> str:
    """Return the text of an op's call: its full name, with the tensors recorded in a file."""
    name = _RUN.sub(r"\1", node)
    known = node_name(name)
    params: list[tuple[str, ParamValue]] = []
    if kind and known.op != kind:
        scope, slash, _ = name.rpartition("/")
        params.append(("node", name))
        name = f"{scope}{slash}{kind}"
        known = node_name(name)
    if is_node(known.op):
        params.append(("direction", "communication"))
    if core:
        params.append(("core", core))
    before, formats_in = tensors(inputs)
    after, formats_out = tensors(outputs)
    if formats_in or formats_out:
        params.append(("formats", (*formats_in, *formats_out)))
    result = None if outputs is None else after
    return format_call(OpCall(name, before, result, tuple(params)), None)


# ------------------------------------------------------------------------------------ tensors


def shapes_text(parts: list[tuple[str, str, str]]) -> str | None:
    """Return (sizes, dtype, format) of tensors as one text; None if there are none."""
    return json.dumps(parts[:_MOST]) if parts else None


@lru_cache(maxsize=65_536)
def tensors(text: str | None) -> tuple[tuple[Arg, ...], tuple[str, ...]]:
    """Return the tensors in a text of ``shapes_text``, and the formats of those that are not plain.

    In a private format (``NC1HWC0``) channels are blocked and padded: sizes that this hides are ``?``, and
    the
    format says which are stored.
    """
    if text is None or len(text) > _MOST_TEXT:
        return (), ()
    args: list[Arg] = []
    formats: list[str] = []
    for sizes, dtype, form in json.loads(text):
        shape = _sizes(sizes)
        if shape is None:
            args.append(None)
            continue
        if form not in _PLAIN:
            formats.append(f"{form}[{','.join(map(str, shape))}]")
            shape = _logical(shape, form)
        args.append(TensorSpec(dtype_of(dtype), shape))
    return tuple(args), tuple(formats)


def _sizes(text: str) -> tuple[Dim, ...] | None:
    words = [word for word in re.split(r"[\s,]+", text.strip().strip('[]()"')) if word]
    if len(words) > _RANK or any(not re.fullmatch(r"-?[0-9]{1,15}", word) for word in words):
        return None
    return tuple("?" if word.startswith("-") else int(word) for word in words)


def _logical(shape: tuple[Dim, ...], form: str) -> tuple[Dim, ...]:
    name = form.upper()
    if name in ("NC1HWC0", "NC1HWC0_C04") and len(shape) == 5:
        return (shape[0], "?", shape[2], shape[3])
    if name == "NDC1HWC0" and len(shape) == 6:
        return (shape[0], "?", shape[1], shape[3], shape[4])
    if "NZ" in name and len(shape) >= 4:
        return (*shape[:-4], "?", "?")
    return ("?",) * len(shape)


@lru_cache(maxsize=1024)
def dtype_of(name: str) -> str:
    """Return the dtype called ``FLOAT16``, ``NUMBER_TYPE_FLOAT16`` or ``DT_FLOAT16``; ``?`` for others."""
    short = re.sub(r"\A(?:NUMBER_TYPE_|kNumberType|DT_|Tensor\[|mindspore\.)", "", name.strip())
    return _DTYPES.get(short.rstrip("]").lower(), "?")
