"""The instances of ops as DLProf counts them, and the instance of each CUDA call, kernel and copy.

An instance is a call of an op that no other op contains. A CUDA call outside all of them is an instance of
its own, ``unassociated_<call>``; so is a kernel or copy whose launch the trace lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.ops.windows import captured
from opscope.core.dialects.markers import call_stack
from opscope.core.dlprof import names
from opscope.core.dlprof.names import short_name
from opscope.core.schema import DIRECTIONS, OpCall
from opscope.core.tables.columns import at, compact, pairs, spread
from opscope.core.tables.interpret import Meaning
from opscope.core.tables.intervals import NONE, Ints, nest
from opscope.core.tables.lanes import lanes, open_ranges
from opscope.core.tables.trace import Trace

#: DLProf makes an op of each unassociated call. If there are more such calls than this, one op is made for
#: each name.
MOST_OF_A_CALL: Final = 10_000
#: The columns that describe an op; texts are categories, because a million ops have few distinct ones.
_TEXTS: Final = (
    "name", "direction", "type", "data_type", "stack", "inputs", "outputs", "parameters", "layer",
    "source", "call",
)  # fmt: skip
#: The Python calls that run a backward pass, by their names in PyProf's and DLProf's markers.
_BACKWARD: Final = frozenset(
    {
        "torch.Tensor.backward",
        "Tensor.backward",
        "torch.autograd.backward",
        "torch._tensor.Tensor.backward",
    }
)
_BPROP: Final = DIRECTIONS.index("backward")
OPS: Final[Mapping[str, Any]] = {
    "op_id": pl.String,
    **dict.fromkeys(_TEXTS, pl.Categorical),
    "eligible": pl.Boolean,
    "associated": pl.Boolean,
}


@dataclass(frozen=True, slots=True)
class Instances:
    """The ops (``OPS``, a row each) and their instances.

    ``table``: one row per instance: op (its row in ``ops``), process, start, end (ns; null if nothing on the
    CPU was recorded), inner (ns that count for the instances inside it), range (its row of ``ranges``, -1 for
    none), seen (whether its kernels were captured). ``calls``, ``kernels``, ``memops``: the instance of each
    row of these tables of the trace.
    """

    ops: pl.DataFrame
    table: pl.DataFrame
    calls: Ints
    kernels: Ints
    memops: Ints


@dataclass(slots=True)
class Collected:
    """Ops and their instances while they are collected; ``of`` has the op of each instance."""

    ops: list[pl.DataFrame] = field(default_factory=list)
    of: list[Ints] = field(default_factory=list)
    table: list[pl.DataFrame] = field(default_factory=list)
    many: int = 0

    def add(self, ops: pl.DataFrame, of: Ints, table: pl.DataFrame) -> int:
        """Add ops, and instances of them; return the number of the first of these instances.

        ``ops`` has some columns of ``OPS``; the others are null.
        """
        first = self.many
        self.of.append(of + sum(map(len, self.ops)))
        self.ops.append(
            ops.select(
                pl.col(name).cast(kind) if name in ops.columns else pl.lit(None, kind).alias(name)
                for name, kind in OPS.items()
            )
        )
        self.table.append(table)
        self.many += len(table)
        return first


def instances(ops: Ops) -> Instances:
    """Return the instances of an attributed trace."""
    attribution = ops.attribution
    trace = attribution.trace
    outer = attribution.is_op & (attribution.parent < 0)
    rows = np.flatnonzero(outer)
    rows = rows[np.argsort(trace["ranges"]["start"].gather(rows).to_numpy(), kind="stable")]
    instances_found = Collected()
    described, of = _describe(ops, rows)
    instances_found.add(described, of, placed(trace, "ranges", rows, rows))
    index = np.full(len(outer), NONE, np.int64)
    index[rows] = np.arange(len(rows))
    calls = open_ranges(trace["calls"], trace["ranges"], rows)
    _give_to_backward(ops, rows, calls)
    return add_rest(instances_found, ops, calls, index)


def _give_to_backward(ops: Ops, rows: Ints, calls: Ints) -> None:
    """Assign ``calls`` on autograd's threads, if these threads have no ops, to the waiting call of
    ``backward``.

    Without ``emit_nvtx`` the passes of all operations are then one op of the type ``backward`` (section 12.3
    of DLProf's guide). A thread counts as autograd's if it launches kernels, which threads that pin memory do
    not. A call counts if exactly one such op is open in its process when it is made.
    """
    trace, meaning = ops.attribution.trace, ops.attribution.meaning
    passes = rows[_are_backward(meaning)[meaning.reading[rows]]]
    if not len(passes):
        return
    table, ranges = trace["calls"], trace["ranges"]
    is_op = pl.Series(ops.attribution.is_op[: len(ranges)])
    lane = ["process", "thread"]
    with_ops = ranges.filter(is_op).select(lane).unique()
    launches = ops.attribution.kernels.call
    launching = table.select(lane)[np.unique(launches[launches >= 0])].unique()
    number = table.select(*lane, "start").with_row_index("call").filter(pl.Series(calls < 0))
    bare = number.join(with_ops, on=lane, how="anti").join(launching, on=lane, how="semi")
    place = np.full(len(meaning.reading), NONE, np.int64)
    place[rows] = np.arange(len(rows))
    for process in np.unique(ranges["process"].gather(passes).drop_nulls()).tolist():
        ours = passes[(ranges["process"].gather(passes) == process).fill_null(False).to_numpy()]
        start, end = (
            ranges[name].gather(ours).fill_null(0).to_numpy() for name in ("start", "end")
        )
        here = bare.filter(process=process)
        time, call = here["start"].to_numpy(), here["call"].to_numpy()
        began = np.searchsorted(start, time, "right")  # the rows are in the order of their starts
        open_ = began - np.searchsorted(np.sort(end), time, "right")
        last = np.maximum(began - 1, 0)
        is_in = (open_ == 1) & (time < end[last])
        calls[call[is_in]] = place[ours[last[is_in]]]


def _are_backward(meaning: Meaning) -> NDArray[np.bool_]:
    """Return for each reading whether it is a call of PyTorch's ``backward`` itself."""
    return meaning.each(
        lambda r: r.call is not None and r.role == "op" and r.call.name in _BACKWARD
    )


def add_rest(collected: Collected, ops: Ops, calls: Ints, ints: Ints | None) -> Instances:
    """Return the collected instances, with the instance of each piece of work, adding an instance for each
    call and each piece of work that has none. ``calls``: the instance of each call (-1: none). ``ints``:
    the instance of each outermost op's range row; None if a domain's ranges replace ops: then work is
    assigned by its calls."""
    attribution = ops.attribution
    trace = attribution.trace
    outer = attribution.is_op & (attribution.parent < 0)
    every = (("kernels", attribution.kernels), ("memops", attribution.memops))
    work: dict[str, Ints] = {}
    for name, launched in every:
        if ints is None:
            work[name] = np.full(len(launched.op), NONE, np.int64)
            continue
        top = attribution.climb(launched.op.astype(np.int64), outer)
        work[name] = at(ints, top)
        replayed = np.flatnonzero((launched.replay >= 0) & (work[name] >= 0))
        if len(replayed):
            inner = work[name][replayed]
            work[name][replayed] = _replays(collected, trace, inner, launched.replay[replayed])
        # a launch outside all ranges belongs to its kernel's op, which attribution may find in another way
        linked = np.flatnonzero((work[name] >= 0) & (launched.call >= 0) & (launched.replay < 0))
        own = launched.call[linked]
        calls[own] = np.where(calls[own] >= 0, calls[own], work[name][linked])
    _add_calls(collected, trace, calls)
    for name, launched in every:
        bare = np.flatnonzero((work[name] < 0) & (launched.call >= 0))
        work[name][bare] = calls[launched.call[bare]]
        _add_unlaunched(collected, trace, name, work[name])
    return _number(collected, calls, work)


def _describe(ops: Ops, rows: Ints) -> tuple[pl.DataFrame, Ints]:
    """Return the ops of which ``rows`` are instances, and for each row the position of its op among these."""
    attribution = ops.attribution
    meaning = attribution.meaning
    direction = ops.direction(rows)
    direction = np.where(_are_backward(meaning)[meaning.reading[rows]], _BPROP, direction)
    forward = ops.forward_of(rows)
    outer = attribution.is_op & (attribution.parent < 0)
    # DLProf names a backward op after the forward op that it differentiates
    naming = np.where(forward >= 0, attribution.climb(forward, outer), rows)
    naming = np.where(naming >= 0, naming, rows)
    reading = meaning.reading[naming]
    texts = _readings(meaning)
    kind_code = pairs(
        *(texts[name].to_physical().fill_null(0).to_numpy() for name in ("type", "inputs"))
    )[2]
    kind_code = pairs(kind_code, texts["data_type"].to_physical().fill_null(0).to_numpy())[2]
    marker, stacks = _markers(ops, naming)
    described = ops.describe(naming)
    layer, layers = compact(described.layer)
    source, sources = compact(described.source)
    plain = pairs(layer, source)[2]
    where = pairs(marker, np.where(marker >= 0, NONE, plain))[2]
    kind_number = pairs(kind_code[reading], direction)[2]
    number = pairs(where, kind_number)[2]
    first = _first(number)
    order = np.argsort(first, kind="stable")  # ordered by the op's first start
    index = np.empty(len(first), np.int64)
    index[order] = np.arange(len(first))
    first = first[order]
    of = index[number]
    code = reading[first]
    names_of = _names(
        marker[first],
        [names.hierarchy(stack) for stack, _ in stacks],
        (layer[first], layers),
        (texts["type"].gather(code), (source[first], sources)),
    )
    own = spread("stack", ["\n".join(lines) for _, lines in stacks], marker[first])
    lines = ["\n".join(reversed((source or "").split(" < "))) for source in sources]
    frame = texts[code].with_columns(
        names_of,
        spread(
            "direction",
            [names.DIRECTIONS.get(direction_name) for direction_name in DIRECTIONS],
            direction[first],
        ),
        own.zip_with(pl.Series(marker[first] >= 0), spread("stack", lines, source[first])),
        spread("layer", layers, layer[first]),
        spread("source", sources, source[first]),
        pl.Series("eligible", _eligible(ops, rows, of, len(first)), pl.Boolean),
        pl.lit(True).alias("associated"),
    )
    return frame, of


def _first(number: NDArray[np.integer]) -> Ints:
    """Return the first position of each number 0, 1 …; every number occurs."""
    instance_count = int(number.max()) + 1 if len(number) else 0
    first = np.zeros(instance_count, np.int64)
    first[number[::-1]] = np.arange(len(number) - 1, -1, -1)
    return first


def _readings(meaning: Meaning) -> pl.DataFrame:
    """Return the columns of ``OPS`` for each distinct text of a range."""
    rows = []
    for reading, text in zip(meaning.readings, meaning.texts, strict=True):
        call = reading.call if reading.role == "op" else None
        kind = names.op_type(call.name if call is not None else text)
        rows.append(
            (
                _given_id(call),
                kind,
                names.data_type(call),
                names.input_shapes(call, kind),
                names.output_shapes(call, kind),
                names.parameters(call, kind),
                call.name if call is not None else text,
            )
        )
    columns = ("op_id", "type", "data_type", "inputs", "outputs", "parameters", "call")
    return pl.DataFrame(rows, schema={name: OPS[name] for name in columns}, orient="row")


def _names(
    marker: Ints,
    marked: list[str],
    layer: tuple[NDArray[np.int32], list[str | None]],
    kind_and_source: tuple[pl.Series, tuple[NDArray[np.int32], list[str | None]]],
) -> pl.Series:
    """Return the name of each op: from its marker, else from its layer and type."""
    kinds, (source, sources) = kind_and_source
    kind, types = compact(kinds)
    names_of_instances = spread("name", marked, marker)
    bare = np.flatnonzero(marker < 0)
    if not len(bare):
        return names_of_instances
    inner, line, number = pairs(pairs(layer[0][bare], kind[bare])[2], source[bare])
    del inner, line
    first = _first(number)
    order = np.argsort(first, kind="stable")
    distinct = bare[first[order]]
    layered = names.layered(
        [
            (layer[1][layer[0][i]], types[kind[i]] or "", sources[source[i]])
            for i in distinct.tolist()
        ]
    )
    index = np.empty(len(order), np.int64)
    index[order] = np.arange(len(order))
    return names_of_instances.scatter(bare, spread("name", layered, index[number]))


def _given_id(call: OpCall | None) -> str | None:
    """Return the id that DLProf's own database gave the op."""
    given = call.param("op_id") if call is not None else None
    return given if isinstance(given, str) and given else None


def _markers(ops: Ops, rows: Ints) -> tuple[Ints, list[tuple[str, tuple[str, ...]]]]:
    """Return for each op row the position of the marker's call stack around it (-1: none), and the stacks."""
    attribution = ops.attribution
    meaning, ranges = attribution.meaning, attribution.trace["ranges"]
    stack_numbers: dict[tuple[str, tuple[str, ...]], int] = {}
    code = np.full(len(meaning.readings), NONE, np.int64)
    for number, (reading, text) in enumerate(zip(meaning.readings, meaning.texts, strict=True)):
        stack = call_stack(text) if reading.role == "source" else None
        if stack is not None:
            code[number] = stack_numbers.setdefault(stack, len(stack_numbers))
    marker_of_row = np.full(len(rows), NONE, np.int64)
    if not stack_numbers:
        return marker_of_row, []
    around = code[meaning.reading] >= 0
    process, thread, time = ops.places(rows)
    for (number, on), part in lanes(ranges).rows(around):
        here = np.flatnonzero((process == number) & (thread == on))
        tree = nest(*(ranges[name].gather(part).to_numpy() for name in ("start", "end")))
        inner = tree.innermost(time[here])
        is_marked = inner >= 0
        marker_of_row[here[is_marked]] = code[meaning.reading[part[inner[is_marked]]]]
    return marker_of_row, list(stack_numbers)


def _eligible(ops: Ops, rows: Ints, of: Ints, count: int) -> pl.Series:
    """Return for each op whether it, or an op inside it, could use Tensor Cores; null: not known."""
    attribution, costs = ops.attribution, ops.costs
    could = costs.catalogue["tc_eligible"].fill_null(False).to_numpy()
    is_judged = costs.catalogue["tc_eligible"].is_not_null().to_numpy()
    outer = attribution.is_op & (attribution.parent < 0)
    inside = np.flatnonzero(attribution.is_op & could[costs.place])
    marked = np.zeros(len(outer), bool)
    tops = attribution.climb(inside, outer)
    marked[tops[tops >= 0]] = True
    yes, is_stated = np.zeros(count, bool), np.zeros(count, bool)
    yes[of[marked[rows]]] = True
    is_stated[of[is_judged[costs.place[rows]]]] = True
    return pl.Series(yes).set(pl.Series(~yes & ~is_stated), None)


def placed(trace: Trace, table: str, rows: Ints, ranges: Ints) -> pl.DataFrame:
    frame = trace[table].select("process", "start", "end")[rows]
    seen = captured(trace, ranges) if len(ranges) and (ranges >= 0).all() else None
    return frame.with_columns(
        pl.coalesce("end", "start").alias("end"),
        pl.lit(0, pl.Int64).alias("inner"),
        pl.Series("range", ranges, dtype=pl.Int64),
        pl.lit(True).alias("seen") if seen is None else pl.Series("seen", seen),
    )


def _replays(collected: Collected, trace: Trace, ints: Ints, replay: NDArray[np.int32]) -> Ints:
    """Return an instance for each (op, replay of a CUDA graph); a replay adds no time of the op on the
    CPU."""
    inner, call, number = pairs(ints, replay)
    table = (
        trace["calls"]
        .select("process", "start")[call]
        .with_columns(
            pl.lit(None, pl.Int64).alias("end"),
            pl.lit(0, pl.Int64).alias("inner"),
            pl.lit(NONE, pl.Int64).alias("range"),
            pl.lit(True).alias("seen"),
        )
    )
    of = np.concatenate(collected.of)[inner]
    first = collected.many
    collected.of.append(of)
    collected.table.append(table)
    collected.many += len(table)
    return first + number.astype(np.int64)


def _add_calls(collected: Collected, trace: Trace, calls: Ints) -> None:
    """Make an instance of each call that is in no op."""
    bare = np.flatnonzero(calls < 0)
    if not len(bare):
        return
    table = trace["calls"]
    bare = bare[np.argsort(table["start"].gather(bare).to_numpy(), kind="stable")]
    code, texts = compact(table["name"].gather(bare))
    counts = np.bincount(code, minlength=len(texts))
    each = counts[code] <= MOST_OF_A_CALL
    key = np.where(each, np.arange(len(bare)) + len(texts), code)
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    kinds = spread("type", [text or "call" for text in texts], code[first])
    begin = collected.add(
        _unassociated(kinds),
        number.reshape(-1),
        placed(trace, "calls", bare, np.full(len(bare), NONE)),
    )
    calls[bare] = begin + np.arange(len(bare))


def _add_unlaunched(collected: Collected, trace: Trace, name: str, ints: Ints) -> None:
    """Make instances of kernels or copies without an op and without a launch: an op per name."""
    bare = np.flatnonzero(ints < 0)
    if not len(bare):
        return
    table = trace[name]
    code, texts = compact(table["name" if name == "kernels" else "kind"].gather(bare))
    used, number = np.unique(code, return_inverse=True)
    kinds = [short_name(texts[code] or "?") for code in used.tolist()]
    called = kinds if name == "kernels" else [f"memory_{kind}" for kind in kinds]
    described = _unassociated(pl.Series("type", called, pl.String).cast(pl.Categorical))
    frame = table.select("process", "start")[bare].with_columns(
        pl.lit(None, pl.Int64).alias("end"),
        pl.lit(0, pl.Int64).alias("inner"),
        pl.lit(NONE, pl.Int64).alias("range"),
        pl.lit(True).alias("seen"),
    )
    begin = collected.add(described, number.reshape(-1), frame)
    ints[bare] = begin + np.arange(len(bare))


def _unassociated(kinds: pl.Series) -> pl.DataFrame:
    """Return ops for calls or kernels of these names that belong to no op."""
    code, texts = compact(kinds)
    return pl.DataFrame(
        {
            "name": spread("name", [names.UNASSOCIATED + (text or "") for text in texts], code),
            "type": kinds,
            "stack": spread("stack", [""], np.zeros(len(kinds), np.int64)),
            "eligible": pl.Series([False]).new_from_index(0, len(kinds)),
            "associated": pl.Series([False]).new_from_index(0, len(kinds)),
        }
    )


def _number(collected: Collected, calls: Ints, work: dict[str, Ints]) -> Instances:
    """Return the collected instances; ops get ids by type, in the order of their first start."""
    table = pl.concat(collected.table).select(
        pl.Series("op", np.concatenate(collected.of)),
        "process",
        "start",
        "end",
        "inner",
        "range",
        "seen",
    )
    ops = pl.concat(collected.ops)
    starts = table.group_by("op").agg(pl.col("start").min()).sort("op")["start"].fill_null(0)
    given = names.op_ids(ops["type"], starts)
    return Instances(
        ops.with_columns(pl.coalesce("op_id", pl.lit(given)).alias("op_id")),
        table,
        calls,
        work["kernels"],
        work["memops"],
    )
