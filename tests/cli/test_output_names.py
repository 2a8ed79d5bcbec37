"""What cannot be the name of an output is refused before anything runs, and a device or pipe stays what it is."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from opscope.cli import start as application
from tests.made_ranks import rank_files


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """Type a command in a folder of its own; the exit code, and what it says."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def type_(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["opscope", *words])
        return application.run(), capsys.readouterr().err

    return type_


#: Commands that write, of a file where it is FILE, to OUT.
COMMANDS = [
    "run -o OUT -- python -c pass",
    "export FILE --to chrome -o OUT",
    "report FILE --html OUT",
    "redact FILE -o OUT",
    "partial FILE -o OUT",
]


@pytest.mark.parametrize("force", ["", " --force"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_not_replaced(typed, command, force, tmp_path):
    [file] = rank_files(tmp_path, 1)
    pipe = Path("out.opscope" if command.startswith(("run", "redact")) else "out")
    os.mkfifo(pipe)
    first, _, rest = command.partition(" ")
    words = f"{first}{force} {rest}".split()
    status, said = typed(*(str({"FILE": file, "OUT": pipe}.get(word, word)) for word in words))
    assert status == 2, said
    assert said.startswith("opscope: ")
    assert "Traceback" not in said
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in Path().iterdir()] == [pipe.name]


@pytest.mark.parametrize("name", ["..", ".", "/", ""])
@pytest.mark.parametrize("command", ["run -o OUT -- python -c pass", "redact FILE -o OUT"])
def test_a_folder_above_is_no_name(typed, command, name, tmp_path):
    [file] = rank_files(tmp_path, 1)
    words = command.split()
    status, said = typed(*(str({"FILE": file, "OUT": name}.get(word, word)) for word in words))
    assert (status, "is not a file name" in said) == (2, True)
    assert list(Path().iterdir()) == []
