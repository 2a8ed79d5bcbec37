"""Measure the reading of a .pftrace of many slices beside decoding it with Perfetto's own classes.

Usage: python benchmarks/perfetto_read.py [--slices 1000000] [--runs 3]

The file has kernels on eight tracks, with interned names and a correlation id each, as rocprofv3 writes them. Perfetto's
side parses every packet (``pip install perfetto``) and reads three fields of each: time, kind, track. Each run is a
process of its own; the ratio is of the medians of CPU seconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = "import sys; from opscope import readers; print(len(readers.open(sys.argv[1])['kernels']))"
THEIRS = """
import sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
trace = Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
rows = [(p.timestamp, p.track_event.type, p.track_event.track_uuid) for p in trace.packet if p.HasField("track_event")]
print(sum(kind == 1 for _, kind, _ in rows))
"""
MEASURED = "import resource\n{}\nused = resource.getrusage(resource.RUSAGE_SELF)\nprint(used.ru_utime + used.ru_stime, used.ru_maxrss)"


def number(value: int) -> bytes:
    """A varint."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def field(key: int, value: int | bytes) -> bytes:
    """A field of a message: a number, or bytes with their length before them."""
    if isinstance(value, int):
        return number(key << 3) + number(value)
    return number(key << 3 | 2) + number(len(value)) + value


def packet(body: bytes) -> bytes:
    """A packet of the only sequence."""
    return field(1, field(10, 1) + body)


def make(path: Path, slices: int) -> None:
    """Write the file."""
    with path.open("wb") as file:
        texts = field(1, field(1, 2) + field(2, b"kernel_dispatch"))
        texts += b"".join(field(2, field(1, 1 + n) + field(2, b"gemm_%d" % n)) for n in range(40))
        file.write(
            packet(field(13, 1) + field(12, texts + field(3, field(1, 1) + field(2, b"corr_id"))))
        )
        for track in range(8):
            name = b"COMPUTE AGENT [2] STREAM [%d] (GPU)" % track
            file.write(packet(field(60, field(1, 8 + track) + field(2, name))))
        for n in range(slices):
            time, track = 10**9 + 1000 * (n // 8), field(11, 8 + n % 8)
            about = field(4, field(1, 1) + field(3, n))
            begin = field(9, 1) + track + field(10, 1 + n % 40) + field(3, 2) + about
            file.write(packet(field(8, time) + field(11, begin)))
            file.write(packet(field(8, time + 700) + field(11, field(9, 2) + track)))


def run(code: str, path: Path) -> tuple[int, float, float]:
    """Return what the code printed, CPU seconds and MiB."""
    command = [sys.executable, "-c", MEASURED.format(code), str(path)]
    told = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    return int(told[0]), float(told[1]), float(told[2]) / 1024


def main() -> None:
    """Print both sides and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.pftrace"
        make(path, given.slices)
        print(f"{given.slices:,} slices, {path.stat().st_size / 1e6:.0f} MB")
        medians = []
        for name, code in (("opscope", OURS), ("Perfetto's classes and three fields", THEIRS)):
            runs = [run(code, path) for _ in range(given.runs)]
            assert {count for count, _, _ in runs} == {given.slices}, runs
            medians.append(statistics.median(cpu for _, cpu, _ in runs))
            print(f"{name:40}{medians[-1]:8.2f} CPU s{max(peak for _, _, peak in runs):8.0f} MiB")
        print(f"ratio {medians[0] / medians[1]:.2f} (goal: at most 3)")


if __name__ == "__main__":
    main()
