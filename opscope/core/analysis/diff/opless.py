"""Group kernels and copies without an op with those of the same name that have one.

The first kernels of a recording have no launch record, so their op is unknown; another recording that begins
elsewhere may have it. By name alone they would be listed as new or gone, although both runs have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.diff.judged import SAME
from opscope.core.analysis.diff.matching import Matched
from opscope.core.analysis.diff.reduced import KERNELS, Reduced
from opscope.core.tables.intervals import NONE

_SIDES: Final = ("a", "b")
_NAME: Final = ("name", "copy")
_IN_BOTH: Final = "{} of this name ran in A and {} in B, with an op or without"
_BY_NAME: Final = "{} in A and {} in B have no launch record and count here by their name"
_EARLY: Final = "{} in A and {} in B are of the window's edge: launched before it began"


def join_by_name(matched: Matched, a: Reduced, b: Reduced) -> Matched:
    """Return the groups, with work without a launch record moved to the group of its name.

    This is done if all other work of that name, in both runs, is in one group; otherwise its op stays
    unknown.
    """
    work = _work(matched, a, b)
    ops = (
        work.filter(~pl.col("named"))
        .group_by(_NAME)
        .agg(pl.col("group").n_unique().alias("groups"), pl.col("group").first().alias("into"))
        .filter(pl.col("groups") == 1)
    )
    lone = work.filter("named", pl.col("unlaunched") == pl.col("calls"))
    lone = lone.join(ops, on=_NAME, how="inner")
    groups = {}
    for side, one in zip(_SIDES, (a, b), strict=True):
        group = matched.a if side == "a" else matched.b
        moved = dict(lone.filter(pl.col("side") == side).select("key", "into").iter_rows())
        places = [moved.get(key, NONE) for key in one.keys["key"]] if moved else []
        groups[side] = np.where(np.array(places) == NONE, group, places) if moved else group
    return replace(matched, **groups)


def opless(matched: Matched, a: Reduced, b: Reduced) -> pl.DataFrame:
    """Return ``group``, ``unsure`` and ``reason`` of the groups with work without an op.

    ``unsure``: work of its name has an op in one of the runs, in different proportions: whether the group
    itself grew, shrank, is new or is gone is unknown.
    """
    work = _work(matched, a, b)
    counts = ("calls", "opless", "unlaunched", "early")
    work = work.with_columns(pl.when("named").then("calls").otherwise(0).alias("opless"))
    named = _both(work, _NAME, ("calls", "opless"))
    moved = pl.col("opless_a") * pl.col("calls_b") != pl.col("opless_b") * pl.col("calls_a")
    has_op = (pl.col("opless_a") < pl.col("calls_a")) | (pl.col("opless_b") < pl.col("calls_b"))
    named = named.with_columns((moved & has_op).alias("unsure"))
    groups = _both(work.join(
        work.group_by("group").agg(pl.col("named").all().alias("lone")), on="group", how="left"
    ), ("group", "lone"), counts)  # fmt: skip
    lone = (
        work.filter("named")
        .join(named, on=_NAME, how="left")
        .group_by("group")
        .agg(pl.col("unsure").any(), pl.col("calls_a", "calls_b").first().name.prefix("all_"))
    )
    some = (pl.col("unlaunched_a") + pl.col("unlaunched_b")) > 0
    early = (pl.col("early_a") + pl.col("early_b")) > 0
    return (
        groups.filter((pl.col("opless_a") + pl.col("opless_b")) > 0)
        .join(lone, on="group", how="left")
        .with_columns((pl.col("lone") & pl.col("unsure")).alias("unsure"))
        .select(
            "group",
            "unsure",
            pl.concat_str(
                pl.when("unsure").then(pl.format(_IN_BOTH, "all_calls_a", "all_calls_b")),
                pl.when(~pl.col("lone") & some)
                .then(pl.format(_BY_NAME, "unlaunched_a", "unlaunched_b")),
                pl.when((pl.col("unsure") | ~pl.col("lone")) & early)
                .then(pl.format(_EARLY, "early_a", "early_b")),
                separator="; ",
                ignore_nulls=True,
            ).alias("reason"),
        )
        .with_columns(pl.when(pl.col("reason") != "").then("reason"))
    )  # fmt: skip


def with_opless(frame: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Return the rows (``group``) without a verdict for work whose op is not ``known`` (of ``opless``),
    with the reason."""
    frame = frame.join(known, on="group", how="left", maintain_order="left")
    unsure = pl.col("unsure").fill_null(False) & (pl.col("verdict") != SAME)
    return frame.with_columns(
        pl.when(~unsure).then("verdict").alias("verdict"),
        pl.coalesce("reason_right", "reason").alias("reason"),
    ).drop("unsure", "reason_right")


def _work(matched: Matched, a: Reduced, b: Reduced) -> pl.DataFrame:
    """Return ``Reduced.kernels`` of both runs with ``side``, ``group`` and ``named``."""
    sides = [
        one.kernels.select(*KERNELS)
        .with_columns(pl.col("name").cast(pl.String), pl.lit(side).alias("side"))
        .join(
            one.keys.select("key", "named").with_columns(pl.Series("group", group)),
            on="key",
            how="inner",
        )
        for side, one, group in zip(_SIDES, (a, b), (matched.a, matched.b), strict=True)
    ]
    return pl.concat(sides)


def _both(work: pl.DataFrame, by: Sequence[str], counts: Sequence[str]) -> pl.DataFrame:
    """Return the sums of each group ``by`` in both runs: ``calls_a``, ``calls_b`` …"""
    return work.group_by(by).agg(
        pl.col(name).filter(pl.col("side") == side).sum().alias(f"{name}_{side}")
        for name in counts
        for side in _SIDES
    )
