"""Samples of Python stacks: the hot line is found, with what the thread did there; the program is left alone."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

import opscope
from opscope.adapters.shared import native_stacks
from opscope.adapters.shared.compiled import BuildError
from opscope.backends import kineto_capture
from opscope.core.analysis.host.host_lines import outside_lines
from opscope.core.capture import host_stacks, ring_recorder, session
from opscope.core.capture.called import called
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.capture.ring_bounds import Bounds, Last
from opscope.core.tables.trace import Trace
from opscope.profile.profile import Profile
from opscope.readers.recording.process_part import read_part
from opscope.readers.recording.reader import collect
from tests.fake_cuda import FakeCuda

pytestmark = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="frames are read under the GIL"
)


@pytest.fixture(params=["natively", "in Python"])
def sampling(request, monkeypatch):
    """Samples natively, then in Python, at the same high rate."""
    for left in tuple(host_stacks._running):  # of a test that left its recording open
        left.end()
    monkeypatch.delenv(host_stacks.VARIABLE, raising=False)
    monkeypatch.setattr(host_stacks, "_chosen", None)
    monkeypatch.setattr(host_stacks, "PERIOD_NS", 2_000_000)
    monkeypatch.setattr(host_stacks, "PYTHON_PERIOD_NS", 2_000_000)
    monkeypatch.setattr(host_stacks, "SHARE", 1)
    monkeypatch.setattr(native_stacks.NativeStacks.open, "__defaults__", (1,))
    if request.param == "natively":
        try:
            native_stacks.make()
        except (BuildError, OSError) as error:
            pytest.skip(str(error))
    monkeypatch.setattr(
        host_stacks, "native", native_stacks.make if request.param == "natively" else None
    )
    return request.param


def recorded(folder: Path, work) -> tuple[Trace, pl.DataFrame]:
    """Record ``work`` on this thread; return the trace, and the time (s) by line's text and kind."""
    recorder = Recorder(folder)
    recorder.start()
    recorder.new_thread()
    try:
        work()
    finally:
        recorder.stop()
    (part,) = folder.glob("part-*")
    trace = read_part(part)
    lines = Profile(trace).of(outside_lines)
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    shown = [
        source[int(line.rpartition(":")[2]) - 1].strip()
        if line and line.startswith(__file__)
        else ""
        for line in lines["line"]
    ]
    sums = (
        lines.with_columns(pl.Series("text", shown))
        .group_by("text", "kind")
        .agg(((pl.col("end") - pl.col("start")).sum() / 1e9).alias("seconds"))
        .sort("seconds", descending=True)
    )
    return trace, sums


def seconds(sums: pl.DataFrame, text: str, *kinds: str) -> float:
    chosen = sums.filter((pl.col("text") == text) & pl.col("kind").is_in(kinds))
    return float(chosen["seconds"].sum())


def count(seconds_of_cpu: float) -> int:
    number, until = (
        0,
        time.thread_time() + seconds_of_cpu,
    )  # on a busy machine it may take far longer
    while time.thread_time() < until:
        number += 1  # the hot line
    return number


def until_sampled(recorder: Recorder, before: int = 0) -> None:
    """Count until there are samples: for some processor time too, as a thread that waits for a processor is
    sampled where it was before."""
    limit, ran = time.monotonic() + 60, time.thread_time() + 0.1
    while (
        time.thread_time() < ran
        or (recorder._stacks.facts() or {"samples": 0})["samples"] < before + 5
    ):
        assert time.monotonic() < limit
        count(0.005)


def assert_counted(samples: pl.DataFrame) -> None:
    stacks = samples["stack"].drop_nulls().cast(pl.String)
    assert any("count" in stack for stack in stacks), samples.select(
        "start", "end", "thread", "stack"
    ).rows()


def test_a_ring_keeps_the_samples_of_its_last_seconds(sampling, tmp_path, monkeypatch):
    monkeypatch.setattr(ring_recorder, "_LOOK_NS", 20_000_000)
    ring = ring_recorder.RingRecorder(tmp_path, Bounds(Last(seconds=1.0)))
    ring.start()
    session.listen(ring)
    try:
        until, first = time.monotonic() + 60, None
        while first is None or first.exists():  # opscope's thread turns segments meanwhile
            assert time.monotonic() < until
            with opscope.annotate("work"):
                pass
            count(0.02)
            first = first or next(tmp_path.glob("part-*/segment-00000001"), None)
        later = threading.Thread(target=annotated, args=(ring,))
        later.start()
        later.join()
        dump = ring.dump("signal", "a test asks", gap=0, most=0)
    finally:
        session.listen(None)
        ring.stop()
    (part,) = tmp_path.glob("part-*")
    segments = sorted(part.glob("segment-*"))
    assert any((segment / "stacks.bin").exists() for segment in segments)
    for folder in (part, dump / part.name):
        trace = read_part(folder)
        samples = trace["host_samples"].filter(pl.col("kind").is_null())
        begin, stop = trace.origin["recorded"]
        assert begin <= samples["start"].min() < samples["end"].max() <= stop
        assert_counted(samples)
        assert samples["thread"].n_unique() == 2, "a thread that began later is sampled too"


