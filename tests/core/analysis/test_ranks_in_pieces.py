"""Analyses of many ranks answer alike however the collectives come in pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from opscope.core.analysis.ranks import (
    collective_ends,
    collective_faults,
    collective_rates,
    late_causes,
    stragglers,
)
from opscope.core.analysis.ranks.arrivals import ARRIVALS, PARTS, arrived_apart
from opscope.core.job import timed
from opscope.core.job.exchanges import SCHEMA
from opscope.core.job.numbering import matched
from opscope.core.tables.gathered import Gathered, one_piece
from opscope.core.tables.narrow import Pieces, whole

RANKS, CALLS = 250, 12


def job(seed: int) -> pl.DataFrame:
    """Collectives of 250 ranks in a group of all and in groups of two: some ranks lack some, have another dtype
    or size, or did not end; kinds are many, and times uneven."""
    random = np.random.default_rng(seed)
    parts = []
    for rank in range(RANKS):
        for group, size in (("all", RANKS), (f"pair{rank // 2}", 2)):
            many = CALLS if group == "all" else 3
            number = np.arange(many)
            kind = np.array(["all_reduce", "all_gather", "broadcast", "barrier"])[number % 4]
            called = number * 1_000_000 + random.integers(0, 200_000, many)
            start = called + random.integers(0, 50_000, many)
            end = (number + 1) * 1_000_000 + random.integers(0, 3_000, many)
            ended = random.random(many) < (0.97 if group == "all" else 0.7)
            if group == "all":
                ended[-1] = False  # nobody ended the last one
            there = np.ones(many, bool)
            if group == "all" and rank % 2:
                there[-1] = False  # and half of the ranks never came
            parts.append(
                pl.DataFrame(
                    {
                        "process": np.full(many, rank),
                        "group": [group] * many,
                        "size": np.full(many, size),
                        "kind": kind,
                        "bytes": np.where((number == 2) & (rank % 3 == 0), 64, 128),
                        "dtype": np.where((number == 5) & (rank % 200 > 3), "f16", "f32"),
                        "called": called,
                        "start": pl.Series(start).set(pl.Series(~ended), None),
                        "end": pl.Series(end).set(pl.Series(~ended), None),
                        "seq": number,
                    }
                ).filter(pl.Series(there))
            )
    rows = pl.concat(parts).sort("process", "called", maintain_order=True)
    return rows.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in rows.columns
    ).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def pieces(rows: pl.DataFrame, ranks: int) -> Pieces:
    """The rows in pieces of so many ranks."""
    return lambda: iter(
        rows.filter((pl.col("process") >= first) & (pl.col("process") < first + ranks))
        for first in range(0, RANKS, ranks)
    )


RANK_OF = pl.DataFrame(
    {"process": range(RANKS), "rank": [RANKS - 1 - one for one in range(RANKS)]},
    schema={"process": pl.Int32, "rank": pl.Int32},
)
ENDS = RANK_OF.with_columns(pl.lit(CALLS * 1_000_000).alias("until"))
MACHINES = RANK_OF.select(
    "process",
    (pl.col("process") // 8).cast(pl.String).alias("machine"),
    pl.when(pl.col("process") < 240).then(pl.col("process").cast(pl.Int64) * 5).alias("error_ns"),
)
STEPS = pl.DataFrame(
    [(one, one, step, step * 3_000_000, (step + 1) * 3_000_000, 3_000_000, True, None)
     for one in range(RANKS) for step in range(CALLS // 3)],
    schema={"process": pl.Int32, "rank": pl.Int32, "step": pl.Int64, "start": pl.Int64, "end": pl.Int64,
            "time": pl.Int64, "seen": pl.Boolean, "reason": pl.String}, orient="row",
)  # fmt: skip


def answers(rows: pl.DataFrame, ranks: int) -> Iterator[tuple[str, pl.DataFrame]]:
    exchanged = pieces(timed.timed(rows, True), ranks)
    entered = pieces(matched(rows, True), ranks)
    trace = {"processes": RANK_OF}
    yield "stragglers", stragglers.stragglers(trace, exchanged)  # type: ignore[arg-type]
    yield "waits", stragglers.waits_for(exchanged)
    yield "collective_waits", stragglers.collective_waits(exchanged)
    yield "imbalance", stragglers.step_imbalance(STEPS, exchanged)
    yield "rates", collective_rates.collective_rates(exchanged, MACHINES)
    yield "ends", collective_ends.collective_ends(exchanged, MACHINES, RANK_OF)
    yield "faults", collective_faults.collective_faults(entered, ENDS, exchanged)
    yield "last", collective_faults.last_collectives(entered, ENDS)
    yield (
        "causes",
        late_causes.late_causes(arrived_apart(exchanged, one_piece(apart(exchanged))), RANK_OF),
    )


def apart(exchanged: Pieces) -> pl.DataFrame:
    """The arrivals of all of them, as ranks would tell them."""
    started = pl.concat(piece.filter(pl.col("start").is_not_null()) for piece in exchanged())
    kept = started.filter(pl.col("kind").cast(pl.String) != "broadcast")
    random = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "since": random.integers(100_000, 900_000, len(kept)),
            **{name: random.integers(0, 200_000, len(kept)) for name in PARTS},
        }
    )


@pytest.mark.parametrize("ranks", [1, 7, 100])
def test_answers_do_not_depend_on_the_pieces(ranks, monkeypatch):
    rows = job(1)
    wanted = dict(answers(rows, RANKS))
    for user in ("tables.gathered", "analysis.ranks.collective_faults"):
        monkeypatch.setattr(f"opscope.core.{user}.MOST", 50)
    for name, found in answers(rows, ranks):
        assert len(found), name
        assert_frame_equal(found, wanted[name], check_exact=True)
    faults = wanted["faults"]
    assert {"not entered by all", "dtypes differ", "sizes differ"} <= {*faults["fault"].to_list()}
    assert (
        faults["missing_ranks"].drop_nulls().str.ends_with(" …").any()
    )  # more than a text has room for


def test_arrivals_that_are_not_those_of_the_collectives_are_an_error():
    exchanged = pieces(timed.timed(job(1), True), 10)
    parts = apart(exchanged)
    halves = (parts[:0], parts[:1000], parts[1000:], parts[:0])  # a rank may have none
    made = whole(arrived_apart(exchanged, lambda: iter(halves)))
    assert_frame_equal(made.select(*ARRIVALS), parts.select(*ARRIVALS))
    for other, what in ((parts[:-1], "fewer"), (pl.concat([parts, parts[:1]]), "more")):
        with pytest.raises(ValueError, match=what):
            whole(arrived_apart(exchanged, one_piece(other)))


def test_sums_of_pieces_are_added_up_in_the_order_of_their_keys(monkeypatch):
    monkeypatch.setattr("opscope.core.tables.gathered.MOST", 3)
    sums = Gathered(["key"], pl.col("many").sum(), pl.col("least").min())
    for first in range(0, 40, 2):
        sums.add(pl.DataFrame({"key": [first % 7, 9], "many": [1, 2], "least": [first, -first]}))
    found = sums.all()
    assert found["key"].to_list() == [0, 9, 2, 4, 6, 1, 3, 5]
    assert found.filter(pl.col("key") == 9).row(0) == (9, 40, -38)
    assert found["many"].sum() == 60
