"""Limit how long a connection may take to send its request, so that idle clients keep nobody out. Any account
of the machine can connect. A connection without a request in progress is closed once its request is late.
When there are many such connections, the oldest is closed. So connections that send requests are answered."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Connections at one time; a browser opens six, and a page that is left and opened again many more.
MOST: Final = 512
#: Connections at one time that have no request in progress.
IDLE: Final = 128
#: Seconds from the connection, or from a request's first byte, to the end of the request's head.
HEAD_SECONDS: Final = 10.0


class Connection(H11Protocol):
    """uvicorn's, with a time limit for the head of a request."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the request; if many connections are idle, close the one that has been idle longest."""
        super().connection_made(transport)
        self._wait()
        idle = [
            each for each in self.connections if isinstance(each, Connection) and each._is_idle()
        ]
        if len(idle) > IDLE:
            min(idle, key=lambda each: each._began).transport.close()

    def data_received(self, data: bytes) -> None:
        """Take in data; once a request has begun, the time limit for its arrival no longer counts."""
        super().data_received(data)
        if not self._is_idle():
            self._stop_waiting()
        elif self._late is None and self.conn.trailing_data[0]:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """The connection is idle again, or has its next request already."""
        super().on_response_complete()
        self._began = self.loop.time()

    def _is_idle(self) -> bool:
        """Whether it waits for a request; not once it is being closed."""
        return not self.transport.is_closing() and (
            self.cycle is None or self.cycle.response_complete
        )

    def _wait(self) -> None:
        self._began = self.loop.time()
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def limits() -> dict[str, Any]:
    """Return the settings of uvicorn that hold the server to ``MOST`` connections of this kind."""
    return {"http": Connection, "limit_concurrency": MOST, "backlog": MOST}
