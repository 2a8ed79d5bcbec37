"""The ops of a trace: direction, forward op, layer, step, source and user range of each op instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.calls import readings_table
from opscope.core.analysis.ops.costs import Costs, costs
from opscope.core.analysis.ops.directions import Settled, closures, settle, stated
from opscope.core.analysis.ops.identities import Identities, identities
from opscope.core.analysis.ops.op_times import Times, times
from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.enclosing import Context, is_user_range
from opscope.core.attribution.served_steps import of_job, served_steps
from opscope.core.dialects import Reading
from opscope.core.once import once
from opscope.core.question import units
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.columns import LookUp, ahead, at, gather, grouped, pieces, spread
from opscope.core.tables.intervals import NONE, Ints, in_order, merge
from opscope.core.tables.lanes import distinct_numbers, rows_of
from opscope.core.tables.mapped import full, let_go, zeros
from opscope.core.tables.numbers import Numbers

_BACKWARD: Final = DIRECTIONS.index("backward")
#: The columns that an op without shapes may take from another op.
_INHERITED: Final = ("inputs", "dtypes", "params")


@dataclass(slots=True)
class Described:
    """The columns that describe op rows, from ``Ops.describe``: one entry per requested row."""

    direction: pl.Series
    seq: pl.Series
    forward: Ints
    layer: pl.Series
    step: pl.Series
    source: pl.Series
    range: pl.Series
    call: pl.DataFrame


@dataclass(slots=True)
class Identified:
    """The columns that identify an op: those of ``Described`` that are equal in every call of the op."""

    direction: pl.Series
    forward: Ints
    layer: pl.Series
    source: pl.Series
    call: pl.DataFrame


class Ops:
    """The ops of an attributed trace; every property is computed when it is first used."""

    def __init__(self, attribution: Attribution) -> None:
        self.attribution = attribution
        self.context = Context(attribution)
        ranges = attribution.trace["ranges"]
        self._process = ranges["process"].fill_null(NONE)
        self._thread = ranges["thread"].fill_null(NONE)
        self._start = ranges["start"]

    @once
    def rows(self) -> Ints:
        """The rows of ``ranges`` that are ops."""
        return np.flatnonzero(self.attribution.is_op)

    @once
    def readings(self) -> pl.DataFrame:
        """A frame with one row per distinct reading (``readings_table``)."""
        return readings_table(self.attribution.meaning)

    @once
    def times(self) -> Times:
        """The times of the ops and of the work that they launched."""
        return times(self.attribution)

    @once
    def counted_time(self) -> Ints | None:
        """If the CPU is the device, the time (ns) of each op of ``rows``: the op's own time, and that of the
        ops inside it whose work its cost covers; these ops then get no time. None if the CPU is not the
        device."""
        if self.on_device or self.times.device_time is None:
            return None
        time = np.zeros(len(self.rows), np.int64)
        for part in pieces(len(self.rows)):
            owner = np.searchsorted(self.rows, self.counted_ops(self.rows[part]))
            np.add.at(time, owner, self.times.self_time[part])
        return time

    @once
    def identities(self) -> Identities:
        """The identities of the ops, which the tables of ops group by."""
        return identities(self)

    def counted_ops(self, rows: Ints) -> Ints:
        """Return for each op row the op around it that counts, if one does, else the op itself.

        The op with shapes and FLOPs gets the time: a marker's ``conv2d``, not the ``aten::cudnn_convolution``
        inside it, which has no shapes.
        """
        owner = self.costs.cost_owners(rows)
        return np.where(owner >= 0, owner, rows)

    @property
    def on_device(self) -> bool:
        """Whether the trace has kernels or copies, so that the CPU is not the device."""
        trace = self.attribution.trace
        return trace.has("kernels") or trace.has("memops")

    @once
    def served_steps(self) -> pl.DataFrame:
        """The steps that an inference server names, with their requests and tokens."""
        trace, launched = self.attribution.trace, self.attribution.kernels
        called = np.where(launched.replay >= 0, launched.replay, launched.call)

        def work() -> pl.DataFrame:
            launches = trace["calls"], distinct_numbers(called[called >= 0])
            table, rows = launches if self.on_device else (trace["ranges"], self.rows)
            return table.select("process", "thread", pl.col("start").alias("begun"))[rows]

        return served_steps(trace["ranges"], self.attribution.meaning, work)

    @once
    def costs(self) -> Costs:
        """The costs of the ops, and the ops that count."""
        return costs(self.attribution, self.forward_of, lambda: self.served_steps)

    def direction(self, rows: Ints) -> NDArray[np.int8]:
        """Return the direction of op rows (codes), by rule 4, -1 for none. It is the op's own, else that of
        the nearest op or phase around it, else backward on a thread of autograd's engine, else forward,
        unless the op is shown to belong to no forward pass (``directions``)."""
        return at(self._settled.codes, rows)

    def cuts(self) -> dict[tuple[int, int], tuple[Ints, Ints]]:
        """Return per process and thread the time within its forward phases in which no forward pass ran."""
        return self._settled.cuts

    def phase(self, process: Ints, thread: Ints, time: Ints) -> pl.Series:
        """Return the phase that ranges mark at each time (ns), String; null where its cuts are."""
        phase: pl.Series = self.context.phase(process, thread, time).cast(pl.String)
        for (number, on), (first, last) in self.cuts().items():
            here = np.flatnonzero((process == number) & (thread == on))
            index = np.searchsorted(first, time[here], side="right") - 1
            inside = (index >= 0) & (time[here] < at(last, index))
            is_cut = pl.Series(np.isin(np.arange(len(time)), here[inside])) & (phase == "forward")
            phase = phase.set(is_cut.fill_null(False), None)
        return phase

    def closures(self) -> Ints:
        """Return the rows of PyTorch's ranges around optimizer steps that ran a backward pass."""
        return closures(self.attribution, self._settled.codes)

    @once
    def _stated(self) -> NDArray[np.int8]:
        """The direction of every range row, from its text and the ranges around it."""
        return stated(self.attribution, self.context)

    @once
    def _settled(self) -> Settled:
        settled = settle(
            self.attribution,
            self.context,
            self._stated,
            self._differentiated,
            self._in_backward_phase,
        )
        settled.codes = self.attribution.kept(settled.codes)
        return settled

    def _differentiated(self) -> Ints:
        """Return the rows of the ops that a backward pass differentiated."""
        forwards = self._forwards
        seen = np.zeros(len(forwards), bool)
        for part in pieces(len(forwards)):
            seen[forwards[part][forwards[part] >= 0]] = True
        return np.flatnonzero(seen)

    def forward_of(self, rows: Ints) -> Ints:
        """Return for backward op rows the op row that each differentiates, -1 if there is none.

        The key is that of the op itself or of the autograd node around it, whichever is nearer; of several
        forward ops with one key the result is the latest to start.
        """
        return at(self._forwards, rows).astype(np.int64)

    @once
    def _forwards(self) -> NDArray[np.int32]:
        """``forward_of`` every range row."""
        meaning, directions, mapped = (
            self.attribution.meaning,
            self._stated,
            self.attribution.mapped,
        )
        count = len(directions)
        if not any((directions[part] == _BACKWARD).any() for part in pieces(count)):
            return np.broadcast_to(np.int32(NONE), count)  # allocates one number only
        is_node = meaning.each(_is_node)
        is_op, others = self.attribution.is_op, self.attribution.also_forward
        keyed, chosen = zeros(mapped, count, bool), zeros(mapped, count, bool)
        for part in pieces(count):
            numbered = meaning.seq.at_least(0, part)
            has_thread = meaning.fwd_thread.at_least(1, part)
            keyed[part] = numbered & (has_thread | is_node[meaning.reading[part]])
            ours = is_op[part] if others is None else is_op[part] | others[part]
            chosen[part] = ours & numbered & (directions[part] != _BACKWARD)
        giver_of_row = full(mapped, count, NONE, np.int32)
        if not keyed.any():
            return giver_of_row
        let_go()
        given = self._givers(chosen)

        def pair(part: slice) -> None:
            rows = part.start + np.flatnonzero(directions[part] == _BACKWARD)
            node = self.attribution.climb(rows, keyed)
            rows, node = rows[node >= 0], node[node >= 0]
            if not len(node):
                return
            wanted = meaning.seq.gather(node).to_numpy()
            # a loop over forward threads, not over events
            for lane, ours in grouped(self._lanes(node)):
                if lane in given:
                    giver = given[lane](wanted[ours])
                    # an op around a backward op is not its forward op
                    giver_of_row[rows[ours]] = np.where(giver == node[ours], NONE, giver)

        for _ in ahead(pair, count):
            pass
        return giver_of_row

    def _givers(self, chosen: NDArray[np.bool_]) -> dict[int, LookUp]:
        """Return per lane a lookup from sequence number to the row of the latest ``chosen`` op with it."""
        mapped, start = self.attribution.mapped, self._start.to_numpy()
        lanes: set[int] = set()
        for part in pieces(len(chosen)):
            lanes.update(np.unique(self._lanes(part.start + np.flatnonzero(chosen[part]))).tolist())
        distinct = np.array(sorted(lanes), np.int64)
        of = zeros(mapped, len(chosen), np.min_scalar_type(len(distinct)))
        for part in pieces(len(chosen)):
            rows = part.start + np.flatnonzero(chosen[part])
            of[rows] = np.searchsorted(distinct, self._lanes(rows))
        lookups = {}
        for number, rows in rows_of(len(distinct), of, chosen, mapped):
            rows = in_order(start, rows, mapped)
            seq = zeros(mapped, len(rows), np.int64)
            for part in pieces(len(rows)):
                seq[part] = self.attribution.meaning.seq.gather(rows[part]).to_numpy()
            lookups[int(distinct[number])] = LookUp(seq, rows, mapped)
        let_go()
        return lookups

    def recomputed(self, rows: Ints) -> NDArray[np.bool_]:
        """Return whether each op recomputes an activation (checkpointing): a forward op in backward.

        Such an op has a sequence number of its own, because autograd is on for it; an op that is part of a
        backward node has none, or its own text says that it is backward. It is inside a backward node, or
        runs while its process is in the backward phase. (An op of a backward that is itself differentiated
        looks the same.)
        """
        meaning = self.attribution.meaning
        is_node = meaning.each(_is_node)[meaning.reading[rows]]
        numbered = meaning.seq.at_least(0, rows)
        in_backward = self.direction(rows) == _BACKWARD
        is_recomputed: NDArray[np.bool_] = (
            numbered & ~is_node & (in_backward | self._in_backward_phase(rows))
        )
        return is_recomputed

    def _in_backward_phase(self, rows: Ints) -> NDArray[np.bool_]:
        """Return whether each op starts while its process is in a backward phase, on any thread."""
        ranges = self.attribution.trace["ranges"]
        phases = ranges.filter((pl.col("category") == "phase") & (pl.col("text") == "backward"))
        is_inside = np.zeros(len(rows), bool)
        process, start = (
            self._process.gather(rows).to_numpy(),
            self._start.gather(rows).to_numpy(),
        )
        for (number,), spans in phases.group_by("process"):
            first, last = merge(spans["start"].to_numpy(), spans["end"].to_numpy())
            at_most = np.searchsorted(first, start, side="right") - 1
            inside = (
                (at_most >= 0) & (start < last[np.maximum(at_most, 0)]) if len(first) else False
            )
            is_inside |= (process == number) & inside
        return is_inside

    @once
    def _forward_thread(self) -> tuple[Numbers, int]:
        """Return the forward threads, and a number greater than any of them."""
        fwd_thread = self.attribution.meaning.fwd_thread
        top = fwd_thread.max()
        count = 2 if top is None else top + 2
        if count > 1 << 32:
            fwd_thread = Numbers.of(fwd_thread.column.rank("dense").cast(pl.Int64))
            count = len(fwd_thread) + 2
        return fwd_thread, count

    def _lanes(self, rows: Ints | NDArray[np.int32]) -> Ints:
        """Return for each row the number of its (process, forward thread)."""
        fwd_thread, thread_count = self._forward_thread
        thread = fwd_thread.gather(rows).fill_null(NONE).to_numpy()
        lane: Ints = self._process.gather(rows).cast(pl.Int64).to_numpy() * thread_count + thread
        return lane

    @once
    def _shaped(self) -> NDArray[np.bool_]:
        """Whether each range row's own text gives shapes. It is kept, because kernels are described in
        pieces, and a trace of ten million has eighty pieces."""
        flags: NDArray[np.bool_] = self.readings["shaped"].to_numpy()
        is_shaped: NDArray[np.bool_] = flags[self.attribution.meaning.reading]
        return self.attribution.kept(is_shaped)

    def shapes_around(self, rows: Ints) -> pl.DataFrame:
        """Return ``inputs``, ``dtypes`` and ``params`` of the nearest op around each row that has shapes.

        Markers give shapes at the API's level (``conv2d``) around ops that have none
        (``aten::cudnn_convolution``).
        """
        meaning = self.attribution.meaning
        shaped = self.attribution.climb(rows, self._shaped)
        code = at(meaning.reading, shaped)
        return pl.DataFrame([gather(self.readings[name], code) for name in _INHERITED])

    def describe(self, rows: Ints, *, inherit: bool = False) -> Described:
        """Return direction, layer, step, source, user range and call of op rows (-1: all null).

        An op whose text names its layer has that layer. A backward op has the layer and the source of its
        forward op, and also its shapes if its own text gives none. With ``inherit`` an op without shapes
        first takes the shapes of the nearest op around it that has some.
        """
        identified = self.identify(rows, inherit=inherit)
        return Described(
            identified.direction,
            self.attribution.meaning.seq.gather(rows).alias("seq"),
            identified.forward,
            identified.layer,
            self.context.step(*self.places(rows)).alias("step"),
            identified.source,
            self.user_range(rows, identified.forward),
            identified.call,
        )

    def identify(self, rows: Ints, *, inherit: bool = False) -> Identified:
        """Return the columns of ``describe`` that identify an op."""
        meaning = self.attribution.meaning
        code = at(meaning.reading, rows)
        call = pl.DataFrame([gather(self.readings[name], code) for name in self.readings.columns])
        if inherit:
            around, shaped = self.shapes_around(rows), call["shaped"].fill_null(False)
            call = call.with_columns(
                *(call[name].zip_with(_own(call, name), around[name]) for name in _INHERITED),
                (shaped | around["inputs"].is_not_null()).alias("shaped"),
            )
        forward = self.forward_of(rows)
        if (forward >= 0).any():
            theirs = at(meaning.reading, forward)
            call = call.with_columns(
                call[name].zip_with(_own(call, name), gather(self.readings[name], theirs))
                for name in _INHERITED
            )
        layer, source = self._lines(rows, forward)
        direction = spread("direction", DIRECTIONS, self.direction(rows))
        return Identified(direction, forward, layer, source, call)

    def outline(self, rows: Ints) -> list[NDArray[Any]]:
        """Return numbers (-1: none) such that rows with equal numbers have equal columns in ``identify``.

        They combine ``outline_without_source`` with the source.
        """
        reading, theirs, direction, layer, forward = self._outline(rows)
        source = self._line_numbers(rows, "source")
        paired = np.flatnonzero(forward >= 0)
        if len(paired):
            forward_source = self._line_numbers(forward[paired], "source")
            source[paired] = np.where(source[paired] >= 0, source[paired], forward_source)
        own = at(self._names_line["source"], reading, False)
        return [reading, theirs, direction, layer, np.where(own, NONE, source)]

    def outline_without_source(self, rows: Ints) -> list[NDArray[Any]]:
        """Return the numbers of the reading, the forward op's reading if that gives the shapes, the direction
        and the layer (-1: none)."""
        return self._outline(rows)[:4]

    def _outline(self, rows: Ints) -> list[NDArray[Any]]:
        reading = at(self.attribution.meaning.reading, rows)
        forward = self.forward_of(rows)
        bare = ~self.readings["shaped"].fill_null(False).to_numpy()
        theirs = np.where(at(bare, reading, False), forward, NONE)
        return [
            reading,
            at(self.attribution.meaning.reading, theirs),
            self.direction(rows),
            self.layer_numbers(rows, forward),
            forward,
        ]

    def layer_numbers(self, rows: Ints, forward: Ints) -> Ints:
        """Return the layers of op rows as numbers (-1: none), first those of ``forward`` ops."""
        layer = self._line_numbers(rows)
        paired = np.flatnonzero(forward >= 0)
        if len(paired):
            forward_layer = self._line_numbers(forward[paired])
            theirs = forward_layer >= 0
            of_one = self._of_one(forward[paired])
            either = np.flatnonzero(~of_one & theirs & (layer[paired] >= 0))
            if len(either):
                own, around = (self._own_lines(some[paired[either]])[0] for some in (rows, forward))
                theirs[either] = _within(own, around).to_numpy()
            layer[paired] = np.where(theirs, forward_layer, layer[paired])
        return layer

    def _of_one(self, forward: Ints) -> NDArray[np.bool_]:
        """Return for each ``forward`` op whether it is a single node: its backward ops then have its layer,
        no matter what is around them.

        A kernel that does the work of several nodes has the layer of one of them: other nodes keep their own.
        """
        of_one: NDArray[np.bool_] = ~at(
            self.of_several, at(self.attribution.meaning.reading, forward), False
        )
        return of_one

    @once
    def _names_line(self) -> dict[str, NDArray[np.bool_]]:
        """Whether the text of each reading names its layer, and its source."""
        layer = self.attribution.meaning.each(lambda r: r.layer is not None and r.role != "layer")
        return {"layer": layer, "source": self.readings["source"].is_not_null().to_numpy()}

    def _line_numbers(self, rows: Ints, kind: str = "layer") -> Ints:
        """Return the texts of ``_own_lines`` for op rows as numbers, -1 for none; a text may have several."""
        reading = at(self.attribution.meaning.reading, rows)
        around = self.context.numbers(kind, *self.places(rows))
        # above the numbers of ``around``
        named = reading.astype(np.int64) + self.context.many(kind)
        return np.where(at(self._names_line[kind], reading, False), named, around)

    def layers(self, rows: Ints) -> pl.Series:
        """Return the layer of op rows, as in ``describe``; -1: null."""
        return self._lines(rows, self.forward_of(rows))[0]

    def user_range(self, rows: Ints, forward: Ints) -> pl.Series:
        """Return the innermost user range around op rows; for a backward op without a range, the range on its
        forward op's thread.

        Autograd works on its own threads while the user's thread waits inside the user's ranges.
        """
        process, thread, time = self.places(rows)
        user_ranges = self.context.user(process, thread, time)
        bare = np.flatnonzero((forward >= 0) & user_ranges.is_null().to_numpy())
        if len(bare):
            of = self.places(forward[bare])[1]
            user_ranges = user_ranges.scatter(
                bare, self.context.user(process[bare], of, time[bare])
            )
        meaning = self.attribution.meaning
        user = meaning.each(is_user_range)
        own = np.flatnonzero(at(user, at(meaning.reading, rows), False))
        if len(own):  # an op that is a user range itself gets the next one around it
            around = at(self.attribution.parent, rows[own]).astype(np.int64)
            around = self.attribution.climb(around, user[meaning.reading])
            user_ranges = user_ranges.scatter(
                own, spread("", meaning.texts, at(meaning.reading, around))
            )
        return user_ranges.alias("range")

    def _lines(self, rows: Ints, forward: Ints) -> tuple[pl.Series, pl.Series]:
        """Return layer and source of op rows, also from their ``forward`` ops (-1: none)."""
        layer, source = self._own_lines(rows)
        paired = np.flatnonzero(forward >= 0)
        if len(paired):
            index = np.full(len(rows), NONE, np.int64)
            index[paired] = np.arange(len(paired))
            their_layer, their_source = self._own_lines(forward[paired])
            theirs = gather(their_layer, index)
            of_one = self._of_one(forward)
            if not of_one.all():
                other = pl.Series(~of_one) & ~_within(layer, theirs)
                theirs = layer.rename(theirs.name).zip_with(other, theirs)
            layer = first(theirs, layer)
            source = first(source, gather(their_source, index))
        return layer.alias("layer"), source.alias("source")

    @once
    def of_several(self) -> NDArray[np.bool_]:
        """Whether each reading is a kernel that does the work of several nodes."""
        return self.attribution.meaning.each(
            lambda reading: reading.call is not None and reading.call.param("fused") is not None
        )

    def _own_lines(self, rows: Ints) -> tuple[pl.Series, pl.Series]:
        """Return layer and source from the texts of op rows, else those open around them."""
        places = self.places(rows)
        meaning = self.attribution.meaning
        code = at(meaning.reading, rows)
        layers = [
            reading.layer if reading.role != "layer" else None for reading in meaning.readings
        ]
        layer = spread("layer", layers, code)
        source = gather(self.readings["source"], code)
        return (
            first(layer, self.context.layer(*places)),
            first(source, self.context.source(*places)),
        )

    def places(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Return process, thread and start (ns) of op rows; for -1, values that no op has."""
        process, thread, time = (
            at(column.to_numpy(), rows, NONE - 1)
            for column in (self._process, self._thread, self._start)
        )
        return process, thread, time


def _within(own: pl.Series, around: pl.Series) -> pl.Series:
    """Return whether each layer ``own`` is ``around`` or inside it; true if either is null."""
    own, around = own.cast(pl.String), around.cast(pl.String)
    inside: pl.Series = ((own == around) | own.str.starts_with(around + "/")).fill_null(True)
    return inside


def _own(call: pl.DataFrame, name: str) -> pl.Series:
    """Return for each row whether it keeps its own value, because its call has shapes or (for a collective's
    size and peers) parameters."""
    has_own: pl.Series = call["shaped"].fill_null(False)
    return has_own | call["params"].is_not_null() if name == "params" else has_own


def _is_node(reading: Reading) -> bool:
    return reading.role == "op" and reading.direction == "backward"


def first(preferred: pl.Series, otherwise: pl.Series) -> pl.Series:
    """Return each row's preferred value, or the other if that is null."""
    column: pl.Series = preferred.zip_with(preferred.is_not_null(), otherwise)
    return column


def op_index(profile: Answers) -> Ops:
    """The ops of a profile's trace, which several questions share through ``profile.of``."""
    return Ops(profile.attribution)


def served_words(profile: Answers) -> str | None:
    """Return how many engine steps a server names: "20 engine steps (4 prefill, 16 decode)"; None: none."""
    if profile.merged_of is not None:
        return None
    steps = profile.of(op_index).served_steps.filter(pl.col("engine") == 0)
    if steps.is_empty():
        return None
    kinds = of_job(steps)["kind"]
    counts = kinds.fill_null("unknown").value_counts(sort=True).rows()
    parts = ", ".join(f"{count:,} {kind}" for kind, count in counts)
    return f"{units.counted(len(kinds), 'engine step')} ({parts})"
