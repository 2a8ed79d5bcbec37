"""A ring holds the last seconds or steps, stays flat however long it runs, and is written when it should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opscope
from opscope.backends import recording_folder
from opscope.backends.ring import RingCapture
from opscope.core import recording_format as recording
from opscope.core.capture import emit, ring_dump, ring_recorder, session
from opscope.core.capture.emit import Emitter
from opscope.core.capture.ring_bounds import Bounds, Last
from opscope.core.capture.ring_recorder import RingRecorder
from opscope.readers.recording.reader import collect

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing_left(fresh_steps: Any) -> Iterator[None]:
    yield
    session.stop()
    session.listen(None)
    opscope.shutdown()


class Clock:
    """Stands in for the ring's clock: what it calls a second takes no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0
        real = time.perf_counter_ns
        for module in (ring_recorder, session, sys.modules[RingRecorder.__mro__[1].__module__]):
            monkeypatch.setattr(module, "perf_counter_ns", lambda: real() + self.ahead)
        import opscope.core.capture.emit as emit

        monkeypatch.setattr(emit, "perf_counter_ns", lambda: real() + self.ahead)

    def pass_s(self, seconds: float) -> None:
        self.ahead += int(seconds * 1e9)


def ring_of(folder: Path, **bounds: Any) -> tuple[RingCapture, RingRecorder]:
    capture = RingCapture(folder, Bounds(**bounds))
    session.start(capture)
    recorder = capture.recorder
    assert recorder is not None
    recorder._idle.stop()  # the test does what its thread does
    return capture, recorder


def steps(path: Path) -> list[str]:
    found = collect(path)["ranges"]
    return found.filter(pl.col("category") == "step").sort("start")["text"].cast(str).to_list()


def size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def test_the_last_steps_and_only_these_are_in_the_profile(tmp_path: Path) -> None:
    with opscope.capture(tmp_path / "run.opscope", last="5 steps"):
        for _ in range(40):
            opscope.step()
            with opscope.annotate("work"):
                pass
        session.end_step()
    trace = opscope.load(tmp_path / "run.opscope").trace
    found = trace["ranges"].filter(pl.col("category") == "step").sort("start")["text"].cast(str)
    assert found.to_list() == [f"step {number}" for number in range(35, 40)]
    work = trace["ranges"].filter(pl.col("text").cast(str) == "work")
    assert work.height == 5
    assert [path.name for path in tmp_path.iterdir()] == ["run.opscope"]
    assert "this is the last 5 steps" in " ".join(trace["notes"]["what"].cast(str))


def drop_texts_of(emitter: Emitter) -> None:
    """Forget the emitter's texts, and no other's: the process's other emitters keep theirs for later tests."""
    for prepared in emitter._interned.values():
        emit._alive.discard(prepared)
    emitter._interned.clear()


def test_many_segments_stay_flat_on_disk_and_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(ring_recorder, "_LEAST_STRINGS", 1 << 12)
    monkeypatch.setattr(ring_recorder, "_LEAST_FACTS", 1 << 12)
    _, recorder = ring_of(tmp_path / "ring", last=Last(seconds=8))
    recorder._compact_strings = recorder._compact_facts = 1 << 12
    sizes, kept = [], []
    for number in range(2400):  # 40 minutes, in 2,400 segments
        opscope.step(number)
        with opscope.annotate(f"text of step {number}"):
            clock.pass_s(1)
        drop_texts_of(session.user_emitter())  # as if the program had
        recorder._look()
        if number % 400 == 399:
            sizes.append(size(tmp_path / "ring"))
            kept.append(len(recorder._kept) + len(recorder._threads_facts))
    assert recorder._numbers > 2000
    assert max(sizes[2:]) < 1.5 * sizes[1]
    assert max(kept) == min(kept)
    assert len(list((tmp_path / "ring").rglob("segment-*"))) <= 12
    session.end_step()
    session.stop()
    found = steps(tmp_path / "ring")
    assert found[-1] == "step 2399"
    assert 7 <= len(found) <= 9  # those that lie wholly in the last 8 s
    texts = collect(tmp_path / "ring")["ranges"]["text"].cast(str).to_list()
    assert f"text of step {2399}" in texts


