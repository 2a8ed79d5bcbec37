"""Padding: known where an op packs or pads sequences, and nowhere else."""

from __future__ import annotations

import pytest

from opscope.core.advice.finding import CannotTell
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu

US = 1000
PACK = "aten::_pack_padded_sequence(f32[8,32,16], i64[8]) -> (f32[{},16], i64[32])"


def run(*texts, framework="torch"):
    """Ops of 10 us, one after the other."""
    rows = [
        {"text": text, "start": 10 * US * n, "end": 10 * US * (n + 1)}
        for n, text in enumerate(texts)
    ]
    return on_cpu(rows, framework)


def packed(filled=64):
    """Work on a batch of 8 sequences of at most 32 elements, of which ``filled`` are no padding."""
    return run(
        "aten::relu(f32[8,32,16]) -> f32[8,32,16]",
        "aten::addmm(f32[16], f32[256,16], f32[16,16]) -> f32[256,16]",
        PACK.format(filled),
        "aten::mm(f32[64,64], f32[64,64]) -> f32[64,64]",
    )


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: a batch of 8 × 32 places of which 64 hold an element, then packed", packed)


def find(profile):
    return asked("padding", profile)


def test_the_part_of_the_time_of_work_on_the_batch_that_is_padding():
    (found,) = find(packed())
    # three ops of 10 us, of which three quarters; the product of other sizes does not count
    assert (found.time, found.saving_most) == (22_500, 22_500)
    assert "75.0 % of the places" in found.what
    assert "of 8×32 places 64 hold an element" in found.evidence


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("aten::to_padded_tensor(f32[64,16]) -> f32[8,32,16]", "torch"),
        ("aten::_padded_dense_to_jagged_forward(f32[8,32,16], i64[9]) -> f32[64,16]", "torch"),
        ("RaggedTensorToTensor(i64[2], f32[64,16], f32[], i64[9]) -> f32[8,32,16]", "tensorflow"),
    ],
)
def test_every_op_that_packs_or_pads_shows_it(text, framework):
    (found,) = find(run("aten::relu(f32[8,32,16]) -> f32[8,32,16]", text, framework=framework))
    assert "75.0 %" in found.what


def test_full_batches_are_fine():
    assert find(packed(filled=240)) == []


def test_shapes_of_tokens_and_masks_show_no_padding():
    tokens = "aten::embedding(f32[100,16], i64[8,32]) -> f32[8,32,16]"
    answer = find(run(tokens, "aten::masked_fill(f32[8,32,32], bool[8,1,32]) -> f32[8,32,32]"))
    assert isinstance(answer, CannotTell)
    assert "i64[8,32]" in answer.reason
    other = find(run("aten::relu(f32[8,32,16]) -> f32[8,32,16]"))
    assert isinstance(other, CannotTell)
    assert "no op of the profile shows one" in other.reason
