"""MindSpore's operator statistics for every framework: operator types, operators, and kernel activities."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.executed import kernel_executions
from opscope.core.analysis.ops.grouped_table import EMPTY
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import known_sum, matching

#: The things that the statistics can count, each with the columns that distinguish its rows.
BY: Final = {
    "type": ("op",),
    "operator": ("op", "direction", "layer", "operator"),
}
#: The columns in which ``search`` looks for a text.
_SEARCHED: Final = ("op", "op_type", "layer", "operator", "name", "params")
#: The parameter with the full name of a prepared graph's node, such as MindSpore's.
_NODE: Final = r'(?:^|, )node="((?:[^"\\]|\\.)*)"'


#: The columns of ``sums`` that are needed.
NEEDED: Final = ("op", "op_type", "direction", "layer", "params", "calls", "device_time")


def operator_statistics(sums: pl.DataFrame, gaps: pl.DataFrame, by: str) -> pl.DataFrame:
    """Return one row per ``type`` (an op's name) or ``operator`` (an op at one place of the program);
    device time without an op is one row per reason.

    ``sums``: rows as of ``totals.op_sums``; ``gaps``: rows of ``totals.unattributed``. An operator's place is
    its layer and direction, and in a prepared graph its node. ``mean`` is of the calls whose device time is
    known. Raises KeyError for another ``by``. Times in ns.
    """
    keys = BY[by]
    is_timed = pl.col("device_time").is_not_null()
    # merge first: a million ops with a million shapes become few rows before their texts are read
    alike = ("op", "op_type", "direction", "layer", "params")
    fewer = (
        sums.lazy()
        .group_by(alike)
        .agg(
            pl.col("calls").sum(),
            pl.col("calls").filter(is_timed).sum().alias("timed"),
            known_sum("device_time").alias("total"),
        )
    )
    named = fewer.with_columns(
        pl.col(alike).cast(pl.String),
        pl.col("params").cast(pl.String).str.extract(_NODE).alias("operator"),
    )
    # \0 is in no name
    location = pl.concat_str(pl.col(name).fill_null("\0") for name in BY["operator"])
    totals = named.group_by(keys).agg(
        pl.col("op_type").drop_nulls().first(),
        pl.col("calls").sum().cast(pl.Int64),
        pl.col("timed").sum(),
        known_sum("total"),
        location.n_unique().cast(pl.Int64).alias("operators"),
    )
    without = gaps.lazy().select(
        pl.col("reason").cast(pl.String),
        (pl.col("kernels") + pl.col("copies")).cast(pl.Int64).alias("calls"),
        pl.col("time").cast(pl.Int64).alias("total"),
        (pl.col("kernels") + pl.col("copies")).alias("timed"),
    )
    counted = ("operators",) if by == "type" else ()
    return (
        pl.concat([totals, without], how="diagonal_relaxed")
        .with_columns(
            (pl.col("total") / pl.col("timed").replace(0, None)).alias("mean"),
            (pl.col("total") / pl.col("total").sum().replace(0, None)).alias("share"),
        )
        .sort(
            "total", *keys, "reason", descending=[True, *[False] * (len(keys) + 1)], nulls_last=True
        )
        .select(*keys, "op_type", "calls", "total", "mean", "share", *counted, "reason")
        .collect()
    )


def kernel_activities(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kernel and op that launched it, by time: name, op, calls, total, mean, max, min
    (ns), share of all kernel time. ``kernels``: ``executed.executed_kernels``."""
    duration = pl.col("duration")
    return (
        kernels.lazy()
        .group_by("name", "op")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            duration.sum().alias("total"),
            duration.mean().alias("mean"),
            duration.max().alias("max"),
            duration.min().alias("min"),
        )
        .with_columns(
            pl.col("name", "op").cast(pl.String),
            (pl.col("total") / pl.col("total").sum().replace(0, None)).alias("share"),
        )
        .sort("total", "name", "op", descending=[True, False, False], nulls_last=True)
        .collect()
    )


