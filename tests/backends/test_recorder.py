"""What is pushed and popped is what the recording holds: always, and after crashes and forks too."""

from __future__ import annotations

import gc
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.backends.profile_capture import capture
from opscope.backends.recorder import RecorderCapture
from opscope.backends.recording_folder import parts
from opscope.core import recording_format as recording
from opscope.core.capture import recorder_sink, session
from opscope.core.capture.emit import Emitter
from opscope.core.capture.own_cost import Spent
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.schema import OpCall, TensorSpec
from opscope.readers.errors import BadInput
from opscope.readers.recording.process_part import read_part
from opscope.readers.recording.reader import collect

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    session.stop()
    session.listen(None)


def run(program: str, folder: Path, expect: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == expect, done.stderr
    return done.stderr


# --- the law: a plain model of nesting, and the columnar pairing of the recording, agree

actions = st.lists(
    st.tuples(
        st.integers(0, 1),  # domain
        st.sampled_from(["push", "push", "payload", "pop", "pop", "complete", "mark"]),
        st.integers(0, 3),  # text
    ),
    max_size=40,
)


class Model:
    """Ranges as a stack machine finds them: one stack a domain."""

    def __init__(self) -> None:
        self.stacks: dict[int, list[list[object]]] = {0: [], 1: []}
        self.ranges: list[list[object]] = []

    def act(self, domain: int, what: str, text: str, payload: int | None) -> None:
        if what in ("push", "payload"):
            row = [domain, text, payload, "pushpop", True]
            self.stacks[domain].append(row)
            self.ranges.append(row)
        elif what == "mark":
            self.ranges.append([domain, text, None, "mark", False])
        elif self.stacks[domain]:
            row = self.stacks[domain].pop()
            row[4] = False
            if what == "complete":
                row[1] = text


@given(before=actions, during=actions, after=actions, flush_at=st.integers(0, 40))
def test_recording_equals_a_stack_machine(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[tuple[int, str, int]],
    during: list[tuple[int, str, int]],
    after: list[tuple[int, str, int]],
    flush_at: int,
) -> None:
    emitters = [Emitter("one"), Emitter("two")]
    recorder = Recorder(tmp_path_factory.mktemp("law"))
    model = Model()

    def play(steps: list[tuple[int, str, int]], recorded: bool) -> None:
        for number, (domain, what, text) in enumerate(steps):
            emitter = emitters[domain]
            prepared = emitter.prepare(f"{'c' if what == 'complete' else 't'}{text}")
            if recorded:
                model.act(domain, what, prepared.text, text if what == "payload" else None)
                if number == flush_at:
                    recorder.flush()
            if what == "push":
                emitter.push(prepared)
            elif what == "payload":
                emitter.push(prepared, text, 3)
            elif what == "mark":
                emitter.mark(prepared)
            else:
                emitter.pop(prepared if what == "complete" else None)

    play(before, False)
    recorder.start()
    for emitter in emitters:
        emitter.listen(recorder)
    play(during, True)
    for emitter in emitters:
        emitter.listen(None)
    recorder.stop()
    play(after, False)
    assert recorder.folder is not None
    ranges = read_part(recorder.folder)["ranges"]
    got = [
        [
            0 if r["domain"] == "opscope.one" else 1,
            r["text"],
            r["seq"],
            r["kind"],
            r["attrs"] is not None,
        ]
        for r in ranges.iter_rows(named=True)
    ]
    assert sorted(map(repr, got)) == sorted(map(repr, model.ranges))
    assert ranges["start"].is_sorted()
    assert (ranges["end"] >= ranges["start"]).all()
    payloads = ranges.filter(pl.col("seq").is_not_null())
    assert set(payloads["fwd_thread"]) <= {3}
    assert ranges["id"].to_list() == list(range(ranges.height))


def test_threads_processes_and_clocks(tmp_path: Path) -> None:
    emitter = session.emitter("torch")
    call = OpCall("aten::add", (TensorSpec("f32", (2,)),), ())
    recording = RecorderCapture(tmp_path / "rec")
    session.start(recording)
    prepared = emitter.prepare(call, "backward")

    def work() -> None:
        for number in range(100):
            emitter.push(prepared, number, 1)
            emitter.pop()

    threads = [threading.Thread(target=work, name=f"worker {n}") for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert emitter.active
    assert session.stop() is recording
    assert not emitter.active
    trace = collect(tmp_path / "rec")
    ranges = trace["ranges"]
    assert ranges.group_by("thread").agg(pl.col("seq").sort()).height == 4
    assert all(
        ranges.filter(thread=t)["seq"].to_list() == [*range(100)] for t in ranges["thread"].unique()
    )
    assert {*trace["threads"]["name"]} == {f"worker {n}" for n in range(4)}
    (process,) = trace["processes"].rows(named=True)
    assert (process["pid"], process["parent"]) == (os.getpid(), None)
    assert json.loads(process["versions"])["python"]
    (clock,) = trace["clocks"].rows(named=True)
    unix = ranges["start"][0] + clock["to_unix_ns"]
    assert abs(time.time_ns() - unix) < 60 * 10**9
    assert 0 <= clock["error_ns"] < 10**7


@pytest.mark.parametrize(
    ("due_in", "written"), [(-1, 1), (recorder_sink.FLUSH_NS // 4, 1), (10**12, 0)]
)
def test_what_is_soon_due_is_written_before_a_step_rather_than_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, due_in: int, written: int
) -> None:
    monkeypatch.setattr(session, "_steps", session._Steps())
    session.start(RecorderCapture(tmp_path / "rec"))
    recorder = session.recorder()
    assert recorder is not None
    open_steps: list[bool] = []
    monkeypatch.setattr(recorder, "flush", lambda: open_steps.append(session._steps.pushed))
    recorder.deadline = recorder_sink.perf_counter_ns() + due_in
    session.begin_step()
    recorder.deadline = recorder_sink.perf_counter_ns() + 10**12
    session.end_step()
    assert open_steps == [False] * written
    monkeypatch.undo()
    session.stop()


def test_the_last_write_is_in_the_time_that_its_cost_is_held_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = recorder_sink.Recorder._write

    def slow(self: recorder_sink.Recorder, chunks: list[bytes], memory: bytes) -> None:
        if not self.running:
            time.sleep(0.3)
        write(self, chunks, memory)

    monkeypatch.setattr(recorder_sink.Recorder, "_write", slow)
    session.start(RecorderCapture(tmp_path / "rec"))
    with session.annotate("short"):
        pass
    session.stop()
    trace = collect(tmp_path / "rec")
    costs = trace["own_costs"]
    assert 300_000_000 <= costs["time"].sum() <= costs["span"][0]
    assert trace["ranges"]["end"].max() - trace["ranges"]["start"].min() < 300_000_000


def test_a_killed_process_leaves_what_was_flushed(tmp_path: Path) -> None:
    run(
        """
import os, signal
from opscope.core.capture import session
from opscope.backends.recorder import RecorderCapture
session.start(RecorderCapture("rec"))
emitter = session.emitter("torch")
one = emitter.prepare("one", "forward")
with session.annotate("outer"):
    for _ in range(100):
        emitter.push(one); emitter.pop()
    emitter.push(one); emitter.pop()
    session.recorder().flush()
    emitter.push(one)
    os.kill(os.getpid(), signal.SIGKILL)
""",
        tmp_path,
        expect=-signal.SIGKILL,
    )
    trace = collect(tmp_path / "rec")
    ranges = trace["ranges"]
    assert ranges.filter(pl.col("text").cast(pl.String) == "one").height == 101
    outer = ranges.filter(pl.col("text").cast(pl.String) == "outer")
    assert outer["attrs"].to_list() == ['{"unclosed":true}']
    assert outer["end"][0] == ranges["end"].max()
    assert "without closing" in " ".join(trace["notes"]["what"])
    (told,) = [what for what in trace["notes"]["what"] if "still open at the end" in what]
    assert "harmless: all work in them counts" in told


@pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="on Python 3.10 a forked child hangs at exit once Polars is loaded, with or without us",
)
def test_forked_children_have_parts_of_their_own(tmp_path: Path) -> None:
    run(
        """
import multiprocessing, os, sys
from opscope.core.capture import session
from opscope.backends.recorder import RecorderCapture
def work(n):
    with session.annotate(f"child {n}"): pass
session.start(RecorderCapture("rec"))
context = multiprocessing.get_context("fork")
with session.annotate("open at the fork"):
    children = [context.Process(target=work, args=(n,)) for n in range(2)]
    [c.start() for c in children]; [c.join() for c in children]
    if os.fork() == 0:
        os._exit(0)  # says nothing, leaves nothing
    os.wait()
    if os.fork() == 0:
        with session.annotate("plain fork"): pass
        sys.exit(0)
    os.wait()
""",
        tmp_path,
    )
    trace = collect(tmp_path / "rec")
    processes = trace["processes"]
    assert len(parts(tmp_path / "rec")) == processes.height == 4
    ranges = trace["ranges"].join(processes.select("process", "parent"), on="process")
    top = ranges.filter(pl.col("text").cast(pl.String) == "open at the fork")
    assert top.height == 1
    assert top["attrs"].null_count() == 1
    children = ranges.filter(pl.col("parent") == top["process"][0])
    assert {*children["text"].cast(pl.String)} == {"child 0", "child 1", "plain fork"}
    assert ranges.height == 4


def test_a_second_recording_of_a_process_merges_with_the_first(tmp_path: Path) -> None:
    for name in ("a", "b"):
        session.start(RecorderCapture(tmp_path / "rec"))
        with session.annotate(name):
            pass
        session.stop()
    trace = collect(tmp_path / "rec")
    assert len(parts(tmp_path / "rec")) == 2
    assert trace["processes"].height == 1
    assert trace["ranges"]["text"].cast(pl.String).to_list() == ["a", "b"]


def test_steps_that_are_over_are_in_no_later_recording(tmp_path: Path) -> None:
    """Nor in memory: a text that is said once is not kept, however long the program runs."""
    for name in ("a", "b"):
        session.start(RecorderCapture(tmp_path / name))
        for _ in range(20):
            session.begin_step()
            session.end_step()
        session.stop()
    (part,) = parts(tmp_path / "b")
    written = [
        json.loads(line)[3] for line in (part / recorder_sink.STRINGS).read_text().splitlines()
    ]
    steps = [text for text in written if text.startswith("step ")]
    assert len(steps) == 20
    texts = collect(tmp_path / "b")["ranges"]["text"].cast(pl.String).to_list()
    assert texts == steps
    assert int(steps[0].removeprefix("step ")) > 0  # those of the first recording came before


def test_a_flush_keeps_nothing_of_what_its_callers_hold(tmp_path: Path) -> None:
    """Neither of this thread's frames nor of another's, and not only until the garbage is collected."""

    class Held:
        pass

    made, go_on, gone = threading.Event(), threading.Event(), []

    def other() -> None:
        held = Held()
        gone.append(weakref.ref(held))
        made.set()
        go_on.wait()

    def work(recorder: Recorder) -> None:
        held = Held()
        gone.append(weakref.ref(held))
        recorder.flush()

    session.start(RecorderCapture(tmp_path))
    recorder = session.recorder()
    assert recorder is not None
    thread = threading.Thread(target=other)
    gc.disable()
    try:
        thread.start()
        made.wait()
        work(recorder)
        go_on.set()
        thread.join()
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()
        go_on.set()


def test_one_capture_at_a_time(tmp_path: Path) -> None:
    session.start(RecorderCapture(tmp_path / "rec"))
    with pytest.raises(session.SessionError, match="already running"):
        session.start(RecorderCapture(tmp_path / "other"))
    assert session.stop() is not None
    assert session.stop() is None
    assert not (tmp_path / "other").exists()


def test_the_disk_filling_up_never_reaches_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path)
    recorder.start()
    session.listen(recorder)
    monkeypatch.setattr(
        recorder_sink.os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
    )
    for _ in range(3):
        with session.annotate("x"):
            pass
        recorder.flush()
    assert caplog.text.count("ends here") == 1
    recorder.stop()


def test_the_limit_of_size_ends_the_recording_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path, max_bytes=4096)
    recorder.start()
    session.listen(recorder)
    for _ in range(5):
        for _ in range(50):
            with session.annotate("x"):
                pass
        recorder.flush()
    session.listen(None)
    recorder.stop()
    assert recorder.folder is not None
    assert (recorder.folder / recording.EVENTS).stat().st_size <= 4096
    trace = read_part(recorder.folder)
    assert "ended early: it reached its limit" in " ".join(trace["notes"]["what"])
    assert "it reached its limit of 4096 bytes" in caplog.text
    assert trace["ranges"].height == 100


