"""The device's work, in the same columns for a GPU and for the CPU: kernels, or ops without a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.advice.finding import Answers, Edit, Floats
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.schema import DTYPE_BITS, FLOATS
from opscope.core.tables.columns import any_matches, compact
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import range_ids

#: Names of ops that copy or cast.
CASTS: Final = (
    r"\A(aten::(_to_copy|to|copy_|_autocast_to\w*)"
    r"|copy_|to|half|float|bfloat16|Cast|hlo::convert|convert)\b"
)
#: Matches a tensor: its dtype and its sizes.
Tensor = tuple[str, tuple[int, ...]]
_T = TypeVar("_T")
#: "Nothing found" may be said if no more than this part of the time is without an op.
BLIND: Final = 0.05
#: The columns of ``work``. ``row``: of the trace's kernels, null on the CPU. ``lane``: stream or thread.
COLUMNS: Final = (
    *("row", "process", "device", "lane", "start", "end", "duration", "name", "correlation"),
    *("op_id", "op", "op_type", "direction", "layer", "step", "source"),
    *("inputs", "outputs", "dtypes", "params", "matrix_flops", "bytes"),
)
#: Families of ops that move no data, and of ranges that are not a framework's ops.
_NOT_WORK: Final = ("view", "allocation", "query", "user", "layer", "step", "phase", "graph")
_TENSOR: Final = re.compile(r"([a-z][a-z0-9]*)\[([^\[\]]*)\]|=(\d+)")


def work(answers: Answers) -> pl.DataFrame:
    """Return the device's work (COLUMNS; times in ns): kernels, or on the CPU ops at the level of their
    costs, and innermost ops that lie in none of these. On the CPU, ``duration`` is an op's self time plus
    that of the ops inside it whose cost counts in it; ops that move no data, such as views, are left out."""
    if not answers.cpu_only:
        return answers.kernels(categories=True).select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
            pl.col("stream").alias("lane"),
            *(name for name in COLUMNS if name not in ("row", "lane")),
        )
    ops = answers.ops(categories=True)
    family = pl.col("op_type").cast(pl.String)
    counts = pl.col("canonical") | (pl.col("leaf") & (pl.col("device_time") > 0))
    mine = ops.filter(counts, family.is_not_null(), ~family.is_in(_NOT_WORK))
    return mine.select(
        pl.lit(None, pl.Int64).alias("row"),
        pl.col("thread").alias("lane"),
        pl.col("device_time").alias("duration"),
        pl.col("op").alias("name"),
        pl.lit(None, pl.Int64).alias("correlation"),
        *(c for c in COLUMNS if c not in ("row", "lane", "duration", "name", "correlation")),
    ).select(COLUMNS)


def device_time(answers: Answers) -> int:
    """Return the time (ns) of all kernels; for a CPU-only profile, of all ops and of the work outside
    them."""
    return int(answers.summary()["kernel_time"].item() or 0)


def blind(ran: pl.DataFrame) -> str | None:
    """Return why "nothing found" may not be said about ``work``: too much of it has no op; None if it may."""
    without = int(ran["duration"].filter(ran["op"].is_null()).sum())
    total = int(ran["duration"].sum())
    if without <= BLIND * total:
        return None
    return f"{share(without, total)} of the kernels' time has no op: it is not known what these compute"


def edit_of(
    answers: Answers, rows: pl.DataFrame, factor: Floats, removed: pl.DataFrame
) -> tuple[Edit, int]:
    """Return the edit that scales the durations of ``rows`` of ``work`` and removes ``removed``; and the
    host's time (ns) that goes with these launches: all of an op that launched nothing else."""
    if answers.cpu_only:
        spans = rows.select("process", pl.col("lane").alias("thread"), "start", "end")
        return Edit(host=spans.with_columns(pl.Series("factor", factor, pl.Float64))), 0
    calls = launches(answers, removed)
    ops = _whole_ops(answers, removed)
    others = removed.join(ops, on=["process", "op_id"], how="anti")
    table = answers.trace["calls"][launches(answers, others)]
    gone = int((ops["end"] - ops["start"]).sum()) + int((table["end"] - table["start"]).sum())
    spans = ops.select("process", "thread", "start", "end", pl.lit(0.0).alias("factor"))
    edit = Edit(
        kernels=(rows["row"].to_numpy().astype(np.int64), factor),
        launches=(calls, np.zeros(len(calls))) if len(calls) else None,
        host=spans if len(spans) else None,
    )
    return edit, gone


