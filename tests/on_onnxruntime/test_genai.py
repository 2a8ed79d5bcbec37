"""ONNX Runtime GenAI under `opscope run`: its steps, their tokens, and FLOPs equal to a count by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import opscope

pytest.importorskip("onnxruntime_genai")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

VOCABULARY, HIDDEN, HEADS, KEY_HEADS, EACH = 48, 32, 4, 2, 8
PROMPT, NEW = 10, 6
_NAMES = {
    "inputs": {
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    },
    "outputs": {
        "logits": "logits",
        "present_key_names": "present.%d.key",
        "present_value_names": "present.%d.value",
    },
}


def _weight(name, *shape):
    values = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32) / 8
    return numpy_helper.from_array(values, name)


def _integers(name, values, dtype=np.int64):
    return numpy_helper.from_array(np.array(values, dtype), name)


def model(folder: Path) -> None:
    """Write a decoder of one layer, as GenAI's builder writes them: products, and attention over a buffer."""
    wide = KEY_HEADS * EACH
    cache = [
        *("attended", "present.0.key", "present.0.value"),
        *(
            "queries",
            "keys",
            "values",
            "past_key_values.0.key",
            "past_key_values.0.value",
            "lengths",
            "total",
        ),
    ]
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["x"], "embed"),
        helper.make_node("MatMul", ["x", "wq"], ["queries"], "q"),
        helper.make_node("MatMul", ["x", "wk"], ["keys"], "k"),
        helper.make_node("MatMul", ["x", "wv"], ["values"], "v"),
        helper.make_node("ReduceSum", ["attention_mask", "rows"], ["count"], "count", keepdims=0),
        helper.make_node("Sub", ["count", "one"], ["last"], "last"),
        helper.make_node("Cast", ["last"], ["lengths"], "lengths", to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["shape"], "shape"),
        helper.make_node("Gather", ["shape", "second"], ["long"], "long"),
        helper.make_node("Cast", ["long"], ["total"], "total", to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention", cache[3:], cache[:3], "attention", domain="com.microsoft",
            num_heads=HEADS, kv_num_heads=KEY_HEADS,
        ),
        helper.make_node("MatMul", ["attended", "head"], ["logits"], "lm_head"),
    ]  # fmt: skip
    past = ["batch", KEY_HEADS, "past", EACH]
    of = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            of("input_ids", TensorProto.INT64, ["batch", "n"]),
            of("attention_mask", TensorProto.INT64, ["batch", "all"]),
            of("past_key_values.0.key", TensorProto.FLOAT, past),
            of("past_key_values.0.value", TensorProto.FLOAT, past),
        ],
        [
            of("logits", TensorProto.FLOAT, ["batch", "n", VOCABULARY]),
            of("present.0.key", TensorProto.FLOAT, ["batch", KEY_HEADS, "all", EACH]),
            of("present.0.value", TensorProto.FLOAT, ["batch", KEY_HEADS, "all", EACH]),
        ],
        [
            _weight("embedding", VOCABULARY, HIDDEN), _weight("wq", HIDDEN, HIDDEN),
            _weight("wk", HIDDEN, wide), _weight("wv", HIDDEN, wide),
            _weight("head", HIDDEN, VOCABULARY), _integers("rows", [1]), _integers("one", [1]),
            _integers("second", 1),
        ],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    folder.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "model.onnx")
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": EACH,
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_hidden_layers": 1,
        "num_key_value_heads": KEY_HEADS,
        **_NAMES,
    }
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    described = {
        "model": {
            "type": "llama", "vocab_size": VOCABULARY, "context_length": 64, "decoder": decoder,
            **special,
        },
        "search": {"max_length": 64, "past_present_share_buffer": True, "do_sample": False},
    }  # fmt: skip
    (folder / "genai_config.json").write_text(json.dumps(described))


PROGRAM = """
import numpy as np
import onnxruntime_genai as og

def main():
    model = og.Model(MODEL)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=40, min_length=40, do_sample=False)
    generator = og.Generator(model, params)
    generator.append_tokens(np.arange(3, 3 + PROMPT, dtype=np.int32))
    for _ in range(NEW):
        generator.generate_next_token()
    print(generator.get_sequence(0).tolist())

main()
"""


def _program(folder: Path, text: str) -> Path:
    path = folder / "generate.py"
    head = f"MODEL, PROMPT, NEW = {str(folder / 'model')!r}, {PROMPT}, {NEW}\n"
    path.write_text(head + textwrap.dedent(text))
    return path


