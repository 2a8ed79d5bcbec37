"""Compilations after the first: by torch.compile's numbers, else by the step they are in."""

from __future__ import annotations

import pytest

from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu

MS = 1_000_000


def training(texts, steps=6, framework="torch", origin=None):
    """Steps of 100 ms, each with an op of a shape of its own; ``texts``: (step, text) of compilations of 10 ms."""
    rows, at = [], {}
    for step in range(steps):
        start = 100 * MS * step
        rows.append(
            {"text": f"step {step}", "start": start, "end": start + 99 * MS, "category": "step"}
        )
        shape = f"f32[{step + 1},8]"
        rows.append(
            {
                "text": f"aten::relu({shape}) -> {shape}",
                "start": start + 90 * MS,
                "end": start + 91 * MS,
            }
        )
    for step, text in texts:
        start = 100 * MS * step + 20 * MS * at.setdefault(step, 0) + MS
        at[step] += 1
        rows.append({"text": text, "start": start, "end": start + 10 * MS, "category": "phase"})
    return on_cpu(rows, framework, origin)


def versions():
    """A function that is compiled anew in four steps, with its backward pass."""
    texts = [(n, f"compile 0/{n} Net.forward @net.py:12") for n in range(5)]
    return training(texts + [(n, f"compile 0/{n} backward") for n in range(5)])


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: a batch of another size in each step, dynamic=False", versions)


def find(profile):
    return asked("recompilations", profile)


def test_versions_of_a_function_after_its_first():
    (found,) = find(versions())
    assert (found.time, found.saving_least, found.saving_most) == (80 * MS, 0, 80 * MS)
    assert "compiled again 8 times" in found.what
    assert "net.py:12 (8 compilations, 80.0 ms)" in found.evidence
    assert "aten::relu(f32[2,8]) (f32[3,8]) (f32[4,8]) (f32[5,8])" in found.evidence
    assert found.confidence == "high"
    assert "mark_dynamic" in found.recommendation
    host = found.edit.host
    assert (host["end"] - host["start"]).sum() == 80 * MS
    assert set(host["factor"]) == {0.0}
    assert found.rows["time"].sum() == 80 * MS


def test_one_more_version_is_how_torch_compile_learns_which_size_changes():
    assert find(training([(0, "compile 0/0 f"), (1, "compile 0/1 f")])) == []
    # two functions, one more version each
    assert (
        find(
            training(
                [
                    (0, "compile 0/0 f"),
                    (1, "compile 0/1 f"),
                    (0, "compile 1/0 g"),
                    (1, "compile 1/1 g"),
                ]
            )
        )
        == []
    )


def test_compilations_without_numbers_count_by_step():
    (found,) = find(training([(n, "compile") for n in range(5)], framework="jax"))
    # the first two steps may compile
    assert found.time == 30 * MS
    assert "jax.jit" in found.recommendation
    assert find(training([(0, "compile"), (1, "compile")], framework="jax")) == []
    # a validation that begins late
    assert find(training([(0, "compile"), (3, "compile"), (3, "compile")], framework="jax")) == []


@pytest.mark.parametrize(
    ("framework", "word"), [("tensorflow", "reduce_retracing"), ("mindspore", "set_inputs")]
)
def test_the_recommendation_is_for_the_users_framework(framework, word):
    (found,) = find(training([(n, "compile") for n in range(5)], framework=framework))
    assert word in found.recommendation


def test_without_a_change_of_shape_none_is_named():
    rows = [
        {"text": f"compile 0/{n} f", "start": 10 * n, "end": 10 * n + 5, "category": "phase"}
        for n in range(4)
    ]
    (found,) = find(on_cpu(rows))
    assert "no change of shape was seen" in found.evidence
    assert found.confidence == "medium"


def test_nested_compilations_count_once():
    rows = [
        {"text": f"compile 0/{n} f", "start": n, "end": 100 - n, "category": "phase"}
        for n in range(4)
    ]
    (found,) = find(on_cpu(rows))
    assert found.time == 98


def test_who_does_not_record_compilations_cannot_tell():
    op = {"text": "aten::add(f32[4])", "start": 0, "end": 9}
    assert isinstance(find(on_cpu([op])), CannotTell)
    region = {"text": '"Torch-Compiled Region: 0/3"()', "start": 10, "end": 19}
    answer = find(on_cpu([op, region]))
    assert "up to 4 versions" in answer.reason
    # opscope records every compilation: none there was none
    assert find(on_cpu([op], origin={"format": "opscope-recording"})) == []


def test_too_few_steps_tell_nothing_of_compilations_without_numbers():
    assert isinstance(find(training([(0, "compile"), (1, "compile")], steps=2)), CannotTell)


@pytest.mark.parametrize(
    "trace",
    ["kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "kineto/vision_transformer_rank0.json.gz",
     "kineto/triton_example.json.gz", "xplane/jax_conv_mi300.xplane.pb", "mindspore/msprof_device0",
     "onnxruntime/resnet_inference_gemmini.json", "nsys_more/fuser_h200_test_matmul.sqlite"],
)  # fmt: skip
def test_no_shared_trace_was_recorded_with_its_compilations(shared, trace):
    assert isinstance(find(traces.load(shared / trace)), CannotTell)
