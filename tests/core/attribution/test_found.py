"""What the stored rules found: with it a trace is attributed as without it, and what cannot be of it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from opscope import readers
from opscope.core.attribution.attribute import Attribution, attribute
from opscope.core.attribution.found import NAMES, Found, Unfit
from opscope.core.attribution.known import Launched
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput

from .test_rules import MADE


def again(trace: Trace, whole: Attribution) -> Attribution:
    """Attribute ``trace`` with the tables of what was found, as a file of them would give them back."""
    return attribute(trace, Found.of_tables(whole.found.tables(), trace))


def assert_equal(one: Attribution, other: Attribution) -> None:
    for name in ("kernels", "memops"):
        for column in Launched.__dataclass_fields__:
            ours, theirs = (
                getattr(getattr(one, name), column),
                getattr(getattr(other, name), column),
            )
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs), (name, column)
    for column in ("is_op", "parent"):
        ours, theirs = getattr(one, column), getattr(other, column)
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs), column
    for name in one.trace.tables:
        assert one.trace[name].equals(other.trace[name]), name
    assert one.meaning.readings == other.meaning.readings
    assert one.meaning.texts == other.meaning.texts
    assert np.array_equal(one.meaning.reading, other.meaning.reading)
    assert one.meaning.seq.column.equals(other.meaning.seq.column)
    assert one.meaning.fwd_thread.column.equals(other.meaning.fwd_thread.column)


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_with_what_was_found_the_result_is_the_same(made, trace_of):
    whole = attribute(trace_of(**made()))
    assert_equal(again(trace_of(**made()), whole), whole)


@pytest.mark.parametrize(
    "folder",
    ["dlprof", "kineto", "mindspore", "nsys", "nsys_more", "nvprof", "onnxruntime", "rocm", "tensorrt", "xplane"],
)  # fmt: skip
def test_with_what_was_found_real_traces_give_the_same(folder, shared: Path):
    done = 0
    for path in sorted((shared / folder).rglob("*")):
        try:
            first, second = (readers.open(path) for _ in range(2))
        except (BadInput, OSError):
            continue  # no trace: a table beside one, a source file
        whole = attribute(first)
        assert_equal(again(second, whole), whole)
        done += len(whole.kernels.op) + len(whole.trace["ranges"]) > 0
    assert done


def changed(frame: pl.DataFrame, column: str, row: int, value: object) -> pl.DataFrame:
    values = frame[column].to_list()
    values[row] = value
    return frame.with_columns(pl.Series(column, values, frame.schema[column]))


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("launched_kernels", "call", 10**6),
        ("launched_kernels", "call", -2),
        ("launched_kernels", "op", 10**6),
        ("launched_kernels", "op", -2),
        ("launched_kernels", "reason", 200),
        ("launched_kernels", "reason", 1),
        ("launched_kernels", "replay", 10**6),
        ("launched_kernels", "op", None),
        ("launched_memops", "op", 10**6),
        ("enclosing_ops", "parent", 10**6),
        ("enclosing_ops", "parent", -2),
    ],
)
def test_what_cannot_be_of_the_trace_is_refused(table, column, value, trace_of):
    trace = trace_of(**MADE[0]())
    tables = attribute(trace).found.tables()
    tables[table] = changed(tables[table], column, 0, value)
    with pytest.raises(Unfit):
        attribute(trace, Found.of_tables(tables, trace))


@pytest.mark.parametrize("table", NAMES)
def test_other_columns_are_refused(table, trace_of):
    trace = trace_of(**MADE[0]())
    tables = attribute(trace).found.tables()
    for other in (
        tables[table].drop(tables[table].columns[0]),
        tables[table].with_columns(more=pl.lit(1)),
        tables[table].with_columns(pl.lit(0.5).alias(tables[table].columns[0])),
    ):
        with pytest.raises(Unfit):
            Found.of_tables({**tables, table: other}, trace)


@pytest.mark.parametrize("table", ["launched_kernels", "launched_memops", "enclosing_ops"])
def test_another_number_of_rows_is_refused(table, trace_of):
    trace = trace_of(**MADE[0]())
    tables = attribute(trace).found.tables()
    tables[table] = pl.concat([tables[table], tables[table].head(1)])
    with pytest.raises(Unfit):
        attribute(trace, Found.of_tables(tables, trace))


def test_ops_that_enclose_each_other_are_refused(trace_of):
    trace = trace_of(**MADE[0]())
    tables = attribute(trace).found.tables()
    ops = np.flatnonzero(attribute(trace).is_op)[:2]
    circle = tables["enclosing_ops"]
    for one, other in (ops, ops[::-1]):
        circle = changed(circle, "parent", int(one), int(other))
    with pytest.raises(Unfit, match="circle"):
        attribute(trace, Found.of_tables({**tables, "enclosing_ops": circle}, trace))
