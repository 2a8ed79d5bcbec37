"""Numbers of what is compared: an op with its direction, layer and inputs, else a name."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops import Ops
from opscope.core.once import once
from opscope.core.tables.columns import at, compact, pairs
from opscope.core.tables.intervals import NONE, Ints

#: What identifies an op. ``named``: no op is known; ``op`` is the name of a kernel, call, copy or range.
COLUMNS: Final = ("op", "op_type", "direction", "layer", "inputs", "dtypes", "named")
_SCHEMA: Final = {
    **dict.fromkeys(COLUMNS, pl.Categorical),
    "named": pl.Boolean,
    "first": pl.Int64,
}
_NEVER: Final = np.iinfo(np.int64).max


class Keys:
    """Gives a label to each event of a trace; ``numbered`` then gives equal labels one key."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._attribution = ops.attribution
        self._parts: list[pl.DataFrame] = []
        self._many = 0

    @once
    def _shaped(self) -> NDArray[np.bool_]:
        flags: NDArray[np.bool_] = self._ops.readings["shaped"].fill_null(False).to_numpy()
        found: NDArray[np.bool_] = flags[self._attribution.meaning.reading]
        return found

    def of_kernels(self) -> Ints:
        """Return the label of each kernel: its op, else its name."""
        return self._kernels

    @once
    def _kernels(self) -> Ints:
        return self._launched("kernels", "name", self._attribution.kernels.op)

    def of_memops(self) -> Ints:
        """Return the label of each copy and set: its op, else its kind."""
        return self._memops

    @once
    def _memops(self) -> Ints:
        return self._launched("memops", "kind", self._attribution.memops.op)

    def of_calls(self) -> Ints:
        """Return the label of each runtime call: its name."""
        return self._calls

    @once
    def _calls(self) -> Ints:
        calls = self._attribution.trace["calls"]
        return self.of_texts(calls["name"], calls["start"].fill_null(_NEVER).to_numpy())

    def of_ranges(self, rows: Ints) -> Ints:
        """Return the labels of range rows: the op, else the text."""
        ranges = self._attribution.trace["ranges"]
        start = ranges["start"].gather(rows).to_numpy()
        label = np.full(len(rows), NONE, np.int64)
        is_op = self._attribution.is_op[rows]
        label[is_op] = self._of_ops(rows[is_op], start[is_op], inherit=False)
        label[~is_op] = self.of_texts(ranges["text"].gather(rows[~is_op]), start[~is_op])
        return label

    def of_texts(self, names: pl.Series, start: Ints | None = None) -> Ints:
        """Return the labels of names."""
        if not len(names):
            return np.empty(0, np.int64)
        codes, texts = compact(names.cast(pl.Categorical))
        first = np.full(len(texts), _NEVER, np.int64)
        if start is not None:
            np.minimum.at(first, codes, start)
        frame = pl.DataFrame(
            {"op": texts, "named": [True] * len(texts), "first": first},
            schema_overrides={"op": pl.String},
        )
        return self._added(frame) + codes.astype(np.int64)

    def _launched(self, table: str, name: str, op: NDArray[np.int32]) -> Ints:
        rows = self._attribution.trace[table]
        start = rows["start"].fill_null(_NEVER).to_numpy()
        has = op >= 0
        label = np.full(len(op), NONE, np.int64)
        label[has] = self._of_ops(op[has].astype(np.int64), start[has], inherit=True)
        if not has.all():
            label[~has] = self.of_texts(rows[name].gather(np.flatnonzero(~has)), start[~has])
        return label

    def _of_ops(self, rows: Ints, start: Ints, *, inherit: bool) -> Ints:
        """Return the labels of op rows; with ``inherit`` shapes are also those of the op around one."""
        if not len(rows):
            return np.empty(0, np.int64)
        ops = self._ops
        reading, theirs, direction, layer, _ = ops.outline(rows)
        numbers = [theirs, direction, layer]
        if inherit:
            around = self._attribution.climb(rows, self._shaped)
            numbers.append(at(self._attribution.meaning.reading, around))
        label: NDArray[np.int32] = pairs(reading, numbers[0])[2]
        for other in numbers[1:]:
            label = pairs(label, other)[2]
        many = int(label.max()) + 1
        first, row = np.full(many, _NEVER, np.int64), np.zeros(many, np.int64)
        np.minimum.at(first, label, start)
        row[label[::-1]] = rows[::-1]
        about = ops.identify(row, inherit=inherit)
        frame = pl.DataFrame(
            [
                about.call["op"],
                about.call["op_type"],
                about.direction.alias("direction"),
                about.layer.alias("layer"),
                about.call["inputs"],
                about.call["dtypes"],
                pl.Series("named", [False], dtype=pl.Boolean).new_from_index(0, many),
                pl.Series("first", first),
            ]
        )
        return self._added(frame) + label.astype(np.int64)

    def _added(self, frame: pl.DataFrame) -> int:
        """Keep what new labels stand for; return the first of them."""
        held = [name for name in _SCHEMA if name in frame.columns]
        frame = frame.select(pl.col(name).cast(_SCHEMA[name]) for name in held)
        lacks = (
            pl.lit(None, kind).alias(name) for name, kind in _SCHEMA.items() if name not in held
        )
        self._parts.append(frame.with_columns(lacks).select(*_SCHEMA))
        self._many += len(frame)
        return self._many - len(frame)

    def numbered(self) -> tuple[pl.DataFrame, Ints]:
        """Return the distinct keys (``key``, COLUMNS, in order of their first event) and each label's key."""
        every = pl.concat([pl.DataFrame(schema=_SCHEMA), *self._parts]).with_row_index("label")
        distinct = (
            every.group_by(COLUMNS)
            .agg(pl.col("first").min(), pl.col("label").min())
            .sort("first", "label")
            .drop("first", "label")
            .with_row_index("key")
            .with_columns(pl.col("key").cast(pl.Int64))
        )
        number = every.join(
            distinct, on=list(COLUMNS), how="left", nulls_equal=True, maintain_order="left"
        )["key"]
        return distinct.select("key", *COLUMNS), number.to_numpy().astype(np.int64)
