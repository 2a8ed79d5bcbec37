"""Casts that undo each other: only those that keep all values, right after each other, on one thread or stream."""

from __future__ import annotations

import pytest

from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran

US = 1000
WIDEN = "aten::_to_copy(f32[64,64]) -> f64[64,64]"
BACK = "aten::_to_copy(f64[64,64]) -> f32[64,64]"
PRODUCT = "aten::mm(f32[64,64], f32[64,64]) -> f32[64,64]"
COPY = "void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>(int)"


def ops(*texts):
    """Ops of 10 us, one after the other on a CPU's thread."""
    return on_cpu(
        [
            {"text": f"{text} @train.py:7", "start": 10 * US * n, "end": 10 * US * n + 9 * US}
            for n, text in enumerate(texts)
        ]
    )


def double():
    return ops(PRODUCT, WIDEN, BACK, WIDEN, BACK, PRODUCT)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: x.double().float() twice between two products", double)


def find(profile):
    return asked("cast_round_trips", profile)


def test_each_pair_counts_with_both_casts():
    (found,) = find(double())
    assert (found.time, found.saving_most) == (36 * US, 36 * US)
    assert "4 casts go to a wider number format and right back" in found.what
    assert "train.py:7" in found.evidence
    assert found.edit.host["factor"].to_list() == [0.0] * 4


@pytest.mark.parametrize(
    "between",
    [
        (BACK, WIDEN),  # to fewer bits first: values change
        (WIDEN, PRODUCT, BACK),
        (WIDEN, "aten::_to_copy(f64[8,8]) -> f32[8,8]"),
        (WIDEN, "aten::_to_copy(f64[64,64]) -> f16[64,64]"),
        ("aten::_to_copy(f16[64,64]) -> bf16[64,64]", "aten::_to_copy(bf16[64,64]) -> f16[64,64]"),
    ],
)
def test_casts_that_do_something_are_none(between):
    assert find(ops(PRODUCT, *between, PRODUCT)) == []


def test_on_a_gpu_both_are_on_one_stream():
    widen, back = "aten::copy_(f32[64,64], f16[64,64])", "aten::copy_(f16[64,64], f32[64,64])"
    one = [ran(widen, 0, 10_000, COPY), ran(back, 10_000, 20_000, COPY)]
    (found,) = find(on_gpu(one))
    assert found.time == 20_000
    assert find(on_gpu([one[0], ran(back, 10_000, 20_000, COPY, stream=9)])) == []
