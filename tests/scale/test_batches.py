"""How traces are put together into tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opscope.scale.batches import TASK, batches, seconds

SIZES = st.dictionaries(
    st.text("abc/.gz", min_size=1, max_size=12), st.none() | st.integers(0, 10**9), max_size=60
)


@given(SIZES, st.none() | st.integers(1, 8))
def test_each_trace_is_in_one_task_and_only_single_ones_take_longer_than_a_second(sizes, workers):
    made = batches(sizes, workers)
    assert sorted(one for task in made for one in task) == sorted(sizes)
    for task in made:
        assert task
        assert len(task) == 1 or sum(seconds(one, sizes[one]) for one in task) <= TASK * 1.000001


def test_small_ranks_share_a_task_and_the_largest_comes_first():
    sizes = {f"rank{number}.json.gz": 400_000 for number in range(100)}
    sizes["large.json.gz"] = 64_000_000
    made = batches(sizes)
    assert made[0] == ("large.json.gz",)
    assert 12 <= len(made) <= 20
    assert max(map(len, made)) > 4


def test_every_worker_gets_several_tasks_where_there_are_ranks_enough():
    sizes = {f"rank{number}.json.gz": 1_000 for number in range(16)}
    assert len(batches(sizes)) == 1
    assert len(batches(sizes, workers=2)) == 8


def test_a_packed_trace_is_more_work_than_a_plain_one_of_its_size():
    assert seconds("a.json.gz", 10**7) > 5 * seconds("a.json", 10**7)
    assert seconds("s3://bucket/a.json.gz", None) == TASK
