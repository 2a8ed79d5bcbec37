"""The table of distinct ops: equal ops are added up, in order, a part of the table at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.grouped_table import EMPTY
from opscope.core.analysis.ops.identities import Identities, identities
from opscope.core.analysis.ops.op_frame import identity_of
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.ops.totals import (
    PARTIAL,
    SAME_OP,
    SUMMED,
    costs_of_kinds,
    distinct_op_sums,
    kinds_of_ops,
)
from opscope.core.analysis.ops.windows import OUTSIDE_WINDOW
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Table
from opscope.core.question.names import layer_patterns
from opscope.core.question.record import Question, Report, Sums, View
from opscope.core.question.tables import listed, running
from opscope.core.question.words import columns
from opscope.core.tables.columns import combinations, compact, hand_back, known_sum, pieces
from opscope.core.tables.intervals import Ints

#: Rows made at a time: each takes 120 bytes, and as many again while rows are added up.
_ROWS: Final = 125_000
#: A packed key is smaller than this: it fits in 64 bits with a sign.
_WIDEST: Final = 1 << 62
_TEXTS: Final = (*SAME_OP, "reason")
_OF_CALL: Final = ("op", "op_type", "inputs", "outputs", "dtypes", "params")
#: Function that returns the values of a column of numbers for rows.
_Numbers: TypeAlias = Callable[[str, NDArray[np.uint32]], pl.Series]


def op_totals(sums: pl.DataFrame) -> pl.DataFrame:
    """Return one row per distinct op (name, direction, layer, source, shapes, params): calls, kernels,
    cpu_time, self_time, own device_time (ns), FLOPs, bytes, share, reason; the longest time first.

    Calls outside the windows in which kernels were captured have their own rows: their device time is
    null, ``reason`` says why, and their FLOPs are never divided by the time of other calls. ``share`` is
    of the summed device time. The time of nested ops is counted once: at the op that counts
    (``canonical``) around the op that launched, else at the op that launched. ``sums`` is ``op_sums``.
    """
    return pl.concat(pieces_of_sums(sums))


def pieces_of_sums(sums: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield ``op_totals`` in pieces that fit in memory, in order; at least one."""
    texts = (sums[part].select(_TEXTS) for part in pieces(len(sums), _ROWS))
    return _in_order(_columns(texts), lambda name, rows: sums[name].gather(pl.Series(rows)))


def pieces_of_ops(ops: Ops) -> Iterator[pl.DataFrame]:
    """Yield the pieces of ``pieces_of_sums`` for ``op_sums(ops)`` without making or keeping that table, which
    takes 120 bytes for each distinct op, and 80 more while it is made."""
    identities_of_ops = identities(ops, outlined=True)
    kinds = kinds_of_ops(ops, identities_of_ops)
    reasons = (kinds[part].select("reason") for part in pieces(len(kinds), _ROWS))
    coded = [*_described(ops, identities_of_ops), *_columns(reasons)]
    small = {name: kinds[name].shrink_dtype() for name in ("priced", *SUMMED, "device_time")}
    del identities_of_ops, kinds

    def numbers(name: str, rows: NDArray[np.uint32]) -> pl.Series:
        places = pl.Series(rows)
        if name in small:
            column: pl.Series = small[name].gather(places).cast(pl.Int64)
            return column
        priced, calls = (
            small[name_of_column].gather(places) for name_of_column in ("priced", "calls")
        )
        return costs_of_kinds(ops, name, priced.to_numpy(), calls.cast(pl.Int64))

    return _in_order(coded, numbers)


