"""What the host did while a device waited: every ns of host wait goes to the innermost op."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.idle_ops import OUTSIDE
from tests.device_traces import OP, Ran, profiled


def op(name: str, start: int, end: int, thread: int = 1, **more) -> dict:
    return {**OP, "text": f"{name}()", "start": start, "end": end, "thread": thread, **more}


def times(profile) -> dict:
    return dict(profile.idle_ops().select("op", "wait_time").rows())


def test_the_op_that_kept_the_device_waiting_has_the_time():
    ranges = [op("load", 10, 80), op("mm", 85, 95)]
    profile = profiled([Ran(0, 10, -5), Ran(100, 110, 90)], ranges=ranges)
    assert times(profile) == {"load": 70, "mm": 10, None: 10}
    rows = {row["op"]: row for row in profile.idle_ops().to_dicts()}
    # the launch of mm's kernel begins at 90: what follows is not the wait for the host's other work
    assert (rows["mm"]["launching_time"], rows["load"]["launching_time"]) == (5, 0)
    assert rows[None]["reason"] == OUTSIDE


def test_time_inside_a_cuda_call_is_told_with_the_call():
    call = {
        "process": 0,
        "thread": 1,
        "start": 20,
        "end": 60,
        "name": "cudaMalloc",
        "correlation": 99,
    }
    profile = profiled(
        [Ran(0, 10, -5), Ran(100, 110, 90)], ranges=[op("empty", 10, 90)], calls=[call]
    )
    row = profile.idle_ops().row(0, named=True)
    assert (row["op"], row["in_calls"], row["call"]) == ("empty", 40, "cudaMalloc")


def test_where_autograds_thread_did_nothing_the_main_thread_has_the_time():
    main = {
        **OP,
        "domain": "opscope.user",
        "category": "step",
        "text": "step 1",
        "start": 0,
        "end": 200,
    }
    ranges = [main, op("loss", 10, 60), op("mm", 70, 95, thread=2)]
    profile = profiled([Ran(0, 10, -5), Ran(100, 110, 90, thread=2)], ranges=ranges)
    assert times(profile) == {"loss": 50, "mm": 25, None: 15}


def test_waits_of_two_devices_for_one_thread_add_up():
    work = [Ran(0, 10, -5), Ran(100, 110, 90), Ran(0, 20, -4, device=1, stream=17)]
    work.append(Ran(130, 140, 120, device=1, stream=17))
    profile = profiled(work, ranges=[op("load", 0, 200)])
    assert times(profile) == {"load": 90 + 110}
    assert profile.idle_ops()["waits"].to_list() == [2]


@st.composite
def nested(draw, low: int, high: int, depth: int = 0) -> list[dict]:
    made: list[dict] = []
    while low < high - 1 and draw(st.booleans()):
        start = draw(st.integers(low, high - 1))
        end = draw(st.integers(start + 1, high))
        made.append(op(draw(st.sampled_from("xyz")), start, end))
        if depth < 2:
            made += draw(nested(start, end, depth + 1))
        low = end
    return made


@given(
    nested(0, 60),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4)), min_size=1, max_size=6),
)
def test_every_ns_of_host_wait_goes_to_the_innermost_op(ranges, gaps):
    work, now = [Ran(0, 2, -5)], 2
    waits: list[int] = []
    for wait, busy in gaps:
        waits += range(now, now + wait)
        work.append(Ran(now + wait, now + wait + busy, now + wait, now + wait + 1))
        now += wait + busy
    counted: Counter = Counter()
    for moment in waits:
        open_then = [one for one in ranges if one["start"] <= moment < one["end"]]
        # the latest to start; of equal ones the last in the list is the inner one
        inner = max(
            enumerate(open_then), key=lambda item: (item[1]["start"], item[0]), default=None
        )
        counted[None if inner is None else inner[1]["text"][:-2]] += 1
    profile = profiled(work, ranges=ranges) if ranges else profiled(work)
    found: Counter = Counter()
    for name, time in profile.idle_ops().select("op", "wait_time").rows():
        found[name] += time
    assert found == counted