def having(frame: pl.DataFrame, text: str) -> pl.DataFrame:
    """Return the rows whose op, type, layer or other names contain this text, ignoring case.

    In a Categorical column, each distinct text is tested once.
    """
    pattern = f"(?i){re.escape(text)}"
    is_match = np.zeros(len(frame), bool)
    for name in _SEARCHED:
        if name in frame.columns:
            is_match |= matching(frame[name].cast(pl.Categorical), pattern)
    return frame.filter(pl.Series(is_match))


def answer(profile: Answers, by: str = "type", *, search: str | None = None) -> pl.DataFrame:
    """MindSpore's operator statistics: by ``type`` (op name) or ``operator`` (op at one place), by time.

    The time of a nest is at the op that counts, as in ``op_totals()``. ``search`` keeps the rows whose
    op, family, layer or node contains this text, ignoring case; shares stay shares of the whole. Raises
    ValueError for any other ``by``.
    """
    frame = profile._frame(
        f"operator_statistics {by}",
        lambda: operator_statistics(
            summed_columns(profile, NEEDED), profile.ask("unattributed", categories=True), by
        ),
    )
    return frame if search is None else having(frame, search)


#: Words of this question alone: unit and meaning.
_WORDS: Final = """
operator: text: full name of the node, if it is one of a prepared graph; else null
operators: count: number of different operators: an op's layers, directions and nodes
"""


def answer_kernels(profile: Answers, *, search: str | None = None) -> pl.DataFrame:
    """MindSpore's kernel activities: kernels by name and the op that launched them, by time.

    ``search`` keeps the rows whose kernel or op contains this text, ignoring case.
    """
    frame = profile._frame(
        "kernel_activities", lambda: kernel_activities(profile.of(kernel_executions))
    )
    return frame if search is None else having(frame, search)


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                'operator_statistics("type")',
                "one row per op name, by time; time without an op is one row per reason",
                columns(
                    "op op_type calls total mean share operators reason",
                    _WORDS,
                    """
                    op: text: the op's name
                    total: ns: device time of all calls, a nest's at the op that counts; without a GPU,
                        self time
                    mean: ns: mean device time of one call
                    """,
                ),
            ),
            Frame(
                'operator_statistics("operator")',
                (
                    "one row per op, direction, layer and node, by time; time without an op is one row "
                    "per reason"
                ),
                columns(
                    "op direction layer operator op_type calls total mean share reason",
                    _WORDS,
                    """
                    op: text: the op's name
                    total: ns: device time of all calls, a nest's at the op that counts; without a GPU,
                        self time
                    mean: ns: mean device time of one call
                    """,
                ),
            ),
        ),
        parameters={
            "by": parameters.choice("what a row is", BY),
            "search": parameters.text("only rows that have this text"),
        },
        kept=False,
        reports=(
            Report(
                name="operator_types",
                title="Operator types",
                empty=EMPTY,
                asked={"by": "type"},
                shown="share total mean calls op op_type operators reason",
                lean=True,
            ),
            Report(
                name="operator_names",
                title="Operators, one row per place in the program",
                empty=EMPTY,
                asked={"by": "operator"},
                shown="share total mean calls op direction layer operator reason",
                written=False,
                lean=True,
            ),
        ),
    ),
    Question(
        answer=answer_kernels,
        frames=(
            Frame(
                "kernel_activities()",
                "one row per kernel name and op that launched it, by time",
                columns(
                    "name op calls total mean max min share",
                    """
                    op: text: the op that launched it
                    """,
                ),
            ),
        ),
        parameters={"search": parameters.text("only rows that have this text")},
        merged=lacking.MEDIANS,
        kept=False,
        reports=(
            Report(
                name="kernel_activities",
                title="Kernels by the op that launched them",
                empty="no kernels in this profile: no GPU was used, or kernels were not captured",
                shown="share total mean max min calls name op",
                gpu_only=True,
                lean=True,
            ),
        ),
    ),
)
