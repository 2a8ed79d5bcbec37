"""Source lines in a single file: times always, text only where it was asked for and may be shown."""

from __future__ import annotations

import gzip
import json

import pytest

from opscope.viewer import embedded
from opscope.viewer.embedded import embed
from opscope.viewer.questions import source
from opscope.viewer.viewed import Viewed
from tests.viewer.called_from import profile_of

SECRET = "the_secret_in_the_text </script>\u2028"


@pytest.fixture
def viewed(trace_of, tmp_path):
    (tmp_path / "train.py").write_text(f"first\n# {SECRET}\n", encoding="utf-8")
    (tmp_path / "model.py").write_text("import torch\n" * 10, encoding="utf-8")
    names = ("train.py", "model.py", "missing.py")
    return Viewed(profile_of(trace_of, *names), ("a",), source_root=tmp_path)


def held(viewed, *, sources):
    """Return the file's answers of the question by the file that was asked for."""
    made = embed(viewed, 1 << 20, sources)
    answers = json.loads(gzip.decompress(made.index))["answers"]
    return {
        one["params"].get("file"): json.loads(gzip.decompress(made.blocks[int(one["block"])]))
        for one in answers
        if one["question"] == "source"
    }


def test_without_the_option_a_file_has_the_lines_times_and_no_text(viewed):
    answers = held(viewed, sources=False)
    assert set(answers) == {None, "train.py", "model.py", "missing.py"}
    assert {one["reason"] for one in answers[None]["files"]} == {source.NOT_ASKED}
    for file in ("train.py", "model.py", "missing.py"):
        answer = answers[file]
        assert (answer["text"], answer["reason"]) == (None, source.NOT_ASKED)
        assert len(answer["time"]) == len(answer["line"]) == 1
    assert not any(
        b"the_secret" in gzip.decompress(block) for block in embed(viewed, 1 << 20).blocks
    )


def test_with_the_option_it_has_the_text_that_the_server_shows(viewed, asking):
    app = asking(viewed)
    answers = held(viewed, sources=True)
    assert SECRET in answers["train.py"]["text"]
    for file in ("train.py", "model.py", "missing.py"):
        assert answers[file] == app.ask("source", file=file).json()
    assert answers["missing.py"]["text"] is None
    assert answers["missing.py"]["reason"] is not None


def test_text_beyond_the_room_is_left_out_and_it_says_so(viewed, monkeypatch):
    monkeypatch.setattr(embedded, "_TEXT", 60)
    answers = held(viewed, sources=True)
    texts = {file: one["text"] for file, one in answers.items() if file}
    assert sum(text is not None for text in texts.values()) == 1
    assert answers["model.py"]["reason"] == source._NO_ROOM
    listed = {one["file"]: one["reason"] for one in answers[None]["files"]}
    assert listed["model.py"] == source._NO_ROOM


def test_files_beyond_those_that_are_held_are_named_with_the_reason(viewed, monkeypatch):
    monkeypatch.setattr(source, "_FILES", 1)
    answers = held(viewed, sources=True)
    assert len(answers) == 2
    reasons = [one["reason"] for one in answers[None]["files"]]
    assert reasons[1:] == [source._BEYOND] * 2


def test_secrets_in_the_text_are_hidden_and_counted_by_file_and_kind(viewed, tmp_path, capsys):
    value, token = "swordfish" + "7", "gh" + "p_" + "a1B2" * 9
    lines = [f"password = '{value}'", f"connect(u, '{token}')", "token = tokenizer.encode(text)"]
    (tmp_path / "train.py").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "long.py").write_text("x = 1\n" * 30_000 + lines[0], encoding="utf-8")
    answers = held(viewed, sources=True)
    text = answers["train.py"]["text"]
    assert value not in text
    assert token not in text
    assert text.splitlines()[0] == "password = '<redacted>'"
    assert lines[2] in text
    assert "secrets in this text that are hidden: 2" in answers["train.py"]["note"]
    assert viewed.secrets == {"train.py": {"named value": 1, "github-pat": 1}}