def test_beside_pytorchs_profiler_stacks_are_sampled_on_the_kernels_clock(sampling, tmp_path):
    gpu = FakeCuda()
    session.start(kineto_capture.KinetoCapture(tmp_path / "rec", lambda: gpu, gpu))
    with opscope.annotate("work"):
        gpu.launch()
    recorder = session.recorder()
    until_sampled(recorder, recorder._stacks.facts()["samples"] + 5)
    gpu.launch()
    session.stop()
    trace = collect(tmp_path / "rec")
    samples = trace["host_samples"].filter(pl.col("kind").is_null())
    assert_counted(samples)
    launches = trace["calls"].filter(pl.col("name").cast(pl.String).str.contains("Launch"))
    first, last = launches["start"].min(), launches["start"].max()
    assert len(samples.filter(pl.col("end") > first, pl.col("start") < last))


def annotated(recorder: Recorder) -> None:
    with opscope.annotate("later"):
        pass
    until_sampled(recorder, recorder._stacks.facts()["samples"])


def test_each_line_has_what_the_thread_did_there(sampling, tmp_path):
    lock = threading.Lock()

    def work() -> None:
        count(0.2)
        time.sleep(0.2)
        lock.acquire()
        threading.Timer(0.2, lock.release).start()
        with lock:
            pass
        with (tmp_path / "file").open("wb", buffering=0) as file:
            until = time.thread_time() + 0.2
            while time.thread_time() < until:
                file.write(bytes(8 << 20))
                file.seek(0)

    trace, sums = recorded(tmp_path, work)
    hot = ("while time.thread_time() < until:", "number += 1  # the hot line")
    assert sum(seconds(sums, line, "python") for line in hot) > 0.05, sums
    assert seconds(sums, "time.sleep(0.2)", "sleep") > 0.1, sums
    assert seconds(sums, "with lock:", "lock") > 0.05, sums
    assert seconds(sums, "file.write(bytes(8 << 20))", "file") > 0, sums
    (note,) = trace["notes"].filter(pl.col("what").str.starts_with("Python stacks"))["what"]
    assert sampling in note
    assert "times a second" in note


