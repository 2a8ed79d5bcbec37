"""Measure ``opscope report FILE --html out.html`` as people use it: its size, its time, its first picture from disk.

Usage: python benchmarks/html_file.py [--ops N] [--file TRACE.json.gz]… [--chromium PATH]

Makes a saved profile of a training of two ranks with N ops (100,000) and as many kernels, and one of each given
trace of PyTorch's profiler, repeated until it has N ops, each copy 0.7 % slower than the one before so that no
two are the same. Prints the file's size against 1.5 MB, what it lacks, the command's time, CPU time and memory, and
for Chromium opening the file from disk the time until the overview's figures, the timeline and the table of all ops
are drawn. On a busy machine times are too high.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scale_kineto import scale

import opscope
from opscope.profile import Profile

LIMIT = 1_500_000


def make(path: Path, ops: int) -> str:
    """Save a made training of at least so many ops; return what it is."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.viewer.made_training import made_training

    per_step = len(Profile(made_training(steps=2)).ops()) / 2
    profile = Profile(made_training(steps=int(-(-ops // per_step))))
    profile.save(path)
    return said(profile)


def repeat(source: Path, path: Path, ops: int) -> str:
    """Save a trace repeated until it has so many ops; return what it is."""
    longer = path.with_suffix(".json")
    scale(source, longer, -(-ops // len(opscope.load(source).ops())), stretch=True)
    profile = opscope.load(longer)
    profile.save(path)
    longer.unlink()
    return said(profile)


def said(profile: Profile) -> str:
    return f"{len(profile.ops()):,} ops, {len(profile.kernels()):,} kernels"


def written(profile: Path, page: Path) -> None:
    """Run the command and print what it took."""
    command = [sys.executable, "-m", "opscope", "report", str(profile), "--html", str(page)]
    begun = time.perf_counter()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert running.stdout is not None
    output = running.stdout.read()
    _, status, used = os.wait4(running.pid, 0)
    wall = time.perf_counter() - begun
    if status:
        sys.exit(output)
    size = page.stat().st_size
    print(f"  size             {size:10,} B {size / LIMIT:6.2f} of the limit")
    print(
        f"  left out         {next((one for one in output.splitlines() if 'lacks' in one), 'nothing')}"
    )
    print(
        f"  command          {wall:10.2f} s, {used.ru_utime + used.ru_stime:.1f} CPU s, {used.ru_maxrss / 1e3:,.0f} MB"
    )


def opened(page: Path, chromium: str) -> None:
    """Open the file and print when its pages are drawn; the table is asked after the timeline."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1400, "height": 900})

        def drawn(what: str, go: Callable[[], object], selector: str) -> None:
            begun = time.perf_counter()
            go()
            tab.locator(selector).first.wait_for(timeout=120_000)
            print(f"  {what:<17}{time.perf_counter() - begun:10.2f} s")

        url = page.as_uri()
        drawn("first picture", lambda: tab.goto(f"{url}#/overview"), "a.card")
        drawn("timeline", lambda: tab.goto(f"{url}#/timeline"), ".tl-board[data-drawn]")
        drawn("again, timeline", lambda: (tab.goto("about:blank"), tab.goto(f"{url}#/timeline")), ".tl-board[data-drawn]")  # fmt: skip
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=100_000)
    parser.add_argument("--file", type=Path, action="append", default=[])
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for number, source in enumerate([None, *asked.file]):
            profile = Path(folder) / f"{number}.opscope"
            what = (
                make(profile, asked.ops) if source is None else repeat(source, profile, asked.ops)
            )
            print(f"{source.name if source else 'a made training'}: {what}")
            page = profile.with_suffix(".html")
            written(profile, page)
            opened(page, asked.chromium)


if __name__ == "__main__":
    main()
