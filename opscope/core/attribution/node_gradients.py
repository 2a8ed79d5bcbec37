"""Pair each backward op of a prepared graph with its forward op: both get one number, different per run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.specs import SAME, Specs, is_hlo
from opscope.core.dialects import hlo, tsl
from opscope.core.payload import GRAPH_THREAD
from opscope.core.schema import OpCall, ParamValue
from opscope.core.tables.interpret import Meaning
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.numbers import Numbers


def pair_gradients(
    specs: Specs, meaning: Meaning, ranges: pl.DataFrame, rows: Ints, spec: Ints, run: Ints
) -> Meaning:
    """Return ``meaning`` in which a forward op and the ops that differentiate it have one number per run.

    Without runs, the k-th occurrence of a key counts as the k-th run.
    """
    backward = np.array([reading.direction == "backward" for reading in meaning.readings], bool)
    differentiates = np.array(
        [
            hlo.reading(call).direction == "backward" if is_hlo(call) else is_marked_backward(call)
            for call in specs.calls
        ],
        bool,
    )
    is_back = backward[meaning.reading[rows]] | differentiates[spec]
    if not is_back.any():
        return meaning
    forward = _forward_rows(specs, np.unique(spec[is_back]))
    if not forward:
        return meaning
    # a spec may occur twice in a trace (when it is built and when the capture starts), so its name is
    # numbered instead
    names = specs.table.select(pl.struct(SAME).rank("dense").cast(pl.Int64)).to_series().to_numpy()
    names = _with_fused(specs, _of_functions(specs, names.copy()), np.unique(spec))
    target = np.arange(len(names))
    target[list(forward)] = list(forward.values())
    pair = np.where(is_back, names[target[spec]], names[spec])
    unpaired = is_back & (target[spec] == spec)
    turn = _occurrence(names[spec])
    turn = np.where(run >= 0, run, turn)
    turn = _turn_of_forward(specs, meaning, ranges, spec, run, turn)
    seq = turn * (int(names.max(initial=0)) + 1) + pair
    own_seq = meaning.seq.gather(rows).is_not_null().to_numpy()
    chosen = ~unpaired & ~own_seq
    graph_threads = np.full(int(chosen.sum()), GRAPH_THREAD)
    return replace(
        meaning,
        seq=_scatter(meaning.seq, rows[chosen], seq[chosen]),
        fwd_thread=_scatter(meaning.fwd_thread, rows[chosen], graph_threads),
    )


def _turn_of_forward(
    specs: Specs, meaning: Meaning, ranges: pl.DataFrame, spec: Ints, run: Ints, turn: Ints
) -> Ints:
    """Return ``turn``, in which ops of a graph that differentiates another graph have the turn of the forward
    graph's run.

    It is the latest run of the forward graph that is not differentiated yet: a tape goes backwards over its
    records.
    """
    forward = [forward_graph(call) for call in specs.calls]
    other = np.array([call is not None for call in forward], bool)[spec] & (run >= 0)
    if not other.any():
        return turn
    turn = turn.copy()
    runs = np.unique(run[run >= 0])
    runs = runs[np.argsort(ranges["start"].gather(runs).to_numpy(), kind="stable")]
    process = ranges["process"].gather(runs).fill_null(NONE).to_numpy()
    names = [reading.graph for reading in meaning.readings]
    graph = np.array([names[number] or "" for number in meaning.reading[runs]])
    table = specs.table
    pairs = {
        (table["process"][row], _function(specs.calls[row]) or table["graph"][row], forward[row])
        for row in np.unique(spec[other]).tolist()
    }
    of: dict[int, int] = {}
    for number, backward, forwards in pairs:
        at = runs[(process == number) & ((graph == backward) | (graph == forwards))]
        is_back = np.isin(at, runs[graph == backward])
        of.update(_pair_pops_with_pushes(at, is_back))
    mine = np.flatnonzero(other & np.isin(run, list(of)))
    turn[mine] = [of[run_number] for run_number in run[mine].tolist()]
    return turn


def _pair_pops_with_pushes(rows: Ints, is_pop: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield (pop, push) of ``rows`` in time order: a pop belongs to the latest push not popped yet."""
    depth = np.cumsum(np.where(is_pop, -1, 1)) + is_pop
    order = np.argsort(depth, kind="stable")
    rows, is_pop, depth = rows[order], is_pop[order], depth[order]
    push = np.maximum.accumulate(np.where(is_pop, NONE, np.arange(len(rows))))
    is_paired = is_pop & (push >= 0) & (depth[np.maximum(push, 0)] == depth)
    yield from zip(rows[is_paired].tolist(), rows[push[is_paired]].tolist(), strict=True)


