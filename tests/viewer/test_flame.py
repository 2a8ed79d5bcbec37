"""The flame graph's tree: its own times add up to the device time, whatever is merged away."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.viewer.flame import BY, bounded, tree
from tests import traces

TRACES = [
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/vllm_decode_cudagraph_capture.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nsys/multiprocessing_nogpu_2020.sqlite",
    "dlprof/nsys_profile.sqlite",
    "onnxruntime/resnet_inference_gemmini.json",
    "xplane/jax_conv_mi300.xplane.pb",
]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", TRACES)
def test_the_times_add_up_to_the_device_time(shared, name, by):
    profile = traces.load(shared / name)
    nodes, measure = tree(profile, by)
    whole = profile.summary()["device_time"].item()
    assert measure == ("self" if profile.cpu_only else "device")
    assert nodes["own"].sum() == whole
    assert nodes["own"].min() >= 0
    for most in (5, 50, 5_000):
        found = bounded(nodes, most)
        assert found["time"][0] == sum(found["own"]) == whole
        assert len(found["time"]) <= 2 * most


def test_layers_have_the_times_of_the_table_of_modules(shared):
    profile = traces.load(shared / "dlprof/nsys_profile.sqlite")
    nodes, _ = tree(profile, "layer")
    found = bounded(nodes, 5_000)
    table = profile.modules().filter(pl.col("device_total") > 0)
    times = {
        link: time
        for link, time in zip(found["link"], found["time"], strict=True)
        if link is not None
    }
    expected = dict(table.drop_nulls("layer").select("layer", "device_total").rows())
    assert expected
    assert times == expected


@st.composite
def forests(draw):
    many = draw(st.integers(1, 40))
    parents = [-1] + [draw(st.integers(0, n - 1)) for n in range(1, many)]
    own = draw(st.lists(st.integers(0, 9), min_size=many, max_size=many))
    return parents, own


@given(forests(), st.integers(1, 50))
def test_what_is_merged_away_is_one_node_with_its_sum(forest, most):
    parents, own = forest
    many = len(parents)
    nodes = pl.DataFrame(
        {
            "number": range(many),
            "parent": parents,
            "name": [f"n{place}" for place in range(many)],
            "kind": ["op"] * many,
            "own": own,
            "calls": [1] * many,
            "merged": [1] * many,
            "link": [None] * many,
        },
        schema_overrides={"link": pl.String},
    )
    found = bounded(nodes, most)
    assert sum(found["own"]) == sum(own)
    if not sum(own):
        assert found["time"] == []
        return
    total = np.array(own)
    for place in range(many - 1, 0, -1):
        total[parents[place]] += total[place]
    assert sum(found["merged"]) == int((total > 0).sum())
    inside = [0] * len(found["time"])
    for place, above in enumerate(found["parent"]):
        assert above < place
        if above >= 0:
            inside[above] += found["time"][place]
    for place, time in enumerate(found["time"]):
        assert time == inside[place] + found["own"][place]
        if found["kind"][place] == "op":
            assert time == total[int(found["names"][found["name"][place]][1:])]


def test_a_very_long_name_is_cut():
    nodes = pl.DataFrame(
        {
            "number": [0],
            "parent": [-1],
            "name": ["x" * 10_000],
            "kind": ["op"],
            "own": [1],
            "calls": [1],
            "merged": [1],
            "link": [None],
        },
        schema_overrides={"link": pl.String},
    )
    assert len(bounded(nodes, 1)["names"][0]) == 256
