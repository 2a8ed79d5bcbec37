"""``--html`` and ``--to html``: what the file holds, what is refused, and that nothing is half-written."""

from __future__ import annotations

import base64
import gzip
import re

import pytest
from typer.testing import CliRunner

from opscope.cli.app import app
from opscope.readers.errors import BadInput
from tests.viewer.called_from import profile_of

WORDS = "the_words_of_the_user"
BLOCK = re.compile(rb'<script type="[^"]*" id="[^"]*">([A-Za-z0-9+/=]+)</script>')


@pytest.fixture
def run(trace_of, tmp_path, monkeypatch):
    """A folder with a saved profile and the source that it names, and a function that runs a command there."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        profile_of(trace_of, "train.py").save(tmp_path / f"{name}.opscope")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(f"# {WORDS}\n", encoding="utf-8")

    def command(*words, code=0):
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == code, done.output
        return " ".join(done.output.split())

    return command


COMMANDS = [
    pytest.param(("report", "a.opscope", "--html", "out.html"), id="report"),
    pytest.param(("diff", "a.opscope", "b.opscope", "--html", "out.html"), id="diff"),
    pytest.param(("export", "a.opscope", "--to", "html", "-o", "out.html"), id="export"),
]


def held(path):
    """Return all that a file holds beside its pages, unpacked."""
    blocks = [base64.b64decode(block) for block in BLOCK.findall(path.read_bytes())]
    assert blocks
    return b"".join(gzip.decompress(block) for block in blocks if block[:2] == b"\x1f\x8b")


@pytest.mark.parametrize("words", COMMANDS)
def test_source_is_in_the_file_only_where_it_was_asked_for(run, words, tmp_path):
    said = run(*words)
    assert "wrote out.html" in said
    assert b"train.py" in held(tmp_path / "out.html")
    assert WORDS.encode() not in held(tmp_path / "out.html")
    run(*words, "--force", "--embed-source")
    assert WORDS.encode() not in held(tmp_path / "out.html"), "the trace's names are no permission"
    assert b"--source-root DIR" in held(tmp_path / "out.html")
    run(*words, "--force", "--embed-source", "--source-root", "source")
    assert WORDS.encode() in held(tmp_path / "out.html")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_file_that_exists_is_replaced_only_with_force(run, words, tmp_path):
    (tmp_path / "out.html").write_text("before")
    assert "--force replaces it" in run(*words, code=2)
    assert (tmp_path / "out.html").read_text() == "before"
    run(*words, "--force")
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--source-root", "source"), "--source-root needs --embed-source"),
        (("--embed-source", "--source-root", "nowhere"), "there is no such folder"),
        (("--embed-source", "--source-root", "a.opscope/manifest.json"), "there is no such folder"),
    ],
)
def test_a_wrong_folder_ends_the_command_before_it_reads(run, words, options, message, tmp_path):
    assert message in run(*words, *options, code=2)
    assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("report", "a.opscope", "--source-root", "source"),
        ("report", "a.opscope", "--embed-source"),
        ("diff", "a.opscope", "b.opscope", "--source-root", "source"),
        ("diff", "a.opscope", "b.opscope", "--embed-source"),
        ("export", "a.opscope", "--to", "chrome", "--source-root", "source"),
        ("export", "a.opscope", "--to", "chrome", "--embed-source"),
        ("report", "a.opscope", "--html", "out.html", "--reports", "summary"),
        ("report", "a.opscope", "--html", "out.html", "--slo", "ttft=1s"),
        ("diff", "a.opscope", "b.opscope", "--html", "out.html", "--json"),
        ("export", "a.opscope", "--to", "html", "--by", "op"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(run, words, tmp_path):
    run(*words, code=2)
    assert not list(tmp_path.glob("*.html"))
    assert not (tmp_path / "a.chrome.json").exists()


@pytest.mark.parametrize("words", COMMANDS)
def test_what_cannot_be_read_leaves_no_file(run, words, tmp_path):
    for path in (tmp_path / "a.opscope").iterdir():
        path.write_bytes(b"no table")
    done = CliRunner().invoke(app, list(words))
    assert isinstance(done.exception, BadInput)  # of which the program makes exit code 2
    assert "a.opscope" in str(done.exception)
    assert not list(tmp_path.glob("*.html*"))
