"""Products of serving libraries: 8-bit, 4-bit and block-scaled, with one matrix or one per expert.

A packed weight hides N, so N comes from the result, whose position among the arguments differs from op
to op. Schemas: vLLM ``csrc/torch_bindings.cpp``, ``csrc/libtorch_stable/torch_bindings.cpp``,
``csrc/moe/torch_bindings.cpp`` and its ``direct_register_custom_op`` calls; SGLang
``sgl-kernel/csrc/common_extension.cc`` and ``fp8_kernel.py``; DeepGEMM's torch bindings; aiter ``ops``;
TensorRT-LLM ``_torch/custom_ops``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from opscope.core.perf.model_config import EXPERT_LAYERS, EXPERTS, WITH_SHARED, Weights
from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    Part,
    Span,
    cost,
    distinct_tensors,
    int_param,
    need,
    numel,
    output,
    outputs,
    product,
    promote,
    sizes,
)
from opscope.core.schema import DTYPE_BITS, FLOATS, OpCall, TensorSpec

#: Why a grouped product's cost may be unknown.
ROWS_ARE_DATA: Final = "how many rows each expert has is data that no trace records"
_EVERY_ROW: Final = "every row of the result is assumed to be computed"


class Operands(NamedTuple):
    """Positions among the tensors of a call, and how N follows from the weight.

    ``out`` is None if the result is returned. ``columns`` is the weight's dimension that has N, None if
    only the result has N; ``packed`` is the number of columns per element of the weight. ``halves``: a
    byte of the first operand has two 4-bit elements of K. ``grouped``: the weight has one matrix per
    expert.
    """

    out: int | None
    a: int
    b: int
    columns: int | None = None
    packed: int = 1
    halves: bool = False
    grouped: bool = False


_PLACES: Final = (
    # the result comes first, then [M, K] and [K, N]
    (
        Operands(0, 1, 2),
        """_C::cutlass_scaled_mm_azp _C::dsv3_fused_a_gemm sgl_kernel::dsv3_fused_a_gemm
        sgl_kernel::dsv3_router_gemm _C::fp32_router_gemm""",
    ),
    (Operands(0, 1, 2, halves=True), "_C::cutlass_scaled_fp4_mm sgl_kernel::cutlass_scaled_fp4_mm"),
    (Operands(2, 0, 1), "sgl_kernel::bmm_fp8 flashinfer::bmm_fp8"),
    (Operands(6, 0, 1), "sgl_kernel::qserve_w4a8_per_chn_gemm"),
    (Operands(6, 0, 1), "sgl_kernel::qserve_w4a8_per_group_gemm"),
    # the result is returned
    (
        Operands(None, 0, 1, columns=1),
        """sgl_kernel::fp8_scaled_mm sgl_kernel::int8_scaled_mm sgl_kernel::fp8_blockwise_scaled_mm
        _C::gptq_gemm sgl_kernel::gptq_gemm trtllm::cublas_mm trtllm::cublas_scaled_mm
        trtllm::dsv3_router_gemm_op trtllm::dsv3_fused_a_gemm_op""",
    ),
    (Operands(None, 0, 1, columns=1, packed=8), "_C::awq_gemm"),
    (
        Operands(None, 0, 1, columns=0),
        """vllm::w8a8_triton_block_scaled_mm_func vllm::apply_w8a8_block_fp8_linear
        vllm::rocm_aiter_gemm_a8w8 vllm::rocm_aiter_gemm_w8a8 vllm::rocm_aiter_gemm_w8a8_blockscale
        vllm::rocm_aiter_gemm_a8w8_blockscale vllm::rocm_aiter_triton_gemm_a8w8_blockscale
        vllm::rocm_aiter_gemm_a8w8_bpreshuffle
        sglang::w8a8_block_fp8_matmul_triton sglang::w8a8_block_fp8_matmul_deepgemm
        aiter::gemm_a8w8 aiter::gemm_a8w8_blockscale trtllm::fp8_block_scaling_gemm""",
    ),
    (
        Operands(None, 0, 1, columns=0, halves=True),
        "aiter::gemm_a4w4 vllm::gemm_with_dynamic_quant trtllm::nvfp4_gemm trtllm::fp4_gemm",
    ),
    (Operands(None, 0, 1, columns=1, halves=True), "vllm::flashinfer_mm_fp4"),
    (Operands(None, 0, 1), "_C::machete_mm _C::cutlass_w4a8_mm _C::allspark_w8a16_gemm"),
    # the weight has one matrix per expert
    (
        Operands(0, 1, 2, grouped=True),
        "_C::cutlass_moe_mm _C::cutlass_w4a8_moe_mm sgl_kernel::cutlass_w4a8_moe_mm",
    ),
    (
        Operands(0, 1, 2, halves=True, grouped=True),
        "_C::cutlass_fp4_group_mm _C::cutlass_mxfp4_group_mm sgl_kernel::cutlass_fp4_group_mm",
    ),
    (Operands(4, 0, 1, grouped=True), "_C::cutlass_mxfp8_grouped_mm"),
    (Operands(0, 6, 7, grouped=True), "sgl_kernel::fp8_blockwise_scaled_grouped_mm"),
    (Operands(1, 0, 2, grouped=True), "_moe_C::moe_wna16_gemm"),
    # DeepGEMM: (a, its scales, b, its scales, d)
    (
        Operands(4, 0, 2),
        """deep_gemm_cpp::fp8_gemm_nt deep_gemm_cpp::fp8_gemm_nn deep_gemm::fp8_gemm_nt
        deep_gemm::fp8_gemm_nn sglang::deep_gemm_fp8_fp8_bf16_nt""",
    ),
    (
        Operands(4, 0, 2, grouped=True),
        """deep_gemm_cpp::m_grouped_fp8_gemm_nt_contiguous deep_gemm::m_grouped_fp8_gemm_nt_contiguous
        deep_gemm_cpp::m_grouped_fp8_gemm_nn_contiguous deep_gemm::m_grouped_fp8_gemm_nn_contiguous""",
    ),
)
_OPERANDS: Final = {name: places for places, names in _PLACES for name in words(names)}


@op(
    *_OPERANDS,
    family="gemm",
    source="2·(elements of the result)·K; with experts, each row belongs to one expert",
)
def scaled_product(call: OpCall) -> Cost:
    """2·M·N·K from the result and the first operand, as the weight may be packed or reordered.

    A grouped product counts the same: each row belongs to one expert. If there are more experts than rows,
    the weights of one expert per row are read.
    """
    places = _OPERANDS[call.name]
    a, b = need(call, places.a, "first operand"), need(call, places.b, "weight")
    rows, inner = sizes(a)[:-1], sizes(a)[-1:]
    if not inner:
        raise CannotKnow("not matrices: the first operand is a scalar")
    if places.halves and a.dtype == "?":
        raise CannotKnow("without the type of an element, it may hold one or two values along K")
    k = inner[0] * (2 if places.halves and a.dtype in ("u8", "i8") else 1)
    out: TensorSpec | None
    if places.out is None:
        out = output(call)
    else:
        out = need(call, places.out, "result")
    if out is not None:
        elements = numel(out)
    elif places.columns is not None and len(sizes(b)) == 2:
        if places.columns == 0 and sizes(b)[1] not in (k, inner[0], k // 2):
            raise CannotKnow(
                f"the operands are not [M, K] and [N, K]: {list(sizes(a))} and {list(sizes(b))}"
            )
        elements = product(rows) * sizes(b)[places.columns] * places.packed
    else:
        raise CannotKnow("the packed weight hides N, and the trace has no outputs")
    weight: Part = b
    if places.grouped and sizes(b):
        experts, pairs = sizes(b)[0], product(sizes(out)[:-1]) if out is not None else product(rows)
        weight = Span(b.dtype, numel(b) // max(experts, 1) * min(experts, pairs))
    others = [t for t in distinct_tensors(call) if t is not a and t is not b and t is not out]
    return cost(
        [a, weight, *others],
        None if out is None else [out],
        matrix=2 * elements * k,
        dtype="f4e2m1" if places.halves and k != inner[0] else a.dtype,
        reason="the trace does not record the result's dtype",
        note=_EVERY_ROW if places.grouped else "",
    )


@op(
    "_C::marlin_gemm",
    "_C::gptq_marlin_gemm",
    "_C::gptq_marlin_24_gemm",
    "sgl_kernel::gptq_marlin_gemm",
    "_moe_C::moe_wna16_marlin_gemm",
    "sgl_kernel::moe_wna16_marlin_gemm",
    family="gemm",
    source="2·M·N·K; Marlin's tiles hide N, which comes from the result, size_n or the scales",
    variants={"moe": "*moe*"},
)
def marlin(call: OpCall) -> Cost:
    """[M, K] by the tiles of a packed weight; with experts, each token by top_k of them.

    If neither the result nor size_n is recorded, N comes from the scales: [groups of K, N].
    """
    a = need(call, 0, "first operand")
    *rows, k = sizes(a)
    out, rest = output(call), distinct_tensors(call)[1:]
    at = next((n for n, t in enumerate(rest) if t.dtype not in FLOATS), None)
    if at is None:
        raise CannotKnow("the trace has no shape for the weight")
    scales = next((t for t in rest[at + 1 :] if t.dtype in FLOATS and len(t.shape) > 1), None)
    if out is not None:
        elements = numel(out)
    else:
        columns = int_param(call, "size_n", None if scales is None else sizes(scales)[-1])
        each = int_param(call, "top_k") if variant(call, "moe") else 1
        elements = product(rows) * each * columns
    # ``rest`` has the weight's scales, zeros and orders; the workspace of locks is small
    return cost(
        [a, *rest],
        None if out is None else [out],
        matrix=2 * elements * k,
        dtype=a.dtype,
        reason="the trace does not record the result's dtype",
    )


@op(
    "_C::ggml_mul_mat_a8",
    "_C::ggml_mul_mat_vec_a8",
    family="gemm",
    source="2·M·N·K; the weight has N rows",
)
def ggml(call: OpCall) -> Cost:
    """The weight comes first: [N, bytes of a row of K]."""
    weight, x = need(call, 0, "weight"), need(call, 1, "input")
    shape = (*sizes(x)[:-1], sizes(weight)[0])
    out = output(call) or TensorSpec(x.dtype, shape)
    return cost([weight, x], [out], matrix=2 * product(shape) * sizes(x)[-1], dtype="i8")


_MASKED: Final = words(
    """
    deep_gemm_cpp::fp8_m_grouped_gemm_nt_masked deep_gemm_cpp::k_grouped_fp8_gemm_tn_contiguous
    deep_gemm::fp8_m_grouped_gemm_nt_masked deep_gemm::k_grouped_fp8_gemm_tn_contiguous
    _moe_C::marlin_gemm_moe _C::ggml_moe_a8 _C::ggml_moe_a8_vec
    """
)


@op(*_MASKED, family="gemm", source=f"null: {ROWS_ARE_DATA}")
def masked(call: OpCall) -> Cost:
    """Raise CannotKnow: the result has room for the most rows that an expert may get."""
    raise CannotKnow(ROWS_ARE_DATA)


_OF_THE_LAYER: Final = "the experts' weights belong to the layer and are not arguments"
_ANOTHER: Final = (
    "the model's configuration is of another model: {what} is {told}, that of the call {here}"
)
_NO_SHARED: Final = "the model's configuration does not tell the size of the shared experts"
_STORED: Final = "the model's configuration quantises weights in a way that is not known here"
#: Most elements by which a server pads a hidden size, so that its kernels' tiles are full.
_PADDING: Final = 512


@op(
    *EXPERT_LAYERS,
    family="gemm",
    source="with the model's configuration each token through its k experts: gate, up and down, 2·T·k·3·I·H; "
    f"without it null: {_OF_THE_LAYER}",
    variants={"shared": WITH_SHARED},
)
def whole_layer(call: OpCall) -> Cost:
    """Price a layer of experts by the sizes in the model's configuration, as the call hides its weights.

    The parameter has: hidden size, an expert's inner size on this rank, experts, active experts, inner size
    of the shared experts on this rank, products an expert (3 with a gate), bits of a weight (0: as the
    input, -1: unknown), elements a scale, its bytes, ranks that share the layer, the dtype of products ("":
    as the input). A call pads the hidden size.
    """
    facts = call.param(EXPERTS)
    if not isinstance(facts, tuple) or len(facts) != 11:
        raise CannotKnow(_OF_THE_LAYER)
    numbers = [value for value in facts if isinstance(value, int)]
    hidden, inner, experts, active, shared, products, bits, block, scale, ranks = numbers
    x, logits = need(call, 0, "input"), need(call, 1, "router's logits")
    tokens, width = product(sizes(x)[:-1]), sizes(x)[-1]
    if not hidden <= width < hidden + _PADDING:
        raise CannotKnow(_ANOTHER.format(what="its hidden size", told=hidden, here=width))
    if sizes(logits)[-1] != experts:
        raise CannotKnow(
            _ANOTHER.format(what="the number of experts", told=experts, here=sizes(logits)[-1])
        )
    extra = shared if variant(call, "shared") else 0
    if variant(call, "shared") and not shared:
        raise CannotKnow(_NO_SHARED)
    each = products * hidden
    matrix = 2 * tokens * (active * inner + extra) * each
    vector = tokens * (active * inner + extra) * (6 if products > 2 else 5)
    vector += tokens * (2 * active * hidden + 5 * experts)
    touched = min(experts, tokens * active) * inner + extra
    stored = Weights(bits or DTYPE_BITS.get(x.dtype, 16), block, scale)
    row = Span(x.dtype, tokens * hidden)
    notes = [
        "the weights of every expert are assumed to be read" if tokens * active >= experts else ""
    ]
    notes.append(f"split evenly over {ranks} ranks" if ranks > 1 else "")
    return cost(
        None if bits < 0 else [row, logits, Span("u8", stored.nbytes(touched * each))],
        [row],
        matrix=matrix,
        vector=vector,
        dtype=str(facts[-1]) or x.dtype,
        reason=_STORED,
        note="; ".join(filter(None, notes)),
    )


@op(
    "vllm::inplace_fused_experts",
    "vllm::outplace_fused_experts",
    "vllm::fused_experts",
    "vllm::rocm_aiter_fused_moe",
    "aiter::fused_moe_",
    "sglang::inplace_fused_experts",
    "sglang::outplace_fused_experts",
    family="gemm",
    source="each token through its k experts: gate and up [2I, H], then down [H, I]",
)
def fused_experts(call: OpCall) -> Cost:
    """2·T·k·(2I·H + I·H), the gate's activation 6 per inner element, the weighted sum 2·k·H per token."""
    x, up, down, weights = (need(call, n, "operand") for n in range(4))
    (tokens, hidden), gate, back = sizes(x), sizes(up), sizes(down)
    k = sizes(weights)[-1]
    # 4-bit weights are packed two to a byte along the summed dimension
    halves = 2 if len(gate) == 3 and gate[2] * 2 == hidden else 1
    if len(gate) != 3 or len(back) != 3 or gate[2] * halves != hidden:
        raise CannotKnow("the experts' weights are packed")
    pairs = tokens * k
    inner = back[2] * halves
    vector = pairs * inner * (6 if gate[1] == 2 * inner else 5) + 2 * pairs * hidden
    experts = min(gate[0], pairs)
    of_experts = [
        Span(
            t.dtype, numel(t) // max(gate[0], 1) * experts if gate[0] in sizes(t)[:1] else numel(t)
        )
        for t in (up, down, *distinct_tensors(call)[4:])
    ]
    return cost(
        [x, weights, *of_experts],
        [x],
        matrix=2 * pairs * (gate[1] * hidden + back[1] * inner),
        vector=vector,
        dtype=_of_products(call, x, up, halves),
        note="the weights of every expert are assumed to be read" if pairs >= gate[0] else "",
    )


