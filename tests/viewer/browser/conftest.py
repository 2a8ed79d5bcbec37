"""Fixtures: a real Chromium, viewers that run, and pages that are watched for faults.

Without Chromium, Playwright, node or npm the tests skip and say why; where OPSCOPE_VIEWER=1, as in CI, that is a
failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.viewer.browser import looking, profiles

ROOT = Path(__file__).resolve().parents[3]


#: What npm says where there is no network.
UNREACHABLE = ("ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN", "ECONNRESET")


def lacking(what: str) -> None:
    """Skip, or fail where everything must be there."""
    if os.environ.get("OPSCOPE_VIEWER") == "1":
        pytest.fail(f"OPSCOPE_VIEWER=1 needs {what}", pytrace=False)
    pytest.skip(f"needs {what}")


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, driven by Playwright."""
    program = looking.chromium()
    if program is None:
        lacking("Chromium (apt-get install chromium, or OPSCOPE_CHROMIUM=its program)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        lacking("Playwright (pip install playwright)")
    if not (ROOT / "opscope/viewer/static/viewer.js").exists() and not installed_bundle():
        pytest.fail("the viewer's bundle is not built: cd web && npm ci && node build.mjs")
    with sync_playwright() as driver:
        # root may not use Chromium's own sandbox; /dev/shm is small in containers
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        opened = driver.chromium.launch(executable_path=program, args=options)
        yield opened
        opened.close()


def installed_bundle() -> bool:
    import opscope.viewer

    return (Path(opscope.viewer.__file__).parent / "static/viewer.js").exists()


@pytest.fixture
def look(browser):
    """A function that opens a page of a viewer, or a file, in a browser of its own: ``look(viewer, dark=True)``."""
    from playwright.sync_api import Error

    with ExitStack() as opened:

        def open_page(viewer, place=None, *, width=1280, dark=False, allowed=(), **more):
            context = browser.new_context(
                viewport={"width": width, "height": 800},
                color_scheme="dark" if dark else "light",
                **more,
            )
            opened.callback(closed, context)
            home = viewer if isinstance(viewer, str) else viewer.url
            seen = looking.Looking(context, home, allowed=allowed).start()
            return seen if place is None else seen.go(place)

        def closed(context):
            with suppress(Error):  # a test closed it
                context.close()

        yield open_page


@pytest.fixture(scope="session")
def viewing(tmp_path_factory):
    """A function that starts a viewer, stopped at the end: ``viewing(file, "--compare", other)``."""
    folder, running = tmp_path_factory.mktemp("viewers"), {}
    with ExitStack() as stack:

        def start(*words):
            key = tuple(map(str, words))
            if key not in running:
                running[key] = stack.enter_context(looking.viewing(folder, *words))
            return running[key]

        yield start


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Small made profiles and traces, each written when it is first asked for: ``made("hostile")``."""
    return profiles.Made(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="session")
def printed():
    """A function that returns the rows of reports as ``opscope report FILE --json`` prints them."""
    known = {}

    def run(path, *names):
        held = known.setdefault(path, {})
        if absent := [name for name in names if name not in held]:
            words = ["report", str(path), "--json", "--reports", ",".join(absent)]
            done = subprocess.run(
                [sys.executable, "-m", "opscope", *words],
                capture_output=True,
                text=True,
                check=True,
            )
            held |= json.loads(done.stdout)
        rows = [[held[name]] if isinstance(held[name], dict) else held[name] for name in names]
        return rows[0] if len(rows) == 1 else rows

    return run


@pytest.fixture(scope="session")
def web(tmp_path_factory):
    """A copy of web/ with its packages, as the lock names them."""
    if not (shutil.which("npm") and shutil.which("node")):
        lacking("node and npm")
    folder = tmp_path_factory.mktemp("web") / "web"
    shutil.copytree(ROOT / "web", folder, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode and any(code in said for code in UNREACHABLE):
        lacking("the packages of web/package-lock.json, and npm cannot reach its registry")
    assert done.returncode == 0, said
    return folder
