"""An attachable program answers its own user, one bounded line at a time, and nobody else."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opscope.core.capture import attach_place, attach_server
from opscope.core.capture.attach_protocol import MAX_REQUEST, Refused, parsed
from opscope.core.capture.attach_server import Server, ask

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(
    not attach_place.SUPPORTED, reason="this system does not tell who is at the end of a socket"
)


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # a socket's path has at most 107 bytes, and pytest's folders may be deeper
    with tempfile.TemporaryDirectory(prefix="opscope-test-", dir="/tmp") as folder:
        monkeypatch.setenv(attach_place.FOLDER, f"{folder}/sockets")
        yield Path(folder, "sockets")


@pytest.fixture
def server() -> Iterator[Server]:
    asked: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["command"] == "stop":
            raise Refused("nothing is being recorded")
        if request["command"] == "dump":
            raise ZeroDivisionError("ours")
        asked.append(request)
        return {"asked": request}

    found = Server(answer, lambda: None)
    found.start()
    yield found
    found.stop()


def raw(place: attach_place.Place, data: bytes) -> bytes:
    with attach_place.connect(place, 10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        got = b""
        while more := connection.recv(1 << 16):
            got += more
    return got


def test_a_request_is_answered_and_a_fault_is_told(server: Server) -> None:
    place = server.place
    assert place is not None
    assert ask(place, {"command": "status"})["asked"]["command"] == "status"
    with pytest.raises(Refused, match="nothing is being recorded"):
        ask(place, {"command": "stop"})
    with pytest.raises(Refused, match="ZeroDivisionError"):
        ask(place, {"command": "dump"})
    assert ask(place, {"command": "start", "steps": 3})["asked"]["steps"] == 3


@pytest.mark.parametrize(
    "request_line",
    [
        b"",
        b"\xff\xfe\n",
        b"[]\n",
        b'"start"\n',
        b"[" * 3000 + b"\n",
        b'{"command": "run", "code": "1"}\n',
        b'{"command": "start", "output": "/etc/passwd"}\n',
        b'{"command": "status", "steps": 3}\n',
        b'{"command": "start", "steps": true}\n',
        b'{"command": "start", "steps": 0}\n',
        b'{"command": "start", "steps": 1e3}\n',
        b'{"command": "start", "seconds": NaN}\n',
        b'{"command": "start", "seconds": -1}\n',
        b'{"command": "start", "seconds": 1e9}\n',
        b'{"command": ["start"]}\n',
        b"x" * (MAX_REQUEST + 10),
    ],
)
def test_anything_but_the_commands_is_refused_and_the_next_request_answered(
    server: Server, request_line: bytes
) -> None:
    place = server.place
    assert place is not None
    try:
        answer = json.loads(raw(place, request_line))
        assert set(answer) == {"error"}
    except (ConnectionResetError, BrokenPipeError):
        assert len(request_line) > MAX_REQUEST
    assert "asked" in ask(place, {"command": "status"})


def test_who_sends_nothing_is_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_server, "PATIENCE_S", 0.2)
    place = server.place
    assert place is not None
    with attach_place.connect(place, 10) as silent:
        assert "asked" in ask(place, {"command": "status"})
        assert b"too long" in silent.recv(4096)


def test_another_user_is_refused_before_anything_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = server.place
    assert place is not None
    ours, here = attach_place.peer, threading.get_ident()

    def peer(connection: socket.socket) -> tuple[int, int, int]:
        """The server, on its thread, meets another user; who asks meets itself."""
        return ours(connection) if threading.get_ident() == here else (1, os.geteuid() + 1, 1)

    monkeypatch.setattr(attach_place, "peer", peer)
    with attach_place.connect(place, 10) as connection:
        answer = connection.recv(4096)
    assert b"only the user" in answer


def test_a_program_of_another_user_is_not_told_anything(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = server.place
    assert place is not None
    monkeypatch.setattr(attach_place, "peer", lambda _: (1, os.geteuid() + 1, 1))
    with pytest.raises(PermissionError, match="another user"):
        attach_place.connect(place, 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_really_cannot_connect(server: Server, sockets: Path) -> None:
    place = server.place
    assert place is not None
    tried = """
        import os, socket, sys
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        one = socket.socket(socket.AF_UNIX)
        try:
            one.connect(sys.argv[1])
        except OSError as error:
            print(type(error).__name__); sys.exit(0)
        print(one.recv(4096).decode())
    """
    done = [sys.executable, "-c", textwrap.dedent(tried), str(place.path)]
    for folder in sockets.parents:
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    said = subprocess.run(done, capture_output=True, text=True, check=True).stdout
    assert "PermissionError" in said
    # even where the folder lets them in, the kernel says who they are
    sockets.chmod(0o755)
    place.path.chmod(0o777)
    said = subprocess.run(done, capture_output=True, text=True, check=True).stdout
    assert "only the user" in said


@pytest.mark.parametrize("how", ["wide", "link", "file", "others"])
def test_a_folder_that_others_could_have_made_is_not_used(
    sockets: Path, tmp_path: Path, how: str
) -> None:
    if how == "wide":
        sockets.mkdir(mode=0o755)
    elif how == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        sockets.symlink_to(tmp_path / "real")
    elif how == "file":
        sockets.touch()
    elif os.geteuid() != 0:
        pytest.skip("needs root to give a folder away")
    else:
        sockets.mkdir(mode=0o700)
        os.chown(sockets, 65534, 65534)
    found = Server(lambda request: {}, lambda: None)
    why = {
        "wide": "other users may",
        "link": "is a link",
        "file": "is no folder",
        "others": "belongs",
    }
    with pytest.raises(OSError, match=why[how]):
        found.start()
    (reason,) = attach_place.refusals()
    assert why[how] in reason
    assert str(sockets) in reason
    assert list(attach_place.places()) == []


def test_the_socket_is_its_users_alone_and_goes_with_the_server(sockets: Path) -> None:
    found = Server(lambda request: {}, lambda: None)
    found.start()
    place = found.place
    assert place is not None
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert place.path.stat().st_mode & 0o777 == 0o600
    assert [one.pid for one in attach_place.places()] == [os.getpid()]
    found.stop()
    found.stop()
    assert list(sockets.iterdir()) == []
    with pytest.raises(OSError):
        ask(place, {"command": "status"})


def test_the_socket_of_a_dead_program_is_removed_when_it_is_met(sockets: Path) -> None:
    program = f"""
        import os, signal, sys
        sys.path.insert(0, {str(ROOT)!r})
        from opscope.core.capture.attach_server import Server
        Server(lambda request: {{}}, lambda: None).start()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert len(list(sockets.iterdir())) == 1
    assert list(attach_place.places()) == []
    assert list(sockets.iterdir()) == []


