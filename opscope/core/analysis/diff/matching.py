"""Which ops of two runs are the same: by name, direction, layer and inputs, then by less and less of these.

Each rule takes what no rule before it has matched. Where several shapes of one op remain on both sides and
equally many, they are paired in the order of their first call; else all of them together are one group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.columns import compact
from opscope.core.tables.intervals import NONE, Ints

#: How a layer's path is written the same in all frameworks: its parts, without what numbers a wrapper.
_SAME_LAYER: Final = (
    pl.col("layer").str.to_lowercase().str.replace_all(r"[/:]+", ".").str.strip_chars(".")
)
#: The rules in order: their name, what must be equal, and whether the frameworks must differ.
RULES: Final = (
    ("op, layer and inputs", ("op", "direction", "layer", "inputs", "named"), False),
    ("op and layer", ("op", "direction", "layer", "named"), False),
    ("op and inputs", ("op", "direction", "inputs", "named"), False),
    ("op", ("op", "direction", "named"), False),
    ("kind of op and layer", ("op_type", "direction", "same_layer"), False),
    ("kind of op and layer's name", ("op_type", "direction", "layer_name"), True),
    ("kind of op", ("op_type", "direction"), True),
)
#: Of what a rule matches by kind alone, this must be known.
_NEEDED: Final = {"op_type", "same_layer", "layer_name"}


@dataclass(frozen=True, slots=True)
class Matched:
    """The group of each key of two runs, and per group the rule that matched it (NONE: on one side only)."""

    a: Ints
    b: Ints
    rule: NDArray[np.int64]

    @property
    def many(self) -> int:
        """How many groups there are."""
        return len(self.rule)


def match(a: pl.DataFrame, b: pl.DataFrame, other_framework: bool) -> Matched:
    """Return the groups of the keys (``keys.COLUMNS``, in the order of their first call) of two runs.

    A column's text is null where it is not known; two unknown inputs match, two unknown kinds do not.
    """
    sides = _described(a, b)
    group = [np.full(len(one), NONE, np.int64) for one in sides]
    rules: list[int] = []
    for number, (_, columns, across) in enumerate(RULES):
        if across and not other_framework:
            continue
        left = [
            one.filter(pl.Series(group[side] < 0)).filter(
                pl.all_horizontal(
                    pl.lit(True),
                    *(pl.col(name).is_not_null() for name in columns if name in _NEEDED),
                )
            )
            for side, one in enumerate(sides)
        ]
        if not len(left[0]) or not len(left[1]):
            continue
        found = _paired(left[0], left[1], list(columns))
        for side, rows in enumerate(found[:2]):
            group[side][rows["row"].to_numpy()] = rows["group"].to_numpy() + len(rules)
        rules += [number] * found[2]
    for side in range(2):
        alone = np.flatnonzero(group[side] < 0)
        group[side][alone] = np.arange(len(alone)) + len(rules)
        rules += [NONE] * len(alone)
    return Matched(group[0], group[1], np.array(rules, np.int64))


def _described(a: pl.DataFrame, b: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the keys of both by row, texts as numbers that both share, with the layer's other names."""
    both = pl.concat([a, b]).with_columns(
        pl.when(~pl.col("named")).then("op_type").alias("op_type")
    )
    codes, texts = compact(both["layer"].cast(pl.Categorical))
    layers = pl.DataFrame({"layer": pl.Series(texts, dtype=pl.String)}).select(
        _SAME_LAYER.alias("same_layer"),
        _SAME_LAYER.str.split(".").list.last().alias("layer_name"),
    )
    places = codes.astype(np.uint32)
    other = [layers[name].cast(pl.Categorical).gather(places) for name in layers.columns]
    both = both.with_columns(*other)
    words = ["op", "op_type", "direction", "layer", "inputs", *layers.columns]
    both = both.select(pl.col(words).cast(pl.Categorical).to_physical(), "named")
    return tuple(  # type: ignore[return-value]
        one.with_row_index("row") for one in (both[: len(a)], both[len(a) :])
    )


def _paired(
    a: pl.DataFrame, b: pl.DataFrame, columns: list[str]
) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Return row and group (from 0) of what is equal in ``columns`` on both sides, and how many groups."""
    counts = [one.group_by(columns).len() for one in (a, b)]
    both = counts[0].join(counts[1], on=columns, how="inner", nulls_equal=True)
    both = both.with_row_index("set").with_columns(
        (pl.col("len") == pl.col("len_right")).alias("in_order")
    )
    sides = [
        one.join(both, on=columns, how="inner", nulls_equal=True, maintain_order="left")
        .with_columns(pl.int_range(pl.len()).over("set").alias("place"))
        .select(
            "row", "set", pl.when("in_order").then("place").otherwise(0).cast(pl.Int64).alias("nth")
        )
        for one in (a, b)
    ]
    groups = sides[0].select("set", "nth").unique(maintain_order=True).with_row_index("group")
    made = [
        one.join(groups, on=["set", "nth"], how="left", maintain_order="left").select(
            "row", pl.col("group").cast(pl.Int64)
        )
        for one in sides
    ]
    return made[0], made[1], len(groups)
