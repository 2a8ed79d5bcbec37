"""A running ``opscope view``, and a browser's page that fails on anything a page must not do."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from opscope.profile import Profile
from opscope.viewer.serve import address, listen, server_of
from opscope.viewer.viewed import Viewed

#: All pages, in the order of the navigation.
PAGES = (
    "overview", "operators", "kernels", "layers", "steps", "timeline", "roofline", "memory",
    "distributed", "serving", "source", "compare", "reports", "notes",
)  # fmt: skip
#: Seconds until something that does not come is given up: a bound on a hang, not on speed.
PATIENCE = 240
ADDRESS = re.compile(r"http://[^\s'\"]+")

#: Timers of a page that are waited for, in ms: longer ones tidy up.
SOON = 5_000
_WATCH = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`content policy: ${event.violatedDirective} refused ${event.blockedURI || event.sample}`));
addEventListener("unhandledrejection", (event) => console.error(`unhandled: ${event.reason}`));
// What the page still has to do: its timers, frames and requests, until what follows from them has begun
(() => {
  const pending = new Set();
  const [later, never, frame, noFrame] = [setTimeout, clearTimeout, requestAnimationFrame, cancelAnimationFrame].map((one) => one.bind(window));
  const over = (key) => later(() => pending.delete(key), 0);
  window.setTimeout = (call, wait = 0, ...more) => {
    const key = later((...given) => {
      try { call(...given); } finally { over(key); }
    }, wait, ...more);
    if (!(wait > SOON)) pending.add(key);
    return key;
  };
  window.clearTimeout = (key) => { pending.delete(key); never(key); };
  window.requestAnimationFrame = (call) => {
    const key = frame((at) => {
      try { call(at); } finally { over(`frame ${key}`); }
    });
    pending.add(`frame ${key}`);
    return key;
  };
  window.cancelAnimationFrame = (key) => { pending.delete(`frame ${key}`); noFrame(key); };
  const whole = (promise) => {
    const key = {};
    pending.add(key);
    return promise.finally(() => over(key));
  };
  const ask = window.fetch.bind(window);
  window.fetch = (...given) => whole(ask(...given));
  for (const name of ["json", "text", "arrayBuffer", "blob"]) {
    const read = Response.prototype[name];
    Response.prototype[name] = function () { return whole(read.call(this)); };
  }
  window.atWork = async () => {
    await new Promise(frame);
    await new Promise(frame);
    return pending.size + document.querySelectorAll("[aria-busy=true], .loading").length;
  };
})();
""".replace("SOON", str(SOON))


def chromium() -> str | None:
    """The browser's program: what OPSCOPE_CHROMIUM names, or Debian's."""
    given = os.environ.get("OPSCOPE_CHROMIUM")
    return given or shutil.which("chromium") or shutil.which("chromium-browser")


