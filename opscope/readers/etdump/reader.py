"""Make the tables of an ETDump: kernels of the runtime and of delegates are ops, runs of a method are steps.

The layout is that of ExecuTorch's ``devtools/etdump/etdump_schema_flatcc.fbs``, 0.4 to 1.5: a flatbuffer of
blocks of events. An event is written when it ends, so those inside it stand before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from opscope.core.rangetext import format_call
from opscope.core.schema import OpCall
from opscope.core.tables.columns import spread
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import Trace
from opscope.readers.errors import TRUNCATED, BadInput, cut_off
from opscope.readers.kineto.json_events import whole_file
from opscope.readers.sound import sound_trace

#: The most bytes of a file, two million events: a file made to be large takes 16 times as much memory.
_MOST: Final = 128 << 20
#: Fewer bytes than any event takes: its place, its table and the one inside.
_LEAST: Final = 24
#: Bytes of a name that are kept.
_NAME: Final = 4096
DOMAIN: Final = "opscope.executorch"
#: The row around a kernel, which has its time again; calls are ops also where nothing inside them is told.
_AROUND: Final = "OPERATOR_CALL"
_CALLS: Final = (_AROUND, "DELEGATE_CALL")
_RUN: Final = "Method::execute"
_SET_UP: Final = ("Program::load_method", "Method::init")
_KERNEL: Final = "native_call_"
STEPS: Final = "steps are the runs of a method (inferred), because ExecuTorch marks none"
NO_STEPS: Final = "runs of a method overlap in time, so they are not shown as steps"
_UNIT: Final = (
    "an ETDump does not name its unit of time: taken as nanoseconds, which ExecuTorch writes on Linux, "
    "macOS, Windows and Android; of a board that counts ticks only the shares are right"
)
_RECORD: Final = (
    "an ETDump has neither shapes nor source lines; the program's ETRecord has each op's module and lines, "
    "which executorch.devtools.Inspector(etdump_path=…, etrecord=…) joins"
)
_OTHER_CLOCK: Final = "events of delegates outside their call: times of another clock, left out"
_MOMENTS: Final = (
    "events of delegates without a length, as of XNNPACK's clock of microseconds: 1 ns"
)


class _Flat:
    """A flatbuffer, read at many places at once. A place outside it, or ``NONE``, has the default value."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def values(self, places: Ints, kind: str, default: int = 0) -> Ints:
        """The integers of a NumPy type at ``places``."""
        last = len(self.data) - np.dtype(kind).itemsize
        inside = (places >= 0) & (places <= last)
        every = np.ndarray((last + 1,), kind, self.data, strides=(1,))  # at each byte, not copied
        return np.where(inside, every[np.where(inside, places, 0)].astype(np.int64), default)

    def field(self, tables: Ints, number: int) -> Ints:
        """The places of a field of ``tables``; NONE where a table lacks it."""
        layouts = tables - self.values(tables, "<i4")
        entry = 4 + 2 * number
        has = self.values(layouts, "<u2") >= entry + 2
        offset = np.where(has, self.values(layouts + entry, "<u2"), 0)
        return np.where((tables >= 0) & (offset > 0), tables + offset, NONE)

    def inner(self, tables: Ints, number: int) -> Ints:
        """The places of the tables, vectors or texts that a field of ``tables`` refers to."""
        return self.followed(self.field(tables, number))

    def followed(self, places: Ints) -> Ints:
        """The places that the offsets at ``places`` refer to."""
        offset = self.values(places, "<u4")
        return np.where(offset > 0, places + offset, NONE)

    def members(self, vectors: Ints) -> tuple[Ints, Ints]:
        """The places of the tables in ``vectors``, and the number of each one's vector. Raises ValueError."""
        counts = self.values(vectors, "<u4")
        total = int(counts.sum())
        if total * _LEAST > len(self.data):
            raise ValueError("it has more entries than fit into its bytes")
        owner = np.repeat(np.arange(len(vectors)), counts)
        number = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.followed(vectors[owner] + 4 + 4 * number), owner

    def texts(self, places: Ints) -> tuple[list[str | None], Ints]:
        """The distinct texts, and the number of that of each place. Raises ValueError."""
        distinct, number = np.unique(places, return_inverse=True)
        sizes = np.minimum(self.values(distinct, "<u4"), _NAME)
        if int(sizes.sum()) > len(self.data):
            raise ValueError("its names overlap")
        found = [
            self.data[at + 4 : at + 4 + size].decode("utf-8", "replace") if at >= 0 else None
            for at, size in zip(distinct.tolist(), sizes.tolist(), strict=True)
        ]
        return found, number


def read(path: Path, begins: re.Pattern[bytes]) -> Trace:
    """Return the trace in ``path``; ``begins`` matches its size and its layout. Raises BadInput."""
    data = whole_file(path, _MOST, f"an ETDump of more than {_MOST >> 20} MB")
    head = begins.match(data)
    if head is None or head[2] != b"00":
        raise BadInput(path, "an ETDump of another layout: executorch.devtools.Inspector prints it")
    told = int.from_bytes(head[1] or b"", "little")
    flat = _Flat(data[4:] if head[1] else data)
    try:
        events, left_out = _events(flat)
    except ValueError as error:
        raise BadInput(path, f"a damaged ETDump: {error}") from error
    runs = events.filter(name=_RUN).sort("start")
    stepped = not (runs["end"].shift(1) > runs["start"]).any()
    origin = {"format": "etdump", "tool": "ExecuTorch", "version": None, "paths": [str(path)]}
    missing = told - len(flat.data)
    if missing > 0:
        origin[TRUNCATED] = f"truncated: its last {missing:,} of {told:,} bytes are missing"
    trace = sound_trace(
        {
            "processes": pl.DataFrame({"process": [0], "framework": ["executorch"], "clock_domain": [0]}),
            "clocks": pl.DataFrame({"clock_domain": [0], "kind": ["unknown"], "to_unix_ns": [None]}),
            "threads": pl.DataFrame({"process": [0], "thread": [0]}),
            "ranges": _ranges(events, stepped),
        },
        origin,
    )  # fmt: skip
    if missing > 0:
        trace.note("warning", cut_off(path, str(origin[TRUNCATED])), first=True)
    for severity, message, count in (
        ("info", STEPS if stepped else NO_STEPS, len(runs)),
        ("info", _UNIT, len(events)),
        ("info", _RECORD, len(events)),
        *left_out,
    ):
        if count:
            trace.note(severity, message, count)
    return trace


