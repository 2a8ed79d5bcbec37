"""The collectives of a profile, which the questions about steps and about ranks share."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.tables.gathered import one_piece
from opscope.core.tables.narrow import Pieces


def exchanges(profile: Answers) -> pl.DataFrame:
    """The collectives of every process, matched, with their duration and waiting (ns)."""
    from opscope.core.job.timed import exchanged  # lazy: one process alone exchanges nothing

    return exchanged(profile.attribution)


def exchange_pieces(profile: Answers) -> Pieces:
    """``exchanges`` in pieces; all rows of a process are in one piece."""
    return one_piece(profile.of(exchanges))
