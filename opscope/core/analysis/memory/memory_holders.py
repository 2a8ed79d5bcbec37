"""The holders of a device's memory: the program's lines whose blocks were in use, at the peak or at the
end."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.memory.memory_blocks import ordered
from opscope.core.code_files import is_user_s, parse_stack
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import nest
from opscope.core.tables.trace import Trace

_PLACE: Final = ("process", "device")
_BLOCK: Final = (*_PLACE, "address")
SCHEMA: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "held": pl.Int64,
    "share": pl.Float64,
    "blocks": pl.Int64,
    "largest": pl.Int64,
    "line": pl.String,
    "function": pl.String,
    "range": pl.String,
    "reason": pl.String,
}
#: The two times at which holders are listed.
PEAK, END = "peak", "end"
#: Why a block has no line.
NO_STACK: Final = "no stack of the allocation was recorded"
BEFORE: Final = "in use before the first event, and released before the snapshot"
_ACTIVE: Final = "active"


def memory_holders(trace: Trace, when: str) -> pl.DataFrame:
    """Return one row per process, device, source line and range that held memory, the most first (bytes).

    ``when``: at the ``peak`` of the history, or at the ``end``, when the snapshot was taken. ``line`` and
    ``function``: the innermost frame of the program's own files, else the innermost frame. ``range``: the
    innermost range of the program that was open at the allocation. The rows of a device add up to what was in
    use then. Blocks of the snapshot that the history lacks were in use throughout.
    """
    if trace["memory_blocks"].is_empty() and not trace["allocations"]["stack"].count():
        return pl.DataFrame(schema=SCHEMA)  # other sources have no stacks; memory_by_op has the ops
    in_use = _at_end(trace) if when == END else _at_peak(trace)
    if in_use.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    lined = in_use.join(
        _lines(in_use["stack"]), on="stack", how="left", nulls_equal=True, maintain_order="left"
    )
    lined = lined.with_columns(
        _ranges(trace, lined),
        pl.when(pl.col("stack").is_null())
        .then(pl.coalesce("reason", pl.lit(NO_STACK)))
        .alias("reason"),
    )
    rows = lined.group_by(*_PLACE, "line", "function", "range", "reason").agg(
        pl.col("bytes").sum().alias("held"),
        pl.when(pl.col("blocks").is_not_null().all()).then(pl.col("blocks").sum()).alias("blocks"),
        pl.col("bytes").filter(pl.col("blocks") == 1).max().alias("largest"),
    )
    rows = rows.with_columns(
        (pl.col("held") / pl.col("held").sum().over(_PLACE)).fill_nan(None).alias("share")
    )
    order = ["held", "line", "function", "range", "reason"]
    return (
        rows.sort(*_PLACE, *order, descending=[False, False, True, *[False] * 4], nulls_last=True)
        .select(*SCHEMA)
        .cast(SCHEMA)  # type: ignore[arg-type]
    )


def _at_end(trace: Trace) -> pl.DataFrame:
    """Return the blocks in use when the snapshot was taken, with the time of their allocation, if known."""
    blocks = trace["memory_blocks"].filter(pl.col("state").cast(pl.String).str.starts_with(_ACTIVE))
    latest = (
        trace["allocations"].filter(pl.col("bytes") > 0).group_by(_BLOCK).agg(pl.col("time").last())
    )
    joined = blocks.join(
        latest, on=list(_BLOCK), how="left", maintain_order="left", nulls_equal=True
    )
    return joined.select(*_BLOCK, "bytes", "time", pl.col("stack").cast(pl.String), *_one())


def _one() -> list[pl.Expr]:
    return [pl.lit(1, pl.Int64).alias("blocks"), pl.lit(None, pl.String).alias("reason")]


def _at_peak(trace: Trace) -> pl.DataFrame:
    """Return the blocks in use at each device's peak, and the memory that the history does not explain."""
    events = ordered(trace).with_row_index("row")
    if events.is_empty():
        return _at_end(trace)
    first = pl.col("row").get(pl.col("total").arg_max()).over(_PLACE)
    until = pl.col("row").shift(-1).over(_BLOCK)
    in_use = events.with_columns(first.alias("peak_row"), until.alias("until")).filter(
        (pl.col("bytes") > 0)
        & (pl.col("row") <= pl.col("peak_row"))
        & (pl.col("until").fill_null(len(events)) > pl.col("peak_row"))
    )
    in_use = in_use.select(*_BLOCK, "bytes", "time", pl.col("stack").cast(pl.String), *_one())
    seen = events.filter(pl.col("bytes") > 0).select(*_BLOCK).unique()
    throughout = _at_end(trace).join(seen, on=list(_BLOCK), how="anti", nulls_equal=True)
    throughout = throughout.join(
        events.select(_PLACE).unique(), on=list(_PLACE), how="semi", nulls_equal=True
    )
    both = pl.concat([in_use, throughout.with_columns(pl.lit(None, pl.Int64).alias("time"))])
    return pl.concat([both, _rest(events, both)])


