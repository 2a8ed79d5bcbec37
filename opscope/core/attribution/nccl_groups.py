"""Rule 7: a kernel that ncclGroupEnd launches belongs to the NCCL calls since its ncclGroupStart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.schema import OpCall, ParamValue
from opscope.core.tables.interpret import ExtendedReadings, Meaning

_MOST_NAMED = 8
_MOST_PEERS = 64


def name_groups(ranges: pl.DataFrame, meaning: Meaning, is_op: NDArray[np.bool_]) -> Meaning:
    """Return ``meaning`` in which each ``ncclGroupEnd`` range represents the calls of its group.

    It is named after these calls, such as ``ncclSend+ncclRecv``. Groups nest, and only the outermost end
    launches; the calls of a group are those between the outermost start and end on one thread.
    """
    name = meaning.each(lambda r: r.call.name if r.role == "op" and r.call else "", object)
    if not (name == "ncclGroupEnd").any():
        return meaning
    is_nccl = np.array([n.startswith("nccl") and ":" not in n for n in name], bool)
    rows = np.flatnonzero(is_op & is_nccl[meaning.reading])
    calls = pl.DataFrame(
        {
            "row": rows,
            "process": ranges["process"].gather(rows),
            "thread": ranges["thread"].gather(rows),
            "start": ranges["start"].gather(rows),
            "name": pl.Series(name.tolist())[meaning.reading[rows].tolist()].cast(pl.Categorical),
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
        calls.with_columns(pl.when(inside).then("reading").alias("inside"))
        .group_by(*thread, "group")
        .agg(
            pl.col("inside").drop_nulls().cast(pl.String).str.join("+").alias("members"),
            pl.col("row").filter(closes & (pl.col("level") == 0)).first().alias("end"),
        )
        .drop_nulls("end")
        .filter(pl.col("members") != "")
    )
    ends = groups["end"].to_numpy()
    readings, changed = ExtendedReadings(meaning), meaning.reading[ends]
    for members in groups["members"].unique():  # a loop over distinct groups, not over events
        mine = (groups["members"] == members).to_numpy()
        calls_of = [meaning.readings[int(number)].call for number in members.split("+")]
        for old in np.unique(meaning.reading[ends[mine]]):
            new = _group(readings, int(old), [call for call in calls_of if call])
            changed[mine & (meaning.reading[ends] == old)] = new
    return readings.meaning(ends, changed)


def _group(readings: ExtendedReadings, end: int, members: list[OpCall]) -> int:
    names = [call.name for call in members]
    distinct = list(dict.fromkeys(names))
    cut = "" if len(distinct) <= _MOST_NAMED else "+…"
    counts = tuple((name, names.count(name)) for name in distinct[:_MOST_NAMED])
    call = OpCall("+".join(distinct[:_MOST_NAMED]) + cut, params=(*counts, *_together(members)))
    reading = replace(readings.reading(end), call=call, direction="communication")
    return readings.add(reading, readings.text(end))


def _together(members: list[OpCall]) -> tuple[tuple[str, ParamValue], ...]:
    """Return the parameters that a group's calls share, their peers, and the sum of their bytes if all are
    known."""
    params: list[tuple[str, ParamValue]] = []
    for key in ("communicator", "ranks", "root", "reduction"):
        values = {call.param(key) for call in members}
        if len(values) == 1 and None not in values:
            params.append((key, values.pop()))
    peers = sorted({peer for call in members if type(peer := call.param("peer")) is int})
    if peers:
        params.append(("peers", tuple(peers[:_MOST_PEERS])))
    sizes = [size for call in members if type(size := call.param("bytes")) is int]
    if sizes and len(sizes) == len(members):
        params.append(("bytes", sum(sizes)))
        for key, name in (("sent", "ncclSend"), ("received", "ncclRecv")):
            part = [size for call, size in zip(members, sizes, strict=True) if call.name == name]
            if part:
                params.append((key, sum(part)))
    return tuple(params)
