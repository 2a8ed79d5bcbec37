"""``opscope run`` on generate of transformers with a tiny model of random weights: phases, tokens, and FLOPs as
counted by hand. CI's environments lack transformers: by hand in one that has it beside PyTorch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import opscope

pytest.importorskip("transformers", reason="transformers is in none of CI's environments")
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, WORDS = 64, 128, 2, 4, 2, 256
BATCH, PROMPT, NEW, ROUNDS = 2, 16, 9, 3
PROGRAM = f"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size={HIDDEN}, intermediate_size={INNER}, num_hidden_layers={LAYERS},
                     num_attention_heads={HEADS}, num_key_value_heads={KV_HEADS}, vocab_size={WORDS})
config._attn_implementation = "sdpa"
model = LlamaForCausalLM(config).eval()
prompts = torch.randint(1, {WORDS}, ({BATCH}, {PROMPT}))
for _ in range({ROUNDS}):
    model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens={NEW},
                   min_new_tokens={NEW}, do_sample=False, pad_token_id=0)
"""


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    (folder / "generate.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "-o",
        "run.opscope",
        "--",
        sys.executable,
        "generate.py",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return opscope.load(folder / "run.opscope")


def test_steps_are_the_prefills_and_decodes_of_each_round(profile):
    steps = profile.engine_steps()
    decodes = NEW - 1
    assert steps["kind"].to_list() == (["prefill"] + ["decode"] * decodes) * ROUNDS
    assert steps["new_tokens"].to_list() == ([BATCH * PROMPT] + [BATCH] * decodes) * ROUNDS
    cached = [0, *(BATCH * (PROMPT + number) for number in range(decodes))]
    assert steps["cached_tokens"].to_list() == cached * ROUNDS


def test_products_have_the_flops_that_are_counted_by_hand(profile):
    key_size = HIDDEN // HEADS * KV_HEADS
    weights = LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * key_size + 3 * HIDDEN * INNER)
    tokens = ROUNDS * BATCH * (PROMPT + NEW - 1)
    answers = ROUNDS * BATCH * NEW  # logits of the last token alone
    totals = profile.op_totals()
    products = totals.filter(totals["op"] == "aten::mm")
    assert products["flops"].sum() == 2 * (tokens * weights + answers * HIDDEN * WORDS)
    assert totals["flops"].null_count() == 0
