"""Idle time, queues, overlap and bandwidth of real Kineto traces, against a count in plain Python over the JSON
and, where they are right, the figures of Holistic Trace Analysis 0.5.0 (docs/against-hta.md)."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise

import polars as pl
import pytest

from tests import traces

GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
HOST = ("cuda_runtime", "cuda_driver", "Runtime")


class Raw:
    """The events of one file: device work by stream, and the launch of each correlation id; in ns."""

    def __init__(self, path):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        self.work, self.called = [], {}
        for event in events:
            kind, args = event.get("cat"), event.get("args") or {}
            if event.get("ph") != "X":
                continue
            start = round(event["ts"] * 1_000)
            one = (start, round((event["ts"] + event["dur"]) * 1_000), event["name"], args)
            if kind in GPU:
                self.work.append((args["stream"], *one, kind.lower()))
            elif kind in HOST and "correlation" in args:
                self.called[args["correlation"]] = one
        self.work.sort(key=lambda row: row[1])

    def union(self, chosen) -> int:
        """Return the ns in which any of the chosen work runs."""
        whole, reach = 0, None
        for _, start, end, *_ in filter(chosen, self.work):
            if reach is None or start > reach:
                whole, reach = whole + end - start, end
            elif end > reach:
                whole, reach = whole + end - reach, end
        return whole

    def idle(self) -> dict[int, dict[str, int]]:
        found: dict[int, dict[str, int]] = defaultdict(
            lambda: dict.fromkeys(("host", "kernel", "other"), 0)
        )
        reach: dict[int, int] = {}
        for stream, start, end, _, args, _ in self.work:
            gap = start - reach.get(stream, start)
            if gap > 0:
                called = self.called[args["correlation"]][0]
                late = called > reach[stream]
                found[stream]["host" if late else "kernel" if gap < 30_000 else "other"] += gap
            reach[stream] = max(reach.get(stream, end), end)
            found[stream]
        return dict(found)


def loaded(shared, name: str):
    path = shared / "kineto" / name
    return traces.load(path), Raw(path)


@pytest.fixture(scope="module")
def ddp(shared):
    return loaded(shared, "ddp_rank3of8_a100_stacks.json.gz")


def by_stream(profile) -> dict:
    rows = profile.idle("stream").to_dicts()
    return {
        row["stream"]: {
            "host": row["host_wait"],
            "kernel": row["kernel_wait"],
            "other": row["other_wait"],
        }
        for row in rows
    }


def test_idle_time_by_stream_is_hta_s_and_a_count_by_hand(ddp):
    profile, raw = ddp
    assert by_stream(profile) == raw.idle()
    assert by_stream(profile)[7] == {"host": 133_311_000, "kernel": 17_152_000, "other": 32_751_000}
    assert by_stream(profile)[20] == {"host": 424_456_000, "kernel": 739_000, "other": 9_684_000}


def test_the_device_s_idle_time_is_hta_s_temporal_breakdown(ddp):
    profile, raw = ddp
    row = profile.idle().row(0, named=True)
    assert (row["window"], row["idle_time"]) == (464_594_000, 76_007_000)
    assert row["busy_time"] == raw.union(lambda one: True)
    computes = profile.overlap().filter(
        pl.col("running_work").str.contains("computation|all three")
    )
    assert computes["time"].sum() == 281_336_000


def test_kernels_of_one_stream_that_overlap_leave_no_gap_below_0(shared):
    profile, raw = loaded(shared, "vision_transformer_rank0.json.gz")
    launched = [one for one in raw.work if one[0] == 27]
    gaps = [later[1] - earlier[2] for earlier, later in pairwise(launched)]
    assert sum(gap for gap in gaps if gap < 0) == -2_000  # HTA's kernel wait is 1,178 µs
    row = profile.idle("stream").filter(pl.col("stream") == 27).row(0, named=True)
    assert row["kernel_wait"] == 1_180_000
    assert row["idle_time"] == sum(gap for gap in gaps if gap > 0)


def test_a_launch_of_a_cuda_graph_waits_in_the_queue_like_any_other(shared):
    profile, _ = loaded(shared, "vision_transformer_rank0.json.gz")
    launches = profile.queue().filter(pl.col("stream") == 7)["launches"].item()
    calls = profile.trace["calls"].filter(pl.col("name").cast(pl.String) == "cudaGraphLaunch")
    assert len(calls) >= 70
    assert launches == 6_120  # HTA has 6,050: it does not know cudaGraphLaunch


def test_a_wait_of_the_host_is_no_kernel(shared):
    profile, raw = loaded(shared, "alexnet_cuda_sync_a100.json.gz")
    computing = profile.overlap().filter(pl.col("running_work") == "computation")["time"].item()
    # HTA counts 41 events of the category cuda_sync as computation, because they have a stream
    assert computing == raw.union(lambda one: one[5] == "kernel")


def test_the_bytes_of_copies_are_those_of_the_file(ddp):
    profile, raw = ddp
    rows = profile.bandwidth().group_by("kind").agg(pl.col("bytes", "calls").sum())
    found = {kind: (size, many) for kind, size, many in rows.rows()}
    counted: dict = defaultdict(lambda: (0, 0))
    for _, _, _, name, args, category in raw.work:
        if category != "kernel":
            kind = "memset" if name.startswith("Memset") else name.split()[1]
            size, many = counted[kind]
            counted[kind] = size + args["bytes"], many + 1
    assert found == dict(counted)


def test_the_longest_queue_is_that_of_a_count_by_hand(ddp):
    profile, raw = ddp
    changes: dict[int, list] = defaultdict(list)
    for stream, start, _, _, args, _ in raw.work:
        called = raw.called[args["correlation"]][0]
        if called < start:
            changes[stream] += [(called, 1), (start, -1)]
    for row in profile.queue().to_dicts():
        length = longest = 0
        for _, change in sorted(changes[row["stream"]]):  # at one time, what starts leaves first
            length += change
            longest = max(longest, length)
        assert row["longest_queue"] == longest


def test_a_data_loader_without_workers_is_what_the_device_waits_for(shared):
    profile, _ = loaded(shared, "resnet50_nw0_step_span1.pt.trace.json.gz")
    first = profile.idle_ops().row(0, named=True)
    assert first["op"].startswith("enumerate(DataLoader)")
    assert first["wait_share"] > 0.4
    with_workers, _ = loaded(shared, "resnet50_nw4_step_span1.pt.trace.json.gz")
    loading = with_workers.idle_ops().filter(pl.col("op").str.starts_with("enumerate(DataLoader)"))
    assert loading["wait_time"].sum() < first["wait_time"] / 10
