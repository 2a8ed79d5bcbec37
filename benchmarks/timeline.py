"""Measure the viewer's timeline as people use it: ``opscope view`` of a saved profile, in Chromium.

Usage: python benchmarks/timeline.py [--kernels N] [--file PROFILE] [--windows N] [--chromium PATH]

Makes a profile of N kernels (10,000,000) on 8 streams of a device, with steps and ops on a thread, unless one is
given. Prints the time from the page's first request until its first picture (the server runs) and from the
command's start; per random window the time from zoom to redraw (median, p95) and the bytes of its picture; the
CPU time and memory of the server; and the ratios to the limits. On a busy machine the times are too high.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

FIRST, REDRAW, BYTES, INDEX = 1.5, 0.050, 150_000, 48
STREAMS, STEPS = 8, 1_000
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


def looked_at(address: str, chromium: str, windows: int) -> dict[str, Any]:
    """Open the page and zoom to random windows; seconds and bytes."""
    from playwright.sync_api import sync_playwright

    sizes: list[int] = []
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        begun = time.perf_counter()
        first: list[float] = []

        def answered(response: Any) -> None:
            if "/api/timeline?" in response.url:
                sizes.append(int(response.headers.get("content-length", 0)))

        page.on("response", answered)
        page.goto(address.replace("/?", "/?") + "#/timeline")
        page.locator(".tl-board[data-drawn]").wait_for(timeout=120_000)
        first.append(time.perf_counter() - begun)
        # all lanes are there once the words name no reading
        page.wait_for_timeout(3_000)
        whole = page.locator(".tl-board").get_attribute("data-window")
        low, high = (int(one) for one in str(whole).split(" "))
        taken: list[float] = []
        drawn: list[int] = []
        rng = random.Random(1)
        for _ in range(windows):
            span = max(1_000, int((high - low) * 10 ** rng.uniform(-5, 0)))
            start = low + rng.randrange(max(1, high - low - span))
            before = len(sizes)
            # timed in the page: from the new address until the picture of that window was drawn
            taken.append(
                page.evaluate(
                    """([hash, wanted]) => new Promise((done) => {
                      const board = document.querySelector(".tl-board");
                      const begun = performance.now();
                      const look = () => board.dataset.drawn === wanted
                        ? done((performance.now() - begun) / 1000) : requestAnimationFrame(look);
                      location.hash = hash;
                      look();
                    })""",
                    [f"#/timeline?start={start}&end={start + span}", f"{start} {start + span}"],
                )
            )
            drawn.append(sum(sizes[before:]))
            page.wait_for_timeout(350)
        browser.close()
    return {"first": first[0], "redraw": taken, "bytes": drawn}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=10_000_000)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        profile = asked.file
        if profile is None:
            profile = Path(folder) / "run.opscope"
            code = "import sys; from pathlib import Path; import timeline; timeline.make(Path(sys.argv[1]), int(sys.argv[2]))"
            here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
            command = [sys.executable, "-c", code, str(profile), str(asked.kernels)]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": here})
        begun = time.perf_counter()
        server = subprocess.Popen(
            [sys.executable, "-m", "opscope", "view", str(profile), "--no-browser"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            line = next(one for one in server.stdout if "http://" in one)
            ready = time.perf_counter() - begun
            before = used(server.pid)
            found = looked_at(
                "http://" + line.split("http://")[1].strip(), asked.chromium, asked.windows
            )
            after = used(server.pid)
        finally:
            server.terminate()
            server.wait()
    redraw, sizes = sorted(found["redraw"]), found["bytes"]
    median, most = statistics.median(redraw), redraw[int(len(redraw) * 0.95)]
    print(f"server ready after        {ready:8.2f} s, {before[0]:.1f} CPU s, {before[1]:,.0f} MB")
    print(
        f"first picture             {found['first']:8.2f} s {found['first'] / FIRST:6.2f} of the limit"
    )
    print(f"zoom to redraw, median    {median * 1e3:8.1f} ms{median / REDRAW:6.2f} of the limit")
    print(f"zoom to redraw, p95       {most * 1e3:8.1f} ms{most / REDRAW:6.2f} of the limit")
    print(f"bytes a window, most      {max(sizes):8,} B {max(sizes) / BYTES:6.2f} of the limit")
    print(f"bytes a window, median    {int(statistics.median(sizes)):8,} B")
    print(f"server in all             {after[0]:8.1f} CPU s, {after[1]:,.0f} MB at most")
    print(json.dumps({"windows": len(redraw)}))


if __name__ == "__main__":
    main()
