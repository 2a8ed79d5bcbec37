"""The processors are sampled while a recording runs: as the kernel counts, and at no cost of the program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.capture import cpu_samples
from opscope.core.capture.cpu_samples import CpuSampler
from opscope.core.capture.emit import Emitter
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.schema import (
    CHILDREN_CPU,
    MACHINE_CPU,
    PROCESS_CPU,
    PROCESS_MEMORY,
    PROCESS_QUEUED,
    PROCESS_THREADS,
)
from opscope.profile import Profile
from opscope.readers.recording.process_part import read_part
from opscope.readers.recording.reader import collect

proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="compares with /proc")
pytest.importorskip("psutil")
LONG_S = 60


def used_ticks() -> int:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def machine_ticks() -> tuple[int, int]:
    """All ticks of the machine's processors, and those in which they were idle."""
    first = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, first[:8])
    return user + nice + system + idle + iowait + irq + softirq + steal, idle + iowait


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def values(sampler: CpuSampler, name: str) -> list:
    return [one for fact in sampler.take() for one in fact["values"].get(name, ())]


@pytest.fixture
def no_notes():
    notes: list[tuple[str, str]] = []
    yield lambda severity, what: notes.append((severity, what))
    assert notes == []


@proc
def test_the_process_used_as_many_ticks_as_the_kernel_counts(no_notes):
    sampler, tick = CpuSampler(10, no_notes), 1 / os.sysconf("SC_CLK_TCK")
    before_first, begin = used_ticks(), time.perf_counter()
    sampler.sample()
    after_first = used_ticks()
    for _ in range(5):
        burn(0.05)
        sampler.sample()
    low, high = used_ticks() - after_first, used_ticks() - before_first
    facts = sampler.take()[0]
    times, shares = facts["samples"], facts["values"][PROCESS_CPU]
    assert shares[0] is None
    used = sum(
        share / 100 * (now - then) / 1e9
        for share, now, then in zip(shares[1:], times[1:], times, strict=False)
    )
    # the readings of /proc lie before and after those of the sampler
    assert (low - 1) * tick <= used <= (high + 1) * tick
    assert used >= 0.2
    assert time.perf_counter() - begin < LONG_S


@proc
def test_the_machine_was_as_busy_as_the_kernel_counts(no_notes):
    sampler = CpuSampler(10, no_notes)
    all_0, idle_0 = machine_ticks()
    sampler.sample()
    all_1, idle_1 = machine_ticks()
    burn(0.3)
    all_2, idle_2 = machine_ticks()
    sampler.sample()
    all_3, idle_3 = machine_ticks()
    busy = values(sampler, MACHINE_CPU)[-1] / 100
    # between the two readings lay at least 1 to 2, and at most 0 to 3
    least = (all_2 - all_1) - (idle_2 - idle_1) - 2
    most = (all_3 - all_0) - (idle_3 - idle_0) + 2
    processors = os.cpu_count() or 1
    assert least / (all_3 - all_0 + 2 * processors) <= busy
    assert busy <= most / max(1, all_2 - all_1 - 2 * processors)


@proc
def test_a_child_process_counts_as_such_whether_it_lives_or_was_waited_for(no_notes):
    sampler = CpuSampler(10, no_notes)
    if sampler._psutil is None and not cpu_samples._LISTS:
        pytest.skip("this kernel does not list children")
    sampler.sample()
    code = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()
    sampler._slow_due = 0
    sampler.sample()  # it lives
    child.communicate(b"\n")
    sampler._slow_due = 0
    sampler.sample()  # it was waited for: its time is not counted again
    facts = sampler.take()
    slow = next(one for one in facts if CHILDREN_CPU in one["values"])
    times, shares = slow["samples"], slow["values"][CHILDREN_CPU]
    lived, waited = (
        share / 100 * (now - then) / 1e9
        for share, now, then in zip(shares[1:], times[1:], times, strict=False)
    )
    assert lived >= 0.45
    assert waited < 0.4


