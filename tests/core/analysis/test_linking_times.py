"""The next and the last op on a thread are found whatever lies between the times of several files."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.ops.linking import _last, _next

#: Times since boot and since 1970 beside each other, as of files of unlike tools that are loaded together.
TIMES = st.sampled_from([0, 10**12, 17 * 10**17]).flatmap(lambda far: st.integers(far, far + 20))
OPS = st.lists(st.tuples(st.integers(0, 9), TIMES), min_size=1, max_size=30)


@given(OPS, st.data())
def test_the_nearest_op_of_the_same_thread(ops, data):
    lane = np.array([one for one, _ in ops], np.int64)
    start = np.array([time for _, time in ops], np.int64)
    every = np.arange(len(ops))
    chosen = data.draw(st.lists(st.sampled_from(every.tolist()), min_size=1, unique=True))
    order = np.array(chosen)[np.lexsort((start[chosen], lane[chosen]))]
    following, before = _next(order, lane, start, every), _last(order, lane, start, every)
    for row in every:
        mine = [one for one in chosen if lane[one] == lane[row]]
        later = [start[one] for one in mine if start[one] >= start[row]]
        earlier = [start[one] for one in mine if start[one] < start[row]]
        assert (following[row] >= 0) == bool(later)
        assert (before[row] >= 0) == bool(earlier)
        if later:
            assert (lane[following[row]], start[following[row]]) == (lane[row], min(later))
        if earlier:
            assert (lane[before[row]], start[before[row]]) == (lane[row], max(earlier))
