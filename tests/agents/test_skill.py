"""SKILL.md is made of the records, and every command in it runs."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files

from opscope.agents import calls, catalogue
from opscope.agents.answer import tokens
from opscope.agents.skill import skill
from tests.command import opscope
from tests.planted_truths import made

TEXT = (files("opscope.agents") / "SKILL.md").read_text(encoding="utf-8")


def test_the_file_is_what_the_records_make():
    assert skill() == TEXT, "python scripts/make_skill.py writes it"
    assert tokens(TEXT) <= 1_500


def test_its_head_is_that_of_a_skill():
    head = TEXT.split("---\n")[1].splitlines()
    fields = dict(line.split(": ", 1) for line in head)
    assert fields["name"] == "opscope"
    assert 0 < len(fields["description"]) <= 1_024
    assert ": " not in fields["description"], "YAML would read another key"


def test_it_names_every_call_and_every_question():
    for call in calls.calls():
        assert f"| `{call.name}` |" in TEXT
    listed = re.findall(r"^- [\w, ]+: (.+)$", TEXT.partition("## Questions")[2], re.MULTILINE)
    assert sorted(", ".join(listed).split(", ")) == sorted(catalogue.names())


def test_every_command_in_it_runs(tmp_path):
    for cause in ("slow loader", "healthy"):
        made.make(cause, 0, tmp_path)
    words = {"FILE": "slow_loader-kineto-8x2.json", "BEFORE": "slow_loader-kineto-8x2.json",
             "AFTER": "healthy-kineto-8x2.json", "WORD": "idle"}  # fmt: skip
    commands = [
        text for text in re.findall(r"`([^`]+)`", TEXT) if text.startswith("opscope ask FILE")
    ]
    commands += re.findall(r"`(opscope ask BEFORE [^`]+)`", TEXT)
    commands = [text for text in commands if "CALL SUBJECT" not in text]
    commands += [f"opscope ask FILE {text}" for text in ("idle:by=stream", "questions --set match=WORD",
                                                         "steps --set describe=yes")]  # fmt: skip
    assert len(commands) >= 6
    for text in commands:
        filled = re.sub(r"\b(FILE|BEFORE|AFTER|WORD)\b", lambda word: words[word[0]], text)
        done = opscope(*shlex.split(filled)[1:], cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), text
        assert done.stdout


def test_the_command_prints_it():
    assert opscope("ask", "--skill").stdout == TEXT
