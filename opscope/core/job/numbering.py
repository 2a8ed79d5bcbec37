"""Number the collectives of a group, so that equal numbers on several ranks mean the same collective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.job.exchanges import GROUP, POINT_TO_POINT
from opscope.core.tables.gathered import one_piece
from opscope.core.tables.intervals import Ints
from opscope.core.tables.narrow import Pieces, whole

#: The recordings of two ranks may begin up to this many collectives apart.
_MOST_APART: Final = 256
#: A shift is taken only if it makes the spread of the ends this much smaller.
_BETTER: Final = 0.5
#: Shares of a rank's ends: the share that lies near the median, and the share that decides in ``_Others``.
_NEAR: Final = 0.9
_WINDOW: Final = 0.15
_FewShifts: TypeAlias = NDArray[np.int64]


def matched(table: pl.DataFrame, same_clock: bool) -> pl.DataFrame:
    """Return ``table`` with ``number``: rows with equal group, members, size and number are the same
    collective.

    The numbers come from ``comms`` if every record of a group has it, else from ``seq`` if every record has
    it; otherwise the collectives of a group are counted on each process. If the processes' recordings do not
    begin with the same collective, the counts are shifted so that all kinds and sizes agree and the ends are
    close together (``same_clock``) or at the most constant distance. No shift is made if it would leave more
    collectives without a partner than there are mismatches without it. Point-to-point transfers and
    collectives of an unknown group have no number. Collectives of a group without ``comms`` that has more
    processes than ranks have none either: several groups share its name and cannot be separated.
    """
    return whole(matched_in(one_piece(table), same_clock))


def matched_in(pieces: Pieces, same_clock: bool) -> Pieces:
    """Return ``matched`` for a table in pieces; all rows of a process must be in one piece."""

    def made() -> Iterator[pl.DataFrame]:
        for piece, numbered in zip(pieces(), numbers(pieces, same_clock), strict=True):
            yield piece.with_columns(numbered["number"])

    return made


def numbers(pieces: Pieces, same_clock: bool) -> Iterator[pl.DataFrame]:
    """Yield, for each piece of ``pieces``, ``number`` of its rows as in ``matched``, and ``whole``, the
    number of the group."""
    groups, comms = _groups(pieces)
    counted = groups.filter(_COUNTED)["whole"]
    shifted = _Shifts(pieces, groups, comms, same_clock) if len(counted) else None
    for piece in pieces():
        numbered = _first_numbers(piece, groups, comms)
        number = (
            numbered["number"]
            if shifted is None
            else numbered["number"] + shifted.of(piece, numbered)
        )
        yield numbered.select("whole", number.alias("number"))


#: Method of groups whose collectives are counted, because the recording has no numbers for them.
_COUNTED: Final = pl.col("of_one") & ~pl.col("has_comms") & ~pl.col("has_seq")


def _groups(pieces: Pieces) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return for each group its number ``whole``, whether all its records have ``comms`` and ``seq``, and
    whether it is a single known group (``of_one``); also the numbers by ``comms``, if any group uses them."""
    group = list(GROUP)
    parts = [
        piece.group_by(group).agg(
            pl.col("comms").is_not_null().all().alias("has_comms"),
            pl.col("seq").is_not_null().all().alias("has_seq"),
            pl.col("process").n_unique().cast(pl.Int64).alias("there"),
        )
        for piece in pieces()
    ]
    alone = (pl.col("there") <= pl.col("size")).fill_null(True)
    groups = (
        pl.concat(parts)
        .group_by(group)
        .agg(pl.col("has_comms", "has_seq").all(), pl.col("there").sum())
        .with_columns(
            (pl.col("group").is_not_null() & (pl.col("has_comms") | alone)).alias("of_one")
        )
        .drop("there")
        .with_row_index("whole")
    )
    if groups.filter("of_one", "has_comms").is_empty():
        return groups, None
    texts = pl.concat(piece.select("comms").unique() for piece in pieces())
    texts = texts.drop_nulls().unique().sort("comms").with_row_index("place", 1)
    return groups, texts.with_columns(pl.col("place").cast(pl.Int64))