def _in_order(coded: list[_Coded], numbers: _Numbers) -> Iterator[pl.DataFrame]:
    """Yield the rows of ``op_totals``: those whose ``texts`` are equal are added up.

    Equal ops are found by numbers that stand for their texts, and the texts are read for one part of the
    table at a time. The rows are sorted by their texts, so that equal ones are neighbours, and then by their
    times. Grouping by numbers and sorting the result would take three times as long and half as much memory
    again.
    """
    packed = _Packed(coded)
    coded.clear()
    hand_back()  # release the memory that was used to make the rows
    by_text, begin = _by_text(packed.keys)
    times = [_add(numbers(name, by_text), begin) for name in ("device_time", "self_time")]
    total = int(times[0].sum())
    share = pl.col("device_time") / total if total else pl.lit(None, pl.Float64)
    order = _stable_order(_in_one(map(_from_most, times)))
    del times
    edges: Ints = np.append(begin, len(by_text))
    for part in pieces(len(order), _ROWS):
        first, last = edges[order[part]], edges[order[part] + 1]
        rows = by_text[_stretches(first, last)]  # equal ops are neighbours
        where = np.cumsum(last - first) - (last - first)
        texts = packed.texts(by_text[first])
        yield pl.DataFrame(
            [
                *(texts[name] for name in SAME_OP),
                *(_add(numbers(name, rows), where).alias(name) for name in (*SUMMED, *PARTIAL)),
            ]
        ).with_columns(share.alias("share"), texts["reason"])


@dataclass(slots=True)
class _Coded:
    """Columns of texts given by a number per row: the numbers, in pieces, and the text of each number."""

    codes: list[NDArray[Any]]
    texts: dict[str, pl.Series]


def _columns(parts: Iterable[pl.DataFrame]) -> list[_Coded]:
    """Return each column of texts of the rows, which come in pieces, as numbers."""
    columns: dict[str, _Column] = {}
    for part in parts:
        for text in part.get_columns():
            columns.setdefault(text.name, _Column()).add(text)
    return [column.coded(name) for name, column in columns.items()]


def _described(ops: Ops, identities: Identities) -> list[_Coded]:
    """Return the texts (``SAME_OP``) of each identity.

    The source of each text has a number (``Ops.outline``), so only one op of each number is described: a
    million distinct ops have only thousands of texts of calls and hundreds of layers.
    """
    row, outline = identities.row, identities.outline
    if outline is None or ops.of_several.any():  # then the layer depends on more than its number
        return _columns(
            pl.DataFrame(identity_of(ops, row[part])) for part in pieces(len(row), _ROWS)
        )
    reading, theirs, direction, layer, source = outline
    count, call = combinations(reading, theirs)
    return [
        _one_each(ops, row, call, count, _OF_CALL),
        _one_each(ops, row, *_numbered(direction), ("direction",)),
        _one_each(ops, row, *_numbered(layer), ("layer",)),
        # if no range around it names a source, the call itself may
        _one_each(ops, row, *_numbered(np.where(source < 0, call, count + source)), ("source",)),
    ]


def _numbered(column: NDArray[Any]) -> tuple[NDArray[np.int32], int]:
    count, number = combinations(column)
    return number, count


def _one_each(
    ops: Ops, row: Ints, code: NDArray[np.int32], count: int, names: Sequence[str]
) -> _Coded:
    """Return columns whose texts depend only on ``code``, by describing one op row of each code."""
    first = np.zeros(count, np.int64)
    first[code] = np.arange(len(code))
    described = identity_of(ops, row[first])
    return _Coded([code], {name: described[name] for name in names})


class _Packed:
    """The texts of rows packed into a few integers that sort like the texts; null is last."""

    def __init__(self, coded: list[_Coded]) -> None:
        """``coded``: the columns _TEXTS of the rows."""
        given = {name: column for coded_part in coded for name, column in coded_part.texts.items()}
        texts = {name: given[name].cast(pl.String).to_list() for name in _TEXTS}
        ordered = {name: sorted(set(texts[name]), key=_last_if_none) for name in _TEXTS}
        self._known = {name: pl.Series(ordered[name], dtype=given[name].dtype) for name in _TEXTS}
        #: The columns in each key, and the divisor that shifts a column's value to the end.
        self._held: list[dict[str, int]] = []
        size = 1
        for name, distinct in reversed(self._known.items()):
            if not self._held or size * len(distinct) > _WIDEST:
                self._held.append({})
                size = 1
            self._held[-1][name] = size
            size *= max(len(distinct), 1)
        self._held.reverse()
        ranks = {name: _ranks(texts[name], ordered[name]) for name in _TEXTS}
        row_count = sum(map(len, coded[0].codes))
        self.keys: list[Ints] = []
        for ranks_by_column in self._held:
            key: Ints = np.zeros(row_count, np.int64)
            for one in coded:
                add: Any = sum(
                    ranks[name] * ranks_by_column[name]
                    for name in one.texts
                    if name in ranks_by_column
                )
                begin = 0
                for codes in one.codes if np.any(add) else ():
                    key[begin : begin + len(codes)] += add[codes]
                    begin += len(codes)
            self.keys.append(key)

    def texts(self, rows: NDArray[np.uint32]) -> dict[str, pl.Series]:
        """Return the columns of ``rows``."""
        columns = {}
        for key, strides in zip(self.keys, self._held, strict=True):
            of_rows = key[rows]
            for name, by in strides.items():
                distinct = self._known[name]
                rank = of_rows // by % max(len(distinct), 1)
                columns[name] = distinct.gather(pl.Series(rank.astype(np.uint32))).alias(name)
        return columns


