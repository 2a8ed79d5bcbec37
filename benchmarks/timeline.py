"""Measure the viewer's timeline as people use it: ``opscope view`` of a saved profile, in Chromium.

Usage: python benchmarks/timeline.py [--kernels N] [--training | --linked | --file PROFILE] [--kept] [--windows N]
                                     [--times N] [--chromium PATH] [--lanes]

Makes a profile of N kernels (10,000,000) on 8 streams of a device, with steps and ops on a thread; with --training one
whose kernels have a call and two ranges each (``make_training.py``), and what ``opscope run`` leaves in a profile; with
--linked the same as ``opscope.load(...).save(...)`` leaves it: nothing is kept but what links kernels to ops; or takes
the one given. A copy without what opscope keeps in it is looked at; with --kept or --training a copy with all but
the pictures that the viewer keeps. N times (3) it starts the server and opens the
page twice: cold, as somebody who opens a profile that was saved and never looked at, and warm, as somebody who looks
again in a window of the same size, after another start of the server. Each time the page is new to the browser, which
runs already; the files are in the system's memory, cold or warm.

Prints medians, with the least and the most: from the page's first request to its first picture (that of all
kernels), and from the command to it, the browser's start left out; warm, from a zoom that is asked for at once to its
picture; cold, to the picture with the colours of ops, and to that of everything, threads and curves included; from a new window to its picture once all is there;
bytes; the server's CPU time and memory; and the ratios to the limits. On a busy machine the times are too high. With
--lanes it makes the lanes of kernels and the pictures in its own process instead, without a browser, and prints their
CPU time.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

#: The limits: seconds, ms, kB, kB, MB.
FIRST, REDRAW, BYTES, PAGE, MEMORY = 1.5, 50, 150, 400, 2_000
STREAMS, STEPS = 8, 1_000
#: What opscope keeps in a profile's folder.
KEPT, PICTURES = "kept.*", "kept.first_pictures.*"
NAMES = (
    *(
        "ampere_fp16_s16816gemm_fp16_128x128",
        "flash_fwd_kernel",
        "layer_norm_fwd",
        "elementwise_kernel",
    ),
    *(
        "reduce_kernel",
        "ncclDevKernel_AllReduce_Sum",
        "multi_tensor_apply_adam",
        "CatArrayBatchedCopy",
    ),
)
BEGIN = 1_700_000_000_000_000_000


def make(path: Path, kernels: int) -> None:
    """Save a profile of ``kernels`` kernels."""
    from opscope.core.tables.trace import Trace
    from opscope.profile import Profile

    rng = np.random.default_rng(1)
    per, frames = kernels // STREAMS, []
    for stream in range(STREAMS):
        lasted = rng.gamma(0.7, 9_000, per).astype(np.int64) + 900
        gaps = rng.integers(0, 4_000, per)
        end = BEGIN + np.cumsum(lasted + gaps)
        names = pl.Series("name", NAMES, pl.Categorical)
        frames.append(
            pl.DataFrame(
                {
                    "start": end - lasted,
                    "end": end,
                    "name": names.gather(rng.integers(0, len(NAMES), per).astype(np.uint32)),
                }
            ).with_columns(
                pl.lit(0, pl.Int32).alias("process"),
                pl.lit(0, pl.Int32).alias("device"),
                pl.lit(7 + stream, pl.Int64).alias("stream"),
            )
        )
    table = pl.concat(frames).sort("start")
    last = int(table["end"].max())  # type: ignore[arg-type]
    edges = np.linspace(BEGIN, last, STEPS + 1).astype(np.int64)
    ops = np.linspace(BEGIN, last, 50 * STEPS + 1).astype(np.int64)
    ranges = pl.DataFrame(
        {
            "start": np.concatenate((edges[:-1], ops[:-1])),
            "end": np.concatenate((edges[1:], ops[:-1] + np.diff(ops) // 2)),
            "text": [f"step {n}" for n in range(STEPS)] + ["aten::mm"] * (50 * STEPS),
            "domain": ["opscope.user"] * STEPS + ["opscope.torch"] * (50 * STEPS),
            "category": ["step"] * STEPS + ["forward"] * (50 * STEPS),
        }
    ).with_columns(
        pl.lit(0, pl.Int32).alias("process"),
        pl.lit(1, pl.Int64).alias("thread"),
        pl.int_range(pl.len()).alias("id"),
    )
    devices = pl.DataFrame({"process": [0], "device": [0], "name": ["NVIDIA H100 80GB HBM3"]})
    Profile(Trace.of({"kernels": table, "ranges": ranges, "devices": devices})).save(path)


def used(pid: int) -> tuple[float, float]:
    """CPU seconds and the most memory (MB) of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    peak = next(
        one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in one
    )
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(
        peak.split()[1]
    ) / 1e3


