"""Asks the viewer's application without a socket: what a browser would send, and what it would not."""

from __future__ import annotations

import asyncio

import httpx

from opscope.viewer.server import make_app
from opscope.viewer.viewed import Viewed

TOKEN = "the-token-of-the-tests"
PORT = 8123
AT = f"http://127.0.0.1:{PORT}"
COOKIE = {"cookie": f"opscope-{PORT}={TOKEN}"}


class Asking:
    """The application of ``viewed`` and a loop to run it in; close it."""

    def __init__(self, viewed: Viewed) -> None:
        self._loop = asyncio.new_event_loop()
        app = make_app(viewed, TOKEN)
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=AT)

    def close(self) -> None:
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()

    def send(self, method: str, path: str, **headers: str) -> httpx.Response:
        """A request with these headers alone (``_`` stands for ``-``)."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._loop.run_until_complete(self._client.request(method, path, headers=given))

    def page(self, path: str) -> httpx.Response:
        """What the viewer's own page sends."""
        return self.send("GET", path, **COOKIE)

    def ask(self, question: str, **given: object) -> httpx.Response:
        """The answer of a question, as the page asks it."""
        asked = httpx.QueryParams({name: str(value) for name, value in given.items()})
        return self.page(f"/api/{question}?{asked}")
