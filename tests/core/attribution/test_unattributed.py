"""Time on the CPU that no op has: which of it a compiler took."""

from __future__ import annotations

import pytest

from opscope.core.analysis.summary.summary_table import summary_table
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


@pytest.fixture
def copying(trace_of):
    """A kernel of 10 ns and two copies of 700 and 300 ns; the kernel and the larger copy have an op."""
    where = {"process": 0, "thread": 1, "domain": "opscope.torch", "kind": "pushpop"}
    op = {**where, "id": 0, "start": 0, "end": 100, "category": "forward"}
    calls = [
        {"process": 0, "thread": 1, "start": at, "end": at + 1, "name": name, "correlation": number}
        for number, (at, name) in enumerate([(10, "cudaLaunchKernel"), (20, "cudaMemcpyAsync")])
    ]
    ran = {"process": 0, "device": 0, "stream": 7}
    return Profile(
        trace_of(
            ranges=[{**op, "text": "aten::mm(f32[2,3], f32[3,4]) -> f32[2,4]"}],
            calls=calls,
            kernels=[{**ran, "start": 200, "end": 210, "name": "k", "correlation": 0}],
            memops=[
                {**ran, "start": 300, "end": 1000, "kind": "HtoD", "bytes": 5, "correlation": 1},
                {**ran, "start": 1000, "end": 1300, "kind": "DtoH", "bytes": 5, "correlation": 9},
            ],
        )
    )


def test_the_device_s_time_is_that_of_kernels_and_copies(copying):
    row = copying.summary().row(0, named=True)
    assert (row["device_time"], row["kernel_time"]) == (1010, 10)
    assert (row["device_attributed_time"], row["device_unattributed_time"]) == (710, 300)
    assert (row["attributed_time"], row["unattributed_time"]) == (10, 0)
    assert (row["kernels"], row["copies"]) == (1, 2)
    (gap,) = copying.unattributed().to_dicts()
    assert gap == {
        "reason": "no launch record",
        "kernels": 0,
        "copies": 1,
        "kernel_time": 0,
        "time": 300,
        "share": 300 / 1010,
    }


def test_the_share_of_known_flops_is_given_among_kernels_too(trace_of):
    """A copy, known to compute nothing, would hide that no kernel's FLOPs are known."""
    ran = {"process": 0, "device": 0, "stream": 7}
    call = {"process": 0, "thread": 1, "name": "cudaLaunchKernel"}
    trace = trace_of(
        ranges=[],
        calls=[{**call, "start": n, "end": n + 1, "correlation": n} for n in (1, 2)],
        kernels=[{**ran, "start": 10, "end": 20, "name": "k", "correlation": 1}],
        memops=[{**ran, "start": 20, "end": 110, "kind": "HtoD", "correlation": 2}],
    )
    row = Profile(trace).summary().row(0, named=True)
    assert (row["flops_share"], row["kernel_flops_share"]) == (0.9, 0.0)
    (line,) = [one for one in summary_table(Profile(trace)).rows if one["what"] == "FLOPs known"]
    assert line["remark"] == "of launched device time; 0.0 % of launched kernel time"