def test_a_clock_that_was_set_is_told_and_is_no_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path)
    recorder.start()
    real = recorder_sink.time.time_ns
    monkeypatch.setattr(recorder_sink.time, "time_ns", lambda: real() - 3600 * 10**9)
    recorder.stop()
    assert recorder.folder is not None
    trace = read_part(recorder.folder)
    assert trace["clocks"]["drift_ppm"].to_list() == [None]
    (note,) = [note for note in trace["notes"]["what"] if "time of day" in note]
    assert "by -3.6e+03 s" in note


# --- strangers' files


@pytest.fixture
def part(tmp_path: Path) -> Path:
    recorder = Recorder(tmp_path)
    recorder.start()
    recorder.deadline = 1 << 62  # one chunk, however slow the machine
    session.listen(recorder)
    for name in ("a", "b", "c"):
        with session.annotate(name):
            pass
    session.listen(None)
    recorder.stop()
    assert recorder.folder is not None
    return recorder.folder


@pytest.mark.parametrize("cut", range(1, 96))
def test_a_torn_events_file_is_read_up_to_the_tear(part: Path, cut: int) -> None:
    events = part / recording.EVENTS
    data = events.read_bytes()
    events.write_bytes(data[:-cut])
    trace = read_part(part)
    notes = " ".join(trace["notes"]["what"])
    assert ("the last record is incomplete" in notes) == (cut < len(data))
    whole = max(0, (len(data) - cut) // 16 - 1)
    assert trace["ranges"].height == (whole + 1) // 2


def test_a_torn_line_is_left_out(part: Path) -> None:
    for name in (recording.STRINGS, recording.FACTS):
        with (part / name).open("a") as file:
            file.write('["half a li')
    assert read_part(part)["ranges"].height == 3


def test_lost_texts_are_counted_not_guessed(part: Path) -> None:
    lines = (part / recording.STRINGS).read_text().splitlines(keepends=True)
    (part / recording.STRINGS).write_text("".join(line for line in lines if '"b"' not in line))
    trace = read_part(part)
    assert "b" not in trace["ranges"]["text"].cast(pl.String).to_list()
    assert "records whose text was lost" in trace["notes"]["what"].to_list()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (recording.META, b"", "not JSON"),
        (recording.META, b"[1]", "not part of an opscope recording"),
        (recording.META, b'{"format": "opscope-recording", "version": 99}', "format version 99"),
        (recording.STRINGS, b"{}\n", "not a text"),
        (recording.STRINGS, b"[1, 2]\n", "not a text"),
        (recording.STRINGS, b"\xff\xfe\n", "not JSON"),
        (recording.STRINGS, b"[" * 5000 + b"\n", "not JSON"),
        (recording.STRINGS, b'[99999999999999999999999, "d", null, "t"]\n', "not a text"),
        (recording.FACTS, b'{"thread": "x"}\n', "facts"),
        (recording.FACTS, b"[]\n17\n", "facts"),
        (
            recording.EVENTS,
            struct.pack("<4q", 5, 5, 5, 5),
            "damaged: no chunk of records at byte 0",
        ),
        (
            recording.EVENTS,
            struct.pack("<2q", recording.CHUNK, -1),
            "damaged: no chunk of records at byte 0",
        ),
    ],
)
def test_bad_files_are_named(part: Path, name: str, data: bytes, message: str) -> None:
    (part / name).write_bytes(data)
    with pytest.raises(BadInput, match=message) as caught:
        read_part(part)
    assert str(part) in str(caught.value)


