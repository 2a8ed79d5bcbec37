"""What `opscope run` knows of the process that it started is read with what the process recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from opscope.cli import child_exits
from opscope.core.capture import process
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.recording_format import EXITS, LAUNCHED
from opscope.readers.errors import BadInput
from opscope.readers.recording.reader import collect, read


@pytest.fixture
def recorded(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.start()
    recorder.new_thread()
    recorder.stop()
    return tmp_path


def kinds(trace) -> dict[str, int]:
    return dict(trace["process_times"].select("kind", "start").cast({"kind": str}).rows())


def told(folder, **changed):
    launched = {"pid": os.getpid(), "boot": process.boot(), "began": 5, "ended": 9, **changed}
    (folder / LAUNCHED).write_text(json.dumps(launched))


def test_a_process_says_when_it_began_and_what_was_recorded(recorded):
    times = kinds(read(recorded))
    assert set(times) == {"began", "recorded"}
    assert times["began"] < times["recorded"]


def test_the_one_who_started_it_knows_better_and_saw_its_exit(recorded):
    told(recorded)
    times = kinds(read(recorded))
    assert (times["began"], times["ended"]) == (5, 9)


@pytest.mark.parametrize("other", [{"pid": 1}, {"boot": "another machine"}])
def test_another_process_does_not_get_its_times(recorded, other):
    told(recorded, **other)
    assert "ended" not in kinds(read(recorded))


@pytest.mark.parametrize("text", ["{", "[]", '{"pid": 1, "began": true, "ended": 2}', "[" * 9999])
def test_a_damaged_file_is_named_and_costs_nothing_else(recorded, text):
    (recorded / LAUNCHED).write_text(text)
    with pytest.raises(BadInput, match=LAUNCHED):
        read(recorded)
    trace = collect(recorded)
    assert len(trace["processes"]) == 1
    assert LAUNCHED in trace["notes"]["what"].cast(str).to_list()[-1]


def exits(trace) -> list[str]:
    times = trace["process_times"].cast({"kind": str})
    return times.filter(times["kind"] == "exit")["name"].to_list()


@pytest.mark.parametrize(("status", "said"), [(0, "0"), (7, "7"), (-9, "137")])
def test_who_started_a_process_tells_its_exit_status(recorded, status, said):
    child_exits.note(str(recorded), os.getpid(), status)
    assert exits(read(recorded)) == [said]


def test_the_exit_of_a_process_that_records_elsewhere_is_not_kept(recorded):
    child_exits.note(str(recorded), 1, 3)
    assert not (recorded / EXITS).exists()
    assert exits(read(recorded)) == []


def test_the_status_of_what_opscope_run_started_is_told(recorded):
    told(recorded, status=3)
    assert exits(read(recorded)) == ["3"]


@pytest.mark.parametrize("line", ["{\n", '{"pid": 1}\n', '{"pid": -1, "seen": 1, "status": 2}\n'])
def test_a_damaged_line_of_exits_is_named(recorded, line):
    (recorded / EXITS).write_text(line)
    with pytest.raises(BadInput, match=EXITS):
        read(recorded)


def test_a_line_that_a_kill_cut_off_is_left_out(recorded):
    child_exits.note(str(recorded), os.getpid(), 5)
    with (recorded / EXITS).open("a") as file:
        file.write('{"pid": ')
    assert exits(read(recorded)) == ["5"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such hook")
def test_the_exit_of_a_child_is_seen_where_it_is_waited_for(tmp_path, monkeypatch):
    waits = child_exits._noting(subprocess.Popen._handle_exitstatus, str(tmp_path))
    monkeypatch.setattr(subprocess.Popen, "_handle_exitstatus", waits)
    child = subprocess.Popen([sys.executable, "-c", "import sys; input(); sys.exit(4)"],
                             stdin=subprocess.PIPE)  # fmt: skip
    (tmp_path / f"part-host-{child.pid}-1").mkdir()
    child.communicate(b"\n")
    assert child.returncode == 4
    (line,) = (tmp_path / EXITS).read_text().splitlines()
    assert (json.loads(line)["pid"], json.loads(line)["status"]) == (child.pid, 4)
