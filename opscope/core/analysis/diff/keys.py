"""Keys of the compared things: an op with its direction, layer and inputs, else a name."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import perf
from opscope.core.analysis.ops.ops import Ops
from opscope.core.once import once
from opscope.core.schema import OpCall
from opscope.core.tables.columns import ahead, at, combinations, compact
from opscope.core.tables.intervals import NONE, Ints

#: The columns that identify an op. ``named``: the op is unknown, and ``op`` is the name of a kernel, call,
#: copy or range.
COLUMNS: Final = ("op", "op_type", "direction", "layer", "inputs", "dtypes", "named")
_SCHEMA: Final = {
    **dict.fromkeys(COLUMNS, pl.Categorical),
    "named": pl.Boolean,
    "first": pl.Int64,
    "flops": pl.Int64,
    "bytes": pl.Int64,
}
#: FLOPs and bytes of one call of a key; null if unknown.
COSTS: Final = ("flops", "bytes")
_NO_CALL: Final = OpCall("")
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
        """Return the labels of range rows: the op, else the data loader's name, else the text."""
        ranges = self._attribution.trace["ranges"]
        start = ranges["start"].gather(rows).to_numpy()
        label = np.full(len(rows), NONE, np.int64)
        is_op = self._attribution.is_op[rows]
        label[is_op] = self._of_ops(rows[is_op], start[is_op], inherit=False)
        names = ranges["text"].gather(rows[~is_op])
        called = self._loaders.gather(self._attribution.meaning.reading[rows[~is_op]])
        names = names.cast(pl.String).zip_with(called.is_null(), called)
        label[~is_op] = self.of_texts(names, start[~is_op])
        return label

    @once
    def _loaders(self) -> pl.Series:
        """Return per reading the name of the data loader that it waits for; null for all others.

        The text of a loader also has its line and workers, which would make one loader on two lines two
        loaders.
        """
        readings = self._attribution.meaning.readings
        names = [
            reading.call.name if reading.role == "loader" and reading.call is not None else None
            for reading in readings
        ]
        return pl.Series(names, dtype=pl.String)

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
        """Return the labels of op rows; with ``inherit``, an op without shapes takes the shapes of the op
        around it."""
        if not len(rows):
            return np.empty(0, np.int64)
        ops = self._ops
        parts = [
            part_numbers
            for _, part_numbers in ahead(lambda part: self._numbers(rows[part], inherit), len(rows))
        ]
        count, label = combinations(
            *(np.concatenate(columns) for columns in zip(*parts, strict=True))
        )
        del parts
        first, row = np.full(count, _NEVER, np.int64), np.zeros(count, np.int64)
        np.minimum.at(first, label, start)
        row[label[::-1]] = rows[::-1]
        about = ops.identify(row, inherit=inherit)
        frame = pl.DataFrame(
            [
                *self._costs(row),
                about.call["op"],
                about.call["op_type"],
                about.direction.alias("direction"),
                about.layer.alias("layer"),
                about.call["inputs"],
                about.call["dtypes"],
                pl.Series("named", [False], dtype=pl.Boolean).new_from_index(0, count),
                pl.Series("first", first),
            ]
        )
        return self._added(frame) + label.astype(np.int64)

    def _costs(self, rows: Ints) -> list[pl.Series]:
        """Return the FLOPs and bytes of one call of each op row, from its own text."""
        meaning = self._attribution.meaning
        distinct, index = np.unique(meaning.reading[rows], return_inverse=True)
        calls = [meaning.readings[number].call or _NO_CALL for number in distinct.tolist()]
        costs = perf.columns(calls).select(
            (pl.col("matrix_flops") + pl.col("vector_flops")).alias("flops"),
            (pl.col("bytes_read") + pl.col("bytes_written")).alias("bytes"),
        )
        return costs[index].get_columns()

    def _numbers(self, rows: Ints, inherit: bool) -> list[NDArray[Any]]:
        """Return numbers that are equal for op rows with equal labels."""
        numbers = self._ops.outline_without_source(rows)
        if inherit:
            around = self._attribution.climb(rows, self._shaped)
            numbers.append(at(self._attribution.meaning.reading, around))
        return numbers

    def _added(self, frame: pl.DataFrame) -> int:
        """Store the meaning of new labels; return the first of them."""
        names = [name for name in _SCHEMA if name in frame.columns]
        frame = frame.select(pl.col(name).cast(_SCHEMA[name]) for name in names)
        lacks = (
            pl.lit(None, kind).alias(name) for name, kind in _SCHEMA.items() if name not in names
        )
        self._parts.append(frame.with_columns(lacks).select(*_SCHEMA))
        self._many += len(frame)
        return self._many - len(frame)

    def labels(self) -> pl.DataFrame:
        """Return the meaning of each label, one row per label."""
        return pl.concat([pl.DataFrame(schema=_SCHEMA), *self._parts])


def numbered(labels: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
    """Return the distinct keys (``key``, COLUMNS, ordered by their first event) and the key of each label."""
    if labels.is_empty():
        return labels.select(pl.lit(0, pl.Int64).alias("key"), *COLUMNS, *COSTS), np.empty(
            0, np.int64
        )
    count, number = combinations(*(codes(labels[name]) for name in COLUMNS))
    first = np.full(count, _NEVER, np.int64)
    np.minimum.at(first, number, labels["first"].to_numpy())
    label = np.empty(count, np.int64)
    label[number[::-1]] = np.arange(len(labels) - 1, -1, -1)  # of equal rows the first stays
    by_label = np.argsort(label)
    order = by_label[np.argsort(first[by_label], kind="stable")]
    ranks = np.empty(count, np.int64)
    ranks[order] = np.arange(count)
    distinct = labels.select(*COLUMNS, *COSTS)[label[order]]
    key = pl.Series("key", np.arange(count, dtype=np.int64))
    return distinct.insert_column(0, key), ranks[number]


def codes(column: pl.Series) -> NDArray[np.int64]:
    """Return numbers of a Categorical or Boolean column that are equal where the values are; -1: null."""
    if column.dtype == pl.Categorical:
        column = column.to_physical()
    numbers: NDArray[np.int64] = column.cast(pl.Int64).fill_null(NONE).to_numpy()
    return numbers
