"""Whoever connects and sends no request keeps nobody from the viewer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from opscope.viewer import connections
from opscope.viewer.serve import address, listen, server_of
from opscope.viewer.viewed import Viewed
from tests.viewer.asking import TOKEN


@pytest.fixture
def site(small) -> Iterator[tuple[str, int]]:
    """The address of a server of a small profile, with the token, and its port."""
    listening = listen("127.0.0.1", 0)
    server = server_of(Viewed(small, ("run",)), TOKEN)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield address(listening, TOKEN), listening.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@contextlib.contextmanager
def half_open(port: int, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        strangers = []
        for _ in range(count):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            stranger.sendall(sent)
            strangers.append(stranger)
        yield strangers


def fetched(url: str, port: int, count: int) -> list[int]:
    """The statuses of so many questions at once, each on a connection of its own, by who has the token."""

    async def ask() -> list[int]:
        limits = httpx.Limits(max_connections=count)
        async with httpx.AsyncClient(limits=limits, timeout=60, follow_redirects=True) as client:
            assert (await client.get(url)).status_code == 200
            at = f"http://127.0.0.1:{port}/api/table?name=summary"
            answers = await asyncio.gather(*(client.get(at) for _ in range(count)))
        return [answer.status_code for answer in answers]

    return asyncio.run(ask())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: ", b"GET / HTTP/1.1\r\n\r\n"])
def test_more_half_open_connections_than_there_may_be_keep_nobody_out(site, sent):
    url, port = site
    with half_open(port, connections.MOST + 100, sent):
        assert fetched(url, port, 5) == [200] * 5


def test_two_hundred_questions_at_once_are_all_answered(site):
    url, port = site
    assert fetched(url, port, 200) == [200] * 200


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: "])
def test_a_request_that_does_not_come_is_not_waited_for(site, sent, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    with half_open(site[1], 3, sent) as strangers:
        for stranger in strangers:
            assert stranger.recv(1) == b""  # it is closed, before this socket's own 10 s


def test_a_second_request_that_does_not_end_is_not_waited_for_either(site, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    with half_open(site[1], 1, b"GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n") as [stranger]:
        assert stranger.recv(65_536).startswith(b"HTTP/1.1 400")
        stranger.sendall(b"G")
        while stranger.recv(65_536):
            pass


def test_connections_that_the_system_refuses_are_told_once_with_the_way_out(small) -> None:
    said: list[str] = []
    server = server_of(Viewed(small, ("run",)), TOKEN, said.append)
    loop = asyncio.new_event_loop()
    for _ in range(3):
        context = {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")}
        server._on_failure(loop, context)
    loop.close()
    assert said == ["some connections wait: Too many open files (raise the limit: ulimit -n)"]