def _recorded(folder: Path, text: str = PROGRAM, **env: str):
    """Run the program by `opscope run`, and return its profile and what it printed, and prints alone."""
    model(folder / "model")
    program, out = _program(folder, text), folder / "run.opscope"
    run = [sys.executable, "-m", "opscope", "run", "--no-report", "-o", str(out), str(program)]
    environ = {**opscope_environ(), **env}
    said = [
        subprocess.run(
            words, check=True, capture_output=True, text=True, env=environ, cwd=folder
        ).stdout
        for words in (run, [sys.executable, str(program)])
    ]
    return opscope.load(out), said


def opscope_environ() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


def by_hand(queries: int, keys: int) -> int:
    """FLOPs of the products and the attention of one step, all pairs included."""
    weights = HIDDEN * (HIDDEN + 2 * KEY_HEADS * EACH) + HIDDEN * VOCABULARY
    return 2 * queries * weights + 2 * queries * keys * HEADS * (EACH + EACH)


def test_steps_tokens_and_flops_are_those_of_a_count_by_hand(tmp_path):
    profile, (with_opscope, alone) = _recorded(tmp_path)
    assert with_opscope == alone
    steps = profile.engine_steps()
    assert steps["kind"].to_list() == ["prefill", *["decode"] * (NEW - 1)]
    assert steps["new_tokens"].to_list() == [PROMPT, *[1] * (NEW - 1)]
    assert steps["cached_tokens"].to_list() == [0, *range(PROMPT, PROMPT + NEW - 1)]
    assert steps["source"].unique().to_list() == ["ONNX Runtime GenAI"]
    ops = profile.ops()
    expected = by_hand(PROMPT, PROMPT) + sum(by_hand(1, PROMPT + n) for n in range(1, NEW))
    heavy = ops.filter(pl.col("op").cast(pl.String).is_in(["MatMul", "GroupQueryAttention"]))
    assert len(heavy) == 5 * NEW
    assert heavy["flops"].null_count() == 0
    assert heavy["matrix_flops"].sum() == expected


TALKS = """
import numpy as np
import onnxruntime_genai as og
import sys

def talk(model, rows, more):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=40, min_length=40, do_sample=False, batch_size=rows)
    generator = og.Generator(model, params)
    generator.append_tokens(np.full((rows, PROMPT), 5, np.int32))
    for _ in range(NEW):
        generator.generate_next_token()
    if more:
        generator.append_tokens([7, 8, 9])
        generator.generate_next_token()
    print([generator.get_sequence(row).tolist() for row in range(rows)])

config = og.Config(MODEL)
model = og.Model(config)
talk(model, 2, False)
talk(model, 1, True)
del model
if "opscope" in sys.modules:
    sys.modules["opscope"].shutdown()
# the program's configuration is as it was: this model writes no profile
talk(og.Model(config), 1, False)
"""


def test_batches_longer_talks_and_a_configuration_of_the_programs(tmp_path):
    profile, (with_opscope, alone) = _recorded(tmp_path, TALKS)
    assert with_opscope == alone
    steps = profile.engine_steps()
    batch, talk = steps[:NEW], steps[NEW:]
    assert batch["requests"].to_list() == [2] * NEW
    assert batch["new_tokens"].to_list() == [2 * PROMPT, *[2] * (NEW - 1)]
    assert talk["kind"].to_list() == ["prefill", *["decode"] * (NEW - 1), "prefill"]
    last = talk.row(NEW, named=True)
    assert (last["new_tokens"], last["cached_tokens"]) == (3, PROMPT + NEW)
    products = profile.ops().filter(pl.col("op") == "MatMul")
    weights = HIDDEN * (HIDDEN + 2 * KEY_HEADS * EACH) + HIDDEN * VOCABULARY
    assert products["matrix_flops"].sum() == 2 * weights * int(steps["new_tokens"].sum())
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"model", "generate.py", "run.opscope"}, "a profile in the program's folder"


@pytest.mark.parametrize(
    ("text", "env", "noted"),
    [
        (f"{PROGRAM}\nimport os, sys; sys.stdout.flush(); KEPT and os._exit(0)\n", {}, "before it wrote them"),
        (PROGRAM, {"OPSCOPE_GENAI_NODES": "0"}, None),
    ],
)  # fmt: skip
def test_without_nodes_the_steps_remain(tmp_path, text, env, noted):
    kept = text.replace("    model = og.Model", "    global KEPT\n    KEPT = model = og.Model")
    profile, (with_opscope, alone) = _recorded(tmp_path, kept, **env)
    assert with_opscope == alone
    assert profile.engine_steps()["kind"].to_list() == ["prefill", *["decode"] * (NEW - 1)]
    assert profile.ops().filter(pl.col("op") == "MatMul").is_empty()
    notes = profile.notes()["what"].to_list()
    assert noted is None or any(noted in note for note in notes)
