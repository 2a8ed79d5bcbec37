"""Lengths of kernels: every kernel is in one range of them, and short ones are told apart."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.short_kernels import (
    BOUNDS,
    kernel_lengths,
    length_sums,
    short_kernels,
)


def kernels(rows: list[tuple[str, str | None, int]]) -> pl.DataFrame:
    return pl.DataFrame(
        rows,
        schema={"name": pl.Categorical, "op": pl.Categorical, "duration": pl.Int64},
        orient="row",
    )


def test_lengths_are_counted_in_ranges_of_one_two_five():
    frame = kernels([("k", None, each) for each in (0, 999, 1_000, 1_999, 4_999, 5_000, 10**9)])
    rows = kernel_lengths(length_sums(frame)).select("at_least", "below", "calls", "total").rows()
    assert rows == [
        (0, 1_000, 2, 999),
        (1_000, 2_000, 2, 2_999),
        (2_000, 5_000, 1, 4_999),
        (5_000, 10_000, 1, 5_000),
        *(
            (low, high, 0, 0)
            for low, high in pairwise([10_000, *(at for at in BOUNDS if at > 10_000)])
        ),
        (100_000_000, None, 1, 10**9),
    ]


@given(st.lists(st.integers(0, 3 * 10**8), max_size=30))
def test_every_kernel_is_in_one_range(durations):
    found = kernel_lengths(length_sums(kernels([("k", None, each) for each in durations])))
    assert found["calls"].sum() == len(durations)
    assert found["total"].sum() == sum(durations)
    for low, high, many in found.select("at_least", "below", "calls").rows():
        assert low in (0, *BOUNDS)
        assert many == sum(low <= each < (high or 1 << 62) for each in durations)
    # no range between the shortest and the longest is missing
    assert found["below"][:-1].to_list() == found["at_least"][1:].to_list()
    if durations:
        assert found["calls"][0] > 0 < found["calls"][-1]
        assert found["calls_running"][-1] == pytest.approx(1)
        assert found["calls_share"].sum() == pytest.approx(1)


def test_short_kernels_are_those_below_the_length_and_no_others():
    frame = kernels(
        [("a", "mm", 9_999), ("a", "mm", 30_000), ("b", "add", 10_000), ("c", "mul", 1),
         ("a", "add", 5), ("a", "add", 6)]
    )  # fmt: skip
    found = short_kernels(frame)
    assert found.select(
        "name", "op", "ops", "calls", "short", "short_share", "short_time", "total"
    ).rows() == [
        ("a", "add", 2, 4, 3, 0.75, 10_010, 40_010),
        ("c", "mul", 1, 1, 1, 1.0, 1, 1),
    ]
    assert found["share"].to_list() == pytest.approx([10_010 / 50_011, 1 / 50_011])
    assert short_kernels(frame, below=2)["name"].to_list() == ["c"]
    assert short_kernels(frame, below=1).is_empty()


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none(), st.integers(0, 20_000)), max_size=30),
    st.integers(1, 20_000),
)
def test_all_short_kernels_are_counted_once(rows, below):
    found = short_kernels(kernels(rows), below)
    short = [each for *_, each in rows if each < below]
    assert (found["short"].sum(), found["short_time"].sum()) == (len(short), sum(short))
