"""The ops of a trace: one row per op instance, and what encloses and follows each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.calls import readings_table
from opscope.core.analysis.costs import Costs, costs
from opscope.core.attribute import Attribution
from opscope.core.columns import at, gather, spread
from opscope.core.context import Context
from opscope.core.dialects import Reading
from opscope.core.intervals import NONE, Ints, depth
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
        codes = at(self._own_direction, at(reading, found), _FORWARD)
        return np.where(rows >= 0, codes, NONE).astype(np.int8)

    @cached_property
    def _forward_keys(self) -> pl.DataFrame:
        """(process, fwd_thread, seq) → the latest-starting forward op that has it."""
        meaning = self.attribution.meaning
        known = (meaning.seq >= 0).fill_null(False).to_numpy()
        rows = np.flatnonzero(self.attribution.is_op & known)
        rows = rows[self.direction(rows) != _BACKWARD]
        return (
            self._keys(rows)
            .with_columns(self._start.gather(rows).alias("start"), pl.Series("forward", rows))
            .sort("start", maintain_order=True)
            .group_by("process", "fwd_thread", "seq")
            .agg(pl.col("forward").last())
        )

    def _keys(self, rows: Ints) -> pl.DataFrame:
        meaning = self.attribution.meaning
        return pl.DataFrame(
            {
                "process": self._process.gather(rows),
                "fwd_thread": meaning.fwd_thread.gather(rows).fill_null(NONE),
                "seq": meaning.seq.gather(rows),
            }
        )

    def forward_of(self, rows: Ints) -> Ints:
        """For backward op rows the op row that each differentiates, -1 where there is none.

        The key is that of the op itself or of the autograd node around it, whichever is nearer.
        """
        meaning = self.attribution.meaning
        found = np.full(len(rows), NONE, np.int64)
        backward = np.flatnonzero(self.direction(rows) == _BACKWARD)
        is_node = np.array([_is_node(r) for r in meaning.readings], bool)[meaning.reading]
        told = (meaning.fwd_thread > 0).fill_null(False).to_numpy()
        keyed = (meaning.seq >= 0).fill_null(False).to_numpy() & (told | is_node)
        node = self.attribution.climb(rows[backward], keyed)
        backward, node = backward[node >= 0], node[node >= 0]
        if len(node) and len(self._forward_keys):
            keys = self._keys(node).join(
                self._forward_keys,
                on=["process", "fwd_thread", "seq"],
                how="left",
                maintain_order="left",
            )
            found[backward] = keys["forward"].fill_null(NONE).to_numpy()
        return found

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

        A backward op has the layer, the source and, where its own text gives none, the shapes of
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
        call = pl.DataFrame([gather(self.readings[name], code) for name in self.readings.columns])
        if inherit:
            around, shaped = self.shapes_around(rows), call["shaped"].fill_null(False)
            call = call.with_columns(
                *(call[name].zip_with(shaped, around[name]) for name in _INHERITED),
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
            shaped = call["shaped"].fill_null(False)
            call = call.with_columns(
                call[name].zip_with(shaped, gather(theirs.call[name], inherited))
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


def _is_node(reading: Reading) -> bool:
    return reading.role == "op" and reading.direction == "backward"


def _first(preferred: pl.Series, otherwise: pl.Series) -> pl.Series:
    column: pl.Series = preferred.zip_with(preferred.is_not_null(), otherwise)
    return column


def self_time(start: Ints, end: Ints, parent: Ints) -> Ints:
    """The time (ns) of each node of a forest that none of its children covers."""
    own: Ints = end - start
    inner = parent >= 0
    covered = np.bincount(parent[inner], weights=own[inner], minlength=len(own))
    alone: Ints = np.maximum(own - covered.astype(np.int64), 0)
    return alone


def ops_frame(ops: Ops) -> pl.DataFrame:
    """One row per op instance; times in ns, bytes, FLOP.

    ``device_time`` is the summed duration of the kernels and copies that the op and the ops inside
    it launched, ``own_device_time`` without those inside; on a CPU-only profile both are the op's
    self time. ``kernels`` and ``own_kernels`` count likewise. FLOPs and bytes stand at the op that
    counts (``canonical``), so that they may be summed.
    """
    attribution, rows = ops.attribution, ops.rows
    trace = attribution.trace
    ranges = trace["ranges"]
    place = np.full(len(ranges) + 1, NONE, np.int64)
    place[rows] = np.arange(len(rows))
    parent = place[attribution.parent[rows]]
    start, end = (ranges[name].gather(rows).to_numpy() for name in ("start", "end"))
    described = ops.describe(rows)
    own = self_time(start, end, parent)
    direct = _launched(attribution, place, len(rows))
    inside = [_with_descendants(values, parent) for values in direct]
    ids = ranges["id"].fill_null(NONE)
    leaf = np.ones(len(rows), bool)
    leaf[parent[parent >= 0]] = False
    canonical = ops.costs.canonical[rows]
    counted = np.where(canonical | ops.costs.free[rows], rows, NONE)
    priced = at(ops.costs.place, counted)
    has_device = trace.has("kernels") or trace.has("memops")
    return pl.DataFrame(
        {
            "op_id": ids.gather(rows),
            "parent_id": _ids(ids, rows, parent),
            "depth": depth(parent),
            "leaf": leaf,
            "canonical": canonical,
            "process": ranges["process"].gather(rows),
            "thread": ranges["thread"].gather(rows),
            "device": described.call["device"],
            "start": start,
            "end": end,
            "cpu_time": end - start,
            "self_time": own,
            "device_time": inside[0] if has_device else _cpu_device_time(trace.origin, own),
            "op": described.call["op"],
            "op_type": described.call["op_type"],
            "direction": described.direction,
            "seq": described.seq,
            "forward_op_id": gather(ids, described.forward),
            "layer": described.layer,
            "step": described.step,
            "source": described.source,
            **{name: described.call[name] for name in ("inputs", "outputs", "dtypes", "params")},
            **{
                name: gather(ops.costs.catalogue[name], priced)
                for name in ("matrix_flops", "vector_flops", "flops", "bytes")
            },
            "kernels": inside[1],
            "own_device_time": direct[0] if has_device else _cpu_device_time(trace.origin, own),
            "own_kernels": direct[1],
        }
    )


def _ids(ids: pl.Series, rows: Ints, parent: Ints) -> pl.Series:
    return gather(ids, at(rows, parent))


def _cpu_device_time(origin: dict[str, object], own: Ints) -> pl.Series:
    """Self time where the program ran on the CPU; null where a GPU's kernels were not captured."""
    column: pl.Series = pl.Series("device_time", own)
    if origin.get("gpu"):
        column = pl.Series("device_time", [None], dtype=pl.Int64).new_from_index(0, len(own))
    return column


def _launched(attribution: Attribution, place: Ints, many: int) -> tuple[Ints, Ints]:
    """Per op: ns of the kernels and copies that it launched itself, and how many kernels."""
    time, count = np.zeros(many, np.int64), np.zeros(many, np.int64)
    for name, launched in (("kernels", attribution.kernels), ("memops", attribution.memops)):
        table = attribution.trace[name]
        has = launched.op >= 0
        at = place[launched.op[has]]
        duration = (table["end"] - table["start"]).fill_null(0).to_numpy()[has]
        # sums of ns below 2**53 are exact in the float64 that bincount adds in
        time += np.bincount(at, duration, many).astype(np.int64)
        if name == "kernels":
            count += np.bincount(at, minlength=many)
    return time, count


def _with_descendants(values: Ints, parent: Ints) -> Ints:
    """Each node's value plus those of all nodes inside it."""
    total: Ints = values.copy()
    at, moving = parent, values
    while True:
        inner = (at >= 0) & (moving != 0)
        if not inner.any():
            return total
        at, moving = at[inner], moving[inner]
        total += np.bincount(at, moving, len(values)).astype(np.int64)
        at = parent[at]
