"""Ranges that were open when the capture ended: nvprof gives them no end, Nsight Systems its own end, and
says nothing."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from opscope.core.tables.amended import unclosed

CUT_OFF: Final = (
    "NVTX ranges that were open when the capture ended: each is cut where the last thing on its thread "
    "ended (harmless: all that ran in them counts; a step among them is not counted)"
)


def open_at_end(tables: dict[str, pl.DataFrame], duration: int | None) -> int:
    """Cut the ranges that were open at the capture's end, and mark them as unclosed; how many those were.

    They are those without an end, and those that end at ``duration`` (ns). The program, or the range's
    thread, had mostly ended long before: a push/pop range ends with the last thing that its thread did,
    one that another thread may end with the last of its process, at least 1 ns after its start.
    """
    ranges = tables["ranges"]
    opened = pl.col("end").is_null()
    if duration is not None:
        opened |= pl.col("end") == duration
    opened &= pl.col("start").is_not_null() & (pl.col("kind") != "mark")
    is_open = ranges.select(opened).to_series()
    many = int(is_open.sum())
    if not many:
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
    place = rows["row"]
    tables["ranges"] = ranges.with_columns(
        ranges["end"].scatter(place, rows["end"]), ranges["attrs"].scatter(place, rows["attrs"])
    )
    return many


def _present(frame: pl.DataFrame, *names: str) -> list[str]:
    return [name for name in names if name in frame.columns]
