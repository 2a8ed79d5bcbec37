"""Read the Chrome trace that rocmProfileData's ``rpd2tracing.py`` makes of an ``.rpd``: times in whole µs.

A process in it is a GPU (its id is the GPU's number, its name is ``GPU2``) or a program (its id is the pid);
a thread of a GPU is a queue. Flows ``api_op`` tie an op to its call: they begin inside the call and end where
the op begins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from opscope.readers.errors import BadInput
from opscope.readers.rows import decode

from .marks import ROCTX
from .parts import Parts
from .table import whole
from .tool_json import document

CUT: Final = "times are cut to whole µs in this file: the .rpd that it was made of has ns"
_COPY: Final = r"(?i)^(?:copy|memcpy|fill|memset)"
_WAIT: Final = r"(?i)^(?:barrier|marker)"
_CALL: Final = r"^(?:__)?(?:hip|hsa|cuda|cu[A-Z])"
_KINDS: Final = {
    "CopyHostToDevice": "HtoD",
    "CopyDeviceToHost": "DtoH",
    "CopyDeviceToDevice": "DtoD",
}


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: str | int | None = None
    tid: str | int | None = None
    id: str | int | None = None
    ts: str | int | float | None = None
    dur: str | int | float | None = None
    args: dict[str, Any] = {}


def read(path: Path, parts: Parts) -> None:
    """Add the data of the file to ``parts``. Raises BadInput."""
    parts.tool = "rocmProfileData"
    try:
        events = decode(document(path), list[_Event], strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise BadInput(path, f"damaged JSON of rocmProfileData: {str(error)[:200]}") from error
    distinct = list({msgspec.json.encode(event): event for event in events}.values())
    if 2 * len(distinct) <= len(events) + 1:  # two of a few may be equal in whole µs
        parts.note(
            "warning", "events that the file holds twice: counted once", len(events) - len(distinct)
        )
        events = distinct
    gpus = {
        str(event.pid)
        for event in events
        if event.ph == "M" and str(event.args.get("name", "")).startswith("GPU")
    }
    spans = _frame([event for event in events if event.ph == "X"])
    spans = spans.with_columns((pl.col("start") + pl.col("length")).alias("end"))
    on_gpu = pl.col("of").is_in(list(gpus)).fill_null(False)
    calls = spans.filter(~on_gpu).with_row_index("correlation", offset=1)
    calls = calls.with_columns(pl.col("correlation").cast(pl.Int64))
    ops = _link(spans.filter(on_gpu), calls, events)
    is_call = pl.col("name").str.contains(_CALL).fill_null(False)
    shown: list[Any] = [pl.col("number").alias("pid"), "tid", "start", "end"]
    parts.add("calls", calls.filter(is_call).select(*shown, "name", "correlation"))
    marked = calls.filter(~is_call)
    if len(marked):
        user = pl.col("name").is_in(["UserMarker", "PytorchAutograd"]).fill_null(False)
        parts.add(
            "ranges",
            marked.select(
                *shown,
                pl.when(user).then("told").otherwise("name").alias("text"),
                pl.when(user).then(pl.lit(ROCTX)).otherwise(pl.lit("runtime")).alias("domain"),
            ),
        )
    kind = pl.coalesce("told", "name").fill_null("")
    copy, wait = kind.str.contains(_COPY), kind.str.contains(_WAIT)
    where: list[Any] = ["pid", "start", "end", "correlation", pl.col("number").alias("device")]
    queue = pl.col("tid")
    parts.add(
        "dispatches",
        ops.filter(~(copy | wait)).select(*where, "name", queue.alias("queue")),
    )
    kind_known = kind.replace_strict(_KINDS, default=None, return_dtype=pl.String)
    parts.add(
        "copies",
        ops.filter(copy).select(
            *where,
            queue.alias("stream"),
            pl.coalesce(kind_known, pl.lit("unknown")).alias("kind"),
        ),
    )
    parts.note("info", CUT, len(spans))


def _frame(events: list[_Event]) -> pl.DataFrame:
    def text(values: list[Any], name: str) -> pl.Series:
        return pl.Series(
            name, [None if value is None else str(value) for value in values], pl.String
        )

    def us(values: list[Any], name: str) -> pl.Series:
        microseconds = whole(text(values, name))
        possible = microseconds.is_between(-(1 << 51), 1 << 51).fill_null(False)
        return microseconds.set(~possible, None) * 1000

    of = text([event.pid for event in events], "of")
    return pl.DataFrame(
        [
            of,
            whole(of).alias("number"),
            whole(text([event.tid for event in events], "tid")),
            text([event.id for event in events], "id"),
            text([event.name for event in events], "name"),
            text([event.args.get("desc") for event in events], "told"),
            us([event.ts for event in events], "start"),
            us([event.dur for event in events], "length"),
        ]
    )


def _link(ops: pl.DataFrame, calls: pl.DataFrame, events: list[_Event]) -> pl.DataFrame:
    """Add ``correlation`` and ``pid`` of the call that a flow begins in."""
    begins = _frame([event for event in events if event.ph == "s" and event.cat == "api_op"])
    ends = _frame([event for event in events if event.ph == "f" and event.cat == "api_op"])
    ordered = calls.drop_nulls("start").sort("start")
    caused = (
        begins.drop_nulls("start")
        .sort("start")
        .join_asof(
            ordered.select("of", "tid", "start", "correlation", pl.col("number").alias("pid")),
            on="start",
            by=["of", "tid"],
            strategy="backward",
            check_sortedness=False,
        )
        .select("id", "correlation", "pid")
        .unique("id", keep="first")
    )
    # several ops of a queue may begin in one µs: they are in the order of their flows
    same = ["of", "tid", "start"]
    turn = pl.int_range(pl.len()).over(same).alias("turn")
    target = ends.join(caused, on="id", how="inner", maintain_order="left").with_columns(turn)
    return ops.with_columns(turn).join(
        target.select(*same, "turn", "correlation", "pid"),
        on=[*same, "turn"],
        how="left",
        maintain_order="left",
    )
