"""Rows of ``kernel_totals`` that are equal: their order and op do not depend on what ran first."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.analysis.ops.totals import kernel_totals


def sums(rows):
    """Rows of (kernel, op, calls, total)."""
    return pl.DataFrame(
        [
            {"name": name, "op": op, "calls": calls, "total": total, "min": 1, "max": total,
             "tensor_core": None, "flops": None, "bytes": None}
            for name, op, calls, total in rows
        ],
        schema={"name": pl.Categorical, "op": pl.Categorical, "calls": pl.Int64, "total": pl.Int64,
                "min": pl.Int64, "max": pl.Int64, "tensor_core": pl.Boolean, "flops": pl.Int64,
                "bytes": pl.Int64},
    )  # fmt: skip


ROWS = [("z", "mul", 2, 10), ("b", "late", 3, 20), ("b", "early", 3, 20), ("b", "slow", 3, 25),
        ("b", None, 9, 5), ("a", "sub", 2, 70), ("y", "two", 1, 10), ("y", "one", 1, 10)]  # fmt: skip


@pytest.mark.parametrize("rows", [ROWS, ROWS[::-1], ROWS[3:] + ROWS[:3]])
def test_ties_are_broken_by_calls_time_and_name(rows):
    found = kernel_totals(sums(rows)).select("name", "total", "op").rows()
    assert found == [("a", 70, "sub"), ("b", 70, "slow"), ("y", 20, "one"), ("z", 10, "mul")]
