"""What a recording tells of the backends that made it: once a process, of its last part, and bounded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import opscope
from opscope.backends import Choice
from opscope.backends.recorder import RecorderCapture
from opscope.backends.recording_folder import parts
from opscope.core.capture import session
from opscope.core.tables.trace import recorded_by
from opscope.readers.errors import BadInput
from opscope.readers.recording.reader import collect


def record(folder: Path, *choices: Choice | None) -> None:
    """Make a part for each choice, all of this process."""
    for choice in choices:
        session.start(RecorderCapture(folder))
        if choice is not None:
            choice.tell(session.recorder())
        with session.annotate("work"):
            pass
        session.stop()


def test_of_a_process_the_last_part_that_says_counts(tmp_path: Path) -> None:
    better = (("nsys", "nsys is not on PATH"),)
    record(tmp_path, Choice("recorder", "for now"), Choice("xplane", "JAX", better), None)
    assert collect(tmp_path).origin["backends"] == [
        {
            "backend": "xplane",
            "reason": "JAX",
            "better": [{"backend": "nsys", "why": "nsys is not on PATH"}],
            "processes": 1,
        }
    ]


def test_a_recording_that_does_not_say_has_no_entry(tmp_path: Path) -> None:
    record(tmp_path, None)
    trace = collect(tmp_path)
    assert "backends" not in trace.origin
    assert recorded_by(trace.origin) is None


def test_equal_processes_are_told_once_with_their_number(tmp_path: Path) -> None:
    record(tmp_path, Choice("recorder", "no GPU"))
    (part,) = parts(tmp_path)
    for number, backend in ((1, "recorder"), (2, "kineto")):
        other = tmp_path / f"{part.name}-{number}"
        other.mkdir()
        for file in part.iterdir():
            text = file.read_bytes()
            if file.name == "meta.json":
                text = json.dumps({**json.loads(text), "pid": number}).encode()
            text = text.replace(b'"backend": "recorder"', f'"backend": "{backend}"'.encode())
            (other / file.name).write_bytes(text)
    origin = collect(tmp_path).origin
    told = [(one["backend"], one["processes"]) for one in origin["backends"]]
    assert told == [("recorder", 2), ("kineto", 1)]
    assert recorded_by(origin) == ("recorder", "no GPU; kineto in 1 process")


@pytest.mark.parametrize("fact", [{"backend": 7}, {"backend": "a", "better": [["one"]]}])
def test_a_fact_that_is_none_is_refused_in_one_line(tmp_path: Path, fact: object) -> None:
    record(tmp_path, None)
    (part,) = parts(tmp_path)
    with (part / "facts.jsonl").open("a") as file:
        file.write(json.dumps(fact) + "\n")
    with pytest.raises(BadInput, match="a fact of the recording cannot be read"):
        collect(tmp_path, strict=True)


def test_texts_are_cut(tmp_path: Path) -> None:
    record(tmp_path, Choice("r" * 9_000, "w" * 9_000, tuple(("n" * 9_000, "y") for _ in range(99))))
    (told,) = collect(tmp_path).origin["backends"]
    assert len(told["backend"]) == len(told["reason"]) == 500
    assert len(told["better"]) == 32


def test_a_private_profile_says_it_without_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSCOPE_PRIVATE", "1")
    record(tmp_path, Choice("nsys", "nsys is installed: /home/jane/bin/nsys"))
    (told,) = collect(tmp_path).origin["backends"]
    assert "jane" not in json.dumps(told)
    assert told["backend"] == "nsys"


def test_the_summary_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from opscope.core.analysis.summary.summary_table import summary_table

    with opscope.capture(tmp_path / "a.opscope", backend="recorder"), session.annotate("work"):
        pass
    rows = {row["what"]: row for row in summary_table(opscope.load(tmp_path / "a.opscope")).rows}
    assert (rows["backend"]["value"], rows["backend"]["remark"]) == (
        "recorder",
        "requested",
    )