def _events(flat: _Flat) -> tuple[pl.DataFrame, Sequence[tuple[str, str, int]]]:
    """Return the events with times, and notes on those that are left out. Raises ValueError."""
    root = flat.followed(np.zeros(1, np.int64))
    blocks, _ = flat.members(flat.inner(root, 1))
    every, owner = flat.members(flat.inner(blocks, 3))
    timed = flat.inner(every, 0)
    is_other = [int((flat.field(every, number) >= 0).sum()) for number in (1, 2)]
    at, block = timed[timed >= 0], owner[timed >= 0]
    names, name = flat.texts(flat.inner(at, 0))
    delegates, delegate = flat.texts(flat.inner(at, 4))
    events = pl.DataFrame(
        {
            "block": block,
            "name": spread("name", names, name).cast(pl.String),
            "chain": flat.values(flat.field(at, 1), "<i4"),
            "instruction": flat.values(flat.field(at, 2), "<i4", NONE),
            "number": flat.values(flat.field(at, 3), "<i4", NONE),
            "delegate": spread("delegate", delegates, delegate).cast(pl.String),
            "start": flat.values(flat.field(at, 6), "<u8"),
            "end": flat.values(flat.field(at, 7), "<u8"),
        }
    )
    numbered = pl.when(pl.col("number") >= 0).then(pl.format("delegate event {}", "number"))
    events = events.with_columns(delegate=pl.coalesce("delegate", numbered))
    is_delegate = events["delegate"].is_not_null()
    # the call of a delegate is the next event that is not a delegate's own
    around = events.select(
        "block",
        pl.when(~is_delegate).then("start").alias("start"),
        pl.when(~is_delegate).then("end").alias("end"),
    ).select(pl.col("start", "end").backward_fill().over("block"))
    inside = (events["start"] >= around["start"]) & (events["end"] <= around["end"])
    kept = ~is_delegate | inside.fill_null(False)
    moment = is_delegate & kept & (events["start"] == events["end"])
    # a range without a length is not an op
    last = pl.min_horizontal(events["end"] + 1, around["end"])
    events = events.with_columns(end=pl.when(moment).then(last).otherwise("end"))
    return events.filter(kept), (
        ("warning", _OTHER_CLOCK, int((~kept).sum())),
        ("info", _MOMENTS, int(moment.sum())),
        ("info", "allocations, which have no time, left out", is_other[0]),
        ("info", "values of tensors, left out", is_other[1]),
        ("warning", "events that cannot be read, left out", len(every) - len(at) - sum(is_other)),
    )


def _ranges(events: pl.DataFrame, stepped: bool) -> pl.DataFrame:
    """Return a range for each event. A kernel and the row around it are one op."""
    name = pl.col("name").fill_null("")
    kernel = name.str.starts_with(_KERNEL)
    is_around = (name == _AROUND) & kernel.shift(1) & (pl.col("block") == pl.col("block").shift(1))
    is_around &= pl.col("start") <= pl.col("start").shift(1)
    is_op = kernel | name.is_in(_CALLS) | pl.col("delegate").is_not_null()
    is_step = (name == _RUN) & stepped
    rows = events.with_columns(
        op=is_op & ~is_around.fill_null(False),
        label=pl.coalesce("delegate", "name", pl.lit("event")),
        category=pl.when(is_step).then(pl.lit("step")).when(name.is_in(_SET_UP)).then(pl.lit("phase")),
    ).sort("start", "end", descending=[False, True], maintain_order=True)  # fmt: skip
    key = ["label", "chain", "instruction"]
    calls = rows.filter("op").select(key).unique(maintain_order=True)
    texts = [_text(*call) for call in calls.iter_rows()]
    rows = rows.join(
        calls.with_columns(call=pl.Series(texts, dtype=pl.String)), on=key, how="left", maintain_order="left"
    )  # fmt: skip
    step = pl.format("step {}", (pl.col("category") == "step").fill_null(False).cum_sum() - 1)
    named = pl.when(pl.col("category") == "step").then(step).otherwise("label")
    is_own = pl.col("op") | pl.col("category").is_not_null()
    is_runtime = name.is_in((_AROUND, _RUN))
    return rows.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit(0, pl.Int32).alias("process"),
        pl.lit(0, pl.Int64).alias("thread"),
        "start",
        "end",
        pl.when(is_own).then(pl.lit(DOMAIN)).when(is_runtime).then(pl.lit("runtime"))
        .otherwise(pl.lit("user")).alias("domain"),
        pl.when("op").then(pl.lit("forward")).otherwise("category").alias("category"),
        pl.when("op").then("call").otherwise(named).alias("text"),
        pl.lit("pushpop").alias("kind"),
    )  # fmt: skip


def _text(name: str, chain: int, instruction: int) -> str:
    params = (("chain", chain), ("instruction", instruction))
    return format_call(OpCall(name, params=params[chain < 1 :]))
