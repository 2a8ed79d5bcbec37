"""Ranges that native code writes are those that Python writes, whatever is pushed and however a call ends."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import sysconfig
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope import adapters
from opscope.adapters.shared import ranges
from opscope.adapters.shared.compiled import BuildError
from opscope.core.capture import emit, session
from opscope.core.capture.emit import Emitter, record_only
from opscope.core.capture.own_cost import record_ns
from opscope.core.capture.recorder_sink import Recorder, pop_code
from opscope.core.payload import MAX_FWD_THREAD, MAX_SEQ
from opscope.core.recording_format import PAYLOAD, RECORD
from tests.command import opscope as opscope_command

TEXTS = [Emitter("made up").prepare(text) for text in ("one", "two", "three")]
NEVER = 1 << 62
EDGES = (0, 1, MAX_FWD_THREAD, MAX_SEQ, 1 << 62, 1 << 63, 1 << 64, 1 << 80)
NUMBERS = st.sampled_from([edge + more for edge in EDGES for more in (-1, 0, 1)]) | st.integers()
OTHERS = st.sampled_from([None, "no text", 2.5, True, np.int64(7), object()])
ARGUMENTS = st.lists(st.sampled_from(TEXTS) | NUMBERS | OTHERS, max_size=4)
NAMES = ("prepared", "seq", "fwd_thread", "complete", "other")
CALLS = st.tuples(
    st.sampled_from(range(3)),
    st.one_of(
        st.tuples(st.sampled_from(TEXTS)),
        st.tuples(st.sampled_from(TEXTS), NUMBERS),
        st.tuples(st.sampled_from(TEXTS), NUMBERS, NUMBERS),
        ARGUMENTS,
    ),
    st.just({}) | st.dictionaries(st.sampled_from(NAMES), NUMBERS | st.sampled_from(TEXTS)),
)


@pytest.fixture(scope="module")
def native():
    try:
        return ranges.load()
    except (BuildError, OSError) as error:
        pytest.skip(str(error))


@pytest.fixture(params=["natively", "in Python"])
def writes(request, native):
    return native if request.param == "natively" else record_only


def recorder_of(folder="unused"):
    made = Recorder(folder, sampler=lambda _: None, stacks=False)
    made.deadline = NEVER
    return made


def log(recorder, number=0):
    return np.frombuffer(bytes(recorder._threads[number].log), "<i8").reshape(-1, 2)


def outcome(call, arguments, keywords):
    try:
        return call(*arguments, **keywords)
    except Exception as error:  # noqa: BLE001 - what it raises is compared
        return type(error), str(error)


@given(calls=st.lists(CALLS, max_size=20))
def test_the_records_and_the_errors_are_those_of_python(native, calls):
    outcomes, records = [], []
    for writes in (record_only, native):
        recorder = recorder_of()
        written = writes(recorder, pop_code(3))
        outcomes.append([outcome(written[which], *rest) for which, *rest in calls])
        if not recorder._threads:
            records.append([])
            continue
        rows = log(recorder)
        is_time = rows[:, 0] != PAYLOAD
        assert (np.diff(rows[is_time, 1]) >= 0).all()
        rows = rows.copy()
        rows[is_time, 1] = 0
        records.append(rows.tolist())
    assert outcomes[0] == outcomes[1]
    assert records[0] == records[1]


def test_a_pop_of_a_range_of_before_writes_nothing(writes):
    recorder = recorder_of()
    _, pop, _ = writes(recorder, pop_code(0))
    pop()
    pop(TEXTS[0])
    assert recorder._threads == []


def test_each_thread_writes_to_its_own_log_in_each_recording(native):
    both = [recorder_of(), recorder_of()]
    ways = [native(each, pop_code(0)) for each in both]

    def work():
        for push, pop, _ in ways * 50:
            push(TEXTS[0])
            pop()

    for _ in range(3):  # also in threads that get the identity of an ended one
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    work()
    for each in both:
        assert [len(log(each, number)) for number in range(13)] == [100] * 13


def test_a_range_of_a_thread_that_is_being_removed_is_written(writes):
    recorder = recorder_of()
    push, pop, _ = writes(recorder, pop_code(0))

    class Last:
        def __del__(self):
            for _ in range(3):
                push(TEXTS[0])
                pop()

    kept = threading.local(), threading.local()  # one before the log, one after

    def work():
        kept[0].last = Last()
        push(TEXTS[1])
        kept[1].last = Last()
        recorder._threads.clear()  # as a flush does with a thread that has no frame any more

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    gc.collect()
    assert sum(len(log(recorder, number)) for number in range(len(recorder._threads))) <= 12


def test_a_log_that_was_taken_goes_on_and_a_pop_flushes_when_due(writes, monkeypatch):
    taken, recorder = [], recorder_of()
    monkeypatch.setattr(recorder, "flush", lambda: taken.extend(recorder._take()))
    push, pop, mark = writes(recorder, pop_code(0))
    push(TEXTS[0])
    pop()
    assert not taken
    recorder.deadline = 0
    push(TEXTS[0])
    assert not taken
    pop()
    mark(TEXTS[1])
    push(TEXTS[0])
    assert [len(chunk) // RECORD.size for chunk in taken[1::2]] == [4, 1]
    assert len(log(recorder)) == 1


def test_an_interrupt_in_a_flush_comes_after_the_record(writes, monkeypatch):
    recorder = recorder_of()

    def flush():
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "flush", flush)
    push, pop, _ = writes(recorder, pop_code(0))
    push(TEXTS[0])
    recorder.deadline = 0
    with pytest.raises(KeyboardInterrupt):
        pop()
    assert len(log(recorder)) == 2


def test_a_log_that_is_being_read_is_refused_and_goes_on(writes):
    recorder = recorder_of()
    push, pop, mark = writes(recorder, pop_code(0))
    push(TEXTS[0])
    with memoryview(recorder._threads[0].log):
        for call in (lambda: push(TEXTS[0], 5, 1), pop, lambda: mark(TEXTS[0])):
            with pytest.raises(BufferError):
                call()
    pop()
    assert len(log(recorder)) == 2


def test_no_interrupt_tears_a_record(writes):
    recorder, begun, stopped = recorder_of(), threading.Event(), []
    push, pop, mark = writes(recorder, pop_code(0))

    class Stop(Exception):
        pass

    def work():
        begun.set()
        while len(stopped) < 50:
            try:
                while True:
                    push(TEXTS[0], 5, 1)
                    mark(TEXTS[1])
                    pop(TEXTS[2])
            except Stop:
                stopped.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while thread.is_alive():
        interrupt(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))
        thread.join(0.001)
    sizes = [len(one.log) % RECORD.size for one in recorder._threads]
    assert sizes == [0] * len(sizes)
    codes = np.concatenate([log(recorder, number)[:, 0] for number in range(len(sizes))])
    payloads = np.flatnonzero(codes == PAYLOAD)
    assert len(payloads)
    assert (codes[payloads + 1] == TEXTS[0].id).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_writes_to_its_own_recorder(writes):
    recorder = recorder_of()
    push, pop, _ = writes(recorder, pop_code(0))
    push(TEXTS[0])
    child = os.fork()
    if not child:
        recorder.abandon()
        mine = recorder_of()
        child_push, child_pop, _ = writes(mine, pop_code(0))
        pop()
        for _ in range(5):
            child_push(TEXTS[0])
            child_pop()
        os._exit(0 if len(log(mine)) == 10 and len(log(recorder)) == 1 else 1)
    pop()
    assert os.waitpid(child, 0)[1] == 0
    assert len(log(recorder)) == 2


def test_no_reference_is_lost_or_kept(native):
    one, two, three = TEXTS

    def calls(recorder, push, pop, mark):
        for _ in range(1000):
            push(one, 5, 1), push(two), pop(three), pop(), mark(one)
            push(prepared=one, seq=2**64 - 1), push(one, 2**64 - 1), pop(complete=None)
            outcome(push, (5, "no"), {"other": recorder})

    def all_calls():
        recorder = recorder_of()
        written = native(recorder, pop_code(0))
        kept = (*TEXTS, recorder, recorder.local, None, *written)
        counts = []
        for _ in range(2):
            calls(recorder, *written)
            counts.append(np.array([sys.getrefcount(each) for each in kept]))
        assert (abs(counts[1] - counts[0]) < 100).all()
        return weakref.ref(recorder)

    gone = all_calls()
    gc.collect()
    assert gone() is None


def test_native_code_takes_over_from_python_and_back_without_a_loss(native):
    emitter, recorder = Emitter("changes"), recorder_of()
    emitter.listen(recorder)
    text, before = emitter.prepare("range"), emitter.push
    try:
        emitter.push(text)
        emit.write_natively(native)
        emitter.pop()
        assert recorder.writes is native
        emitter.push(text)
        before(text)
        emit.write_natively(None)
        emitter.pop()
        emitter.pop()
    finally:
        emit.write_natively(None)
        emitter.listen(None)
    popped = pop_code(emitter.number)
    assert log(recorder)[:, 0].tolist() == [text.id, popped, text.id, text.id, popped, popped]


def test_a_recording_reckons_with_what_its_records_cost(writes):
    assert 0 < record_ns(writes) < 1e6


@pytest.fixture
def framework(monkeypatch, tmp_path):
    """An adapter is installed, and nothing is built yet."""
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(adapters._installed, "made up", SimpleNamespace(listen=lambda: None))
    monkeypatch.setattr(emit, "_native", None)
    adapters._write_natively.cache_clear()
    yield
    adapters._write_natively.cache_clear()


def test_it_is_built_ahead(native, tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path))
    assert opscope_command("build", "jax").returncode == 0
    monkeypatch.setenv("CC", "nothing")
    assert ranges.build().parent == tmp_path


def test_nothing_is_built_until_something_is_recorded(framework, native, tmp_path):
    adapters._activity()
    assert emit._native is None
    assert not (tmp_path / "cache").exists()
    session.listen(recorder_of())
    try:
        adapters._activity()
    finally:
        session.listen(None)
    assert emit._native is not None


@pytest.mark.parametrize("why", ["no compiler", "a slow one", "a failing one", "no folder", "GIL"])
def test_where_nothing_can_be_built_python_writes(why, framework, tmp_path, monkeypatch, caplog):
    script = tmp_path / "compiler"
    script.write_text(f"#!/bin/sh\n{'sleep 60' if why == 'a slow one' else 'exit 1'}\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", "nothing" if why == "no compiler" else str(script))
    monkeypatch.setattr(ranges, "_PATIENCE", 0.05)
    if why == "no folder":
        monkeypatch.delenv("CC")
        (tmp_path / "file").touch()
        monkeypatch.setattr("opscope.adapters.shared.cache.folders", lambda: [tmp_path / "file"])
    if why == "GIL":
        monkeypatch.setattr(sysconfig, "get_config_var", lambda _: 1)
    recorder = recorder_of()
    emitter = Emitter("goes on")
    emitter.listen(recorder)
    session.listen(recorder)
    try:
        with caplog.at_level(logging.DEBUG, logger="opscope"):
            adapters._activity()
            adapters._activity()
        emitter.push(TEXTS[0])
        emitter.pop()
    finally:
        session.listen(None)
        emitter.listen(None)
    assert len(log(recorder)) == 2
    assert recorder.writes is record_only
    assert [one.levelname for one in caplog.records] == ["DEBUG"]
    assert "written from Python" in caplog.text