class _Column:
    """The texts of a column that comes in pieces, as numbers."""

    def __init__(self) -> None:
        self._kind: pl.DataType = pl.String()
        self._number: dict[str | None, int] = {}
        self._pieces: list[NDArray[Any]] = []

    def add(self, column: pl.Series) -> None:
        """Add a piece."""
        self._kind = column.dtype
        codes, texts = compact(column.cast(pl.Categorical))
        numbers = [self._number.setdefault(text, len(self._number)) for text in texts]
        self._pieces.append(np.array(numbers, np.min_scalar_type(len(self._number)))[codes])

    def coded(self, name: str) -> _Coded:
        """Return the column ``name``."""
        return _Coded(self._pieces, {name: pl.Series(list(self._number), dtype=self._kind)})


def _ranks(texts: list[str | None], ordered: list[str | None]) -> Ints:
    """Return the rank of each text in the sorted order of all texts."""
    rank_of_text = {text: number for number, text in enumerate(ordered)}
    return np.array([rank_of_text[text] for text in texts], np.int64)


def _last_if_none(text: str | None) -> tuple[bool, str]:
    return text is None, text or ""


def _by_text(keys: list[Ints]) -> tuple[NDArray[np.uint32], Ints]:
    """Return the order of rows by ``keys``, and where in this order the rows of each distinct key begin."""
    order = _stable_order(keys)
    differs = np.ones(len(order), bool)
    if len(order):
        differs[1:] = False
        for key in keys:
            ordered = key[order]
            differs[1:] |= ordered[1:] != ordered[:-1]
    return order.astype(np.uint32), np.flatnonzero(differs)


def _stretches(first: Ints, last: Ints) -> Ints:
    """Return the numbers ``first[0]`` to ``last[0]`` (without it), ``first[1]`` to ``last[1]`` …"""
    lengths = last - first
    if (lengths == 1).all():
        return first
    return np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(
        int(lengths.sum())
    )


def _add(column: pl.Series, begin: Ints) -> pl.Series:
    """Return the sums of a column from each place ``begin`` to the next; null if all are null."""
    if len(begin) == len(column):
        return column
    values = column.fill_null(0).to_numpy()
    sums = pl.Series(column.name, np.add.reduceat(values, begin))
    if not column.null_count():
        return sums
    counts = np.add.reduceat(column.is_not_null().to_numpy().astype(np.int64), begin)
    some: pl.Series = sums.set(pl.Series(counts == 0), None)
    return some


def _stable_order(keys: list[Ints]) -> Ints:
    """Return the order of the rows by ``keys``, the first before the second; equal rows keep theirs.

    Keys are packed into a few integers: a sort by each of eleven columns takes several times as long.
    """
    order = np.argsort(keys[0], kind="stable")
    same = np.diff(keys[0][order]) == 0
    tied = np.flatnonzero(np.append(False, same) | np.append(same, False))
    if len(keys) > 1 and len(tied):  # the other keys only order rows with equal first keys
        rows = order[tied]
        order[tied] = rows[np.lexsort([key[rows] for key in keys[::-1]])]
    return order


def _in_one(ranks: Iterable[Ints]) -> list[Ints]:
    """The ranks of each row, packed into as few integers as possible, which sort as the ranks do: by the
    first, then by the second."""
    keys: list[Ints] = []
    size = 1
    for rank in ranks:
        count = int(rank.max(initial=0)) + 1
        if not keys or size * count > _WIDEST:
            keys.append(rank)
            size = count
        else:
            keys[-1] *= count
            keys[-1] += rank
            size *= count
    return keys


