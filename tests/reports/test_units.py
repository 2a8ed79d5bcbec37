"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.question import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_345, "12.3 µs"),
        (999_999, "1.00 ms"),
        (4_560_000, "4.56 ms"),
        (78_900_000_000, "78.9 s"),
        (5_000_000_000_000, "5000 s"),
    ],
)
def test_times(ns, text):
    assert units.time(ns) == text


def test_flop_and_bytes_are_decimal():
    assert units.flop(1_234_000_000) == "1.23 GFLOP"
    assert units.size(2_500_000) == "2.50 MB"
    assert units.flop(0) == "0 FLOP"


@pytest.mark.parametrize(
    "show", [units.time, units.flop, units.size, units.share, units.count, units.text]
)
def test_the_unknown_is_a_dash_and_never_a_number(show):
    assert show(None) == units.UNKNOWN
    assert show(math.nan) == units.UNKNOWN


def test_a_share_never_claims_all_or_nothing_by_rounding():
    assert units.share(1.0) == "100.0 %"
    assert units.share(0.99999) == ">99.9 %"
    assert units.share(0.00001) == "<0.1 %"
    assert units.share(0.0) == units.share(-0.0) == "0.0 %"
    assert units.share(-1.0) == "-100.0 %"
    assert units.share(-0.99999) == "<-99.9 %"
    assert units.share(-0.00001) == ">-0.1 %"


@given(st.floats(min_value=0, max_value=1e18, allow_nan=False))
def test_a_time_read_back_is_right_to_three_digits(ns):
    number, unit = units.time(ns).split()
    back = float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert back == pytest.approx(ns, rel=0.0051, abs=0.51)


@given(st.text())
def test_no_text_can_drive_a_terminal(text):
    assert units.text(text).isprintable()


@given(st.integers(-(2**63), 2**64))
def test_a_whole_number_keeps_all_its_digits(number):
    assert int(units.count(number).replace(",", "")) == number


def test_numbers_of_things_and_articles_are_english():
    assert [units.counted(n, "step") for n in (0, 1, 2, 1234)] == [
        "0 steps",
        "1 step",
        "2 steps",
        "1,234 steps",
    ]
    assert [units.counted(n, "launch", "launches") for n in (1, 2)] == ["1 launch", "2 launches"]
    assert [units.with_article(noun) for noun in ("step", "iteration", "run")] == [
        "a step",
        "an iteration",
        "a run",
    ]
