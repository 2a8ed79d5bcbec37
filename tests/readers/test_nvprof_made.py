"""The benchmark's synthetic nvprof database: each kernel has the op that it was made with."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.profile import load
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