def test_a_text_that_is_used_again_after_a_long_time_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    _, recorder = ring_of(tmp_path / "ring", last=Last(seconds=4))
    recorder._compact_strings = 1
    once = session.user_emitter().prepare("kept by its owner")
    for number in range(100):
        recorder._compact_strings = 1
        opscope.step(number)
        clock.pass_s(1)
        recorder._look()
    session.user_emitter().push(once)
    session.user_emitter().pop()
    session.stop()
    trace = collect(tmp_path / "ring")
    assert "kept by its owner" in trace["ranges"]["text"].cast(str).to_list()
    assert not any("text was lost" in one for one in trace["notes"]["what"].cast(str))


def test_a_slow_step_is_written_with_the_step_before_and_two_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    _, recorder = ring_of(tmp_path / "ring", last=Last(steps=2), slow=3.0)
    for number in range(60):
        opscope.step(number)
        clock.pass_s(4.0 if number == 40 else 1.0)
        recorder._look()
    dumps = ring_dump.dumps(tmp_path / "ring")
    assert [(number, kind) for number, kind, _ in dumps] == [(1, "slow")]
    dump = dumps[0][2]
    said = ring_dump.ready(dump)
    assert said is not None
    assert "4.0 times the median" in said["why"]
    found = steps(dump)
    assert found[:4] == ["step 39", "step 40", "step 41", "step 42"]
    assert len(found) <= 5
    session.stop()
    assert steps(tmp_path / "ring")[-1] == "step 59"  # the ring went on


def test_a_step_longer_than_the_ring_is_in_the_file_from_its_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    _, recorder = ring_of(tmp_path / "ring", last=Last(seconds=4), slow=3.0)
    for number in range(30):
        opscope.step(number)
        for part in range(20 if number == 20 else 1):
            with opscope.annotate(f"part {part}"):
                clock.pass_s(1)
            recorder._look()
    (_, _, dump), *_ = ring_dump.dumps(tmp_path / "ring")
    trace = collect(dump)
    texts = trace["ranges"]["text"].cast(str).to_list()
    assert {"step 19", "step 20", "part 19"} <= set(texts)
    assert texts.count("part 10") == 1


def test_slow_steps_are_written_at_most_so_often_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch)
    _, recorder = ring_of(tmp_path / "ring", last=Last(seconds=10), slow=3.0, gap=0.0, files=3)
    for number in range(300):
        opscope.step(number)
        clock.pass_s(10.0 if number % 30 == 29 else 1.0)
        recorder._look()
    assert len(ring_dump.dumps(tmp_path / "ring")) == 3
    told = [one.getMessage() for one in caplog.records if "no more are written" in one.getMessage()]
    assert len(told) == 1


def test_ranks_that_see_one_slow_step_write_it_once(tmp_path: Path) -> None:
    first = ring_dump.claim(tmp_path, "slow", 60, 5)
    assert isinstance(first, Path)
    ring_dump.discard(first)  # it has become a profile, and counts all the same
    assert "before" in str(ring_dump.claim(tmp_path, "slow", 60, 5))
    assert "no more" in str(ring_dump.claim(tmp_path, "slow", 0, 1))
    for number in range(2, 12):
        asked = ring_dump.claim(tmp_path, "signal", 0, 0)
        assert isinstance(asked, Path)
        assert asked.name == f"dump-{number:05d}-signal"
        ring_dump.discard(asked)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_dump_has_the_other_processes_too_and_they_go_on(tmp_path: Path) -> None:
    _, recorder = ring_of(tmp_path / "ring", last=Last(seconds=30))
    with opscope.annotate("in the parent"):
        pass
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        with opscope.annotate("in the child"):
            pass
        session.recorder().flush()  # type: ignore[union-attr]
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        session.finish()
        os._exit(0)
    os.read(ready[0], 1)
    dump = recorder.dump("dump", "asked for")
    os.write(done[1], b"x")
    os.waitpid(child, 0)
    assert isinstance(dump, Path)
    texts = set(collect(dump)["ranges"]["text"].cast(str))
    assert {"in the parent", "in the child"} <= texts
    with opscope.annotate("later"):
        pass
    session.stop()
    assert "later" in set(collect(tmp_path / "ring")["ranges"]["text"].cast(str))


