"""The times in which a queue of a device waited, as far as the trace records them."""

from __future__ import annotations

import polars as pl

from opscope.core.tables.columns import matching
from opscope.core.tables.trace import Trace
from opscope.core.waits import OF_CALLS, ON_QUEUE


def queue_waits(trace: Trace) -> pl.DataFrame:
    """Return the rows of ``syncs`` in which a device's queue waited for an event, a queue or a rank."""
    syncs = trace["syncs"]
    waits = matching(syncs["kind"], ON_QUEUE) & ~matching(syncs["kind"], OF_CALLS)
    return syncs.filter(pl.Series(waits, dtype=pl.Boolean))
