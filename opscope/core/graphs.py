"""CUDA graphs: a replayed kernel belongs to the op that captured its node (rule 5).

Three sources, the best first: the node's creation event (``graph_nodes``, Nsight Systems with node
tracing), then the order of the launches seen while the stream was capturing, in this process or in
the trace of the capture that was opened with it. The last two are inferred, and say so. Where ranges
name the graph that is captured and replayed (the PyTorch adapter's do) no other capture is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.columns import at, matching
from opscope.core.intervals import NONE, Ints, nest
from opscope.core.trace import Trace

GRAPH_LAUNCH: Final = r"^(cu|cuda|hip)GraphLaunch"
LAUNCH: Final = (
    r"^(cu|cuda|hip)(Ext)?(Module)?Launch(Cooperative)?Kernel(ExC|Ex|_C|_ptsz|_v\d+)?"
    r"|^hip(HccModule|Drv)LaunchKernel|^hipExtLaunchMultiKernel|^hipLaunchByPtr"
)
_GRAPH_TEXT: Final = r"^CUDA graph (\d+) {}$"
_BEGIN: Final = r"StreamBeginCapture"
_END: Final = r"StreamEndCapture|GraphInstantiate"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The kernels that graph launches executed.

    ``kernels``: their rows. ``call``: for each the row of the call that put its node in the graph
    (-1: not known). ``inferred``: whether only the order of the launches tells. ``node_thread``,
    ``node_time``: where and when the node was created, for those that a creation event tells
    (``has_node``); the op is the one open there and then.
    """

    kernels: Ints
    call: Ints
    inferred: NDArray[np.bool_]
    has_node: NDArray[np.bool_]
    node_process: Ints
    node_thread: Ints
    node_time: Ints


def replayed(trace: Trace, link: NDArray[np.int32]) -> Replayed | None:
    """The kernels launched by graph launches; ``link`` is each kernel's launching call, or -1."""
    calls, kernels = trace["calls"], trace["kernels"]
    is_graph = matching(calls["name"], GRAPH_LAUNCH)
    by_call = np.zeros(len(kernels), bool)
    if is_graph.any():
        by_call = at(is_graph, link, False)
    rows = np.flatnonzero(by_call | kernels["graph_node"].is_not_null().to_numpy())
    if not len(rows):
        return None
    nodes = _creation(trace, rows)
    found = np.full(len(rows), NONE, np.int64)
    pending = (nodes["time"].is_null() & pl.Series(link[rows] >= 0)).to_numpy()
    if pending.any():
        found[pending] = _by_order(trace, link, rows[pending])
    return Replayed(
        rows,
        found,
        found >= 0,
        nodes["time"].is_not_null().to_numpy(),
        nodes["process"].fill_null(NONE).to_numpy(),
        nodes["thread"].fill_null(NONE).to_numpy(),
        nodes["time"].fill_null(NONE).to_numpy(),
    )


def _creation(trace: Trace, rows: Ints) -> pl.DataFrame:
    """Process, thread and time of the creation of each kernel's node; null where not recorded.

    Instantiating a graph clones its nodes: a clone's creation names its original, and the original
    was created where the op was captured.
    """
    kernels = trace["kernels"].select("process", "graph_node")[rows]
    events = trace["graph_nodes"].select("process", "node", "original_node", "thread", "time")
    first = events.sort("time").unique(["process", "node"], keep="first")
    known = kernels.join(
        first.rename({"node": "graph_node"}),
        on=["process", "graph_node"],
        how="left",
        maintain_order="left",
    )
    for _ in range(4):  # a clone of a clone of a child graph's node; deeper is not seen
        up = known.join(
            first.select(
                "process",
                pl.col("node").alias("original_node"),
                pl.col("original_node").alias("next"),
                pl.col("thread").alias("above_thread"),
                pl.col("time").alias("above_time"),
            ),
            on=["process", "original_node"],
            how="left",
            maintain_order="left",
        )
        known = up.select(
            "process",
            pl.coalesce("above_thread", "thread").alias("thread"),
            pl.coalesce("above_time", "time").alias("time"),
            pl.when(pl.col("above_time").is_not_null()).then("next").alias("original_node"),
        )
        if known["original_node"].is_null().all():
            break
    return known.select("process", "thread", "time")


