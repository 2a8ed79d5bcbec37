"""Names in a narrow column: short where they are alike, whole where that tells them apart."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opscope.core.question.names import kernel, layer_patterns, shortened

KERNELS = Path(__file__).parents[1] / "core" / "perf" / "kernel_names.csv"
CUTLASS = (
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_{}_align1>"
    "(cutlass_80_tensorop_s1688gemm_256x64_16x4_{}_align1::Params)"
)
VECTORIZED = (
    "void at::native::vectorized_elementwise_kernel<4, {}, at::detail::Array<char*, 3> >"
    "(int, {}, at::detail::Array<char*, 3>)"
)
FUNCTORS = (
    "at::native::CUDAFunctor_add<float>",
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >",
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::DivFunctor<float> >",
    "at::native::rsqrt_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#2}",
)
word = st.text("abcdefgh_", min_size=1, max_size=12)
name = st.lists(word, min_size=1, max_size=12).map("::".join)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_kernel_keeps_its_functor_and_its_tile_where_others_have_another(width):
    names = [VECTORIZED.format(one, one) for one in FUNCTORS]
    names += [CUTLASS.format(one, one) for one in ("tn", "nt", "nn")]
    short = shortened([kernel(one) for one in names], width, parts="words")
    told = ("CUDAFunctor_add", "Mul", "Div", "rsqrt_kernel_cuda", "tn", "nt", "nn")
    for text, tells in zip(short, told, strict=True):
        assert len(text) <= width
        assert tells in text


def test_a_kernel_loses_its_signature_and_the_namespaces_that_all_have():
    one = VECTORIZED.format(FUNCTORS[0], FUNCTORS[0])
    assert (
        kernel(one) == "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, Array<char*, 3>>"
    )
    assert kernel(CUTLASS.format("tn", "tn")) == (
        "cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>"
    )
    assert kernel("void k<(int)128, (bool)0>(T1 *, int)") == "k<128, 0>"
    assert kernel("_Z6squarePfi") == "square"
    assert kernel("ncclKernel_SendRecv(ncclDevComm*, ncclWork*)") == "ncclKernel_SendRecv"
    assert kernel("(odd") == "(odd"
    assert kernel(None) == "–"


def real_kernels():
    with KERNELS.open(encoding="utf-8") as file:
        return [row["kernel"] for row in csv.DictReader(file)]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_760_real_kernels_stay_apart_in_any_column(width):
    names = list(dict.fromkeys(map(kernel, real_kernels())))
    assert len(names) > 750
    short = shortened(names, width, parts="words")
    assert max(map(len, short)) <= width
    assert len(set(short)) == len(names)


@pytest.mark.parametrize("parts", ["text", "words", "arguments", "frames"])
@given(texts=st.lists(name | st.text(max_size=60), max_size=6), width=st.integers(8, 60))
@example(texts=["_________", "__a___::_::_::_", "_______::_::_::_"], width=8)
def test_names_fit_and_those_that_differ_are_shown_as_different(parts, texts, width):
    for cut in ("end", "start"):
        short = shortened(texts, width, cut, parts)
        assert all(len(one) <= width for one in short)
        assert len(set(short)) == len(set(texts))
        fit = [one for one in texts if len(one) <= width]
        assert [one for one, text in zip(short, texts, strict=True) if len(text) <= width] == fit


def test_what_a_text_counts_at_its_end_stays():
    inputs = "bf16[8944,1024], bf16[1024,2816]{0,1} and 5 others"
    assert shortened([inputs], 34, parts="arguments") == ["bf16[8944,1024], … and 5 others"]
    op = "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>, backward"
    (short,) = shortened([op], 40, parts="words")
    assert short.endswith(", backward")
    assert "CppNode<SplitLookupFunction_" in short


def test_a_path_keeps_its_end_and_a_frame_its_line():
    layer = "Qwen2Model_0/Qwen2DecoderLayer_*/Qwen2MLP_*/Linear_* (72)"
    assert shortened([layer], 32, "start", "words") == ["…Qwen2MLP_*/Linear_* (72)"]
    source = "modeling_qwen2.py:218 < train_my_language_model.py:20"
    assert shortened([source], 30, parts="frames") == ["modeling_qwen2.py:218 < …"]


def test_only_numbers_in_which_layers_differ_become_a_star():
    layers = [f"Qwen2Model/layers.{n}/Qwen2MLP" for n in range(3)]
    made = layer_patterns([*layers, "Qwen2Model/norm"])
    assert set(made.values()) == {"Qwen2Model/layers.*/Qwen2MLP", "Qwen2Model/norm"}
    assert layer_patterns(["h.0.conv1", "h.1.conv1", "h.1.conv2"])["h.1.conv1"] == "h.*.conv*"
