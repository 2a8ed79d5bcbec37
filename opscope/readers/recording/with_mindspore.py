"""Join a process's ranges with the operators that MindSpore's profiler recorded, on the recorder's clock.

An operator is counted once, with the profiler's time. In a compiled graph it has the call in the graph. In
PyNative mode the adapter's range has the call and lasts until the operator has run; the profiler has the time
when it ran. An operator in both becomes one range with the profiler's time; the adapter's range stays as the
framework's internals (domain ``runtime``).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.dialects import own as own_texts
from opscope.core.dialects.mindspore import DOMAIN, node_name
from opscope.core.payload import GRAPH_THREAD
from opscope.core.rangetext import format_call
from opscope.core.schema import DIRECTIONS, OpCall, TensorSpec
from opscope.core.tables.clockfit import ClockFit
from opscope.core.tables.intervals import Ints, nest
from opscope.core.tables.trace import Trace, next_range_id
from opscope.readers.mindspore import gradients
from opscope.readers.mindspore.cpu_files import SHAPELESS
from opscope.readers.mindspore.graph_nodes import (
    AMBIGUOUS,
    Captured,
    known_calls,
    with_sizes,
)
from opscope.readers.mindspore.known import Known
from opscope.readers.mindspore.numbering import renumbered
from opscope.readers.recording.beside import joined
from opscope.readers.recording.onclock import to_unix

#: The adapter's domain.
ADAPTER: Final = "opscope.mindspore"
#: The number of MindSpore's thread 0; its other threads have lower numbers.
FIRST_THREAD: Final = -(1 << 20)
#: The number that the adapter gives to another graph of the same name.
_NUMBERED: Final = re.compile(r"(?<=.)_[0-9]+\Z")
_PLACED: Final = "operators are placed by the system's clock, which both recorded, to within {} ns"
_UNKNOWN: Final = "operators whose shapes or dtypes neither a graph nor the adapter tells"
_OUTSIDE: Final = "operators that ran outside the recording: the clocks may not be what they seem"


def merge(ranges: Trace, captured: Captured) -> Trace:
    """Return the recorder's part ``ranges`` with the operators in ``captured``, on the recorder's clock."""
    clock = _clock(ranges, captured.executions.unix)
    own = ranges["ranges"]
    table = _on_clock(captured.executions.table, clock)
    run = _runs(own, table)
    of_graph = pl.Series((run >= 0) | (_around(_ask(own), table, run < 0) < 0))
    ran = table.select("node", run=pl.Series(run)).filter(of_graph)
    nodes = renumbered(captured.nodes, ran)
    table, calls_known, ambiguous = known_calls(table, nodes, of_graph)
    operators = _Operators(table, calls_known)
    taken = operators.join_asked(own)
    operators.place(own)
    operators.pair()
    added = operators.ranges(next_range_id(own))
    changed = {
        "ranges": pl.concat([_without(own, taken), added], how="diagonal_relaxed"),
        "threads": pl.concat(
            [ranges["threads"], _threads(added, ranges["threads"])], how="diagonal"
        ),
    }
    merged = joined(ranges, Trace.of({}), (), clock, "mindspore", changed)
    merged.origin["operations"] = {
        "format": "mindspore",
        "paths": [str(captured.executions.path)],
        "executions": len(table),
    }
    for severity, message, how_many in captured.executions.notes:
        if message != SHAPELESS:  # the adapter or a graph may have the sizes
            merged.note(severity, message, how_many)
    if operators.unknown:
        merged.note("warning", _UNKNOWN, operators.unknown)
    merged.note("info", _PLACED.format(clock.error_ns))
    if ambiguous:
        merged.note("warning", AMBIGUOUS, ambiguous)
    outside = _outside(ranges, table)
    if outside:
        merged.note("warning", _OUTSIDE, outside)
    return merged


def _clock(ranges: Trace, unix: bool) -> ClockFit:
    """Return how to convert the profiler's times to the recorder's; the recorder has pairs of readings of
    its own clock and the Unix clock."""
    if not unix:  # versions whose times are on the recorder's clock already
        return ClockFit(0, 0, 0.0, 0, 0, 0)
    clocks, offset = ranges["clocks"], to_unix(ranges)
    error = clocks["error_ns"].fill_null(0)[0] if len(clocks) else 0
    ppm = clocks["drift_ppm"].fill_null(0.0)[0] if len(clocks) else 0.0
    start = (ranges.origin.get("recorded") or (0, 0))[0] or 0
    return ClockFit(start + offset, -offset, -ppm / 1e6, int(error), 0, len(clocks))


def _on_clock(table: pl.DataFrame, clock: ClockFit) -> pl.DataFrame:
    start = pl.Series("start", clock.apply(table["start"].to_numpy()))
    end = (start + (table["end"] - table["start"])).alias("end")
    return table.with_columns(start, end)


def _runs(own: pl.DataFrame, table: pl.DataFrame) -> Ints:
    """Return for each execution the row of the innermost run of a graph in which it began; -1 for none."""
    runs = own.filter((pl.col("category") == "graph").fill_null(False))
    if not len(runs) or not len(table):
        return np.full(len(table), -1, np.int64)
    tree = nest(runs["start"].to_numpy(), runs["end"].to_numpy())
    return tree.innermost(table["start"].to_numpy())


def _outside(ranges: Trace, table: pl.DataFrame) -> int:
    first, last = ranges.origin.get("recorded") or (None, None)
    if first is None or last is None or not len(table):
        return 0
    return int(((table["end"] < first) | (table["start"] > last)).sum())


class _Operators:
    """The executions by start, and the facts about each: ``which`` is its index into ``known``."""

    def __init__(self, table: pl.DataFrame, planned_calls: list[Known]) -> None:
        self.table = table
        self.known = planned_calls
        self.which: Ints = table["known"].to_numpy().astype(np.int64)
        self.lane: Ints = (FIRST_THREAD - table["thread"]).to_numpy().copy()
        self.seq = np.full(len(table), -1, np.int64)
        self.fwd_thread = np.full(len(table), GRAPH_THREAD, np.int64)
        self._numbers: dict[Known, int] = {}

    def _is(self, wanted: list[bool]) -> NDArray[np.bool_]:
        flags: NDArray[np.bool_] = np.array(wanted, bool)[self.which]
        return flags

    def _add(self, planned: Known) -> int:
        number = self._numbers.get(planned)
        if number is None:
            number = self._numbers[planned] = len(self.known)
            self.known.append(planned)
        return number

    def join_asked(self, own: pl.DataFrame) -> pl.Series:
        """Give operators of PyNative mode the call that the program made; return the ids of these ranges.
        The adapter's range lasts until its operators have run. An operator with the range's name is the
        range's own; any other operator is a part of it: of a gradient, or of a composed operator."""
        calls = _ask(own)
        loose = ~self._is([planned.in_graph for planned in self.known])
        call_of_row = _around(calls, self.table, loose)
        rows = np.flatnonzero(call_of_row >= 0)
        if not len(rows):
            return pl.Series("id", [], dtype=pl.Int64)
        calls_asked = _Told(calls)
        turn, counts = _turns(self._names(), self.which[rows], call_of_row[rows])
        keys = np.stack((self.which[rows], calls_asked.code[call_of_row[rows]], turn, counts))
        distinct, inverse = np.unique(keys, axis=1, return_inverse=True)
        numbers = [
            self._add(calls_asked.joined(self.known[number], *key))
            for number, *key in distinct.T.tolist()
        ]
        place_of = inverse.reshape(-1)
        self.which[rows] = np.array(numbers, np.int64)[place_of]
        self.lane[rows] = calls["thread"].gather(call_of_row[rows]).to_numpy()
        for mine, column in ((self.seq, "seq"), (self.fwd_thread, "fwd_thread")):
            mine[rows] = calls[column].fill_null(-1).gather(call_of_row[rows]).to_numpy()
        is_described = np.array(
            [
                calls_asked.is_whole(self.known[number], key)
                for number, key in zip(numbers, distinct[1].tolist(), strict=True)
            ]
        )
        return calls["id"].gather(np.unique(call_of_row[rows][is_described[place_of]]))

    def _names(self) -> list[str]:
        return [node_name(planned.node).op for planned in self.known]

    def place(self, own: pl.DataFrame) -> None:
        """Set the thread of each execution: the thread of the graph's run around it, else one of MindSpore's.

        MindSpore numbers its workers; all other threads are 0, including the program's and PyNative's. An
        execution on thread 0 that begins and ends within a run of a graph (category ``graph``) belongs to
        this run, and its layer is inside the layer around the run.
        """
        runs = own.filter((pl.col("category") == "graph").fill_null(False))
        start, end = self.table["start"].to_numpy(), self.table["end"].to_numpy()
        if not len(runs) or not len(start):
            return
        inside = nest(runs["start"].to_numpy(), runs["end"].to_numpy()).innermost(start)
        is_inside = (inside >= 0) & (self.table["thread"].to_numpy() == 0)
        is_inside &= end <= runs["end"].to_numpy()[np.maximum(inside, 0)]
        is_inside &= self._is([planned.in_graph for planned in self.known])
        self.lane[is_inside] = runs["thread"].to_numpy()[inside[is_inside]]
        graphs = [_NUMBERED.sub("", text) for text in runs["text"].cast(pl.String)]
        phases = _innermost(own, "phase", runs)
        rows = np.flatnonzero(is_inside)
        around = inside[rows].tolist()
        code, kinds = _rows_of([graphs[run] for run in around], [phases[run] for run in around])
        pairs, inverse = np.unique(np.stack((self.which[rows], code)), axis=1, return_inverse=True)
        numbers = [
            self._add(_in_run(self.known[number], *kinds[kind]))
            for number, kind in pairs.T.tolist()
        ]
        self.which[rows] = np.array(numbers, np.int64)[inverse.reshape(-1)]

    def pair(self) -> None:
        """Give an operator of a graph's gradient the number of the operator that it differentiates."""
        forward = self._pairs_of_graphs()
        rows = np.flatnonzero(forward >= 0)
        of = forward[rows]
        self.seq[of] = of
        self.seq[rows] = of

    def _pairs_of_graphs(self) -> Ints:
        """Return for each execution of a node the execution of its forward node in the same run; -1 for
        none."""
        node_of_row = np.full(len(self.which), -1, np.int64)
        names: dict[str, list[int]] = {}
        for number, planned in enumerate(self.known):
            if planned.in_graph:
                names.setdefault(planned.origin or planned.node, []).append(number)
        for number in np.unique(self.which).tolist():
            of = self.known[number].forward
            if of is None or of not in names:
                continue
            mine = np.flatnonzero(self.which == number)
            theirs = np.flatnonzero(np.isin(self.which, names[of]))
            # a run of the graph may return the loss after the first gradient
            if len(theirs) == len(mine):
                node_of_row[mine] = theirs
                continue
            at = np.searchsorted(theirs, mine) - 1
            node_of_row[mine[at >= 0]] = theirs[at[at >= 0]]
        return node_of_row

    @property
    def unknown(self) -> int:
        """Return how many executions have inputs of unknown dtype, or no known inputs."""
        bare = [
            (not planned.call.inputs and planned.call.outputs is None)
            or any(
                tensor is not None and tensor.dtype == "?" for tensor in planned.call.input_leaves()
            )
            for planned in self.known
        ]
        return int(self._is(bare).sum())

    def ranges(self, first: int) -> pl.DataFrame:
        """Return the ranges of the operators, with one text for each distinct description."""
        distinct, code = np.unique(self.which, return_inverse=True)
        texts = pl.Series(
            [_text(self.known[number]) for number in distinct.tolist()], dtype=pl.String
        )
        numbered = pl.Series(self.seq >= 0)
        return pl.DataFrame(
            {
                "id": np.arange(len(code), dtype=np.int64) + first,
                "process": pl.Series(np.zeros(len(code), np.int32)),
                "thread": self.lane,
                "end_thread": self.lane,
                "start": self.table["start"],
                "end": self.table["end"],
                "text": texts.gather(code).cast(pl.Categorical),
                "seq": pl.Series(self.seq).set(~numbered, None),
                "fwd_thread": pl.Series(self.fwd_thread).set(~numbered, None),
            }
        ).with_columns(
            pl.lit(DOMAIN).cast(pl.Categorical).alias("domain"),
            pl.lit("pushpop").cast(pl.Categorical).alias("kind"),
        )


