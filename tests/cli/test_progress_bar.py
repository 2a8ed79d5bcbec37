"""The progress bar: on a terminal alone, one line, gone at the end however the command ends."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import opscope
from opscope.cli import common, progress_bar
from opscope.cli.stage_bar import Bar
from opscope.core import progress

ROOT = str(Path(opscope.__file__).resolve().parents[1])
#: What erases a line that was drawn.
DRAWN = "\r\x1b[2K"
#: Runs the command line with a bar that appears at once.
CLI = """
import sys
from opscope.cli import main, progress_bar
progress_bar.DELAY = 0
sys.argv[0] = "opscope"
{before}
main()
"""


class Screen:
    """What a terminal shows of what is written to it: lines, and where the cursor is."""

    def __init__(self, written: str) -> None:
        self.lines, self.row, self.column = [""], 0, 0
        for move, text in re.findall(
            r"(\x1b\[\??\d*(?:;\d+)*[A-Za-z]|\r|\n)|([^\x1b\r\n]+)", written
        ):
            if text:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + text + line[self.column + len(text) :]
                self.column += len(text)
            elif move == "\r":
                self.column = 0
            elif move == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif move.endswith("A"):
                self.row = max(0, self.row - int(move[2:-1] or 1))
            elif move.endswith("K"):
                self.lines[self.row] = ""
            else:
                assert move.endswith("m"), move

    @property
    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.lines if line.strip()]


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    kept = {
        name: value for name, value in os.environ.items() if name not in ("JPY_PARENT_PID", "PAGER")
    }
    return {**kept, "PYTHONPATH": path, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **more}


def on_a_terminal(*args: str, before: str = "", columns: int = 100, until: str = "", out: bool = False,
                  **more: str) -> tuple[int, str, str]:  # fmt: skip
    """Run a command with stderr (``out``: stdout too) on a terminal; return its status, stdout, and what was
    written to the terminal. Once ``until`` stands there, Ctrl-C is typed."""
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    mine, its = pty.openpty()
    fcntl.ioctl(
        its,
        termios.TIOCSWINSZ,
        (24).to_bytes(2, sys.byteorder) + columns.to_bytes(2, sys.byteorder) + bytes(4),
    )
    ran = subprocess.Popen(
        [sys.executable, "-c", CLI.format(before=before), *args],
        stdin=subprocess.DEVNULL,
        stdout=its if out else subprocess.PIPE,
        stderr=its,
        env=environment(**more),
        start_new_session=True,
    )
    os.close(its)
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.append(ran.stdout.read())) if not out else None
    if reader:
        reader.start()
    written = b""
    while True:
        try:
            piece = os.read(mine, 65536)
        except OSError:  # the last writer has gone
            break
        if not piece:
            break
        written += piece
        if until and until.encode() in written:
            os.kill(ran.pid, signal.SIGINT)
            until = ""
    os.close(mine)
    if reader:
        reader.join()
    return ran.wait(), b"".join(said).decode(), written.decode("utf-8", "replace")


def plain(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in pipes, with a bar that would appear at once."""
    return subprocess.run(
        [sys.executable, "-c", CLI.format(before=""), *args],
        env=environment(**more), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [("report",), ("kernels", "--json"), ("ops",), ("iterations",), ("advise",), ("export", "--to", "chrome", "-f"),
     ("redact", "-f", "-o", "red.opscope")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_on_a_terminal_a_line_shows_and_goes(command, saved):
    expected = plain(*command, saved)
    status, out, written = on_a_terminal(*command, saved)
    assert (status, out) == (0, expected.stdout)
    assert DRAWN in written
    assert Screen(written).shown == expected.stderr.splitlines()
    assert "\x1b[?25l" not in written  # the cursor was never hidden


def test_diff_reads_two_under_one_bar(saved):
    expected = plain("diff", saved, saved)
    status, out, written = on_a_terminal("diff", saved, saved)
    assert (status, out) == (expected.returncode, expected.stdout)
    assert DRAWN in written
    assert Screen(written).shown == []


@pytest.mark.parametrize("command", [("report",), ("ops", "--json"), ("advise",)])
def test_pipes_get_nothing_of_it(command, saved):
    done = plain(*command, saved)
    assert (done.returncode, done.stderr) == (0, "")
    assert "reading" not in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    "more", [{"TERM": "dumb"}, {"TERM": "unknown"}, {"JPY_PARENT_PID": "1"}], ids=str
)
def test_where_a_line_cannot_be_overwritten_there_is_none(more, saved):
    status, _, written = on_a_terminal("ops", saved, **more)
    assert (status, written) == (0, "")


def test_without_colour_there_is_none_in_the_line(saved):
    _, _, written = on_a_terminal("ops", saved, NO_COLOR="1")
    assert DRAWN in written
    assert not re.search(r"\x1b\[[\d;]*3\d", written)


@pytest.mark.parametrize("columns", [1, 2, 10, 20, 40])
def test_on_a_narrow_terminal_it_goes_too(columns, saved):
    status, _, written = on_a_terminal("ops", saved, columns=columns)
    assert status == 0
    assert Screen(written).shown == []


def test_stdout_on_the_same_terminal_stays_whole(saved):
    expected = plain("ops", saved, "-w", "80").stdout
    status, _, written = on_a_terminal("ops", saved, "-w", "80", out=True)
    assert status == 0
    assert Screen(written).shown == [
        line.rstrip() for line in expected.splitlines() if line.strip()
    ]


def test_an_error_is_one_line_after_it_has_gone(saved):
    before = """
from opscope.readers.errors import BadInput
from opscope.core import progress
def broken(trace, **_):
    with progress.stage("a stage", 5):
        raise BadInput("run.opscope", "broken in the middle")
import opscope.profile.profile
opscope.profile.profile.attribute = broken
"""
    status, out, written = on_a_terminal("ops", saved, before=before)
    assert (status, out) == (2, "")
    assert DRAWN in written
    assert Screen(written).shown == ["opscope: run.opscope: broken in the middle"]


def test_ctrl_c_leaves_the_terminal_clean(saved):
    before = """
import time
import opscope.profile.profile
from opscope.core import progress
def slow(trace, **_):
    with progress.stage("a slow thing", 5):
        time.sleep(600)
opscope.profile.profile.attribute = slow
"""
    status, out, written = on_a_terminal("ops", saved, before=before, until="a slow thing")
    assert (status, out) == (130, "")
    assert DRAWN in written
    assert Screen(written).shown == []
    assert "\x1b[?25l" not in written


def test_what_is_said_and_logged_meanwhile_stands_on_lines_of_its_own(saved):
    before = """
import logging
import opscope.profile.profile
from opscope.cli import common
from opscope.core import progress
real = opscope.profile.profile.attribute
def talking(trace, **more):
    with progress.stage("a stage", 5) as stage:
        stage.add()
        logging.getLogger("opscope").warning("a log message")
        common.say("a word")
        stage.add()
        return real(trace, **more)
opscope.profile.profile.attribute = talking
"""
    _, out, written = on_a_terminal("ops", saved, before=before)
    assert out == plain("ops", saved).stdout
    assert Screen(written).shown == ["a log message", "opscope: a word"]
    assert "a stage" in written


def test_a_run_shows_it_only_after_the_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import opscope\nprint('first')\nwith opscope.annotate('work'):\n    print('last', end='')\nprint()\n"
    )
    status, _, written = on_a_terminal("run", "-o", "run", "--no-report", "train.py", out=True)
    assert status == 0
    assert written.startswith("first\r\nlast\r\n")
    assert Screen(written).shown[:2] == ["first", "last"]
    assert Screen(written).shown[-1] == "opscope: wrote run.opscope"
    assert "reading the recording" in written.partition("last")[2]


