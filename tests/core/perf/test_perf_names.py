"""Ops under the names of TensorFlow, Keras, ONNX, MindSpore and HLO count as PyTorch's of equal shapes."""

from __future__ import annotations

import pytest

from opscope.core import perf
from opscope.core.rangetext import parse

#: (PyTorch's call, the same work under other names). Layouts differ: channels last, weights [k, k, I, O].
SAME = [
    # products
    ("aten::mm(f32[8,3], f32[3,5])", [
        "MatMul(f32[8,3], f32[3,5])", "MatMul(f32[3,8], f32[3,5]) {transpose_a=true}",
        "MatMul(f32[8,3], f32[5,3]) {transpose_b=true}", "Gemm(f32[8,3], f32[3,5])", "Mm(f32[8,3], f32[3,5])",
        "Gemm(f32[8,3], f32[5,3]) {transB=1}", "MatMulV2(f32[8,3], f32[3,5])", "Dense(f32[8,3], f32[5,3])",
        "XlaEinsum(f32[8,3], f32[3,5]) {equation=\"ab,bc->ac\"}", "Einsum([f32[8,3], f32[3,5]]) {equation=\"ij,jk\"}",
        "hlo::dot(f32[8,3], f32[3,5]) -> f32[8,5] {lhs_contracting_dims=[1], rhs_contracting_dims=[0]}",
        "hlo::custom-call:dot(f32[8,3], f32[3,5]) -> f32[8,5] {lhs_contracting_dims=[1], rhs_contracting_dims=[0]}",
    ]),
    ("aten::bmm(f32[2,8,3], f32[2,3,5])", [
        "BatchMatMulV2(f32[2,8,3], f32[2,3,5])", "BatchMatMul(f32[2,3,8], f32[2,3,5]) {adj_x=true}",
        "BatchMatMulV3(f32[2,8,3], f32[2,5,3]) {adj_y=true}", "Bmm(f32[2,8,3], f32[2,3,5])",
        "hlo::dot(f32[2,8,3], f32[2,3,5]) -> f32[2,8,5] {lhs_contracting_dims=[2], rhs_contracting_dims=[1], "
        "lhs_batch_dims=[0], rhs_batch_dims=[0]}",
    ]),
    ("aten::addmm(f32[5], f32[8,3], f32[3,5])", ["Gemm(f32[8,3], f32[3,5], f32[5])", "_FusedMatMul(f32[8,3], f32[3,5], f32[5])"]),
    # convolutions: NCHW with OIHW, NHWC with HWIO, HLO's labels
    ("aten::conv2d(f32[8,3,28,28], f32[6,3,5,5]) {stride=2, padding=2}", [
        "Conv2D(f32[8,28,28,3], f32[5,5,3,6]) -> f32[8,14,14,6] {strides=[1, 2, 2, 1], data_format=\"NHWC\"}",
        "Conv2D(f32[8,3,28,28], f32[5,5,3,6]) -> f32[8,6,14,14] {data_format=\"NCHW\"}",
        "Conv(f32[8,3,28,28], f32[6,3,5,5]) {kernel_shape=[5, 5], strides=[2, 2], pads=[2, 2, 2, 2]}",
        "Conv2D(f32[8,3,28,28], f32[6,3,5,5]) -> f32[8,6,14,14] {pad_mode=\"pad\"}",
        "hlo::convolution(f32[8,28,28,3], f32[5,5,3,6]) -> f32[8,14,14,6] {dim_labels=\"b01f_01io->b01f\"}",
        "hlo::convolution(f32[8,3,28,28], f32[6,3,5,5]) -> f32[8,6,14,14] {dim_labels=\"bf01_oi01->bf01\"}",
    ]),
    ("aten::conv2d(f32[2,4,9,9], f32[4,1,3,3]) {groups=4, stride=1}", [
        "DepthwiseConv2dNative(f32[2,9,9,4], f32[3,3,4,1]) -> f32[2,7,7,4]",
        "Conv(f32[2,4,9,9], f32[4,1,3,3]) {group=4, kernel_shape=[3, 3]}",
        "hlo::convolution(f32[2,9,9,4], f32[3,3,1,4]) -> f32[2,7,7,4] {dim_labels=\"b01f_01io->b01f\", feature_group_count=4}",
    ]),
    ("aten::conv3d(f32[1,2,6,6,6], f32[4,2,3,3,3]) {stride=1}", [
        "Conv3D(f32[1,6,6,6,2], f32[3,3,3,2,4]) -> f32[1,4,4,4,4]",
        "Conv(f32[1,2,6,6,6], f32[4,2,3,3,3]) {kernel_shape=[3, 3, 3]}",
    ]),
    ("aten::conv_transpose2d(f32[2,4,5,5], f32[4,3,2,2]) -> f32[2,3,10,10] {stride=2}", [
        "ConvTranspose(f32[2,4,5,5], f32[4,3,2,2]) -> f32[2,3,10,10] {strides=[2, 2]}",
    ]),
    # elementwise, activations, reductions
    ("aten::add(f32[4,5], f32[5])", ["AddV2(f32[4,5], f32[5])", "BiasAdd(f32[4,5], f32[5])", "Add(f32[4,5], f32[5])"]),
    ("aten::mul(f32[4,5], f32[4,5])", ["Mul(f32[4,5], f32[4,5])", "hlo::multiply(f32[4,5], f32[4,5])"]),
    ("aten::atan2(f32[4,5], f32[4,5])", ["Atan2(f32[4,5], f32[4,5])", "hlo::atan2(f32[4,5], f32[4,5])"]),
    ("aten::pow(f32[4,5], f32[4,5])", ["Pow(f32[4,5], f32[4,5])", "hlo::power(f32[4,5], f32[4,5])"]),
    ("aten::tanh(f32[4,5])", ["Tanh(f32[4,5])", "hlo::tanh(f32[4,5])", "prims::tanh(f32[4,5])"]),
    ("aten::rsqrt(f32[4,5])", ["Rsqrt(f32[4,5])", "hlo::rsqrt(f32[4,5])"]),
    ("aten::where(bool[4,5], f32[4,5], f32[4,5])", [
        "SelectV2(bool[4,5], f32[4,5], f32[4,5])", "Where(bool[4,5], f32[4,5], f32[4,5])",
        "hlo::select(bool[4,5], f32[4,5], f32[4,5])",
    ]),
    ("aten::relu(f32[4,5])", ["Relu(f32[4,5])", "ReLU(f32[4,5])", "_MklNativeRelu(f32[4,5])"]),
    ("aten::gelu(f32[4,5]) {approximate=\"tanh\"}", ["Gelu(f32[4,5]) {approximate=\"tanh\"}"]),
    ("aten::gelu(f32[4,5]) {approximate=\"none\"}", ["Gelu(f32[4,5]) {approximate=\"none\"}", "GeLU(f32[4,5])"]),
    ("aten::silu(f32[4,5])", ["Swish(f32[4,5])", "SiLU(f32[4,5])"]),
    ("aten::silu_backward(f32[4,5], f32[4,5])", ["SiLUGrad(f32[4,5], f32[4,5])"]),
    ("aten::threshold_backward(f32[4,5], f32[4,5])", ["ReluGrad(f32[4,5], f32[4,5])"]),
    ("aten::hardswish(f32[4,5])", ["HardSwish(f32[4,5])", "HSwish(f32[4,5])"]),
    ("aten::celu(f32[4,5])", ["Celu(f32[4,5])", "CeLU(f32[4,5])"]),
    ("aten::_softmax(f32[4,5]) {dim=1}", ["Softmax(f32[4,5])", "Softmax(f32[4,5]) {axis=1}", "SoftmaxV2(f32[4,5]) {axis=-1}"]),
    ("aten::_log_softmax(f32[4,5]) {dim=0}", ["LogSoftmax(f32[4,5]) {axis=0}"]),
    ("aten::sum(f32[4,5]) {dim=[1]}", [
        "Sum(f32[4,5]) -> f32[4]", "ReduceSum(f32[4,5]) {axes=[1], keepdims=0}", "hlo::reduce(f32[4,5]) -> f32[4]",
        "SumExt(f32[4,5]) {axis=1}",
    ]),
    ("aten::mean(f32[4,5]) {dim=[0], keepdim=true}", ["Mean(f32[4,5]) -> f32[1,5]", "ReduceMean(f32[4,5]) {axes=[0], keepdims=1}"]),
    ("aten::amax(f32[4,5]) {dim=[1]}", ["Max(f32[4,5]) -> f32[4]", "ReduceMax(f32[4,5]) {axes=[1]}"]),
    ("aten::cumsum(f32[4,5]) {dim=1}", ["Cumsum(f32[4,5]) {axis=1}", "CumSum(f32[4,5]) {axis=1}", "CumsumExt(f32[4,5]) {dim=1}"]),
    ("aten::topk(f32[4,100]) {k=3}", ["TopKV2(f32[4,100]) -> (f32[4,3], i64[4,3])", "TopK(f32[4,100]) -> (f32[4,3], i64[4,3])"]),
    # pooling and norms
    ("aten::max_pool2d(f32[2,3,8,8]) {kernel_size=[2, 2]}", [
        "MaxPool(f32[2,8,8,3]) -> f32[2,4,4,3] {ksize=[1, 2, 2, 1]}", "MaxPool(f32[2,3,8,8]) -> f32[2,3,4,4] {kernel_shape=[2, 2]}",
    ]),
    ("aten::avg_pool2d(f32[2,3,8,8]) {kernel_size=[2, 2]}", [
        "AvgPool(f32[2,8,8,3]) -> f32[2,4,4,3] {ksize=[1, 2, 2, 1]}", "AveragePool(f32[2,3,8,8]) -> f32[2,3,4,4] {kernel_shape=[2, 2]}",
    ]),
    ("aten::adaptive_avg_pool2d(f32[2,3,8,8]) {output_size=[1, 1]}", ["GlobalAveragePool(f32[2,3,8,8])"]),
    ("aten::native_batch_norm(f32[2,3,8,8], f32[3], f32[3], f32[3], f32[3]) -> (f32[2,3,8,8], f32[3], f32[3]) {training=true}", [
        "FusedBatchNormV3(f32[2,8,8,3], f32[3], f32[3], f32[3], f32[3]) -> f32[2,8,8,3] {is_training=true}",
        "hlo::batch-norm-training(f32[2,8,8,3], f32[3], f32[3]) -> (f32[2,8,8,3], f32[3], f32[3])",
    ]),
    ("aten::layer_norm(f32[4,6], f32[6], f32[6]) {eps=1e-05}", ["LayerNormalization(f32[4,6], f32[6], f32[6])", "LayerNorm(f32[4,6], f32[6], f32[6])"]),
    # moves
    ("aten::cat([f32[2,3], f32[2,4]]) -> f32[2,7]", [
        "ConcatV2(f32[2,3], f32[2,4], i32[]) -> f32[2,7]", "Concat(f32[2,3], f32[2,4]) -> f32[2,7]",
        "hlo::concatenate(f32[2,3], f32[2,4]) -> f32[2,7]",
    ]),
    ("aten::embedding(f32[100,8], i64[4]) -> f32[4,8]", ["GatherV2(f32[100,8], i64[4]) -> f32[4,8]", "Gather(f32[100,8], i64[4]) -> f32[4,8]"]),
    ("aten::fft_fft(c64[4,16])", ["FFT(c64[4,16])", "BatchFFT(c64[4,16])"]),
    ("aten::linalg_cholesky(f32[3,8,8])", ["Cholesky(f32[3,8,8])", "BatchCholesky(f32[3,8,8])", "hlo::cholesky(f32[3,8,8])"]),
    ("aten::mse_loss(f32[4,5], f32[4,5]) {reduction=1}", []),
    ("aten::upsample_bilinear2d_backward(f32[2,3,8,8]) -> f32[2,3,4,4]", ["ResizeBilinearGrad(f32[2,8,8,3]) -> f32[2,4,4,3]"]),
    ("aten::upsample_bicubic2d(f32[2,3,4,4]) -> f32[2,3,8,8]", ["ResizeBicubic(f32[2,4,4,3]) -> f32[2,8,8,3]"]),
    ("aten::_grouped_mm(bf16[10,8], bf16[2,8,4], i32[2])", ["GroupedMatmul(bf16[10,8], bf16[2,8,4], i32[2])"]),
    ("aten::lstm(f32[6,5,3], [f32[1,5,4], f32[1,5,4]], [f32[16,3], f32[16,4]])", [
        "BlockLSTMV2(i64[], f32[6,5,3], f32[5,4], f32[5,4], f32[7,16], f32[4], f32[4], f32[4], f32[16])",
        "LSTM(f32[6,5,3], f32[1,16,3], f32[1,16,4]) -> f32[6,1,5,4]",
    ]),
    ("aten::gru_cell(f32[5,3], f32[5,4], f32[12,3], f32[12,4])", ["GRUBlockCell(f32[5,3], f32[5,4], f32[7,8], f32[7,4], f32[8], f32[4])"]),
    ("c10d::allreduce_([f32[1000]]) {group_size=8}", [
        "CollectiveReduceV2(f32[1000]) -> f32[1000] {group_size=8}", "AllReduce(f32[1000]) -> f32[1000] {group_size=8}",
        "hlo::all-reduce(f32[1000]) -> f32[1000] {group_size=8}", "HorovodAllreduce(f32[1000]) -> f32[1000] {group_size=8}",
    ]),
]  # fmt: skip


