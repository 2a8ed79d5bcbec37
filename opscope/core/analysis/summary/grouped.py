"""Add up the totals of ops by one of their columns, with the time without an op and a running share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.grouped_table import EMPTY, WORTH, and_others, grouped
from opscope.core.analysis.ops.totals import summed_ops
from opscope.core.analysis.summary.summary_table import COMPILING, summary_facts
from opscope.core.perf.kinds import COPIES, NO_OP, OTHER, UNCLEAR_FAMILIES, UNKNOWN
from opscope.core.perf.kinds import kinds as all_kinds
from opscope.core.perf.registry import lookup
from opscope.core.question import parameters, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column, Table
from opscope.core.question.names import kernel
from opscope.core.question.record import Question, Report, View
from opscope.core.question.words import columns
from opscope.core.tables.columns import known_sum

#: The words by which totals can be added up, each with its columns of ``totals.op_totals``.
BY: Final = {
    "kind": ("kind",),
    "op": ("op", "direction"),
    "layer": ("layer",),
    "source": ("source",),
    "dtype": ("dtypes",),
    "direction": ("direction",),
}
#: Columns in which a row shows the value with most of its time, and the number of distinct values.
_USUAL: Final = {
    "kind": (),
    "op": ("inputs", "layer", "source"),
    "layer": ("op", "source"),
    "source": ("op", "layer"),
    "dtype": ("op", "layer"),
    "direction": ("op", "layer"),
}
_SUMS: Final = ("device_time", "calls", "kernels", "self_time", "cpu_time", "flops", "bytes")


def kind_totals(kinds: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kind of work, by time: kind, device_time (ns), share, running, calls, op, ops.

    ``op`` is the op with most of the kind's time (a kernel's name if no op is known), ``ops`` the number of
    distinct ops. ``kinds`` is the result of ``kinds.op_kinds``.
    """
    work = kinds.lazy().with_columns(pl.col("kind", "op", "name", "reason").cast(pl.String))
    label = pl.coalesce("op", "name", "reason").alias("op")
    by_op = (
        work.with_columns(label)
        .group_by("kind", "op")
        .agg(pl.col("device_time").sum(), known_sum("calls"))
        .sort("device_time", "op", descending=[True, False], nulls_last=True)
    )
    return _share(
        by_op.group_by("kind", maintain_order=True).agg(
            pl.col("device_time").sum(),
            known_sum("calls"),
            pl.col("op").drop_nulls().first(),
            pl.col("op").drop_nulls().n_unique().cast(pl.Int64).alias("ops"),
        ),
        ("kind",),
    ).select("kind", "device_time", "share", "running", "calls", "op", "ops")


def totals_by(
    totals: pl.DataFrame, gaps: pl.DataFrame, kinds: pl.DataFrame, by: str
) -> pl.DataFrame:
    """Return ``totals`` (``totals.op_totals``) added up by ``op`` (and direction), ``layer``, ``source``,
    ``dtype`` or ``direction``; time without an op is a row for each ``reason`` (``gaps``:
    ``totals.unattributed``).

    In the other columns (for an op its inputs, layers and source lines; otherwise the ops) a row has the
    value with most of its time; ``shapes``, ``layers``, ``sources`` and ``ops`` have the number of distinct
    values. ``kind`` is the kind of most of its time. ``share`` is of all device time, ``running`` the sum of
    the shares so far. Raises KeyError for another ``by``.
    """
    keys, usual = BY[by], _USUAL[by]
    texts = list(dict.fromkeys((*keys, *usual, "op", "direction")))
    # add up rows with equal texts first: a million ops in many layers become a few thousand rows
    alike = totals.lazy().group_by(texts).agg(map(known_sum, _SUMS)).collect()
    rows = alike.lazy().with_columns(pl.col(texts).cast(pl.String))
    rows = rows.join(_kind_of_ops(kinds), on=["op", "direction"], how="left", nulls_equal=True)
    by_time = pl.col("device_time").fill_null(0)
    summed = rows.group_by(keys).agg(map(known_sum, _SUMS))
    for name in (*usual, "kind"):
        most = (
            rows.group_by(*keys, name)
            .agg(by_time.sum().alias("weight"), pl.col("calls").sum().alias("times"))
            .sort("weight", "times", name, descending=[True, True, False], nulls_last=True)
            .group_by(keys)
            .agg(
                pl.col(name).first(),
                pl.col(name).n_unique().cast(pl.Int64).alias(_MANY[name]),
            )
        )
        summed = summed.join(most, on=keys, how="left", nulls_equal=True)
    without = gaps.lazy().select(
        pl.col("reason").cast(pl.String), pl.col("time").alias("device_time"), *_launch(gaps)
    )
    whole = pl.concat([summed, without], how="diagonal")
    counts = [_MANY[name] for name in usual]
    return _share(whole, (*keys, "reason")).select(
        *keys, "kind", *usual, *counts, "device_time", "share", "running",
        *(name for name in _SUMS if name != "device_time"), "reason",
    )  # fmt: skip


