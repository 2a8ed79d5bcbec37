"""Measure how long a server's thread waits while `opscope attach` begins and ends a recording.

Usage: opscope run --attachable --no-report -- benchmarks/attached_server.py [SECONDS]
       and, when it has printed its number: opscope attach PID --duration 2 --no-report

Two clients ask; the server's thread runs a small model on the CPU for each request. In the end it prints the
longest times between two of its steps, with the Unix time of each, to compare with the times of `attach`.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time

import torch

LONGEST = 14


def main() -> None:
    """Serve for so many seconds (48), then print."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
    requests: queue.Queue[threading.Event] = queue.Queue()
    end = time.time() + (float(sys.argv[1]) if len(sys.argv) > 1 else 48)
    gaps: list[tuple[float, float]] = []

    def ask() -> None:
        while time.time() < end:
            answered = threading.Event()
            requests.put(answered)
            answered.wait(1)

    def serve() -> None:
        last = time.perf_counter()
        while time.time() < end:
            answered = requests.get(timeout=2)
            with (
                torch.no_grad(),
                torch.profiler.record_function("execute_context_0(0)_generation_1(1)"),
            ):
                model(torch.randn(4, 256))
            answered.set()
            now = time.perf_counter()
            gaps.append((now - last, time.time()))
            last = now

    threads = [threading.Thread(target=function) for function in (serve, ask, ask)]
    for thread in threads:
        thread.start()
    print("pid", os.getpid(), flush=True)
    for thread in threads:
        thread.join()
    print(f"{len(gaps):,} steps")
    for gap, when in sorted(gaps, reverse=True)[:LONGEST]:
        print(f"{gap * 1e3:.1f} ms at {when:.2f}")


if __name__ == "__main__":
    main()