#: Sets the window, and ends once the page has drawn the picture of it: seconds.
ZOOM = """([hash, wanted]) => new Promise((done) => {
  const board = document.querySelector(".tl-board");
  const begun = performance.now();
  new MutationObserver((_, seen) => {
    if (board.dataset.drawn !== wanted) return;
    seen.disconnect();
    done((performance.now() - begun) / 1000);
  }).observe(board, { attributes: true });
  location.hash = hash;
})"""

#: Notes when the first picture was drawn, and the first with the colours of ops, ms of the system's clock: this
#: process may learn it later.
FIRST_DRAWN = """new MutationObserver((_, seen) => {
  const board = document.querySelector(".tl-board[data-drawn]");
  if (!board) return;
  const now = performance.timeOrigin + performance.now();
  window.firstDrawn ??= now;
  if (board.dataset.colours !== "ops") return;
  window.byOps = now;
  seen.disconnect();
}).observe(document, { subtree: true, childList: true, attributes: true })"""


class Look:
    """The page in a browser: when its first picture was there, and what each window took."""

    def __init__(self, browser: Any, address: str, pid: int, at_once: bool = False) -> None:
        self.page, self.sent = browser.new_page(viewport={"width": 1400, "height": 900}), 0
        self.pictures: list[int] = []
        self.asking, self.last = 0, time.perf_counter()
        self.page.on("request", lambda one: self._count(one.url, 1))
        self.page.on("requestfinished", lambda one: self._count(one.url, -1))
        self.page.on("requestfailed", lambda one: self._count(one.url, -1))
        self.page.on("response", self._answered)
        self.page.add_init_script(FIRST_DRAWN)
        begun, epoch = time.perf_counter(), time.time()
        self.page.goto(address + "#/timeline")
        self.page.locator(".tl-board[data-drawn]").wait_for(timeout=120_000)
        self.first = self.page.evaluate("window.firstDrawn") / 1e3 - epoch
        self.before_data, self.used = self.sent, used(pid)
        self.at_once = self._zoom_to(0.4, 0.1) if at_once else None
        # then the threads' lanes and the curves
        while self.asking or time.perf_counter() - self.last < 0.7:
            self.page.wait_for_timeout(50)
        self.all, self.used_all = self.last - begun, used(pid)
        self.by_ops = self.page.evaluate("window.byOps") / 1e3 - epoch

    def _count(self, url: str, more: int) -> None:
        if "/api/working" not in url:
            self.asking, self.last = self.asking + more, time.perf_counter()

    def _answered(self, response: Any) -> None:
        size = int(response.headers.get("content-length", 0))
        if "/api/timeline?" in response.url:
            self.pictures.append(size)
        elif "/api/" not in response.url:
            self.sent += size

    def _zoom_to(self, part: float, wide: float) -> float:
        """Zoom to a part of the whole, so wide; return the seconds to its picture."""
        whole = self.page.locator(".tl-board").get_attribute("data-window")
        low, high = (int(one) for one in str(whole).split(" "))
        start, end = (low + int((high - low) * one) for one in (part, part + wide))
        address = f"#/timeline?start={start}&end={end}"
        return float(self.page.evaluate(ZOOM, [address, f"{start} {end}"]))

    def zoom(self, windows: int) -> tuple[list[float], list[int]]:
        """Zoom to random windows: seconds and bytes of each."""
        whole = self.page.locator(".tl-board").get_attribute("data-window")
        low, high = (int(one) for one in str(whole).split(" "))
        taken: list[float] = []
        sizes: list[int] = []
        rng = random.Random(1)
        for _ in range(windows):
            span = max(1_000, int((high - low) * 10 ** rng.uniform(-5, 0)))
            start = low + rng.randrange(max(1, high - low - span))
            before = len(self.pictures)
            address = f"#/timeline?start={start}&end={start + span}"
            taken.append(self.page.evaluate(ZOOM, [address, f"{start} {start + span}"]))
            sizes.append(sum(self.pictures[before:]))
            self.page.wait_for_timeout(350)
        return taken, sizes


class Server:
    """A running ``opscope view``."""

    def __init__(self, profile: Path) -> None:
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "opscope", "view", str(profile), "--no-browser"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = next(one for one in self.process.stdout if "http://" in one)
        self.ready = time.perf_counter() - begun
        self.address = "http://" + line.split("http://")[1].strip()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


