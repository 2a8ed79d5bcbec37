"""PyTorch's memory snapshots: each change, what was in use and reserved, segments, blocks and stacks."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opscope
from opscope.core.question.parameters import WrongParameter
from opscope.errors import BadInput
from opscope.readers import format_of

FORMAT = "PyTorch's memory snapshots"
BASE = 0x7F00_0000_0000
FIRST = 1_700_000_000_000_000
MB = 1 << 20
LINEAR = [
    {
        "filename": "/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py",
        "line": 134,
        "name": "forward",
    },
    {"filename": "/home/me/net.py", "line": 12, "name": "forward"},
    {"filename": "/home/me/train.py", "line": 40, "name": "<module>"},
]
LOADER = [{"filename": "/home/me/train.py", "line": 31, "name": "load"}]
WEIGHTS = [{"filename": "/home/me/net.py", "line": 5, "name": "__init__"}]


def entry(
    action: str, at: int, size: int, time: int, frames: Any = (), **more: Any
) -> dict[str, Any]:
    """An entry of a device's history; the keys are those of PyTorch 2.13."""
    return {
        "action": action, "addr": BASE + at, "size": size, "stream": 0, "time_us": FIRST + time,
        "frames": list(frames), "compile_context": "N/A", "user_metadata": "", **more,
    }  # fmt: skip


def block(
    size: int, state: str, at: int, frames: Any = (), requested: int | None = None
) -> dict[str, Any]:
    return {
        "address": BASE + at, "size": size, "requested_size": size if requested is None else requested,
        "state": state, "frames": list(frames),
    }  # fmt: skip


def snapshot() -> dict[str, Any]:
    """Weights of 4 MB from before the history; two steps, each of which keeps 1 MB more and peaks 6 MB above."""
    trace = [entry("segment_alloc", 20 * MB, 20 * MB, 5)]
    for step in range(2):
        t = 100 * step
        trace += [
            entry("alloc", (20 + step) * MB, MB, t + 10, LOADER),
            entry("alloc", (23 + step) * MB, 6 * MB, t + 20, LINEAR),
            entry("free_requested", (23 + step) * MB, 6 * MB, t + 30),
            entry("free_completed", (23 + step) * MB, 6 * MB, t + 31),
        ]
    marks = [
        {
            "name": f"ProfilerStep#{step}",
            "stage": stage,
            "device": 0,
            "time_us": FIRST + 100 * step + at,
        }
        for step in range(2)
        for stage, at in (("START", 6), ("END", 90))
    ]
    trace.append({**entry("oom", 0, 99 * MB, 200), "device_free": 3 * MB})
    return {
        "segments": [
            {
                "device": 0, "address": BASE, "total_size": 20 * MB, "stream": 0, "segment_type": "large",
                "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                "blocks": [block(4 * MB, "active_allocated", 0, WEIGHTS, 4 * MB - 100),
                           block(16 * MB, "inactive", 4 * MB)],
            },
            {
                "device": 0, "address": BASE + 20 * MB, "total_size": 20 * MB, "stream": 0,
                "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                "blocks": [block(MB, "active_allocated", 20 * MB, LOADER),
                           block(MB, "active_allocated", 21 * MB, LOADER),
                           block(18 * MB, "inactive", 22 * MB)],
            },
        ],
        "device_traces": [trace, []],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False},
        "external_annotations": marks,
    }  # fmt: skip


