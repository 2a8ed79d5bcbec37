"""`opscope view`: what people type, as a process of its own: what it serves, opens, says, and how it ends."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

import msgspec
import pytest

import opscope
from tests.command import opscope as command

ROOT = Path(opscope.__file__).resolve().parents[1]
#: A bound on a hang, in seconds.
PATIENCE = 120


def environment(**more: str) -> dict[str, str]:
    """The environment without a display, unless one is given."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    without = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_TTY", "BROWSER")
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return {**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **more}


class Server:
    """A running command: its lines so far, and its pages."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.said = process, b""
        self.url = self.until(r"http://\S+")
        self.origin, _, self.token = self.url.partition("/?token=")
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
        )

    def until(self, pattern: str) -> str:
        """Read what it prints until there is a match, and return that."""
        assert self.process.stderr is not None
        while not (found := re.search(pattern.encode() + rb"(?=\s)", self.said)):
            ready, _, _ = select.select([self.process.stderr], [], [], PATIENCE)
            assert ready, f"no {pattern!r} in {self.said!r}"
            more = os.read(self.process.stderr.fileno(), 65_536)
            assert more, f"it ended: {self.said!r}"
            self.said += more
        return found.group().decode()

    def get(self, path: str, timeout: float = PATIENCE) -> bytes:
        with self._open.open(f"{self.origin}{path}", timeout=timeout) as answer:
            return answer.read()

    def ask(self, question: str):
        self.get(f"/?token={self.token}")
        return msgspec.json.decode(self.get(f"/api/{question}"))

    def stop(self) -> tuple[int, str]:
        """End it by Ctrl-C; return its status and all that it printed."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=PATIENCE)
        assert out == b""
        return self.process.returncode, (self.said + err).decode()


@contextmanager
def viewing(*words: object, cwd: Path | None = None, **more: str):
    process = subprocess.Popen(
        [sys.executable, "-m", "opscope", "view", *map(str, words)],
        cwd=cwd, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        # a shell's background jobs would not hear Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )  # fmt: skip
    try:
        yield Server(process)
    finally:
        process.kill()
        process.communicate()


def failed(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line with which the command ended, with 2."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def failing(*words: object, cwd: Path | None = None) -> str:
    return failed(command("view", *words, "--no-browser", cwd=cwd))


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("viewed") / "run.opscope"
    small.save(path)
    return path


def test_it_serves_the_pages_at_the_port_and_ctrl_c_frees_it(saved):
    with viewing(saved, "--no-browser") as server:
        about = server.ask("about")
        assert about["files"] == ["run.opscope"]
        assert about["steps"] == {"first": 0, "last": 1, "count": 2, "marked": True}
        assert b"viewer.js" in server.get("/")
        port = int(server.origin.rpartition(":")[2])
        status, said = server.stop()
        assert status == 0
        assert "Traceback" not in said
        assert "Ctrl-C ends it" in said
    with socket.socket() as free:  # at once, though its connections are still closing
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))
    with viewing(saved, "--no-browser", "--port", port) as again:
        assert again.origin == f"http://127.0.0.1:{port}"


def test_ctrl_c_ends_it_while_an_answer_is_being_made(saved, tmp_path):
    """A module of the user's that makes each table for an hour."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Slow:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'opscope.viewer.questions.table':\n"
        "            import opscope.viewer.rows as rows\n"
        "            rows.find = lambda *_: (print('it works', file=sys.stderr), time.sleep(3600))\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    path = os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"]))
    with viewing(saved, "--no-browser", PYTHONPATH=path) as server:
        server.ask("about")
        with pytest.raises(TimeoutError):
            server.get("/api/table?name=by_op", timeout=2)
        server.until("it works")
        status, said = server.stop()
        assert status == 0
        assert "Traceback" not in said


def test_without_the_token_or_with_another_host_nothing_is_said(saved):
    with viewing(saved, "--no-browser") as server:
        for headers in ({}, {"Host": "evil.example"}):
            asked = urllib.request.Request(f"{server.origin}/api/about", headers=headers)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked, timeout=PATIENCE)
            assert refused.value.code == (400 if headers else 403)


def test_a_port_that_is_taken_is_told_before_anything_is_read(saved):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = failing(saved.parent / "not-there", "--port", port)
    assert f"port {port} of 127.0.0.1 cannot be used" in said
    assert "without --port" in said


def test_an_answer_does_not_wait_until_its_first_part_is_acknowledged():
    """asyncio turns Nagle's algorithm off only for sockets whose protocol is named; 40 ms an answer."""
    from opscope.viewer.serve import listen

    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()) as asking,
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert asking


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org"])
def test_other_hosts_than_loopback_are_refused(saved, host):
    said = failing(saved, "--host", host)
    assert host in said
    assert "ssh -L" in said


