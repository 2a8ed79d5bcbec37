"""The benchmark's synthetic nvprof database: each kernel has the op that it was made with."""

from __future__ import annotations

import struct

import polars as pl
import pytest

from opscope.profile import load
from opscope.readers.nvprof import reader as nvprof
from tests.script import module_at


@pytest.fixture(scope="module")
def make_nvprof():
    return module_at("benchmarks/make_nvprof.py")


def test_each_kernel_has_its_op(make_nvprof, tmp_path):
    path = tmp_path / "made.sqlite"
    made = make_nvprof.make(path, 600, seed=4)
    assert made == {"kernels": 600, "ranges": 1320}
    profile = load(path)
    kernels = profile.kernels().sort("correlation")
    assert len(profile.trace["ranges"]) == 1320
    expected = [make_nvprof.texts(number)[2] for number in range(600)]
    assert kernels["op"].cast(pl.String).to_list() == expected
    assert kernels["seq"].to_list() == list(range(600))
    # the markers of the API calls around the ops give the shapes
    linear = kernels[4]["inputs"].cast(pl.String).item()
    assert linear == "f16[80,512], f16[512,512]"
    assert profile.trace["devices"]["name"].to_list() == ["Tesla V100-SXM2-16GB"]


def test_a_range_that_nothing_ended_is_cut_where_its_thread_ended(tmp_path, ids):
    def marker(flags, time, number, thread=7, name=None):
        who = struct.pack("<3I", 1, thread, 0)
        return {
            "flags": flags, "timestamp": time, "id": number, "objectKind": 2, "objectId": who,
            "name": name, "domain": 0,
        }  # fmt: skip

    start, end = 2, 4
    markers = [
        marker(start, 100, 1, name=1),
        marker(start, 110, 2, name=2),
        marker(end, 150, 2),
        marker(start, 900, 3, thread=8, name=3),
    ]
    texts = [{"_id_": n, "value": text} for n, text in enumerate(["", "open", "closed", "late"])]
    path = ids.write_tables(
        tmp_path / "made.sqlite",
        {"StringTable": texts, "CUPTI_ACTIVITY_KIND_MARKER": markers,
         "CUPTI_ACTIVITY_KIND_RUNTIME": [{"start": 120, "end": 160, "cbid": 1, "processId": 1,
                                          "threadId": 7, "correlationId": 1, "_id_": 1}]},
    )  # fmt: skip
    trace = nvprof.read(path)
    got = trace["ranges"].select(pl.col("text").cast(pl.String), "start", "end", "attrs")
    unclosed = '{"unclosed":true}'
    assert got.rows() == [
        ("open", 100, 160, unclosed), ("closed", 110, 150, None), ("late", 900, 901, unclosed),
    ]  # fmt: skip
    assert trace["notes"]["how_many"].to_list() == [2]


def test_a_call_that_failed_launched_nothing_and_has_no_correlation_id(tmp_path, ids):
    """CUDA's 600 says that queried work has not ended, which is no error."""
    calls = [
        {"start": 10 * n, "end": 10 * n + 5, "cbid": 211, "processId": 1, "threadId": 7,
         "correlationId": n, "_id_": n, "returnValue": result}
        for n, result in enumerate([0, 2, 600, 719], start=1)
    ]  # fmt: skip
    path = ids.write_tables(
        tmp_path / "made.sqlite",
        {"StringTable": [{"_id_": 1, "value": "k"}], "CUPTI_ACTIVITY_KIND_RUNTIME": calls},
    )
    assert nvprof.read(path)["calls"]["correlation"].to_list() == [1, None, 3, None]
