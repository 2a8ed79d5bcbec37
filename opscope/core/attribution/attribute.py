"""Attribution: kernel → launch → the op that launched it, and what encloses that op.

The rules are numbered as in ARCHITECTURE.md. Everything works on whole columns; the loops are over
threads and over distinct texts.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.collectives import add_parameters
from opscope.core.attribution.compiled_regions import REGION_NAMES
from opscope.core.attribution.cuda_graphs import Replayed, replayed
from opscope.core.attribution.inferred_steps import with_steps
from opscope.core.attribution.named_kernels import Named, named_ranges
from opscope.core.attribution.named_ranges import merge_specs
from opscope.core.attribution.nccl_groups import name_groups
from opscope.core.attribution.result_marks import merge_results
from opscope.core.dialects import LAYER
from opscope.core.tables.columns import LookUp, at
from opscope.core.tables.interpret import ROLE, Meaning, interpret
from opscope.core.tables.intervals import NONE, Ints, Nest, nearest, nest
from opscope.core.tables.lanes import lanes
from opscope.core.tables.trace import Trace

#: Per (process, thread): the nesting of its op ranges, and the range row of each of its intervals.
_Nests: TypeAlias = "dict[tuple[int, ...], tuple[Nest, Ints] | None]"

#: The domain of what a framework's runtime does inside.
RUNTIME: Final = "runtime"
#: Threads whose nesting is worked out at once: each holds some columns of its ranges.
_WORKERS: Final = 4
#: Levels that are climbed row by row; real traces nest less, hostile ones by thousands.
_DEEP: Final = 64
#: One row in so many: then sorting these costs less than a flag for each row of the trace.
_FEW: Final = 64
#: What is said of kernels of CUDA graphs that only something else than an identifier ties to their ops.
GIVEN_TO_REGION: Final = (
    "what CUDA graphs without node ids ran was given to the compiled region that replayed the graph "
    "(inferred): which of its ops each is of, the trace does not tell"
)
GIVEN_BY_ORDER: Final = (
    "what CUDA graphs without node ids ran was tied to its ops by the order of the launches that were "
    "captured (inferred)"
)
STEPS_INFERRED: Final = (
    "steps that nothing told, inferred from what repeats ({by}; confidence {confidence:.2f}): opscope.step() "
    "at the beginning of each iteration tells them"
)
#: Why a kernel or copy has no op: a closed list; the first means that it has one.
REASONS: Final = (
    None,
    "no launch record",
    "the launching thread has no op ranges",
    "launched outside any op range",
    "the trace has no op ranges",
    "replayed from a CUDA graph whose capture is not in the trace",
    "names no op, as kernels of the trace do",
    "replayed from a CUDA graph that runs nodes at once and does not number them",
    "replayed from a CUDA graph that any of several captures may have made",
)
HAS_OP, NO_LAUNCH, NO_RANGES_ON_THREAD, OUTSIDE, NO_RANGES, NO_CAPTURE, UNNAMED = range(7)
#: By ``Replayed.why``.
_OF_GRAPH: Final = np.array([NO_CAPTURE, NO_CAPTURE, 7, 8], np.uint8)


@dataclass(slots=True)
class Launched:
    """For each row of ``kernels`` or ``memops``: its call, its op (rows, -1 for none), the reason.

    ``reason`` is a place in REASONS. ``call`` is a row of ``calls``, ``op`` a row of ``ranges``.
    ``inferred``: only the order of events tells, no identifier does. ``replay``: the call that
    replayed the graph which the kernel is part of, -1 for every other: each replay does all the
    work of the op that was captured once.
    """

    call: NDArray[np.int32]
    op: NDArray[np.int32]
    reason: NDArray[np.uint8]
    inferred: NDArray[np.bool_]
    replay: NDArray[np.int32]

    def part(self, rows: slice) -> Launched:
        """The same of some rows."""
        return Launched(
            self.call[rows],
            self.op[rows],
            self.reason[rows],
            self.inferred[rows],
            self.replay[rows],
        )


@dataclass(slots=True)
class Attribution:
    """A trace with its kernels tied to ops.

    ``is_op`` tells which range rows are ops, ``parent`` the op row that encloses each (-1: none).
    """

    trace: Trace
    meaning: Meaning
    is_op: NDArray[np.bool_]
    parent: NDArray[np.int32]
    kernels: Launched
    memops: Launched

    def climb(self, rows: Ints, wanted: NDArray[np.bool_]) -> Ints:
        """For each op row the nearest of itself and its ancestors that is ``wanted``.

        ``wanted`` has one flag per range row; -1 in, -1 out; -1 where there is none.
        """
        here: Ints = np.asarray(rows, np.int64).copy()
        pending = np.flatnonzero(here >= 0)
        for level in itertools.count():
            if not len(pending):
                break
            if level == _DEEP:  # one by one, 60,000 nested ranges take 17 s
                found = nearest(self.parent.astype(np.int64), wanted)
                here[pending] = found[here[pending]]
                break
            pending = pending[~wanted[here[pending]]]
            here[pending] = self.parent[here[pending]]
            pending = pending[here[pending] >= 0]
        return here

    def above(self, rows: Ints) -> NDArray[np.bool_]:
        """Per range row: whether it is a strict ancestor of any of the op rows ``rows``."""
        marked = np.zeros(len(self.parent), bool)
        here = self.parent[rows]
        while len(here := here[here >= 0]):
            if len(here) * _FEW < len(marked):  # of a deep nest: not all rows for each level
                here = np.unique(here[~marked[here]])
                marked[here] = True
                here = self.parent[here]
                continue
            fresh = np.zeros(len(marked), bool)  # each once, without a sort
            fresh[here] = True
            fresh &= ~marked
            marked |= fresh
            here = self.parent[np.flatnonzero(fresh)]
        return marked


def attribute(trace: Trace) -> Attribution:
    """Tie every kernel and copy of ``trace`` to the op that launched it (rules 0 to 5, 7, 8)."""
    links = {name: launching_calls(trace[name], trace["calls"]) for name in ("kernels", "memops")}
    whole = trace
    named = named_ranges(trace, links["kernels"])
    trace = named.trace
    meaning = interpret(trace)
    merge_specs(trace, meaning)
    ranges, calls = trace["ranges"], trace["calls"]
    is_op = _ops(ranges, meaning)
    is_op[named.first :] = False  # they hold what names them and nothing else
    pushpop = ranges.select((pl.col("kind") == "pushpop").fill_null(True)).to_series().to_numpy()
    graphs = replayed(trace, links)
    used = np.zeros(len(calls), bool)
    for link in links.values():
        used[link[link >= 0]] = True
    for graph in graphs.values():
        used[graph.call[graph.call >= 0]] = True
    keep = any(bool(graph.has_node.any()) for graph in graphs.values())
    parent, call_op, nests = _open_ops(ranges, is_op & pushpop, calls, used, keep)
    _open_ranges(ranges, is_op & ~pushpop, calls, used, call_op)
    why = _reasons(calls, used, call_op, set(nests), bool(is_op.any()))
    merge_results(ranges, meaning, is_op & pushpop)
    launched = {name: _launched(link, call_op, why) for name, link in links.items()}
    add_parameters(trace, meaning, is_op, launched["kernels"].op)
    name_groups(ranges, meaning, is_op)
    by_region = sum(
        _follow_graph(graph, launched[name], call_op, why, nests, _is_region(meaning))
        for name, graph in graphs.items()
    )
    _say(whole, "warning", GIVEN_TO_REGION, by_region)
    by_order = sum(int(graph.inferred.sum()) for graph in graphs.values())
    _say(whole, "info", GIVEN_BY_ORDER, by_order)
    _take_named(named, launched["kernels"], launched["memops"], is_op)
    trace, steps = with_steps(trace, meaning, is_op)
    if steps is not None:
        is_op = np.append(is_op, np.zeros(len(steps), bool))
        parent = np.append(parent, np.full(len(steps), NONE, parent.dtype))
        by = ", ".join(steps["by"].unique().sort())
        said = STEPS_INFERRED.format(by=by, confidence=float(steps["confidence"].to_numpy().min()))
        _say(whole, "info", said, len(steps))
    return Attribution(trace, meaning, is_op, parent, launched["kernels"], launched["memops"])


def _take_named(
    named: Named, kernels: Launched, memops: Launched, is_op: NDArray[np.bool_]
) -> None:
    """Rule 0: the op that a kernel names, unless that is the very one that launched it.

    One that is only inferred gives way to any that launched it. Copies and sets name none.
    """
    if not (named.op >= 0).any():
        return
    named.op[named.inferred & (kernels.op >= 0)] = NONE
    kernels.inferred[named.inferred & (named.op >= 0)] = True
    kernels.reason[(named.op < 0) & (kernels.reason == NO_RANGES)] = UNNAMED
    memops.reason[memops.reason == NO_RANGES] = UNNAMED
    text = named.trace["ranges"]["text"].to_physical().cast(pl.Int64).fill_null(NONE).to_numpy()
    same = (kernels.op >= 0) & (at(text, kernels.op) == at(text, named.op))
    taken = (named.op >= 0) & ~same
    kernels.op[taken] = named.op[taken]
    kernels.reason[taken] = HAS_OP
    is_op[named.op[taken]] = True


def _open_ops(
    ranges: pl.DataFrame,
    ops: NDArray[np.bool_],
    calls: pl.DataFrame,
    used: NDArray[np.bool_],
    keep: bool,
) -> tuple[NDArray[np.int32], NDArray[np.int32], _Nests]:
    """Rule 2: per range row its parent, per used call row the innermost op open at its start.

    Every thread with op ranges is a key of the last; its nest is only there where ``keep``.
    """
    parent = np.full(len(ranges), NONE, np.int32)
    call_op = np.full(len(calls), NONE, np.int32)
    nests: _Nests = {}
    launches = dict(lanes(calls).rows(used)) if used.any() else {}

    def one(lane: tuple[tuple[int, int], Ints]) -> None:
        key, rows = lane
        tree = nest(*(ranges[name].gather(rows).to_numpy() for name in ("start", "end")))
        placed = rows[tree.order]
        parent[placed] = at(placed, tree.parent)
        nests[key] = (tree, rows) if keep else None
        if key in launches:
            time = calls["start"].gather(launches[key]).to_numpy()
            call_op[launches[key]] = at(rows, tree.innermost(time))

    if ops.any():
        with ThreadPoolExecutor(
            min(_WORKERS, os.cpu_count() or 1)
        ) as pool:  # NumPy lets go of the GIL
            for _ in pool.map(one, lanes(ranges).rows(ops)):
                pass
    return parent, call_op, nests


def _launched(
    link: NDArray[np.int32], call_op: NDArray[np.int32], why: NDArray[np.uint8]
) -> Launched:
    op = np.full(len(link), NONE, np.int32)
    reason = np.full(len(link), NO_LAUNCH, np.uint8)
    has = link >= 0
    op[has], reason[has] = call_op[link[has]], why[link[has]]
    none = np.full(len(link), NONE, np.int32)
    return Launched(link, op, reason, np.zeros(len(link), bool), none)


def _follow_graph(
    graph: Replayed,
    launched: Launched,
    call_op: NDArray[np.int32],
    why: NDArray[np.uint8],
    nests: _Nests,
    is_region: NDArray[np.bool_],
) -> int:
    """Rule 5: the op that captured the node, never the op that replayed the graph.

    A compiled region that replays its own graph is the one exception: where the capture is not in
    the trace it has the kernels (rule 6), and they are marked as inferred. Returns how many these are.
    """
    op = at(call_op, graph.call)
    for key, nested in nests.items():
        if nested is None:
            continue
        tree, rows = nested
        here = graph.has_node & (graph.node_process == key[0]) & (graph.node_thread == key[1])
        op[here] = at(rows, tree.innermost(graph.node_time[here]))
    replaying = launched.op[graph.rows]
    region = (op < 0) & at(is_region, replaying, False)
    op = np.where(region, replaying, op)
    launched.op[graph.rows] = op
    reason = np.where(graph.call >= 0, at(why, graph.call, OUTSIDE), _OF_GRAPH[graph.why])
    reason[graph.has_node] = OUTSIDE if nests else NO_RANGES
    reason[launched.call[graph.rows] < 0] = NO_LAUNCH
    launched.reason[graph.rows] = np.where(op >= 0, HAS_OP, reason)
    launched.inferred[graph.rows] = (graph.inferred | region) & (op >= 0)
    launched.replay[graph.rows] = launched.call[graph.rows]
    return int(region.sum())


def _say(trace: Trace, severity: str, what: str, how_many: int) -> None:
    """A note of what was inferred; a profile that was saved has it already."""
    if how_many and what not in trace["notes"]["what"].cast(pl.String).to_list():
        trace.note(severity, what, how_many)


def _is_region(meaning: Meaning) -> NDArray[np.bool_]:
    """Per range row: whether it is a region that torch.compile made."""
    names = [r.call.name if r.role == "op" and r.call is not None else "" for r in meaning.readings]
    return np.array([name.startswith(REGION_NAMES) for name in names], bool)[meaning.reading]


def _ops(ranges: pl.DataFrame, meaning: Meaning) -> NDArray[np.bool_]:
    """Which ranges are ops; where a process has none, its user ranges and layers stand for them.

    A library that annotates its own calls (cuDF, a C++ server) has no other ops; in a framework's
    process a user range around a kernel that no op holds must not hide the gap.
    """
    role = meaning.role
    held = (ranges["end"] > ranges["start"]).fill_null(False).to_numpy()
    is_op: NDArray[np.bool_] = (role == ROLE["op"]) & held
    theirs = np.array([(one.layer or "").startswith(LAYER) for one in meaning.readings], bool)
    # what a framework's runtime does inside is no op of anybody's
    user = (
        ((role == ROLE["user"]) | theirs[meaning.reading])
        & held
        & (ranges["domain"] != RUNTIME).fill_null(True).to_numpy()
    )
    if user.any():
        place = ranges["process"].fill_null(NONE).to_numpy() + 1  # processes are numbered from 0
        with_ops = np.zeros(int(place.max()) + 1, bool)
        with_ops[place[is_op]] = True
        is_op |= user & ~with_ops[place]
    return is_op


def launching_calls(executed: pl.DataFrame, calls: pl.DataFrame) -> NDArray[np.int32]:
    """Rule 1: for each row the row of the call with the same (process, correlation), or -1.

    Correlation ids repeat from process to process, so each process is looked up by itself. Of
    several calls with one id (a runtime call and the driver call inside it) the last to start is
    the one that launched; where ids are used again later, the last to start before the kernel does.
    """
    found = np.full(len(executed), NONE, np.int32)
    if not len(executed) or not len(calls):
        return found
    theirs, ours = _by_process(calls), _by_process(executed)
    for process, rows in ours.items():
        if process not in theirs:
            continue
        launches = theirs[process]
        wanted = executed["correlation"].gather(rows).fill_null(NONE).to_numpy()
        ids = calls["correlation"].gather(launches).fill_null(NONE - 1).to_numpy()
        start = calls["start"].gather(launches).to_numpy()
        if np.any(start[1:] < start[:-1]):
            by_start = np.argsort(start, kind="stable")
            launches, ids, start = launches[by_start], ids[by_start], start[by_start]
        found[rows] = LookUp(ids, launches)(wanted)
        if not np.all(ids[1:] > ids[:-1]):
            _again(found, rows, executed, calls, (ids, launches, start))
    return found


def _again(
    found: NDArray[np.int32],
    rows: Ints,
    executed: pl.DataFrame,
    calls: pl.DataFrame,
    launches: tuple[Ints, Ints, Ints],
) -> None:
    """Kernels that start before the call that was found: the latest earlier one with their id.

    Without one the call stays: the clocks of host and device may differ by more than a launch takes.
    """
    begin = executed["start"].gather(rows).to_numpy()
    early = calls["start"].gather(np.maximum(found[rows], 0)).to_numpy() > begin
    early &= found[rows] >= 0
    if not early.any():
        return
    wanted = executed["correlation"].gather(rows[early]).to_numpy()
    ids, numbers, start = launches
    known = np.unique(ids)
    # (id, place in time) as one number: both are below the number of calls
    many = len(start) + 1
    key = np.searchsorted(known, ids) * many + np.searchsorted(start, start, side="left") + 1
    order = np.argsort(key, kind="stable")
    code = np.searchsorted(known, wanted)
    time = np.searchsorted(start, begin[early], side="right")
    place = np.searchsorted(key[order], code * many + time, side="right") - 1
    hit = (place >= 0) & (key[order[place]] // many == code)
    found[rows[early][hit]] = numbers[order[place[hit]]]


def _by_process(frame: pl.DataFrame) -> dict[int, Ints]:
    process = frame["process"].fill_null(NONE).to_numpy()
    return {int(number): np.flatnonzero(process == number) for number in np.unique(process)}


def _open_ranges(
    ranges: pl.DataFrame,
    chosen: NDArray[np.bool_],
    calls: pl.DataFrame,
    used: NDArray[np.bool_],
    call_op: NDArray[np.int32],
) -> None:
    """Start/end ranges, which may end on another thread: by time, where no push/pop range holds."""
    if not chosen.any():
        return
    missing = np.flatnonzero(used & (call_op < 0))
    process = calls["process"].fill_null(NONE).to_numpy()[missing]
    time = calls["start"].to_numpy()[missing]
    theirs = ranges["process"].fill_null(NONE).to_numpy()
    for number in np.unique(process):
        rows = np.flatnonzero(chosen & (theirs == number))
        start, end = (ranges[name].gather(rows).to_numpy() for name in ("start", "end"))
        here = process == number
        found = nest(start, end).innermost(time[here])
        call_op[missing[here]] = at(rows, found)


def _reasons(
    calls: pl.DataFrame,
    used: NDArray[np.bool_],
    call_op: NDArray[np.int32],
    with_ranges: set[tuple[int, ...]],
    any_ops: bool,
) -> NDArray[np.uint8]:
    why = np.full(len(calls), HAS_OP if any_ops else NO_RANGES, np.uint8)
    missing = used & (call_op < 0)
    if any_ops and missing.any():
        for key, rows in lanes(calls).rows(missing):
            why[rows] = OUTSIDE if key in with_ranges else NO_RANGES_ON_THREAD
    return why
