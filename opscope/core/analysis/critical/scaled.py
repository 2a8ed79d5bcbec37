"""The durations of a graph, scaled by a change, and the times that the replay of the change gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.critical.graph import ARRIVE, LAUNCH, MARK, RETURN, Graph
from opscope.core.analysis.critical.replay import replay, wall
from opscope.core.analysis.ops.ops import Ops
from opscope.core.tables.intervals import NONE, Floats, Ints

SCHEMA: Final = {
    "process": pl.Int32,
    "step": pl.Int64,
    "wall_time": pl.Int64,
    "new_wall_time": pl.Int64,
    "saving": pl.Int64,
    "saving_share": pl.Float64,
    "removed_time": pl.Int64,
}
_Row = tuple[int | None, int | None, int, int, int | None]


@dataclass
class Scaled:
    """A graph with its own durations, weights and delays, which the methods change; times in ns.

    ``removed``: the time of removed waits, which is not part of any duration.
    """

    made: Graph
    duration: Ints
    weight: Ints
    delay: Ints
    removed: int = 0

    @classmethod
    def of(cls, graph: Graph) -> Scaled:
        """Return the graph as it was measured."""
        return cls(graph, graph.duration.copy(), graph.weight.copy(), graph.delay.copy())

    def device(self, factor: Floats) -> None:
        """Scale the device work by the factor of each place of ``made.work``, collectives' transfers too."""
        graph = self.made
        worked = slice(graph.host_nodes, len(graph))  # threads' nodes before them take no time
        per_node = factor[graph.ref[worked]]
        self.duration[worked] = scaled(self.duration[worked], per_node)
        arrive = graph.host_nodes + np.flatnonzero(graph.kind[worked] == ARRIVE)
        self.weight[arrive] = scaled(self.weight[arrive], per_node[arrive - graph.host_nodes])
        shared = np.flatnonzero(graph.shared)
        per_edge = per_node[graph.target[shared] - graph.host_nodes]
        self.delay[shared] = scaled(self.delay[shared], per_edge)

    def launching(self, factor: Floats | float) -> None:
        """Scale the delays from launches to the start of their work, by the factor of each row of calls."""
        graph = self.made
        launching = graph.kind[graph.source] == LAUNCH
        launching &= (graph.target >= graph.host_nodes) & ~graph.shared & (self.delay > 0)
        per_edge = np.full(int(launching.sum()), factor) if isinstance(factor, float) else (
            factor[graph.ref[graph.source[launching]]]
        )  # fmt: skip
        self.delay[launching] = scaled(self.delay[launching], per_edge)

    def host(self, nodes: Ints, edges: Ints, factor: Floats) -> None:
        """Scale a thread's own work before each of its ``nodes``, by the mean factor over that time.

        ``factor`` applies from each of ``edges`` (ns since the window's start, the first 0) to the next.
        """
        graph = self.made
        passed = np.concatenate(([0.0], np.cumsum(np.diff(edges) * factor[:-1])))
        time = graph.time[nodes]
        index = np.maximum(np.searchsorted(edges, time, "right") - 1, 0)
        until = passed[index] + (time - edges[index]) * factor[index]
        before = np.concatenate(([0], time[:-1]))
        lasted, changed = time - before, np.diff(until, prepend=0.0)
        mean = np.divide(changed, lasted, out=np.ones(len(nodes)), where=lasted > 0)
        own = self.weight[nodes]
        # sums of fractions are slightly off whole numbers; rounding down must not lose a nanosecond
        new = np.floor(own * mean + 1e-3).astype(np.int64)
        self.weight[nodes] = np.where(mean == 1.0, own, new)

    def unwaited(self, call: NDArray[np.bool_]) -> None:
        """Make the calls flagged in ``call`` (per row of calls) wait for no device work."""
        graph = self.made
        gone = graph.kind[graph.target] == RETURN
        gone[gone] = call[graph.ref[graph.target[gone]]]
        if not gone.any():
            return
        node = np.unique(graph.target[gone])  # the call's begin precedes its return in the thread
        waited = graph.time[node] - graph.time[node - 1] - graph.weight[node]
        self.removed += int(np.maximum(waited, 0).sum())
        kept = ~gone
        self.delay = self.delay[kept]
        self.made = replace(
            graph,
            source=graph.source[kept],
            target=graph.target[kept],
            delay=graph.delay[kept],
            shared=graph.shared[kept],
        )

    def times(self, ops: Ops) -> pl.DataFrame:
        """Return the window's time, then each step's, in the form of SCHEMA."""
        graph = self.made
        reached = replay(graph, self.duration, self.weight, self.delay)
        removed = self.removed + sum(
            int((old - new).sum())
            for old, new in (
                (graph.duration, self.duration),
                (graph.weight, self.weight),
                (graph.delay, self.delay),
            )
        )
        before, after = graph.high - graph.low, wall(graph, reached, self.duration)
        rows: list[_Row] = [(None, None, before, after, removed), *_steps(ops, graph, reached)]
        names = ["process", "step", "wall_time", "new_wall_time", "removed_time"]
        frame = pl.DataFrame(rows, schema=names, orient="row")
        saving = pl.col("wall_time") - pl.col("new_wall_time")
        some = pl.when(pl.col("wall_time") > 0).then(pl.col("wall_time"))
        return frame.with_columns(
            saving.alias("saving"), (saving / some).alias("saving_share")
        ).select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())


def scaled(values: Ints, factor: Floats) -> Ints:
    """Return the values times the factors, rounded down; those with factor 1 unchanged."""
    changed: Ints = values.copy()
    here = np.flatnonzero(factor != 1.0)
    changed[here] = np.floor(values[here] * factor[here])
    return changed


def _steps(ops: Ops, graph: Graph, reached: Ints) -> list[_Row]:
    steps = graph.steps
    marks = np.full(2 * len(steps), NONE, np.int64)
    here = np.flatnonzero(graph.kind == MARK)
    marks[graph.ref[here]] = here
    process, thread = (steps[name].fill_null(NONE).to_numpy() for name in ("process", "thread"))
    number = ops.context.step(process, thread, steps["start"].to_numpy()).to_list()
    rows: list[_Row] = []
    for row in range(len(steps)):
        first, last = int(marks[2 * row]), int(marks[2 * row + 1])
        if first < 0 or last < 0:
            continue
        took = int(graph.time[last] - graph.time[first])
        takes = int(reached[last] - reached[first])
        rows.append((int(process[row]), number[row], took, takes, None))
    return rows