def _first_numbers(
    piece: pl.DataFrame, groups: pl.DataFrame, comms: pl.DataFrame | None
) -> pl.DataFrame:
    """Return for each row ``whole``, ``number`` before any shift, and whether the number was ``counted``."""
    pair = pl.col("kind").cast(pl.String).is_in(POINT_TO_POINT).fill_null(False)
    numbered = piece.select("process", *GROUP, "comms", "seq", (~pair).alias("known")).join(
        groups, on=list(GROUP), how="left", nulls_equal=True, maintain_order="left"
    )
    numbered = numbered.with_columns(pl.col("known") & pl.col("of_one"))
    index = pl.lit(None, pl.Int64)
    if comms is not None:
        numbered = numbered.join(comms, on="comms", how="left", maintain_order="left")
        index = pl.col("place")
    is_numbered = pl.col("known")
    return numbered.select(
        "process",
        "whole",
        pl.when(is_numbered & pl.col("has_comms"))
        .then(index)
        .when(is_numbered & pl.col("has_seq"))
        .then(pl.col("seq"))
        .when(is_numbered)
        .then(pl.int_range(pl.len(), dtype=pl.Int64).over("process", "whole", is_numbered))
        .alias("number"),
        (is_numbered & _COUNTED).alias("counted"),
    )


class _Shifts:
    """The amounts to add to the counts of each process, as ``shifts`` returns them, for a table in pieces."""

    def __init__(
        self, pieces: Pieces, groups: pl.DataFrame, comms: pl.DataFrame | None, same_clock: bool
    ) -> None:
        counts, tokens = [], []
        for piece in pieces():
            numbered = _first_numbers(piece, groups, comms)
            counts.append(numbered.filter("counted").group_by("whole", "process").len())
            tokens.append(piece.filter(numbered["counted"]).select("kind", "bytes").unique())
        self._tokens = pl.concat(tokens).unique().with_row_index("token")
        most = ("whole", "len", "process")
        first = (
            pl.concat(counts)
            .filter(pl.len().over("whole") > 1)
            .sort(most, descending=[False, True, False], nulls_last=False)
            .unique("whole", keep="first", maintain_order=True)
        )
        groups_numbered, process = _integers(first["whole"]), _integers(first["process"])
        self._first = dict(zip(groups_numbered.tolist(), process.tolist(), strict=True))
        self._references: dict[int, _Others] = {}
        for piece in pieces() if self._first else ():
            numbered = _first_numbers(piece, groups, comms)
            for collective, side, rows, token, end in self._sides(piece, numbered):
                if self._first.get(collective) == side:
                    self._references[collective] = _Others(token[rows], end[rows], same_clock)

    def _sides(
        self, piece: pl.DataFrame, numbered: pl.DataFrame
    ) -> Iterator[tuple[int, int, Ints, Ints, NDArray[np.float64]]]:
        """Yield each group and process of the piece: its rows among the counted rows, and their tokens and
        ends."""
        rows = piece.select("kind", "bytes", "end").filter(numbered["counted"])
        token = rows.join(
            self._tokens, on=["kind", "bytes"], how="left", nulls_equal=True, maintain_order="left"
        )["token"]
        counted = numbered.filter("counted")
        of = _by_side(_integers(counted["whole"]), _integers(counted["process"]))
        tokens, ends = _integers(token), _ends(rows["end"])
        for collective, side, mine in of:
            yield collective, side, mine, tokens, ends

    def of(self, piece: pl.DataFrame, numbered: pl.DataFrame) -> pl.Series:
        """Return the amount to add to the number of each row."""
        counted = np.flatnonzero(numbered["counted"].to_numpy())
        by = np.zeros(len(piece), np.int64)
        for collective, side, rows, token, end in (
            self._sides(piece, numbered) if self._references else ()
        ):
            reference = self._references.get(collective)
            if reference is not None and self._first[collective] != side:
                by[counted[rows]] = reference.shift(token[rows], end[rows])
        return pl.Series("number", by)


