"""The ops of a trace: one row per op instance, and what encloses and follows each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.calls import readings_table
from opscope.core.analysis.costs import Costs, costs
from opscope.core.analysis.op_times import Times, times
from opscope.core.attribute import Attribution, look_up
from opscope.core.columns import at, gather, spread
from opscope.core.context import Context
from opscope.core.dialects import Reading
from opscope.core.intervals import NONE, Ints, merge
from opscope.core.schema import DIRECTIONS

_BACKWARD: Final = DIRECTIONS.index("backward")
_FORWARD: Final = DIRECTIONS.index("forward")
#: What an op without shapes of its own may take from another.
_INHERITED: Final = ("inputs", "dtypes", "params")


@dataclass(slots=True)
class Described:
    """Columns that describe op rows: what ``Ops.describe`` returns, one entry per row asked for."""

    direction: pl.Series
    seq: pl.Series
    forward: Ints
    layer: pl.Series
    step: pl.Series
    source: pl.Series
    call: pl.DataFrame


class Ops:
    """The op rows of an attributed trace; every part is worked out when it is first asked for."""

    def __init__(self, attribution: Attribution) -> None:
        self.attribution = attribution
        self.context = Context(attribution)
        ranges = attribution.trace["ranges"]
        self._process = ranges["process"].fill_null(NONE)
        self._thread = ranges["thread"].fill_null(NONE)
        self._start = ranges["start"]
        self.rows: Ints = np.flatnonzero(attribution.is_op)

    @cached_property
    def readings(self) -> pl.DataFrame:
        """One row per distinct reading (``readings_table``)."""
        return readings_table(self.attribution.meaning)

    @cached_property
    def times(self) -> Times:
        """The ops' own times and those of what they launched."""
        return times(self.attribution)

    @cached_property
    def counted_times(self) -> Times:
        """The same, but what an op launched stands at the op around it that counts, if one does.

        The op that has the shapes and the FLOPs has the time: a marker's ``conv2d``, not the
        ``aten::cudnn_convolution`` without shapes inside it.
        """
        return times(self.attribution, self._counting)

    def _counting(self, rows: Ints) -> Ints:
        found = self.costs.costing(rows)
        return np.where(found >= 0, found, rows)

    @property
    def on_device(self) -> bool:
        """Whether the trace has what ran on a device, so that the CPU is not the device."""
        trace = self.attribution.trace
        return trace.has("kernels") or trace.has("memops")

    @cached_property
    def costs(self) -> Costs:
        """The cost model's figures and the ops that count."""
        return costs(self.attribution, self.forward_of)

    @cached_property
    def _own_direction(self) -> NDArray[np.int8]:
        codes = [
            DIRECTIONS.index(r.direction) if r.direction in DIRECTIONS else NONE
            for r in self.attribution.meaning.readings
        ]
        return np.array(codes, np.int8)

    def direction(self, rows: Ints) -> NDArray[np.int8]:
        """Rule 4: the op's own, else that of the nearest op around it, else forward (codes)."""
        reading = self.attribution.meaning.reading
        found = self.attribution.climb(rows, self._own_direction[reading] != NONE)
        own = at(reading, rows)
        is_call = np.array([r.call is not None for r in self.attribution.meaning.readings], bool)
        otherwise = np.where(at(is_call, own, False), _FORWARD, NONE)  # a user range has none
        codes = np.where(found >= 0, at(self._own_direction, at(reading, found)), otherwise)
        return np.where(rows >= 0, codes, NONE).astype(np.int8)

    def forward_of(self, rows: Ints) -> Ints:
        """For backward op rows the op row that each differentiates, -1 where there is none.

        The key is that of the op itself or of the autograd node around it, whichever is nearer; of
        several forward ops with one key the latest to start is it.
        """
        meaning = self.attribution.meaning
        found = np.full(len(rows), NONE, np.int64)
        backward = np.flatnonzero(self.direction(rows) == _BACKWARD)
        if not len(backward):
            return found
        is_node = np.array([_is_node(r) for r in meaning.readings], bool)[meaning.reading]
        told = (meaning.fwd_thread > 0).fill_null(False).to_numpy()
        numbered = (meaning.seq >= 0).fill_null(False).to_numpy()
        node = self.attribution.climb(rows[backward], numbered & (told | is_node))
        backward, node = backward[node >= 0], node[node >= 0]
        if not len(node):
            return found
        wanted = meaning.seq.gather(node).to_numpy()
        given = np.flatnonzero(self.attribution.is_op & numbered)
        given = given[self.direction(given) != _BACKWARD]
        given = given[np.argsort(self._start.gather(given).to_numpy(), kind="stable")]
        seq = meaning.seq.gather(given).to_numpy()
        lane, asked = self._lanes(given, node)
        for number in np.unique(asked):  # processes and their forward threads, not events
            theirs, ours = lane == number, asked == number
            if theirs.any():
                found[backward[ours]] = look_up(seq[theirs], given[theirs], wanted[ours])
        return found

    def recomputed(self, rows: Ints) -> NDArray[np.bool_]:
        """Whether each op computes an activation again (checkpointing): a forward op in backward.

        It has a sequence number of its own, because autograd is on for it; what a backward node is
        made of has none, or says itself that it is backward. It is inside a backward
        node, or runs while its process is in the phase of that name. (A backward that is itself
        differentiated looks the same.)
        """
        meaning = self.attribution.meaning
        is_node = np.array([_is_node(r) for r in meaning.readings], bool)[meaning.reading[rows]]
        numbered = (meaning.seq >= 0).fill_null(False).gather(rows).to_numpy()
        in_backward = self.direction(rows) == _BACKWARD
        found: NDArray[np.bool_] = (
            numbered & ~is_node & (in_backward | self._in_backward_phase(rows))
        )
        return found

    def _in_backward_phase(self, rows: Ints) -> NDArray[np.bool_]:
        """Whether each op starts while its process is in a backward phase, on whatever thread."""
        ranges = self.attribution.trace["ranges"]
        phases = ranges.filter((pl.col("category") == "phase") & (pl.col("text") == "backward"))
        found = np.zeros(len(rows), bool)
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
            found |= (process == number) & inside
        return found

    def _lanes(self, given: Ints, node: Ints) -> tuple[Ints, Ints]:
        """A number for each (process, forward thread), for two lists of op rows."""
        fwd_thread = self.attribution.meaning.fwd_thread
        top: Any = fwd_thread.max()
        many = 2 if top is None else int(top) + 2
        if many > 1 << 32:
            fwd_thread = fwd_thread.rank("dense").cast(pl.Int64)
            many = len(fwd_thread) + 2

        def numbers(rows: Ints) -> Ints:
            thread = fwd_thread.gather(rows).fill_null(NONE).to_numpy()
            lane: Ints = self._process.gather(rows).cast(pl.Int64).to_numpy() * many + thread
            return lane

        return numbers(given), numbers(node)

    def shapes_around(self, rows: Ints) -> pl.DataFrame:
        """``inputs``, ``dtypes`` and ``params`` of the nearest op around that has shapes.

        Markers give shapes at the API's level (``conv2d``) around ops that have none
        (``aten::cudnn_convolution``).
        """
        meaning = self.attribution.meaning
        shaped = self.readings["shaped"].to_numpy()[meaning.reading]
        found = self.attribution.climb(rows, shaped)
        code = at(meaning.reading, found)
        return pl.DataFrame([gather(self.readings[name], code) for name in _INHERITED])

    def describe(self, rows: Ints, *, inherit: bool = False) -> Described:
        """Direction, layer, step, source and call of op rows (-1: all null).

        An op that names its layer itself has that one. A backward op has the layer, the source and, where its own text gives none, the shapes of
        its forward op. With ``inherit`` an op without shapes first takes those of the nearest op
        around it that has some.
        """
        process, thread, time = (
            gather(column, rows).fill_null(NONE - 1).to_numpy()
            for column in (self._process, self._thread, self._start)
        )
        forward = self.forward_of(rows)
        layer = self.context.layer(process, thread, time)
        source = self.context.source(process, thread, time)
        meaning = self.attribution.meaning
        code = at(meaning.reading, rows)
        own_layer = spread("layer", [one.layer for one in meaning.readings], code)
        layer = _first(own_layer, layer)
        call = pl.DataFrame([gather(self.readings[name], code) for name in self.readings.columns])
        if inherit:
            around, shaped = self.shapes_around(rows), call["shaped"].fill_null(False)
            call = call.with_columns(
                *(call[name].zip_with(_own(call, name), around[name]) for name in _INHERITED),
                (shaped | around["inputs"].is_not_null()).alias("shaped"),
            )
        direction = spread("direction", DIRECTIONS, self.direction(rows))
        own_source = call["source"]
        source = own_source.zip_with(own_source.is_not_null(), source).alias("source")
        if (forward >= 0).any():
            distinct, place = np.unique(forward[forward >= 0], return_inverse=True)
            theirs = self.describe(distinct)
            inherited = np.full(len(rows), NONE, np.int64)
            inherited[forward >= 0] = place
            layer = _first(gather(theirs.layer, inherited), layer)
            source = _first(source, gather(theirs.source, inherited))
            call = call.with_columns(
                call[name].zip_with(_own(call, name), gather(theirs.call[name], inherited))
                for name in _INHERITED
            )
        seq = gather(meaning.seq, rows)
        return Described(
            direction,
            seq.alias("seq"),
            forward,
            layer.alias("layer"),
            self.context.step(process, thread, time).alias("step"),
            source.alias("source"),
            call,
        )


def _own(call: pl.DataFrame, name: str) -> pl.Series:
    """Where a row keeps its own value: it has shapes, or (a collective's size and peers) parameters."""
    kept: pl.Series = call["shaped"].fill_null(False)
    return kept | call["params"].is_not_null() if name == "params" else kept


def _is_node(reading: Reading) -> bool:
    return reading.role == "op" and reading.direction == "backward"


def _first(preferred: pl.Series, otherwise: pl.Series) -> pl.Series:
    column: pl.Series = preferred.zip_with(preferred.is_not_null(), otherwise)
    return column
