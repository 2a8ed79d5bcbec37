"""Routing of tokens to experts (mixture of experts). The experts' products are in serving_products."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op
from opscope.core.perf.shapes import NO_SHAPES, Span, cost, need, numel, sizes, span, tensors
from opscope.core.schema import OpCall


@op(
    "_moe_C::topk_softmax",
    "vllm::topk_softmax",
    "sgl_kernel::topk_softmax",
    "vllm::grouped_topk",
    family="moe",
    source="softmax 5 per element, and a selection pass for each of the k experts",
)
def route(call: OpCall) -> Cost:
    """Softmax over the experts, then k passes that each find the largest."""
    operands = tensors(call)
    logits = max((t for t in operands if len(t.shape) == 2), key=numel, default=None)
    if logits is None:
        raise CannotKnow(NO_SHAPES)
    k = min(sizes(t)[-1] for t in operands if len(t.shape) == 2)
    return cost([logits], [t for t in operands if t is not logits], vector=(5 + k) * numel(logits),
                dtype=logits.dtype)  # fmt: skip


@op(
    "SortTokens",
    family="sort",
    source="no floating-point operations: tokens are counted by expert and put in the order of experts",
)
def sort_tokens(call: OpCall) -> Cost:
    """Sort the pairs of a token and an expert: weights and experts [T, k] in, weights and two orders out.

    Triton's kernels for experts (``triton_kernels.routing``).
    """
    weights, experts = (need(call, n, "operand") for n in range(2))
    if sizes(weights) != sizes(experts):
        raise CannotKnow("the weights and the experts of the tokens are not of one shape")
    pairs = numel(weights)
    return cost([weights, experts], [span(weights, pairs), Span("i32", 2 * pairs)], dtype="i32")
