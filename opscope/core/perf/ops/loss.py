"""Losses: FLOPs per element, counted from the definition, and the mean or sum over all elements."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, word_of, words
from opscope.core.perf.shapes import (
    as_ints,
    cost,
    distinct_tensors,
    need,
    numel,
    output,
    outputs,
    product,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec

#: FLOPs per element before the reduction.
ELEMENT: Final[Mapping[str, int]] = MappingProxyType(
    {
        "mse_loss": 2,
        "l1_loss": 2,
        "smooth_l1_loss": 5,
        "huber_loss": 5,
        "binary_cross_entropy": 7,
        "binary_cross_entropy_with_logits": 8,
        "kl_div": 4,
        "soft_margin_loss": 4,
        "multilabel_margin_loss": 3,
        "multilabel_margin_loss_forward": 3,
        "multi_margin_loss": 3,
        "poisson_nll_loss": 3,
        "gaussian_nll_loss": 6,
        "hinge_embedding_loss": 3,
        "margin_ranking_loss": 4,
        "multilabel_soft_margin_loss": 8,
    }
)


def _reduce(call: OpCall, x: TensorSpec) -> tuple[TensorSpec, int]:
    """Return the result, and the number of additions of the reduction (0 without a reduction)."""
    recorded = output(call)
    if recorded is None:
        none = call.param("reduction", 1) in (0, "none")
        rows = variant(call, "margin_loss") and variant(call, "multi")
        kept = x.shape[:-1] if rows else x.shape
        recorded = TensorSpec(x.dtype, kept if none else ())
    return recorded, max(numel(x) - numel(recorded), 0)


@op(
    *(f"aten::{name}" for name in ELEMENT),
    family="loss",
    source="FLOPs per element: opscope.core.perf.ops.loss.ELEMENT, and the reduction",
    variants={
        "forward": "aten::multilabel_margin_loss_forward",
        "margin_loss": "*margin_loss*",
        "multi": "*multi*",
    },
)
def pointwise_loss(call: OpCall) -> Cost:
    """ELEMENT's FLOPs per element, and the reduction's additions."""
    x = need(call, 0, "input")
    out, sums = _reduce(call, x)
    flops = ELEMENT[word_of(call.name)] * numel(x) + sums
    writes = outputs(call) or [out]
    if outputs(call) is None and variant(call, "forward"):  # is_target, one value per element
        writes = [out, x]
    return cost(distinct_tensors(call), writes, vector=flops, dtype=x.dtype)


_BACKWARD: Final = words(
    """
    mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div
    soft_margin_loss multilabel_margin_loss multi_margin_loss
    """
)


@op(
    *(f"aten::{name}_backward" for name in _BACKWARD),
    family="loss",
    source="per element: as the forward, and a multiplication",
)
def pointwise_loss_backward(call: OpCall) -> Cost:
    """The forward's FLOPs per element, and a multiplication by the gradient."""
    x = need(call, 1, "input")
    each = ELEMENT[word_of(call.name).removesuffix("_backward")] + 1
    return cost(distinct_tensors(call), [x], vector=each * numel(x), dtype=x.dtype)


@op(
    "aten::nll_loss",
    "aten::nll_loss_forward",
    "aten::nll_loss_nd",
    "aten::nll_loss2d",
    "aten::nll_loss2d_forward",
    family="loss",
    source="one gathered element per row, negated and added",
)
def nll_loss(call: OpCall) -> Cost:
    """Touch only the target's element of each row."""
    x, target = need(call, 0, "input"), need(call, 1, "target")
    rows = numel(target)
    scalar = TensorSpec(x.dtype, ())
    each = call.param("reduction", 1) in (0, "none")
    writes = outputs(call) or [TensorSpec(x.dtype, target.shape) if each else scalar, scalar]
    return cost([span(x, rows), target], writes, vector=2 * rows, dtype=x.dtype)


@op("aten::nll_loss_backward", "aten::nll_loss2d_backward", family="loss", source="one per row")
def nll_loss_backward(call: OpCall) -> Cost:
    """Write the whole gradient (zeros), and compute one element per row."""
    grad, x, target = (need(call, n, "operand") for n in range(3))
    rows = numel(target)
    return cost([grad, target], [x], vector=rows, dtype=x.dtype)