def _rest(events: pl.DataFrame, both: pl.DataFrame) -> pl.DataFrame:
    """Return the memory in use at the peak of each device that is in none of the known blocks ``both``."""
    peak = events.group_by(_PLACE).agg(pl.col("total").max().alias("peak"))
    known = both.group_by(_PLACE).agg(pl.col("bytes").sum().alias("known"))
    return (
        peak.join(known, on=list(_PLACE), how="left", nulls_equal=True)
        .with_columns((pl.col("peak") - pl.col("known").fill_null(0)).alias("bytes"))
        .filter(pl.col("bytes") != 0)
        .select(
            *_PLACE,
            pl.lit(None, pl.Int64).alias("address"),
            "bytes",
            pl.lit(None, pl.Int64).alias("time"),
            pl.lit(None, pl.String).alias("stack"),
            pl.lit(None, pl.Int64).alias("blocks"),
            pl.lit(BEFORE).alias("reason"),
        )
    )


def _lines(stacks: pl.Series) -> pl.DataFrame:
    """Return line and function of each stack: of the program's own innermost frame, else of the innermost."""
    rows = []
    for stack in stacks.drop_nulls().unique(maintain_order=True).to_list():
        frames = parse_stack(stack)
        own = next(
            (frame for frame in frames if is_user_s(frame[0])), frames[0] if frames else None
        )
        rows.append((stack, *((f"{own[0]}:{own[1]}", own[2]) if own else (None, None))))
    schema = {"stack": pl.String, "line": pl.String, "function": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _ranges(trace: Trace, in_use: pl.DataFrame) -> pl.Series:
    """Return the text of the innermost range of the program that was open when each block was allocated."""
    ranges = trace["ranges"].filter(pl.col("end").is_not_null())
    ranges_of = np.full(len(in_use), -1, np.int64)
    time = in_use["time"].fill_null(-1).to_numpy()
    for (process,), part in ranges.with_row_index("range_row").group_by("process"):
        part = part.sort("start", "end", descending=[False, True])
        tree = nest(part["start"].to_numpy(), part["end"].to_numpy())
        rows = np.flatnonzero(
            in_use["process"].eq_missing(pl.Series([process], dtype=pl.Int32)).to_numpy()
            & (time >= 0)
        )
        ranges_of[rows] = at(
            part["range_row"].cast(pl.Int64).to_numpy(), tree.innermost(time[rows])
        )
    numbers = pl.Series(ranges_of).replace(-1, None).cast(pl.UInt32)
    texts: pl.Series = ranges["text"].cast(pl.String).gather(numbers).alias("range")
    return texts


def answer(profile: Answers, when: str = PEAK) -> pl.DataFrame:
    """The lines of the program whose blocks were in use; ``when``: at the peak, or at the end."""
    return memory_holders(profile.trace, when)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "memory_holders()",
            "one row per process, device, source line and range of the program that held memory",
            columns(
                "process device held share blocks largest line function range reason",
                """
                held: bytes: its blocks that were in use then
                share: fraction: held / all that was in use on the device then
                blocks: count: its blocks that were in use then; null if that is not known
                largest: bytes: the largest of them; null if that is not known
                line: text: file and line of the program that allocated; its innermost frame outside
                    libraries
                function: text: the function of that line
                range: text: innermost range of the program that was open at the allocation
                reason: text: why there is no line
                """,
            ),
        ),
    ),
    parameters={
        "when": parameters.choice("at the peak of the history, or at its end", (PEAK, END))
    },
    merged=lacking.MOMENTS,
    reports=(
        Report(
            name="memory_holders",
            title="Memory in use at the peak, by line",
            empty="no stacks of allocations (a memory snapshot of PyTorch has them)",
            sums="held blocks",
        ),
    ),
)