def test_a_recording_has_samples_their_cost_and_the_peak_of_memory(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.start()
    emitter = Emitter("cpu")
    emitter.listen(recorder)
    try:
        emitter.push(emitter.prepare("some work"))
        limit = time.monotonic() + LONG_S
        while recorder._sampler._calls < 4 and time.monotonic() < limit:
            burn(0.05)
        emitter.pop()
    finally:
        emitter.listen(None)
        recorder.stop()
    trace = read_part(recorder.folder)
    names = trace["samples"]["name"].cast(pl.String).unique().to_list()
    assert {MACHINE_CPU, PROCESS_CPU, PROCESS_MEMORY, PROCESS_THREADS} <= set(names)
    row = Profile(trace).cpu_utilization().row(0, named=True)
    assert row["cores"] > 0
    assert 0 <= row["machine"] <= 1
    assert row["peak_process_memory"] > 1 << 20
    costs = trace["own_costs"].filter(pl.col("part") == "CPU samples").row(0, named=True)
    assert costs["calls"] >= 4
    assert costs["time"] > 0
    # no hook was timed, so opscope's part of the steps is not known
    assert trace["own_costs"]["steps_time"].null_count() == len(trace["own_costs"])


def record_in_a_program(tmp_path: Path, body: str, **env: str) -> subprocess.CompletedProcess:
    code = textwrap.dedent(
        """
        import os, sys, time
        from opscope.core.capture import session
        from opscope.core.capture.recorder_sink import Recorder
        def burn(seconds):
            end = time.process_time() + seconds
            while time.process_time() < end: sum(range(1000))
        recorder = Recorder(sys.argv[1]); recorder.start(); session.listen(recorder)
        """
    ) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "made")],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=LONG_S, check=False,
    )  # fmt: skip


def test_the_rate_0_samples_nothing(tmp_path):
    done = record_in_a_program(
        tmp_path,
        """
        with session.annotate("work"): burn(0.5)
        assert "psutil" not in sys.modules
        """,
        OPSCOPE_SAMPLES="0",
    )
    assert done.returncode == 0, done.stderr
    assert not collect(tmp_path / "made").has("samples")


def test_without_psutil_the_recording_says_so_and_the_program_goes_on(tmp_path):
    done = record_in_a_program(
        tmp_path,
        """
        sys.modules["psutil"] = None
        with session.annotate("work"): burn(0.8)
        print("the program's own line")
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the program's own line\n", "")
    trace = collect(tmp_path / "made")
    assert not trace.has("samples")
    assert "psutil cannot be imported" in " ".join(trace["notes"]["what"])
    assert Profile(trace).cpu_utilization().is_empty()


def test_a_fault_of_the_samplers_ends_the_samples_alone(monkeypatch):
    notes: list[str] = []
    sampler = CpuSampler(10, lambda severity, what: notes.append(what))
    sampler.sample()

    def broken() -> None:
        raise PermissionError("/proc is hidden")

    monkeypatch.setattr(sampler._psutil, "cpu_times", broken)
    for _ in range(3):
        sampler._due = 1
        sampler.tick()
    sampler.last()
    assert len(notes) == 1
    assert "/proc is hidden" in notes[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_samples_itself(tmp_path):
    done = record_in_a_program(
        tmp_path,
        """
        with session.annotate("parent"): burn(0.8)
        child = os.fork()
        with session.annotate("both"): burn(1.0)
        if child == 0:
            session.finish()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
    )
    assert done.returncode == 0, done.stderr
    found = Profile(collect(tmp_path / "made")).cpu_utilization()
    assert len(found) == 2
    assert (found["cores"] > 0).all()