def _integers(column: pl.Series) -> Ints:
    """The numbers of a column; null becomes the lowest integer."""
    integers: Ints = column.cast(pl.Int64).fill_null(np.iinfo(np.int64).min).to_numpy()
    return integers


def _ends(column: pl.Series) -> NDArray[np.float64]:
    floats: NDArray[np.float64] = column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return floats


def _by_side(wholes: Ints, sides: Ints) -> Iterator[tuple[int, int, Ints]]:
    """Yield each group (``whole``) and side with its rows, in order."""
    order = np.lexsort((sides, wholes))
    new = (np.diff(wholes[order]) != 0) | (np.diff(sides[order]) != 0)
    for rows in np.split(order, np.flatnonzero(new) + 1):
        if len(rows):
            yield int(wholes[rows[0]]), int(sides[rows[0]]), rows


def shifts(
    column: pl.Series, side: pl.Series, token: pl.Series, end: pl.Series, same_clock: bool
) -> Ints:
    """Return what to add to each row's count, so that rows with equal ``column`` and count are the same
    collective.

    ``side``: who counted; the rows of each side are in the order of its counts. The side with most rows is
    not moved. ``token``: a value that all sides of one collective must share. ``end``: in ns, null if not
    known.
    """
    wholes, sides, tokens = _integers(column), _integers(side), _integers(token)
    ends = _ends(end)
    shifts_of_rows = np.zeros(len(wholes), np.int64)
    parts: dict[int, list[Ints]] = {}
    for collective, _, rows in _by_side(wholes, sides):
        parts.setdefault(collective, []).append(rows)
    for group in parts.values():
        first, *others = sorted(group, key=len, reverse=True)
        if others:
            reference = _Others(tokens[first], ends[first], same_clock)
            for rows in others:
                shifts_of_rows[rows] = reference.shift(tokens[rows], ends[rows])
    return shifts_of_rows


