"""Find the op that marks iterations (a key node), and when each iteration ended.

A key node runs once in each iteration; an iteration ends when it has ended. On several GPUs it runs once for
each of them, so the k-th iteration ends when the k-th instance has ended on every one: the rule of DLProf's
guide (1.4, section 10), explained in docs/dlprof-reports.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops.kernels import called
from opscope.core.analysis.ops.ops import Ops
from opscope.core.attribution.step_counter import in_path, names, writer
from opscope.core.job.clocks import gpus
from opscope.core.tables.columns import at, pieces
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.lanes import open_ranges


@dataclass(frozen=True, slots=True)
class Key:
    """The instances of a key node: range rows by end, and the name that was matched."""

    rows: Ints
    name: str


def key_ops(ops: Ops, key: str) -> Key | None:
    """Return the instances of the op (or else user range, layer) that ``key`` names; None if there is none.

    ``key``: the name of an op (``aten::addmm``), the op's node in a graph, DLProf's id of it (``CONV2D_1``),
    a user range's text or a layer's path, a pattern of any of these, or the number that ``profile.ops``
    gives as ``op_id``: then the instances are the calls with the same text and layer. A part of a path
    (``global_step`` of ``train/global_step/add``) is enough if nothing has the whole name.
    """
    attribution = ops.attribution
    meaning = attribution.meaning
    if key.isdecimal() and len(key) < 19:
        return _like_row(ops, int(key))
    there = np.unique(meaning.reading).tolist()
    for matches in (_is, in_path):
        for roles in (("op",), ("user",), ("layer",)):
            chosen = [
                number
                for number in there
                if (reading := meaning.readings[number]).role in roles
                and any(matches(name, key) for name in names(reading, meaning.texts[number]))
            ]
            rows = (
                _rows(ops, np.isin(meaning.reading, chosen), roles == ("op",)) if chosen else None
            )
            if rows is not None and len(rows):
                return _best(ops, rows, matches is in_path, key)
    return None


def _is(name: str, key: str) -> bool:
    return name == key or fnmatchcase(name, key)


def _rows(ops: Ops, chosen: NDArray[np.bool_], of_ops: bool) -> Ints:
    """Return the rows that ended, ordered by end."""
    wanted = chosen & ops.attribution.is_op if of_ops else chosen
    rows = np.flatnonzero(wanted)
    ends = ops.attribution.trace["ranges"]["end"].gather(rows)
    ended = ends.is_not_null().to_numpy()
    order = np.argsort(ends.drop_nulls().to_numpy(), kind="stable")
    ended_rows: Ints = rows[ended][order]
    return ended_rows


def _like_row(ops: Ops, row: int) -> Key | None:
    """Return the calls with the text and the layer of an op's row."""
    attribution = ops.attribution
    if row >= len(attribution.is_op) or not attribution.is_op[row]:
        return None
    same = attribution.meaning.reading == attribution.meaning.reading[row]
    rows = _rows(ops, same, True)
    layers = ops.layers(rows).cast(pl.String)
    mine = ops.layers(np.array([row])).cast(pl.String)[0]
    kept = layers.eq_missing(pl.Series([mine], dtype=pl.String)).to_numpy()
    return Key(rows[kept], attribution.meaning.texts[attribution.meaning.reading[row]])


def _best(ops: Ops, rows: Ints, partly: bool, key: str) -> Key:
    """Return the op that has ``key`` in its path and writes the counter of steps; else the best match."""
    meaning = ops.attribution.meaning
    if not partly:
        return Key(rows, key)
    reading = meaning.reading[rows]
    paths = {
        number: next(
            name for name in names(meaning.readings[number], meaning.texts[number])
            if in_path(name, key)
        )
        for number in np.unique(reading).tolist()
    }  # fmt: skip
    chosen = writer(paths.values())
    kept = np.isin(reading, [number for number, path in paths.items() if path == chosen])
    return Key(rows[kept], chosen)