def test_no_recording_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no recording here"):
        collect(tmp_path)
    with pytest.raises(BadInput):
        read_part(tmp_path / "absent")


def test_capture_writes_a_profile_even_when_the_program_fails(tmp_path: Path) -> None:
    profile = pytest.importorskip("opscope.readers.profile.profile_folder")
    target = tmp_path / "deep" / "run.opscope"

    def program() -> None:
        with capture(target, backend="recorder"):
            with session.annotate("before the fault"):
                pass
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert [path.name for path in target.parent.iterdir()] == ["run.opscope"]
    trace = profile.read(target)[0]
    assert trace["ranges"]["text"].cast(pl.String).to_list() == ["before the fault"]
    with pytest.raises(FileExistsError), capture(target):
        raise AssertionError("never begun")
    assert session.capturing() is None


def test_a_gpu_without_kernels_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        @staticmethod
        def is_initialized() -> bool:
            return True

    for number, used in enumerate((False, True)):
        if used:
            monkeypatch.setitem(sys.modules, "torch.cuda", Cuda)  # type: ignore[arg-type]
        folder = tmp_path / str(number)
        session.start(RecorderCapture(folder))
        session.stop()
        assert bool(collect(folder).origin.get("gpu")) is used


def test_a_part_of_opscope_whose_cost_was_not_timed_is_kept(tmp_path: Path) -> None:
    """One call in 64 is timed; of fewer the time is not known, and the part was there all the same."""
    session.start(RecorderCapture(tmp_path / "rec"))
    session.recorder().spending.append(lambda: Spent("rare", None, 3, 64, 0))
    session.stop()
    costs = collect(tmp_path / "rec")["own_costs"]
    assert costs.filter(pl.col("part") == "rare").select("time", "calls").rows() == [(None, 3)]