_MANY: Final = {
    "inputs": "shapes",
    "layer": "layers",
    "source": "sources",
    "op": "ops",
    "kind": "kinds",
}


def _launch(gaps: pl.DataFrame) -> list[pl.Expr]:
    """Return the numbers of kernels and copies, and of kernels, without an op."""
    kernels, copies = pl.col("kernels").cast(pl.Int64), pl.col("copies").cast(pl.Int64)
    return [(kernels + copies).alias("calls"), kernels]


def _kind_of_ops(kinds: pl.DataFrame) -> pl.LazyFrame:
    """Return the kind of most of the time of each op and direction."""
    return (
        kinds.lazy()
        .select(pl.col("op", "direction", "kind").cast(pl.String), "device_time")
        .filter(pl.col("op").is_not_null())
        .group_by("op", "direction", "kind")
        .agg(pl.col("device_time").sum())
        .sort("device_time", "kind", descending=[True, False])
        .group_by("op", "direction")
        .agg(pl.col("kind").first())
    )


def _share(frame: pl.LazyFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Return the rows by time, each with its share and the sum of shares so far; null if no time is known."""
    ordered = frame.sort(
        "device_time", *keys, descending=[True, *[False] * len(keys)], nulls_last=True
    ).collect()
    total = int(ordered["device_time"].sum())
    time = pl.col("device_time")
    is_timed = pl.lit(total > 0) & time.is_not_null()
    return ordered.with_columns(
        pl.when(is_timed).then(time / max(total, 1)).alias("share"),
        # computed from the sum of times, not of shares; exactly 1 for the last row
        pl.when(is_timed & (time.cum_sum() == total))
        .then(1.0)
        .when(is_timed)
        .then(time.cum_sum() / max(total, 1))
        .alias("running"),
    )


def answer(profile: Answers, by: str, *, layers: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Device time by kind, op, layer, source, dtype or direction; time without an op by reason.

    A row that adds up several inputs, layers, source lines or ops gives their number and shows the one
    with most of the time. ``layers`` maps layers to the names under which they are added up. Raises
    ValueError for any other ``by``.
    """
    kinds = profile.ask("kinds", categories=True)
    if by == "kind":
        return kind_totals(kinds)
    sums = summed_ops(profile)
    if layers:
        # categories here, but plain texts in a profile merged from partials
        texts = pl.col("layer").cast(pl.String).replace(layers)
        sums = sums.with_columns(texts.cast(sums.schema["layer"]))
    return totals_by(sums, profile.ask("unattributed", categories=True), kinds, by)


#: Words of this question alone: unit and meaning.
_WORDS: Final = """
running: fraction: sum of share over this row and all rows above it
shapes: count: number of different inputs of the op; the row shows the inputs with most of its time
sources: count: number of source lines; the row shows the line with most of its time
"""


#: Length, in characters, of the bar of a share of 1.
_BAR: Final = 24


_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def bar(share: object) -> str:
    """Return a share (a fraction of 1) as a bar of at most 24 characters, to an eighth of a character."""
    if not isinstance(share, float) or share <= 0:
        return ""
    full_blocks, rest = divmod(round(min(share, 1.0) * _BAR * 8), 8)
    return ("█" * full_blocks + (_EIGHTHS[rest] if rest else "")) or "▏"


def by_kind_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the kinds of work by their share of the time, each with the op that took most of its time."""
    frame = report.frame(profile)
    of = "elapsed time" if profile.cpu_only else "device time"
    total = int(frame["device_time"].sum())
    title = f"{report.title}: {units.time(total)} of {of}, by kind of work"
    keys = [
        Column("share", "share", units.share),
        Column("bar", ""),
        Column("device_time", "time", units.time),
        Column("kind", "kind"),
        Column("calls", "calls" if profile.cpu_only else "kernels", units.count, rank=4),
        Column("op", "mostly", flexible=True, rank=3, least=24, parts="words"),
    ]
    if frame.is_empty():
        return Table(report.title, keys, (), (report.no_rows,))
    shown = frame if view.first or view.top is None else frame.head(view.top)
    rows = [
        row | {"bar": bar(row["share"]), "op": and_others(kernel(row["op"]), row["ops"])}
        for row in shown.to_dicts()
    ]
    if not view.first:
        return Table(title, keys, [*rows, *_waits(profile)], _means(frame, profile.cpu_only))
    facts = summary_facts(profile) if profile.merged_of is None else []
    if view.enough:
        rows = _with_rest(rows)
    return Table(title, keys, [*rows, *_waits(profile)], sentences=facts)


#: Number of kinds on the first screen; the others share one row.
_FIRST: Final = 4


def _with_rest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the largest kinds, and the others as one row."""
    rest = rows[_FIRST:]
    if len(rest) < 2:
        return rows
    sums = {
        key: _known_total(row[key] for row in rest) for key in ("share", "device_time", "calls")
    }
    names = ", ".join(row["kind"] for row in rest)
    return [*rows[:_FIRST], sums | {"bar": bar(sums["share"]), "kind": "the rest", "op": names}]


def _known_total(values: Iterable[Any]) -> Any:
    """Return the sum; None if no value is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _waits(profile: Answers) -> list[dict[str, object]]:
    """Return a row with the waits of the device's queues, which are not part of the device time."""
    row = profile.summary().row(0, named=True)
    if not row["waits"]:
        return []
    nothing = dict.fromkeys(("share", "calls"))
    of = f"{row['waits']:,} of the device's queues: no work, in no share"
    return [nothing | {"bar": "", "device_time": row["queues_waited"], "kind": "waits", "op": of}]


def _means(frame: pl.DataFrame, on_cpu: bool) -> list[str]:
    """Return a line for each kind in ``frame`` whose name alone does not explain it.

    ``on_cpu``: times are those of ops, and a session's own time is the time between its nodes.
    """
    mostly = {row["kind"]: row["op"] for row in frame.to_dicts() if row["share"] >= WORTH}
    means = {name: all_kinds()[name].means for name in (COPIES, OTHER, UNKNOWN, NO_OP)}
    if mostly.get(NO_OP) == COMPILING:
        means[NO_OP] = means[NO_OP].replace("Python,", "the compiling of programs, Python,")
    entry = lookup(str(mostly.get(UNKNOWN))) if on_cpu else None
    if entry is not None and entry.family in UNCLEAR_FAMILIES:
        means[UNKNOWN] += f"; {mostly[UNKNOWN]}: what passes there between the ops that it runs"
    return [f"{name}: {text}" for name, text in means.items() if name in mostly]


def _totals(by: str, row: str, keys: str) -> Frame:
    return Frame(
        f'totals_by("{by}")',
        f"one row per {row}, by device time; time without an op is one row per reason",
        columns(
            f"{keys} device_time share running calls kernels self_time cpu_time flops bytes reason",
            _WORDS,
        ),
    )


def _report(by: str, title: str, shown: str) -> Report:
    return Report(
        name=f"by_{by}",
        title=title,
        empty=EMPTY,
        asked={"by": by},
        shown=shown,
        table=grouped,
        by=by,
        lean=True,
    )


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            'totals_by("kind")',
            "one row per kind of work, by device time",
            columns(
                "kind device_time share running calls op ops",
                _WORDS,
                """
                calls: count: kernels; without a GPU, calls of the ops
                op: text: the op with most of the row's time; a kernel's name or a reason if no op is
                    known
                """,
            ),
        ),
        _totals(
            "op", "op and direction", "op direction kind inputs layer source shapes layers sources"
        ),
        _totals("layer", "layer", "layer kind op source ops sources"),
        _totals("source", "source line", "source kind op layer ops layers"),
        _totals("dtype", "set of dtypes", "dtypes kind op layer ops layers"),
        _totals(
            "direction", "direction (forward, backward …)", "direction kind op layer ops layers"
        ),
    ),
    parameters={
        "by": parameters.choice("what a row is", BY),
        "layers": parameters.value("the names under which layers are added up"),
    },
    kept=False,
    as_text=False,
    reports=(
        Report(
            name="by_kind",
            title="Where the time went",
            empty="not known: no kernels were recorded, nor ops of a run without a GPU",
            asked={"by": "kind"},
            table=by_kind_table,
            by="kind",
            lean=True,
        ),
        _report("op", "Top ops, all shapes of each together", "op kind inputs layer flops source"),
        _report("layer", "Top layers", "layer kind op flops source"),
        _report("source", "Top source lines", "source kind op layer flops"),
        _report("dtype", "Top dtypes", "dtypes kind op layer flops"),
        _report("direction", "Forward, backward, optimizer", "direction kind op layer flops"),
    ),
)