def known(text):
    found, why = perf.cost(parse(text))
    assert found is not None, f"{text}: {why}"
    return found


PAIRS = [(torch, other) for torch, others in SAME for other in others]


@pytest.mark.parametrize(("torch", "other"), PAIRS, ids=[other for _, other in PAIRS])
def test_same_work_same_flops(torch, other):
    ours, theirs = known(torch), known(other)
    assert theirs.matrix_flops == ours.matrix_flops
    assert theirs.vector_flops == ours.vector_flops


@pytest.mark.parametrize(
    ("torch", "other"),
    [
        ("aten::mm(f16[8,3], f16[3,5])", "MatMul(f16[8,3], f16[3,5])"),
        ("aten::mm(f16[8,3], f16[3,5])", "hlo::dot(f16[8,3], f16[3,5]) -> f16[8,5] {lhs_contracting_dims=[1], rhs_contracting_dims=[0]}"),
        ("aten::conv2d(f16[8,3,28,28], f16[6,3,5,5]) {stride=1}", "Conv2D(f16[8,28,28,3], f16[5,5,3,6]) -> f16[8,24,24,6]"),
        ("aten::add(f32[4,5], f32[5])", "AddV2(f32[4,5], f32[5])"),
        ("aten::relu(f32[4,5])", "Relu(f32[4,5])"),
        ("aten::mul(f32[4,5], f32[4,5])", "hlo::multiply(f32[4,5], f32[4,5]) -> f32[4,5]"),
        ("aten::sum(f32[4,5]) {dim=[1]}", "ReduceSum(f32[4,5]) {axes=[1], keepdims=0}"),
        ("aten::cat([f32[2,3], f32[2,4]])", "Concat(f32[2,3], f32[2,4]) -> f32[2,7]"),
        ("aten::_softmax(f32[4,5]) {dim=1}", "Softmax(f32[4,5]) {axis=1}"),
        ("c10d::allreduce_([f32[1000]]) {group_size=8}", "hlo::all-reduce(f32[1000]) -> f32[1000] {group_size=8}"),
    ],
)  # fmt: skip
def test_same_work_same_bytes(torch, other):
    assert known(other).bytes == known(torch).bytes