def test_parts_of_dead_processes_go_once_they_are_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    _, recorder = ring_of(tmp_path / "ring", last=Last(seconds=2))
    with opscope.annotate("parent"):
        pass
    child = os.fork()
    if not child:
        with opscope.annotate("child"):
            pass
        session.finish()
        os._exit(0)
    os.waitpid(child, 0)
    recorder.flush()
    assert len(recording_folder.parts(tmp_path / "ring")) == 2
    recorder._sweep(ring_recorder.perf_counter_ns())
    assert len(recording_folder.parts(tmp_path / "ring")) == 2  # it is not old yet
    old = time.time() - 100
    for part in recording_folder.parts(tmp_path / "ring"):
        if part != recorder.folder:
            for one in part.rglob("*"):
                os.utime(one, (old, old))
    clock.pass_s(100)
    recorder._sweep(ring_recorder.perf_counter_ns())
    assert recording_folder.parts(tmp_path / "ring") == [recorder.folder]


def test_the_ring_has_a_largest_size_and_says_when_it_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    limit = 1 << 20
    _, recorder = ring_of(tmp_path / "ring", last=Last(seconds=3600), max_bytes=limit)
    for number in range(60):
        opscope.step(number)
        for _ in range(2000):
            with opscope.annotate("many"):
                pass
        clock.pass_s(1)
        recorder._look()
        held = sum(one.stat().st_size for one in (tmp_path / "ring").rglob("events.bin"))
        assert held <= limit
    session.stop()
    assert any(
        "reached 1 MiB" in one for one in collect(tmp_path / "ring")["notes"]["what"].cast(str)
    )


def test_what_a_killed_process_leaves_is_its_last_seconds(tmp_path: Path) -> None:
    program = """
        import os, signal, time, opscope
        from opscope.backends.ring import RingCapture
        from opscope.core.capture import session
        from opscope.core.capture.ring_bounds import Bounds, Last
        session.start(RingCapture("ring", Bounds(Last(steps=1))))
        for number in range(40):
            opscope.step(number)
            with opscope.annotate("work"):
                time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run(program, tmp_path, -signal.SIGKILL)
    trace = collect(tmp_path / "ring")
    found = steps(tmp_path / "ring")
    assert len(found) < 30
    assert int(found[-1].split()[1]) >= 30
    assert any("without closing" in one for one in trace["notes"]["what"].cast(str))


def run(program: str, folder: Path, expect: int = 0, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == expect, done.stderr
    return done.stderr


def test_an_exception_that_leaves_the_block_writes_its_last_seconds(tmp_path: Path) -> None:
    def fails() -> None:
        with opscope.capture(tmp_path / "run.opscope", last="30s"):
            opscope.step()
            raise KeyError("secret")

    with pytest.raises(KeyError):
        fails()
    notes = " ".join(opscope.load(tmp_path / "run.opscope").trace["notes"]["what"].cast(str))
    assert "an exception left it: KeyError" in notes
    assert "secret" not in notes


SIGNALLED = """
    import logging, os, signal, time, opscope
    heard = []
    {before}
    with opscope.capture("run.opscope", last="30s", last_signal="USR2"):
        opscope.step()
        {after}
        os.kill(os.getpid(), signal.SIGUSR2)
        for _ in range(200):
            opscope.step()
            time.sleep(0.01)
            if any(name.startswith("run-signal") for name in os.listdir(".")):
                break
    print("heard", len(heard), "now", signal.getsignal(signal.SIGUSR2))
    print("after", signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL, flush=True)