# --------------------------------------------------------------------------------- the line


def line_of(
    stage: progress.Stage | None, width: int, seconds: float, encoding: str = "utf-8"
) -> str:
    """The line as it is drawn, so many seconds after the stage opened, which moved evenly meanwhile."""
    now = [0.0]
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    console = Console(file=file, force_terminal=True, width=width, color_system=None)
    bar = Bar(console, delay=60, clock=lambda: now[0])
    done = 0 if stage is None else stage.done
    for part in range(5):
        now[0] = seconds * part / 4
        if stage is not None:
            stage.done = done * part // 4
            bar.heard(stage)
        with console.capture() as captured:
            console.print(bar.line())
    bar.end()
    return captured.get()


def opened(name: str, done: int, total: int | None, unit: str = "") -> progress.Stage:
    stage = progress.Stage(name, total, unit)
    stage.done = done
    return stage


@given(
    name=st.text(max_size=60),
    total=st.one_of(st.none(), st.integers(0, 10**13)),
    share=st.floats(0, 1),
    unit=st.sampled_from(["", progress.BYTES, progress.SLICES]),
    width=st.integers(1, 140),
    seconds=st.floats(0, 10**6),
)
def test_it_is_one_line_that_fits(name, total, share, unit, width, seconds):
    from rich.cells import cell_len

    stage = opened(name, int(share * (total or 1000)), total, unit)
    drawn = line_of(stage, width, seconds)
    assert drawn.endswith("\n")
    assert drawn.count("\n") == 1
    assert cell_len(drawn.rstrip("\n")) <= max(1, width - 1)
    assert all(one.isprintable() for one in drawn.rstrip("\n"))


