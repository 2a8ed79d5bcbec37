"""Cut NVTX ranges that were still open when the capture ended. nvprof records no end for them; Nsight
Systems records the end of the capture, without a mark."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from opscope.core.tables.amended import unclosed

CUT_OFF: Final = (
    "NVTX ranges still open when the capture ended: each is cut at the last event of its thread or process "
    "(harmless: all work in them counts; a step among them counts if its ops show where it ended)"
)


def open_at_end(tables: dict[str, pl.DataFrame], duration: int | None) -> int:
    """Cut the ranges in ``tables`` that were open at the capture's end, mark them as unclosed, and return
    how many there were.

    A range was open if it has no end, or if it ends at ``duration`` (ns). Usually the program, or the range's
    thread, had ended long before that. So a push/pop range now ends with the last event of its thread, and a
    range that another thread may end (start/end) with the last event of its process; at least 1 ns after its
    start.
    """
    ranges = tables["ranges"]
    opened = pl.col("end").is_null()
    if duration is not None:
        opened |= pl.col("end") == duration
    opened &= pl.col("start").is_not_null() & (pl.col("kind") != "mark")
    is_open = ranges.select(opened).to_series()
    count = int(is_open.sum())
    if not count:
        return 0
    cut = ranges.with_columns(pl.when(is_open).then("start").otherwise("end").alias("end"))
    happened = [cut.select("process", "thread", "end")]
    if "calls" in tables:
        happened.append(tables["calls"].select("process", "thread", "end"))
    last = (
        pl.concat(happened, how="vertical_relaxed")
        .group_by("process", "thread")
        .agg(pl.col("end").max().alias("last"))
    )
    of_process = last.group_by("process").agg(pl.col("last").max().alias("last_of_process"))
    rows = (
        ranges.with_row_index("row")
        .filter(is_open)
        .select("row", "process", "thread", "start", "kind", *_present(ranges, "attrs"))
        .join(last, on=["process", "thread"], how="left", nulls_equal=True)
        .join(of_process, on="process", how="left", nulls_equal=True)
    )
    until = pl.when(pl.col("kind") == "pushpop").then("last").otherwise("last_of_process")
    attrs: Any = pl.col("attrs") if "attrs" in ranges.columns else pl.lit(None, pl.String)
    rows = rows.select(
        "row",
        pl.max_horizontal(until, pl.col("start") + 1).alias("end"),
        unclosed(attrs).alias("attrs"),
    )
    if "attrs" not in ranges.columns:
        ranges = ranges.with_columns(pl.lit(None, pl.String).alias("attrs"))
    rows_of_ranges = rows["row"]
    tables["ranges"] = ranges.with_columns(
        ranges["end"].scatter(rows_of_ranges, rows["end"]),
        ranges["attrs"].scatter(rows_of_ranges, rows["attrs"]),
    )
    return count


def _present(frame: pl.DataFrame, *names: str) -> list[str]:
    return [name for name in names if name in frame.columns]
