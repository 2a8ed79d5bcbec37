"""Attribution where the capture is cut, and where times are rounded: the stack that ran is the truth."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.attribution.attribute import REASONS, attribute
from opscope.core.tables.trace import Trace

EVENTS = st.lists(st.sampled_from(["push", "push", "pop", "pop", "launch"]), max_size=60)
STEPS = st.lists(st.integers(1, 900), min_size=60, max_size=60)


def run(events: list[str], steps: list[int]) -> tuple[list[list[int]], list[tuple[int, list[int]]]]:
    """Ranges [start, end] in the order of their pushes; launches with the stack of ranges open."""
    ranges, launches, stack, time = [], [], [], 0
    for event, step in zip(events, steps, strict=False):
        time += step
        if event == "push":
            stack.append(len(ranges))
            ranges.append([time, -1])
        elif event == "pop" and stack:
            ranges[stack.pop()][1] = time
        elif event == "launch":
            launches.append((time, list(stack)))
    for number in stack:
        ranges[number][1] = time + 1
    return ranges, launches


def found(ranges: list[list[int]], ids: list[int], launches: list[int]) -> list[tuple]:
    """(range or None, reason) of a kernel for each launch."""
    place = {"process": 0, "thread": 1}
    tables = {
        "ranges": [
            {**place, "id": number, "start": start, "end": end, "domain": "opscope.torch",
             "text": "aten::mm()", "kind": "pushpop"}
            for number, (start, end) in zip(ids, ranges, strict=True)
        ],
        "calls": [
            {**place, "start": time, "end": time + 1, "name": "cudaLaunchKernel", "correlation": n}
            for n, time in enumerate(launches)
        ],
        "kernels": [
            {"process": 0, "device": 0, "start": time + 5, "end": time + 6, "name": "k",
             "correlation": n}
            for n, time in enumerate(launches)
        ],
    }  # fmt: skip
    result = attribute(
        Trace.of({name: pl.DataFrame(rows) for name, rows in tables.items() if rows})
    )
    return [
        (ids[op] if op >= 0 else None, REASONS[reason])
        for op, reason in zip(
            result.kernels.op.tolist(), result.kernels.reason.tolist(), strict=True
        )
    ]


@given(EVENTS, STEPS, st.integers(0, 20_000), st.integers(1, 20_000))
def test_a_cut_window(events, steps, begin, length):
    """What was pushed before the capture is not in it; what is open at its end ends there.

    A launch belongs to the innermost range of its stack that the capture has, and to none where it
    has none: never to another.
    """
    ranges, launches = run(events, steps)
    stop = begin + length
    ids = [n for n, (start, _) in enumerate(ranges) if begin <= start < stop]
    cut = [[ranges[n][0], min(ranges[n][1], stop)] for n in ids]
    inside = [(time, stack) for time, stack in launches if begin <= time < stop]
    expected = []
    for _, stack in inside:
        kept = [number for number in stack if number in ids]
        none = "launched outside any op range" if ids else "the trace has no op ranges"
        expected.append((kept[-1], None) if kept else (None, none))
    assert found(cut, ids, [time for time, _ in inside]) == expected


@given(EVENTS, STEPS)
def test_times_rounded_to_microseconds(events, steps):
    """Kineto once wrote start and duration each cut to µs: ends come up to 2 µs early, siblings overlap
    and inner ranges outlast outer ones. A launch that shares its µs with no later push, and is not at
    its range's end, still has the op that ran.
    """
    ranges, launches = run(events, steps)
    coarse = [[s // 1000 * 1000, s // 1000 * 1000 + (e - s) // 1000 * 1000] for s, e in ranges]
    got = found(coarse, list(range(len(ranges))), [time // 1000 * 1000 for time, _ in launches])
    for (time, stack), (op, _) in zip(launches, got, strict=True):
        pushed = any(time < start < time // 1000 * 1000 + 1000 for start, _ in ranges)
        if stack and not pushed and time // 1000 < ranges[stack[-1]][1] // 1000 - 1:
            assert op == stack[-1]