def _by_order(trace: Trace, link: NDArray[np.int32], rows: Ints) -> Ints:
    """The k-th kernel of a replay is the k-th launch of the capture with as many launches.

    Where several captures have that many, the latest before the replay in the same process is
    taken; in another process (the trace of the capture), only if it is the only one.
    """
    calls, kernels = trace["calls"], trace["kernels"]
    sequences = _captures(calls, link)
    named = _named_captures(trace, link)
    found = np.full(len(rows), NONE, np.int64)
    if not sequences and not named:
        return found
    replay = link[rows].astype(np.int64)
    start = kernels["start"].gather(rows).to_numpy()
    order = np.lexsort((start, replay))
    launch, first, many = np.unique(replay[order], return_index=True, return_counts=True)
    process = calls["process"].fill_null(NONE).to_numpy()
    time = calls["start"].to_numpy()
    lengths = np.array([len(s) for s in sequences])
    numbers = _graph_numbers(trace, launch, "replay", by_thread=True)
    every = zip(launch.tolist(), first.tolist(), many.tolist(), numbers.tolist(), strict=True)
    for call, begin, count, number in every:
        own = named.get((int(process[call]), number))
        if own is not None:
            if len(own) == count:
                found[order[begin : begin + count]] = own
            continue
        fitting = [sequences[n] for n in np.flatnonzero(lengths == count)]
        here = [s for s in fitting if process[s[0]] == process[call] and time[s[0]] < time[call]]
        if here:
            chosen = max(here, key=lambda s: int(time[s[0]]))
        elif len(fitting) == 1:
            chosen = fitting[0]
        else:
            continue
        found[order[begin : begin + count]] = chosen
    return found


def _named_captures(trace: Trace, link: NDArray[np.int32]) -> dict[tuple[int, int], Ints]:
    """By (process, number of the graph) the launches of its capture, in order of time.

    The backward pass launches from a thread of its own, which begins and ends no capture: so those of
    all threads of the process count that executed nothing while the graph was captured.
    """
    calls = trace["calls"]
    launch = matching(calls["name"], LAUNCH)
    launch[link[link >= 0]] = False
    rows = np.flatnonzero(launch)
    number = _graph_numbers(trace, rows, "capture", by_thread=False)
    rows, number = rows[number >= 0], number[number >= 0]
    process = calls["process"].gather(rows).fill_null(NONE).to_numpy()
    start = calls["start"].gather(rows).to_numpy()
    by_time = np.lexsort((start, number, process))
    found: dict[tuple[int, int], Ints] = {}
    if len(rows):
        keys = np.stack((process[by_time], number[by_time]), axis=1)
        edges = np.flatnonzero(np.any(keys[1:] != keys[:-1], axis=1)) + 1
        for part in np.split(by_time, edges):
            found[int(process[part[0]]), int(number[part[0]])] = rows[part]
    return found


def _graph_numbers(trace: Trace, rows: Ints, what: str, *, by_thread: bool) -> Ints:
    """The graph that is captured or replayed around each of the calls ``rows``; -1 where none is named."""
    found = np.full(len(rows), NONE, np.int64)
    ranges, calls = trace["ranges"], trace["calls"]
    named = ranges.filter(pl.col("category") == "graph").select(
        "process",
        pl.col("thread") if by_thread else pl.lit(NONE, pl.Int64).alias("thread"),
        "start",
        "end",
        pl.col("text")
        .cast(pl.String)
        .str.extract(_GRAPH_TEXT.format(what))
        .cast(pl.Int64, strict=False)
        .alias("number"),
    )
    named = named.filter(pl.col("number").is_not_null())
    if named.is_empty() or not len(rows):
        return found
    process = calls["process"].gather(rows).fill_null(NONE).to_numpy()
    thread = calls["thread"].gather(rows).fill_null(NONE).to_numpy()
    time = calls["start"].gather(rows).to_numpy()
    for (of, on), part in named.group_by("process", "thread"):
        here = np.flatnonzero((process == of) & ((thread == on) | (not by_thread)))
        tree = nest(part["start"].to_numpy(), part["end"].to_numpy())
        found[here] = at(part["number"].to_numpy(), tree.innermost(time[here]))
    return found


def _captures(calls: pl.DataFrame, link: NDArray[np.int32]) -> list[Ints]:
    """Per capture the rows of its launches: those that executed nothing, in order of time.

    A capture is what lies between its begin and its end on one thread; where the trace has no
    begin (it was cut), what lies before the end and after the last launch that did execute.
    """
    launch = matching(calls["name"], LAUNCH)
    begin, end = matching(calls["name"], _BEGIN), matching(calls["name"], _END)
    executed = np.zeros(len(calls), bool)
    executed[link[link >= 0]] = True
    relevant = np.flatnonzero(launch | begin | end)
    if not len(relevant) or not (begin | end).any():
        return []
    part = pl.DataFrame(
        {
            "row": relevant,
            "process": calls["process"].gather(relevant),
            "thread": calls["thread"].gather(relevant),
            "start": calls["start"].gather(relevant),
            "edge": (begin | end)[relevant],
            "captured": (launch & ~executed)[relevant],
        }
    ).sort("process", "thread", "start")
    grouped = (
        part.with_columns(pl.col("edge").cum_sum().over("process", "thread").alias("window"))
        .filter("captured")
        .group_by("process", "thread", "window", maintain_order=True)
        .agg("row")
    )
    return [rows.to_numpy() for rows in grouped["row"]]
