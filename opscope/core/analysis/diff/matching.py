"""Match the ops of two runs: by name, direction, layer and inputs, then by fewer and fewer of these.

Each rule matches only ops that no earlier rule has matched. If both sides have the same number of remaining
shapes of an op, they are paired in the order of their first call; otherwise all of them form one group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.diff.keys import COLUMNS, codes
from opscope.core.tables.columns import combinations, compact
from opscope.core.tables.intervals import NONE, Ints

#: The common form of a layer's path in all frameworks: its parts, without the numbers added by wrappers.
_SAME_LAYER: Final = (
    pl.col("layer").str.to_lowercase().str.replace_all(r"[/:]+", ".").str.strip_chars(".")
)
#: The rules in order: their name, the columns that must be equal, and whether the frameworks must differ.
RULES: Final = (
    ("op, layer and inputs", ("op", "direction", "layer", "inputs", "named"), False),
    ("op and layer", ("op", "direction", "layer", "named"), False),
    ("op and inputs", ("op", "direction", "inputs", "named"), False),
    ("op and layer's name", ("op", "direction", "layer_name", "named"), False),
    ("op", ("op", "direction", "named"), False),
    ("kind of op and layer", ("op_type", "direction", "same_layer"), False),
    ("kind of op and layer's name", ("op_type", "direction", "layer_name"), True),
    ("kind of op", ("op_type", "direction"), True),
)
#: A column that must be known if a rule matches by kind alone.
_NEEDED: Final = {"op_type", "same_layer", "layer_name"}


@dataclass(frozen=True, slots=True)
class Matched:
    """The group of each key of two runs, and per group the rule that matched it (NONE: on one side only)."""

    a: Ints
    b: Ints
    rule: NDArray[np.int64]

    @property
    def many(self) -> int:
        """The number of groups."""
        return len(self.rule)


def match(a: pl.DataFrame, b: pl.DataFrame, other_framework: bool) -> Matched:
    """Return the groups of the keys (``keys.COLUMNS``, in the order of their first call) of two runs.

    A column's text is null if it is not known; two unknown inputs match, two unknown kinds do not.
    """
    both = _described(a, b)
    group = np.full(len(a) + len(b), NONE, np.int64)
    rules: list[int] = []
    for number, (_, columns, across) in enumerate(RULES):
        if across and not other_framework:
            continue
        left = group < 0
        for name in _NEEDED.intersection(columns):
            left &= both[name] != NONE
        rows = np.flatnonzero(left)
        from_a = int(np.searchsorted(rows, len(a)))
        if not from_a or from_a == len(rows):
            continue
        pair, count = _pair([both[name][rows] for name in columns], from_a)
        group[rows] = np.where(pair >= 0, pair + len(rules), NONE)
        rules += [number] * count
    for side in (group[: len(a)], group[len(a) :]):
        alone = np.flatnonzero(side < 0)
        side[alone] = np.arange(len(alone)) + len(rules)
        rules += [NONE] * len(alone)
    return Matched(group[: len(a)], group[len(a) :], np.array(rules, np.int64))


def _described(a: pl.DataFrame, b: pl.DataFrame) -> dict[str, NDArray[np.int64]]:
    """Return the columns of the keys of A, then of B, as numbers, and the layer's other names; -1: null."""
    both = pl.concat(keys.select(COLUMNS) for keys in (a, b)).with_columns(
        pl.when(~pl.col("named")).then("op_type").alias("op_type")
    )
    numbers, texts = compact(both["layer"].cast(pl.Categorical))
    layers = pl.DataFrame({"layer": pl.Series(texts, dtype=pl.String)}).select(
        _SAME_LAYER.alias("same_layer"),
        _SAME_LAYER.str.split(".").list.last().alias("layer_name"),
    )
    other = {name: codes(layers[name].cast(pl.Categorical))[numbers] for name in layers.columns}
    words = ("op", "op_type", "direction", "layer", "inputs")
    codes_of_words = {name: codes(both[name].cast(pl.Categorical)) for name in words}
    return codes_of_words | other | {"named": codes(both["named"])}


def _pair(columns: list[NDArray[np.int64]], from_a: int) -> tuple[Ints, int]:
    """Return the group of each row (from 0; NONE: no row of the other side matches) and the number of groups.

    The first ``from_a`` rows are of A. Groups are numbered in the order of A's rows.
    """
    count, number = combinations(*columns)
    counts = [np.bincount(column, minlength=count) for column in (number[:from_a], number[from_a:])]
    both = (counts[0] > 0) & (counts[1] > 0)
    rows = np.flatnonzero(both[number])
    set_of = number[rows]
    if max(int(one[both].max(initial=0)) for one in counts) <= 1:  # most sets: nothing to order
        group_of_set = (np.cumsum(both) - 1)[set_of]
        groups = int(np.count_nonzero(both))
    else:
        in_order = counts[0] == counts[1]
        nth = np.where(in_order[set_of], _nth(set_of, int(np.searchsorted(rows, from_a))), 0)
        groups, group_of_set = combinations(set_of, nth)
    first = np.empty(groups, np.int64)
    first[group_of_set[::-1]] = np.arange(len(group_of_set) - 1, -1, -1)
    ranks = np.empty(groups, np.int64)
    ranks[np.argsort(first)] = np.arange(groups)
    group = np.full(len(number), NONE, np.int64)
    group[rows] = ranks[group_of_set]
    return group, groups


def _nth(set_of: NDArray[np.int32], from_a: int) -> Ints:
    """Return how many rows of the same set and side come before each row."""
    nth = np.empty(len(set_of), np.int64)
    for part in (slice(0, from_a), slice(from_a, None)):
        mine = set_of[part]
        order = np.argsort(mine, kind="stable")
        sizes = np.bincount(mine)
        begin = np.cumsum(sizes) - sizes
        rank = np.empty(len(mine), np.int64)
        rank[order] = np.arange(len(mine))
        nth[part] = rank - begin[mine]
    return nth
