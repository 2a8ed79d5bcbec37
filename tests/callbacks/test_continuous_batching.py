"""Continuous batching of transformers runs for real: its steps, their requests, and FLOPs counted by hand."""

from __future__ import annotations

import polars as pl
import pytest

import opscope

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from opscope.backends import begin
from opscope.core.capture import session

api = pytest.importorskip("transformers.generation.continuous_batching.continuous_api")
pytestmark = pytest.mark.usefixtures("unobserved")

HIDDEN, INNER, LAYERS, HEADS, KEY_HEADS, VOCABULARY = 64, 128, 2, 4, 2, 128
PROMPTS, NEW = (10, 7, 20), 6


def generate(new: int = NEW):
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, vocab_size=VOCABULARY,
        max_position_embeddings=512,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    options = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)
    prompts = [list(range(1, 1 + size)) for size in PROMPTS]
    # without it the cache is as large as half of the memory
    small = ContinuousBatchingConfig(num_blocks=64, page_size=16, max_batch_tokens=64)
    outputs = model.generate_batch(
        prompts,
        generation_config=options,
        continuous_batching_config=small,
        progress_bar=False,
    )
    return [output.generated_tokens for output in outputs.values()]


@pytest.fixture
def recorded(tmp_path):
    opscope.init()
    begin(tmp_path / "run", "recorder")
    try:
        tokens = generate()
    finally:
        session.stop()
    return opscope.load(tmp_path / "run"), tokens


def test_each_step_tells_its_requests_and_tokens(recorded):
    profile, tokens = recorded
    assert [len(each) for each in tokens] == [NEW] * len(PROMPTS)
    steps = profile.engine_steps()
    assert steps["kind"].to_list() == ["prefill", *["decode"] * (NEW - 1)]
    assert steps["requests"].to_list() == [len(PROMPTS)] * NEW
    assert steps["new_tokens"].to_list() == [sum(PROMPTS), *[len(PROMPTS)] * (NEW - 1)]
    in_cache = [sum(PROMPTS) + len(PROMPTS) * n for n in range(NEW - 1)]
    assert steps["cached_tokens"].to_list() == [0, *in_cache]
    assert steps["sum_qk"][0] == sum(size * size for size in PROMPTS)
    assert steps["source"].unique().to_list() == ["transformers"]


def test_the_methods_are_put_back_and_the_tokens_are_the_same(recorded):
    _, tokens = recorded
    assert api.ContinuousBatchProcessor._generation_step.__module__ == api.__name__
    assert "opscope" not in repr(api.ContinuousBatchProcessor._generation_step.__code__)
    assert generate() == tokens


def by_hand(tokens: int, keys: int) -> int:
    """FLOPs of the products and of the attention of a step: one mask over the keys of all requests."""
    wide = HIDDEN * KEY_HEADS // HEADS
    layer = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * wide + 3 * HIDDEN * INNER
    attention = HEADS * tokens * keys * 4 * (HIDDEN // HEADS)
    head = 2 * len(PROMPTS) * HIDDEN * VOCABULARY
    return LAYERS * (2 * tokens * layer + attention) + head


def test_the_flops_of_each_step_are_those_of_a_count_by_hand(recorded):
    profile, _ = recorded
    ops = profile.ops().filter(pl.col("matrix_flops") > 0)
    begins = profile.engine_steps()["start"].to_numpy()
    step = begins.searchsorted(ops["start"].to_numpy(), side="right") - 1
    flops = ops.group_by(pl.Series("step", step)).agg(pl.col("matrix_flops").sum()).sort("step")
    new, asked = len(PROMPTS), sum(PROMPTS)
    decodes = [by_hand(new, asked + new * n) for n in range(1, NEW)]
    assert flops["matrix_flops"].to_list() == [by_hand(asked, asked), *decodes]
