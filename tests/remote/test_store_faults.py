"""What goes wrong in real stores: uploads that never ended, rights, missing buckets, servers that fail."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import opscope
from opscope.errors import BadInput, NotReached
from opscope.remote import stores
from tests.made_ranks import rank_files


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(stores, "_PAUSE", 0.0)


def test_an_upload_that_never_ended_is_no_file(store):
    url = store.url("half.json")
    whole = store.fs().open(url, "wb", block_size=5 << 20)
    whole.write(b" " * (6 << 20))
    whole.flush()
    with pytest.raises(BadInput, match="no such file"):
        opscope.load(url)
    with pytest.raises(BadInput, match="matches nothing"):
        opscope.load(store.url("*.json"))
    whole.closed = True  # it would end the upload when it is collected


def test_a_file_that_was_cut_before_its_upload_is_told(store, tmp_path):
    packed = gzip.compress(rank_files(tmp_path)[0].read_bytes())
    url = store.put("rank0.json.gz", packed[: len(packed) // 2])
    with pytest.raises(BadInput) as told:
        opscope.load(url)
    assert told.value.path == url


def test_rights_that_lack_are_told_and_nothing_is_left(store, tmp_path, monkeypatch):
    if store.name == "seaweedfs":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "blind")
    elif store.name == "azurite":
        text = store.env["AZURE_STORAGE_CONNECTION_STRING"].replace("AccountKey=E", "AccountKey=F")
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    else:
        pytest.skip("this server knows no rights")
    [rank] = rank_files(tmp_path, 1)
    url = store.put("a.json", rank)
    type(store.fs()).clear_instance_cache()
    with pytest.raises(BadInput, match=r"access denied|credentials were refused") as told:
        opscope.load(url)
    assert "AccountKey" not in str(told.value)
    with pytest.raises(BadInput, match=r"access denied|credentials were refused"):
        opscope.load(store.url("*.json"))
    with pytest.raises(NotReached, match=r"access denied|credentials were refused"):
        opscope.load(rank).save(store.url("b.opscope"))
    monkeypatch.undo()


def test_credentials_that_are_wrong_are_told(store, tmp_path, monkeypatch):
    if store.name != "seaweedfs":
        pytest.skip("of the servers for tests only this one looks at the signature")
    url = store.put("a.json", rank_files(tmp_path)[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-word")
    type(store.fs()).clear_instance_cache()
    with pytest.raises(BadInput, match=r"access denied|credentials were refused") as told:
        opscope.load(url)
    assert "another-word" not in str(told.value)


def test_a_missing_bucket_is_told_when_something_is_written(store, tmp_path):
    if store.name == "seaweedfs":
        pytest.skip("this server makes the bucket for its administrator")
    profile = opscope.load(rank_files(tmp_path)[0])
    with pytest.raises(NotReached, match="no such"):
        profile.save(store.base.replace("bucket", "nowhere") + "/a.opscope")


def test_an_account_in_the_url_is_asked_or_refused(store, tmp_path):
    if store.name != "azurite":
        pytest.skip("a URL of Azure only")
    files = rank_files(tmp_path)
    for one in files:
        store.put(one.name, one)
    base = "abfss://bucket@devstoreaccount1.dfs.core.windows.net"
    on_disk = opscope.load(files)
    assert opscope.load(f"{base}/rank*.json").op_totals().equals(on_disk.op_totals())
    on_disk.save(f"{base}/out.opscope")
    assert opscope.load(f"{base}/out.opscope").op_totals().equals(on_disk.op_totals())
    with pytest.raises(BadInput, match="credentials that fsspec finds are of another account"):
        opscope.load("abfss://bucket@someone.dfs.core.windows.net/rank0.json")


# ------------------------------------------------------------------------------- web servers


@pytest.fixture
def answering():
    """A web server on loopback that answers each request with ``server.answers(path)``; and its URL."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install 'opscope[cloud]'")

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, body: bool) -> None:
            status, content, length = self.server.answers(self.command, self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            for name, value in getattr(self.server, "headers", {}).items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content)
            self.close_connection = True

        def do_GET(self) -> None:
            self._answer(True)

        def do_HEAD(self) -> None:
            self._answer(False)

        def log_message(self, *args) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "words"),
    [(403, "access denied"), (401, "access denied"), (404, "no such file")],
)
def test_what_a_web_server_refuses_is_told_without_the_signature(answering, status, words):
    asked = []

    def answers(method, path):
        asked.append(path)
        return status, b"<Error>secret</Error>", 21

    answering.answers = answers
    with pytest.raises(BadInput, match=words) as told:
        opscope.load(f"{answering.url}/a.json?X-Amz-Signature=hidden")
    assert "hidden" not in str(told.value)
    assert told.value.path == f"{answering.url}/a.json"
    assert len(asked) < 5  # what is refused is not asked for again and again


def test_a_web_server_that_fails_twice_is_asked_again(answering, tmp_path):
    [rank] = rank_files(tmp_path, 1)
    content, left = rank.read_bytes(), [2]

    def answers(method, path):
        if method == "GET" and left[0]:
            left[0] -= 1
            return 503, b"", 0
        return 200, content, len(content)

    answering.answers = answers
    assert (
        opscope.load(f"{answering.url}/a.json").op_totals().equals(opscope.load(rank).op_totals())
    )
    left[0] = 99
    with pytest.raises(BadInput, match=r"503.*3 tries|cannot be reached.*3 tries"):
        opscope.load(f"{answering.url}/a.json")


def test_a_connection_that_ends_early_is_tried_again_and_told(answering, tmp_path):
    [rank] = rank_files(tmp_path, 1)
    content, left = rank.read_bytes(), [1]

    def answers(method, path):
        if method == "GET" and left[0]:
            left[0] -= 1
            return 200, content[:100], len(content)
        return 200, content, len(content)

    answering.answers = answers
    assert (
        opscope.load(f"{answering.url}/a.json").op_totals().equals(opscope.load(rank).op_totals())
    )
    left[0] = 99
    with pytest.raises(BadInput, match=r"3 tries"):
        opscope.load(f"{answering.url}/a.json")


def test_urls_inside_a_trace_are_not_opened(tmp_path):
    """Only what a user gave is opened: no text of a trace leads anywhere (see ``_nothing_outside``)."""
    import json

    [rank] = rank_files(tmp_path, 1)
    held = json.loads(rank.read_text())
    held["traceName"] = "https://example.invalid/x.json"
    for one in held["traceEvents"]:
        one["args"]["External File"] = "s3://bucket/x.json"
    rank.write_text(json.dumps(held))
    profile = opscope.load(rank)
    profile.summary()
    profile.op_totals()