def and_host(gone: int) -> str:
    """Return the words of a reasoning about the host's time (ns) that removed launches save."""
    return (
        f"; and the host's time in the ops and calls that launched what goes, {ms(gone)}"
        if gone
        else ""
    )


def _whole_ops(answers: Answers, removed: pl.DataFrame) -> pl.DataFrame:
    """Return the ops that launched only kernels of ``removed``: process, op_id, thread, start, end."""
    keys = ["process", "op_id"]
    mine = removed.filter(pl.col("op_id").is_not_null()).group_by(keys).len("mine")
    every = answers.kernels(categories=True).select(keys).join(mine, on=keys, how="semi")
    op_spans = (
        every.group_by(keys).len("all").join(mine, on=keys).filter(pl.col("all") == pl.col("mine"))
    )
    # ops here are ranges: the columns of ops() would take ten times as long to make
    ranges = answers.trace["ranges"]
    spans = ranges.select("process", range_ids(ranges).alias("op_id"), "thread", "start", "end")
    return spans.join(op_spans, on=keys, how="semi", maintain_order="left")


def named(answers: Answers, pattern: str, direction: str | None = None) -> bool:
    """Return whether an op of the profile (of this ``direction``, if given) has a name that matches
    ``pattern``. If a detector looks for a few ops, most profiles then need no frame of all ops."""
    totals = summed_columns(
        answers,
        (
            "op",
            "direction",
        ),
    ).select("op", "direction")
    if direction is not None:
        totals = totals.filter(pl.col("direction") == direction)
    return any_matches(totals["op"], pattern)


def launches(answers: Answers, rows: pl.DataFrame) -> Ints:
    """Return the rows of the trace's ``calls`` that launched these ``rows`` of ``work`` and nothing else."""
    keys = ("process", "correlation")
    calls = answers.trace["calls"]
    if calls.is_empty() or rows.is_empty():
        return np.zeros(0, np.int64)
    # one call launched many of a CUDA graph's kernels
    once = rows.filter(pl.col("correlation").is_not_null()).select(keys)
    alone = answers.trace["kernels"].select(keys).group_by(keys).len().filter(pl.col("len") == 1)
    wanted = once.join(alone, on=keys, how="semi")
    numbered = calls.select(keys).with_row_index("call")
    found = numbered.join(wanted, on=keys, how="semi")["call"].to_numpy()
    return found.astype(np.int64)


def by_text(
    column: pl.Series, read: Callable[[str | None], _T]
) -> tuple[NDArray[np.int32], list[_T]]:
    """Return the number of each row's text, and the result of ``read`` for each text, called once per
    text."""
    codes, texts = compact(column)
    return codes, [read(text) for text in texts]


def holds(column: pl.Series, predicate: Callable[[str | None], bool]) -> NDArray[np.bool_]:
    """Return the rows for whose Categorical text ``predicate`` is true."""
    codes, values = by_text(column, predicate)
    flags: NDArray[np.bool_] = np.array(values, bool)[codes]
    return flags


@lru_cache(maxsize=65_536)
def tensors(text: str | None) -> tuple[Tensor, ...]:
    """Return the tensors of ``inputs`` or ``outputs`` whose sizes are all known."""
    specs: list[Tensor] = []
    for dtype, sizes, same in _TENSOR.findall(text or ""):
        dims = sizes.split(",") if sizes else []
        if not same and all(dim.isdecimal() for dim in dims):
            specs.append((dtype, tuple(map(int, dims))))
    return tuple(specs)


@dataclass(frozen=True, slots=True)
class Cast:
    """A copy of a tensor to another number format."""

    source: str
    to: str
    shape: tuple[int, ...]


def cast_of(inputs: str | None, outputs: str | None, params: str | None) -> Cast | None:
    """Return the cast between two floating-point formats that an op with these texts does; None if it does no
    cast. ``params`` has the format as ``dtype``, for ops whose results were not recorded."""
    read, written = tensors(inputs), tensors(outputs)
    if not read:
        return None
    source, shape = read[-1] if len(read) == 2 else read[0]
    if len(read) == 2:  # copy_: the destination, then the source
        to = read[0][0] if read[0][1] == shape else source
    elif written:
        to = written[0][0]
    else:
        to = next((name for name in FLOATS if f'dtype="{name}"' in (params or "")), source)
    return Cast(source, to, shape) if to != source and {to, source} <= FLOATS else None


def numel(dims: Sequence[int]) -> int:
    """Return the number of elements."""
    count = 1
    for dim in dims:
        count *= dim
    return count


def size_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor; 0 if the dtype's size is not known."""
    return numel(tensor[1]) * DTYPE_BITS.get(tensor[0], 0) // 8