def unknown_key(ops: Ops, key: str) -> str:
    """Return the error text for a key node that does not exist, with similar names."""
    meaning = ops.attribution.meaning
    there = {
        name
        for number in np.unique(meaning.reading).tolist()
        if (reading := meaning.readings[number]).role in ("op", "user", "layer")
        for name in names(reading, meaning.texts[number])
    }
    near = get_close_matches(key, sorted(there), 4, 0.6)
    hint = f"did you mean {', '.join(near)}?" if near else "opscope ops FILE lists the ops"
    return f"no op, user range or layer is named {key}: {hint}"


def stop_times(gpu: Ints, end: Ints) -> Ints:
    """Return when (ns) iterations ended, ascending, from the ends of all instances of a key node.

    ``gpu``: on which GPU each instance ran. If several GPUs ran equally many instances, the k-th iteration
    ends with the last of the k-th instances; else every instance, on any GPU, ends an iteration.
    """
    order = np.lexsort((end, gpu))
    _, count = np.unique(gpu, return_counts=True)
    if len(count) > 1 and (count == count[0]).all():
        return np.unique(end[order].reshape(len(count), count[0]).max(axis=0))
    return np.unique(end)


def on_gpus(ops: Ops, rows: Ints) -> tuple[Ints, Ints]:
    """Return the place among ``rows`` (instances of a key node) and the number of each GPU that the instance
    ran on.

    This is the GPU of the work that the instance launched; without such work, the only GPU that its thread,
    or else its process, uses. If that is unknown, a negative number for the process is returned instead.
    """
    ranges = ops.attribution.trace["ranges"]
    unplaced = pl.DataFrame(
        {
            "place": np.arange(len(rows)),
            **{name: ranges[name].gather(rows).cast(pl.Int64).fill_null(NONE)
               for name in ("process", "thread")},
        }
    )  # fmt: skip
    work = _work(ops, rows)
    placed = [work.filter(pl.col("place") >= 0).select("place", "gpu").unique()]
    unplaced = unplaced.join(placed[0], on="place", how="anti")
    for owner in (["process", "thread"], ["process"]):
        alone = work.group_by(owner).agg(pl.col("gpu").n_unique().alias("count"), pl.first("gpu"))
        alone = alone.filter(count=1).drop("count")
        placed.append(unplaced.join(alone, on=owner).select("place", "gpu"))
        unplaced = unplaced.join(alone, on=owner, how="anti")
    placed.append(unplaced.select("place", gpu=-2 - pl.col("process")))
    every = pl.concat(placed)
    return every["place"].to_numpy(), every["gpu"].to_numpy()


def _work(ops: Ops, rows: Ints) -> pl.DataFrame:
    """Return the distinct ``place``, ``process``, ``thread`` and ``gpu`` of all work on devices.

    ``place``: which of ``rows`` launched it (-1: none of them); ``process`` and ``thread`` are the launch's.
    """
    attribution = ops.attribution
    trace = attribution.trace
    index = np.full(len(attribution.is_op), NONE, np.int64)
    index[rows] = np.arange(len(rows))
    around = open_ranges(trace["calls"], trace["ranges"], rows)
    numbers = gpus(trace)
    parts = []
    for name, launched in (("kernels", attribution.kernels), ("memops", attribution.memops)):
        for part in pieces(len(trace[name])):
            here = launched.part(part)
            by_op = at(index, attribution.climb(here.op.astype(np.int64), index >= 0))
            process, thread, _ = called(trace["calls"], here.call)
            parts.append(
                trace[name][part]
                .select("process", "device")
                .join(numbers, on=["process", "device"], how="left", nulls_equal=True,
                      maintain_order="left")
                .select(
                    pl.Series("place", np.where(by_op >= 0, by_op, at(around, here.call))),
                    pl.Series("process", process.astype(np.int64)),
                    pl.Series("thread", thread.astype(np.int64)),
                    "gpu",
                )
                .unique()
            )  # fmt: skip
    return pl.concat(parts).unique()
