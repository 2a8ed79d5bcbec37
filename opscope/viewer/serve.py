"""Run the viewer's server on loopback until it is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from opscope.core.refusals import WAYS_OUT, refusal
from opscope.profile.stored import schema_of

from .bundle import static_files
from .connections import MOST, limits
from .registry import questions
from .runs import Runs
from .server import make_app

if TYPE_CHECKING:
    from .viewed import Viewed

#: Addresses that mean only this machine.
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class Taken(OSError):
    """The server cannot listen at the port; the message says why."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at ``port`` (0: a free one) of loopback. Raises Taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named as TCP, or asyncio leaves Nagle's algorithm on, and each answer waits 40 ms for an
    # acknowledgement
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1" if host == "localhost" else host, port))
        listener.listen(MOST)
    except OSError as error:
        listener.close()
        raise Taken(
            f"port {port} of {host} cannot be used: {error.strerror or error}"
            " (--port takes another; `opscope view` without --port a free one)"
        ) from None
    return listener


def address(listening: socket.socket, token: str) -> str:
    """Return the address to open, with the token."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={token}"


def serve(
    viewed: Viewed | Runs,
    listening: socket.socket,
    say: Callable[[str], object],
    *,
    browse: bool = True,
) -> None:
    """Serve the pages at ``listening`` until Ctrl-C. ``say`` prints a line.

    The address is printed, and opened in a browser if there is one. Raises NotBuilt.
    """
    static_files()
    token = secrets.token_urlsafe(32)
    server = server_of(viewed, token, say)
    _show(address(listening, token), say, browse)
    threading.Thread(target=_prepare, args=(viewed,), name="opscope-prepare", daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after its shutdown
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Reports connections that the system refuses once; asyncio would print hundreds of tracebacks."""

    def __init__(self, config: uvicorn.Config, say: Callable[[str], object]) -> None:
        super().__init__(config)
        self._say = say
        self._refused = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_failure)
        await super().startup(sockets)

    def _on_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in WAYS_OUT:
            loop.default_exception_handler(context)
        elif not self._refused:
            self._refused = True
            self._say(f"some connections wait: {refusal(error)}")


def server_of(
    viewed: Viewed | Runs, token: str, say: Callable[[str], object] = lambda line: None
) -> uvicorn.Server:
    """Return the server of the pages about ``viewed`` for clients with the ``token``. ``say`` prints a
    line."""
    config = uvicorn.Config(
        make_app(viewed, token),
        **limits(),
        ws="none",
        lifespan="off",
        loop="asyncio",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    return _Server(config, say)


def _prepare(viewed: Viewed | Runs) -> None:
    """Load the modules of the first answers while the browser starts (0.3 s); large tables stay unread."""
    questions()
    # a merged profile has no kernels
    if isinstance(viewed, Runs) or viewed.profile.merged_of is None:
        schema_of("kernels")


def _show(url: str, say: Callable[[str], object], browse: bool) -> None:
    say(f"the pages are at {url}")
    remote = bool(os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"))
    if remote:
        port = url.partition("/?")[0].rpartition(":")[2]
        say(f"from your own machine: ssh -L {port}:127.0.0.1:{port} HOST, then open that address")
    say("Ctrl-C ends it")
    if browse and not remote and _has_display():
        webbrowser.open(url)


def _has_display() -> bool:
    """Whether a window can be opened: on Linux only a display server shows one."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