def _call(text: str) -> OpCall | None:
    reading = own_texts.read(ADAPTER, None, text)
    return None if reading is None else reading.call


class _Told:
    """The facts in the adapter's ranges. ``code``: the index of each range's description."""

    def __init__(self, calls: pl.DataFrame) -> None:
        texts, by_text = _codes(calls["text"])
        directions, by_direction = _codes(calls["category"])
        forward, by_forward = _codes(_forward_texts(calls))
        keys = np.stack((by_text, by_direction, by_forward))
        distinct, inverse = np.unique(keys, axis=1, return_inverse=True)
        self.code: Ints = inverse.reshape(-1).astype(np.int64)
        self._calls: list[tuple[OpCall, str, OpCall | None]] = []
        for text, direction, of in distinct.T.tolist():
            call = _call(texts[text])
            assert call is not None  # ``_ask`` has calls only
            self._calls.append((call, directions[direction], _call(forward[of])))

    def joined(self, planned: Known, index: int, turn: int, count: int) -> Known:
        """Return the operator with the facts of the range. It is number ``turn`` of the ``count``
        operators of its name in the range."""
        call, direction, forward = self._calls[index]
        full_call = _of_call(planned, call, count)
        if full_call is None and node_name(planned.node).op in gradients.PRODUCTS:
            of_product = gradients.product_gradient(call, turn, count)
            if of_product is not None:
                full_call = _of_call(planned, of_product, 0)
        if full_call is None:
            more = (
                ()
                if forward is None
                else (*forward.input_leaves(), *(forward.output_leaves() or ()))
            )
            full_call = gradients.completed(planned, call, more)
        return replace(full_call, direction=direction or None)

    def is_whole(self, planned: Known, index: int) -> bool:
        """Whether the operator is all the work of the range, so that the range must not count too."""
        direction = self._calls[index][1]
        return (
            direction == "backward" or bool(planned.call.inputs) or planned.call.outputs is not None
        )


