"""Sequence numbers of kernels against a plain loop over lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.pyprof import sequence
from opscope.core.pyprof.sequence import Numbers

#: A kernel: its numbers, whether it is a backward one, its thread, its op's name.
KERNELS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 6), unique=True, max_size=3).map(sorted),
        st.booleans(),
        st.integers(0, 1),
        st.integers(0, 2),
    ),
    max_size=25,
)


def columns(kernels):
    numbers = Numbers(
        np.cumsum([0, *(len(one) for one, *_ in kernels)]).astype(np.int64),
        np.array([value for one, *_ in kernels for value in one], np.int64),
    )
    backward, lane, name = (
        np.array([one[place] for one in kernels], kind) for place, kind in ((1, bool), (2, np.int64), (3, np.int64))
    )  # fmt: skip
    return numbers, np.arange(len(kernels)), backward, lane, name


def plainly(kernels):
    """(number, others, sub) of each kernel."""
    rows, state = [], {}
    for numbers, back, lane, name in kernels:
        now, sub = -1, 0
        if numbers:
            before, count, last = state.get(lane, (-1, 0, None))
            now = numbers[0] if back else next((one for one in numbers if one > before), before)
            sub = count + 1 if (now, name) == (before, last) else 0
            state[lane] = now, sub, name
        rows.append((now, ",".join(str(one) for one in numbers if one != now) or None, sub))
    return rows


@given(KERNELS)
def test_numbers_others_and_repeats_are_those_of_a_plain_loop(kernels):
    numbers, of, backward, lane, name = columns(kernels)
    now = sequence.current(numbers, of, backward, lane)
    others = sequence.others(numbers, of, now)
    cell = np.zeros(len(of), bool)
    sub = sequence.repeats(now, name, lane, numbers.counts[of] > 0, cell)
    assert list(zip(now.tolist(), others.to_list(), sub.tolist(), strict=True)) == plainly(kernels)


@given(KERNELS)
def test_a_kernel_owns_a_number_that_is_among_its_numbers(kernels):
    numbers, of, backward, lane, _ = columns(kernels)
    now = sequence.current(numbers, of, backward, lane)
    assert sequence.is_own(numbers, of, now).tolist() == [
        value in own for value, (own, *_) in zip(now.tolist(), kernels, strict=True)
    ]
    kernel, other = sequence.alternatives(numbers, of, now)
    assert list(zip(kernel.tolist(), other.tolist(), strict=True)) == [
        (place, one) for place, (own, *_) in enumerate(kernels) for one in own if one != now[place]
    ]


def test_a_cell_s_kernels_are_counted_across_sequence_numbers():
    number, name, lane = np.array([3, 4, 5, 5]), np.zeros(4, np.int64), np.zeros(4, np.int64)
    numbered = np.ones(4, bool)
    assert sequence.repeats(number, name, lane, numbered, numbered).tolist() == [0, 1, 2, 3]
    assert sequence.repeats(number, name, lane, numbered, ~numbered).tolist() == [0, 0, 0, 1]
