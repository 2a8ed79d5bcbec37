"""PyProf's short names of kernels, modules and ops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.pyprof import names


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::elementwise_kernel<128, 4, lambda>(int, lambda)", "elementwise_kernel"),
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
        ("_ZN2at6native3addEv", "add"),
        ("at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 1>(float*)", "CatArrayBatchedCopy"),
        ("void at::native::<unnamed>::fused_dropout_kernel<float>(int)", "fused_dropout_kernel"),
        ("cudnn::detail::implicit_convolve_sgemm<float, 128>(int)", "cudnn::detail::implicit_convolve_sgemm"),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("unsigned int f(int)", "unsigned_int_f"),
        ("<lambda>", "<lambda>"),
        ("nat::add<int>", "nat::add"),
        ("", "-"),
    ],
)  # fmt: skip
def test_a_kernel_s_own_name_has_no_arguments_and_no_spaces(name, short):
    assert names.kernel_name(name) == short


@given(st.text(max_size=60))
def test_no_name_has_a_space_or_is_empty(text):
    for made in (names.kernel_name(text), *names.mod_and_op(text, True), *names.mod_and_op(text, False),
                 names.node_op(text), names.word(text)):  # fmt: skip
        assert made
        assert made.split() == [made]


@pytest.mark.parametrize(
    ("name", "marker", "both"),
    [
        ("torch.nn.functional.linear", True, ("torch.nn.functional", "linear")),
        ("Tensor.__mul__", True, ("Tensor", "__mul__")),
        ("f", True, ("na", "f")),
        ("aten::addmm", False, ("aten", "addmm")),
        ("aten::sum.dim_IntList", False, ("aten", "sum")),
        ("sum", False, ("na", "sum")),
        ("Conv2D", False, ("na", "Conv2D")),
        ("fusion.12", False, ("na", "fusion.12")),
    ],
)
def test_module_and_op_of_a_call(name, marker, both):
    assert names.mod_and_op(name, marker) == both


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ViewBackward", "View"),
        ("ConvolutionBackward0", "Convolution"),
        ("torch::autograd::CopySlices", "CopySlices"),
        ("autograd::engine::evaluate_function: MmBackward0", "Mm"),
        ("aten::threshold_backward", "threshold"),
    ],
)
def test_an_autograd_node_is_named_after_what_it_differentiates(name, op):
    assert names.node_op(name) == op


def test_only_nodes_are_nodes():
    assert names.is_node("MmBackward0")
    assert names.is_node("autograd::engine::evaluate_function: MmBackward0")
    assert not names.is_node("aten::convolution_backward")
    assert not names.is_node("aten::mm")
