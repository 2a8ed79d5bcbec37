"""The viewer's server: one page with its script and style, and the answers to its questions. ``make_app``
returns an ASGI application; ``serve.py`` runs it. ``api/working`` gives the progress of running answers."""

from __future__ import annotations

import asyncio
import html
import logging
import traceback
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from opscope.core.not_merged import NotMerged
from opscope.readers.errors import BadInput

from . import early
from .bundle import STATIC, NotBuilt, static
from .guard import Guard, parameters
from .question import Asked, BadParameter, Question, Unanswered, whole
from .registry import questions
from .runs import Runs
from .runs import page as runs_page
from .work import Busy, Work

if TYPE_CHECKING:
    from .viewed import Viewed

#: The body of an answer and its media type.
_Answer: TypeAlias = tuple[bytes, str]
_log: Final = logging.getLogger("opscope.viewer")
#: An empty picture as the browser's icon, so that it requests none.
_ICON: Final = "data:,"


def page(names: tuple[str, ...]) -> str:
    """Return the page: its script draws everything."""
    title = html.escape(whole(", ".join(names)[:200]))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<title>{title} – opscope</title>\n<link rel="icon" href="{_ICON}">\n'
        f"<script>{early.SCRIPT}</script>\n"
        '<link rel="stylesheet" href="viewer.css">\n<script src="viewer.js" defer></script>\n'
        '</head>\n<body>\n<div id="viewer"></div>\n'
        "<noscript>These pages are drawn by JavaScript; opscope report shows the same as text.</noscript>\n"
        "</body>\n</html>\n"
    )


def make_app(shown: Viewed | Runs, token: str) -> Starlette:
    """Return the application that shows a profile, or several runs, to clients with the ``token``."""
    work = Work()
    if isinstance(shown, Runs):
        routes: list[BaseRoute] = [Route("/", _list(shown)), Route("/{name}", _file)]
        for number, path in enumerate(shown.paths):
            view = partial(shown.viewed, number)
            routes.insert(0, Mount(f"/run/{number}", routes=_pages(view, (path.name,), work)))
    else:
        routes = _pages(lambda: shown, shown.names, work)
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={404: _missing},
    )
    app.router.redirect_slashes = False
    return app


def _list(runs: Runs) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def list_of_runs(request: Request) -> Response:
        return Response(runs_page(runs), media_type="text/html")

    return list_of_runs


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return _plain(404, "There is no such file.")
    try:
        return Response(static(name), headers={"content-type": STATIC[name]})
    except NotBuilt as error:
        return _plain(503, str(error))


def _pages(view: Callable[[], Viewed], names: tuple[str, ...], work: Work) -> list[BaseRoute]:
    """Return the routes of one profile's pages; ``view`` is called where an answer is made."""
    failures: set[tuple[str, str]] = set()

    async def shell(request: Request) -> Response:
        return Response(page(names), media_type="text/html")

    async def api(request: Request) -> Response:
        question = questions().get(request.path_params["question"])
        if question is None:
            return _plain(404, "There is no such question.")
        try:
            given = parameters(request.scope["query_string"])
        except ValueError as error:
            return _plain(400, str(error))
        try:
            work_made = work.do(question.name, lambda: _encode(question, Asked(view(), given)))
            answer = await _unless_gone(request, work_made)
        except (BadParameter, BadInput) as error:
            return _plain(400, str(error))
        except (Unanswered, NotMerged) as error:
            return _plain(404, str(error.args[0]) if error.args else "not there")
        except Busy as error:
            return _plain(503, str(error), {"retry-after": "5"})
        except MemoryError:
            return _plain(503, "the memory does not suffice: select fewer steps")
        except Exception as error:  # noqa: BLE001 - the page shows it, and the terminal its place
            return _failed(question, error, failures)
        if answer is None:
            return _plain(503, "nobody waited for the answer")
        body, kind = answer
        return Response(body, media_type=kind)

    async def working(request: Request) -> Response:
        return Response(msgspec.json.encode(work.running()), media_type="application/json")

    return [
        Route("/", shell),
        Route("/api/working", working),
        Route("/api/{question}", api),
        Route("/{name}", _file),
    ]


async def _missing(request: Request, error: Exception) -> Response:
    return _plain(404, "There is nothing at this address.")


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, _Answer]) -> _Answer | None:
    """Return the answer; None, without waiting for it, once the client has gone."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        return await answering if answering.done() else None
    finally:
        answering.cancel()
        leaving.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    """Wait until the connection is closed."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _encode(question: Question, asked: Asked) -> _Answer:
    answer: Any = question.answer(asked)
    if isinstance(answer, (bytes, bytearray, memoryview)):
        return bytes(answer), "application/octet-stream"
    return msgspec.json.encode(answer), "application/json"


def _failed(question: Question, error: Exception, failures: set[tuple[str, str]]) -> Response:
    """Print once in the terminal what failed and where; tell the page that it failed."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    key = (question.name, location)
    if key not in failures:
        failures.add(key)
        _log.error(
            "the question %r could not be answered: %s: %s (%s). This is a fault of opscope.",
            question.name,
            type(error).__name__,
            error,
            location,
        )
    return _plain(500, f"opscope failed to answer {question.name!r}; its terminal says why")


def _plain(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    # the request may hold half a surrogate pair, which UTF-8 does not have
    return PlainTextResponse(f"{text}\n".encode(errors="backslashreplace"), status, headers)
