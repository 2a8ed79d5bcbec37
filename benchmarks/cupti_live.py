"""Measure what taking CUPTI's records costs a program, per record, beside torch.profiler's ``stop()``.

Usage: python benchmarks/cupti_live.py [--records N] [--kineto]

No GPU is needed. Buffers of made records go through the helper as CUPTI would hand them over: the callbacks'
time is on the program's or CUPTI's threads, the writer's is on a thread of its own and includes texts, sizes
and the disk. With ``--kineto``, torch.profiler records as many events of the CPU, and its ``stop()`` is timed:
it keeps events in memory until then. Reading the records afterwards is a command's, not the program's.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from opscope.backends.cupti import helper
from opscope.core.cupti import kinds, layouts, walk

VERSION = 28
NAMES = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--kineto", action="store_true")
    arguments = parser.parse_args()
    print("ns a record")
    _helper(arguments.records)
    if arguments.kineto:
        _kineto(arguments.records // 20)


def _buffer(texts: list[ctypes.Array[ctypes.c_char]]) -> bytes:
    """Return a megabyte of kernels, each with the call that launched it."""
    types = layouts.of(VERSION)
    kernel, call = types[kinds.CONCURRENT_KERNEL], types[kinds.RUNTIME]
    many = helper.BUFFER_BYTES // (kernel.itemsize + call.itemsize)
    kernels, calls = np.zeros(many, kernel), np.zeros(many, call)
    kernels["kind"], calls["kind"] = kinds.CONCURRENT_KERNEL, kinds.RUNTIME
    kernels["start"], kernels["end"] = np.arange(1, many + 1), np.arange(2, many + 2)
    calls["start"], calls["end"] = np.arange(1, many + 1), np.arange(2, many + 2)
    kernels["name"] = [ctypes.addressof(texts[one % NAMES]) for one in range(many)]
    return b"".join(one.tobytes() for pair in zip(kernels, calls, strict=True) for one in pair)


def _helper(records: int) -> None:
    native = helper.load()
    texts = [
        ctypes.create_string_buffer(f"void kernel<{one}, {'float, ' * 20}>".encode())
        for one in range(NAMES)
    ]
    made = _buffer(texts)
    each = len(walk.walk(made, layouts.candidates(VERSION)[0]).places)
    rounds = max(1, records // each)
    library = native._library
    size, bound = ctypes.c_size_t(), ctypes.c_size_t()
    buffer = ctypes.c_void_p()
    with tempfile.TemporaryDirectory() as folder:
        raw = os.open(Path(folder) / "raw", os.O_WRONLY | os.O_CREAT)
        lines = os.open(Path(folder) / "lines", os.O_WRONLY | os.O_CREAT)
        native.configure(VERSION, {}, buffers=1024)
        native.begin()
        callbacks = copies = 0
        cpu = time.process_time_ns()
        native.open(raw, lines)
        for _ in range(rounds):
            begin = time.thread_time_ns()
            library.opscope_cupti_requested(
                ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(bound)
            )
            callbacks += time.thread_time_ns() - begin
            while not buffer.value:  # the disk is behind
                time.sleep(0.001)
                library.opscope_cupti_requested(
                    ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(bound)
                )
            begin = time.thread_time_ns()
            ctypes.memmove(buffer, made, len(made))  # CUPTI's part
            copies += time.thread_time_ns() - begin
            begin = time.thread_time_ns()
            library.opscope_cupti_completed(
                None, 0, buffer, ctypes.c_size_t(size.value), ctypes.c_size_t(len(made))
            )
            callbacks += time.thread_time_ns() - begin
        native.end(600)
        cpu = time.process_time_ns() - cpu
        state = native.state()
        os.close(raw)
        os.close(lines)
    assert state.records == rounds * each
    print(
        f"{callbacks / state.records:10.2f}  callbacks, on the threads of the program and of CUPTI"
    )
    print(
        f"{(cpu - copies) / state.records:10.2f}  all CPU time of the helper, texts and disk included"
    )
    print(f"{state.bytes / state.records:10.0f}  bytes a record, {state.records:,} records")


def _kineto(events: int) -> None:
    import torch

    one = torch.ones(1)
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    profiler.start()
    for _ in range(events):
        one.add(1)
    begin = time.process_time_ns()
    profiler.stop()
    took = time.process_time_ns() - begin
    many = len(profiler.profiler.kineto_results.events())
    print(
        f"{took / many:10.0f}  torch.profiler.stop(), {many:,} events of the CPU", file=sys.stdout
    )


if __name__ == "__main__":
    main()
