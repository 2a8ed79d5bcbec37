"""Show that a long recording costs per range at its end what it cost at its start, in flat memory.

    python benchmarks/long_recording.py ranges [--millions 10] [--native]
    python benchmarks/long_recording.py ring [--steps 1000000] [--last 2s] [--ops 50]

``ranges``: so many millions of ranges go into one recording on disk; printed is ns per range of each million,
the memory of the process (RSS), and the recording's size. ``--native``: by the PyTorch observer's builtins,
and with real ops of PyTorch. ``ring``: a training's steps of ``--ops`` ranges each, with a text of its own per
step, under ``last``; printed are a step's cost, the memory and the ring's size in ten parts of the run. Each
part is judged by the median CPU time of its hundredths, so that other programs change little.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import opscope
from opscope.backends.recorder import RecorderCapture
from opscope.backends.ring import RingCapture
from opscope.core.capture import session
from opscope.core.capture.ring_bounds import Bounds, parse_last


def rss() -> float:
    """Return the memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def size(folder: Path) -> float:
    """Return the size of a folder's files in MiB; files that go meanwhile do not count."""
    total = 0
    for one in folder.rglob("*"):
        try:
            total += one.stat().st_size if one.is_file() else 0
        except FileNotFoundError:
            continue
    return total / 2**20


def parts(what: Callable[[int], None], many: int) -> Iterator[float]:
    """Yield the ns of CPU time of one call, for each of ten parts of ``many`` calls."""
    piece = max(many // 1000, 1)
    for _ in range(10):
        times = []
        for _ in range(100):
            begin = time.thread_time_ns()
            what(piece)
            times.append((time.thread_time_ns() - begin) / piece)
        yield statistics.median(times)


def ranges(millions: float, native: bool) -> None:
    """Print the cost of each tenth of a long recording."""
    emitter = session.emitter("torch" if native else "user")
    tensors = None
    if native:
        import torch

        torch.set_num_threads(1)
        opscope.init("torch")
        tensors = torch.ones(8), torch.ones(8)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "recording")
        session.start(RecorderCapture(root))
        prepared = [emitter.prepare(f"text {number}") for number in range(64)]

        def push(many: int) -> None:
            for number in range(many):
                emitter.push(prepared[number & 63])
                emitter.pop()

        def op(many: int) -> None:
            one, other = tensors  # type: ignore[misc]
            for _ in range(many):
                one + other

        kinds = {"ranges pushed from Python": push, **({"ops of PyTorch": op} if native else {})}
        for name, what in kinds.items():
            print(f"{name}, {millions:g} M of them, in ten parts")
            what(10_000)
            rows = []
            for number, ns in enumerate(parts(what, int(millions * 1e6)), start=1):
                rows.append((ns, rss(), size(root)))
                print(
                    f"  {number:2}: {ns:7.1f} ns each   RSS {rows[-1][1]:7.1f} MiB   disk {rows[-1][2]:8.1f} MiB"
                )
            told(rows)
        session.stop()


def told(rows: list[tuple[float, float, float]]) -> None:
    """Print the end beside the start."""
    first, last = rows[0], rows[-1]
    print(f"  the last part beside the first: {last[0] / first[0]:.3f} times the cost, "
          f"{last[1] - first[1]:+.1f} MiB of memory")  # fmt: skip


def ring(steps: int, last: str, ops: int) -> None:
    """Print what a ring costs, and that it stays flat."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "ring")
        session.start(RingCapture(root, Bounds(parse_last(last), slow=10.0)))
        user = session.user_emitter()
        same = [user.prepare(f"op {number}") for number in range(ops)]
        count = 0

        def step(many: int) -> None:
            nonlocal count
            for _ in range(many):
                count += 1
                opscope.step(count)
                user.push(user.prepare(f"batch {count}"))
                for one in same:
                    user.push(one)
                    user.pop()
                user.pop()

        print(f"a ring of {last}: {steps:,} steps of {ops} ranges, in ten parts")
        step(200)
        rows = []
        for number, ns in enumerate(parts(step, steps), start=1):
            rows.append((ns, rss(), size(root)))
            recorder = session.recorder()
            made = getattr(recorder, "_numbers", 0)
            print(f"  {number:2}: {ns / 1000:7.1f} µs a step   RSS {rows[-1][1]:7.1f} MiB   disk "
                  f"{rows[-1][2]:7.1f} MiB   segments so far {made}")  # fmt: skip
        told(rows[1:])
        session.stop()


def main() -> int:
    """Run what the command line names."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    words.add_argument("what", choices=("ranges", "ring"))
    words.add_argument("--millions", type=float, default=10)
    words.add_argument("--native", action="store_true")
    words.add_argument("--steps", type=int, default=1_000_000)
    words.add_argument("--last", default="2s")
    words.add_argument("--ops", type=int, default=50)
    given = words.parse_args()
    if given.what == "ranges":
        ranges(given.millions, given.native)
    else:
        ring(given.steps, given.last, given.ops)
    return 0


if __name__ == "__main__":
    sys.exit(main())
