"""Measure what sampling Python stacks costs a program that is bound by Python, with one thread and with 16.

    python benchmarks/stacks.py [--blocks=300] [--depth=8] [--python] [--json]

Turns with sampling and without follow each other in one process, which records all along: with, without,
without, with. A turn is a fixed amount of work in Python (some 20 ms), ``depth`` calls deep; 16 threads share it,
all of them recorded. It counts with the processor time of the whole process, sampler included: on a busy machine
wall time says nothing. A block of four turns gives one ratio, in which a machine that becomes slower or faster
cancels out; printed is the median of the blocks with its standard error by resampling. Beside it stand what is
measured without a comparison: the processor time of all threads but the program's, as a part of the program's
(the sampler's own thread), and what the sampler charges itself, with what it took from the program.
``null``: the same with sampling in no turn, which shows the error of the method. ``--python``: the sampler
without a compiler.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from opscope.adapters.shared import native_stacks
from opscope.core.capture import host_stacks
from opscope.core.capture.recorder_sink import Recorder

WORK = 240_000
RESAMPLED = 500


def deep(level: int, count: int) -> int:
    """Count ``count`` times, ``level`` calls below."""
    if level:
        return deep(level - 1, count)
    total = 0
    for number in range(count):
        total += number % 7
    return total


def turn(threads: int, depth: int) -> tuple[float, float]:
    """Do the work on so many threads; return the processor time of the process, and of these threads (s)."""
    took: list[float] = []

    def work() -> None:
        begin = time.thread_time()
        for _ in range(16):
            deep(depth, WORK // 16 // threads)
        took.append(time.thread_time() - begin)

    cpu = time.process_time()
    if threads == 1:
        work()
    else:
        pool.work(work)
    return time.process_time() - cpu, sum(took)


class Pool:
    """Threads that live, recorded, from the first turn to the last."""

    def __init__(self, recorder: Recorder, count: int) -> None:
        self.begin, self.end = threading.Barrier(count + 1), threading.Barrier(count + 1)
        self.job = lambda: None
        for _ in range(count):
            threading.Thread(target=self._run, args=(recorder,), daemon=True).start()

    def _run(self, recorder: Recorder) -> None:
        recorder.new_thread()
        while True:
            self.begin.wait()
            self.job()
            self.end.wait()

    def work(self, job) -> None:
        self.job = job
        self.begin.wait()
        self.end.wait()


def measure(threads: int, blocks: int, depth: int, samples: bool = True) -> dict[str, float]:
    """Return the ratio with sampling to without, its error, and the sampler's figures."""
    global pool
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        recorder.start()
        recorder.new_thread()
        pool = Pool(recorder, threads) if threads > 1 else None
        stacks = recorder._stacks
        turn(threads, depth)
        ratios, beside, without = [], 0.0, 0.0
        looks = spent = wall = program = 0.0
        for _ in range(blocks):
            took = {True: 0.0, False: 0.0}
            for on in (True, False, False, True):
                (stacks.resume if on and samples else stacks.pause)()
                before, begin = stacks._sampling.figures(), time.perf_counter()
                process, own = turn(threads, depth)
                took[on] += process
                if on:
                    after = stacks._sampling.figures()
                    spent, looks = spent + after[0] - before[0], looks + after[1] - before[1]
                    wall, program = wall + time.perf_counter() - begin, program + own
                    beside += process - own
                else:
                    without += (process - own) / own
            ratios.append(took[True] / took[False])
        stacks.resume()
        recorder.stop()
    medians = [statistics.median(random.choices(ratios, k=blocks)) for _ in range(RESAMPLED)]
    return {
        "threads": threads,
        "cpu": statistics.median(ratios),
        "cpu_error": statistics.stdev(medians),
        "own_thread": beside / program - without / (2 * blocks),
        "charged": spent / 1e9 / program,
        "rate": looks / wall,
    }


def main(arguments: list[str]) -> None:
    given = dict(part.lstrip("-").partition("=")[::2] for part in arguments)
    if "python" not in given:
        host_stacks.native = native_stacks.make
    blocks, depth = int(given.get("blocks", 300)), int(given.get("depth", 8))
    results = [measure(threads, blocks, depth) for threads in (1, 16)]
    null = [measure(threads, blocks, depth, samples=False) for threads in (1, 16)]
    if "json" in given:
        print(json.dumps({"sampled": results, "null": null}))
        return
    print(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}"
    )
    for result, nothing in zip(results, null, strict=True):
        print(
            f"{result['threads']:2} threads: processor time x {result['cpu']:.4f}"
            f" +- {result['cpu_error']:.4f} (null {nothing['cpu']:.4f} +- {nothing['cpu_error']:.4f}),"
            f" the sampler's thread {result['own_thread']:.2%}, charged {result['charged']:.2%},"
            f" {result['rate']:.0f} samples of each thread a second"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