@given(st.floats(allow_nan=True))
def test_a_rate_is_taken_or_refused(rate):
    before = cpu_samples._chosen
    try:
        if 0 <= rate <= cpu_samples.MAX_RATE:
            cpu_samples.choose(rate)
            assert cpu_samples.rate() == rate
        else:
            with pytest.raises(ValueError, match="samples per second"):
                cpu_samples.choose(rate)
            assert cpu_samples._chosen == before
    finally:
        cpu_samples._chosen = before


@pytest.mark.parametrize("text", ["often", "-1", "nan", "1e9"])
def test_a_rate_in_the_environment_that_is_none_is_the_usual_one(text, monkeypatch, caplog):
    monkeypatch.setattr(cpu_samples, "_chosen", None)
    monkeypatch.setenv(cpu_samples.RATE, text)
    assert cpu_samples.rate() == cpu_samples.DEFAULT_RATE
    assert text in caplog.text


def test_what_waits_for_the_first_event_is_bounded(no_notes, monkeypatch):
    monkeypatch.setattr(cpu_samples, "MAX_UNWRITTEN", 5)
    sampler = CpuSampler(10, no_notes)
    for _ in range(9):
        sampler.sample()
    assert len(sampler.take()[0]["samples"]) == 5
    assert sampler.take() == []


@pytest.mark.parametrize("line", range(1, 7))
def test_samples_that_are_taken_while_one_is_added_have_a_time_each(line):
    """Another thread may write at any line of ``add``: a value without a time made a part unreadable."""
    series, taken, lines = cpu_samples._Series("a", "b"), [], []

    def trace(frame, event, argument):
        if frame.f_code is cpu_samples._Series.add.__code__ and event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == line:
                taken.append(series.take())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        series.add(1, 2.0, 3.0)
    finally:
        sys.settrace(before)
    facts = [fact for fact in (*taken, series.take()) if fact is not None]
    assert [fact["samples"] for fact in facts] == [[1]]
    assert facts[0]["values"] == {"a": [2.0], "b": [3.0]}


def test_a_recording_that_is_soon_over_does_not_load_psutil(tmp_path):
    done = record_in_a_program(
        tmp_path,
        """
        from opscope.core.capture import cpu_samples
        cpu_samples.FIRST_NS = 1 << 60
        with session.annotate("work"): burn(0.1)
        session.finish()
        assert "psutil" not in sys.modules
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "CPU samples" not in collect(tmp_path / "made")["own_costs"]["part"].to_list()


def test_importing_opscope_does_not_load_psutil():
    code = "import sys, opscope; opscope.init(); assert 'psutil' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LONG_S)


@proc
def test_memory_is_read_as_steps_begin_though_they_are_shorter_than_the_time_between_samples(
    tmp_path,
):
    recorder = Recorder(tmp_path)
    recorder.start()
    kept, page = [], os.sysconf("SC_PAGE_SIZE")
    for _ in range(8):
        recorder.step_begins()
        kept.append(b"x" * (1000 * page))
        time.sleep(0.003)  # less often than that is not read
        recorder.step_ends()
    recorder.stop()
    samples = read_part(recorder.folder)["samples"]
    resident = samples.filter(pl.col("name").cast(pl.String) == PROCESS_MEMORY)["value"].to_list()
    assert len(resident) >= 8
    assert resident[7] - resident[0] >= 5000 * page
    assert recorder._step_memory._file is None  # closed with the recording


def test_a_thread_that_no_processor_runs_waits_for_one(no_notes, monkeypatch):
    counted = iter((1_000_000, 31_000_000, None))
    monkeypatch.setattr(cpu_samples, "_queued", lambda: next(counted))
    sampler = CpuSampler(10, no_notes)
    sampler.sample()
    time.sleep(0.05)
    sampler.sample()
    sampler.sample()
    (fast,) = (one for one in sampler.take() if PROCESS_QUEUED in one["values"])
    times, shares = fast["samples"], fast["values"][PROCESS_QUEUED]
    assert shares == [None, pytest.approx(3e9 / (times[1] - times[0])), None]
