"""Measure ``opscope view FILE`` as people use it: its start, its first page, and its tables.

Usage: python benchmarks/viewer.py [--kernels N]… [--file PROFILE] [--times N]

Makes a saved profile of N kernels (100,000 and 1,000,000) with 400 names, steps and ops, unless one is given, and
asks the running server over HTTP, as the page does: the time until the address is printed, until the first page's
figures are there, and of the table of all kernels the sort by a number and by a name, the search and the filter
(median of N different ones, each asked for the first time; then asked again, as when one scrolls). Beside each
stands plain Polars in one process: the same rows sorted, or filtered, and their time added up, as a script would.
The limits are for 100,000 rows. On a busy machine times are too high, of both.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import polars as pl
import timeline

import opscope

#: Seconds for 100,000 rows; the first page's is for any profile that was saved.
LIMITS = {"sort by a number": 0.004, "sort by a name": 0.025, "search": 0.028}
FIRST_PAGE = 2.0
NAMES = 400


class Server:
    """A running ``opscope view``."""

    def __init__(self, file: Path) -> None:
        begun = time.perf_counter()
        command = [sys.executable, "-m", "opscope", "view", str(file), "--no-browser"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if "http://" not in line:
            sys.exit(line + self.process.stderr.read())
        self.started = time.perf_counter() - begun
        parts = urlsplit(line.split()[-1])
        self.link = http.client.HTTPConnection(parts.netloc)
        self.link.request("GET", f"/?{parts.query}")
        answer = self.link.getresponse()
        answer.read()
        self.cookie = str(answer.getheader("set-cookie")).partition(";")[0]

    def get(self, path: str) -> bytes:
        self.link.request("GET", path, headers={"cookie": self.cookie})
        answer = self.link.getresponse()
        body = answer.read()
        if answer.status != 200:
            sys.exit(f"{path}: {answer.status} {body.decode()}")
        return body

    def table(self, **given: str) -> float:
        """Seconds for 100 rows of the table of all kernels."""
        asked = "&".join(f"{name}={quote(value)}" for name, value in given.items())
        begun = time.perf_counter()
        self.get(f"/api/table?name=each_kernel&rows=100&{asked}")
        return time.perf_counter() - begun


def taken(do: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def plain(frame: pl.DataFrame, column: str) -> object:
    return frame.sort(column, descending=True, nulls_last=True).head(100).to_dicts()


def plain_filter(frame: pl.DataFrame, condition: pl.Expr) -> object:
    found = frame.filter(condition)
    return found["duration"].sum(), found.head(100).to_dicts()


def measure(file: Path, times: int) -> None:
    server = Server(file)
    try:
        figures = taken(lambda: [server.get(f"/api/{one}") for one in ("about", "overview")])
        print(f"{'address printed':26}{server.started:9.2f} s")
        ratio = figures / FIRST_PAGE
        print(f"{'first page, its figures':26}{figures:9.2f} s   {ratio:5.2f} of the limit")
        first = server.table()
        total = json.loads(server.get("/api/table?name=each_kernel&rows=0"))["total"]
        print(f"{'table made':26}{first:9.2f} s   {total:,} rows")
        frame = opscope.load(file).kernels().with_columns(pl.col(pl.Categorical).cast(pl.String))
        numbers = ("duration", "start", "end", "stream", "-duration", "-start", "-end")[:times]
        texts = [f"kernel_{n}<" for n in range(7, 7 + times)]
        names = frame["name"].unique().sort().head(times).to_list()
        any_text = [name for name, dtype in frame.schema.items() if dtype == pl.String]

        def holds(text: str) -> pl.Expr:
            return pl.any_horizontal(
                pl.col(name).str.to_lowercase().str.contains(text, literal=True).fill_null(False)
                for name in any_text
            )

        asked: dict[str, tuple[list[dict[str, str]], list[Callable[[], object]]]] = {
            "sort by a number": (
                [{"sort": one} for one in numbers],
                [lambda one=one: plain(frame, one.removeprefix("-")) for one in numbers],
            ),
            "sort by a name": (
                [{"sort": "name"}, {"sort": "-name"}],
                [lambda: plain(frame, "name")] * 2,
            ),
            "search": (
                [{"q": one} for one in texts],
                [lambda one=one: plain_filter(frame, holds(one)) for one in texts],
            ),
            "filter": (
                [{"where": json.dumps({"name": one})} for one in names],
                [lambda one=one: plain_filter(frame, pl.col("name") == one) for one in names],
            ),
        }
        print(f"{'':26}{'first':>9}{'again':>9}{'Polars':>9}   {'ratio':>5}")
        for what, (questions, peers) in asked.items():
            cold = statistics.median([server.table(**one) for one in questions])
            again = statistics.median([server.table(**one) for one in questions])
            peer = statistics.median([taken(one) for one in peers])
            said = f"{what:26}{cold * 1e3:6.1f} ms{again * 1e3:6.1f} ms{peer * 1e3:6.1f} ms"
            said += f"   {cold / peer:5.2f} of Polars"
            if what in LIMITS and total == 100_000:
                said += f", {cold / LIMITS[what]:.2f} of the limit"
            print(said)
    finally:
        server.process.terminate()
        server.process.wait()


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, action="append")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--times", type=int, default=7)
    asked = parser.parse_args()
    if asked.file:
        measure(asked.file, asked.times)
        return
    timeline.NAMES = tuple(
        f"void at::native::kernel_{n}<float, at::detail::Array<char*, {n % 4 + 1}>>(int, float)"
        for n in range(NAMES)
    )
    with tempfile.TemporaryDirectory() as folder:
        for kernels in asked.kernels or (100_000, 1_000_000):
            file = Path(folder) / f"{kernels}.opscope"
            timeline.make(file, kernels)
            print(f"\n{kernels:,} kernels")
            measure(file, asked.times)


if __name__ == "__main__":
    main()
