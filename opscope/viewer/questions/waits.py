"""Which rank waited for which: the waiting in collectives, by the rank that entered last."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from opscope.core.analysis.ops.exchanges import exchange_pieces
from opscope.core.analysis.ranks.stragglers import waits_for
from opscope.viewer.question import Asked, Question
from opscope.viewer.viewed import Viewed

#: Number of ranks in the matrix: those with the most waiting, no matter whether they caused the waiting or
#: waited.
RANKS: Final = 32


def answer(asked: Asked) -> dict[str, Any]:
    """Return ``ranks`` (names) and ``waiting``: a row per rank that entered last, a column per rank that
    waited for it, in ns (null: never). ``left_out`` counts the other ``ranks`` and the ``time`` of theirs.

    A row adds up to the ``caused_waiting`` of the report of stragglers, if no rank is left out.
    """
    profile = asked.profile
    pairs = waits_for(profile.of(exchange_pieces))
    both = pl.concat(
        [pairs.select("waiting", process=pl.col(name)) for name in ("late", "process")]
    )
    order = (
        both.group_by("process")
        .agg(pl.col("waiting").sum())
        .sort("waiting", "process", descending=[True, False])["process"]
        .to_list()
    )
    kept = sorted(order[:RANKS])
    index_of_process = {process: number for number, process in enumerate(kept)}
    matrix: list[list[int | None]] = [[None] * len(kept) for _ in kept]
    left = 0
    for late, process, waiting in pairs.select("late", "process", "waiting").rows():
        if late in index_of_process and process in index_of_process:
            matrix[index_of_process[late]][index_of_process[process]] = waiting
        else:
            left += waiting
    names = dict(
        profile.trace["processes"].select("process", "rank").unique("process", keep="first").rows()
    )
    return {
        "ranks": [
            f"process {process}" if names.get(process) is None else f"rank {names[process]}"
            for process in kept
        ],
        "waiting": matrix,
        "left_out": {"ranks": len(order) - len(kept), "time": left},
    }


def stored(viewed: Viewed) -> list[dict[str, str]]:
    """Return the parameters of the answers that a single file holds."""
    return [{}]


QUESTION = Question(name="waits", answer=answer, stored=stored)
