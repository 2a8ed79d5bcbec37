"""The kind of work of each kernel by its op, which decides its colour before its name does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops.ops import op_index
from opscope.core.attribution.compiled_regions import GENERATED
from opscope.core.perf import kinds
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.columns import distinct_values, gather, matching, numbers_of, pieces

from . import kept_kinds
from .lane import CATEGORY, UNTOLD

if TYPE_CHECKING:
    from opscope.core.analysis.ops.ops import Ops
    from opscope.profile import Profile

#: Returns the categories of the kernels ``[low, high)``, UNTOLD where only a kernel's name can decide.
Kinds: TypeAlias = Callable[[int, int], NDArray[np.uint8]]
_Categories: TypeAlias = NDArray[np.uint8]
_WORK: Final = ("op", "op_type", "direction", "params")
#: Families whose kind depends on the op's name or parameters.
_TOLD_BY_CALL: Final = ("fused", "fusion")
#: The family whose kind depends on parameters; an op may take them from another op.
_FUSION: Final = "fusion"
_COMMUNICATION: Final = "communication"
#: With at most this many kernels, calls and ranges, finding the ops takes 0.3 s; if their columns are kept,
#: 0.1 s.
AT_ONCE: Final = 400_000
COLUMNS_AT_ONCE: Final = 3_000_000


class Told(NamedTuple):
    """Those facts about the kernels' ops that can be found quickly. ``kinds`` is None if no kernel has an
    op, or if ``known`` is false."""

    known: bool
    kinds: Kinds | None


def own_columns(profile: Profile, table: str, wanted: list[str]) -> pl.DataFrame:
    """Return columns of a trace table; if a saved profile's table was not read yet, only these are read."""
    return profile._own_columns(table, wanted)[0]


def soon_known(profile: Profile) -> Told:
    """Return the kernels' categories by their ops if that takes no seconds: no kernel has an op, the
    columns of kernels exist, an earlier view kept the result, or the trace is short."""
    if "attribution" not in vars(profile) and not _may_have_ops(profile):
        return Told(True, None)
    kept_categories = kept_kinds.kept(profile)
    if kept_categories is not None:
        return Told(True, _part_of(kept_categories))
    if _has_columns(profile):
        count = profile._own_columns("kernels", [])[1]
        if "kernels" in profile._frames or count <= COLUMNS_AT_ONCE:
            return Told(True, _by_columns(profile))
        return Told(False, None)
    if "attribution" in vars(profile) or _is_short(profile):
        return Told(True, _by_attribution(profile))
    return Told(False, None)


def all_kinds(profile: Profile) -> _Categories | None:
    """Return the category of each kernel by its op, however long that takes; None if no kernel has an op. The
    result is kept for the next time the profile is opened."""
    if _has_columns(profile):
        by_columns = _by_columns(profile)
        categories = (
            None if by_columns is None else by_columns(0, profile._own_columns("kernels", [])[1])
        )
    else:
        categories = _of_kernels(profile)
    if categories is not None:
        kept_kinds.keep(profile, categories)
    return categories


def _has_columns(profile: Profile) -> bool:
    return "kernels" in profile._frames or "kernels" in profile._stored


def _is_short(profile: Profile) -> bool:
    tables = ("kernels", "calls", "ranges")
    return sum(profile._own_columns(name, [])[1] for name in tables) <= AT_ONCE


def _may_have_ops(profile: Profile) -> bool:
    """Whether any kernel may have an op: because a call launched it, or because it names its op itself."""
    if profile._own_columns("calls", [])[1]:
        return True
    named = own_columns(profile, "kernels", ["op_key"])["op_key"]
    return named.null_count() < len(named)


def _part_of(categories: _Categories) -> Kinds:
    return lambda low, high: categories[low:high]


def _by_attribution(profile: Profile) -> Kinds | None:
    """Return the categories from the ops that launched the kernels. This does not make the table of kernels,
    which would take 5 s and 1 GB more for ten million kernels without calls."""
    categories = _of_kernels(profile)
    return None if categories is None else _part_of(categories)


def _of_kernels(profile: Profile) -> _Categories | None:
    """Return the category of each kernel by the op that launched it; None if no kernel has an op. Texts of
    ranges are evaluated once per distinct text. From the ranges around a range, only the direction can decide
    a category, and only two directions do. So an op's forward op need not be found."""
    ops = profile.of(op_index)
    attribution = ops.attribution
    reading = attribution.meaning.reading
    launched = attribution.kernels.op
    # the last element is for kernels without an op, whose row is -1
    used = np.zeros(len(reading) + 1, bool)
    used[launched] = True
    used[-1] = False
    if not used.any():
        return None
    read = ops.readings
    of_reading = _categories(read.select("op", "op_type", "params"))
    of_row = np.full(len(reading) + 1, UNTOLD, np.uint8)
    of_reading.take(reading, out=of_row[:-1])
    _tell_fusions(ops, used, of_row)
    directed = _direct(ops, used)
    if directed is not None:
        talks = (read["op_type"].cast(pl.String) == _COMMUNICATION).fill_null(False).to_numpy()
        np.copyto(of_row[:-1], directed[:-1], where=(directed[:-1] != UNTOLD) & ~talks[reading])
    categories: _Categories = of_row.take(launched)
    name = attribution.trace["kernels"]["name"]
    generated = np.flatnonzero(matching(name, GENERATED) & (launched >= 0))
    if not len(generated):
        return categories
    # a compiler's kernel has a more exact name than the region that launched it
    op = launched[generated]
    column = name.gather(generated)
    named = column.cast(pl.String) != gather(read["op"], reading[op]).cast(pl.String)
    other = named.fill_null(False).to_numpy()
    if other.any():
        column = column.filter(other)
        family = pl.Series("op_type", ["fused"]).new_from_index(0, len(column))
        kind = _categories(pl.DataFrame([column.alias("op"), family]))
        if directed is not None:
            around = directed[op[other]]
            np.copyto(kind, around, where=around != UNTOLD)
        categories[generated[other]] = kind
    return categories


