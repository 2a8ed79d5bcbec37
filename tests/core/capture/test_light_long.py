"""A million steps in light mode leave memory and disk as they were after the first two hundred thousand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

ROOT = Path(opscope.__file__).resolve().parents[1]
PROGRAM = """
import sys
from pathlib import Path
import psutil
import opscope
from opscope.backends import light_clock
from opscope.core.capture import session
from opscope.core.capture.light import BACKWARD, INPUT
from opscope.core.capture.light_recording import LightRecording

folder = Path(sys.argv[1])
recording = LightRecording(folder, rate=0, clock=light_clock.make)
recording.start()
clock, process = recording.clock, psutil.Process()
print(type(clock).__name__)
fetch, run = clock.around(lambda: None, INPUT), clock.around(lambda: None, BACKWARD)
opscope.step()
for step in range(1_000_000):
    fetch()
    run()
    opscope.step()
    if step % 10_000 == 9_999:
        recording._recorder.flush()  # as its thread does twice a second
    if step % 100_000 == 99_999:
        disk = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
        print(process.memory_info().rss, disk)
recording.stop()
print(recording.summary.steps, clock.dropped)
"""


@pytest.mark.parametrize("kind", ["python", "native"])
def test_memory_and_disk_do_not_grow_with_the_number_of_steps(kind, tmp_path):
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "recording")],
        env={**os.environ, "PYTHONPATH": path, "OPSCOPE_LIGHT_CLOCK": kind, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    made, *lines, end = done.stdout.splitlines()
    if kind == "native" and made != "NativeClock":
        pytest.skip("the clock in C cannot be built")
    found = [[int(word) for word in line.split()] for line in lines]
    assert len(found) == 10
    assert end == "1000000 0"
    # the allocator settles in the first two hundred thousand: 4.7 MiB were seen on a busy machine
    grown = max(rss for rss, _ in found[2:]) - found[1][0]
    assert grown < 8 << 20, found  # the records of the 800,000 steps left have 64 MB
    assert max(disk for _, disk in found) < 2 << 20, found
