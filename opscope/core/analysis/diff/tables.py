"""The difference of two reduced profiles as tables: the step, its parts, the causes, ops and kernels.

Times are means per step in whole ns. They are rounded so that they add up: the mean of the step is rounded
down, and the rounding losses of its pieces are given back, one ns each, to the pieces that lost most. So on
both sides the parts add up exactly to the step, and so do the causes; the changes add up to the step's
change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.diff import rankwise, whole_job
from opscope.core.analysis.diff.judged import (
    SAME,
    UNCLEAR,
    judged,
    samples,
    typicals_of,
)
from opscope.core.analysis.diff.matching import RULES, Matched, match
from opscope.core.analysis.diff.noise import Typical
from opscope.core.analysis.diff.op_sums import OP_SUMS, op_sums
from opscope.core.analysis.diff.opless import join_by_name, opless, with_opless
from opscope.core.analysis.diff.reduced import (
    BY_PART,
    PART_NAMES,
    RUN,
    STEPS,
    TOTALS,
    WHOLE,
    Ending,
    Reduced,
)
from opscope.core.analysis.diff.waited import COMMUNICATION, Waited, waited
from opscope.core.once import once
from opscope.core.tables.columns import at, gather, pairs
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.pool import Pool

STEP: Final = {
    "unit": pl.String,
    "a": pl.Int64,
    "b": pl.Int64,
    "change": pl.Int64,
    "ratio": pl.Float64,
    "noise": pl.Int64,
    "verdict": pl.String,
    "steps_a": pl.Int64,
    "steps_b": pl.Int64,
    "reason": pl.String,
}
PARTS: Final = {
    "part": pl.String,
    "a": pl.Int64,
    "b": pl.Int64,
    "change": pl.Int64,
    "share": pl.Float64,
    "noise": pl.Int64,
    "verdict": pl.String,
    "reason": pl.String,
}
_OP: Final = {"op": pl.String, "direction": pl.String, "layer": pl.String}
CAUSES: Final = {
    "part": pl.String,
    **_OP,
    "inputs": pl.String,
    **{name: kind for name, kind in PARTS.items() if name != "part"},
}
OPS: Final = {
    **_OP,
    "op_b": pl.String,
    "layer_b": pl.String,
    "inputs": pl.String,
    "inputs_b": pl.String,
    "matched": pl.String,
    "work": pl.String,
    "a": pl.Int64,
    "b": pl.Int64,
    "change": pl.Int64,
    "ratio": pl.Float64,
    "noise": pl.Int64,
    "verdict": pl.String,
    "calls_a": pl.Float64,
    "calls_b": pl.Float64,
    "reason": pl.String,
}
KERNELS: Final = {
    **_OP,
    "inputs": pl.String,
    "kernels_a": pl.String,
    "kernels_b": pl.String,
    "a": pl.Int64,
    "b": pl.Int64,
    "change": pl.Int64,
}
#: How the work of an op may differ.
SAME_WORK, OTHER_SHAPES, OTHER_DTYPES, OTHER_CALLS, OTHER_OP = (
    "same",
    "other shapes",
    "other dtypes",
    "other calls",
    "other op",
)
ONE_STEP: Final = "of a single {unit} the noise is not known"
UNLIKE: Final = "{one} has {many} and {other} none that could be told: whole runs are compared"
LIGHT: Final = (
    "{one} is of light mode, which knows no ops: of its steps only the data loader is told apart"
)
NOT_KNOWN: Final = "not known in {where}: its time there is in later parts"
_DTYPES: Final = (
    r"\b(?:f64|tf32|f32|f16|bf16|f8\w*|f4\w*|f6\w*|[iu](?:64|32|16|8|4)|bool|c32|c64|c128)\["
)


@dataclass
class Difference:
    """The tables of two reduced profiles; each is made when it is first used."""

    a: Reduced
    b: Reduced
    #: Why whole runs are compared although one of them has steps, or why only parts are compared that are
    #: known of both.
    told: str | None = None

    @property
    def whole(self) -> bool:
        """Whether whole runs are compared, not steps."""
        return self.a.unit == RUN

    @property
    def lacks(self) -> list[str]:
        """The missing data of both runs, because of which no op gets a verdict."""
        return [f"{name}: {one.lacks}" for name, one in (("A", self.a), ("B", self.b)) if one.lacks]

    @staticmethod
    def unlike(a: Reduced, b: Reduced) -> str:
        """Return why the steps are not compared if only one of two profiles has any."""
        run_side, other, reduced = ("B", "A", b) if a.unit == RUN else ("A", "B", a)
        extent = f"{reduced.many:,} {reduced.unit}s"
        return UNLIKE.format(one=run_side, other=other, many=extent)

    @once
    def matched(self) -> Matched:
        """The matching of ops."""
        other = bool(self.a.frameworks and self.b.frameworks) and (
            self.a.frameworks != self.b.frameworks
        )
        found = match(self.a.keys, self.b.keys, other)
        return join_by_name(found, self.a, self.b)

    @once
    def step(self) -> pl.DataFrame:
        """One row (``STEP``): the mean step of both, with the noise."""
        sides = [lengths(side) for side in (self.a, self.b)]
        row = {
            "unit": self.a.unit if self.a.unit == self.b.unit else "step",
            "steps_a": int(self.a.units["steps"].sum()),
            "steps_b": int(self.b.units["steps"].sum()),
        }
        reasons = [side.reason for side in (self.a, self.b) if side.reason is not None]
        if reasons:
            return pl.DataFrame([row | {"reason": reasons[0]}], schema=STEP)
        a, b = (
            int(lengths["time"].sum()) // side.many
            for side, lengths in zip((self.a, self.b), sides, strict=True)
        )
        typicals = None
        if not self.whole:
            typicals = typicals_of((self.a, self.b), [_one_group(lengths) for lengths in sides], 1)
        frame = judged(pl.DataFrame({"a": [a], "b": [b]}), typicals)
        lone = self.whole or min(samples(self.a), samples(self.b)) < 2
        reason = ONE_STEP.format(unit=row["unit"]) if lone else None
        return frame.with_columns(
            *(pl.lit(value).alias(name) for name, value in row.items()),
            _ratio(),
            pl.coalesce(pl.lit(reason, pl.String), "reason").alias("reason"),
        ).select(pl.col(name).cast(kind) for name, kind in STEP.items())

    def make(self) -> None:
        """Make all tables, two at a time: Polars releases the GIL."""
        if not self.matched.many:  # all tables need it: made here, so that no thread waits for it
            return
        with Pool(2) as pool:
            for names in (
                ("_described", "_pieces", "_work"),
                ("ops", "causes", "kernels", "parts"),
            ):
                for table_of_name in [pool.submit(getattr, self, name) for name in names]:
                    table_of_name.result()

    def _typical(self, values: Sequence[pl.DataFrame], count: int) -> list[Typical] | None:
        """Return the typical values of both runs' ``values`` (group, unit, time) in ``count`` groups. None
        for whole runs, because processes are not a sample of steps, and if kernels are missing."""
        if self.whole or self.lacks:
            return None
        return typicals_of((self.a, self.b), values, count)

    @once
    def _pieces(self) -> tuple[NDArray[np.int64], NDArray[np.int64], list[pl.DataFrame]]:
        """Part and group (NONE: the rest) of each piece, and per run the time of each unit and piece."""
        groups = (self.matched.a, self.matched.b)
        # parts only: without ops on one side, there is no matching of ops
        if not (self.a.has_ops and self.b.has_ops):
            groups = (np.full_like(groups[0], NONE), np.full_like(groups[1], NONE))
        parts = []
        for side, group in zip((self.a, self.b), groups, strict=True):
            places = _by_key(side, group)
            parts.append(
                side.spent.with_columns(
                    pl.Series("group", at(places, side.spent["key"].to_numpy()))
                )
                .group_by("part", "group", "unit")
                .agg(pl.col("time").sum())
                .sort("part", "group", "unit")
            )
        both = pl.concat(part.select("part", "group") for part in parts)
        part, group, number = pairs(both["part"].to_numpy(), both["group"].to_numpy())
        edges = [0, len(parts[0]), len(both)]
        values = [
            part.select(pl.Series("group", number[low:high].astype(np.int64)), "unit", "time")
            for part, low, high in zip(parts, edges[:-1], edges[1:], strict=True)
        ]
        return part, group, values

    @once
    def causes(self) -> pl.DataFrame:
        """One row per part and op (``CAUSES``), the largest change first; they add up to the step."""
        if not len(self.a.units) or not len(self.b.units):
            return pl.DataFrame(schema=CAUSES)
        part, group, values = self._pieces
        count = len(part)
        a, b = (
            means(_sums(side_values, count), side.many)
            for side_values, side in zip(values, (self.a, self.b), strict=True)
        )
        typicals = self._typical(values, count)
        frame = pl.DataFrame({"a": a, "b": b, "place": part, "group": group})
        hidden = self._hide[frame["place"].to_numpy()]
        frame = judged(frame, typicals, hidden=hidden, of_pieces=True).with_columns(_share())
        both = pl.Series([x and y for x, y in zip(self.a.known, self.b.known, strict=True)])
        comparable = both.gather(frame["place"])
        frame = frame.with_columns(
            pl.when(comparable).then(name).alias(name) for name in ("noise", "verdict")
        ).with_columns(
            pl.when(pl.Series(side.known).gather(frame["place"])).then(name).alias(name)
            for name, side in (("a", self.a), ("b", self.b))
        )
        names = pl.Series(self.a.parts, dtype=pl.String).gather(frame["place"])
        frame = frame.with_columns(names.alias("part"))
        described = self._described.select(*_OP, "inputs")
        return (
            with_opless(frame.with_columns(_at(described, group)), self._opless)
            .sort(_size(), "place", "group", descending=[True, False, False])
            .select(pl.col(name).cast(kind) for name, kind in CAUSES.items())
        )

    @once
    def _hide(self) -> NDArray[np.int64]:
        """Per part the time (ns) of earlier parts that only one run records: the other run may have that time
        in this part."""
        sums, before = [], 0
        for index, (x, y) in enumerate(zip(self.a.known, self.b.known, strict=True)):
            sums.append(before)
            if x != y:
                reduced = self.a if x else self.b
                mine = reduced.spent.filter(pl.col("part") == index)["time"].sum()
                before += -(-int(mine) // reduced.many)
        return np.array(sums, np.int64)

    @once
    def parts(self) -> pl.DataFrame:
        """One row per part of the step (``PARTS``), the largest change first; they add up to the step."""
        if not len(self.a.units) or not len(self.b.units):
            return pl.DataFrame(schema=PARTS)
        sums = self.causes.group_by("part").agg(pl.col("a", "b").sum())
        every = pl.DataFrame({"part": self.a.parts}, schema={"part": pl.String}).with_row_index(
            "place"
        )
        known_parts = [side.known for side in (self.a, self.b)]
        frame = every.join(sums, on="part", how="left", maintain_order="left").with_columns(
            pl.when(pl.Series(flags)).then(pl.col(name).fill_null(0)).alias(name)
            for name, flags in zip(("a", "b"), known_parts, strict=True)
        )
        sides = [
            side.spent.select(pl.col("part").alias("group"), "unit", "time")
            .group_by("group", "unit")
            .agg(pl.col("time").sum())
            for side in (self.a, self.b)
        ]
        typicals = self._typical(sides, len(self.a.parts))
        frame = judged(frame, typicals, hidden=self._hide, of_pieces=True).with_columns(_share())
        where = [
            "A and B" if not x and not y else "A" if not x else "B"
            for x, y in zip(*known_parts, strict=True)
        ]
        why = [
            None if x and y else NOT_KNOWN.format(where=side)
            for x, y, side in zip(*known_parts, where, strict=True)
        ]
        return (
            frame.with_columns(
                pl.coalesce(pl.Series(why, dtype=pl.String), "reason").alias("reason")
            )
            .sort(_size(), "place", descending=[True, False])
            .select(pl.col(name).cast(kind) for name, kind in PARTS.items())
        )

    @once
    def op_sums(self) -> pl.DataFrame:
        """One row per op and direction, all shapes and layers together (``op_sums.OP_SUMS``)."""
        if not (self.a.has_ops and self.b.has_ops):
            return pl.DataFrame(schema=OP_SUMS)
        return op_sums(self.a, self.b, self._typical, self.step["change"][0])

    @once
    def ranks(self) -> pl.DataFrame:
        """One row per rank (``rankwise.RANKS``): the change of its mean step, and its cause."""
        return rankwise.rank_table(self.a.ranked, self.b.ranked)

    @once
    def rank_steps(self) -> pl.DataFrame:
        """One row per rank and step (``rankwise.RANK_STEPS``)."""
        return rankwise.step_table(self.a.ranked, self.b.ranked)

    @once
    def op_totals(self) -> pl.DataFrame:
        """One row per op (``whole_job.OP_TOTALS``) of two runs of which one is a merged job."""
        return whole_job.op_totals(self.a.totals, self.b.totals)

    @once
    def kernel_totals(self) -> pl.DataFrame:
        """One row per kernel (``whole_job.KERNEL_TOTALS``) of two runs of which one is a merged job."""
        return whole_job.kernel_totals(self.a.totals, self.b.totals)

    @once
    def waited(self) -> Waited | None:
        """The change of communication explained by waiting for ranks; None if less than half."""
        rows = self.parts.filter(pl.col("part") == COMMUNICATION)
        change = rows["change"].sum() if len(rows) else 0
        return waited(self.a, self.b, int(change))

    @once
    def _described(self) -> pl.DataFrame:
        """Per group: its description in A and in B (columns with ``_b``), the matching rule and how the
        work differs."""
        # most groups have one key per run and need no lists
        rule = self.matched.rule
        sides = []
        for one, group in zip((self.a, self.b), (self.matched.a, self.matched.b), strict=True):
            texts = ("op", "direction", "layer", "inputs")
            keys = one.keys.select(*texts, "named").with_columns(
                pl.Series("group", group), *_worked(one)
            )
            alone = pl.Series(np.bincount(group, minlength=len(rule))[group] == 1)
            several = keys.filter(~alone)
            # work in the group by name alone says nothing about its inputs
            several = several.sort("named", "time", descending=[False, True], maintain_order=True)
            inputs = pl.col("inputs").cast(pl.String).drop_nulls().unique().sort().str.join("; ")
            joined = several.group_by("group", maintain_order=True).agg(
                pl.col(texts).first(),
                inputs.cast(pl.Categorical).alias("all"),
                (pl.col("inputs").is_null() & (~pl.col("named") | pl.col("named").all()))
                .any()
                .alias("unshaped"),
                pl.col("named").all(),
                pl.col("calls").sum(),
            )
            single = keys.filter(alone).select(
                "group",
                *texts,
                pl.col("inputs").fill_null("").alias("all"),
                pl.col("inputs").is_null().alias("unshaped"),
                "named",
                "calls",
            )
            sides.append(pl.concat([single, joined]))
        columns = ("op", "direction", "layer", "inputs", "all", "unshaped", "named", "calls")
        names = pl.Series([*(name for name, _, _ in RULES), None], dtype=pl.String)
        frame = pl.DataFrame({"group": np.arange(len(rule))}).with_columns(
            names.gather(np.where(rule < 0, len(RULES), rule).astype(np.uint32)).alias("matched")
        )
        for suffix, side in zip(("_a", "_b"), sides, strict=True):
            index = np.full(len(rule), NONE, np.int64)
            index[side["group"].to_numpy()] = np.arange(len(side))
            frame = frame.with_columns(
                column.alias(f"{column.name}{suffix}")
                for column in _at(side.select(columns), index)
            )
        other = pl.col("all_a") != pl.col("all_b")
        plain = [
            pl.when(other).then(pl.col(name).cast(pl.String)).str.replace_all(_DTYPES, "[")
            for name in ("all_a", "all_b")
        ]
        same_calls = pl.col("calls_a") * self.b.many == pl.col("calls_b") * self.a.many
        unknown = (pl.col("unshaped_a") | pl.col("unshaped_b")) & ~pl.col("named_a")
        work = (
            pl.when(pl.col("matched").is_null())
            .then(None)
            .when(pl.col("op_a") != pl.col("op_b"))
            .then(pl.lit(OTHER_OP))
            .when(other & (plain[0] == plain[1]))
            .then(pl.lit(OTHER_DTYPES))
            .when(other)
            .then(pl.lit(OTHER_SHAPES))
            .when(~same_calls)
            .then(pl.lit(OTHER_CALLS))
            .when(unknown)
            .then(None)
            .otherwise(pl.lit(SAME_WORK))
        )
        return frame.with_columns(
            work.alias("work"),
            *(
                pl.coalesce(f"{name}_a", f"{name}_b").alias(name)
                for name in ("op", "direction", "layer", "inputs")
            ),
        )

    @once
    def _work(self) -> list[pl.DataFrame]:
        """Per run: group, unit, time and calls of its device work."""
        tables = []
        for side, group in zip((self.a, self.b), (self.matched.a, self.matched.b), strict=True):
            places = _by_key(side, group)
            tables.append(
                side.work.with_columns(pl.Series("group", places[side.work["key"].to_numpy()]))
                .group_by("group", "unit")
                .agg(pl.col("time", "calls").sum())
            )
        return tables

    @once
    def ops(self) -> pl.DataFrame:
        """One row per op (``OPS``): its device time in a step; rows with a verdict first, then by change."""
        if not (self.a.has_ops and self.b.has_ops):
            return pl.DataFrame(schema=OPS)
        work, group_count = self._work, self.matched.many
        sums = [
            {name: pl.Series(_sums(side_work, group_count, name)) for name in ("time", "calls")}
            for side_work in work
        ]
        sides = (self.a, self.b)
        frame = pl.DataFrame(
            {
                "group": np.arange(group_count),
                **{
                    name: (sums_of_side["time"] + side.many // 2) // side.many
                    for name, sums_of_side, side in zip(("a", "b"), sums, sides, strict=True)
                },
                **{
                    f"calls_{name}": sums_of_side["calls"] / side.many
                    for name, sums_of_side, side in zip(("a", "b"), sums, sides, strict=True)
                },
            }
        )
        typicals = self._typical(work, group_count)
        there = frame["calls_a"] + frame["calls_b"] > 0
        # where records are missing, an op without calls may have run
        ran = (frame["calls_a"] > 0) | self.a.lost, (frame["calls_b"] > 0) | self.b.lost
        frame = judged(frame, typicals, ran, of_pieces=True)
        described = self._described.drop("group", "calls_a", "calls_b")
        frame = pl.concat([frame, described], how="horizontal").filter(there)
        frame = with_opless(frame, self._opless)
        called = pl.col("verdict").is_null() | pl.col("verdict").is_in([SAME, UNCLEAR])
        return (
            frame.with_columns(
                _ratio(),
                *(
                    pl.when(pl.col(f"{name}_b").ne_missing(pl.col(name))).then(f"{name}_b")
                    for name in ("op", "layer", "inputs")
                ),
            )
            .sort(called, _size(), "group", descending=[False, True, False])
            .select(pl.col(name).cast(kind) for name, kind in OPS.items())
        )

    @once
    def _opless(self) -> pl.DataFrame:
        return opless(self.matched, self.a, self.b)

    @once
    def kernels(self) -> pl.DataFrame:
        """One row per op with the same inputs and other kernels (``KERNELS``), by time in both runs."""
        sums = []
        for side, group in zip((self.a, self.b), (self.matched.a, self.matched.b), strict=True):
            places = _by_key(side, group)
            named = side.keys.filter("named")["key"]
            rows = side.kernels.filter(~pl.col("copy"), ~pl.col("key").is_in(named.implode()))
            rows = rows.with_columns(pl.Series("group", places[rows["key"].to_numpy()]))
            sums.append(rows.group_by("group", "name").agg(pl.col("time").sum()))
        # lists are only made for the few groups whose names differ
        marks = [
            sum_.group_by("group").agg(
                (pl.col("name").to_physical().hash() % (1 << 40)).sum(), pl.len()
            )
            for sum_ in sums
        ]
        other = marks[0].join(marks[1], on="group")
        other = other.filter(
            (pl.col("name") != pl.col("name_right")) | (pl.col("len") != pl.col("len_right"))
        )
        tables = [
            named.join(other, on="group", how="semi")
            .with_columns(pl.col("name").cast(pl.String))
            .sort("time", "name", descending=[True, False])
            .group_by("group", maintain_order=True)
            .agg(pl.col("name").alias("names"), (pl.col("time").sum() // one.many).alias("time"))
            for one, named in zip((self.a, self.b), sums, strict=True)
        ]
        both = tables[0].join(tables[1], on="group", how="inner", suffix="_b")
        both = both.filter(pl.col("names").list.sort() != pl.col("names_b").list.sort())
        alike = self._described.filter(
            pl.col("work").is_in([SAME_WORK, OTHER_CALLS]) | pl.col("work").is_null()
        )
        frame = both.join(alike, on="group", how="inner")
        return (
            frame.with_columns(
                pl.col("names").list.join("; ").alias("kernels_a"),
                pl.col("names_b").list.join("; ").alias("kernels_b"),
                pl.col("time").alias("a"),
                pl.col("time_b").alias("b"),
                (pl.col("time_b") - pl.col("time")).alias("change"),
            )
            .sort(pl.col("a") + pl.col("b"), "group", descending=[True, False])
            .select(pl.col(name).cast(kind) for name, kind in KERNELS.items())
        )

    def of_op(self, pattern: pl.Expr) -> pl.DataFrame | None:
        """Return one row (a, b, change, noise, verdict) over all ops whose name matches ``pattern``; None
        if neither run has one."""
        works, sums = [], []
        for side in (self.a, self.b):
            keys = side.keys.filter(pattern)["key"]
            mine = side.work.filter(pl.col("key").is_in(keys.implode()))
            mine = mine.group_by("unit").agg(pl.col("time").sum())
            works.append(_one_group(mine))
            sums.append(
                None if keys.is_empty() else (int(mine["time"].sum()) + side.many // 2) // side.many
            )
        if sums[0] is None and sums[1] is None:
            return None
        there = [pl.Series([sum_ is not None]) for sum_ in sums]
        frame = pl.DataFrame({"a": [sums[0] or 0], "b": [sums[1] or 0]})
        typicals = None if self.whole else typicals_of((self.a, self.b), works, 1)
        return judged(frame, typicals, (there[0], there[1]), of_pieces=True)


def compare(a: Callable[[str], Ending], b: Callable[[str], Ending]) -> Difference:
    """Return the difference of two profiles; each argument begins to reduce its profile in a requested way
    (``reduced.STEPS`` …).

    Whole runs are compared if only one of the two has steps.
    """
    with Pool(1) as pool:  # while one thread finishes the first, the second begins
        ending = pool.submit(a(STEPS))
        other = b(STEPS)()
        first = ending.result()
    if (first.unit == RUN) != (other.unit == RUN):
        unlike_text = Difference.unlike(first, other)
        return Difference(a(WHOLE)(), b(WHOLE)(), unlike_text)
    if first.parts != other.parts:
        unlike_text = LIGHT.format(one="A" if other.parts == PART_NAMES else "B")
        return Difference(a(BY_PART)(), b(BY_PART)(), unlike_text)
    if (first.totals is None) != (other.totals is None) and first.parts == PART_NAMES:
        if first.totals is None:
            first = a(TOTALS)()
        else:
            other = b(TOTALS)()
    return Difference(first, other)


def means(total: Ints, count: int) -> Ints:
    """Return whole-number means of sums over ``count``, which add up to the mean of all, rounded down.

    Each is the exact mean rounded down or up; the largest remainders are rounded up.
    """
    quotient, rest = np.divmod(total, count)
    short = int(total.sum()) // count - int(quotient.sum())
    if short:
        largest = np.argsort(-rest, kind="stable")[:short]
        quotient[largest] += 1
    return quotient


def _by_key(reduced: Reduced, group: Ints) -> Ints:
    """Return the group of each key by its number, NONE for keys without events."""
    keys = reduced.keys["key"].to_numpy()
    places = np.full(int(keys.max(initial=-1)) + 1, NONE, np.int64)
    places[keys] = group
    return places


def lengths(reduced: Reduced) -> pl.DataFrame:
    """Return unit and time (ns) of each unit."""
    return reduced.units.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("unit"),
        (pl.col("end") - pl.col("start")).alias("time"),
    )


def _one_group(values: pl.DataFrame) -> pl.DataFrame:
    return values.select(pl.lit(0, pl.Int64).alias("group"), "unit", "time")


def _sums(values: pl.DataFrame, groups: int, name: str = "time") -> Ints:
    total = np.zeros(groups, np.int64)
    np.add.at(total, values["group"].to_numpy(), values[name].to_numpy())
    return total


def _worked(reduced: Reduced) -> list[pl.Series]:
    """Return the time and calls of each key's work; for a key without any, time -1 and 0 calls."""
    keys = reduced.keys["key"].to_numpy()
    index = _by_key(reduced, np.arange(len(keys)))[reduced.work["key"].to_numpy()]
    time, calls = np.full(len(keys), NONE, np.int64), np.zeros(len(keys), np.int64)
    time[index] = 0
    np.add.at(time, index, reduced.work["time"].to_numpy())
    np.add.at(calls, index, reduced.work["calls"].to_numpy())
    return [pl.Series("time", time), pl.Series("calls", calls)]


def _at(frame: pl.DataFrame, places: Ints) -> list[pl.Series]:
    """Return the columns at the places; null where a place is NONE."""
    return [gather(column, places) for column in frame]


def _ratio() -> pl.Expr:
    """Return the change as a fraction of A; null if A is 0."""
    return pl.when(pl.col("a") > 0).then(pl.col("change") / pl.col("a")).alias("ratio")


def _share() -> pl.Expr:
    """Return the change as a fraction of the step's change; null if that is 0."""
    total = pl.col("change").sum()
    share = pl.col("change") / total + 0.0  # 0.0 for -0.0
    return pl.when(total != 0).then(share).alias("share")


def _size() -> pl.Expr:
    return pl.col("change").fill_null(0).abs()