def written(path: Path, value: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def seeds(folder: Path) -> list[Path]:
    """Write a snapshot as Python writes it, and as PyTorch's own writer does (protocol 2)."""
    return [written(folder / "a.pickle", snapshot()), written(folder / "b.pickle", snapshot(), 2)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "snapshot.pickle", snapshot())


def test_each_change_has_what_was_in_use_and_reserved_after_it(path):
    assert format_of(path) == "memory_snapshot"
    changes = opscope.load(path).trace["allocations"]
    assert changes.select("device", "bytes", "total", "reserved").rows() == [
        (0, MB, 5 * MB, 40 * MB),
        (0, 6 * MB, 11 * MB, 40 * MB),
        (0, -6 * MB, 5 * MB, 40 * MB),
        (0, MB, 6 * MB, 40 * MB),
        (0, 6 * MB, 12 * MB, 40 * MB),
        (0, -6 * MB, 6 * MB, 40 * MB),
    ]
    assert changes["time"][0] == (FIRST + 10) * 1000
    stack = str(changes["stack"][1]).split("\n")
    assert stack[1].split("\t") == ["/home/me/net.py", "12", "forward"]


def test_the_peak_is_held_by_lines_that_add_up_to_it(path):
    profile = opscope.load(path)
    assert profile.memory()["peak_memory"].to_list() == [12 * MB]
    holders = profile.memory_holders()
    assert holders.select("line", "function", "held", "blocks", "range").rows() == [
        ("/home/me/net.py:12", "forward", 6 * MB, 1, "step 1"),
        ("/home/me/net.py:5", "__init__", 4 * MB, 1, None),
        ("/home/me/train.py:31", "load", MB, 1, "step 0"),
        ("/home/me/train.py:31", "load", MB, 1, "step 1"),
    ]
    assert holders["share"].sum() == pytest.approx(1)
    at_end = profile.memory_holders(when="end")
    assert at_end.group_by("line").agg(pl.col("held").sum()).sort("line").rows() == [
        ("/home/me/net.py:5", 4 * MB),
        ("/home/me/train.py:31", 2 * MB),
    ]
    with pytest.raises(WrongParameter, match="peak"):
        profile.memory_holders(when="then")


def test_what_a_step_keeps_is_seen_as_growth(path):
    steps = opscope.load(path).memory_steps()
    assert steps.select("step", "in_use", "growth", "peak_memory", "kept").rows() == [
        (0, 5 * MB, None, 11 * MB, MB),
        (1, 6 * MB, MB, 12 * MB, MB),
    ]


def test_segments_tell_what_is_unused_and_in_how_many_pieces(path):
    (row,) = opscope.load(path).memory_segments().rows(named=True)
    assert (row["segments"], row["reserved"], row["in_use"], row["pending"]) == (
        2,
        40 * MB,
        6 * MB,
        0,
    )
    assert (row["unused"], row["unused_blocks"], row["largest_unused"]) == (34 * MB, 2, 18 * MB)
    assert (row["rounding"], row["releasable"]) == (100, 0)
    assert row["fragmentation"] == pytest.approx(1 - 18 / 34)


def test_an_allocation_that_failed_is_said_with_its_size(path):
    notes = opscope.load(path).trace["notes"]["what"].to_list()
    assert any(
        "out of memory" in what and f"{99 * MB:,}" in what and f"{3 * MB:,}" in what
        for what in notes
    )


def test_memory_that_was_in_use_before_and_is_gone_has_a_row_and_a_reason(tmp_path):
    value = snapshot()
    value["device_traces"][0].insert(0, entry("free_completed", 30 * MB, 2 * MB, 210))
    profile = opscope.load(written(tmp_path / "a.pickle", value))
    assert profile.memory()["peak_memory"].to_list() == [14 * MB]
    rest = profile.memory_holders().filter(pl.col("reason").is_not_null())
    assert rest.select("held", "blocks", "line").rows() == [(2 * MB, None, None)]


def test_a_packed_one_is_read_as_a_plain_one(path, tmp_path):
    packed = tmp_path / "a.pickle.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    one, other = (opscope.load(file).trace["allocations"] for file in (path, packed))
    assert one.equals(other)


def test_the_layout_before_2_1_without_times_is_read_in_its_order(tmp_path):
    old = {
        "segments": [
            {"device": 0, "address": BASE, "total_size": 2 * MB, "stream": 0, "segment_type": "small",
             "blocks": [{"size": 1024, "state": "active_allocated",
                         "history": [{"addr": BASE, "real_size": 1000, "frames": WEIGHTS}]}]},
        ],
        "device_traces": [[
            {"action": "alloc", "addr": BASE, "size": 1024, "stream": 0, "frames": WEIGHTS},
        ]],
    }  # fmt: skip
    profile = opscope.load(written(tmp_path / "a.pickle", old))
    assert profile.trace["allocations"]["total"].to_list() == [1024]
    assert "no times" in profile.trace["notes"]["what"][0]
    assert profile.trace["clocks"]["to_unix_ns"].to_list() == [None]
    assert profile.memory_segments()["rounding"].to_list() == [24]


def test_wrong_values_cost_their_rows(tmp_path):
    value = snapshot()
    value["device_traces"][0][1]["size"] = 1 << 70 >> 7
    value["device_traces"][0][2]["addr"] = "x"
    value["segments"].append("y")
    value["segments"][0]["blocks"].append({"size": None})
    profile = opscope.load(written(tmp_path / "a.pickle", value))
    notes = dict(profile.trace["notes"].select("what", "how_many").rows())
    assert notes["entries of the memory history that cannot be read, left out"] == 2
    assert notes["segments and blocks that cannot be read, left out"] == 2


@pytest.mark.parametrize("value", [{"segments": 5}, {"segments": {}}, {"device_traces": None}])
def test_what_is_no_snapshot_is_refused(value, tmp_path):
    with pytest.raises(BadInput, match=r"a\.pickle: "):
        opscope.load(written(tmp_path / "a.pickle", value))


def test_a_snapshot_that_names_code_is_refused(tmp_path):
    value = snapshot() | {"device_traces": [[{"action": print}]]}
    with pytest.raises(BadInput, match="names code to run"):
        opscope.load(written(tmp_path / "a.pickle", value))


def test_a_snapshot_that_is_cut_off_is_refused(path):
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(BadInput, match="ends, or lacks a value"):
        opscope.load(path)


def test_it_is_kept_in_a_profile(path, tmp_path):
    profile = opscope.load(path)
    profile.save(tmp_path / "a.opscope")
    again = opscope.load(tmp_path / "a.opscope")
    assert again.memory_holders().equals(profile.memory_holders())
    assert again.memory_segments().equals(profile.memory_segments())


def test_the_case_that_was_refused_is_read(shared):
    changes = opscope.load(shared.parent / "cases/other_files/snapshot.pickle").trace["allocations"]
    assert changes["bytes"].to_list() == [512]


def test_a_trace_without_stacks_of_allocations_has_no_holders(shared):
    profile = opscope.load(shared / "kineto/ddp_memory_v100.json.gz")
    assert len(profile.memory())
    assert profile.memory_holders().is_empty()
    assert profile.memory_segments().is_empty()