def test_it_says_what_is_done_and_how_long_remains():
    stage = opened("reading a.json", 30_000_000, 120_000_000, progress.BYTES)
    line = line_of(stage, 100, 20.0)
    assert line.startswith("reading a.json ━")
    assert line.split()[-4:] == ["25%", "01:00", "30.0/120.0", "MB"]
    line = line_of(opened("writing", 1_200, 4_800, progress.SLICES), 100, 400.0)
    assert line.split()[-6:] == ["25%", "20:00", "1,200", "of", "4,800", "slices"]


def test_of_an_unknown_total_it_says_how_long_it_has_taken():
    assert line_of(opened("exporting", 0, None), 80, 61.0).split()[::2] == ["exporting", "0:01:01"]
    line = line_of(opened("reading", 5_000, None, progress.BYTES), 80, 3.0)
    assert line.split()[2:] == ["0:00:03", "5.0/?", "kB"]
    assert line_of(None, 80, 5.0).split()[::2] == ["working", "0:00:05"]


def test_on_a_narrow_terminal_the_amount_goes_before_the_share_and_the_name_last():
    stage = opened("reading a.json", 30_000_000, 120_000_000, progress.BYTES)
    lines = {width: line_of(stage, width, 20.0).split() for width in (20, 30, 40, 100)}
    assert "MB" in lines[100]
    assert ("25%" in lines[40], "MB" in lines[40]) == (True, False)
    assert lines[20] == ["reading", "a.json"]


def test_a_terminal_without_unicode_gets_plain_characters():
    assert line_of(opened("exporting", 0, None), 80, 1.0, "ascii").isascii()
    assert line_of(opened("reading", 5, 10), 80, 1.0, "ascii").isascii()


def test_the_innermost_stage_is_shown_and_then_the_one_around_it():
    drawn = []
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    bar = Bar(console, delay=60)

    def show() -> None:
        with console.capture() as captured:
            console.print(bar.line())
        drawn.append(captured.get())

    with progress.listening(bar.heard), progress.stage("outer", 2) as outer:
        show()
        with progress.stage("inner", 2):
            show()
        outer.add()
        show()
    show()
    bar.end()
    assert [next(word for word in ("outer", "inner", "working") if word in one) for one in drawn] == [
        "outer", "inner", "outer", "working",
    ]  # fmt: skip


def test_it_waits_before_it_appears():
    file = io.StringIO()
    bar = Bar(Console(file=file, force_terminal=True, width=80), delay=600)
    with progress.listening(bar.heard), progress.stage("a stage", 2) as stage:
        stage.add()
    bar.end()
    assert file.getvalue() == ""


@pytest.mark.parametrize("stderr", [None, io.StringIO()])
def test_where_there_is_no_terminal_nobody_listens(stderr, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress_bar.bar():
        assert not progress.heard()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_quiet_commands_have_none(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    monkeypatch.delenv("PAGER", raising=False)
    with progress_bar.bar(quiet=True):
        assert not progress.heard()
    with common.held(), progress_bar.bar(quiet=common.is_held()):
        assert not progress.heard()
    with progress_bar.bar():
        assert progress.heard()


def test_a_terminal_that_goes_is_no_error(monkeypatch):
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Gone())
    bar = Bar(Console(file=sys.stderr, force_terminal=True, width=80), delay=0)
    with progress.listening(bar.heard), progress.stage("a stage", 2) as stage:
        stage.add()
    bar.end()
    assert stage.over
