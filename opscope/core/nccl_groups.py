"""NCCL groups: what ncclGroupEnd launches belongs to the calls since its ncclGroupStart (rule 7)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.interpret import Meaning
from opscope.core.schema import OpCall

_MOST_NAMED = 8


def name_groups(ranges: pl.DataFrame, meaning: Meaning, is_op: NDArray[np.bool_]) -> None:
    """Let each ``ncclGroupEnd`` range mean the calls of its group, such as ``ncclSend+ncclRecv``.

    Groups nest, and only the outermost end launches; the calls of a group are those between the
    outermost start and end on one thread.
    """
    name = [r.call.name if r.role == "op" and r.call is not None else "" for r in meaning.readings]
    is_nccl = np.array([n.startswith("nccl") and ":" not in n for n in name], bool)
    if "ncclGroupEnd" not in name:
        return
    rows = np.flatnonzero(is_op & is_nccl[meaning.reading])
    calls = pl.DataFrame(
        {
            "row": rows,
            "process": ranges["process"].gather(rows),
            "thread": ranges["thread"].gather(rows),
            "start": ranges["start"].gather(rows),
            "name": pl.Series(name)[meaning.reading[rows].tolist()].cast(pl.Categorical),
            "reading": meaning.reading[rows],
        }
    ).sort("process", "thread", "start")
    thread = ["process", "thread"]
    opens = pl.col("name") == "ncclGroupStart"
    closes = pl.col("name") == "ncclGroupEnd"
    level = (opens.cast(pl.Int32) - closes.cast(pl.Int32)).cum_sum().over(thread)
    calls = calls.with_columns(level.alias("level")).with_columns(
        (opens & (pl.col("level") == 1)).cum_sum().over(thread).alias("group")
    )
    inside = ~opens & ~closes & (pl.col("level") > 0)
    groups = (
        calls.with_columns(pl.when(inside).then("name").alias("inside"))
        .group_by(*thread, "group")
        .agg(
            pl.col("inside").drop_nulls().cast(pl.String).str.join("+").alias("members"),
            pl.col("row").filter(closes & (pl.col("level") == 0)).first().alias("end"),
        )
        .drop_nulls("end")
        .filter(pl.col("members") != "")
    )
    made: dict[tuple[int, str], int] = {}
    ends = groups["end"].to_numpy()
    for members in groups["members"].unique():  # distinct groups, not events
        of = ends[(groups["members"] == members).to_numpy()]
        for old in np.unique(meaning.reading[of]):
            made[int(old), members] = _group(meaning, int(old), members.split("+"))
            meaning.reading[of[meaning.reading[of] == old]] = made[int(old), members]


def _group(meaning: Meaning, end: int, members: list[str]) -> int:
    distinct = sorted(set(members), key=members.index)
    more = "" if len(distinct) <= _MOST_NAMED else "+…"
    call = OpCall(
        "+".join(distinct[:_MOST_NAMED]) + more,
        params=tuple((name, members.count(name)) for name in distinct[:_MOST_NAMED]),
    )
    meaning.readings.append(replace(meaning.readings[end], call=call, direction="communication"))
    meaning.texts.append(meaning.texts[end])
    return len(meaning.readings) - 1