def test_a_socket_has_its_name_only_once_it_listens(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chmod, met = os.chmod, []

    def looked(*args: Any, **kwargs: Any) -> None:
        chmod(*args, **kwargs)
        met.append(list(attach_place.places()))  # another program looks before it listens

    monkeypatch.setattr(attach_place.os, "chmod", looked)
    found = Server(lambda request: {}, lambda: None)
    found.start()
    try:
        assert met == [[]]
        assert [one.pid for one in attach_place.places()] == [os.getpid()]
        assert len(list(sockets.iterdir())) == 1
    finally:
        found.stop()


def in_a_child(what: Callable[[], bool]) -> bool:
    pid = os.fork()
    if not pid:
        os._exit(0 if what() else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_a_forked_child_does_not_listen_and_its_parent_does(server: Server, sockets: Path) -> None:
    place = server.place
    assert place is not None
    open_before = len(os.listdir("/proc/self/fd"))
    # the listener and the folder are closed in the child; the pipe of the thread went before the fork
    assert in_a_child(
        lambda: server.place is None and len(os.listdir("/proc/self/fd")) <= open_before - 2
    )
    assert [one.name for one in sockets.iterdir()] == [place.name]
    assert "asked" in ask(place, {"command": "status"})


def test_no_thread_of_ours_exists_while_the_process_forks(server: Server) -> None:
    place = server.place
    assert place is not None
    assert in_a_child(lambda: len(os.listdir("/proc/self/task")) == 1)
    before = os.listdir("/proc/self/task")
    ask(place, {"command": "status"})
    assert str(server._system_id) in before


def test_the_thread_sleeps_while_nobody_asks(server: Server) -> None:
    place = server.place
    assert place is not None
    ask(place, {"command": "status"})
    time.sleep(0.1)
    status = Path(f"/proc/self/task/{server._system_id}/status")

    def woken() -> int:
        line = next(x for x in status.read_text().splitlines() if x.startswith("voluntary"))
        return int(line.split()[1])

    before = woken()
    time.sleep(0.5)
    assert woken() == before


def test_requests_are_what_the_client_may_say() -> None:
    assert parsed(b'{"command": "start"}') == {"command": "start", "steps": None, "seconds": None}
    with pytest.raises(Refused, match="start has no 'path'"):
        parsed(b'{"command": "start", "path": "x"}')