class _Others:
    """Find the shifts that match the counts of other ranks to those of the rank ``first``.

    A rank's distance from ``first`` under a shift is its distance without a shift less the time between two
    collectives of ``first``. So if its distances without a shift are even, and the times between collectives
    are uneven, no shift can be better, and no shift need be tried. This is exact, and reduces the work to one
    median per rank instead of 513.
    """

    def __init__(self, tokens: Ints, end: NDArray[np.float64], same_clock: bool) -> None:
        self._tokens, self._end, self._same_clock = tokens, end, same_clock
        self._width: NDArray[np.float64] | None = None
        self._window: Ints | None = None
        self._all = np.array(sorted(range(-_MOST_APART, _MOST_APART + 1), key=abs), np.int64)

    def shift(self, tokens: Ints, end: NDArray[np.float64]) -> int:
        """Return the amount to add to the numbers of a rank to match those of ``first``; 0 if no shift
        fits better."""
        tried = self._tried(tokens, end)
        shift, counts, spread, fits = self._compare(tokens, end, tried)
        best: tuple[float, int] | None = None
        for shift_tried, count, width, equal in zip(
            shift.tolist(), counts.tolist(), spread.tolist(), fits.tolist(), strict=True
        ):
            if not equal:
                continue
            if not count:
                return int(shift_tried)
            # periodic training looks the same one step later: only a clearly better shift is taken
            if best is None or width < _BETTER * best[0]:
                best = (width, shift_tried)
        if best is None:
            return 0
        # mismatched collectives are likelier than equally many collectives that one rank did not record
        both = min(len(self._tokens), len(tokens))
        unlike = int((tokens[:both] != self._tokens[:both]).sum())
        return 0 if 0 < unlike < abs(best[1]) else int(best[1])

    def _tried(self, tokens: Ints, end: NDArray[np.float64]) -> _FewShifts:
        """Return the shifts to try, nearest first: all that may be clearly better than none."""
        count = min(len(self._tokens), len(tokens))
        least = max(1, count // 2)
        low = np.maximum(0, self._all)
        high = np.minimum(len(self._tokens), len(tokens) + self._all)
        possible: _FewShifts = self._all[high - low >= least]
        apart = end[:count] - self._end[:count]
        if (
            not np.array_equal(tokens[:count], self._tokens[:count])
            or not np.isfinite(self._end).all()
            or not np.isfinite(end).all()
        ):
            return possible
        middle = float(np.median(apart))
        off = np.sort(np.abs(apart - middle))
        near = float(off[int(_NEAR * (count - 1))])
        spread = float(np.median(np.abs(apart if self._same_clock else off)))
        width, window = self._widths()
        low, high = np.maximum(0, possible), np.minimum(len(self._tokens), len(tokens) + possible)
        # entries that are near each other under this shift: all but the far ones and the ones without a
        # partner
        far = count - int(_NEAR * (count - 1)) - 1 + (len(tokens) - count)
        index = possible + _MOST_APART
        enough = (high - low + 1) // 2 - far >= window[index]
        worse = enough & (width[index] > 2 * (_BETTER * spread + near) * (1 + 1e-9) + 1)
        kept: _FewShifts = possible[~worse | (possible == 0)]
        return kept

    def _widths(self) -> tuple[NDArray[np.float64], Ints]:
        """Return, for each shift from the lowest up, the smallest spread of ``window`` of the times
        between collectives that far apart; and ``window``."""
        if self._width is None or self._window is None:
            self._width = np.zeros(2 * _MOST_APART + 1)
            self._window = np.full(2 * _MOST_APART + 1, 1 << 60)
            for shift in range(-_MOST_APART, _MOST_APART + 1):
                gap = abs(shift)
                if not shift or gap >= len(self._end):
                    continue
                between = np.sort(self._end[gap:] - self._end[: len(self._end) - gap])
                window = max(2, int(_WINDOW * len(between)))
                if window <= len(between):
                    ranges = between[window - 1 :] - between[: len(between) - window + 1]
                    self._width[shift + _MOST_APART] = ranges.min()
                    self._window[shift + _MOST_APART] = window
        return self._width, self._window

    def _compare(
        self, tokens: Ints, end: NDArray[np.float64], tried: _FewShifts
    ) -> tuple[_FewShifts, Ints, NDArray[np.float64], NDArray[np.bool_]]:
        """Return the shifts with the number of ends known on both sides, the spread of these ends, and
        whether all tokens are equal."""
        index = np.arange(len(self._tokens)) - tried[:, None]
        there = (index >= 0) & (index < len(tokens))
        index = np.where(there, index, 0)
        fits = ((tokens[index] == self._tokens) | ~there).all(1)
        tried, index, there, fits = tried[fits], index[fits], there[fits], fits[fits]
        if not len(tried):
            return tried, np.zeros(0, np.int64), np.zeros(0), fits
        apart = np.where(there, end[index] - self._end, np.nan)
        counts = np.isfinite(apart).sum(1)
        middle = 0.0 if self._same_clock else _medians(apart, counts)[:, None]
        return tried, counts, _medians(np.abs(apart - middle), counts), fits


def _medians(values: NDArray[np.float64], ints: Ints) -> NDArray[np.float64]:
    """Return the median of the first ``ints`` finite values of each row; NaN if there are none."""
    ordered = np.sort(values, axis=1)  # NaN last
    rows = np.arange(len(values))
    low, high = np.maximum(ints - 1, 0) // 2, np.minimum(ints // 2, values.shape[1] - 1)
    middle: NDArray[np.float64] = (ordered[rows, low] + ordered[rows, high]) / 2
    return middle
