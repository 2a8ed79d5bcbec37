"""A capture's trace beside that of its replays: it gives shapes, and adds nothing to the totals."""

from __future__ import annotations

import pytest

import opscope
from opscope.core.attribution.capture_traces import CAPTURES, without_captures
from opscope.profile import Profile


def op(process, text, start, end):
    return {"process": process, "thread": 1, "domain": "opscope.torch", "kind": "pushpop",
            "text": text, "start": start, "end": end}  # fmt: skip


def call(process, name, start, correlation):
    return {"process": process, "thread": 1, "name": name, "start": start, "end": start + 1,
            "correlation": correlation}  # fmt: skip


def ran(process, start, correlation, **more):
    return {"process": process, "device": 0, "stream": 7, "start": start, "end": start + 5,
            "correlation": correlation, **more}  # fmt: skip


@pytest.fixture
def job(trace_of):
    """Process 0 replays what process 1 captured in its time, which warms up with a kernel and a copy."""

    def build(one=None, other=None, calls=(), kernels=()):
        own = {"rank": 0, "clock_domain": 0}
        return trace_of(
            {"parts": [{"paths": ["/x/replay.json"], "first_process": 0},
                       {"paths": ["/x/capture.json"], "first_process": 1}]},
            processes=[
                {"process": 0, **own, **(one or {})},
                {"process": 1, **own, "clock_domain": 1, **(other or {})},
            ],
            ranges=[
                op(1, "aten::mm(f32[2,3], f32[3,4]) -> f32[2,4]", 10, 20),
                op(1, "aten::add(f32[2,4]) -> f32[2,4]", 20, 30),
                op(1, "aten::fill_(f32[2])", 1, 5),
            ],
            calls=[
                call(1, "cudaLaunchKernel", 2, 1),
                call(1, "cudaMemcpyAsync", 3, 2),
                call(1, "cudaStreamBeginCapture", 6, 3),
                call(1, "cudaLaunchKernel", 12, 4),
                call(1, "cudaLaunchKernel", 22, 5),
                call(1, "cudaStreamEndCapture", 40, 6),
                call(0, "cudaGraphLaunch", 1001, 9),
                *calls,
            ],
            kernels=[
                ran(1, 50, 1, name="fill"),
                ran(0, 1100, 9, name="gemm"),
                ran(0, 1110, 9, name="add"),
                *kernels,
            ],
            memops=[ran(1, 60, 2, kind="HtoD", bytes=8)],
        )  # fmt: skip

    return build


def test_what_was_loaded_for_its_shapes_is_not_counted(job, tmp_path):
    profile = Profile(without_captures(job()))
    assert profile.kernels().select("name", "op", "inputs").rows() == [
        ("gemm", "aten::mm", "f32[2,3], f32[3,4]"),
        ("add", "aten::add", "f32[2,4]"),
    ]
    row = profile.summary().row(0, named=True)
    assert (row["kernels"], row["copies"], row["device_time"]) == (2, 0, 10)
    assert (row["processes"], row["wall_time"]) == (1, 1115 - 1001)
    assert profile.trace.origin[CAPTURES] == [
        {"process": 1, "path": "/x/capture.json", "of": "/x/replay.json", "kernels": 1, "copies": 1}
    ]
    profile.save(tmp_path / "both.opscope")
    again = opscope.load(tmp_path / "both.opscope")
    assert again.summary().equals(profile.summary())
    assert again.kernels().equals(profile.kernels())


OTHERS = {
    "another rank": {"other": {"rank": 1}},
    "one that replays itself": {
        "calls": [call(1, "cudaGraphLaunch", 45, 8)],
        "kernels": [ran(1, 70, 8, name="gemm"), ran(1, 80, 8, name="add")],
    },
    "one that ran meanwhile": {"kernels": [ran(1, 1104, 1, name="fill")]},
    "a process of the same file, of no rank": {
        "one": {"rank": None},
        "other": {"rank": None, "clock_domain": 0},
    },
}


@pytest.mark.parametrize("why", OTHERS)
def test_a_process_that_is_part_of_the_job_is_counted(job, why):
    trace = job(**OTHERS[why])
    assert without_captures(trace) is trace


def test_a_capture_of_no_rank_is_known_by_its_own_file_or_process_id(job):
    nobody = {"rank": None}
    apart = job(one=nobody, other=nobody)
    assert without_captures(apart).origin[CAPTURES]
    same = {**nobody, "pid": 7, "clock_domain": 0}
    assert without_captures(job(one=same, other=same)).origin[CAPTURES]
