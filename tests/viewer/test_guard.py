"""The server answers its own page alone: other hosts, sites, methods and strangers are refused in words."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from tests.viewer.asking import AT, COOKIE, PORT, TOKEN

ASKED = "/api/about"


def test_the_address_with_the_token_sets_a_strict_cookie_and_leads_to_the_page(app):
    answer = app.send("GET", f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert TOKEN not in answer.text
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "Path=/"} < set(cookie.split("; "))
    assert "samesite=strict" in cookie.lower()
    page = app.send("GET", "/", cookie=cookie.partition(";")[0])
    assert page.status_code == 200
    assert "viewer.js" in page.text
    assert TOKEN not in page.text
    assert "run &lt;1&gt;.opscope" in page.text


def test_a_click_in_another_page_that_has_the_token_opens_the_page_by_a_page_of_our_own(app):
    given = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    answer = app.send("GET", f"/?token={TOKEN}", **given)
    assert answer.status_code == 200
    assert "set-cookie" in answer.headers
    assert 'http-equiv="refresh"' in answer.text
    given["sec_fetch_mode"] = "no-cors"
    assert app.send("GET", f"/?token={TOKEN}", **given).status_code == 403


def test_the_policy_allows_the_one_script_that_stands_in_the_page(app):
    page = app.page("/")
    scripts = re.findall(r"<script>(.*?)</script>", page.text)
    sources = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    policy = page.headers["content-security-policy"]
    allowed = policy.partition("script-src ")[2].partition(";")[0].split(" ")
    assert allowed == ["'self'", *(f"'sha256-{one}'" for one in sources)]
    assert len(scripts) == 1


@pytest.mark.parametrize(
    "path", ["/", ASKED, "/viewer.js", "/nothing", "/api/nothing", "/?token=x", "/?token=é"]
)
def test_without_the_token_nothing_is_said(app, path):
    for headers in (
        {},
        {"cookie": f"opscope-{PORT}=wrong"},
        {"cookie": f"opscope-{PORT + 1}={TOKEN}"},
    ):
        answer = app.send("GET", path, **headers)
        assert answer.status_code == 403
        assert "opscope view" in answer.text


def test_the_token_is_taken_at_the_page_alone(app):
    assert app.send("GET", f"{ASKED}?token={TOKEN}").status_code == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", f"127.0.0.1.evil.example:{PORT}",
     f"localhost.:{PORT}", f"0.0.0.0:{PORT}", f"127.0.0.1:{PORT}@evil.example", "", f"[::]:{PORT}", f"127.1:{PORT}"],
)  # fmt: skip
def test_another_host_is_refused_as_its_page_may_have_bound_its_name_to_this_machine(app, host):
    answer = app.send("GET", ASKED, host=host, **COOKIE)
    assert answer.status_code == 400
    assert "address" in answer.text


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}"])
def test_the_names_of_loopback_are_answered(app, host):
    assert app.send("GET", ASKED, host=host, **COOKIE).status_code == 200


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X"]
)
def test_other_methods_than_get_and_head_are_refused(app, method):
    answer = app.send(method, ASKED, **COOKIE)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_head_has_no_body(app):
    answer = app.send("HEAD", ASKED, **COOKIE)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "headers",
    [{"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}, {"origin": "https://evil.example"},
     {"origin": "null"}, {"origin": f"http://127.0.0.1:{PORT + 1}"}],
)  # fmt: skip
def test_another_site_may_not_ask(app, headers):
    for path in (ASKED, "/", "/viewer.js"):
        assert app.send("GET", path, **COOKIE, **headers).status_code == 403


def test_the_own_page_may_ask(app):
    headers = {"sec_fetch_site": "same-origin", "origin": AT}
    assert app.send("GET", ASKED, **COOKIE, **headers).status_code == 200


def test_every_answer_has_the_headers_that_keep_others_out(app):
    for answer in (
        app.page("/"),
        app.ask("about"),
        app.ask("nothing"),
        app.send("GET", "/"),
        app.send("POST", "/"),
    ):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_an_address_that_is_too_long_is_refused(app):
    assert app.page("/api/about?q=" + "x" * 20_000).status_code == 414
    assert app.page("/" + "x" * 20_000).status_code == 414


@pytest.mark.parametrize("query", ["a=%ff", "a=1&a=2", "&".join(f"p{n}=1" for n in range(40))])
def test_parameters_that_cannot_be_read_are_refused_in_words(app, query):
    answer = app.page(f"{ASKED}?{query}")
    assert answer.status_code == 400
    assert "parameter" in answer.text


@pytest.mark.parametrize(
    "path",
    ["/viewer.ts", "/server.py", "/static/viewer.js", "/..%2fserver.py", "/%2e%2e/server.py", "/viewer.js%00",
     "/viewer.js/", "/api", "/api/", "/api/about/", "/api/..%2fabout", "/api/About", "/api/__init__", "/%00"],
)  # fmt: skip
def test_files_and_questions_are_a_fixed_list(app, path):
    answer = app.page(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/plain")
    assert "Traceback" not in answer.text
