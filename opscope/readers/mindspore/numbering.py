"""Give the nodes of compiled graphs the numbers under which MindSpore's profiler recorded them.

A graph numbers the nodes of each path from 0 (``…/c1-Conv2d/Conv2D-op0``). In the profile, the numbers run
through the whole process: the second graph with nodes of this path continues where the first ended. Each
graph's numbers have no gap and follow the order of its nodes, including nodes that do not run (measured with
2.7 and 2.10). So runs with common names belong to one graph, the one whose paths and numbers of nodes fit
best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from opscope.core.dialects.mindspore import node_name

_NAME: Final = r"^(.*)-op([0-9]{1,9})$"
#: Kinds of nodes that MindSpore adds to a graph if a kernel does not support the dtypes, so that more may run
#: than the graph lists.
INSERTED: Final = frozenset({"Cast"})
#: Rounds of grouping runs that share names; longer chains are rare, and stay in several groups.
_ROUNDS: Final = 16


@dataclass(frozen=True, slots=True)
class _Path:
    """The numbers of the nodes of one path: the first, the last, and how many there are."""

    first: int
    last: int
    many: int


def renumbered(nodes: pl.DataFrame, ran: pl.DataFrame) -> pl.DataFrame:
    """Return the nodes of the graphs that ran, with the names under which they ran.

    ``nodes`` as in ``graph_nodes.Captured``. ``ran``: ``node`` of each execution of a graph's operator, and
    ``run``, the number of the graph's run. If several graphs fit a run equally, all that differ are returned.
    A path whose numbers are not certain is left out. Nodes that did not run get names that no executed node
    has. If no graph fits, nodes keep their names.
    """
    numbered = _number(nodes)
    graphs = {
        str(graph): _paths(part)
        for (graph,), part in numbered.filter(pl.col("path").is_not_null()).group_by("graph")
    }
    kinds = {node_name(node).op for node in ran["node"].unique()}
    last = {path: path_facts.last for path, path_facts in _paths(_number(ran)).items()}
    tables_made = [nodes.clear()]
    for _, part in _related(ran).group_by("runs", maintain_order=True):
        paths = _paths(_number(part))
        fitting = _fitting(paths, graphs, kinds)
        if not fitting:
            tables_made.append(nodes.filter(pl.col("node").is_in(part["node"].implode())))
        alike: list[pl.DataFrame] = []
        for graph in fitting:
            shifts = _shifts(paths, graphs[graph], last)
            shifted_nodes = _shift(numbered.filter(pl.col("graph") == graph), shifts)
            if not any(shifted_nodes.drop("graph").equals(other.drop("graph")) for other in alike):
                alike.append(shifted_nodes)
        tables_made += alike
    return pl.concat(tables_made)


def _number(nodes: pl.DataFrame) -> pl.DataFrame:
    return nodes.with_columns(
        pl.col("node").str.extract(_NAME, 1).alias("path"),
        pl.col("node").str.extract(_NAME, 2).cast(pl.Int64).alias("number"),
    )


def _paths(nodes: pl.DataFrame) -> dict[str, _Path]:
    number = pl.col("number")
    by_path = (
        nodes.filter(pl.col("path").is_not_null())
        .group_by("path")
        .agg(number.min().alias("first"), number.max(), number.n_unique().alias("many"))
    )
    return {path: _Path(first, last, count) for path, first, last, count in by_path.rows()}


def _related(ran: pl.DataFrame) -> pl.DataFrame:
    """Return run and node of each distinct pair, with ``runs``: equal for runs that share a name."""
    pairs = ran.select("run", "node").unique(maintain_order=True).with_columns(runs=pl.col("run"))
    for _ in range(_ROUNDS):
        least = pairs.with_columns(pl.col("runs").min().over("node"))
        least = least.with_columns(pl.col("runs").min().over("run"))
        if least["runs"].equals(pairs["runs"]):
            break
        pairs = least
    return pairs


def _fitting(
    ran: dict[str, _Path], graphs: dict[str, dict[str, _Path]], kinds: set[str]
) -> list[str]:
    """Return the graphs that have all executed paths, and of these the ones with fewest nodes that did not
    run. Paths in no graph belong to operators that MindSpore made from a node, or added to the graph."""
    paths_known = {path for graph in graphs.values() for path in graph}
    wanted = {
        path: facts
        for path, facts in ran.items()
        if path in paths_known and node_name(path).op not in INSERTED
    }
    idle: dict[str, tuple[int, int]] = {}
    for name, graph in graphs.items():
        if any(
            path not in graph or facts.last - facts.first >= graph[path].many
            for path, facts in wanted.items()
        ):
            continue
        left = {
            path: facts.many - (wanted[path].many if path in wanted else 0)
            for path, facts in graph.items()
            if node_name(path).op not in INSERTED
        }
        # views and the like never run, so first compare nodes of kinds that run
        of_kinds = sum(count for path, count in left.items() if node_name(path).op in kinds)
        idle[name] = (of_kinds, sum(left.values()))
    if not wanted or not idle:
        return []
    least = min(idle.values())
    return [name for name, count in idle.items() if count == least]


def _shifts(ran: dict[str, _Path], graph: dict[str, _Path], last: dict[str, int]) -> dict[str, int]:
    """Return for each path how much the executed numbers differ from the graph's. If not all nodes of a
    path ran, the first or the last ones may be missing. Then, if the same number of such graphs came first
    for all other paths, so it did for this path. ``last``: the last executed number of each path in any
    graph."""
    both = {path: (facts, graph[path]) for path, facts in ran.items() if path in graph}
    shift_of_path = {
        path: facts.first - of.first for path, (facts, of) in both.items() if facts.many == of.many
    }
    before = {
        shift / both[path][1].many
        for path, shift in shift_of_path.items()
        if node_name(path).op not in INSERTED
    }
    for path, (one, of) in both.items():
        if path in shift_of_path or len(before) != 1 or one.many > of.many:
            continue
        shift = round(next(iter(before)) * of.many)
        if shift + of.first <= one.first and one.last <= shift + of.last:
            shift_of_path[path] = shift
    idle = {path: last.get(path, -1) + 1 for path in graph if path not in ran}
    return {**shift_of_path, **idle}


def _shift(nodes: pl.DataFrame, shifts: dict[str, int]) -> pl.DataFrame:
    """Return a graph's nodes on the paths in ``shifts``, with their numbers moved by the shift."""
    by_path = pl.DataFrame(
        list(shifts.items()), schema={"path": pl.String, "shift": pl.Int64}, orient="row"
    )
    columns = [name for name in nodes.columns if name not in ("path", "number")]
    forward = pl.col("forward")
    placed = (
        nodes.join(by_path, on="path", how="inner", maintain_order="left")
        .with_columns(
            forward.str.extract(_NAME, 1).alias("of"),
            forward.str.extract(_NAME, 2).cast(pl.Int64).alias("of_number"),
        )
        .join(
            by_path.rename({"path": "of", "shift": "of_shift"}),
            on="of",
            how="left",
            maintain_order="left",
        )
    )
    name = pl.concat_str("path", pl.lit("-op"), pl.col("number") + pl.col("shift"))
    of = pl.concat_str("of", pl.lit("-op"), pl.col("of_number") + pl.col("of_shift"))
    return placed.with_columns(node=name, forward=of).select(columns)
