"""Memory by step: what is in use as a step ends, its growth, and what it kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opscope.profile import Profile


def step(number: int, start: int, end: int, **more: object) -> dict:
    return {"process": 0, "thread": 1, "domain": "opscope.step", "category": "step", "kind": "pushpop",
            "text": f"step {number}", "start": start, "end": end, **more}  # fmt: skip


def change(
    time: int, address: int | None, size: int, total: int | None = None, **more: object
) -> dict:
    return {"process": 0, "device": -1, "thread": 1, "time": time, "address": address,
            "bytes": size, "total": total, **more}  # fmt: skip


def test_a_leak_grows_by_what_each_step_keeps(trace_of):
    trace = trace_of(
        ranges=[step(0, 100, 200), step(1, 200, 300), step(2, 300, 400)],
        allocations=[
            change(50, 1, 1000),
            *(change(110 + 100 * n, 10 + n, 7) for n in range(3)),
            *(change(900 + n, 10 + n, -7) for n in range(3)),  # the program's end releases it
            *(change(120 + 100 * n, 20, 500) for n in range(3)),
            *(change(130 + 100 * n, 20, -500) for n in range(3)),
        ],
    )
    rows = Profile(trace).memory_steps()
    assert rows.select("step", "in_use", "growth", "kept", "kept_blocks").rows() == [
        (0, 1007, None, 7, 1),
        (1, 1014, 7, 7, 1),
        (2, 1021, 7, 7, 1),
    ]
    assert rows["peak_memory"].to_list() == [1507, 1514, 1521]
    assert rows["allocated"].to_list() == [507] * 3
    assert rows["released"].to_list() == [500] * 3


def test_the_peak_of_a_step_includes_what_was_there_as_it_began(trace_of):
    trace = trace_of(
        ranges=[step(0, 100, 200), step(1, 200, 300)],
        allocations=[change(110, 1, 1000), change(210, 1, -1000)],
    )
    rows = Profile(trace).memory_steps().select("step", "in_use", "growth", "peak_memory").rows()
    assert rows == [(0, 1000, None, 1000), (1, 0, -1000, 1000)]


def test_before_the_first_change_what_is_in_use_is_not_known(trace_of):
    trace = trace_of(
        ranges=[step(0, 100, 200), step(1, 200, 300)],
        allocations=[change(210, 1, 10, 5010, device=0, reserved=8192)],
    )
    rows = Profile(trace).memory_steps().select("in_use", "growth", "reserved", "allocated").rows()
    assert rows == [(None, None, None, 0), (5010, None, 8192, 10)]


def test_without_addresses_what_is_kept_is_not_known(trace_of):
    trace = trace_of(ranges=[step(0, 100, 200)], allocations=[change(110, None, 10)])
    rows = Profile(trace).memory_steps().select("in_use", "kept", "kept_blocks").rows()
    assert rows == [(10, None, None)]


def test_a_step_that_nothing_ended_is_left_out(trace_of):
    trace = trace_of(
        ranges=[step(0, 100, 200), step(1, 200, 999, attrs='{"unclosed":true}')],
        allocations=[change(110, 1, 10)],
    )
    assert Profile(trace).memory_steps()["step"].to_list() == [0]


def test_without_steps_or_memory_there_are_no_rows(trace_of):
    assert Profile(trace_of(ranges=[step(0, 0, 9)])).memory_steps().is_empty()
    assert Profile(trace_of(allocations=[change(1, 1, 1)])).memory_steps().is_empty()


sizes = st.lists(st.tuples(st.integers(0, 400), st.integers(-99, 99)), min_size=1, max_size=40)


@given(sizes)
def test_steps_without_gaps_grow_by_what_they_allocate_less_what_they_release(trace_of, changes):
    ordered = sorted(changes, key=lambda one: one[0])
    trace = trace_of(
        ranges=[step(number, 100 * number, 100 * number + 100) for number in range(5)],
        allocations=[change(time, None, size) for time, size in ordered],
    )
    rows = Profile(trace).memory_steps().to_dicts()
    for row, before in zip(rows[1:], rows, strict=False):
        if before["in_use"] is not None:
            assert row["growth"] == row["in_use"] - before["in_use"]
            assert row["growth"] == row["allocated"] - row["released"]
    for row in rows:
        running, seen = 0, []
        last = None
        for time, size in ordered:
            running += size
            if time < row["end"]:
                last = running
            if time < row["start"]:
                seen = [running]
            elif time < row["end"]:
                seen.append(running)
        assert row["in_use"] == last
        assert row["peak_memory"] == (max(seen) if seen else None)
    assert sum(row["allocated"] for row in rows) == sum(size for _, size in ordered if size > 0)
