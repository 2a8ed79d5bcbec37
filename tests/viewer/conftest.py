"""A small profile, and the application that shows it."""

from __future__ import annotations

import pytest

import opscope
from opscope.viewer.viewed import Viewed
from tests import traces
from tests.viewer.asking import Asking


@pytest.fixture
def asking():
    """A function that makes an application of what is viewed, closed after the test."""
    made = []

    def make(viewed: Viewed) -> Asking:
        made.append(Asking(viewed))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def small(trace_of):
    """A profile of two steps, three ops and their kernels on two devices, with names of every kind."""
    from opscope.profile import Profile

    ms = 1_000_000
    ranges, calls, kernels = [], [], []
    for step in range(2):
        at = step * 100 * ms
        ranges.append({"id": 100 + step, "process": 0, "thread": 0, "start": at, "end": at + 90 * ms,
                       "domain": "opscope.user", "category": "step", "text": f"step {step}", "kind": "pushpop"})  # fmt: skip
        for n, name in enumerate(("aten::mm", "aten::relu", "<b>Ünsafe</b> & co")):
            begin = at + 10 * ms * (n + 1)
            ranges.append({"id": 10 * step + n, "process": 0, "thread": 0, "start": begin, "end": begin + 5 * ms,
                           "domain": "opscope.torch", "category": "forward",
                           "text": f'"{name}"(f32[4,4], f32[4,4]) -> f32[4,4] @train.py:{n + 1}', "kind": "pushpop"})  # fmt: skip
            launch = 10 * step + n
            calls.append({"process": 0, "thread": 0, "start": begin + ms, "end": begin + 2 * ms,
                          "name": "cudaLaunchKernel", "correlation": launch})  # fmt: skip
            kernels.append({"process": 0, "device": n % 2, "context": 1, "stream": 7, "start": begin + 3 * ms,
                            "end": begin + 4 * ms + n, "name": f"kernel_{name}", "correlation": launch})  # fmt: skip
    processes = [{"process": 0, "pid": 1, "rank": 0}]
    return Profile(trace_of(ranges=ranges, calls=calls, kernels=kernels, processes=processes))


@pytest.fixture
def app(small, asking):
    return asking(Viewed(small, ("run <1>.opscope",)))


@pytest.fixture(scope="session")
def of(shared):
    """A function that loads a shared trace once a session."""
    held = {}

    def load(name: str) -> opscope.Profile:
        if name not in held:
            held[name] = traces.load(shared / name)
        return held[name]

    return load
