"""Chains of elementwise kernels: found by shapes, bounded by all but the longest, silent where shapes lack."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("Qwen1.5 0.5B, inference in bfloat16 on an H100", "kineto/qwen1.5_0.5b_h100.json.gz")
NAME = "elementwise_chains"
#: A product that takes most of the time.
PRODUCT = ran("aten::mm(f32[64,64], f32[64,64])", 0, 10_000, "ampere_sgemm_128x64_tn")


def find(profile):
    return asked(NAME, profile)


def chain(*texts, start=20_000, took=10_000, gap=1_000, **more):
    rows, at = [], start
    for text in texts:
        rows.append(ran(text, at, at + took, **more))
        at += took + gap
    return rows


def test_the_saving_is_what_lies_between_and_at_most_all_but_the_longest():
    rows = chain("aten::mul(f32[1000], f32[1000])", "aten::add(f32[1000], f32[1000])")
    rows[1]["end"] += 5_000
    profile = on_gpu([PRODUCT, *rows])
    (found,) = find(profile)
    assert found.time == 10_000 + 15_000
    assert (found.saving_least, found.saving_most) == (0, 10_000 + 1_000 + 5_000)
    # 4,000 bytes are written by one and read by the next: a third of the 12,000 that each moves
    assert profile.kernels()["bytes"].to_list()[1:] == [12_000, 12_000]
    kernels, factors = found.edit.kernels
    assert kernels.tolist() == [1, 2]
    assert np.allclose(factors, 2 / 3)
    # the launch of the second goes, with its op of 5 µs
    assert found.edit.host["factor"].to_list() == [0.0]
    assert found.edit.launches[0].tolist() == [2]
    assert found.edit.launches[1].tolist() == [0.0]
    assert "torch.compile" in found.recommendation
    assert "; 8.00 kB are written" in found.what
    assert found.rows["count"].sum() == 2


@pytest.mark.parametrize(
    "texts",
    [
        # the second reads nothing of the shape that the first wrote
        ("aten::mul(f32[1000], f32[1000])", "aten::add(f32[500], f32[500])"),
        # of another number format
        ("aten::mul(f32[1000]) -> f32[1000]", "aten::add(f16[1000], f16[1000])"),
        # a loop over tensors of one size, in place
        ("aten::add_(f32[1000], f32[1000])", "aten::add_(f32[1000], f32[1000])"),
        # lists of tensors are fused
        ("aten::_foreach_mul([f32[1000]]*9)", "aten::_foreach_add([f32[1000]]*9)"),
    ],
)
def test_what_does_not_read_what_was_written_is_no_chain(texts):
    assert find(on_gpu([PRODUCT, *chain(*texts)])) == []


def test_the_optimizers_kernels_and_those_far_apart_or_on_other_streams_are_no_chain():
    two = ("aten::mul(f32[1000], f32[1000])", "aten::add(f32[1000], f32[1000])")
    assert find(on_gpu([PRODUCT, *chain(*two, way="optimizer")])) == []
    assert find(on_gpu([PRODUCT, *chain(*two, gap=200_000)])) == []
    apart = chain(*two)
    apart[1]["stream"] = 8
    assert find(on_gpu([PRODUCT, *apart])) == []


def test_what_a_compiler_made_is_no_chain():
    rows = chain("aten::mul(f32[1000], f32[1000])", "aten::add(f32[1000], f32[1000])",
                 name="triton_poi_fused_add_0")  # fmt: skip
    assert find(on_gpu([PRODUCT, *rows])) == []


def test_short_chains_beside_long_work_are_not_worth_a_change():
    rows = chain("aten::mul(f32[1000], f32[1000])", "aten::add(f32[1000], f32[1000])", start=10**8)
    long = {**PRODUCT, "end": 9 * 10**7}
    assert find(on_gpu([long, *rows])) == []


def test_without_shapes_it_cannot_be_told():
    answer = find(on_gpu([PRODUCT, *chain("aten::mul", "aten::add", "aten::mul")]))
    assert isinstance(answer, CannotTell)
    assert "the shapes of 2 elementwise kernels" in answer.reason
    assert isinstance(
        find(on_cpu([{"text": "mine", "start": 0, "end": 9, "category": None}])), CannotTell
    )


def test_chains_of_unknown_shapes_are_counted_beside_a_finding():
    rows = chain("aten::mul(f32[1000], f32[1000])", "aten::add(f32[1000], f32[1000])", None, None)
    (found,) = find(on_gpu([PRODUCT, *rows]))
    assert "shapes are unknown and that are not counted: 1" in found.evidence


def test_on_the_cpu_ops_take_the_place_of_kernels():
    texts = (
        "aten::mul(f32[1000], f32[1000]) -> f32[1000]",
        "aten::add(f32[1000], f32[1000]) -> f32[1000]",
    )
    rows = [
        {"text": text, "start": 1_000 * n, "end": 1_000 * n + 900} for n, text in enumerate(texts)
    ]
    (found,) = find(on_cpu(rows))
    assert found.time == 1_800
    assert found.saving_most == 900 + 100
    host = found.edit.host
    assert host["factor"].to_list() == pytest.approx([2 / 3, 2 / 3])
    assert found.edit.kernels is None


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 3_000), st.integers(1, 50_000)),
        min_size=1,
        max_size=12,
    )
)
def test_bounds_hold_for_any_order_of_shapes(steps):
    """Against a loop over the rows: which are in chains, all but the longest of each, the gaps between."""
    rows, at, chains, previous = [], 20_000, [], None
    for size, gap, took in steps:
        at += gap
        rows.append(ran(f"aten::mul(f32[{size * 100}], f32[{size * 100}])", at, at + took))
        if previous == size:
            chains[-1].append((gap, took))
        else:
            chains.append([(0, took)])
        previous = size
        at += took
    found = find(on_gpu([PRODUCT, *rows]))
    joined = [one for one in chains if len(one) > 1]
    if not joined:
        assert found == []
        return
    if found == []:
        assert sum(took for one in joined for _, took in one) < 0.01 * (at + 10_000)
        return
    assert found[0].time == sum(took for one in joined for _, took in one)
    most = sum(sum(took for _, took in one) - max(took for _, took in one) for one in joined)
    host = 5_000 * sum(len(one) - 1 for one in joined)
    assert found[0].saving_most == most + host + sum(gap for one in joined for gap, _ in one)
    factors = found[0].edit.kernels[1]
    assert ((factors >= 0) & (factors <= 1)).all()


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        # a residual sum and the relu after it, at the end of each bottleneck: lines 138 and 139
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "torchvision/models/resnet.py:138"),
        # RMSNorm and rotary embeddings written as arithmetic
        ("kineto/qwen1.5_0.5b_h100.json.gz", "modeling_qwen2.py:218"),
        # layers of a recommender: mul and sigmoid (gates)
        ("kineto/ddp_rank3of8_a100_stacks.json.gz", "aten::sigmoid"),
        # no shapes in the file
        ("kineto/ddp_memory_v100.json.gz", None),
        ("kineto/nccl_meta.json.gz", None),
        # attention's kernels are what takes the time; its chains take under 1 %
        ("kineto/timesformer_h100.json.gz", []),
        # a program of matrix products only
        ("xplane/jax_conv_mi300.xplane.pb", []),
    ],
)
def test_real_traces(shared, trace, expected):
    profile = traces.load(shared / trace)
    found = find(profile)
    if expected is None:
        assert isinstance(found, CannotTell)
        assert "record_shapes=True" in found.reason
    elif expected == []:
        assert found == []
    else:
        assert expected in found[0].evidence
        rows, factors = found[0].edit.kernels
        durations = profile.kernels()["duration"].gather(rows)
        assert found[0].time == durations.sum()
        host = found[0].edit.host
        gone = (host["end"] - host["start"]).sum()
        assert 0 < found[0].saving_most - gone < found[0].time + durations.len() * 100_000
        families = profile.kernels()["direction"].gather(rows).unique()
        assert "optimizer" not in families.to_list()
        removed = (durations.to_numpy() * (1 - factors)).sum()
        assert 0 < removed <= found[0].saving_most - gone


def test_the_residual_sums_of_resnet50_are_as_a_loop_over_its_kernels_finds_them(shared):
    profile = traces.load(shared / "kineto/resnet50_nw0_step_span1.pt.trace.json.gz")
    (found,) = find(profile)
    table = profile.kernels().sort("stream", "start").rows(named=True)
    pairs = [
        (one, two)
        for one, two in pairwise(table)
        if one["op"] == "aten::add_" and two["op"] == "aten::clamp_min"
        and one["step"] == two["step"] and one["direction"] == two["direction"] == "forward"
    ]  # fmt: skip
    assert len(pairs) >= 90
    kept = set(found.edit.kernels[0].tolist())
    numbered = profile.kernels().with_row_index("row")
    ids = dict(numbered.select("start", "row").rows())
    assert all({ids[one["start"]], ids[two["start"]]} <= kept for one, two in pairs)


def test_the_evidence_adds_up_to_its_time(shared):
    (found,) = find(traces.load(shared / "kineto/resnet50_nw0_step_span1.pt.trace.json.gz"))
    assert found.rows["time"].sum() <= found.time
    assert found.rows["time"].is_sorted(descending=True)
    assert isinstance(found.rows, pl.DataFrame)
