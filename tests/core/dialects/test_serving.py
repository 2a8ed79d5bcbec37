"""The names of engine steps that inference servers write: kind, requests, tokens and sums, by version."""

from __future__ import annotations

import pytest

from opscope.core.capture.engine_kind import range_name
from opscope.core.dialects.serving import (
    DECODE,
    DRAFT,
    IDLE,
    MIXED,
    NOTHING,
    PREFILL,
    VERIFY,
    Share,
    engine_step,
    kind,
)


@pytest.mark.parametrize(
    ("text", "server", "kind", "prefill", "decode"),
    [
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
            "vLLM", DECODE, NOTHING, Share(32, 32, 55086, 32, 55086),
        ),
        (
            "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)",
            "vLLM", MIXED, Share(2, 6144, 7144, 20971520, 23019520), Share(3, 3, 6144, 3, 6144),
        ),
        ("execute_context_1(888_788544)_generation_0(0)", "vLLM", PREFILL, Share(1, 888, None, 888**2), NOTHING),
        ("execute_context_2(90)_generation_7(7)", "vLLM", MIXED, Share(2, 90), Share(7, 7, None, 7)),
        ("execute_context_0(0)_generation_8(24)", "vLLM", VERIFY, NOTHING, Share(8, 24)),
        ("execute_context_0(0)_generation_0(0)", "vLLM", IDLE, NOTHING, NOTHING),
        ("execute_new_1_cached_31", "vLLM", MIXED, Share(1), Share(31)),
        ("step[EXTEND bs=2 toks=14721]", "SGLang", PREFILL, Share(2, 14721), NOTHING),
        ("step[DECODE bs=64]", "SGLang", DECODE, NOTHING, Share(64, 64, None, 64)),
        ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]",
            "SGLang", VERIFY, NOTHING, Share(64, 128, 131072, 256, 262144)),
        ("step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]",
            "SGLang", MIXED, Share(1, 5, 8, 25, 40), Share(1, 1, 12, 1, 12)),
        # as SGLang's own test of these names has them: the batch or toks says Σq
        ("step[DECODE bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]", "SGLang", DECODE, NOTHING, Share(2, 2, 30, 2, 30)),
        ("step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]", "SGLang", PREFILL, Share(2, 12, 20, 80, 120),
            NOTHING),
        ("step[MIXED bs=1 c=1 g=0 c_sq=3 c_sk=3 c_sqsq=9 c_sqsk=9 g_sq=0 g_sk=0 g_sqsq=0 g_sqsk=0]",
            "SGLang", PREFILL, Share(1, 3, 3, 9, 9), NOTHING),
        ("step[MIXED bs=2]", "SGLang", MIXED, Share(), Share()),
        ("step[TARGET_VERIFY bs=32]", "SGLang", VERIFY, NOTHING, Share(32)),
        ("step[DRAFT_EXTEND bs=3]", "SGLang", DRAFT, NOTHING, Share(3)),
        # its requests are past their prompts, but SGLang writes the sums as those of a prefill
        ("step[DRAFT_EXTEND_V2 bs=4 c_sq=16 c_sqsq=64 c_sqsk=16000 c_sk=4000]",
            "SGLang", DRAFT, NOTHING, Share(4, 16, 4000, 64, 16000)),
        ("step[IDLE bs=0]", "SGLang", IDLE, NOTHING, NOTHING),
        ("prefill[bs=2 tok=14721 ctx=[7803, 6918] sqsq=108745533 sqsk=108745533 sk=14721]",
            "ATOM", PREFILL, Share(2, 14721, 14721, 108745533, 108745533), NOTHING),
        ("decode[bs=117/128 tok=117 d=117]", "ATOM", DECODE, NOTHING, Share(117, 117, None, 117)),
        ("[Executor] _forward_step 12: 0 ctx reqs, 16 gen reqs", "TensorRT-LLM", DECODE, NOTHING,
            Share(16, 16, None, 16)),
        ("[Executor] _forward_step 7: 1 ctx reqs, 640 ctx tokens, 16 gen reqs", "TensorRT-LLM", MIXED,
            Share(1, 640, None, 640**2), Share(16, 16, None, 16)),
        ("[Executor] _forward_step: 2 ctx reqs, 0 gen reqs", "TensorRT-LLM", PREFILL, Share(2), NOTHING),
    ],
)  # fmt: skip
def test_a_name_tells_kind_requests_tokens_and_sums(text, server, kind, prefill, decode):
    step = engine_step(text)
    assert (step.server, step.kind) == (server, kind)
    assert (step.prefill, step.decode) == (prefill, decode)


@pytest.mark.parametrize(
    "text",
    ["capture_128_decode", "capture_256_mixed_prefill", "step[OTHER bs=1]", "decoder.layers.3",
     "prefill", "execute_context", "context_1" * 200, "generation_7"],
)  # fmt: skip
def test_other_ranges_are_no_engine_steps(text):
    assert engine_step(text) is None


def test_the_batch_of_a_graph_is_told_from_its_requests():
    assert engine_step("decode[bs=117/128 tok=117 d=117]").padded == 128


def test_sums_that_no_requests_have_are_left_out():
    """800 tokens of one request have Σq² = 640,000, whatever the name says; of two at most that."""
    assert engine_step("execute_context_1(800_788544)_generation_0(0)").prefill.qq == 640_000
    assert engine_step("execute_context_2(800_788544)_generation_0(0)").prefill.qq is None
    assert engine_step("execute_context_2(800_340000)_generation_0(0)").prefill.qq == 340_000


def test_what_the_adapters_write_is_what_the_requests_had():
    """Two requests in a prefill, one of them with a cached prefix, and one that decodes."""
    name = range_name("transformers", [(10, 10), (4, 20)], [(1, 33)])
    step = engine_step(name)
    assert (step.server, step.kind, kind(name)) == ("transformers", MIXED, MIXED)
    assert step.prefill == Share(2, 14, 30, 100 + 16, 100 + 80)
    assert step.decode == Share(1, 1, 33, 1, 33)
    alone = engine_step(range_name("onnxruntime_genai", [], [(1, 7)] * 2))
    assert (alone.server, alone.kind, alone.decode.qk) == ("ONNX Runtime GenAI", DECODE, 14)


def test_a_request_that_is_not_new_may_be_in_its_prefill():
    assert engine_step("execute_new_0_cached_4").confidence < 1
    assert engine_step("execute_new_4_cached_0").confidence == 1


def test_numbers_that_no_server_has_are_not_read():
    """Sums over many steps must not overflow."""
    many = 10**17
    assert engine_step(f"execute_context_1({many})_generation_0(0)").prefill.queries is None
    assert engine_step(f"step[DECODE bs={many}]").decode.requests is None