def _from_most(times: pl.Series) -> Ints:
    """Return numbers that order the times from the longest to the shortest, null last."""
    top: Any = times.max()
    if top is None:
        return np.zeros(len(times), np.int64)
    rank: Ints = (top - times).fill_null(top - times.min() + 1).to_numpy(writable=True)
    return rank


def answer(profile: Answers, *, categories: bool = False) -> pl.DataFrame:
    """Distinct calls of ops, the most device time first.

    The time of nested ops is counted once. Calls outside the window in which kernels were captured are
    separate rows, with null as device time and the reason.
    """
    if profile.selected is None and not profile._is_at_hand("op_sums"):
        return pl.concat(pieces_of_ops(profile.of(op_index)))
    return op_totals(distinct_op_sums(profile))


def detail_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the ops by device time (self time if the device is the CPU), the longest first.

    Layers that differ only in a number, such as the blocks of a transformer, share one row.
    """
    frame, outside = report.frame(profile), 0
    if len(profile.trace["windows"]):
        frame, outside = _capture(frame, OUTSIDE_WINDOW)
    frame = _over_layers(frame).sort("device_time", descending=True, nulls_last=True)
    table = listed(report, running(frame), view)
    notes = list(table.footnotes)
    without = sum(profile.summary()["device_unattributed_time"].drop_nulls())
    if without and len(frame) and not profile.cpu_only:
        notes.append(
            f"shares are of the time with an op; {units.time(without)} have no op (--by op)"
        )
    if outside:
        notes.append(f"{outside:,} recorded calls are not in this table: {OUTSIDE_WINDOW}")
    return replace(table, footnotes=notes)


def _capture(frame: pl.DataFrame, reason: str) -> tuple[pl.DataFrame, int]:
    """Return the totals without the rows of this ``reason``, and how many calls these rows have."""
    outside = (frame["reason"].cast(str) == reason).fill_null(False)
    return frame.filter(~outside), int(frame["calls"].filter(outside).sum())


def _over_layers(frame: pl.DataFrame) -> pl.DataFrame:
    """Add up equal calls of layers that differ only in a number; ``h.*.mlp (24)`` is 24 layers."""
    keys = ["op", "op_type", "direction", "inputs", "outputs", "dtypes", "params"]
    sums = ["share", "device_time", "self_time", "cpu_time", "calls", "kernels", "flops", "bytes"]
    layer_count = pl.col("layer").n_unique()
    patterns = layer_patterns(frame["layer"].drop_nulls().unique().cast(pl.String).to_list())
    starred = pl.col("layer").replace_strict(patterns, default=None, return_dtype=pl.String)
    return (
        frame.lazy()
        .with_columns(pl.col("layer", "source").cast(pl.String))
        .with_columns((starred if patterns else pl.col("layer")).alias("pattern"))
        .group_by(*keys, "pattern", maintain_order=True)
        .agg(
            *map(known_sum, sums),
            pl.when(layer_count > 1)
            .then(pl.format("{} ({})", pl.col("pattern").first(), layer_count))
            .otherwise(pl.col("layer").first())
            .alias("layer"),
            pl.col("source").first(),
        )
        .collect()
    )


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "op_totals()",
            (
                "one row per distinct op (name, direction, layer, source line, inputs, outputs, "
                "parameters), by device time"
            ),
            columns(
                "op op_type direction layer source inputs outputs dtypes params calls "
                "kernels cpu_time self_time device_time matrix_flops vector_flops flops "
                "bytes share reason",
                """
                reason: text: why the device time is not known; null if it is known
                """,
            ),
        ),
    ),
    merged=Sums(
        table="op_totals",
        of=lambda profile: profile.ask("op_totals", categories=True),
        added=op_totals,
        finished=lambda sums, _: op_totals(sums),
    ),
    reports=(
        Report(
            name="detail",
            title="Top ops, one row per shape",
            empty=EMPTY,
            shown=(
                "share running device_time calls op direction inputs outputs layer flops source"
            ),
            table=detail_table,
            by="shape",
            lean=True,
            aliases=("op", "ops"),
        ),
    ),
)
