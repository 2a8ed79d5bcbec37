"""What an engine step tells of the ops inside it: the shared pair of vLLM's traces, and made servers."""

from __future__ import annotations

import json

import polars as pl
import pytest

import opscope
from opscope.errors import BadInput
from opscope.profile import Profile
from tests.made_server import ATTENTION, Step, served

#: The sizes of the model that the shared pair ran, as its configuration has them.
CONFIG = {
    "hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4,
    "num_attention_heads": 64, "num_hidden_layers": 24, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip


@pytest.fixture(scope="module")
def pair(shared):
    names = ("vllm_decode_cudagraph.json.gz", "vllm_decode_cudagraph_capture.json.gz")
    return [shared / "kineto" / name for name in names]


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def flops(profile: Profile) -> dict[str, int]:
    totals = profile.op_totals().group_by("op").agg(pl.col("flops").sum())
    return dict(totals.rows())


def test_all_but_the_experts_of_the_pair_is_known(pair):
    profile = opscope.load(pair)
    assert profile.summary()["flops_share"].item() == pytest.approx(0.330, abs=0.001)
    lacking = profile.missing_costs()
    assert lacking["op"][0] == "vllm::moe_forward"
    assert lacking["share"][0] == pytest.approx(0.669, abs=0.001)
    # Σqk = 55,086 in each of 24 layers of 64 heads of 64, and five for each pair in the softmax
    attention = 24 * (2 * 55_086 * 64 * 128 + 64 * (5 * 55_086 + 32 * 64))
    assert flops(profile)["vllm::unified_attention_with_output"] == attention


def test_the_configuration_prices_the_experts_of_the_pair(pair, config):
    profile = opscope.load(pair, model_config=config)
    assert profile.summary()["flops_share"].item() >= 0.95
    # 32 tokens through 4 experts each, three products of 2880 x 2880
    matrix = 24 * 32 * 4 * 3 * 2 * 2880 * 2880
    totals = profile.op_totals().filter(pl.col("op") == "vllm::moe_forward")
    assert totals["matrix_flops"].sum() == matrix


def test_half_of_the_layers_have_a_window(pair, config):
    whole = opscope.load(pair).efficiency()
    windowed = opscope.load(pair, model_config=config).efficiency()

    def of(frame):
        rows = frame.filter(pl.col("op") == "vllm::unified_attention_with_output")
        return rows["bytes"].unique().sort().to_list()

    (full,) = of(whole)
    short, same = of(windowed)
    assert same == full
    # 32 requests read 128 keys of 8 heads of 64 and as many values, and not all 55,086
    assert full - short == (55_086 - 32 * 128) * 8 * 128 * 2


@pytest.mark.parametrize(
    ("text", "what"),
    [("{", "not JSON"), ("[1]", "is no model's configuration"), ('{"a": 1}', "no hidden_size")],
)
def test_another_file_is_refused_by_name(pair, tmp_path, text, what):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=what) as raised:
        opscope.load(pair, model_config=path)
    assert str(path) in str(raised.value)


def test_the_configuration_of_another_model_leaves_the_experts_unknown(pair, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "num_local_experts": 64}))
    lacking = opscope.load(pair, model_config=path).missing_costs()
    assert lacking["op"][0] == "vllm::moe_forward"


def sums(requests: int, keys: int) -> str:
    return (
        f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)"
        f"_generation_{requests}(sq{requests}sk{keys}sqsq{requests}sqsk{keys})"
    )


def test_equal_calls_in_steps_of_other_lengths_have_other_costs():
    work = ((ATTENTION, 100_000),)
    made = [Step(sums(16, keys), work=work) for keys in (1_000, 2_000, 4_000)]
    ops = Profile(served(made)).ops().filter(pl.col("op_type") == "attention").sort("start")
    assert ops["matrix_flops"].to_list() == [2 * 8 * 128 * keys for keys in (1_000, 2_000, 4_000)]


def test_attention_outside_a_step_or_in_one_without_sums_stays_unknown():
    work = ((ATTENTION, 100_000),)
    made = [
        Step(sums(16, 1_000), work=work),
        Step("execute_context_0(0)_generation_16(16)", work=work),
    ]
    ops = Profile(served(made)).ops().filter(pl.col("op_type") == "attention").sort("start")
    assert ops["matrix_flops"].to_list() == [2 * 8 * 128 * 1_000, None]


FLAT = ("vllm::unified_attention(bf16[16,512], bf16[16,128], bf16[16,128])", ATTENTION[1])
WRITE = (
    "_C_cache_ops::reshape_and_cache_flash(bf16[16,2,64], bf16[16,2,64], bf16[9,16,2,64], bf16[9,16,2,64])",
    "reshape_and_cache_flash_kernel",
)


@pytest.mark.parametrize("source", ["cache", "configuration", None])
def test_heads_in_one_dimension_are_told_apart_by_the_cache_or_the_configuration(source):
    work = [(FLAT, 100_000), *([(WRITE, 5_000)] if source == "cache" else [])]
    trace = served([Step(sums(16, keys), work=work) for keys in (1_000, 2_000)])
    if source == "configuration":
        trace.origin["model_config"] = {"hidden_size": 512, "num_attention_heads": 8}
    profile = Profile(trace)
    ops = profile.ops().filter(pl.col("op") == "vllm::unified_attention").sort("start")
    if source is None:
        assert ops["flops"].to_list() == [None, None]
        assert "size of a head" in profile.missing_costs()["why"][0]
    else:
        by_hand = [8 * (2 * 128 * keys + 5 * keys + 16 * 64) for keys in (1_000, 2_000)]
        assert ops["flops"].to_list() == by_hand


def test_decode_over_a_cache_is_bound_by_memory():
    made = [Step(sums(16, 400_000), work=((ATTENTION, 100_000),)) for _ in range(3)]
    rows = Profile(served(made)).efficiency().filter(pl.col("op").str.contains("attention"))
    assert set(rows["bound"]) == {"memory"}


@pytest.mark.parametrize("window", [0, 128])
def test_steps_with_other_sums_are_priced_together_as_alone(monkeypatch, window):
    """Prefills and decodes of 70 steps each, with sums of their own: to the FLOP and the byte."""
    made = []
    for n in range(70):
        keys = 900 + 37 * n
        made.append(Step(f"execute_32_context_2(sq32sk{keys}sqsq520sqsk{16 * keys + n})_generation_0(sq0sk0sqsq0sqsk0)", tokens=32))  # fmt: skip
        made.append(Step(f"execute_16_context_0(sq0sk0sqsq0sqsk0)_generation_16(sq16sk{keys}sqsq16sqsk{keys})", tokens=16))  # fmt: skip
    trace = served(made)
    if window:
        trace.origin["model_config"] = CONFIG | {"layer_types": ["sliding_attention"]}
    together = Profile(trace).ops()
    monkeypatch.setattr("opscope.core.perf.linear._FEWEST", 10_000)
    alone = Profile(trace).ops()
    assert together.equals(alone)
    attention = together.filter(pl.col("op").str.starts_with("vllm::"))
    assert attention["flops"].n_unique() > 70
