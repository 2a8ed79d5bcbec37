"""Ranges that native code writes are those that Python writes, and none is lost between threads and recordings."""

from __future__ import annotations

import sys
import sysconfig
import threading

import numpy as np
import pytest

from opscope.adapters.shared import ranges
from opscope.core.capture.emit import Emitter, record_only
from opscope.core.capture.own_cost import record_ns
from opscope.core.capture.recorder_sink import Recorder, pop_code
from opscope.core.payload import MAX_FWD_THREAD, MAX_SEQ
from opscope.core.recording_format import RECORD

NUMBERS = [-1, 0, 7, MAX_SEQ - 1, MAX_SEQ, 2**64 - 1]


@pytest.fixture(autouse=True)
def library():
    ranges.build()
    if ranges._function is None:
        pytest.skip("no C compiler, or a Python without a GIL")


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path, sampler=lambda _: None, stacks=False)
    made.deadline = 1 << 62
    return made


def log(recorder, number=0):
    return np.frombuffer(bytes(recorder._threads[number].log), "<i8").reshape(-1, 2)


def write(writing, text, other):
    push, pop, mark = writing
    for seq in NUMBERS:
        for thread in (0, 3, MAX_FWD_THREAD - 1, MAX_FWD_THREAD):
            push(text, seq, thread)
            pop()
        push(text, seq)
        pop(other)
    push(text)
    pop(None)
    mark(other)


def test_the_records_are_those_of_python(tmp_path):
    emitter = Emitter("made up")
    text, other = emitter.prepare("one"), emitter.prepare("two", ends=True)
    logs = []
    for writes in (record_only, ranges.writing):
        made = Recorder(tmp_path, sampler=lambda _: None, stacks=False)
        made.deadline = 1 << 62
        write(writes(made, pop_code(3)), text, other)
        logs.append(log(made))
    codes = [records[:, 0].tolist() for records in logs]
    assert codes[0] == codes[1]
    assert len(codes[0]) > 60
    payload = [records[records[:, 0] == -2, 1].tolist() for records in logs]
    assert payload[0] == payload[1] != []
    times = logs[1][logs[1][:, 0] != -2, 1]
    assert (np.diff(times) >= 0).all()


def test_a_pop_of_a_range_of_before_writes_nothing(recorder):
    _, pop, _ = ranges.writing(recorder, pop_code(0))
    pop()
    assert recorder._threads == []


def test_each_thread_writes_to_its_own_log_in_each_recording(recorder, tmp_path):
    emitter = Emitter("made up")
    text = emitter.prepare("one")
    second = Recorder(tmp_path, sampler=lambda _: None, stacks=False)
    second.deadline = 1 << 62
    ways = [ranges.writing(each, pop_code(0)) for each in (recorder, second)]

    def work():
        for push, pop, _ in ways * 50:
            push(text)
            pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work()
    for each in (recorder, second):
        assert [len(log(each, number)) for number in range(5)] == [100] * 5


def test_a_log_that_was_taken_goes_on_and_a_pop_flushes_when_due(recorder):
    text = Emitter("made up").prepare("one")
    push, pop, mark = ranges.writing(recorder, pop_code(0))
    taken = []
    recorder.flush = lambda: taken.extend(recorder._take())
    push(text)
    pop()
    assert not taken
    recorder.deadline = 0
    push(text)
    assert not taken
    pop()
    mark(text)
    push(text)
    assert [len(chunk) // RECORD.size for chunk in taken[1::2]] == [4, 1]
    assert len(log(recorder)) == 1


def test_errors_are_pythons_own_and_nothing_is_written(recorder):
    text = Emitter("made up").prepare("one")
    push, pop, mark = ranges.writing(recorder, pop_code(0))
    push(text)
    for call in (push, mark, lambda: push("no text"), lambda: pop("no text"), lambda: mark(1)):
        with pytest.raises((TypeError, AttributeError)):
            call()
    assert len(log(recorder)) == 1


def test_no_reference_is_lost_or_kept(recorder):
    text = Emitter("made up").prepare("one")
    push, pop, mark = ranges.writing(recorder, pop_code(0))
    kept = (text, recorder, None, recorder._threads)
    push(text), pop(), mark(text)
    before = [sys.getrefcount(one) for one in kept]
    for _ in range(1000):
        push(text, 5, 1), pop(text), mark(text), pop()
    assert [
        abs(now - then) < 100 for now, then in zip(map(sys.getrefcount, kept), before, strict=True)
    ] == [True] * 4


def test_a_recording_reckons_with_what_its_records_cost(recorder):
    from opscope.core.recording_format import RECORD as FORM

    python = recorder.record_ns()
    assert python > 0
    ranges.writing(recorder, pop_code(0))
    assert recorder.record_ns is ranges.record_ns
    assert 0 < recorder.record_ns() < 100 * record_ns(FORM.pack)
    assert not sysconfig.get_config_var("Py_GIL_DISABLED")