def _tell_fusions(ops: Ops, used: NDArray[np.bool_], of_row: _Categories) -> None:
    """Write the categories of the ``used`` fusions. A fusion without shapes may take its parameters from the
    op around it, or from its forward op."""
    fusion = (ops.readings["op_type"].cast(pl.String) == _FUSION).fill_null(False).to_numpy()
    if not fusion.any():
        return
    rows = np.flatnonzero(used[:-1] & fusion[ops.attribution.meaning.reading])
    if len(rows):
        call = ops.identify(rows.astype(np.int64), inherit=True).call
        of_row[rows] = _categories(call.select("op", "op_type", "params"))


def _direct(ops: Ops, used: NDArray[np.bool_]) -> _Categories | None:
    """Return per range row the category that its direction decides, else UNTOLD; None if no direction in
    the trace decides one. Only ``used`` rows are evaluated. A direction is the op's own, else that of the
    nearest op around it; all other ways to find a direction (``Ops``) give forward or backward, which
    decide no category."""
    attribution = ops.attribution
    readings, reading = attribution.meaning.readings, attribution.meaning.reading
    has_direction = np.array([reading.direction in DIRECTIONS for reading in readings], bool)
    of_reading = np.array(
        [_category(kinds.of_op(None, None, reading.direction, None)) for reading in readings],
        np.uint8,
    )
    of_reading[~has_direction] = UNTOLD
    if (of_reading == UNTOLD).all():
        return None
    categories = np.full(len(reading) + 1, UNTOLD, np.uint8)
    of_reading.take(reading, out=categories[:-1])
    has_own = has_direction[reading]
    for part in pieces(len(reading)):
        rows = part.start + np.flatnonzero(used[:-1][part] & ~has_own[part])
        around = attribution.climb(rows, has_own)
        rows, around = rows[around >= 0], around[around >= 0]
        categories[rows] = of_reading[reading[around]]
    return categories


def _categories(work: pl.DataFrame) -> _Categories:
    """Return the category of each op from its columns in ``work`` (some of ``_WORK``), each distinct row
    once."""
    columns = work.columns
    nothing = [
        pl.lit(None, pl.String).alias(column_name)
        for column_name in _WORK
        if column_name not in columns
    ]
    work = work.select(pl.col(columns).cast(pl.String), *nothing).select(_WORK)
    distinct = work.unique()
    kind = [_category(kinds.of_op(*row)) for row in distinct.rows()]
    joined = work.join(
        distinct.with_columns(pl.Series("kind", kind, pl.UInt8)),
        on=_WORK,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return np.array(joined["kind"], np.uint8)


def _by_columns(profile: Profile) -> Kinds | None:
    """Return the categories from the table of kernels, reading only the columns that decide them."""
    frame = profile._columns_of("kernels", ("op_type", "direction"))
    if frame["op_type"].null_count() == len(frame):
        return None
    columns = [frame[name].cast(pl.Categorical) for name in ("op_type", "direction")]
    distinct = [distinct_values(column) for column in columns]
    family, direction = (values.cast(pl.String).to_list() for values in distinct)
    numbers = [numbers_of(values) for values in distinct]
    table = np.array(
        [
            _category(kinds.of_op(None, family_name, other, None))
            for family_name in family
            for other in direction
        ],
        np.uint8,
    )

    def of_rows(low: int, high: int) -> _Categories:
        index = numbers[0](columns[0][low:high]) * np.int32(len(direction))
        index += numbers[1](columns[1][low:high])
        categories: _Categories = table.take(index)
        return categories

    special = columns[0].is_in(
        [family_name for family_name in family if family_name in _TOLD_BY_CALL]
    )
    rows = np.flatnonzero(special.fill_null(False).to_numpy())
    if not len(rows):
        return of_rows
    by_call = _categories(profile._columns_of("kernels", _WORK).select(_WORK)[rows])

    def with_calls(low: int, high: int) -> _Categories:
        categories = of_rows(low, high)
        first, after = np.searchsorted(rows, (low, high)).tolist()
        categories[rows[first:after] - low] = by_call[first:after]
        return categories

    return with_calls


def _category(kind: str | None) -> int:
    return UNTOLD if kind is None else CATEGORY[kind]
