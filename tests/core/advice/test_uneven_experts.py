"""Uneven experts: by the splits of all-to-alls, by layers named after experts, and where nothing tells."""

from __future__ import annotations

import json

import polars as pl
import pytest

from opscope.core.advice.detectors.uneven_experts import DETECTOR
from opscope.core.advice.finding import CannotTell
from opscope.profile import Profile
from tests import traces
from tests.core.advice.job_rows import kernel, one, profile, ranged
from tests.made_server import PRODUCT, US, Step, served

MS = 1_000_000
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgs)"


def dispatch(*splits, named=True):
    """All-to-alls out and back, of which each rank gets so many tokens."""
    kernels = []
    for number, sizes in enumerate(splits):
        even = [sum(sizes) // len(sizes)] * len(sizes)
        for back in (False, True):
            attrs = {
                "collective": "all_to_allv",
                "in_split": str(even if back else list(sizes)),
                "out_split": str(list(sizes) if back else even),
            }
            at = (4 * number + 2 * back) * MS
            kernels.append(kernel(at, at + MS, SEND_RECV, attrs=json.dumps(attrs)))
    text = "moe.experts" if named else "embedding"
    return profile(kernels=kernels, ranges=[ranged(0, 100 * MS, text, "layer")])


def skewed():
    return dispatch((700, 100, 100, 100), (400, 200, 200, 200))


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: two layers of experts on four ranks", skewed)


def test_splits_are_compared_with_their_mean_in_both_ways():
    found = one(DETECTOR, skewed())
    # 700 of a mean of 250, and 400 of 250
    assert f"{(2.8 + 1.6) / 2:.2f} times the mean" in found.what
    assert "2.80 at most" in found.what
    assert (found.saving_least, found.saving_most) == (0, None)
    assert "4 all-to-alls of 1 ranks" in found.evidence


def layers(*rows, ranks=None):
    ranges = []
    for expert, many in enumerate(rows):
        at = 10 * expert * MS
        ranges.append(ranged(at, at + 5 * MS, f"layers.0.experts.{expert}", "layer"))
        call = f"aten::mm(f32[{many},64], f32[64,64]) -> f32[{many},64]"
        ranges.append(ranged(at + MS, at + 2 * MS, call, "forward"))
    processes = [{"process": 0, "rank": 0, "world_size": ranks}]
    return profile(ranges=ranges, processes=processes)


def test_layers_of_experts_are_compared_by_flops():
    found = one(DETECTOR, layers(300, 100, 100, 100))
    assert "expert 0 does 2.00 times the mean of 4 experts" in found.what
    assert found.saving_most == 0, "on one rank experts run one after another"
    assert found.rows["layer"].to_list() == ["layers.0.experts"]


def test_even_experts_are_nothing_to_change():
    assert DETECTOR.find(layers(100, 110, 90, 100)) == []
    assert DETECTOR.find(dispatch((100, 100, 110, 90))) == []
    assert DETECTOR.find(profile(ranges=[ranged(0, 9, "aten::mm(f32[8,8], f32[8,8])")])) == []


def test_splits_that_are_cut_or_no_numbers_are_left_out():
    texts = ["[1, 2, ..., 3]", "nothing", '{"a": 1}', "[1.5, 2]", "[" * 5000, "[]"]
    kernels = [
        kernel(0, 9, SEND_RECV, attrs=json.dumps({"collective": "all_to_all", "in_split": text}))
        for text in texts
    ]
    kernels.append(kernel(0, 9, SEND_RECV, attrs='{"collective": "all_to_all", "in_split": '))
    made = profile(kernels=kernels, ranges=[ranged(0, 100, "moe_layer", "layer")])
    assert isinstance(DETECTOR.find(made), CannotTell)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (profile(ranges=[ranged(0, 9, "aten::_grouped_mm(bf16[64,64], bf16[8,64,64], i32[8])")]),
         "no trace records"),
        (profile(), "no ops or ranges"),
    ],
)  # fmt: skip
def test_where_it_cannot_be_told(made, why):
    answer = DETECTOR.find(made)
    assert isinstance(answer, CannotTell)
    assert why in answer.reason


MOE = ("vllm::moe_forward(bf16[{n},512], bf16[{n},8])", "fused_moe_kernel")
DISPATCH = ("deepep::dispatch(bf16[{n},512])", "deep_ep::internode_ll::dispatch<true>")


def expert_parallel(*times, products=(200, 200, 200, 200), exchanges=True):
    """A server on as many ranks: ten decodes, with the experts' time (µs) of each rank."""
    traces_of_ranks = []
    for rank, (experts, product) in enumerate(zip(times, products, strict=False)):
        work = [
            (PRODUCT, product * US),
            *([(DISPATCH, 50 * US)] if exchanges else []),
            (MOE, experts * US),
        ]
        steps = [
            Step("execute_context_0(0)_generation_16(16)", 2_000 * US, work=work) for _ in range(10)
        ]
        traces_of_ranks.append(served(steps, rank))
    first = traces_of_ranks[0]
    tables = ("ranges", "calls", "kernels", "devices", "processes")
    joined = {name: pl.concat([trace[name] for trace in traces_of_ranks]) for name in tables}
    ranks = joined["processes"]["process"]
    joined["processes"] = joined["processes"].with_columns(
        ranks.alias("rank"), pl.lit(len(times), pl.Int32).alias("world_size")
    )
    return Profile(first.replace(**joined))


def test_a_rank_whose_experts_are_late_is_named():
    found = one(DETECTOR, expert_parallel(300, 300, 700, 300))
    assert "experts of rank 2 take 1.75 times the mean of 4 ranks" in found.what
    assert "10 steps" in found.evidence
    assert found.saving_most == 10 * (700 - 400) * US


def test_a_late_expert_counts_from_a_quarter_beyond_the_mean():
    """Of 310, 229, 229 and 229 us the first is 1.24 times the mean; of 316, 228, 228, 228 us 1.26 times."""
    assert DETECTOR.find(expert_parallel(310, 229, 229, 229)) == []
    (found,) = DETECTOR.find(expert_parallel(316, 228, 228, 228))
    assert "1.26 times the mean" in found.what


def test_even_experts_of_a_server_are_left_alone():
    assert list(DETECTOR.find(expert_parallel(300, 310, 290, 300))) == []


def test_a_rank_that_is_slow_in_all_it_does_has_no_late_expert():
    made = expert_parallel(300, 300, 700, 300, products=(200, 200, 500, 200))
    assert list(DETECTOR.find(made)) == []


def test_ranks_that_exchange_no_tokens_wait_for_no_expert():
    assert isinstance(
        DETECTOR.find(expert_parallel(300, 300, 700, 300, exchanges=False)), CannotTell
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        # embeddings of recommendation models go by all-to-all
        ("ddp_rank3of8_a100_stacks", "tokens to experts"),
        ("sampled_rank0", "tokens to experts"),
        # vLLM's experts are one fused kernel
        ("vllm_decode_cudagraph_capture", "no trace records"),
    ],
)
def test_real_traces_that_do_not_tell(shared, name, why):
    answer = DETECTOR.find(traces.load(shared / "kineto" / f"{name}.json.gz"))
    assert isinstance(answer, CannotTell)
    assert why in answer.reason


def test_a_model_without_experts_has_none(shared):
    loaded = traces.load(shared / "kineto" / "resnet50_nw0_step_span1.pt.trace.json.gz")
    assert DETECTOR.find(loaded) == []
