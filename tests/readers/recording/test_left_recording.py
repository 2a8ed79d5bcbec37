"""A recording of which no profile was made is opened like one, and taken at no word of its."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from pathlib import Path

import pytest

import opscope
from opscope.backends import recording_folder
from opscope.backends.recorder import RecorderCapture
from opscope.core import recording_format
from opscope.core.capture import session
from opscope.readers import format_of
from opscope.readers.errors import BadInput
from opscope.readers.recording import process_part
from tests.draws import EXAMPLES

ODD = (
    None, True, -1, 0, 2**31, 2**62, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, 1e308, float("nan"),
    float("inf"), "", "-1", "9" * 40, "x" * 5000, "\x00", "\ud800", [], [[]], [1, "a", None], {},
)  # fmt: skip


@pytest.fixture(scope="module")
def left(tmp_path_factory) -> Path:
    """What a run that was killed leaves: two parts, one not closed."""
    folder = tmp_path_factory.mktemp("killed") / ".train.opscope-x"
    for number in range(2):
        session.start(RecorderCapture(folder))
        for step in range(3):
            session.step(step)
            with session.annotate(f"work {number}"):
                pass
        session.end_step()
        session.stop()
    (part, _) = recording_folder.parts(folder)
    facts = part / recording_format.FACTS
    lines = facts.read_text().splitlines(keepends=True)
    facts.write_text("".join(line for line in lines if '"stop"' not in line))
    (part / recording_format.MEMORY).write_bytes(
        recording_format.MEMORY_RECORD.pack(5, 64, 8, 1, -1, 0)
    )
    with facts.open("a") as file:
        file.write('{"memory": -1}\n')
    return folder


@pytest.fixture
def copy(left, tmp_path) -> Path:
    return shutil.copytree(left, tmp_path / "rec")


def test_a_left_folder_is_opened_like_a_profile(left):
    assert format_of(left) == "recording"
    profile = opscope.load(left)
    texts = profile.trace["ranges"]["text"].cast(str).to_list()
    assert texts.count("work 0") == texts.count("work 1") == 3
    assert "without closing" in " ".join(profile.notes()["what"])
    profile.op_totals()


def test_a_part_of_it_is_opened_too(left):
    assert len(opscope.load(recording_folder.parts(left)[0]).trace["processes"]) == 1


def test_a_damaged_part_costs_only_itself_and_is_told(copy):
    events = recording_folder.parts(copy)[0] / recording_format.EVENTS
    events.write_bytes(struct.pack("<4q", 5, 5, 5, 5))
    profile = opscope.load(copy)
    assert profile.trace.origin["failed"] == [
        {"path": str(events), "what": "damaged: no chunk of records at byte 0"}
    ]
    assert profile.trace.origin["files"] == 2
    assert any(what.startswith("left out: part-") for what in profile.notes()["what"])
    with pytest.raises(BadInput, match="no chunk of records"):
        opscope.load(copy, strict=True)
    assert len(recording_folder.parts(copy)) == 2, "nothing of it is deleted"


@pytest.mark.parametrize(
    "name", ["meta.json", "strings.jsonl", "facts.jsonl", "events.bin", "memory.bin"]
)
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pipe_or_a_link_is_refused_rather_than_followed(kind, name, copy, tmp_path):
    path = recording_folder.parts(copy)[0] / name
    data = path.read_bytes()
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")
    if name == recording_format.META and kind == "pipe":
        assert len(opscope.load(copy).trace["processes"]) == 1
        return
    (failed,) = opscope.load(copy).trace.origin["failed"]
    assert failed["path"] == str(path)
    assert failed["what"].startswith("a link, a pipe")


@pytest.mark.parametrize("time", [-1, -(2**63), 2**62, 2**63 - 1])
def test_a_time_out_of_range_is_named(time, copy):
    for part in recording_folder.parts(copy):
        events = part / recording_format.EVENTS
        data = bytearray(events.read_bytes())
        data[24:32] = struct.pack("<q", time)
        events.write_bytes(data)
    with pytest.raises(BadInput, match="a time is out of range"):
        opscope.load(copy)


def test_more_threads_than_any_program_has_are_left_out_and_told(copy, monkeypatch):
    monkeypatch.setattr(process_part, "MAX_THREADS", 3)
    part = recording_folder.parts(copy)[0]
    data = (part / recording_format.EVENTS).read_bytes()
    count = struct.unpack_from("<2q", data)[1]
    one = data[16 : 16 + 16 * count]
    with (part / recording_format.EVENTS).open("ab") as file:
        for thread in range(101, 106):  # none that this process has recorded
            file.write(struct.pack("<2q", recording_format.CHUNK - thread, count) + one)
    trace = process_part.read_part(part)
    assert trace["ranges"]["thread"].n_unique() == 3
    notes = dict(trace["notes"].select("what", "how_many").rows())
    assert notes["threads after the first 3, whose records are left out"] == 3


def _changed(value: object, dice: random.Random) -> object:
    """One value of it exchanged for an odd one."""
    if isinstance(value, (dict, list)) and value and dice.random() < 0.85:
        key = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
        value[key] = _changed(value[key], dice)
        return value
    return dice.choice(ODD)


@pytest.mark.parametrize(
    "name", ["meta.json", "strings.jsonl", "facts.jsonl", "events.bin", "memory.bin"]
)
def test_a_stranger_s_recording_is_read_or_refused(name, copy):
    part = recording_folder.parts(copy)[0]
    whole = (part / name).read_bytes()
    dice = random.Random(name)
    for _ in range(EXAMPLES):
        if name.endswith(".bin"):
            data = bytearray(whole)
            at = 8 * dice.randrange(len(data) // 8)
            data[at : at + 8] = struct.pack(
                "<q",
                dice.choice(
                    (0, 1, -1, -2, -16, 1 << 48, 1 << 62, -(1 << 32), -(1 << 60), 2**63 - 1)
                ),
            )
            (part / name).write_bytes(data)
        elif name == recording_format.META:
            (part / name).write_text(json.dumps(_changed(json.loads(whole), dice)))
        else:
            lines = [json.loads(line) for line in whole.splitlines()]
            at = dice.randrange(len(lines))
            lines[at] = _changed(lines[at], dice)
            (part / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        try:
            profile = opscope.load(copy)
        except BadInput:
            continue
        for frame in ("summary", "op_totals", "range_totals", "notes", "memory_by_op"):
            getattr(profile, frame)()
