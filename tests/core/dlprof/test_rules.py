"""DLProf's rules: flattening is a union, accumulating a sum, and the wall clock is divided exactly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.dlprof import rules
from opscope.core.tables.intervals import merge, union_length

TIMES = st.integers(0, 60)
SPANS = st.lists(st.tuples(TIMES, st.integers(0, 20)), max_size=12)
GROUPED = st.lists(st.tuples(st.integers(-1, 4), TIMES, st.integers(0, 20)), max_size=30)


def arrays(spans):
    start = np.array([one for one, _ in spans], np.int64)
    return start, start + np.array([length for _, length in spans], np.int64)


def covered(spans):
    """The instants in which a span is open, counted one by one."""
    return {time for start, length in spans for time in range(start, start + length)}


@given(GROUPED)
def test_flattened_time_is_the_union_and_accumulated_time_the_sum_of_each_group(rows):
    group = np.array([one for one, _, _ in rows], np.int64)
    start, end = arrays([(first, length) for _, first, length in rows])
    found = rules.grouped_time(group, start, end, 5)
    for number in range(5):
        mine = [(first, length) for one, first, length in rows if one == number]
        assert found.flattened[number] == len(covered(mine))
        assert found.accumulated[number] == sum(length for _, length in mine)
        whole = (
            max(first + length for first, length in mine) - min(first for first, _ in mine)
            if mine
            else 0
        )
        assert found.spanned[number] == whole
        assert found.idle[number] == whole - len(covered(mine))


@given(GROUPED)
def test_flattened_is_at_most_accumulated_and_at_most_spanned(rows):
    group = np.array([one for one, _, _ in rows], np.int64)
    start, end = arrays([(first, length) for _, first, length in rows])
    found = rules.grouped_time(group, start, end, 5)
    assert (found.flattened <= found.accumulated).all()
    assert (found.flattened <= found.spanned).all()
    assert (found.idle >= 0).all()


@given(GROUPED, st.randoms())
def test_the_order_of_intervals_does_not_matter(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    results = []
    for one in (rows, shuffled):
        group = np.array([number for number, _, _ in one], np.int64)
        found = rules.grouped_time(group, *arrays([(a, b) for _, a, b in one]), 5)
        results.append([found.flattened, found.accumulated, found.spanned])
    assert np.array_equal(*results)


@given(GROUPED)
def test_flattening_what_is_flattened_changes_nothing(rows):
    start, end = merge(*arrays([(a, b) for _, a, b in rows]))
    found = rules.grouped_time(np.zeros(len(start), np.int64), start, end, 1)
    assert found.flattened[0] == found.accumulated[0] == union_length(start, end)


@given(SPANS, SPANS, SPANS, SPANS, SPANS)
def test_the_parts_of_the_wall_clock_add_up_to_it(within, tensor, kernels, memory, cpu):
    found = rules.usage(
        arrays(within), arrays(tensor), arrays(kernels), arrays(memory),
        rules.NOTHING, rules.NOTHING, arrays(cpu),
    )  # fmt: skip
    left = covered(within)
    for part, spans in (
        (found.tensor_core, tensor),
        (found.other_kernels, kernels),
        (found.memory, memory),
        (found.cpu, cpu),
    ):
        assert part == len(left & covered(spans))
        left -= covered(spans)
    assert found.other == len(left)
    assert found.dataloader == found.io == 0


@given(SPANS, SPANS)
def test_the_busy_share_is_of_the_time_within(within, spans):
    found = rules.busy_share(arrays(within), arrays(spans))
    whole = covered(within)
    assert found == (len(whole & covered(spans)) / len(whole) if whole else None)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1))
def test_cpu_overhead_is_never_negative_and_never_above_the_cpu_time(times):
    cpu = np.array([one for one, _ in times])
    found = rules.cpu_overhead(cpu, np.array([api for _, api in times]))
    assert (found >= 0).all()
    assert (found <= cpu).all()