def test_only_recorded_threads_are_sampled(sampling, tmp_path):
    end = threading.Event()
    numbers = []

    def runs(recorder: Recorder | None) -> None:
        if recorder is not None:
            recorder.new_thread()
            numbers.append(threading.get_native_id())
        while not end.is_set():
            time.sleep(0.002)

    recorder = Recorder(tmp_path)
    recorder.start()
    recorder.new_thread()
    threads = [threading.Thread(target=runs, args=(which,)) for which in (recorder, None)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    end.set()
    for thread in threads:
        thread.join()
    recorder.stop()
    (part,) = tmp_path.glob("part-*")
    sampled = read_part(part)["host_samples"].filter(pl.col("kind").is_null())
    assert set(sampled["thread"]) == {threading.get_native_id(), *numbers}


def test_a_stack_is_described_although_no_sample_of_it_has_ended(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.start()
    recorder.new_thread()
    taken = iter([(b"", ["first"]), (b"", []), (b"x" * 40, ["second"])])
    recorder._stacks = SimpleNamespace(
        take=lambda: next(taken), facts=lambda: None, end=lambda: None
    )
    for _ in range(3):
        recorder._flush(idle=True)
    (part,) = tmp_path.glob("part-*")
    assert (part / "stacks.jsonl").read_text().split() == ["first", "second"]
    recorder._stacks = None
    recorder.stop()


def test_a_recorder_that_is_dropped_leaves_no_sampler(sampling, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        recorder = Recorder(tmp_path / name)
        recorder.start()
        recorder.new_thread()
        until_sampled(recorder)
        recorder._idle.stop()
        recorder._close()
        del recorder
        gc.collect()


def test_garbage_collection_is_told_apart(tmp_path, sampling):
    if sampling != "natively":
        pytest.skip("collections are noted natively alone")
    kept = [[] for _ in range(200_000)]

    def work() -> None:
        for _ in range(5):
            gc.collect()

    _, sums = recorded(tmp_path, work)
    assert len(kept) == 200_000
    assert sums.filter(pl.col("kind") == "garbage collection")["seconds"].sum() > 0.005
    assert not [function for function in gc.callbacks if "opscope" in repr(function)]


def test_a_recording_that_ended_takes_no_samples_of_the_next(tmp_path, sampling):
    if sampling != "natively":
        pytest.skip("the native sampler has one state")
    before, after = (native_stacks.make() for _ in range(2))
    assert before.open(2_000_000)
    assert after.open(2_000_000)
    main = threading.main_thread()
    after.thread(main.ident, main.native_id, True)
    after.start()
    limit = time.monotonic() + 60
    while after.figures()[2] < 5:
        assert time.monotonic() < limit
        count(0.005)
    before.stop()
    assert before.take() == (b"", [], [])
    count(0.05)
    after.stop()
    assert after.take()[0]


def test_what_a_look_costs_is_not_forgotten_in_a_pause(sampling):
    if sampling != "natively":
        pytest.skip("the sampler in Python does not pause")
    sampler, main = native_stacks.make(), threading.main_thread()
    assert sampler.open(1_000_000, 10_000_000)  # after a look the next one is due in seconds
    sampler.thread(main.ident, main.native_id, True)
    sampler.start()
    limit = time.monotonic() + 60
    while sampler.figures()[1] < 1:
        assert time.monotonic() < limit
        count(0.005)
    sampler.stop()
    looks = sampler.figures()[1]
    sampler.start()
    count(0.05)
    sampler.stop()
    assert sampler.figures()[1] == looks


@pytest.mark.parametrize("way", ["variable", "chosen"])
def test_stacks_can_be_left_out(way, tmp_path, monkeypatch):
    if way == "variable":
        monkeypatch.setenv(host_stacks.VARIABLE, "0")
    else:
        monkeypatch.setattr(host_stacks, "_chosen", False)
    recorder = Recorder(tmp_path)
    recorder.start()
    recorder.new_thread()
    time.sleep(0.05)
    recorder.stop()
    (part,) = tmp_path.glob("part-*")
    assert not list(part.glob("stacks*"))
    assert not read_part(part).has("host_samples")


PROGRAM = """
import os, sys, threading, time
from opscope.adapters.shared import native_stacks
from opscope.core.capture import host_stacks, ring_recorder, session
from opscope.core.capture.recorder_sink import Recorder
host_stacks.native = native_stacks.make
host_stacks.PERIOD_NS = 300_000
native_stacks.NativeStacks.open.__defaults__ = (1,)
sys.setswitchinterval(0.0005)
recorder = Recorder(sys.argv[1]); recorder.start(); recorder.new_thread()
def runs():
    recorder.new_thread()
    while True:
        sum(range(100))
def sleeps():
    recorder.new_thread()
    while True:
        time.sleep(0.0001)
"""


def test_a_program_that_ends_while_it_is_sampled_ends_as_it_would(tmp_path):
    try:
        native_stacks.make()
    except (BuildError, OSError) as error:
        pytest.skip(str(error))
    # each of 20 forked children is sampled as it ends: with three threads, and daemons among them
    program = PROGRAM + textwrap.dedent(
        """
        recorder.stop()
        for number in range(20):
            child = os.fork()
            if not child:
                recorder = Recorder(sys.argv[1]); recorder.start(); recorder.new_thread()
                for function in (runs, sleeps):
                    threading.Thread(target=function, daemon=True).start()
                time.sleep(0.02)
                recorder.flush()
                sys.exit(number)
            status = os.waitpid(child, 0)[1]
            assert os.waitstatus_to_exitcode(status) == number, status
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    sampled = [part for part in tmp_path.glob("part-*") if (part / "stacks.bin").is_file()]
    assert len(sampled) > 10


def test_a_process_forks_without_the_sampler(sampling, tmp_path):
    recorder = Recorder(tmp_path)
    recorder.start()
    recorder.new_thread()
    until_sampled(recorder)
    child = os.fork()
    if not child:
        mine = recorder.child()
        recorder.abandon()
        code = 1
        if len(os.listdir("/proc/self/task")) == 1:
            mine.start()
            mine.new_thread()
            until_sampled(mine)
            mine.stop()
            code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    before = recorder._stacks.facts()["samples"]
    limit = time.monotonic() + 30
    while recorder._stacks.facts()["samples"] < before + 3 and time.monotonic() < limit:
        count(0.005)
    recorder.stop()
    parts = [read_part(part)["host_samples"] for part in tmp_path.glob("part-*")]
    assert [len(samples) > 0 for samples in parts] == [True, True]
    assert recorder._stacks.facts()["samples"] >= before + 3


def test_a_fork_starts_no_sampler_of_a_recording_that_has_ended(sampling, tmp_path):
    before = Recorder(tmp_path)
    before.start()
    before.new_thread()
    until_sampled(before)
    before.stop()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    samples = before._stacks.facts()["samples"]
    after = Recorder(tmp_path)
    after.start()
    after.new_thread()
    until_sampled(after)
    after.stop()
    if sampling == "in Python":
        assert before._stacks.facts()["samples"] == samples


def test_what_an_instruction_calls_is_named_as_in_the_program():
    def calls(obj, path, items):
        time.sleep(1)
        obj.lock.acquire()
        with obj.lock:
            pass
        open(path, "rb")  # noqa: SIM115 - never called
        return len(items) + 1

    names = {called(calls.__code__, at) for at in range(0, len(calls.__code__.co_code), 2)}
    assert {"time.sleep", "obj.lock.acquire", "obj.lock.__enter__", "open", "len"} <= names
    assert called(calls.__code__, 1 << 20) is None
    assert called(calls.__code__, -1) is None
