"""Why a step changed, in one sentence: many ops became one, or one op changed most; and what did not change.

Each moment counts for one op (``Reduced.spent``), so that each time is a part of the step's change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from opscope.core.analysis.diff.calls import words_of_calls
from opscope.core.analysis.diff.judged import SAME, UNCLEAR
from opscope.core.analysis.diff.reduced import Reduced
from opscope.core.analysis.diff.tables import Difference
from opscope.core.question import units

#: Known replacements of many ops by one: a description, the name of the single op, an op that becomes rarer,
#: and whether only ops of the rarer op's layers are replaced (else all ops of its direction).
_FUSED: Final = (
    (
        "the attention",
        r"(?i)scaled_dot_product|flash_att|efficient_attention|fused_?attention|dot_product_attention",
        r"(?i)softmax",
        True,
    ),
    (
        "the optimizer's update",
        r"(?i)_fused_(adam|sgd|adagrad)|FusedAdam|FusedSgd|_foreach_|multi_tensor",
        r".",
        False,
    ),
    (
        "what a compiler took over",
        r"Torch-Compiled Region|CompiledFunction|CompiledFxGraph|triton_(poi|red|per)_|XlaLaunch",
        r".",
        False,
    ),
)
#: Smallest share of the step's change that is given as a reason.
_LEAST: Final = 0.1
#: Relative difference from which the amount of work counts as changed.
_OTHER_AMOUNT: Final = 0.02
#: Largest relative change of an op that is called unchanged.
_UNCHANGED: Final = 0.05
_NAMED: Final = 3
_BY: Final = ("op", "direction", "layer")


@dataclass(frozen=True, slots=True)
class Reason:
    """The cause of most of a change (ns), in words, and its share of the step's change."""

    words: str
    change: int
    share: float


def reason(difference: Difference) -> Reason | None:
    """Return the main cause of the step's change; None if no op explains a tenth of it."""
    change = difference.step["change"][0]
    if not change or not (difference.a.has_ops and difference.b.has_ops) or difference.lacks:
        return None
    table = _spent(difference)
    reasons: list[tuple[str, float]] = []
    parts: set[str] = set()
    for words, time, rows in _replaced(table):
        if time * change > 0 and abs(time) >= _LEAST * abs(change):
            reasons.append((words, time))
            parts |= set(rows["op"])
    # an op that was merged into another, or split from it, is no reason of its own
    apart = ~pl.col("op").is_in(list(parts)).fill_null(False)
    reasons += [
        (words, time)
        for words, time in _single(table, difference.op_sums.filter(apart))
        if time * change > 0 and abs(time) >= _LEAST * abs(change)
    ]
    if not reasons:
        return None
    words, time = max(reasons, key=lambda pair: abs(pair[1]))
    return Reason(words, round(time), time / change)


def unchanged(difference: Difference) -> str | None:
    """Return the ops that changed by no more than the noise and a twentieth, most time first; None if there
    are none. A larger change within the noise is unclear."""
    few = pl.col("change").abs() <= _UNCHANGED * pl.col("a")
    rows = difference.op_sums.filter(pl.col("verdict").is_in([SAME, UNCLEAR]), pl.col("a") > 0, few)
    if rows.is_empty() or not difference.step["change"][0]:
        return None
    rows = rows.sort("a", "op", descending=[True, False])
    names = _names(rows)
    times = (units.time(int(rows[side].sum())) for side in "ab")
    return f"unchanged, within the noise: {names}: {' and '.join(times)} of a step"


def _spent(difference: Difference) -> pl.DataFrame:
    """Return per op, direction and layer the mean time (ns) and calls of a step in both runs."""
    sides = [_spent_of(side) for side in (difference.a, difference.b)]
    table = sides[0].join(
        sides[1], on=_BY, how="full", coalesce=True, nulls_equal=True, suffix="_b"
    )
    return table.rename({"time": "a", "calls": "calls_a", "time_b": "b"}).with_columns(
        pl.col("a", "b", "calls_a", "calls_b").fill_null(0.0)
    )


def _spent_of(side: Reduced) -> pl.DataFrame:
    keys = side.keys.select("key", *(pl.col(name).cast(pl.String) for name in _BY))
    tables = [
        frame.join(keys, on="key").group_by(_BY).agg((pl.col(name).sum() / side.many).alias(name))
        for frame, name in ((side.spent, "time"), (side.work, "calls"))
    ]
    return tables[0].join(tables[1], on=_BY, how="full", coalesce=True, nulls_equal=True)


def _replaced(table: pl.DataFrame) -> Iterator[tuple[str, float, pl.DataFrame]]:
    """Yield the ops that were replaced by one op, or one op by many, with the total change and their rows."""
    for subject, fused, among, by_layer in _FUSED:
        for before, after in (("a", "b"), ("b", "a")):
            ran = pl.col(f"calls_{after}") > 0, pl.col(f"calls_{before}") == 0
            new = table.filter(pl.col("op").str.contains(fused).fill_null(False), *ran)
            where = "layer" if by_layer else "direction"
            fewer = table.filter(
                pl.col(f"calls_{after}") < pl.col(f"calls_{before}"),
                pl.col(where).is_in(new[where].implode(), nulls_equal=True),
            )
            if new.is_empty() or not fewer["op"].str.contains(among).any():
                continue
            few = _names(
                new.sort(pl.col("direction") != "forward", after, descending=[False, True]), 1
            )
            parts = _names(fewer.sort(before, descending=True))
            became = (
                f"became one op ({few} in place of {parts})"
                if after == "b"
                else f"became many ops ({parts} in place of {few})"
            )
            rows = pl.concat([new, fewer])
            yield f"{subject} {became}", float((rows["b"] - rows["a"]).sum()), rows


def _single(table: pl.DataFrame, sums: pl.DataFrame) -> Iterator[tuple[str, float]]:
    """Yield each op, with the change of its work."""
    changes = table.group_by("op", "direction").agg(
        (pl.col("b") - pl.col("a")).sum().alias("spent")
    )
    rows = sums.drop_nulls("op").join(changes, on=["op", "direction"], nulls_equal=True)
    for row in rows.sort(pl.col("spent").abs(), descending=True).head(20).iter_rows(named=True):
        name = row["op"] + (
            "" if row["direction"] in (None, "forward") else f", {row['direction']},"
        )
        calls = row["calls_a"] or 0.0, row["calls_b"] or 0.0
        words = words_of_calls(name, *calls, " a step", _OTHER_AMOUNT)
        if words is None:
            words = f"{name} {_cost(row)}" if calls[0] else f"{name} is gone"
        yield words, row["spent"]


def _cost(row: dict[str, float | None]) -> str:
    """Return how the cost of an op with the same number of calls changed: by the amount of work, and by
    the rate."""
    for name, unit in (("flop_rate", "FLOP"), ("byte_rate", "byte")):
        rate_a, rate_b, a, b = row[f"{name}_a"], row[f"{name}_b"], row["a"], row["b"]
        if rate_a and rate_b and a and b:
            amount = rate_b * b / (rate_a * a)
            each = rate_a / rate_b - 1
            if abs(amount - 1) <= _OTHER_AMOUNT:
                return f"takes {each:+.0%} for the same work"
            return f"has {amount:.3g} times the work, at {each:+.0%} for each {unit}"
    return (
        "is called as often, and takes longer"
        if (row["change"] or 0) > 0
        else "is called as often, and takes less"
    )


def _names(rows: pl.DataFrame, most: int = _NAMED) -> str:
    names = rows["op"].drop_nulls().unique(maintain_order=True).to_list()
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {units.counted(more, 'other')}" if more > 0 else "")
