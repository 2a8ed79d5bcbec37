"""A plain command line is read without Typer, and as Typer reads it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opscope.cli import app as typer_side
from opscope.cli import quick, start
from opscope.cli.commands import KNOWN, Known

ROOT = Path(__file__).resolve().parents[2]
PLAIN = [
    "report a.json",
    "report a.json b.json --top 3 --reports summary,ops --json",
    "report a.json --top=0 --layer x --layer y --rank 0 --rank 12",
    "report -w 80 --gpu=H100 a.json --source-root src -f",
    "advise a.json --verbose --strict",
    "ops a.json --sort self_time -c name,total --each --csv",
    "kernels a.json --key_op aten::mm",
    "kernels",
    "iterations a.json --iter-start 2 --iter_stop 4",
    "counters a.json",
    "diff a.json b.json --fail-on step>3% --fail-on op:x>5%",
    "whatif a.json --op aten::mm=0 --copies 0.5",
    "export a.json --to chrome -o out.json",
    "partial a.json b.json -o parts",
    "merge parts -o job.opscope --ranks 8",
    "view a.json --port 8000 --no-browser",
    "doctor",
    "doctor a.json --no-self-test",
    "redact a.json",
    "attach 12 --steps 3 --duration 1.5",
    "attach --no-report",
    "build torch",
    "run python train.py --help",
    "run -- python train.py -o x",
    "run -f --steps 3:6 --no-report -o out python -- train.py",
    "run --delay=1.5 --no-stacks - x",
]
NOT_PLAIN = [
    "report",
    "report a.json --unknown",
    "report a.json --top",
    "report a.json --top x",
    "report a.json --top -1",
    "report a.json --gpu --json",
    "report a.json --json=1",
    "report -- a.json",
    "report a.json -w80",
    "diff a.json b.json c.json",
    "attach 12 --steps 0",
    "report --reports= -x",
    "run",
    "run --",
    "run --help",
    "run --steps",
    "run --stepz 3 python train.py",
]


def by_typer(monkeypatch: pytest.MonkeyPatch, name: str, words: list[str]) -> dict[str, object]:
    """What Typer calls the command with."""
    calls: list[dict[str, object]] = []
    command = KNOWN[name].function()

    def noted(**given: object) -> None:
        calls.append(given)

    noted.__signature__ = quick.signature_of(command)  # type: ignore[attr-defined]
    monkeypatch.setattr(Known, "function", lambda known: noted)
    done = CliRunner().invoke(typer_side.app, [name, *words])
    assert done.exit_code == 0, done.output
    (given,) = calls
    return given


@pytest.mark.parametrize("line", PLAIN)
def test_a_plain_line_is_read_as_typer_reads_it(monkeypatch, line):
    name, *words = line.split()
    given = quick.parse(KNOWN[name].function(), words, KNOWN[name].interspersed)
    assert given == by_typer(monkeypatch, name, words)
    assert {key: type(value) for key, value in given.items()} == {
        key: type(value) for key, value in by_typer(monkeypatch, name, words).items()
    }


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_typer(line):
    name, *words = line.split()
    with pytest.raises(quick.NotPlain):
        quick.parse(KNOWN[name].function(), words, KNOWN[name].interspersed)


def test_the_help_that_lies_ready_is_typer_s():
    spec = importlib.util.spec_from_file_location("make_help", ROOT / "scripts" / "make_help.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stored = (ROOT / "opscope" / "cli" / "help.txt").read_text(encoding="utf-8")
    assert stored == module.help_text(), "run scripts/make_help.py"


@pytest.mark.parametrize(
    "line",
    [
        ["--version"],
        ["report", "nowhere.json"],
        ["--help"],
        ["run", "--no-report", "true", "--help"],
    ],
)
def test_a_plain_line_loads_no_typer(line):
    code = (
        "import sys; from opscope.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert not {'typer', 'pydantic', 'rich'} & {*sys.modules}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *line], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_another_package_s_command_is_in_the_help(monkeypatch):
    monkeypatch.setattr("opscope.core.registered.entries", lambda group: {"mine": "mine:mine"})
    assert quick.answer(["--help"]) is None


def test_an_interrupted_command_ends_as_the_shell_expects(monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Known, "function", lambda known: interrupted)
    monkeypatch.setattr(sys, "argv", ["opscope", "doctor"])
    assert start.run() == 130
