"""The marked steps of a profile; unlike ``steps()``, without the cost of splitting up an unmarked run."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answers
from opscope.core.analysis.steps import steps
from opscope.core.tables.interpret import ROLE

_TEXTS: Final = ("unknown", "reason")
_FLAGS: Final = ("slow", "warm_up")


def marked_steps(answers: Answers) -> pl.DataFrame:
    """Return the rows of ``steps()`` that are steps: those with a number. Times in ns. If no range is a step,
    there are none, and ``steps()`` is not called: its single row, for the whole run, costs 1.6 s of CPU for a
    million kernels."""
    has_ranges = "ranges" in answers.trace.tables  # a merged profile has its steps and no ranges
    if has_ranges and not (answers.attribution.meaning.role == ROLE["step"]).any():
        return pl.DataFrame(schema={name: _kind(name) for name in steps.COLUMNS})
    return answers.steps().filter(pl.col("step").is_not_null())


def _kind(column: str) -> type[pl.DataType]:
    if column in _TEXTS:
        return pl.String
    if column in _FLAGS:
        return pl.Boolean
    return pl.Int32 if column in ("process", "rank") else pl.Int64
