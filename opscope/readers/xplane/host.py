"""Read the host lines of an XPlane file: calls, operations on the CPU, steps, frames, the runtime's work."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.dialects import hlo
from opscope.core.payload import GRAPH_THREAD
from opscope.core.rangetext import parse
from opscope.core.schema import OpCall
from opscope.core.tables.intervals import nest

from .cupti import (
    COMMAND_BUFFERS_NOTE,
    NO_COMMAND_BUFFERS,
    call_name,
    is_call,
    nvtx_domain,
    nvtx_text,
    nvtx_thread,
)
from .host_ranges import (
    DESCRIBED,
    EAGER_ELSEWHERE,
    STATS,
    described,
    inputs,
    user_ranges,
    with_copies,
    with_devices,
    with_eager_ops,
)
from .programs import Programs, path
from .space import Event, Events, Line, Plane, integers, strings

HOST_STATS: Final = frozenset(
    {
        "correlation_id",
        "hlo_op",
        "hlo_module",
        "program_id",
        "run_id",
        "tf_op",
        "name",
        "step_num",
        "address",
        "addr",
        "allocation_bytes",
        "allocator_name",
        "bytes_allocated",
        "bytes_reserved",
        "device_id",
        "device_ordinal",
        "memcpy_details",
        "Memset_details",
        "prefix",
        *STATS,
    }
)
_FRAME: Final = r"^\$([^\s:]+):(\d+) (.*)$"
#: A call of one of JAX's jitted functions.
_CALL: Final = r"^PjitFunction\((.*)\)$"
_TF_OP: Final = r"^[A-Za-z0-9_.\\/>-]+:[A-Za-z_]\w*$"
_MEMORY: Final = r"^Memory(?:Allocation|Deallocation)$"
#: The allocator of a GPU's memory, as TSL names it by the GPU's number: GPU_0_bfc, gpu_async_0. The host's
#: memory has several allocators, each with a total of its own.
_OF_GPU: Final = r"(?i)^gpu_(?:async_)?(\d{1,4})(?:_bfc)?$"
_SUFFIX: Final = r"/-?\d+$"


class Host:
    """Collects the events of host planes, a batch at a time."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._frames: list[pl.DataFrame] = []
        self._calls: list[pl.DataFrame] = []
        self._memory: list[pl.DataFrame] = []
        self._threads: dict[int, tuple[int | None, str]] = {}
        self.without_buffers = self._eager_elsewhere = 0

    def add(self, plane: Plane, line: Line, events: Events) -> None:
        """Add a batch of a line's events."""
        count = len(events.number)
        if not count:
            return
        number = line.number
        nvtx = nvtx_thread(line.name)
        if nvtx is not None:  # a line beside the thread's own, with its own number
            number = nvtx
        if nvtx is None or number not in self._threads:
            self._threads[number] = (number if 0 < number < 1 << 31 else None, line.name)
        distinct, inverse = np.unique(events.number, return_inverse=True)
        names = [plane.events.get(int(number), Event("")).name for number in distinct]
        operation, run = self._operations(events, plane, count)
        frame = pl.DataFrame(
            {
                "thread": pl.Series([number], dtype=pl.Int64).new_from_index(0, count),
                "start": line.time + events.start,
                "end": line.time + events.end,
                "name": pl.Series(names, dtype=pl.String).gather(inverse.reshape(-1)),
                "operation": operation,
                "run": run,
                **{
                    title: integers(events, title, count)
                    for title in ("correlation_id", "step_num", "device_id")
                },
                "tf_op": strings(events, "tf_op", count),
                "copied": strings(events, "memcpy_details", count).zip_with(
                    strings(events, "memcpy_details", count).is_not_null(),
                    strings(events, "Memset_details", count),
                ),
                **described(events, line.name, count),
            }
        )
        memory = frame["name"].str.contains(_MEMORY).fill_null(False)
        if memory.any():
            self._allocations(events, frame, memory, count)
        called = frame.select(is_call()).to_series()
        self._calls.append(
            frame.filter(called).select(
                "thread", "start", "end", call_name().alias("name"), "correlation_id"
            )
        )
        self.without_buffers += int((frame["name"] == NO_COMMAND_BUFFERS).sum())
        self._frames.append(_name(frame.filter(~called & ~memory)))

    def _operations(self, events: Events, plane: Plane, count: int) -> tuple[pl.Series, pl.Series]:
        """For each event that is an HLO operation: the text of its call, and the number of its run."""
        if "hlo_op" not in events.stats:
            return (
                pl.Series([None], dtype=pl.String).new_from_index(0, count),
                pl.Series([None], dtype=pl.Int64).new_from_index(0, count),
            )
        distinct, index = self._programs.distinct(events, plane, count)
        texts: list[str | None] = []
        for operation, module, program, tf_op, name, prefix in distinct:
            if not operation:
                texts.append(None)
                continue
            graph = self._programs.graph(module or "", program)
            texts.append(self._programs.text(graph, operation, path(tf_op, name, prefix)))
        return pl.Series(texts, dtype=pl.String).gather(index), integers(events, "run_id", count)

    def _allocations(
        self, events: Events, frame: pl.DataFrame, memory: pl.Series, count: int
    ) -> None:
        freed = frame["name"] == "MemoryDeallocation"
        size = integers(events, "allocation_bytes", count)
        address = integers(events, "addr", count)
        device = integers(events, "device_ordinal", count)
        named = strings(events, "allocator_name", count).str.extract(_OF_GPU, 1).cast(pl.Int64)
        self._memory.append(
            pl.DataFrame(
                {
                    "process": pl.Series([0], dtype=pl.Int32).new_from_index(0, count),
                    "device": device.zip_with(device.is_not_null(), named),
                    "thread": frame["thread"],
                    "time": frame["start"],
                    "address": address.zip_with(
                        address.is_not_null(), integers(events, "address", count)
                    ),
                    "bytes": size.zip_with(~freed, -size),
                    "total": integers(events, "bytes_allocated", count),
                    "reserved": integers(events, "bytes_reserved", count),
                }
            ).filter(memory)
        )

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return the table ``threads``, and ``ranges``, ``calls`` and ``allocations`` if they have rows."""
        tables_made: dict[str, pl.DataFrame] = {
            "threads": pl.DataFrame(
                {
                    "process": [0] * len(self._threads),
                    "thread": list(self._threads),
                    "os_tid": [thread[0] for thread in self._threads.values()],
                    "name": [thread[1] for thread in self._threads.values()],
                },
                schema={
                    "process": pl.Int32,
                    "thread": pl.Int64,
                    "os_tid": pl.Int64,
                    "name": pl.String,
                },
            ).with_columns(pl.col("name").str.replace(_SUFFIX, ""))
        }
        calls = [frame for frame in self._calls if len(frame)]
        if calls:
            tables_made["calls"] = pl.concat(calls).select(
                pl.lit(0, pl.Int32).alias("process"),
                "thread",
                "start",
                "end",
                pl.col("name").cast(pl.Categorical),
                pl.col("correlation_id").alias("correlation"),
            )
        if self._memory:
            tables_made["allocations"] = pl.concat(self._memory).cast({"device": pl.Int32})
        if self._frames:
            ranges = pl.concat(self._frames).sort(
                "start", "end", descending=[False, True], maintain_order=True
            )
            ranges = ranges.filter(~_trace(ranges))
            ranges, self._eager_elsewhere = with_eager_ops(ranges)
            ranges = user_ranges(inputs(with_devices(with_copies(ranges))))
            seq = _pairs(ranges)
            tables_made["ranges"] = ranges.select(
                pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
                pl.lit(0, pl.Int32).alias("process"),
                "thread",
                pl.col("thread").alias("end_thread"),
                "start",
                "end",
                pl.col("domain").cast(pl.Categorical),
                pl.col("category").cast(pl.Categorical),
                pl.col("text").cast(pl.Categorical),
                "attrs",
                seq,
                pl.when(seq.is_not_null()).then(pl.lit(GRAPH_THREAD, pl.Int64)).alias("fwd_thread"),
                pl.when(pl.col("end") > pl.col("start"))
                .then(pl.lit("pushpop"))
                .otherwise(pl.lit("mark"))
                .cast(pl.Categorical)
                .alias("kind"),
            )
        return tables_made

    def notes(self) -> list[tuple[str, int]]:
        """Return warnings for the user: (what, how many)."""
        counts = (
            (COMMAND_BUFFERS_NOTE, self.without_buffers),
            (EAGER_ELSEWHERE, self._eager_elsewhere),
        )
        return [(what, how_many) for what, how_many in counts if how_many]


def _name(frame: pl.DataFrame) -> pl.DataFrame:
    """Set the domain, category and text of each event by its attributes."""
    name = pl.col("name")
    is_op, is_step = pl.col("operation").is_not_null(), pl.col("step_num").is_not_null()
    tf_op = pl.coalesce("tf_op", pl.when(name.str.contains(_TF_OP)).then(name))
    is_tf = tf_op.str.contains(_TF_OP).fill_null(False) & ~tf_op.str.starts_with("XlaModule")
    is_frame = name.str.contains(_FRAME)
    is_call = name.str.contains(_CALL)
    is_nvtx = name.str.starts_with("NVTX:").fill_null(False)
    return frame.select(
        "thread",
        "start",
        "end",
        pl.when(is_op).then(pl.lit("xla"))
        .when(is_nvtx).then(nvtx_domain(name))
        .when(is_step).then(pl.lit("opscope.step"))
        # files without their folders: it is unknown whether they are the user's or a library's
        .when(is_frame).then(pl.lit("runtime"))
        .when(is_call).then(pl.lit("opscope.jax"))
        .when(is_tf).then(pl.lit("TSL"))
        .otherwise(pl.lit("runtime")).alias("domain"),
        pl.when(is_step & ~is_op).then(pl.lit("step"))
        .when(is_call & ~is_op).then(pl.lit("graph")).alias("category"),
        pl.when(is_op).then(pl.col("operation"))
        .when(is_nvtx).then(nvtx_text(name))
        .when(is_step).then(pl.format("step {}", pl.col("step_num")))
        .when(is_frame).then(pl.format(
            "{}({}): {}", name.str.extract(_FRAME, 1), name.str.extract(_FRAME, 2),
            name.str.extract(_FRAME, 3)))
        .when(is_call).then(pl.format("jit_{}", name.str.extract(_CALL, 1).str.replace_all(
            r"[^\w.-]", "_").str.strip_chars_end("_")))
        .when(is_tf).then(tf_op)
        .otherwise(name.fill_null("")).alias("text"),
        "run",
        ~(is_op | is_nvtx | is_step | is_frame | is_call | is_tf).fill_null(False).alias("plain"),
        pl.lit(None, pl.String).alias("attrs"),
        *DESCRIBED,
    )  # fmt: skip


def _trace(ranges: pl.DataFrame) -> pl.Series:
    """Which rows are jitted calls inside another call: they are traced into it and run nothing.

    The C++ half and the Python half of one call are both recorded, one inside the other.
    """
    calls = ranges.with_row_index("row").filter(pl.col("category") == "graph")
    inner = np.zeros(len(ranges), bool)
    for part in calls.partition_by("thread"):
        tree = nest(part["start"].to_numpy(), part["end"].to_numpy())
        inner[part["row"].to_numpy()[tree.order[tree.parent >= 0]]] = True
    return pl.Series(inner)


def _pairs(ranges: pl.DataFrame) -> pl.Series:
    """``seq``: a number that an operation of a gradient shares with the operation that it differentiates.

    Both have the same run and layer. The counterpart of a convolution or product is a convolution or
    product if there is one. An operation without a forward counterpart has no number.
    """
    count = len(ranges)
    nothing: pl.Series = pl.Series("seq", [None], dtype=pl.Int64).new_from_index(0, count)
    rows = np.flatnonzero((ranges["domain"] == "xla").to_numpy())
    if not len(rows):
        return nothing
    distinct, index = _distinct(ranges["text"].gather(rows))
    described = [_side(text) for text in distinct]
    forward = {key for direction, key in described if direction == "forward"}
    numbers: dict[tuple[str, str], int] = {}
    codes = np.full(len(distinct), -1, np.int64)
    for number, (direction, key) in enumerate(described):
        wanted: tuple[str, str] | None = key
        if direction == "backward":
            other = ("conv", "dot", "")
            wanted = next(
                (
                    key_with_kind
                    for key_with_kind in (key, *((key[0], kind) for kind in other))
                    if key_with_kind in forward
                ),
                None,
            )
        elif direction != "forward":
            wanted = None
        if wanted is not None and wanted[0]:
            codes[number] = numbers.setdefault(wanted, len(numbers))
    # if the file does not number runs, the k-th execution of each operation belongs to the k-th run
    turns = ranges[rows].select(
        pl.coalesce("run", -(1 << 62) + pl.int_range(pl.len(), dtype=pl.Int64).over("text"))
    )
    _, run = _distinct(turns.to_series())
    seq = np.full(count, -1, np.int64)
    code = codes[index]
    seq[rows] = np.where(code >= 0, run * max(len(numbers), 1) + code, -1)
    numbered: pl.Series = pl.Series("seq", seq).replace(-1, None)
    return numbered


def _side(text: str) -> tuple[str | None, tuple[str, str]]:
    """The direction of an operation, and the key that it shares with its counterpart."""
    call: OpCall = parse(text)
    reading = hlo.reading(call)
    name = call.name
    kind = "conv" if "convolution" in name else "dot" if name.endswith("dot") else ""
    return reading.direction, (reading.layer or "", kind)


def _distinct(column: pl.Series) -> tuple[list[Any], NDArray[np.int64]]:
    values = column.unique(maintain_order=True)
    frame = column.to_frame("value").join(
        values.to_frame("value").with_row_index("place"),
        on="value",
        how="left",
        maintain_order="left",
    )
    return values.to_list(), frame["place"].cast(pl.Int64).to_numpy()
