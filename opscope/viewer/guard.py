"""Refuse requests that do not come from the viewer's own page: other hosts, sites or methods, or no token."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import early

#: Bytes of path and query together.
ADDRESS: Final = 16_384
#: Parameters of one question.
PARAMETERS: Final = 32
#: A page may load its own script and style and ask its own server; nothing may hold it in a frame.
POLICY: Final = (
    f"default-src 'none'; script-src 'self' {early.SOURCE}; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
_NO_TOKEN: Final = (
    "This page needs the address that opscope view printed: it ends in ?token=… . Open that one, or start"
    " opscope view again."
)
#: After a click in another page (a terminal in the browser), browsers send no strict cookie to the
#: target of a redirect. A page of our own that redirects itself gets the cookie.
_GO_ON: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>opscope</title>'
    '<meta http-equiv="refresh" content="0;url=/"></head><body><a href="/">opscope</a></body></html>'
)


class Guard:
    """ASGI middleware: lets a request through to ``app`` only if it is for this server, from its own page.
    ``token`` is the secret of the address that was printed. A request with the token is answered by a cookie,
    which the page sends from then on, and a redirect to the address without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse it in words."""
        if scope["type"] != "http":
            return  # websockets are refused by not accepting them

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers_there = [*message.get("headers", ())]
                names = {name.lower() for name, _ in headers_there}
                headers_there += [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in names
                ]
                message["headers"] = headers_there
            await send(message)

        refused = self._refusal(scope)
        await (self.app if refused is None else refused)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        port = (scope.get("server") or (None, None))[1]
        if headers.getlist("host") not in [[host] for host in _hosts(port)]:
            return _say(400, "This server answers only at its own address on this machine.")
        if scope["method"] not in ("GET", "HEAD"):
            return _say(405, "Only GET and HEAD are answered.", {"allow": "GET, HEAD"})
        query: bytes = scope.get("query_string", b"")
        if len(scope.get("raw_path") or b"") + len(query) > ADDRESS:
            return _say(414, f"The address is longer than {ADDRESS:,} bytes.")
        given = _given(query) if scope["path"] == "/" else {}
        if isinstance(given, Response):
            return given
        token = given.get("token")
        fetched_from = headers.get("sec-fetch-site", "none")
        own = fetched_from in ("none", "same-origin")
        if token is not None and secrets.compare_digest(token.encode(), self._token):
            navigates = headers.get("sec-fetch-mode", "navigate") == "navigate"
            if not own and not navigates:
                return _say(403, "Another site may not ask this server.")
            answer: Response = RedirectResponse("/", 303) if own else HTMLResponse(_GO_ON)
            answer.set_cookie(
                _cookie(port), self._token.decode(), httponly=True, samesite="strict", path="/"
            )
            return answer
        origin = headers.get("origin")
        if not own or (origin is not None and origin not in _origins(port)):
            return _say(403, "Another site may not ask this server.")
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie(port), "")
        if not secrets.compare_digest(cookie.encode(), self._token):
            return _say(403, _NO_TOKEN)
        return None


def parameters(query: bytes) -> dict[str, str]:
    """Return the query's parameters; a parameter without a value counts as not given.

    Raises ValueError in words if there are too many, one is given twice, or it is not UTF-8.
    """
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict",
            max_num_fields=PARAMETERS,
        )  # fmt: skip
    except UnicodeError:
        raise ValueError("the parameters are no UTF-8") from None
    except ValueError:
        raise ValueError(f"there are more than {PARAMETERS} parameters") from None
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a parameter is given twice")
    return {name: value for name, value in pairs if value}


def _given(query: bytes) -> dict[str, str] | Response:
    try:
        return parameters(query)
    except ValueError as error:
        return _say(400, str(error))


def _hosts(port: int | None) -> Iterable[str]:
    for host in ("127.0.0.1", "localhost", "[::1]"):
        yield f"{host}:{port}"
        if port == 80:  # the default port, which a browser leaves out
            yield host


def _origins(port: int | None) -> list[str]:
    return [f"http://{host}" for host in _hosts(port)]


def _cookie(port: int | None) -> str:
    """Return the cookie's name: cookies are shared by all ports of a host."""
    return f"opscope-{port}"


def _say(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(reason + "\n", status, headers)
