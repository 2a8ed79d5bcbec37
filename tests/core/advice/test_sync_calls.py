"""Calls that wait for the GPU in steps: counted, their lines named, their saving replayed."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.sync_calls import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.timeline import MAIN, US, op, steady, training

MS = 1000 * US


def reading(steps=4, thread=MAIN):
    """Steps of 10 ms that launch 6 ms of work, read a value back (1 ms in), and launch the next 3 ms later."""
    ranges, launches, copies, calls = steady(steps, 10 * MS), [], [], []
    for n in range(steps):
        at = n * 10 * MS
        launches.append((at, at + 5 * US, at + 10 * US, at + 6 * MS))
        copies.append((at + MS, at + MS + 10 * US, at + 6 * MS, at + 6 * MS + 10 * US, "DtoH"))
        calls.append(("cudaStreamSynchronize", at + MS + 15 * US, at + 6 * MS + 20 * US, thread))
        launches.append((at + 9 * MS, at + 9 * MS + 5 * US, at + 9 * MS + 10 * US, at + 10 * MS))
        ranges.append(op("aten::item(f32[]) @train.py:31", at + MS - 10, at + 6 * MS + 30 * US))
        ranges.append(op("aten::_local_scalar_dense(f32[])", at + MS - 5, at + 6 * MS + 25 * US))
    # what such a call takes by itself is seen where it has nothing to wait for
    calls.append(("cudaStreamSynchronize", steps * 10 * MS, steps * 10 * MS + 5 * US, thread))
    return training(ranges, launches, copies, calls)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: a training that reads its loss with .item() in each step", reading)


def test_a_value_read_back_in_each_step():
    made = reading()
    (found,) = DETECTOR.find(made)
    assert found.time == 4 * (5 * MS + 5 * US)
    assert "4 calls in 4 steps wait for the GPU (1.0 a step)" in found.what
    # each step the device idles from the copy's end to the next kernel, 2.99 ms + 10 us
    assert "12.0 ms" in found.reasoning
    assert found.saving_most == min(found.time, int(made.idle_steps()["idle_time"].sum()))
    assert found.rows.select("op", "count", "time").rows() == [("aten::item", 4, found.time)]
    assert "train.py:31" in found.evidence
    (row,) = made.advice().filter(detector="sync_calls").rows(named=True)
    # without the waits the host launches 5 ms sooner each time, and the device never runs dry
    assert 11 * MS < row["saving"] <= found.saving_most


def test_calls_outside_of_steps_and_of_other_threads_do_not_count():
    launches = [(n * MS, n * MS + 5, n * MS + 10, n * MS + 900 * US) for n in range(10)]
    calls = [("cudaDeviceSynchronize", 12 * MS, 20 * MS, MAIN)]
    calls += [("cudaEventSynchronize", n * MS, n * MS + 900 * US, 9) for n in range(10)]
    assert list(DETECTOR.find(training(steady(1, 10 * MS), launches, calls=calls))) == []


def test_a_wait_after_which_the_gpu_still_has_work_costs_nothing():
    launches = [(0, 5, 10, MS), (10, 15, MS, 10 * MS)]
    copies = [(20, MS + 30, MS, MS + 10, "DtoH")]
    assert list(DETECTOR.find(training(steady(1, 10 * MS), launches, copies))) == []


def test_on_a_cpu_it_names_the_lines_that_would_wait():
    ranges = steady(3, 100)
    for n in range(3):
        ranges.append(op("aten::item(f32[]) @train.py:31", n * 100 + 10, n * 100 + 20))
        ranges.append(
            op("aten::_local_scalar_dense(f32[]) @train.py:31", n * 100 + 12, n * 100 + 18)
        )
    answer = DETECTOR.find(training(ranges))
    assert isinstance(answer, CannotTell)
    assert "aten::item at train.py:31 (3 calls in 3 steps)" in answer.reason
    assert "_local_scalar_dense" not in answer.reason


def test_it_cannot_tell_without_steps():
    launches = [(0, 5, 10, MS), (2 * MS, 2 * MS + 1, 2 * MS + 2, 3 * MS)]
    assert isinstance(DETECTOR.find(training([op("aten::relu()", 0, 9)], launches)), CannotTell)


@pytest.mark.parametrize(("name", "why"), [
    ("resnet50_nw0_step_span1.pt.trace.json.gz", "two waits of 45 us a step, behind copies to the GPU"),
    ("resnet50_nw4_step_span1.pt.trace.json.gz", "the long copies are to the GPU: pageable_copies"),
    ("ddp_rank3of8_a100_stacks.json.gz", "most waiting ends with work queued; 2.4 of 465 ms follow as idling"),
    ("qwen1.5_0.5b_h100.json.gz", "one wait before the step's work; 0.5 of 47 ms could go"),
    ("ddp_memory_v100.json.gz", "its 2,040 copies are asynchronous"),
    ("sampled_rank0.json.gz", "0.2 of 1,230 ms"),
])  # fmt: skip
def test_real_traces_without(shared, name, why):
    assert list(DETECTOR.find(traces.load(shared / "kineto" / name))) == [], why