def _scatter(numbers: Numbers, rows: Ints, values: Ints) -> Numbers:
    """Return a copy of ``numbers`` with ``values`` in ``rows``."""
    return Numbers.of(numbers.column.clone().scatter(rows, values))


def _with_fused(specs: Specs, names: Ints, used: Ints) -> Ints:
    """Give nodes that ran inside another node's kernel that node's number (spec parameter ``fused``)."""
    graphs = specs.table.select(SAME).rows()
    row_of_graph = {name: number for number, name in enumerate(graphs)}
    for row in used.tolist():
        call = specs.calls[row]
        inside = None if call is None or is_hlo(call) else call.param("fused")
        for key in inside if isinstance(inside, tuple) else ():
            other = row_of_graph.get((*graphs[row][:-1], str(key)))
            if other is not None:
                names[names == names[other]] = names[row]
    return names


def _occurrence(names: Ints) -> Ints:
    """Return for each value how many equal values come before it."""
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    first = np.concatenate((np.ones(1, bool), ordered[1:] != ordered[:-1]))
    index = np.arange(len(names))
    count = np.empty(len(names), np.int64)
    count[order] = index - np.maximum.accumulate(np.where(first, index, 0))
    return count


def _of_functions(specs: Specs, names: Ints) -> Ints:
    """Give one number to operations with the same path in several programs of one function.

    A function has a program for each size; a run contains only one of them.
    """
    stands_for: dict[int, list[str]] = {}
    graphs = specs.table.select(SAME).rows()
    for (*_, path), row in _by_path(specs, graphs).items():
        stands_for.setdefault(row, []).append(str(path))
    same = np.arange(int(names.max(initial=0)) + 1)
    numbers: dict[tuple[object, ...], int] = {}
    for row, paths in stands_for.items():
        function = _function(specs.calls[row])
        if function is not None:
            key = (*graphs[row][:2], function, *sorted(paths))
            same[names[row]] = numbers.setdefault(key, int(names[row]))
    return same[names]


def _by_path(specs: Specs, graphs: list[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
    """Return path of a program → row of its operation; an operation's own path takes precedence over paths
    of operations fused into it."""
    row_of_path: dict[tuple[object, ...], int] = {}
    of_own = [row for row, call in enumerate(specs.calls) if is_hlo(call)]
    # an operation that only has a neighbour's path comes last
    of_own.sort(key=lambda row: _param(specs.calls[row], "op_name_of") is not None)
    for row in of_own:
        row_of_path.setdefault((*graphs[row][:-1], str(_param(specs.calls[row], "op_name"))), row)
    for row in of_own:
        fused = _param(specs.calls[row], "fused")
        for path in fused if isinstance(fused, tuple) else ():
            row_of_path.setdefault((*graphs[row][:-1], str(path)), row)
    return row_of_path


def _forward_rows(specs: Specs, rows: Ints) -> dict[int, int]:
    """Return spec row of a backward op → spec row of the op that it differentiates, found by name."""
    graphs = specs.table.select(SAME).rows()
    nodes: dict[tuple[object, ...], int] = {name: number for number, name in enumerate(graphs)}
    operations = _by_path(specs, graphs)
    for (*where, _, path), row in list(operations.items()):
        function = _function(specs.calls[row])
        if function is not None:
            operations.setdefault((*where, function, path), row)
    forward_of_row: dict[int, int] = {}
    for row in rows.tolist():
        *where, graph, key = graphs[row]
        call = specs.calls[row]
        forward_name = None if call is None else call.param("forward")
        rows_by_name = nodes
        # the compiler made up the operation's name; its path is the path of its op
        if is_hlo(call):
            key, rows_by_name = str(call.param("op_name")), operations
        graph = forward_graph(call) or graph
        for name in (
            (forward_name,) if isinstance(forward_name, str) else tsl.forward_keys(str(key))
        ):
            forward = rows_by_name.get((*where, graph, name))
            if forward is not None:
                forward_of_row[row] = forward
                break
    return forward_of_row


def _param(call: OpCall | None, name: str) -> ParamValue:
    return None if call is None else call.param(name)


def _function(call: OpCall | None) -> str | None:
    """Return the function that an operation's program was made from; None if unknown."""
    name = call.param("function") if is_hlo(call) else None
    return name if isinstance(name, str) else None


def is_marked_backward(call: OpCall | None) -> bool:
    """Return whether a node's spec marks it as backward work; its name does not show that."""
    return _param(call, "direction") == "backward"


def forward_graph(call: OpCall | None) -> str | None:
    """Return the graph that this op's graph differentiates, if that graph runs by itself; else None."""
    name = None if call is None else call.param("forward_graph")
    return name if isinstance(name, str) else None
