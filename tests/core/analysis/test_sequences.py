"""Sequences of kernels: found, disjoint, maximal; and those of an op."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.sequences import JOINT, apart
from tests.device_traces import OP, Ran, profiled


def running(text: str, stream: int = 7, length: int = 2, gap: int = 1) -> list[Ran]:
    """Return one kernel a letter, one after the other; a space is a longer pause on the stream."""
    return [
        Ran(place * (length + gap), place * (length + gap) + length, name=name, stream=stream)
        for place, name in enumerate(text)
    ]


def found(profile, **how) -> list[tuple[str, int]]:
    rows = profile.sequences(**how).select("kernel_sequence", "occurrences").rows()
    return [("".join(text.split(JOINT)), many) for text, many in rows]


def test_a_sequence_that_comes_again_is_found_whole():
    profile = profiled(running("xabcyabczabc"))
    assert found(profile) == [("abc", 3)]
    row = profile.sequences().row(0, named=True)
    assert (row["sequence_length"], row["total"], row["between_time"]) == (3, 18, 6)
    assert row["share"] == pytest.approx(18 / 24)


def test_a_part_that_also_comes_alone_has_those_occurrences_only():
    assert found(profiled(running("abcuabcvabcwabcxabcyabzab"))) == [("abc", 5), ("ab", 2)]


def test_occurrences_of_a_kernel_that_repeats_do_not_overlap():
    assert found(profiled(running("aaaaaaa")), longest=2) == [("aa", 3)]


def test_a_sequence_stays_on_one_stream():
    left, right = running("abab"), running("cdcd", stream=9)
    assert sorted(found(profiled(left + right))) == [("ab", 2), ("cd", 2)]


def test_a_sequence_stays_in_one_layer_and_direction():
    def op(name: str, number: int, direction: str) -> dict:
        return {
            **OP,
            "category": direction,
            "text": f"{name}()",
            "start": 10 * number,
            "end": 10 * number + 9,
        }

    ranges, work = [], []
    for number, name in enumerate("abcabc"):
        ranges.append(op(name, number, "backward" if name == "c" else "forward"))
        work.append(Ran(100 + 5 * number, 103 + 5 * number, 10 * number + 1, name=name))
    assert found(profiled(work, ranges=ranges)) == [("ab", 2)]


def test_copies_and_sets_are_part_of_sequences():
    work = [Ran(0, 1), Ran(1, 2, kind="HtoD"), Ran(2, 3, kind="memset")] * 1
    again = [Ran(one.start + 10, one.end + 10, kind=one.kind) for one in work]
    rows = profiled(work + again).sequences()["kernel_sequence"].to_list()
    assert rows == ["k | copy HtoD | memset"]


def test_no_kernels_no_sequences():
    assert profiled([]).sequences().is_empty()
    assert profiled(running("a")).sequences().is_empty()
    assert profiled(running("abcdef")).sequences().is_empty()


@given(st.text("abc", max_size=40), st.integers(2, 6))
def test_sequences_are_disjoint_and_repeated_and_no_pair_that_repeats_is_missed(text, longest):
    profile = profiled(running(text))
    rows = found(profile, longest=longest)
    assert sum(len(sequence) * many for sequence, many in rows) <= len(text)
    for sequence, many in rows:
        assert 2 <= len(sequence) <= longest
        assert 2 <= many <= text.count(sequence) or many <= greedy(text, sequence)
    repeats = any(greedy(text, text[at : at + 2]) >= 2 for at in range(len(text) - 1))
    assert bool(rows) == repeats
    frame = profile.sequences(longest=longest)
    assert frame["total"].to_list() == sorted(frame["total"], reverse=True)


def greedy(text: str, part: str) -> int:
    """Return how often ``part`` lies in ``text`` without overlap: str.count takes them from the left."""
    return text.count(part)


@given(st.lists(st.integers(0, 60), unique=True, max_size=20), st.integers(1, 9))
def test_places_apart_are_those_that_one_takes_from_the_left(places, length):
    ordered = np.array(sorted(places), np.int64)
    taken: list[int] = []
    for place in ordered.tolist():
        if not taken or place - taken[-1] >= length:
            taken.append(place)
    assert apart(ordered, length).tolist() == taken


def ops(*spans: tuple[str, int, int]) -> list[dict]:
    return [{**OP, "text": f"{name}()", "start": start, "end": end} for name, start, end in spans]


def test_the_outermost_op_has_all_kernels_inside_it():
    ranges = ops(("linear", 0, 10), ("addmm", 1, 9), ("linear", 20, 30), ("addmm", 21, 29))
    work = []
    for begin in (0, 20):
        for number, name in enumerate("ab"):
            work.append(
                Ran(begin + 40 + 3 * number, begin + 42 + 3 * number, begin + 2 + number, name=name)
            )
    profile = profiled(work, ranges=ranges)
    wanted = [("linear", "a | b", 2, 2, 8, 20)]
    assert profile.op_sequences().rows() == wanted
    assert profile.op_sequences("lin").rows() == wanted
    assert profile.op_sequences("addmm").rows() == [("addmm", "a | b", 2, 2, 8, 16)]
    assert profile.op_sequences("conv").is_empty()
    assert profile.op_sequences(least=3).is_empty()


def test_an_op_inside_one_of_its_name_counts_with_the_outer_one():
    ranges = ops(("to_linear", 0, 30), ("linear", 1, 9), ("linear", 11, 19))
    work = [Ran(40, 42, 2, name="a"), Ran(50, 52, 12, name="b")]
    frame = profiled(work, ranges=ranges).op_sequences("linear")
    assert frame.select("op", "occurrences").rows() == [("to_linear", 1)]


def test_the_sequences_of_all_ops_have_all_kernels_that_have_an_op():
    ranges = ops(("x", 0, 10), ("y", 20, 30))
    work = [Ran(40, 45, 2), Ran(46, 49, 22), Ran(60, 61)]
    profile = profiled(work, ranges=ranges)
    known = profile.kernels().filter(pl.col("op_id").is_not_null())["duration"].sum()
    assert profile.op_sequences(least=1)["total"].sum() == known == 8
