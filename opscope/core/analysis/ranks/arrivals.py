"""The work of each rank before it entered each collective: the table on which the analyses of many ranks are
based. A row is one rank's part of one collective and depends only on that rank's trace, so rows of ranks that
were read separately can be concatenated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.steps.step_times import Happened, happened, split
from opscope.core.job.exchanges import GROUP, SYNCHRONISING
from opscope.core.tables.gathered import one_piece
from opscope.core.tables.intervals import Ints
from opscope.core.tables.narrow import Pieces

#: The activities of a rank between the end of a collective and its entry to the next; the parts add up to
#: ``since``.
PARTS: Final = ("wait_part", "compute_part", "input_part", "launch_part", "outside_part")
ARRIVALS: Final = {"since": pl.Int64, **dict.fromkeys(PARTS, pl.Int64)}


def arrivals(exchanged: pl.DataFrame, did: Mapping[int, Happened]) -> pl.DataFrame:
    """Return the rows of ``exchanged`` that synchronise, with ``ARRIVALS`` (ns).

    ``since``: from the end of the rank's collective before, in the same group, to the start of this one; null
    for the first. Its parts, each without the time in an earlier one: ``compute_part``, kernels, copies and
    sets; ``wait_part``, in collectives of other groups and in messages; ``input_part``, a data loader;
    ``launch_part``: nothing ran on the device while the host was in ops and calls, which launch;
    ``outside_part``, the rest: the host was outside any op, as when it sleeps. If no op was recorded, the
    rest is ``launch_part``. On a CPU, ``compute_part`` is ops, and comes after ``wait_part`` and
    ``input_part``. ``did`` is ``step_times.happened``; a rank that it does not contain has no parts.
    """
    rows = _entered(exchanged)
    before = pl.col("end").shift(1).over("process", *GROUP)
    rows = rows.with_columns(
        (pl.col("start") - before).clip(lower_bound=0).cast(pl.Int64).alias("since")
    )
    parts = {name: np.zeros(len(rows), np.int64) for name in PARTS}
    is_divided = np.zeros(len(rows), bool)
    has = rows["since"].is_not_null().to_numpy()
    start = rows["start"].to_numpy()
    since = rows["since"].fill_null(0).to_numpy()
    process = rows["process"].fill_null(-1).to_numpy()
    for number in np.unique(process).tolist():
        happened_there = did.get(number)
        mine = np.flatnonzero((process == number) & has)
        if happened_there is None or not len(mine) or happened_there.parts[0] is None:
            continue
        for name, value in _divide(happened_there, start[mine] - since[mine], start[mine]).items():
            parts[name][mine] = value
        is_divided[mine] = True
    return rows.with_columns(
        pl.Series(name, parts[name]).set(pl.Series(~is_divided), None) for name in PARTS
    )


def arrived_apart(exchanged: Pieces, parts: Pieces) -> Pieces:
    """Return ``arrivals`` of ranks that were read apart: ``exchanged`` of all of them, and ``parts``, the
    columns ``ARRIVALS`` of each rank's own ``arrivals``, in the same order of processes; the two may be cut
    into pieces at different rows."""

    def made() -> Iterator[pl.DataFrame]:
        beside = parts()
        arrivals_so_far = next(beside).select(*ARRIVALS)
        for piece in exchanged():
            rows = _entered(piece)
            while len(arrivals_so_far) < len(rows):
                more = next(beside, None)
                if more is None:
                    raise ValueError("fewer arrivals than collectives that synchronise")
                arrivals_so_far = pl.concat([arrivals_so_far, more.select(*ARRIVALS)])
            yield rows.with_columns(arrivals_so_far[: len(rows)].get_columns())
            arrivals_so_far = arrivals_so_far[len(rows) :]
        if len(arrivals_so_far) or any(len(more) for more in beside):
            raise ValueError("more arrivals than collectives that synchronise")

    return made


def _entered(exchanged: pl.DataFrame) -> pl.DataFrame:
    """Return the synchronising collectives with known times, by process and time."""
    kind = pl.col("kind").cast(pl.String)
    return exchanged.filter(
        kind.is_in(SYNCHRONISING).fill_null(False) & pl.col("start").is_not_null()
    ).sort("process", "start", maintain_order=True)


def _divide(happened: Happened, start: Ints, end: Ints) -> dict[str, Ints]:
    """Return the parts of the intervals [start, end) of a process."""
    communication, computed, copies, sets, calls, loader, ops = happened.parts
    nothing = np.zeros(len(start), np.int64)
    if computed is None or not len(computed[0]):
        # on a CPU, waiting and loading are ops too, so they come first
        order = [("wait_part", communication), ("input_part", loader), ("compute_part", ops)]
    else:
        order = [
            ("compute_part", computed), ("compute_part", copies), ("compute_part", sets),
            ("wait_part", communication), ("input_part", loader),
            ("launch_part", calls), ("launch_part", ops),
        ]  # fmt: skip
    parts_of_wait = dict.fromkeys(PARTS, nothing)
    for (name, _), value in zip(
        order, split([times for _, times in order], start, end), strict=True
    ):
        if value is not None:
            parts_of_wait[name] = parts_of_wait[name] + value
    rest = (end - start) - sum(parts_of_wait.values(), nothing)
    last = "launch_part" if ops is None or not len(ops[0]) else "outside_part"
    parts_of_wait[last] = parts_of_wait[last] + rest
    return parts_of_wait


def arrival_table(profile: Answers) -> pl.DataFrame:
    """The work of each rank before it entered each collective."""
    did = happened(profile.of(op_index), lambda: profile.of(exchanges))
    return arrivals(profile.of(exchanges), did)


def arrival_pieces(profile: Answers) -> Pieces:
    """``arrival_table`` in pieces; all rows of a process are in one piece."""
    return one_piece(profile.of(arrival_table))