class Viewer:
    """A running viewer. ``url``: what it printed, with the token; ``origin``: scheme, host and port."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, said: Path) -> None:
        self.process, self.url, self._said = process, url, said
        parts = urlsplit(url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.host, self.port = parts.hostname or "", parts.port or 0

    @property
    def said(self) -> str:
        """What it printed so far."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> int:
        """End it as Ctrl-C does; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)


@contextmanager
def viewing(folder: Path, *words: object) -> Iterator[Viewer]:
    """Run ``opscope view`` on files, with options; it must end in silence when it is interrupted."""
    said = folder / f"view-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "opscope", "view", *map(str, words), "--no-browser"]
    with said.open("wb") as log:
        # interrupted, a shell's background jobs would not hear it
        process = subprocess.Popen(
            command,
            cwd=folder,  # not where a checkout lies: what is installed runs
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )
    try:
        viewer = Viewer(process, _address(process, said), said)
        yield viewer
        if process.poll() is None:
            assert viewer.stop() == 0, viewer.said
        assert "Traceback" not in viewer.said, viewer.said
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


class Served:
    """A viewer in this process. ``url``: its address, with the token."""

    def __init__(self, url: str) -> None:
        self.url = url


@contextmanager
def served(profile: Profile, name: str) -> Iterator[Served]:
    """Serve a profile that is loaded already, as ``opscope view`` does; of many traces it is far faster."""
    token = secrets.token_urlsafe(32)
    listening = listen("127.0.0.1", 0)
    server = server_of(Viewed(profile, (name,)), token)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield Served(address(listening, token))
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()
    assert not thread.is_alive(), "the server did not end"


def _address(process: subprocess.Popen[bytes], said: Path) -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        text = said.read_text(encoding="utf-8", errors="replace")
        if found := ADDRESS.search(text):
            return found.group()
        assert process.poll() is None, f"opscope view ended with {process.returncode}:\n{text}"
        time.sleep(0.05)
    raise AssertionError(f"opscope view printed no address:\n{said.read_text(errors='replace')}")


class Looking:
    """A page of a browser, and its faults: errors, refused policies, requests that leave the viewer."""

    def __init__(self, context: Any, home: str, *, allowed: tuple[str, ...] = ()) -> None:
        """``home``: the address of a viewer, or of a file; ``allowed``: texts of errors that are meant."""
        self.home = home
        self.base = home.partition("#")[0]
        parts = urlsplit(home)
        self._inside = self.base if parts.scheme == "file" else f"{parts.scheme}://{parts.netloc}/"
        self._allowed = allowed
        self.faults: list[str] = []
        self.asked: list[str] = []
        self._open = 0
        self.page = context.new_page()
        self.page.add_init_script(_WATCH)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self._fault(f"page error: {error}"))
        self.page.on("crash", lambda _: self._fault("the page crashed"))
        self.page.on("popup", lambda popup: self._fault(f"a window opened: {popup.url}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)
        self.page.on("requestfinished", self._answered)
        self.page.on("requestfailed", self._answered)
        self.page.set_default_timeout(PATIENCE * 1000)

    def _fault(self, text: str) -> None:
        if not any(words in text for words in self._allowed):
            self.faults.append(text)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "assert", "warning"):
            self._fault(f"console: {message.text} ({message.location.get('url', '')})")

    def _dialog(self, dialog: Any) -> None:
        self._fault(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        self.asked.append(request.url)
        if not request.url.startswith((self._inside, "blob:", "data:")):
            self._fault(f"a request left the viewer: {request.url}")
        self._open += 1

    def _answered(self, request: Any) -> None:
        self._open -= 1

    def start(self) -> Looking:
        """Open the home page as a person does, with the token, and wait until it is drawn."""
        self.page.goto(self.home)
        # the token leaves the address
        self.base = self.page.url.partition("#")[0]
        return self.settle()

    def go(self, place: str) -> Looking:
        """Open ``PAGE?parameters`` and wait until it is drawn."""
        self.page.goto(f"{self.base}#/{place}")
        return self.settle()

    def settle(self) -> Looking:
        """Wait until the page has drawn, asks nothing, says of no part that it is busy, and no timer runs.

        It waits for states, never for a time: a page on a busy machine comes to rest later.
        """
        until, quiet = time.monotonic() + PATIENCE, 0
        while quiet < 2:
            busy = self.page.evaluate("atWork()")
            quiet = 0 if busy or self._open else quiet + 1
            assert time.monotonic() < until, f"{self.page.url} stays busy: {busy} parts"
        return self

    @property
    def place(self) -> str:
        """The address after ``#/``."""
        return str(self.page.url).partition("#/")[2]

    @property
    def text(self) -> str:
        """All text that is seen."""
        return str(self.page.locator("body").inner_text())

    def fine(self, what: str = "") -> None:
        """Fail if there were faults, if a part says that it failed, or if nothing is drawn."""
        where = what or self.page.url
        failed = self.page.locator(".failed:visible").all_inner_texts()
        assert not self.faults, f"{where}:\n" + "\n".join(self.faults[:20])
        assert not failed, f"{where}: {failed[:5]}"
        assert len(str(self.page.locator("main").inner_text()).split()) > 1, f"{where} is blank"

    def narrow(self) -> None:
        """Fail if the page scrolls sideways; what is wider must scroll by itself."""
        wide, has = self.page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= has, f"{self.page.url} is {wide} px wide in {has}: {self._widest(has)}"

    def _widest(self, has: int) -> list[str]:
        return list(
            self.page.evaluate(
                """(has) => [...document.querySelectorAll("body *")]
                  .filter((one) => one.getBoundingClientRect().right > has + 1)
                  .slice(0, 8).map((one) => `${one.tagName}.${one.className}`)""",
                has,
            )
        )
