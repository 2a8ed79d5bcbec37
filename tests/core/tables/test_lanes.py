"""Places of kernels are numbered piece by piece as a group of all rows would number them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from opscope.core.tables import columns
from opscope.core.tables.lanes import numbered_by, rows_of


@pytest.mark.parametrize(("many", "values"), [(0, 1), (9, 1), (10, 2), (1000, 700), (4000, 3)])
def test_places_are_numbered_as_by_one_group(monkeypatch, many, values):
    monkeypatch.setattr(columns, "PIECE", 100)
    random = np.random.default_rng(many)
    frame = pl.DataFrame(
        {"a": random.integers(0, values, many), "b": random.integers(0, 2, many)}
    ).with_columns(pl.when(pl.col("b") > 0).then("a").alias("c"))
    whole = frame.with_row_index("row").group_by("b", "c", maintain_order=True).agg("row")

    keys, of = numbered_by(frame, ("b", "c"))

    assert keys == whole.select("b", "c").rows()
    found = {keys[number]: rows.tolist() for number, rows in rows_of(len(keys), of)}
    assert found == {(b, c): rows for b, c, rows in whole.rows()}