def lanes_alone(profile: Path, windows: int) -> None:
    """Make the lanes of the kernels and pictures of them in this process, and print their CPU time."""
    import opscope
    from opscope.viewer.timeline.index import timeline_of
    from opscope.viewer.timeline.window import picture

    made = timeline_of(opscope.load(profile))
    begun = time.process_time()
    lanes = made.part("device")
    seconds, (_, most) = time.process_time() - begun, used(os.getpid())
    low = min(lane.span[0] for _, lane in lanes)
    high = max(lane.span[1] for _, lane in lanes)
    rng = random.Random(1)
    taken = []
    for _ in range(windows):
        span = max(1_000, int((high - low) * 10 ** rng.uniform(-5, 0)))
        start = low + rng.randrange(max(1, high - low - span))
        begun = time.process_time()
        picture(lanes, start, start + span, 1_040)
        taken.append((time.process_time() - begun) * 1e3)
    print(f"{'lanes of the kernels':30}{seconds:10.2f} CPU s, {most:,.0f} MB at most")
    row("picture of a window", taken, "CPU ms")


def row(what: str, values: list[float], unit: str, limit: float | None = None) -> None:
    """Print the median of values, their least and most, and the median's ratio to the limit."""
    middle = statistics.median(values)
    spread = f"{min(values):,.4g} to {max(values):,.4g}"
    ratio = "" if limit is None else f"{middle / limit:6.2f} of {limit:,.4g} {unit}"
    print(f"{what:30}{middle:10,.4g} {unit:3} ({spread:>17}) {ratio}")


def main() -> None:
    from playwright.sync_api import sync_playwright

    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=10_000_000)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--linked", action="store_true")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--lanes", action="store_true")
    asked = parser.parse_args()
    left = PICTURES if asked.kept or asked.training else KEPT
    cold: list[Look] = []
    warm: list[Look] = []
    ready: list[float] = []
    taken: list[float] = []
    sizes: list[int] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        profile = Path(folder) / "run.opscope"
        if asked.file is not None:
            shutil.copytree(asked.file, profile, ignore=shutil.ignore_patterns(left))
        else:
            module = "make_training" if asked.training or asked.linked else "timeline"
            code = f"import sys, opscope; from pathlib import Path; import {module}; "
            code += f"{module}.make(Path(sys.argv[1]), int(sys.argv[2]))"
            if asked.training:
                code += "; opscope.load(sys.argv[1])._keep_more()"
            if asked.linked:
                code += (
                    "; made = opscope.load(sys.argv[1]); made.attribution; made.save(sys.argv[3])"
                )
            here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
            linked = Path(folder) / "linked.opscope"
            command = [sys.executable, "-c", code, str(profile), str(asked.kernels), str(linked)]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": here})
            profile = linked if asked.linked else profile
        if asked.lanes:
            lanes_alone(profile, asked.windows)
            return
        browser = running.chromium.launch(executable_path=asked.chromium, args=["--no-sandbox"])
        for _ in range(asked.times):
            for one in profile.glob(left):
                one.unlink()
            for looks in (cold, warm):
                with Server(profile) as server:
                    at_once = looks is warm
                    look = Look(browser, server.address, server.process.pid, at_once)
                    if at_once:
                        seconds, bytes_of = look.zoom(-(-asked.windows // asked.times))
                        taken += seconds
                        sizes += bytes_of
                    ready.append(server.ready)
                    looks.append(look)
                    look.page.close()
        browser.close()
    row("page before data", [one.before_data / 1e3 for one in cold], "kB", PAGE)
    row("server ready", ready, "s")
    for what, looks, started in (("cold", cold, ready[::2]), ("warm", warm, ready[1::2])):
        row(f"first picture, {what}", [one.first for one in looks], "s", FIRST)
        whole = [one.first + before for one, before in zip(looks, started, strict=True)]
        row("  from the command on", whole, "s")
        row("  server until then", [one.used[0] for one in looks], "CPU s")
        row("  its memory, peak", [one.used[1] for one in looks], "MB")
    row("warm, a zoom at once", [one.at_once or 0 for one in warm], "s")
    row("cold, the colours of ops", [one.by_ops for one in cold], "s")
    row("cold, threads and curves too", [one.all for one in cold], "s")
    row("  server until then", [one.used_all[0] for one in cold], "CPU s")
    row("  its memory, peak", [one.used_all[1] for one in cold], "MB", MEMORY)
    row(f"zoom to redraw, {len(taken)} windows", [one * 1e3 for one in taken], "ms", REDRAW)
    print(f"{'  95 of 100 within':30}{sorted(taken)[int(len(taken) * 0.95)] * 1e3:10,.4g} ms")
    row("picture of a window", [one / 1e3 for one in sizes], "kB")
    row("  the largest", [max(sizes) / 1e3], "kB", BYTES)


if __name__ == "__main__":
    main()
