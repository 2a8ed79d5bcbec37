"""Waiting is not work: one list of what waits, which every reader asks."""

from __future__ import annotations

import json

import pytest

import opscope
from opscope.core.analysis.summary.grouped import by_kind_table
from opscope.core.analysis.summary.summary_table import summary_table
from opscope.core.question import registry
from opscope.core.question.record import View
from opscope.core.waits import is_wait
from opscope.readers.sound import sound_trace
from tests.conftest import TRACES

WAITS = (
    *(
        "event_wait",
        "EVENT_WAIT",
        "EVENT_WAIT_SQE",
        "event_record",
        "NOTIFY_WAIT_SQE",
        "Notify Wait",
    ),
    *("Notify Record", "Capture Wait", "MEM_WAIT_VALUE", "HIP_EVENT_WAIT", "cudaStreamWaitEvent"),
    *("hipStreamWaitEvent", "cuStreamWaitValue32", "wait_for_event", "waitForEvent", "wait-event"),
    *("Semaphore Wait", "Stream Wait Event", "stream_sync", "poll", "Wait", "idle"),
)
WORK = (
    *("pe_exe", "recv-done", "send.3", "ncclDevKernel_SendRecv", "barrier", "wait_signal_kernel"),
    *("event_wait_kernel(int)", "eventDetection", "record_stream_kernel", "spin_kernel(long)"),
    *(
        "notify_forward_kernel",
        "memory_efficient_attention",
        "signal_processing",
        "waiting_room_conv",
    ),
)


@pytest.mark.parametrize("name", WAITS)
def test_waits_and_signals_are_told_by_their_whole_name(name):
    assert is_wait(name)


@pytest.mark.parametrize("name", WORK)
def test_what_runs_is_no_wait(name):
    assert not is_wait(name)


def kernel(name, start, end, **more):
    return {
        "process": 0,
        "device": 0,
        "stream": 7,
        "start": start,
        "end": end,
        "name": name,
        **more,
    }


def test_every_reader_leaves_waits_out_of_the_kernels(trace_of):
    """``sound_trace`` makes the trace of all of them."""
    made = trace_of(
        kernels=[
            kernel("event_wait", 0, 90, correlation=5),
            kernel("gemm", 100, 120),
            kernel("event_wait", 130, 140, grid="1,1,1"),
            kernel("polling", 150, 190),
        ]
    )
    trace = sound_trace({name: made[name] for name in made.present}, {})
    assert trace["kernels"]["name"].to_list() == ["gemm", "event_wait"], (
        "what has a grid is a kernel"
    )
    assert trace["syncs"].select("kind", "stream", "start", "end", "correlation").rows() == [
        ("event_wait", 7, 0, 90, 5),
        ("polling", 7, 150, 190, None),
    ]
    assert trace.queue_waits().height == 2


@pytest.fixture
def queue(tmp_path):
    """A profile of an accelerator whose queue waits for an event before each of twelve kernels."""
    events = []
    for number in range(12):
        t = 1000 * number
        shared = {"pid": 17, "tid": 100, "cat": "mtia_ccp_events", "ph": "X"}
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 42, "tid": 42, "ts": t, "dur": 100},
            {"ph": "X", "cat": "mtia_runtime", "name": "launch", "pid": 42, "tid": 42, "ts": t + 10,
             "dur": 5, "args": {"correlation": number}},
            {**shared, "name": "event_wait", "ts": t + 50, "dur": 700, "args": {"stream": 100}},
            {**shared, "name": "pe_exe", "ts": t + 760, "dur": 100,
             "args": {"stream": 100, "correlation": number}},
            {**shared, "name": "event_record", "ts": t + 870, "dur": 0.3, "args": {"stream": 100}},
        ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return opscope.load(path)


def test_a_queue_that_waits_is_not_busy(queue):
    row = queue.summary().row(0, named=True)
    assert (row["kernels"], row["kernel_time"], row["device_busy"]) == (12, 1_200_000, 1_200_000)
    assert (row["waits"], row["queues_waited"], row["unattributed_time"]) == (12, 8_400_000, 0)


def test_an_idle_device_whose_queue_waited_is_not_the_host_s_fault(queue):
    """The launches came after the work before had ended; the queue waited for an event all the same."""
    row = queue.idle().row(0, named=True)
    assert row["host_wait"] == 0
    assert row["other_wait"] == row["idle_time"] > 0
    assert queue.diagnosis()["finding"][0] == "waiting on other streams"


def test_waits_are_shown_where_the_time_and_its_kinds_are(queue):
    shown = {row["what"]: row["value"] for row in summary_table(queue).rows}
    assert shown["waits"] == "8.40 ms"
    report = registry.reports()["by_kind"]
    rows = {row["kind"]: row for row in by_kind_table(report, queue, View()).rows}
    assert rows["waits"]["device_time"] == 8_400_000
    assert rows["waits"]["share"] is None


def test_a_real_ascend_waits_for_its_ranks():
    folder = TRACES / "mindspore" / "msprof_device0"
    if not folder.is_dir():
        pytest.skip(f"no real traces at {TRACES}")
    row = opscope.load(folder).summary().row(0, named=True)
    assert (row["waits"], row["queues_waited"]) == (144, 138_220_590)
