"""Calls within an op that nobody records pass us by, and nobody else notices."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import ctypes
import threading
from collections import Counter

import pytest

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session
from opscope.core.rangetext import parse
from opscope.readers.recording.reader import collect

torch = pytest.importorskip("torch")

from torch.profiler import ProfilerActivity, profile

from opscope.adapters.torch.native import build, plan
from opscope.adapters.torch.native.observer import load

pytestmark = pytest.mark.usefixtures("binary")


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", "native")
    monkeypatch.delenv("OPSCOPE_TORCH_LEVELS", raising=False)


@pytest.fixture
def recording(tmp_path):
    opscope.init(frameworks="torch", layers=False, steps=False)
    session.start(RecorderCapture(tmp_path))
    torch.neg(torch.ones(2))  # the first op of a thread is where it is sought
    yield tmp_path
    stop()


def stop():
    session.stop()
    opscope.shutdown()


def asked(program):
    """How often PyTorch called us in ``program``."""
    counts = (ctypes.c_int64 * 11)()
    call = load(build(plan())).call
    call.opscope_counts(counts)
    before = counts[3]
    program()
    call.opscope_counts(counts)
    return counts[3] - before


def ops(folder):
    ranges = collect(folder).tables["ranges"].sort("start")
    return Counter(parse(text).name for text in ranges["text"].cast(str) if "::" in text)


def scaled():
    torch.ones(4).mul_(0.9)  # which makes a tensor of the number, by several calls of its own


def calls_of(program):
    """What PyTorch's own profiler sees of it, in their order."""
    with profile(activities=[ProfilerActivity.CPU]) as done:
        program()
    return [event.name for event in done.events() if event.name.startswith("aten::")]


@pytest.fixture
def within():
    """Calls what its list holds from within an op, once."""
    todo = []
    library = torch.library.Library("opscope_inner", "DEF")
    library.define("run(Tensor x) -> Tensor")

    def run(x):
        if todo:
            todo.pop()()
        return x.mul(2.0)

    library.impl("run", run, "CompositeExplicitAutograd")
    yield lambda what: (todo.append(what), torch.ops.opscope_inner.run(torch.ones(2)))
    library._destroy()


def test_only_what_is_recorded_asks_us(recording):
    assert len(calls_of(scaled)) > 4  # ones, empty, fill_, mul_ and those within it
    scaled()
    assert asked(scaled) == 2  # ones, which has two calls within, and mul_
    assert asked(scaled) == 2
    stop()
    assert ops(recording)["aten::mul_.Tensor"] == 4  # the profiler's too


def test_where_all_levels_are_recorded_all_ask(recording, monkeypatch):
    stop()
    monkeypatch.setenv("OPSCOPE_TORCH_LEVELS", "all")
    opscope.init(frameworks="torch", layers=False, steps=False)
    session.start(RecorderCapture(recording / "all"))
    scaled()
    assert asked(scaled) == len(calls_of(scaled))


def test_another_profiler_sees_what_it_sees_without_us(recording):
    inside = calls_of(scaled)
    assert asked(scaled) == 2
    again = calls_of(scaled)
    assert asked(scaled) == 2
    stop()
    assert inside == again == calls_of(scaled)


def test_an_observer_that_comes_and_goes_on_another_thread(recording):
    rounds = 300
    done = threading.Event()

    def work():
        while not done.is_set():
            scaled()

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        with profile(activities=[ProfilerActivity.CPU]):
            scaled()
    done.set()
    thread.join()
    before = asked(lambda: [scaled() for _ in range(rounds)])
    assert before == 2 * rounds
    stop()
    assert asked(scaled) == 0


def test_a_profiler_that_begins_within_an_op_sees_the_rest_of_it(recording, within):
    inside = calls_of(scaled)
    running = profile(activities=[ProfilerActivity.CPU])
    within(running.start)
    assert asked(scaled) == len(inside)  # each of them once
    running.stop()
    names = [event.name for event in running.events()]
    assert "aten::mul" in names
    assert "aten::mul_" in names
    assert asked(scaled) == 2


def test_where_we_end_within_an_op_we_have_ended(recording, within):
    within(stop)
    torch.neg(torch.ones(2))
    assert asked(scaled) == 0
    opscope.init(frameworks="torch", layers=False, steps=False)
    session.start(RecorderCapture(recording / "next"))
    assert asked(scaled) == 2


def test_where_callbacks_are_switched_off_within_an_op_they_stay_off(recording, within):
    within(lambda: torch.autograd._enable_record_function(False))
    try:
        assert asked(scaled) == 0
    finally:
        torch.autograd._enable_record_function(True)
    assert asked(scaled) == 2


def test_after_an_op_that_raised_the_next_one_asks(recording):
    for _ in range(3):
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        assert asked(scaled) == 2
