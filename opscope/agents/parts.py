"""Parts that several calls share: what cannot be told of a run, units of columns, a single row as lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os.path import basename as base_name
from typing import TYPE_CHECKING

from opscope.agents.answer import Rows
from opscope.core.analysis.ops.lost_kernels import losses
from opscope.core.analysis.summary.doubts import doubts
from opscope.core.question.column import Column

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


def cannot_tell(profile: Profile) -> list[str]:
    """Return a sentence for each thing that the data of a run lacks, and for each impossible value."""
    failed = profile.trace.origin.get("failed", ())
    left_out = [f"left out: {base_name(str(fault['path']))}: {fault['what']}" for fault in failed]
    if profile.merged_of is not None:
        return left_out
    return [*left_out, *profile.of(losses), *profile.of(doubts)]


def units_of(columns: Iterable[Column]) -> dict[str, str]:
    """Return the unit of each documented column."""
    return {column.name: column.unit for column in columns}


def as_lines(frame: pl.DataFrame, units: Mapping[str, str], first: int = 0) -> Rows:
    """Return the known values of a frame's only row, one per line, with their units."""
    values = frame.row(0, named=True) if len(frame) else {}
    lines = [
        (name, value, units.get(name, "text"))
        for name, value in values.items()
        if value is not None
    ]
    return Rows.of_list(lines, {"property": "text", "value": "in its unit", "unit": "text"}, first)
