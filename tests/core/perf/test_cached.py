"""Costs over a cache: by the sums of a step's requests, counted again with loops; experts by a configuration."""

from __future__ import annotations

import itertools
import random

import pytest

from opscope.core import perf
from opscope.core.perf.cached import LENGTHS, WINDOW
from opscope.core.perf.generated import only_moves
from opscope.core.perf.model_config import EXPERTS, Weights, model_config
from opscope.core.schema import OpCall, TensorSpec

BF16 = "bf16"


def attention(requests: list[tuple[int, int]], decode: bool, **params) -> OpCall:
    """vLLM's call for requests of q new tokens and k keys: 8 heads, 2 of keys, 64 elements."""
    new = sum(q for q, _ in requests)
    sums = (len(requests), new, sum(k for _, k in requests), sum(q * q for q, _ in requests),
            sum(q * k for q, k in requests))  # fmt: skip
    told = (0,) * 5 + sums if decode else sums + (0,) * 5
    tensors = tuple(TensorSpec(BF16, (new, heads, 64)) for heads in (8, 2, 2, 8))
    return OpCall(
        "vllm::unified_attention_with_output",
        tensors,
        params=((LENGTHS, told), *params.items()),
    )


def pairs(requests: list[tuple[int, int]], window: int | None = None) -> int:
    """Count the pairs that a causal mask (and a window) leaves, one by one."""
    count = 0
    for q, k in requests:
        for query in range(q):
            place = k - q + query
            first = 0 if window is None else max(0, place - window + 1)
            count += place - first + 1
    return count


@pytest.mark.parametrize("decode", [True, False])
def test_attention_over_a_cache_counts_each_pair_and_reads_each_key_once(decode):
    draw = random.Random(7)
    requests = [(1 if decode else draw.randint(1, 9), draw.randint(10, 40)) for _ in range(6)]
    cost, why = perf.cost(attention(requests, decode))
    assert why is None
    every = sum(q * k for q, k in requests)
    live = pairs(requests)
    assert cost.matrix_flops == 2 * 8 * every * (64 + 64)
    assert cost.matrix_flops - cost.masked_flops == 2 * 8 * live * (64 + 64)
    new = sum(q for q, _ in requests)
    queries, keys = new * 8 * 64 * 2, sum(k for _, k in requests) * 2 * (64 + 64) * 2
    assert (cost.bytes_read, cost.bytes_written) == (queries + keys, queries)
    assert "sliding window is no argument" in cost.note


def test_a_window_masks_at_least_what_it_must():
    requests = [(1, k) for k in (3, 20, 50)]
    cost, _ = perf.cost(attention(requests, True, **{WINDOW: 8}))
    live = (cost.matrix_flops - cost.masked_flops) // (2 * 8 * 128)
    # what is left is a bound: the shortest request has fewer keys than the window
    assert pairs(requests, 8) <= live == 3 * 8
    full, _ = perf.cost(attention(requests, True))
    assert cost.matrix_flops == full.matrix_flops
    assert cost.bytes_read < full.bytes_read
    without, _ = perf.cost(attention(requests, True, **{WINDOW: 0}))
    assert without.bytes == full.bytes
    assert "sliding" not in without.note


def test_without_the_sums_of_a_step_nothing_is_known():
    call = attention([(1, 5)], True)
    cost, why = perf.cost(OpCall(call.name, call.inputs))
    assert cost is None
    assert "lengths" in why
    cost, _ = perf.cost(OpCall(call.name, call.inputs, params=((LENGTHS, (1, 2, 3)),)))
    assert cost is None


def test_the_cache_may_have_another_dtype():
    plain, _ = perf.cost(attention([(1, 500)], True))
    small, _ = perf.cost(attention([(1, 500)], True, cache_dtype="f8e4m3fn"))
    assert plain.bytes_read - small.bytes_read == 500 * 2 * 128


def test_latent_attention_expands_a_prefill_and_not_a_decode():
    """DeepSeek: 4 heads of 192 and 128, latent vectors of 512 and 64."""
    tensors = (TensorSpec(BF16, (3, 4, 192)), TensorSpec(BF16, (3, 512)), TensorSpec(BF16, (3, 1, 64)),
               TensorSpec(BF16, (3, 4 * 128)))  # fmt: skip
    sums = (3, 3, 300, 3, 300)
    for told, each in (((0,) * 5 + sums, 576 + 512), (sums + (0,) * 5, 192 + 128)):
        call = OpCall("vllm::unified_mla_attention_with_output", tensors, params=((LENGTHS, told),))
        cost, _ = perf.cost(call)
        assert cost.matrix_flops == 2 * 4 * 300 * each
        assert cost.bytes_read == 3 * 4 * 192 * 2 + 300 * 576 * 2


