"""The trace's tables."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.tables.trace import conform, table_schema


@pytest.mark.parametrize(
    "frame", [pl.DataFrame(), pl.DataFrame({"process": []}, {"process": pl.Int32})]
)
def test_a_table_of_nothing_has_no_rows(frame: pl.DataFrame) -> None:
    assert conform("counters", frame).shape == (0, len(table_schema("counters")))