def _of_call(planned: Known, call: OpCall, alone: int) -> Known | None:
    """Return the operator with the call that the program made; None if it is another operator.

    Recorded sizes must equal the call's. If the names differ (``Muls`` runs as ``Mul``), the operator must be
    the only one of its name in the range (``alone`` is 1), have no sizes, and not be part of a gradient.
    """
    inputs = tuple(tensor for tensor in call.input_leaves() if tensor is not None)
    ran = tuple(tensor for tensor in planned.call.inputs if isinstance(tensor, TensorSpec))
    if node_name(planned.node).op != call.name:
        renamed = call.name.lower().startswith(node_name(planned.node).op.lower())
        if ran or alone != 1 or not renamed or call.name.endswith(gradients.GRADIENT):
            return None
    if ran and inputs and with_sizes(inputs[: len(ran)], ran) is None:
        return None
    return replace(planned, call=call)


def _forward_texts(calls: pl.DataFrame) -> pl.Series:
    """Return the text of the forward operator of each range of a gradient; null for none."""
    keys = ["seq", "fwd_thread"]
    category = pl.col("category").cast(pl.String)
    forward = (
        calls.filter(pl.col("seq").is_not_null() & (category == "forward"))
        .unique(keys, keep="last", maintain_order=True)
        .select(*keys, pl.col("text").cast(pl.String).alias("forward"))
    )
    forward_of_call = calls.select(*keys, category).join(
        forward, on=keys, how="left", maintain_order="left"
    )
    backward: pl.Series = forward_of_call.select(
        pl.when(category == "backward").then("forward").alias("forward")
    ).to_series()
    return backward