@pytest.mark.parametrize(
    ("text", "flops"),
    [
        # 2·stored·N
        ("SparseTensorDenseMatMul(i64[12,2], f32[12], i64[2], f32[8,5]) -> f32[6,5]", 2 * 12 * 5),
        # the dense product that a 2:4 one stands for
        ("aten::_sparse_semi_structured_linear(f16[4,64], f16[32,32], i16[32,4]) -> f16[4,32]", 2 * 4 * 32 * 64),
        ("quantized::linear(u8[4,8]) -> u8[4,16]", 2 * 4 * 16 * 8),
        ("onednn::qconv2d_pointwise(u8[1,3,8,8], f32[], i32[], i8[4,3,3,3], f32[], i32[]) -> u8[1,4,6,6]", 2 * 4 * 36 * 27),
        ("aten::linear_backward(f32[8,4], f32[8,6], f32[6,4]) {output_mask=[true, false, false]}", 2 * 8 * 4 * 6),
        ("SegmentSum(f32[10,4], i32[10]) -> f32[3,4]", 40 - 12),
        ("inductor::_mm_plus_mm(f32[2,3], f32[3,4], f32[2,5], f32[5,4], f32[2,4])", 2 * 8 * 3 + 2 * 8 * 5),
        ("aten::cov(f32[4,10])", 2 * 16 * 10 + 2 * 40 + 16),
        ("_C::paged_attention_v1(f16[1,8,64], f16[1,8,64], f16[100,2,8,16,8], f16[100,2,64,16], i32[1,9], i32[1]) "
         "{num_kv_heads=2, max_seq_len=130}", 4 * 8 * 130 * 64 + 5 * 8 * 130 + 8 * 64),
    ],
)  # fmt: skip
def test_known_by_what_the_sizes_tell(text, flops):
    assert known(text).flops == flops


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("aten::_sparse_mm(f32[1000,1000], f32[1000,8])", "stores is data"),
        ("quantized::conv2d(u8[1,3,8,8]) -> u8[1,4,6,6]", "packed weight hides"),
        ("quantized::linear(u8[4,8])", "packed weight has no shape"),
        ("_C::paged_attention_v1(f16[4,8,64], f16[4,8,64], f16[100,2,8,16,8], f16[100,2,64,16], i32[4,9], i32[4]) {max_seq_len=130}", "lengths are data"),
        ("CTCLoss(f32[50,4,20], i64[30,2], i32[30], i32[4])", "lengths are data"),
        ("PagedAttention(f16[4,512], f16[4,512], f16[4,512])", "lengths of the sequences are data"),
    ],
)  # fmt: skip
def test_unknown_says_what_is_missing(text, reason):
    cost, why = perf.cost(parse(text))
    assert cost is None
    assert reason in why


def test_work_of_the_host_has_no_flops_and_no_known_bytes():
    for name in ("ReadFile", "LookupTableFindV2", "StringJoin", "SaveV2"):
        cost, _ = perf.cost(parse(f"{name}()"))
        assert cost.flops == 0
        assert cost.bytes is None
        assert "host" in cost.bytes_reason