def test_a_file_that_is_none_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("no trace")
    assert "notes.txt" in failing("notes.txt", cwd=tmp_path)
    assert "missing.opscope" in failing("missing.opscope", cwd=tmp_path)
    (tmp_path / "empty.json").write_text("")
    assert "empty.json" in failing("empty.json", cwd=tmp_path)


@pytest.mark.parametrize(
    ("words", "named"),
    [(["--source-root", "no-such"], "no-such"), (["--editor", "no-such-program {file}"], "no-such-program"),
     (["--editor", "'"], "--editor"), (["--device", "7"], "7"), (["--compare", "no-such.opscope"], "no-such.opscope")],
)  # fmt: skip
def test_options_that_cannot_be_are_told(saved, words, named):
    assert named in failing(saved, *words)


def test_without_its_built_pages_it_says_how_to_build_them(saved, tmp_path):
    package = tmp_path / "opscope"
    shutil.copytree(
        ROOT / "opscope", package, ignore=shutil.ignore_patterns("static", "__pycache__")
    )
    done = subprocess.run(  # where it runs is where Python looks first
        [sys.executable, "-m", "opscope", "view", str(saved), "--no-browser"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    said = failed(done)
    assert "viewer.js is missing" in said
    assert "node build.mjs" in said


def opened(saved: Path, folder: Path, *words: str, **more: str) -> str | None:
    """What a browser was told to open; None if none was."""
    browser, told = folder / "browser", folder / "told"
    browser.write_text(f'#!/bin/sh\necho "$1" > {told}.part && mv {told}.part {told}\n')
    browser.chmod(0o755)
    with viewing(saved, *words, BROWSER=f"{browser} %s", **more) as server:
        server.until("Ctrl-C ends it")
        server.ask("about")  # it serves: what was to be opened was
        assert server.stop()[0] == 0
        found = told.read_text().strip() if told.exists() else None
        assert found in (None, server.url)
    return found


def test_a_browser_is_opened_where_there_is_a_display_and_nowhere_else(saved, tmp_path):
    assert opened(saved, tmp_path, DISPLAY=":0") is not None
    (tmp_path / "told").unlink()
    assert opened(saved, tmp_path) is None
    assert opened(saved, tmp_path, "--no-browser", DISPLAY=":0") is None
    assert opened(saved, tmp_path, DISPLAY=":0", SSH_CONNECTION="1.2.3.4 5 6.7.8.9 22") is None


def test_over_ssh_it_says_how_to_carry_the_port(saved):
    with viewing(saved, SSH_CONNECTION="1.2.3.4 5 6.7.8.9 22") as server:
        port = server.origin.rpartition(":")[2]
        server.until("Ctrl-C ends it")
        assert f"ssh -L {port}:127.0.0.1:{port} HOST" in server.said.decode()


def test_several_files_are_the_parts_of_one_job(shared):
    files = [shared / f"kineto/sampled_rank{rank}.json.gz" for rank in (0, 1)]
    with viewing(*files, "--no-browser") as server:
        about = server.ask("about")
    assert about["files"] == [file.name for file in files]
    assert about["ranks"] == [0, 1]


def test_the_selection_is_that_of_the_other_commands(saved):
    with viewing(saved, "--no-browser", "--iter-start", "1", "--device", "0") as server:
        assert server.ask("about")["selected"]
        page = server.ask("table?name=each_kernel")
    assert page["total"] == 2


def test_compare_shows_the_difference_of_two_runs(shared):
    a, b = (shared / f"kineto/sampled_rank{rank}.json.gz" for rank in (0, 1))
    with viewing(a, "--compare", b, "--no-browser") as server:
        about = server.ask("about")
        assert (about["files"], about["other"]) == ([a.name], [b.name])
        assert "compare" not in about["empty"]
        assert server.ask("table?name=diff_part")["total"] > 0


def test_source_root_shows_its_files_and_the_editor_opens_their_lines(saved, tmp_path):
    (tmp_path / "train.py").write_text("one\ntwo\n")
    editor, told = tmp_path / "editor", tmp_path / "told"
    editor.write_text(f'#!/bin/sh\necho "$@" > {told}.part && mv {told}.part {told}\n')
    editor.chmod(0o755)
    with viewing(saved, "--no-browser", "--source-root", tmp_path) as server:
        assert server.ask("source?file=train.py")["text"] == "one\ntwo\n"
        assert server.ask("source")["editor"] is False
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.ask("open?file=train.py&line=2")
        assert refused.value.code == 404
        assert not told.exists()
    words = ("--source-root", tmp_path, "--editor", f"{editor} +{{line}} {{file}}")
    with viewing(saved, "--no-browser", *words) as server:
        assert server.ask("open?file=train.py&line=2") == {"file": "train.py", "line": 2}
        for _ in range(PATIENCE * 100):
            if told.exists():
                break
            select.select([], [], [], 0.01)
        assert told.read_text() == f"+2 {tmp_path / 'train.py'}\n"
