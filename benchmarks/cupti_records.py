"""Measure decoding CUPTI's activity records, per record, beside what PyTorch's profiler takes per event.

Usage: python benchmarks/cupti_records.py [--records N] [--buffer BYTES] [--version N]

A made buffer has what a training launches: a call and a kernel each, now and then a copy with its call, a wait,
an external id. Measured: finding the records (walking), copying them by kind, all columns of the trace's tables,
and the same walk record by record. With PyTorch installed, ``profiler.stop()`` is measured with events of the
CPU: it is what a Kineto capture adds to the program's own time, where CUPTI's raw buffers are written as they are
and decoded after the run. CPU seconds, the least of the runs: a busy machine stretches the wall's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from opscope.core.cupti import files, kinds, layouts, walk
from opscope.readers.recording.cupti_files import Buffers, read_buffers
from opscope.readers.recording.with_cupti import load

T = 1_700_000_000_000_000_000
RUNS = 3
#: Events of PyTorch's profiler: more than this, and ``stop`` takes minutes.
EVENTS = 200_000


def made(version: int, many: int, size: int) -> tuple[list[bytes], int]:
    """Return buffers of at most ``size`` bytes with ``many`` records in all, and the number of kernels."""
    dtypes = layouts.of(version)
    pattern = [kinds.RUNTIME, kinds.CONCURRENT_KERNEL] * 8
    pattern += [kinds.RUNTIME, kinds.MEMCPY, kinds.SYNCHRONIZATION, kinds.EXTERNAL_CORRELATION]
    offsets = np.concatenate(([0], np.cumsum([dtypes[kind].itemsize for kind in pattern])))
    turns = max(1, size // int(offsets[-1]))
    whole = np.zeros((-(-many // len(pattern)), int(offsets[-1])), np.uint8)
    number = np.arange(len(whole), dtype=np.int64) * len(pattern)
    for place, kind in enumerate(pattern):
        dtype = dtypes[kind]
        rows = whole[:, offsets[place] : offsets[place + 1]].view(dtype)[:, 0]
        at = number + place
        fields = {
            "kind": kind, "start": T + at * 2_000, "end": T + at * 2_000 + 1_500, "correlationId": at // 2 + 1,
            "contextId": 1, "streamId": 7 + at % 3, "gridX": at % 97 + 1, "gridY": 1, "gridZ": 1, "blockX": 128,
            "blockY": 1, "blockZ": 1, "registersPerThread": 32 + at % 5, "name": 0x7F0000001000 + at % 211 * 64,
            "bytes": at * 8, "copyKind": 1, "srcKind": 2, "dstKind": 3, "cbid": 211, "threadId": 4711,
            "channelID": 3, "type": 2, "cudaEventId": at % 50, "processId": 4000, "externalId": at,
        }  # fmt: skip
        for name, value in fields.items():
            if name in (dtype.names or ()):
                rows[name] = value
    buffers = [whole[first : first + turns].tobytes() for first in range(0, len(whole), turns)]
    return buffers, len(whole) * pattern.count(kinds.CONCURRENT_KERNEL)


def least(work, runs: int = RUNS) -> float:
    """CPU seconds of the fastest of some runs."""
    took = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        took.append(time.process_time() - begin)
    return min(took)


def kineto() -> float | None:
    """Microseconds per event that torch.profiler's stop takes; None without PyTorch."""
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return None
    torch.set_num_threads(1)
    one = torch.ones(4)
    done = profile(activities=[ProfilerActivity.CPU])
    done.start()
    for _ in range(EVENTS):
        torch.neg(one)
    begin = time.process_time()
    done.stop()
    return (time.process_time() - begin) / EVENTS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument(
        "--buffer", type=int, default=1 << 20, help="bytes of a buffer, default 1 MiB"
    )
    parser.add_argument("--version", type=int, default=layouts.known()[-1][0])
    options = parser.parse_args()
    layout = layouts.candidates(options.version)[0]
    buffers, _ = made(options.version, options.records, options.buffer)
    many = sum(len(walk.walk(buffer, layout).places) for buffer in buffers)
    size = sum(map(len, buffers))
    print(f"{many} records of CUDA {layout.cuda[0]}, {size / 1e6:.0f} MB in {len(buffers)} buffers")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, files.FACTS)
        with path.with_name(files.RAW).open("wb") as raw:
            for buffer in buffers:
                raw.write(files.BUFFER.pack(files.MARK, len(buffer), 1, 1, 0) + buffer)
        buffers.clear()
        names = {str(0x7F0000001000 + one * 64): f"kernel_{one}" for one in range(211)}
        lines = [{"version": options.version, "kinds": [], "pointer_bytes": 8}, {"names": names}]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        regions = [region for _, region in read_buffers(path.with_name(files.RAW), []).regions()]
        walked = [_walked(region, layout) for region in regions]
        pairs = list(zip(regions, walked, strict=True))
        rows = [
            ("find the records", lambda: [_walked(region, layout) for region in regions]),
            ("… one by one", lambda: [_plain(region, layout) for region in regions]),
            (
                "copy them by kind",
                lambda: [walk.taken(one.data, found, layout) for one, found in pairs],
            ),
            ("all tables, from the files", lambda: load(path)),
        ]
        for name, work in rows:
            print(f"{name:34} {least(work) / many * 1e9:8.1f} ns a record")
    with contextlib.suppress(KeyboardInterrupt):
        stop = kineto()
        told = (
            "no PyTorch here"
            if stop is None
            else f"{stop * 1e3:8.1f} ns an event ({EVENTS} of the CPU)"
        )
        print(f"{'torch.profiler, in stop()':34} {told}")


def _walked(region: Buffers, layout: layouts.Layout) -> walk.Region:
    slot = layouts.SLOT
    return walk.walk_region(region.data, region.begins // slot, region.ends // slot, layout)


def _plain(region: Buffers, layout: layouts.Layout) -> None:
    words = region.data[: len(region.data) // 8 * 8].view("<u4")
    for begin, end in zip((region.begins // 8).tolist(), (region.ends // 8).tolist(), strict=True):
        walk._plain(words, begin, end, end, walk._sizes(layout))


if __name__ == "__main__":
    main()
