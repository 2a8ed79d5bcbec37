"""The kind of work of each kernel by its op, which its colour shows; its name decides where no op does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.compiled_regions import GENERATED
from opscope.core.perf import kinds
from opscope.core.tables.columns import distinct_values, gather, matching, numbers_of

from .lane import CATEGORY

if TYPE_CHECKING:
    from opscope.profile import Profile

#: The category of a kernel whose op does not tell it.
UNTOLD: Final = 255
#: Gives the categories of the kernels ``[low, high)``, UNTOLD where only a kernel's name may show one.
Kinds: TypeAlias = Callable[[int, int], NDArray[np.uint8]]
_WORK: Final = ("op", "op_type", "direction", "params")
#: Families of which the op's name or parameters tell the kind.
_TOLD_BY_CALL: Final = ("fused", "fusion")


def own_columns(profile: Profile, table: str, wanted: list[str]) -> pl.DataFrame:
    """Return columns of a trace table; if a saved profile's table was not read yet, only these are read."""
    return profile._own_columns(table, wanted)[0]


def kind_of_ops(profile: Profile) -> Kinds | None:
    """Return the categories of the kernels by their ops; None if no kernel has an op.

    Columns of the table of kernels are read if it is stored. If not, it is not made for them: of ten million
    kernels without calls that takes 5 s and 1 GB more than to link them.
    """
    if "attribution" not in vars(profile) and not _may_have_ops(profile):
        return None
    if "kernels" in profile._frames or "kernels" in profile._stored:
        return _by_columns(profile)
    return _by_attribution(profile)


def _may_have_ops(profile: Profile) -> bool:
    """Whether any kernel may have an op: one that a call launched, or that names its op itself."""
    if profile._own_columns("calls", [])[1]:
        return True
    named = own_columns(profile, "kernels", ["op_key"])["op_key"]
    return named.null_count() < len(named)


def _by_attribution(profile: Profile) -> Kinds | None:
    """Return ``kind_of_ops`` from the ops that launched the kernels, each op looked at once."""
    ops = profile._ops
    launched = ops.attribution.kernels.op
    rows = np.flatnonzero(np.bincount(launched[launched >= 0]))
    if not len(rows):
        return None
    identified = ops.identify(rows.astype(np.int64), inherit=True)
    work = identified.call.select("op", "op_type", "params").with_columns(
        identified.direction.alias("direction")
    )
    # the last place is that of a kernel without an op, whose row is -1
    of_row = np.full(int(rows[-1]) + 2, UNTOLD, np.uint8)
    of_row[rows] = _categories(work)
    found: NDArray[np.uint8] = of_row.take(launched)
    name = ops.attribution.trace["kernels"]["name"]
    generated = np.flatnonzero(matching(name, GENERATED) & (launched >= 0))
    if len(generated):  # a compiler's kernel says more than the region that launched it
        place = np.searchsorted(rows, launched[generated])
        column = name.gather(generated)
        named = column.cast(pl.String) != gather(work["op"], place).cast(pl.String)
        other = named.fill_null(False).to_numpy()
        generated, place, column = generated[other], place[other], column.filter(other)
        found[generated] = _categories(
            pl.DataFrame(
                [
                    column.alias("op"),
                    pl.Series("op_type", ["fused"]).new_from_index(0, len(column)),
                    gather(work["direction"], place),
                    gather(work["params"], place),
                ]
            )
        )
    return lambda low, high: found[low:high]


def _categories(work: pl.DataFrame) -> NDArray[np.uint8]:
    """Return the category of each op of which ``work`` has ``_WORK``; each distinct one is told once."""
    work = work.select(pl.col(_WORK).cast(pl.String))
    told = work.unique()
    kind = [_category(kinds.of_op(*row)) for row in told.rows()]
    joined = work.join(
        told.with_columns(pl.Series("kind", kind, pl.UInt8)),
        on=_WORK,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return joined["kind"].to_numpy()


def _by_columns(profile: Profile) -> Kinds | None:
    """Return ``kind_of_ops`` from the table of kernels, of which the columns are read that tell it."""
    frame = profile._passing("kernels", ("op_type", "direction"))
    if frame["op_type"].null_count() == len(frame):
        return None
    columns = [frame[name].cast(pl.Categorical) for name in ("op_type", "direction")]
    distinct = [distinct_values(column) for column in columns]
    family, direction = (values.cast(pl.String).to_list() for values in distinct)
    numbers = [numbers_of(values) for values in distinct]
    table = np.array(
        [_category(kinds.of_op(None, one, other, None)) for one in family for other in direction],
        np.uint8,
    )

    def of_rows(low: int, high: int) -> NDArray[np.uint8]:
        place = numbers[0](columns[0][low:high]) * np.int32(len(direction))
        place += numbers[1](columns[1][low:high])
        found: NDArray[np.uint8] = table.take(place)
        return found

    special = columns[0].is_in([one for one in family if one in _TOLD_BY_CALL])
    rows = np.flatnonzero(special.fill_null(False).to_numpy())
    if not len(rows):
        return of_rows
    by_call = _categories(profile._passing("kernels", _WORK)[rows])

    def with_calls(low: int, high: int) -> NDArray[np.uint8]:
        found = of_rows(low, high)
        first, after = np.searchsorted(rows, (low, high)).tolist()
        found[rows[first:after] - low] = by_call[first:after]
        return found

    return with_calls


def _category(kind: str | None) -> int:
    return UNTOLD if kind is None else CATEGORY[kind]