def _turns(names: list[str], which: Ints, ints: Ints) -> tuple[Ints, Ints]:
    """Return for each execution its number among the executions with its name in its range, and how many
    there are."""
    frame = pl.DataFrame({"range": ints, "name": pl.Series(names).gather(which)})
    by = ["range", "name"]
    turn = frame.select(pl.int_range(pl.len(), dtype=pl.Int64).over(by)).to_series().to_numpy()
    counts = frame.select(pl.len().over(by).cast(pl.Int64)).to_series().to_numpy()
    return turn, counts


def _around(calls: pl.DataFrame, table: pl.DataFrame, wanted: NDArray[np.bool_]) -> Ints:
    """Return for each wanted execution the row of the innermost of ``calls`` in which it began; -1 for
    none. If calls of several threads contain it, take the one with the operator's name; if several have
    this name, take none."""
    call_of_row = np.full(len(table), -1, np.int64)
    rows = np.flatnonzero(wanted)
    if not len(calls) or not len(rows):
        return call_of_row
    start = table["start"].to_numpy()[rows]
    begin, until = calls["start"].to_numpy(), calls["end"].to_numpy()
    thread = calls["thread"].to_numpy()
    per_thread: list[Ints] = []
    for thread_number in np.unique(thread):
        mine = np.flatnonzero(thread == thread_number)
        inside = nest(begin[mine], until[mine]).innermost(start)
        per_thread.append(np.where(inside >= 0, mine[np.maximum(inside, 0)], -1))
    held_by = np.stack(per_thread)
    counts = (held_by >= 0).sum(0)
    call_of_row[rows] = np.where(counts == 1, held_by.max(0), -1)
    several = np.flatnonzero(counts > 1)
    if len(several):
        names = calls["name"].to_list()
        nodes = table["node"].to_list()
        for at in several.tolist():
            op = node_name(nodes[rows[at]]).op
            fitting = [row for row in held_by[:, at].tolist() if row >= 0 and names[row] == op]
            call_of_row[rows[at]] = fitting[0] if len(fitting) == 1 else -1
    return call_of_row