def _of_products(call: OpCall, x: TensorSpec, weight: TensorSpec, halves: int) -> str:
    """Return the dtype of fused products: narrow floats quantise the input, 8-bit integers by a flag."""
    if weight.dtype in FLOATS and DTYPE_BITS[weight.dtype] <= 8:
        return weight.dtype
    if weight.dtype not in ("i8", "u8") or halves > 1 or call.param("use_int8_w8a16") is True:
        return promote([x, weight])
    return "i8" if call.param("use_int8_w8a8") is True else "?"


@op("vllm::lora_shrink", "vllm::lora_expand", "vllm::bgmv_shrink",
    "vllm::bgmv_expand", family="gemm", source="2·tokens·hidden·rank")  # fmt: skip
def low_rank(call: OpCall) -> Cost:
    """Multiply each token by a low-rank factor of its LoRA adapter."""
    x, weight = need(call, 0, "input"), need(call, 1, "weight")
    w = sizes(weight)
    tokens = product(sizes(x)[:-1])
    rank = int_param(call, "rank", min(w[-2:]))
    flops = 2 * tokens * max(w[-2:]) * rank
    return cost(distinct_tensors(call), outputs(call), matrix=flops, dtype=x.dtype,
                reason=NO_OUTPUTS)  # fmt: skip
