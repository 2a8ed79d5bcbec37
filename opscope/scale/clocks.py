"""Put the times of all partials on one clock by their collectives, as ``aligned`` does with whole traces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.job import clocks as job
from opscope.core.job.exchanges import GROUP, SYNCHRONISING, matched
from opscope.core.tables.trace import Trace


@dataclass(frozen=True, slots=True)
class Moves:
    """What is added to the times of each process, by its number; ``drifting``: some clock runs at another
    rate than the first's."""

    origin: NDArray[np.int64]
    offset: NDArray[np.int64]
    drift: NDArray[np.float64]

    @property
    def drifting(self) -> bool:
        return bool(self.drift.any())

    def moved(self, frame: pl.DataFrame, times: Iterable[str]) -> pl.DataFrame:
        """Return the frame with its columns ``times`` (ns) on the common clock."""
        if not (self.offset.any() or self.drifting) or not len(frame):
            return frame
        process = frame["process"].fill_null(-1).to_numpy()
        known = (process >= 0) & (process < len(self.offset))
        place = np.where(known, process, 0)
        columns = []
        for name in times:
            column = frame[name]
            value = column.fill_null(0).to_numpy()
            since = (value - self.origin[place]).astype(np.float64)
            moved = value + self.offset[place]
            moved = moved + np.rint(self.drift[place] * since).astype(np.int64)
            columns.append(
                pl.Series(name, np.where(known, moved, value)).set(column.is_null(), None)
            )
        return frame.with_columns(columns)


def placed(trace: Trace, found: pl.DataFrame) -> tuple[Trace, Moves]:
    """Return the trace on the clock of its lowest rank's machine, and how the times of each process move.

    ``trace`` has the tables that partials hold, ``found`` the collectives (``exchanges``) of all processes.
    """
    on = job.machines(trace)
    names = on["machine"].unique(maintain_order=True).to_list()
    done = trace["clocks"].filter(pl.col("clock_domain").is_in(on["clock_domain"].implode()))
    many = 1 + int(trace["processes"]["process"].max() or 0)  # type: ignore[arg-type]
    still = Moves(np.zeros(many, np.int64), np.zeros(many, np.int64), np.zeros(many))
    if len(names) < 2 or done["method"].is_not_null().all():
        return trace, still
    ends = _ends(found, on)
    at = {names[0]: job.Offset(0, 0, 0.0, 0, 0, 0)}
    how = {names[0]: job.REFERENCE}
    all_at: dict[str, job.Offset | None] = dict(at)
    while True:
        for one, other in ((a, b) for a in names if a in all_at for b in names if b not in all_at):
            between = job._between(ends, one, other, all_at[one])
            if between is not None:
                all_at[other], how[other] = between, job.BY_COLLECTIVES
                break
        else:
            break
    for name in names:
        if name not in all_at:
            all_at[name] = job._by_unix(trace, on, names[0], name)
            how[name] = job.UNKNOWN if all_at[name] is None else job.BY_UNIX
            trace.note(
                "warning",
                f"clock of {name}: no collective links it to the machine of the lowest rank, so its error "
                f"is unknown (method: {how[name]})",
            )
    for name, found_at in all_at.items():
        if found_at is not None and how[name] == job.BY_COLLECTIVES and found_at.error is None:
            trace.note(
                "warning",
                f"clock of {name}: its collectives contradict each other, so its error is unknown",
            )
    for process, name in on.select("process", "machine").rows():
        one_at = all_at[name]
        if one_at is None or (how[name] == job.BY_COLLECTIVES and job._is_none(one_at)):
            continue
        still.origin[process] = one_at.origin
        still.offset[process] = one_at.offset
        still.drift[process] = one_at.drift
    return job._moved(trace, on, all_at, how), still


def _ends(found: pl.DataFrame, on: pl.DataFrame) -> pl.DataFrame:
    """Return per machine and synchronising collective the last start and the first end (ns)."""
    both = matched(found.drop_nulls(["start", "end"]), same_clock=False).filter(
        pl.col("number").is_not_null() & pl.col("kind").cast(pl.String).is_in(SYNCHRONISING)
    )
    return (
        both.join(on.select("process", "machine"), on="process")
        .group_by("machine", *GROUP, "number")
        .agg(pl.col("start").max(), pl.col("end").min())
        .sort("end")
    )