GPT = {
    "hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4,
    "num_attention_heads": 64, "num_hidden_layers": 4, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip


def experts(
    tokens: int, facts: tuple[int | str, ...], width: int = 3072, count: int = 32
) -> OpCall:
    inputs = (TensorSpec(BF16, (tokens, width)), TensorSpec(BF16, (tokens, count)))
    return OpCall("vllm::moe_forward", inputs, params=((EXPERTS, facts),))


def test_experts_are_priced_by_the_configuration():
    call = experts(3, (2880, 2880, 32, 4, 0, 3, 4, 32, 1, 1, ""))
    cost, why = perf.cost(call)
    assert why is None
    products = 0
    for _, _ in itertools.product(range(3), range(4)):  # each token by each of its experts
        products += 2 * (2880 * 2880) * 3
    assert cost.matrix_flops == products
    # 12 experts at most are read: 3 matrices of 4 bits with a byte of scale for each 32
    weights = 12 * 3 * 2880 * 2880
    assert cost.bytes_read == 3 * 2880 * 2 + 3 * 32 * 2 + weights // 2 + weights // 32


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (experts(3, (4096, 2880, 32, 4, 0, 3, 4, 32, 1, 1, "")), "hidden size is 4096"),
        (experts(3, (2880, 2880, 64, 4, 0, 3, 4, 32, 1, 1, "")), "number of experts is 64"),
        (experts(3, (2880,)), "weights belong to the layer"),
    ],
)
def test_the_configuration_of_another_model_is_told(call, what):
    cost, why = perf.cost(call)
    assert cost is None
    assert what in why


def test_a_configuration_tells_sizes_windows_and_weights():
    config = model_config(GPT)
    assert (config.hidden, config.inner, config.experts, config.active) == (2880, 2880, 32, 4)
    assert config.windows == (128, 0, 128, 0)
    assert config.weights == Weights(4, 32, 1)
    deepseek = model_config(
        {"text_config": {"hidden_size": 7168, "moe_intermediate_size": 2048, "intermediate_size": 18432,
                         "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
                         "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}}
    )  # fmt: skip
    assert (deepseek.inner, deepseek.shared, deepseek.experts) == (2048, 2048, 256)
    assert deepseek.weights == Weights(8, 128 * 128, 4, "f8e4m3fn")
    assert deepseek.weights.nbytes(128 * 128 * 2) == 128 * 128 * 2 + 8


def compressed(bits: int, kind: str, *inputs: int, **more) -> dict:
    weights = {"num_bits": bits, "type": kind, **more}
    given = {"num_bits": inputs[0], "type": kind} if inputs else None
    group = {"targets": ["Linear"], "weights": weights, "input_activations": given}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("quantization", "weights"),
    [
        (None, Weights(0)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, Weights(4, 16, 1, "f4e2m1")),
        (compressed(8, "float", 8, strategy="channel"), Weights(8, 0, 0, "f8e4m3fn")),
        (
            compressed(8, "float", 8, block_structure=[128, 128]),
            Weights(8, 128 * 128, 4, "f8e4m3fn"),
        ),
        (compressed(4, "float", 4, group_size=16), Weights(4, 16, 1, "f4e2m1")),
        (compressed(4, "int", group_size=128), Weights(4, 128, 2)),
        (compressed(8, "int", 8), Weights(8, 0, 0, "i8")),
        (compressed(8, "int"), Weights(8)),
        (compressed(3, "int"), None),
        (compressed(4, ["int"]), None),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}}, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, None),
    ],
)
def test_how_weights_are_quantised_is_told_or_unknown(quantization, weights):
    assert model_config({**GPT, "quantization_config": quantization}).weights == weights


def test_weights_of_an_unknown_kind_have_flops_and_no_bytes():
    call = experts(3, (2880, 2880, 32, 4, 0, 3, -1, 0, 0, 1, ""))
    cost, _ = perf.cost(call)
    assert (cost.matrix_flops, cost.bytes_read) == (3 * 4 * 2 * 2880 * 2880 * 3, None)
    narrow, _ = perf.cost(experts(3, (2880, 2880, 32, 4, 0, 3, 8, 0, 0, 1, "f8e4m3fn")))
    assert set(narrow.by_dtype) == {"f8e4m3fn"}


def test_shared_experts_of_an_unknown_size_leave_the_layer_unknown():
    call = experts(3, (2880, 2880, 32, 4, 0, 3, 8, 0, 0, 1, ""))
    cost, why = perf.cost(OpCall("vllm::moe_forward_shared", call.inputs, params=call.params))
    assert cost is None
    assert "shared experts" in why


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden_size": "big"},
        {"hidden_size": -1},
        {"hidden_size": True},
        {"hidden_size": 1 << 60},
        {},
    ],
)
def test_wrong_values_of_a_configuration_count_as_absent(wrong):
    assert model_config(wrong).hidden is None


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("_to_copy", True),
        ("constant_pad_nd_moe_forward", True),
        ("_to_copy_cat_view", True),
        ("add__to_copy", False),
        ("moe_forward", False),
        ("", False),
        ("index_select", False),
        ("_".join(["a"] * 200), False),
    ],
)
def test_a_generated_kernel_that_only_moves_data_is_told_by_its_name(name, moves):
    assert only_moves(name) is moves


def test_a_cast_costs_its_bytes_and_no_flops():
    inputs = (TensorSpec("f32", (100, 64)), TensorSpec(BF16, (100, 64)))
    cost, _ = perf.cost(OpCall("triton_poi_fused__to_copy_1", inputs))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (0, 25_600, 12_800)
    assert perf.cost(OpCall("triton_poi_fused_add_1", inputs))[0] is None
