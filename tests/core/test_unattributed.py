"""Time on the CPU that no op has: which of it a compiler took."""

from __future__ import annotations

import pytest

from opscope.profile import Profile

COMPILING, REST = "inside steps, compiling a program", "inside steps, outside any op"


def ranges(*more):
    """A step from 0 to 100 with an op from 10 to 20, and phases: text, start, end, thread."""
    own = {"process": 0, "domain": "opscope.torch", "kind": "pushpop"}
    rows = [
        {**own, "thread": 1, "start": 0, "end": 100, "category": "step", "text": "step 0"},
        {**own, "thread": 1, "start": 10, "end": 20, "category": "forward", "text": "aten::mm()"},
    ]
    for text, start, end, thread in more:
        place = {"thread": thread, "start": start, "end": end}
        rows.append({**own, **place, "category": "phase", "text": text})
    return [{**row, "id": number} for number, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("phases", "compiling"),
    [
        ([("compile", 5, 50, 1)], 35),  # but for the op
        (
            [("compile 0/1 Net.forward @net.py:3", 5, 50, 1), ("compile 0/1 backward", 60, 90, 1)],
            65,
        ),
        ([("compile", 30, 50, 1), ("compile 1/0", 35, 45, 1)], 20),  # one in another counts once
        ([("compile", -50, 5, 1), ("compile", 90, 150, 1)], 15),  # within the step
        ([("compiles", 30, 50, 1), ("forward", 60, 90, 1)], 0),
        ([("compile", 30, 50, 2)], 0),  # another thread's
    ],
)
def test_compiling_has_a_reason_of_its_own(trace_of, phases, compiling):
    profile = Profile(trace_of(ranges=ranges(*phases)))
    found = dict(profile.unattributed().select("reason", "time").rows())
    assert found == {
        reason: time for reason, time in ((COMPILING, compiling), (REST, 90 - compiling)) if time
    }
    assert sum(found.values()) == profile.summary()["unattributed_time"].item() == 90
