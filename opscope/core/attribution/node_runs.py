"""Find the run of a prepared graph that an op is in: on its thread, else in its process by node name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import node_names
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE, Ints, nest

#: (process, graph) → the graph's nodes: name → text of its spec.
KeysOf: TypeAlias = Callable[[int, str], dict[str, str]]
#: Ops handled at a time while several graphs run; an array has this many rows and a column per graph.
_CHUNK: Final = 65_536


def runs_of(
    ranges: pl.DataFrame, meaning: Meaning, rows: Ints, keys_of: KeysOf
) -> tuple[Ints, NDArray[np.bool_]]:
    """Return for each range row the row of the run (category ``graph``) that it is in, or -1; and whether
    that is doubtful.

    Graphs also run ops on separate threads: an op that no run on its thread encloses is in the
    latest-starting run that is open in its process. If runs of several graphs are open, the op is in the run
    of the graph that has a node of the op's name. If several graphs have such a node, with calls that differ,
    the op's run is in doubt.
    """
    run_of_row = np.full(len(rows), NONE, np.int64)
    unsure = np.zeros(len(rows), bool)
    runs = np.flatnonzero(meaning.role == ROLE["graph"])
    if not len(runs):
        return run_of_row, unsure
    process, thread = (ranges[name].fill_null(NONE).to_numpy() for name in ("process", "thread"))
    start, end = ranges["start"].to_numpy(), ranges["end"].to_numpy()
    names = [reading.graph or "" for reading in meaning.readings]
    for number in np.unique(process[runs]).tolist():
        mine = runs[process[runs] == number]
        here = np.flatnonzero(process[rows] == number)
        for on in np.unique(thread[mine]):
            of_thread = mine[thread[mine] == on]
            at = here[thread[rows[here]] == on]
            inside = nest(start[of_thread], end[of_thread]).innermost(start[rows[at]])
            run_of_row[at[inside >= 0]] = of_thread[inside[inside >= 0]]
        left = here[run_of_row[here] < 0]
        inside = nest(start[mine], end[mine]).innermost(start[rows[left]])
        run_of_row[left[inside >= 0]] = mine[inside[inside >= 0]]
        left = left[inside >= 0]
        left = left[_open(start[mine], end[mine], start[rows[left]]) > 1]
        graph = meaning.reading[mine]
        graphs = [names[number] for number in np.unique(graph).tolist()]
        if len(graphs) < 2 or not len(left):
            continue
        trees = [mine[graph == number] for number in np.unique(graph)]
        nests = [nest(start[tree], end[tree]) for tree in trees]
        nodes = [keys_of(number, graph) for graph in graphs]
        for first in range(0, len(left), _CHUNK):
            at = left[first : first + _CHUNK]
            inside = np.stack([nest.innermost(start[rows[at]]) for nest in nests], axis=1)
            _choose(meaning, rows, at, inside, trees, nodes, run_of_row, unsure)
    return run_of_row, unsure


def _open(start: Ints, end: Ints, time: Ints) -> Ints:
    """Return how many intervals contain each time."""
    begun = np.searchsorted(np.sort(start), time, side="right")
    over = np.searchsorted(np.sort(end), time, side="right")
    depth: Ints = begun - over
    return depth


def _choose(
    meaning: Meaning,
    rows: Ints,
    at: Ints,
    inside: Ints,
    trees: list[Ints],
    nodes: list[dict[str, str]],
    ints: Ints,
    unsure: NDArray[np.bool_],
) -> None:
    """Write runs and doubts of the ops ``at``; each reading and set of open graphs is decided once."""
    reading = meaning.reading[rows[at]]
    kinds = np.column_stack((reading, inside >= 0))
    distinct, which = np.unique(kinds, axis=0, return_inverse=True)
    chosen = np.full(len(distinct), NONE, np.int64)
    doubt = np.zeros(len(distinct), bool)
    for index, (code, *is_open) in enumerate(distinct.tolist()):
        key = node_names.normal_key(meaning.readings[code].key or "")
        wanted = (key, node_names.plain_key(key))
        have = [
            (number, text)
            for number, opened in enumerate(is_open)
            if opened
            if (text := next((nodes[number][k] for k in wanted if k in nodes[number]), None))
        ]
        if have:
            chosen[index] = have[0][0]
            doubt[index] = len({text for _, text in have}) > 1
    which = which.reshape(-1)
    graph = chosen[which]
    for number, tree in enumerate(trees):
        of_it = graph == number
        ints[at[of_it]] = tree[inside[of_it, number]]
    unsure[at] = doubt[which]
