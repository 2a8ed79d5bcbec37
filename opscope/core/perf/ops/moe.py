"""Mixture-of-experts routing and expert products, and rotary embeddings, of serving libraries."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    Span,
    cost,
    distinct_tensors,
    int_param,
    need,
    numel,
    outputs,
    product,
    promote,
    sizes,
    tensors,
)
from opscope.core.schema import FLOATS, INTEGERS, OpCall


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
    """2·T·k·(2I·H + I·H), the gate's activation 6 an inner element, the weighted sum 2·k·H a token."""
    x, up, down, weights = (need(call, n, "operand") for n in range(4))
    (tokens, hidden), gate, back = sizes(x), sizes(up), sizes(down)
    k = sizes(weights)[-1]
    # 4-bit weights stand two to a byte along the dimension that is summed over
    halves = 2 if len(gate) == 3 and gate[2] * 2 == hidden else 1
    if len(gate) != 3 or len(back) != 3 or gate[2] * halves != hidden:
        raise CannotKnow("the experts' weights are packed")
    pairs = tokens * k
    inner = back[2] * halves
    vector = pairs * inner * (6 if gate[1] == 2 * inner else 5) + 2 * pairs * hidden
    experts = min(gate[0], pairs)
    share = [numel(up) // max(gate[0], 1) * experts, numel(down) // max(gate[0], 1) * experts]
    return cost(
        [x, weights, Span(up.dtype, share[0]), Span(down.dtype, share[1])],
        [x],
        matrix=2 * pairs * (gate[1] * hidden + back[1] * inner),
        vector=vector,
        dtype=promote([x, up]),
        note="every expert that may be reached is taken to be read" if pairs >= gate[0] else "",
    )


@op(
    "_moe_C::topk_softmax",
    "vllm::topk_softmax",
    "sgl_kernel::topk_softmax",
    "vllm::grouped_topk",
    family="moe",
    source="softmax 5 an element and a selection pass for each of k",
)
def route(call: OpCall) -> Cost:
    """Softmax over the experts, then k passes for the largest."""
    found = tensors(call)
    logits = max((t for t in found if len(t.shape) == 2), key=numel, default=None)
    if logits is None:
        raise CannotKnow(NO_SHAPES)
    k = min(sizes(t)[-1] for t in found if len(t.shape) == 2)
    return cost([logits], [t for t in found if t is not logits], vector=(5 + k) * numel(logits),
                dtype=logits.dtype)  # fmt: skip


@op(
    "_moe_C::moe_align_block_size",
    "sgl_kernel::moe_align_block_size",
    "_moe_C::moe_permute",
    "_moe_C::moe_unpermute",
    "_C_cache_ops::reshape_and_cache",
    "_C_cache_ops::reshape_and_cache_flash",
    "vllm::reshape_and_cache_flash",
    "_C_cache_ops::copy_blocks",
    "_C_cache_ops::swap_blocks",
    family="copy",
    source="tokens moved to their experts or pages",
)
def arrange(call: OpCall) -> Cost:
    """Rows move; the caches that they move into are not all touched."""
    found = distinct_tensors(call)
    if not found:
        return cost(None, None, reason=NO_SHAPES)
    rows = found[:2] if "cache" in call.name else found[:1]
    return cost(rows, rows)


@op(
    "_moe_C::moe_sum",
    "sgl_kernel::moe_sum",
    family="reduction",
    source="k − 1 additions an element",
)
def moe_sum(call: OpCall) -> Cost:
    """The k experts' results of each token are added."""
    x, out = need(call, 0, "input"), need(call, 1, "output")
    return cost([x], [out], vector=max(numel(x) - numel(out), 0), dtype=x.dtype)


@op(
    "_C::rotary_embedding",
    "_C::batched_rotary_embedding",
    "vllm::rotary_embedding",
    "sgl_kernel::apply_rope_pos_ids_cos_sin_cache",
    "flash_attn::apply_rotary",
    "quack::rotary",
    family="elementwise",
    source="3 an element: a pair takes four products and two sums",
)
def rotary(call: OpCall) -> Cost:
    """Each pair of a query's or key's elements is turned by its angle."""
    found = [t for t in tensors(call) if t.dtype in FLOATS]
    if not found:
        raise CannotKnow(NO_SHAPES)
    turned = found[:2] if len(found) > 2 else found[:1]
    flops = 3 * sum(map(numel, turned))
    positions = [t for t in tensors(call) if t.dtype in INTEGERS]
    return cost([*turned, *positions], turned, vector=flops, dtype=turned[0].dtype)


@op("vllm::lora_shrink", "vllm::lora_expand", "vllm::bgmv_shrink",
    "vllm::bgmv_expand", family="gemm", source="2·tokens·hidden·rank")  # fmt: skip
def low_rank(call: OpCall) -> Cost:
    """Each token by the low-rank factor of its adapter."""
    x, weight = need(call, 0, "input"), need(call, 1, "weight")
    w = sizes(weight)
    tokens = product(sizes(x)[:-1])
    rank = int_param(call, "rank", min(w[-2:]))
    flops = 2 * tokens * max(w[-2:]) * rank
    return cost(distinct_tensors(call), outputs(call), matrix=flops, dtype=x.dtype,
                reason=NO_OUTPUTS)  # fmt: skip
