"""What opscope needs to make itself ready is in no step, and not in the time that the program took."""

from __future__ import annotations

import polars as pl
import pytest

import opscope
from opscope.adapters.shared import compiled
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.capture import session
from opscope.core.capture.recorder_sink import Recorder
from opscope.readers.recording.process_part import read_part

pytestmark = pytest.mark.usefixtures("fresh_steps")


def span(folder) -> int:
    (part,) = folder.glob("part-*")
    return read_part(part)["own_costs"]["span"][0]


def recording(folder, *set_up):
    recorder = Recorder(folder)
    recorder.start()
    before, within = set_up
    if before:
        recorder.new_thread()
    now = recorder.deadline
    recorder.set_up(now, now + within)
    recorder.stop()
    return span(folder)


def test_it_is_not_in_the_time_recorded(tmp_path):
    took = 10**15  # longer than any test
    assert recording(tmp_path / "one", True, 0) < took
    assert recording(tmp_path / "other", True, took) == 0


def test_where_nothing_is_recorded_yet_the_recording_begins_after_it(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.start()
    recorder.set_up(0, end := recorder.deadline + 10**15)
    recorder.stop()
    (part,) = tmp_path.glob("part-*")
    assert read_part(part).origin["recorded"][0] == end


def test_a_step_that_it_falls_into_begins_anew(tmp_path):
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        for number in range(3):
            opscope.step()
            if number == 1:
                with session.set_up():
                    assert session.current_step() == 1
            with opscope.annotate(f"work {number}"):
                pass
        opscope.step()
    profile = opscope.load(tmp_path / "run.opscope")
    ranges = profile.trace["ranges"].with_columns(pl.col("text").cast(pl.String))
    (ours,) = ranges.filter(pl.col("text") == session.SET_UP).iter_rows(named=True)
    left, anew = ranges.filter(pl.col("text") == "step 1").sort("start").iter_rows(named=True)
    assert left["end"] <= ours["start"]
    assert ours["end"] <= anew["start"]
    steps = ended_steps(profile.trace["ranges"])
    assert steps["text"].cast(pl.String).to_list() == [
        "step 0",
        "step 1",
        "step 2",
    ]  # what was left is none
    assert profile.summary()["steps"].item() == 3


def test_where_nobody_listens_it_is_nothing():
    with session.set_up():
        pass
    assert session.current_step() == -1


def test_compiling_is_set_up_and_is_told(tmp_path, monkeypatch, capsys):
    seen = []

    class Seen:
        def __enter__(self):
            seen.append("begins")

        def __exit__(self, *_):
            seen.append("ends")

    source = tmp_path / "two.c"
    source.write_text("int two(void) { return 2; }\n")
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "set_up", Seen)
    for _ in range(2):
        compiled.built(source, (), "building two")
    assert seen == ["begins", "ends"]
    assert capsys.readouterr().err == "opscope: building two\n"


def test_what_could_not_be_compiled_is_not_compiled_again(tmp_path, monkeypatch):
    source, log = tmp_path / "bad.c", tmp_path / "log"
    source.write_text("int")
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho once >> {log}\necho 'error: bad' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", str(compiler))
    for _ in range(2):
        with pytest.raises(compiled.BuildError, match="error: bad"):
            compiled.built(source)
    assert log.read_text() == "once\n"


def test_a_block_is_a_step_from_begin_to_end_and_a_block_that_fails_is_none(tmp_path):
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        for number in (3, 4):
            with opscope.step_block(number), opscope.annotate("work"):
                pass
            with opscope.annotate("evaluate"):
                pass
        with pytest.raises(KeyError), opscope.step_block():
            raise KeyError
    trace = opscope.load(tmp_path / "run.opscope").trace
    steps = ended_steps(trace["ranges"]).sort("start")
    assert steps["text"].cast(pl.String).to_list() == ["step 3", "step 4"]
    other = trace["ranges"].filter(pl.col("category").ne_missing("step")).sort("start")
    inside = [
        any((start >= steps["start"]) & (end <= steps["end"]))
        for start, end in other.select("start", "end").rows()
    ]
    assert inside == [True, False] * 2  # fmt: skip