"""


def test_the_named_signal_writes_a_profile_and_the_ring_goes_on(tmp_path: Path) -> None:
    run(SIGNALLED.format(before="", after=""), tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.opscope")) == [
        "run-signal-1.opscope",
        "run.opscope",
    ]
    notes = opscope.load(tmp_path / "run-signal-1.opscope").trace["notes"]["what"].cast(str)
    assert any("SIGUSR2 came" in one for one in notes)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_of_the_program_has_its_signal(tmp_path: Path, when: str) -> None:
    install = "signal.signal(signal.SIGUSR2, lambda *_: heard.append(1))"
    other = "after" if when == "before" else "before"
    program = SIGNALLED.format(**{when: install, other: "pass"}) + "    assert len(heard) == 1\n"
    said = run(program.replace("range(200)", "range(60)"), tmp_path)
    assert "has a handler" in said if when == "before" else "has taken SIGUSR2" in said
    assert [path.name for path in tmp_path.glob("*.opscope")] == ["run.opscope"]


def test_wrong_options_are_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    for options in ({"slow": 3}, {"last": "soon"}, {"last": 5, "slow": 1}, {"last_signal": "USR2"}):
        with pytest.raises(ValueError, match=r"last|median|steps"):
            opscope.capture(tmp_path / "run.opscope", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kineto"):
        opscope.capture(tmp_path / "run.opscope", last=5, backend="kineto")
    assert not list(tmp_path.iterdir())


def test_threads_that_come_and_go_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    _, recorder = ring_of(tmp_path / "ring", last=Last(seconds=4))

    def work() -> None:
        with opscope.annotate("in a thread"):
            pass

    for _ in range(60):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        recorder._compact_facts = 1
        clock.pass_s(1)
        recorder._look()
    assert len(recorder._threads_facts) < 15
    session.stop()
    trace = collect(tmp_path / "ring")
    assert trace["ranges"].filter(pl.col("thread") < 0).height == 0
    assert trace["ranges"].height >= 3


def test_a_profiler_s_data_joins_the_ring_by_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Buffers:
        def __init__(self) -> None:
            self.ended: list[str] = []

        def begin(self, part: Path, segment: Path) -> dict[str, Any]:
            assert segment.parent == part
            return {"gpu": True}

        def segment(self, ended: Path, begun: Path) -> tuple[int, dict[str, Any]]:
            (ended / "buffers.raw").write_bytes(b"buffers")
            assert begun.is_dir()
            self.ended.append(ended.name)
            return 7, {}

        def held(self) -> int:
            return 0

    clock = Clock(monkeypatch)
    _, recorder = ring_of(tmp_path / "ring", last=Last(seconds=4))
    buffers = Buffers()
    recorder.join(buffers)
    for number in range(8):
        opscope.step(number)
        clock.pass_s(1)
        recorder._look()
    dump = recorder.dump("dump", "asked for")
    assert isinstance(dump, Path)
    assert len(buffers.ended) >= 7
    assert 3 <= len(list(dump.rglob("buffers.raw"))) <= 6


def test_a_payload_stays_with_its_range_at_the_cut() -> None:
    import numpy as np

    from opscope.readers.recording.ring import since

    log = np.array(
        [(recording.PAYLOAD, 7), (1, 100), (-16, 110), (recording.PAYLOAD, 8), (1, 120), (-16, 130)]
    )
    assert since(115, log).tolist() == [[recording.PAYLOAD, 8], [1, 120], [-16, 130]]
    assert len(since(100, log)) == 6