def _text(planned: Known) -> str:
    """Return the text of a range in domain ``mindspore``: the node's name with the known parts of its
    call."""
    said = node_name(planned.node)
    params = planned.call.params
    if planned.layer is not None and planned.layer != said.layer:
        params += (("layer", planned.layer),)
    if planned.direction in DIRECTIONS and planned.direction != said.direction:
        params += (("direction", planned.direction),)
    return format_call(replace(planned.call, name=planned.node, params=params), None)


def _ask(own: pl.DataFrame) -> pl.DataFrame:
    """Return the adapter's ranges of operators, by start, with the operator's ``name``."""
    category = pl.col("category").cast(pl.String)
    rows = own.filter(
        (pl.col("domain").cast(pl.String) == ADAPTER)
        & (category.is_null() | category.is_in(DIRECTIONS))
        & (pl.col("kind").cast(pl.String) == "pushpop")
    ).sort("start", maintain_order=True)
    texts, code = _codes(rows["text"])
    calls = [_call(text) for text in texts]
    names = [None if call is None else call.name for call in calls]
    name = pl.Series("name", names, dtype=pl.String).gather(code)
    return rows.with_columns(name).filter(pl.col("name").is_not_null())


def _codes(texts: pl.Series) -> tuple[list[str], Ints]:
    """Return the distinct texts, and for each row the index of its text."""
    plain = texts.cast(pl.String).fill_null("")
    distinct = plain.unique(maintain_order=True)
    frame = plain.to_frame("text").join(
        distinct.to_frame("text").with_row_index("place"),
        on="text",
        how="left",
        maintain_order="left",
    )
    return distinct.to_list(), frame["place"].to_numpy().astype(np.int64)


def _innermost(own: pl.DataFrame, category: str, rows: pl.DataFrame) -> list[str | None]:
    """Return the text of the innermost range of a category open on the thread of each row at its start."""
    texts_of_rows: list[str | None] = [None] * len(rows)
    ranges = own.filter((pl.col("category").cast(pl.String) == category).fill_null(False))
    threads, start = rows["thread"].to_numpy(), rows["start"].to_numpy()
    for (thread,), part in ranges.group_by("thread"):
        mine = np.flatnonzero(threads == thread)
        inside = nest(part["start"].to_numpy(), part["end"].to_numpy()).innermost(start[mine])
        texts = part["text"].cast(pl.String).to_list()
        for row, at in zip(mine[inside >= 0].tolist(), inside[inside >= 0].tolist(), strict=True):
            texts_of_rows[row] = texts[at]
    return texts_of_rows


def _rows_of(
    graphs: list[str], phases: list[str | None]
) -> tuple[Ints, list[tuple[str, str | None]]]:
    """Return the distinct pairs of graph and phase, and for each row the index of its pair."""
    places: dict[tuple[str, str | None], int] = {}
    code = [places.setdefault(pair, len(places)) for pair in zip(graphs, phases, strict=True)]
    return np.array(code, np.int64), list(places)


def _in_run(planned: Known, graph: str, phase: str | None) -> Known:
    """Return the operator in a run of ``graph``: its layer within it, and the direction of the phase.

    A function that is compiled loses the cells' names; then the cell that owns the operator's parameter is
    the layer.
    """
    said = node_name(planned.origin or planned.node)
    direction = planned.direction or said.direction
    if direction in (None, "forward") and phase in DIRECTIONS:
        direction = phase
    if said.cells or direction == "optimizer":
        layer = said.layer_in(graph)
    else:
        layer = graph if planned.layer is None else f"{graph}.{planned.layer}"
    return replace(planned, layer=layer, direction=direction)


def _without(own: pl.DataFrame, taken: pl.Series) -> pl.DataFrame:
    """Return the recorder's ranges with those that were joined as the framework's internals."""
    mine = pl.col("id").is_in(taken.implode())
    return own.with_columns(
        pl.when(mine).then(pl.lit("runtime")).otherwise(pl.col("domain").cast(pl.String))
        .cast(pl.Categorical).alias("domain"),
        pl.when(mine).then(None).otherwise(pl.col("category").cast(pl.String))
        .cast(pl.Categorical).alias("category"),
        pl.when(mine).then(None).otherwise(pl.col("seq")).alias("seq"),
    )  # fmt: skip


def _threads(added: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    threads = added["thread"].unique().sort()
    new = threads.filter(~threads.is_in(table["thread"].implode()))
    names = [
        "MindSpore's operators"
        if thread_number == FIRST_THREAD
        else f"MindSpore worker {FIRST_THREAD - thread_number}"
        for thread_number in new
    ]
    return pl.DataFrame(
        {
            "process": pl.Series([0] * len(new), dtype=pl.Int32),
            "thread": new,
            "name": pl.Series(names, dtype=pl.String),
        }
    )