@op("aten::cross_entropy_loss", family="loss", source="log-softmax and nll_loss")
def cross_entropy(call: OpCall) -> Cost:
    """Log-softmax over dim 1 (5n − rows), then the targets' elements."""
    x, target = need(call, 0, "input"), need(call, 1, "target")
    shape = sizes(x)
    classes = shape[1] if len(shape) > 1 else product(shape)
    rows = product(shape) // max(classes, 1)
    out = output(call) or TensorSpec(x.dtype, ())
    flops = max(5 * product(shape) - rows, 0) + 2 * numel(target)
    return cost([x, target, *tensors(call)[2:3]], [out], vector=flops, dtype=x.dtype)


@op(
    "aten::triplet_margin_loss",
    "aten::cosine_embedding_loss",
    family="loss",
    source="per element: triplet two distances of 4, a cosine 6",
    variants={"margin_loss": "aten::triplet_margin_loss"},
)
def embedding_loss(call: OpCall) -> Cost:
    """Two distances as ``pairwise_distance`` counts them (4 each), or one cosine of 6."""
    x = need(call, 0, "input")
    flops = (8 if variant(call, "margin_loss") else 6) * numel(x)
    return cost(distinct_tensors(call), [_reduce(call, x)[0]], vector=flops, dtype=x.dtype)


@op(
    "aten::ctc_loss",
    "aten::_ctc_loss",
    "aten::_cudnn_ctc_loss",
    "aten::miopen_ctc_loss",
    family="loss",
    source="7 per time step and state of the extended target",
)
def ctc_loss(call: OpCall) -> Cost:
    """Log-sum-exp of three (7) over T·N·(2S + 1) states, S from a padded target [N, S]."""
    x, target = need(call, 0, "input"), need(call, 1, "target")
    shape, labels = sizes(x), sizes(target)
    if len(labels) != 2 or len(shape) != 3:
        raise CannotKnow("the targets' lengths are data that no trace records")
    longest = as_ints(call.param("target_lengths"))
    width = max(longest) if longest else labels[1]
    states = shape[0] * shape[1] * (2 * width + 1)
    writes = outputs(call)
    note = ""
    if writes is None:
        writes = [TensorSpec(x.dtype, (shape[1],)), TensorSpec(x.dtype, (states,))]
        note = "" if longest else "the longest target is assumed to be as long as the padded ones"
    elif len(writes) > 1:  # the recursion is an output: its size is the number of states
        states = numel(writes[1])
    return cost([x, target], writes, vector=7 * states, dtype=x.dtype, note=note)


@op("aten::_ctc_loss_backward", family="loss",
    source="7 per time step and state, 3 to collect it, 2 per element of the input")  # fmt: skip
def ctc_loss_backward(call: OpCall) -> Cost:
    """The recursion from the end (7), its product with the forward's, added to the state's label (3), and
    the gradient from that sum and the probability (2)."""
    # lengths that are tensors are two more operands
    at = 6 if len(tensors(call)) > 6 else 4
    log_probs, alpha = need(call, 1, "log probabilities"), need(call, at, "forward's recursion")
    flops = 10 * numel(alpha) + 2 * numel(log_probs)
    return cost(
        distinct_tensors(call), [output(call) or log_probs], vector=flops, dtype=log_probs.dtype
    )


@op(
    "torch_nn::_linear_cross_entropy_batch_chunked",
    "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction",
    family="gemm",
    source="2·T·V·H, and as much per gradient in the outputs; cross entropy 5 per element and 2 per row, "
    "its gradient 3",
    variants={"no_reduction": "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction"},
)
def linear_cross_entropy(call: OpCall) -> Cost:
    """Operands are input, weight and target; the logits are computed in chunks and never stored."""
    x, w, target = (need(call, n, "operand") for n in range(3))
    wide = sizes(x)[-1] if sizes(x) else 1
    rows = numel(x) // max(wide, 1)
    logits = rows * (numel(w) // max(wide, 1))
    recorded = outputs(call)
    if recorded is None and not variant(call, "no_reduction"):
        raise CannotKnow("the trace does not record which gradients were requested")
    gradients = sum(t.shape in (x.shape, w.shape) for t in (recorded or [])[1:])
    return cost(
        distinct_tensors(call),
        recorded or [TensorSpec(x.dtype, target.shape)],
        matrix=2 * logits * wide * (1 + gradients),
        vector=5 * logits + 2 * rows + (3 * logits if gradients else 0),
        dtype=x.dtype,
    )
