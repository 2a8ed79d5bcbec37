"""Memory that a worker keeps while it reads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from opscope.scale import heap

#: Page faults of arrays that are made and freed: before, within and after.
_FAULTS = """
import resource
import numpy as np
from opscope.scale.heap import kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.zeros(1 << 20, np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
before = faults()
with kept(), kept():
    faults()
    within = faults()
print(before, within, faults())
"""


def _faults(**variables: str) -> list[int]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", _FAULTS], env={**env, **variables}, check=True,
                          capture_output=True, text=True)  # fmt: skip
    return list(map(int, done.stdout.split()))


@pytest.mark.skipif(heap._glibc() is None, reason="only glibc can be told")
def test_a_worker_that_gives_memory_back_at_once_keeps_it_while_it_reads_and_no_longer():
    before, within, after = _faults(MALLOC_TRIM_THRESHOLD_="65536")
    assert before > 10_000  # 256 pages each time
    assert within < before / 10
    assert after > 10_000


@pytest.mark.skipif(heap._glibc() is None, reason="only glibc can be told")
@pytest.mark.parametrize("threshold", ["", "no number", str(1 << 30)])
def test_a_process_in_which_nothing_smaller_is_set_stays_as_it_is(threshold, monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", threshold)
    told = []
    monkeypatch.setattr(heap, "_set", lambda *words: told.append(words))
    with heap.kept():
        pass
    assert told == []


def test_without_glibc_nothing_is_done(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.setattr(heap, "_glibc", lambda: None)
    with heap.kept():
        assert heap._inside == 0
