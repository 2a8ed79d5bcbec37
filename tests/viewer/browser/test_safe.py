"""Safety through a real socket: wrong hosts, no token, other sites, other methods, bad parameters."""

from __future__ import annotations

import http.client
import socket
from urllib.parse import parse_qs, quote, urlsplit

import psutil
import pytest


@pytest.fixture(scope="module")
def viewer(viewing, made):
    return viewing(made("training"))


@pytest.fixture(scope="module")
def cookie(viewer):
    _, headers, _ = ask(viewer, urlsplit(viewer.url).path + "?" + urlsplit(viewer.url).query)
    return headers["set-cookie"].partition(";")[0]


def ask(viewer, path, method="GET", **headers):
    connection = http.client.HTTPConnection(viewer.host, viewer.port, timeout=120)
    try:
        connection.putrequest(method, path, skip_host="host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_it_listens_at_loopback_alone(viewer):
    assert viewer.host in ("127.0.0.1", "localhost", "::1")
    opened = psutil.Process(viewer.process.pid).net_connections(kind="all")
    listening = [one.laddr for one in opened if one.status == psutil.CONN_LISTEN]
    assert [(one.ip, one.port) for one in listening] == [("127.0.0.1", viewer.port)]


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(viewer):
    parts = urlsplit(viewer.url)
    (token,) = parse_qs(parts.query)["token"]
    assert len(token) >= 32
    status, headers, body = ask(viewer, f"{parts.path}?{parts.query}")
    given = headers["set-cookie"].lower()
    assert "httponly" in given
    assert "samesite=strict" in given
    assert status in (302, 303, 307)
    assert token not in headers["location"]
    assert token.encode() not in body


def test_a_page_may_do_nothing_but_ask_its_own_server(viewer, cookie):
    _, headers, _ = ask(viewer, "/", cookie=cookie)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "*" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path", ["/", "/viewer.js", "/api/about", "/api/table?name=summary", "/nothing"]
)
def test_nothing_is_answered_without_the_token(viewer, path):
    for given in ({}, {"cookie": "opscope=1"}, {"cookie": f"opscope-{viewer.port}=wrong"}):
        status, _, body = ask(viewer, path, **given)
        assert status == 403
        assert b"token" in body
    assert ask(viewer, "/?token=wrong")[0] == 403
    assert ask(viewer, "/?token=")[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", "127.0.0.2:{port}", "[::2]:{port}", ""]
)  # fmt: skip
def test_another_host_is_refused(viewer, cookie, host):
    status, _, body = ask(viewer, "/api/about", cookie=cookie, host=host.format(port=viewer.port))
    assert 400 <= status < 500
    assert b"step" not in body


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}],
)  # fmt: skip
def test_another_site_is_refused(viewer, cookie, headers):
    assert ask(viewer, "/api/about", cookie=cookie, **headers)[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "NONSENSE"])  # fmt: skip
def test_only_get_and_head_are_answered(viewer, cookie, method):
    status, _, _ = ask(viewer, "/api/about", method, cookie=cookie, content_length="0")
    assert 400 <= status < 500
    assert status != 404


BAD = [
    "/api/nothing", "/api/", "/api/table", "/api/table?name=", "/api/table?name=nothing", "/api/table?name=__init__",
    "/api/table?name=../summary", "/api/table?name=operators&from=-1", "/api/table?name=operators&from=x",
    "/api/table?name=operators&rows=1001", "/api/table?name=operators&rows=-1", "/api/table?name=operators&rows=1e3",
    "/api/table?name=operators&sort=nothing", "/api/table?name=operators&where=[]", "/api/table?name=operators&where={",
    '/api/table?name=operators&where={"nothing":1}', "/api/table?name=operators&steps=x", "/api/table?name=operators&steps=9-3",
    "/api/table?name=operators&steps=900-901", "/api/table?name=operators&device=x", "/api/table?name=operators&device=99",
    "/api/table?name=operators&rank=99", "/api/table?name=operators&name=kernel", "/api/about?steps=%00", "/api/about?steps=%ff",
    "/api/about?steps=1%20OR%201", "/api/table?name=operators&from=99999999999999999999999", "/api/table?name=operators&rows=٣٤٥x",
    "/api/source_text?path=/etc/passwd", "/api/source?file=/etc/passwd", "/api/source?file=../../etc/passwd",
    "/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/static/../viewer.js", "/..%2fviewer.py", "/THIRD_PARTY.txt%00", "//evil.example/",
    "/api/table?name=operators&where=" + "x" * 2_000, "/?" + "x" * 20_000, "/" + "x" * 20_000,
    "/api/about?" + "&".join(f"a{n}=1" for n in range(100)),
]  # fmt: skip


@pytest.mark.parametrize("path", BAD, ids=lambda path: path[:60])
def test_bad_parameters_are_refused_in_words(viewer, cookie, path):
    path = quote(path, safe="/?&=%[]{}:,\"'.+-_")
    status, headers, body = ask(viewer, path.replace('"', "%22"), cookie=cookie)
    if not 400 <= status < 500:
        # a parameter that a question does not have changes nothing
        assert path.startswith("/api/about?"), (status, body[:300])
    else:
        text = body.decode()
        assert 0 < len(text) < 2_000
        assert "Traceback" not in text
        assert "root:" not in text
        if headers["content-type"].startswith("text/html"):
            assert "<script" not in text


def test_hostile_parameters_come_back_as_plain_text(viewer, cookie):
    path = "/api/table?name=" + quote("<script>owned()</script>")
    status, headers, _ = ask(viewer, path, cookie=cookie)
    assert status in (400, 404)
    assert headers["content-type"].startswith("text/plain")
    assert headers["x-content-type-options"] == "nosniff"


def test_half_a_request_and_noise_do_not_end_it(viewer, cookie):
    for noise in (
        b"",
        b"GET",
        b"\x16\x03\x01\x00\xff" * 10,
        b"GET / HTTP/1.1\r\nHost",
        b"\x00" * 70_000,
    ):
        with socket.create_connection((viewer.host, viewer.port), timeout=60) as one:
            one.sendall(noise)
    assert ask(viewer, "/api/about", cookie=cookie)[0] == 200
