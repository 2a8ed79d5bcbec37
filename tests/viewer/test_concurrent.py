"""Many questions at once, of a page that goes on before they are answered: each gets its own answer."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest

from opscope.core import progress
from opscope.viewer import registry
from opscope.viewer.question import Question
from opscope.viewer.server import make_app
from opscope.viewer.viewed import Viewed
from tests.viewer.asking import AT, COOKIE, TOKEN


def test_questions_asked_at_once_are_answered_as_one_after_the_other(small):
    """Selections are given up while others are still being answered; no answer is of another question."""
    asked = [
        f"/api/table?name={name}&sort={sort}&steps={steps}&device={device}"
        for name, sort in (("each_kernel", "-start"), ("by_op", "op"), ("summary", ""))
        for steps in ("0", "1", "0-1", "")
        for device in ("0", "1", "")
    ]

    async def main(paths, together):
        transport = httpx.ASGITransport(make_app(Viewed(small, ("run",)), TOKEN))
        async with httpx.AsyncClient(transport=transport, base_url=AT, headers=COOKIE) as client:
            if together:
                return await asyncio.gather(*(client.get(path) for path in paths))
            return [await client.get(path) for path in paths]

    alone = [one.text for one in asyncio.run(main(asked, together=False))]
    assert len(set(alone)) > 20
    for _ in range(3):
        answers = asyncio.run(main(asked, together=True))
        assert [one.status_code for one in answers] == [200] * len(asked)
        assert [one.text for one in answers] == alone


@pytest.fixture
def slow(monkeypatch):
    """A question that ends when ``go`` is set, and says how far it is."""
    go, begun = threading.Event(), threading.Semaphore(0)

    def answer(asked):
        begun.release()
        with progress.stage("counting sheep", 7) as stage:
            stage.add(2)
            go.wait(60)
        return {"asked": dict(asked.given)}

    held = {**registry.questions(), "slow": Question(name="slow", answer=answer)}
    monkeypatch.setattr("opscope.viewer.server.questions", lambda: held)
    yield go, begun
    go.set()


def test_what_is_being_made_is_said_while_all_turns_are_taken(small, slow):
    go, begun = slow

    async def main():
        transport = httpx.ASGITransport(make_app(Viewed(small, ("run",)), TOKEN))
        async with httpx.AsyncClient(transport=transport, base_url=AT, headers=COOKIE) as client:
            asked = [asyncio.create_task(client.get(f"/api/slow?n={n}")) for n in range(4)]
            for _ in asked:
                await asyncio.to_thread(begun.acquire)
            said = []
            while len(said) < 4 or not all(one["done"] == 2 for one in said):
                said = (await client.get("/api/working")).json()
            assert {one["question"] for one in said} == {"slow"}
            assert {(one["doing"], one["total"], one["unit"]) for one in said} == {
                ("counting sheep", 7, "")
            }
            assert (await client.get("/viewer.css")).status_code == 200  # needs no turn
            go.set()
            answers = await asyncio.gather(*asked)
            assert [one.json() for one in answers] == [{"asked": {"n": str(n)}} for n in range(4)]
            assert (await client.get("/api/working")).json() == []

    asyncio.run(asyncio.wait_for(main(), 60))


def test_what_is_being_made_is_said_to_the_own_page_alone(app):
    assert app.send("GET", "/api/working").status_code == 403
    assert app.page("/api/working").json() == []


def test_a_page_that_goes_on_leaves_its_turn_to_the_next_question(small, slow):
    """The client closes its connections; the server's answers are still being made."""
    _, begun = slow

    async def main():
        app = make_app(Viewed(small, ("run",)), TOKEN)
        scope = {
            "type": "http", "method": "GET", "path": "/api/slow", "raw_path": b"/api/slow", "query_string": b"",
            "root_path": "", "scheme": "http", "http_version": "1.1", "server": ("127.0.0.1", 8123),
            "client": ("127.0.0.1", 1), "asgi": {"version": "3.0"},
            "headers": [(b"host", b"127.0.0.1:8123"), (b"cookie", COOKIE["cookie"].encode())],
        }  # fmt: skip

        async def left():
            closed = iter(["http.request", "http.disconnect"])

            async def receive():
                kind = next(closed)
                if kind == "http.disconnect":
                    await asyncio.to_thread(begun.acquire)
                return {"type": kind, "body": b"", "more_body": False}

            async def send(message):
                pass

            await app(dict(scope), receive, send)

        for _ in range(12):
            await left()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=AT, headers=COOKIE) as client:
            assert (await client.get("/api/working")).json() == []
            assert (await client.get("/api/about")).status_code == 200

    asyncio.run(asyncio.wait_for(main(), 60))
