"""Counters of CUPTI's range profiler belong to launches by order, where the order says which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opscope.profile import Profile
from opscope.readers.kineto import reader as kineto


def made(tmp_path: Path, devices=(0, 0), launches: int = 2, graphs: int = 0) -> Profile:
    """A range on each device of ``devices``, ``launches`` of kernels and ``graphs`` of CUDA graphs."""
    call = {"ph": "X", "cat": "cuda_runtime", "pid": 7, "tid": 8, "dur": 5}
    names = ["cudaLaunchKernel"] * launches + ["cudaGraphLaunch"] * graphs
    events = [{**call, "name": name, "ts": 1000 + 10 * n, "args": {"correlation": n + 1}}
              for n, name in enumerate(names)]  # fmt: skip
    events += [{"ph": "X", "cat": "cuda_profiler_range", "name": f"k{n}", "pid": device, "tid": 0,
                "ts": 5000 + 10 * n, "dur": 10, "args": {"dram__bytes.sum": n + 1}}
               for n, device in enumerate(devices)]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return Profile(kineto.read(path))


def test_ranges_of_one_device_are_the_launches_in_order(tmp_path):
    frame = made(tmp_path, devices=(3, 3)).counters()
    assert frame["correlation"].to_list() == [1, 2]
    assert frame["device"].to_list() == [3, 3]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"devices": (0, 1)}, "they are of 2 devices"),
        ({"graphs": 1}, "1 launch of CUDA graphs"),
        ({"launches": 3}, "3 launches, not one per kernel"),
    ],
)
def test_ranges_whose_launch_is_not_known_have_none_and_a_reason(tmp_path, how, why):
    profile = made(tmp_path, **how)
    frame = profile.counters()
    assert frame["correlation"].to_list() == [None, None]
    assert frame["name"].to_list() == ["k0", "k1"]
    assert frame["dram__bytes.sum"].to_list() == [1, 2]
    assert set(frame["reason"]) == {"the trace does not say which launch the counters are of"}
    assert [what for _, what, _ in profile.notes().rows() if why in what]


def test_names_that_kineto_heard_at_other_launches_are_put_right(tmp_path):
    """Kineto hears names at cudaLaunchKernel alone and writes the n-th that it heard to the n-th range."""
    call = {"ph": "X", "cat": "cuda_runtime", "pid": 7, "tid": 8, "dur": 5}
    kinds = ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchKernel")
    events = [{**call, "name": name, "ts": 1000 + 10 * n, "args": {"correlation": n + 1}}
              for n, name in enumerate(kinds)]  # fmt: skip
    events += [{"ph": "X", "cat": "cuda_profiler_range", "name": name, "pid": 0, "tid": 0, "ts": 5000 + 10 * n,
                "dur": 10, "args": {"dram__bytes.sum": n}}
               for n, name in enumerate(("first", "last", "2", "3"))]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    frame = Profile(kineto.read(path)).counters()
    assert frame["name"].to_list() == ["first", None, None, "last"]
    assert frame["dram__bytes.sum"].to_list() == [0, 1, 2, 3]
