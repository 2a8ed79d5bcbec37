"""Collectives as meetings of ranks: no rank can end a collective before the last rank has entered it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.critical.work import COMMUNICATION, Work
from opscope.core.attribution.attribute import Attribution
from opscope.core.job.clocks import one_clock
from opscope.core.job.exchanges import GROUP
from opscope.core.tables.intervals import Ints

_WITHIN: Final = (*GROUP, "number")


@dataclass(frozen=True, slots=True)
class Meeting:
    """The collectives that several ranks ran: per kernel its ``place`` in the work and the ``number`` of
    its collective; per collective when the last rank ``entered`` it (ns)."""

    place: Ints
    number: Ints
    entered: Ints

    @property
    def many(self) -> int:
        """The number of collectives."""
        return len(self.entered)


def meetings(attribution: Attribution, work: Work) -> Meeting:
    """Return the collectives whose kernels on several processes are in the trace, on one clock.

    A collective is left out if, by the recorded times, some rank left before the last had entered.
    """
    trace = attribution.trace
    none = np.empty(0, np.int64)
    kernels = np.flatnonzero(work.what == COMMUNICATION)
    if not len(kernels) or trace["kernels"]["process"].n_unique() < 2 or not one_clock(trace):
        return Meeting(none, none, none)
    from opscope.core.job.timed import exchanged  # lazy: a single process exchanges nothing

    measured = exchanged(attribution).filter(
        pl.col("number").is_not_null() & pl.col("start").is_not_null()
    )
    ran = pl.DataFrame(
        {
            "process": trace["kernels"]["process"].gather(work.row[kernels]),
            "start": work.start[kernels],
            "end": work.end[kernels],
            "place": kernels,
        }
    )
    exchanges = (
        measured.join(ran, on=["process", "start", "end"])
        .unique("place", keep="first", maintain_order=True)
        .with_columns(
            pl.col("process").n_unique().over(_WITHIN).alias("ranks"),
            pl.col("start").max().over(_WITHIN).alias("entered"),
            pl.col("end").min().over(_WITHIN).alias("left"),
            pl.len().over(_WITHIN, "process").max().over(_WITHIN).alias("times"),
        )
        .filter(
            (pl.col("ranks") > 1) & (pl.col("entered") <= pl.col("left")) & (pl.col("times") == 1)
        )
    )
    if exchanges.is_empty():
        return Meeting(none, none, none)
    ids = (
        exchanges.select(pl.struct(_WITHIN).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
    )
    entered = np.zeros(int(ids.max()) + 1, np.int64)
    entered[ids] = exchanges["entered"].to_numpy()
    group: NDArray[np.int64] = exchanges["place"].to_numpy().astype(np.int64)
    return Meeting(group, ids, entered)
