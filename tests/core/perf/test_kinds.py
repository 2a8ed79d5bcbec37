"""The kind of work that an op or a kernel is: every family has one, a kernel's name proves its own."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from opscope.core import perf
from opscope.core.perf import kinds
from opscope.core.perf.registry import entries

NAMES = Path(__file__).parent / "kernel_names.csv"
PRODUCTS = {kinds.MATRIX, kinds.ATTENTION, kinds.CONVOLUTION}


def labelled():
    with NAMES.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_family_of_ops_has_a_kind_or_is_asked_by_its_kernels():
    families = {entry.family for entry in entries().values()}
    assert families <= set(kinds.families()) | kinds.UNCLEAR_FAMILIES


def test_a_family_has_one_kind_only():
    with pytest.raises(ValueError, match="gemm already has the kind matrix products"):
        kinds.kind("other products", "", ("gemm",))


@pytest.mark.parametrize(
    ("op", "direction", "expected"),
    [
        ("aten::addmm", "forward", kinds.MATRIX),
        ("aten::_scaled_dot_product_flash_attention", "forward", kinds.ATTENTION),
        ("aten::convolution_backward", "backward", kinds.CONVOLUTION),
        ("aten::native_layer_norm", "forward", kinds.NORMALISATION),
        ("aten::_softmax", "forward", kinds.NORMALISATION),
        ("aten::gelu", "forward", kinds.ELEMENTWISE),
        ("aten::sum", "forward", kinds.REDUCTIONS),
        ("aten::copy_", "forward", kinds.COPIES),
        ("aten::embedding", "forward", kinds.EMBEDDING),
        ("aten::add_", "optimizer", kinds.OPTIMIZER),
        ("c10d::allreduce_", "optimizer", kinds.COMMUNICATION),
        ("nccl:all_reduce", "communication", kinds.COMMUNICATION),
        ("aten::sort", "forward", kinds.OTHER),
        ("MatMul", "forward", kinds.MATRIX),
        ("Conv2D", "forward", kinds.CONVOLUTION),
        ("mine::op", "forward", None),
    ],
)
def test_an_op_has_the_kind_of_its_family_unless_its_direction_says_more(op, direction, expected):
    assert kinds.of_op(op, perf.op_type(op), direction, None) == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ('kind="kLoop", ops="transpose,copy", matrix_flops=0', kinds.COPIES),
        ('kind="kLoop", ops="add,multiply", matrix_flops=0', kinds.ELEMENTWISE),
        ('kind="kInput", ops="add,reduce", matrix_flops=0', kinds.REDUCTIONS),
        ('kind="kCustom", ops="dot,add", matrix_flops=128', kinds.MATRIX),
        ('kind="kCustom", ops="convolution,add"', kinds.CONVOLUTION),
        ('kind="kLoop"', None),
        (None, None),
    ],
)
def test_a_fusion_of_xla_has_the_kind_of_what_it_holds(params, expected):
    assert kinds.of_op("hlo::fusion", "fusion", "forward", params) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", kinds.MATRIX),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", kinds.MATRIX),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>()", kinds.ATTENTION),
        ("void cudnn::cnn::conv2d_grouped_direct_kernel<false>()", kinds.CONVOLUTION),
        ("void cutlass::Kernel<cutlass_80_tensorop_f16_s16816fprop_optimized>()", kinds.CONVOLUTION),
        ("turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1", kinds.CONVOLUTION),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>()", kinds.NORMALISATION),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()", kinds.ELEMENTWISE),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>()", kinds.COPIES),
        ("void at::native::elementwise_kernel<128, direct_copy_kernel_cuda(x)>()", kinds.COPIES),
        ("void at::native::reduce_kernel<512, 1>()", kinds.REDUCTIONS),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", kinds.COMMUNICATION),
        ("void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta()", kinds.EMBEDDING),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>()", kinds.OPTIMIZER),
        ("void at::native::multi_tensor_apply_kernel<BinaryOpScalarFunctor<float>>()", kinds.ELEMENTWISE),
        ("vllm::rotary_embedding_kernel<half>", kinds.ELEMENTWISE),
        ("void fbgemm_gpu::permute_2D_data_kernel<int>()", kinds.COPIES),
        ("triton_poi_fused_add_gelu_3", kinds.ELEMENTWISE),
        ("triton_per_fused_native_layer_norm_1", kinds.NORMALISATION),
        ("triton_red_fused_sum_2", kinds.REDUCTIONS),
        ("triton_poi_fused__to_copy_clone_1", kinds.COPIES),
        ("triton_tem_fused_mm_1", kinds.MATRIX),
        ("void cub::DeviceRadixSortOnesweepKernel<int>()", kinds.OTHER),
        ("triton__0d1d2d", kinds.UNKNOWN),
        ("my_kernel", kinds.UNKNOWN),
        ("", kinds.UNKNOWN),
    ],
)  # fmt: skip
def test_a_kernel_s_name_proves_its_kind_or_none(kernel, expected):
    assert kinds.of_kernel(kernel) == expected


def test_what_uses_tensor_cores_is_a_product_by_its_name():
    """764 names, labelled for another question: a kernel on matrix units multiplies."""
    rows = labelled()
    wrong = [
        row["kernel"]
        for row in rows
        if row["tensor_core"] == "yes" and kinds.of_kernel(row["kernel"]) not in PRODUCTS
    ]
    assert len(rows) > 750
    assert wrong == []


def test_few_real_names_say_nothing():
    names = [row["kernel"] for row in labelled()]
    unknown = [one for one, kind in zip(names, kinds.of_kernels(names), strict=True) if kind == kinds.UNKNOWN]  # fmt: skip
    assert len(unknown) <= 20, unknown


def test_every_kind_says_what_it_means():
    for kind in kinds.kinds().values():
        assert kind.means, kind.name
