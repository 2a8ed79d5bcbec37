"""Look up the cost, the family and the gradients of an op's call, for the analysis."""

from __future__ import annotations

import re
from dataclasses import replace

from opscope.core.schema import OpCall
from opscope.core.tensorrt_layers import KNOWN, NAME_ONLY, TIME_ONLY

from .generated import generated_cost
from .model_config import EXPERT_LAYERS
from .registry import (
    CannotKnow,
    Cost,
    Entry,
    GradModel,
    backward_model,
    grad_model,
    lookup,
)
from .shapes import LARGEST, NO_SHAPES, WRITTEN, knows_params, tensors
from .stored import sparse_reason, stored_cost

#: Families whose FLOPs are zero for any shapes: a missing shape makes only the bytes unknown.
FREE_FAMILIES = frozenset({"view", "query", "allocation", "copy", "fill", "communication"})
#: Families whose costs depend on parameters that have defaults (dim, approximate, training …).
_PARAMETRIC = frozenset({"softmax", "activation", "norm", "sort", "dropout", "loss", "embedding"})
#: The free families that move no bytes either.
NO_MOVES = frozenset({"view", "query", "allocation"})
#: The reason for a call that was recorded only in part.
CUT_REASON = "the text of the call was cut: not all of its tensors are known"
_DEFAULTS = "the trace does not record the parameters: their defaults are assumed"


def cost(call: OpCall, *, forward: OpCall | None = None) -> tuple[Cost | None, str | None]:
    """Return the cost of a call and None, or None and the reason why the cost is not known.

    ``forward`` is the call of the forward op that a backward op differentiates, where the trace links them.
    It supplies sizes that the backward op lacks (for a weight gradient, the size of the weight). If the call
    is an autograd node, or has the name of a forward op but runs in the backward pass, ``forward`` is the
    only source of the cost. Never raises for a malformed call.
    """
    if forward is not None and forward.truncated:
        forward = None
    entry = lookup(call.name)
    if entry is None:
        if forward is not None:
            total, why = backward_costs(forward)
            if total is not None:
                return total, None
            return None, why
        return _generated(call)
    if call.truncated and entry.family not in NO_MOVES:  # the missing part may be the larger one
        free = Cost(bytes_read=None, bytes_written=None, bytes_reason=CUT_REASON)
        return (free, None) if entry.family in FREE_FAMILIES else (None, CUT_REASON)
    try:
        figures = _bounded(_figures(entry, call))
    except CannotKnow as why:
        reason = str(why)
    except (ValueError, IndexError, ZeroDivisionError, OverflowError):
        # shapes in an untrusted trace need not fit the op: the cost is then unknown
        reason = _unfit(call)
    else:
        if figures.bytes is None and forward is not None:
            figures = _whole(call, forward) or figures
        dispatched = entry.name.startswith("aten::") and not knows_params(call)
        if not figures.note and entry.family in _PARAMETRIC and dispatched:
            figures = replace(figures, note=_DEFAULTS)
        return figures, None
    linked = grad_model(call.name)
    if linked is not None and forward is not None:
        try:
            return _with_forward(linked, call, forward), None
        except CannotKnow as why:
            reason = str(why)
        except (ValueError, IndexError, ZeroDivisionError, OverflowError):
            reason = _unfit(call)
    if forward is not None and not tensors(call):
        figures_of_forward = _from_forward(call.name, entry, forward)
        if figures_of_forward is not None:
            return figures_of_forward, None
    if entry.family in FREE_FAMILIES:
        return Cost(bytes_read=None, bytes_written=None, bytes_reason=reason), None
    return None, reason


def _generated(call: OpCall) -> tuple[Cost | None, str | None]:
    """Return the cost of a generated kernel if its name shows it, else the reason why it is not known."""
    try:
        figures = None if call.truncated else generated_cost(call)
        return (None, _no_model(call)) if figures is None else (_bounded(figures), None)
    except CannotKnow as why:
        return None, str(why)


def _figures(entry: Entry, call: OpCall) -> Cost:
    """Return the cost from the op's model; for sparse tensors, from the number of stored elements; for a
    call without shapes, from what its compiler wrote."""
    if not call.inputs and any(call.param(name) is not None for name in WRITTEN):
        return _write(entry, call)
    why = sparse_reason(call)
    if entry.sparse or why is None:
        return entry.model(call)
    return stored_cost(entry.name, call, why)


def _write(entry: Entry, call: OpCall) -> Cost:
    flops, moved = map(call.param, WRITTEN)
    if not isinstance(flops, int) and entry.family not in FREE_FAMILIES:
        raise CannotKnow("the compiler wrote no FLOPs of this operation")
    work = flops if isinstance(flops, int) else 0
    matrix = work if entry.family in ("gemm", "conv") else 0
    known = isinstance(moved, int)
    return Cost(
        matrix,
        work - matrix,
        moved if isinstance(moved, int) else None,
        0 if known else None,
        bytes_reason="" if known else "the compiler wrote no bytes of this operation",
        note="FLOPs and bytes are those that the compiler wrote",
    )


def _with_forward(model: GradModel, call: OpCall, forward: OpCall) -> Cost:
    why = sparse_reason(call) or sparse_reason(forward)
    if why is not None:
        raise CannotKnow(why)
    return _bounded(model(call, forward))


def _whole(call: OpCall, forward: OpCall) -> Cost | None:
    """Return the cost with the forward op's sizes, if these give bytes that the call alone does not."""
    linked = grad_model(call.name)
    if linked is None:
        return None
    try:
        figures = _with_forward(linked, call, forward)
    except (CannotKnow, ValueError, IndexError, ZeroDivisionError, OverflowError):
        return None  # the caller uses the call's own FLOPs
    return figures if figures.bytes is not None else None


#: Names that represent many ops at once: their cost is null because of missing data, not a missing model.
_TOGETHER = (
    (
        re.compile(r"CompiledFunction|Torch-Compiled Region|## Call CompiledFxGraph"),
        "a compiled region: its kernels' names show what it fused, but no trace records the sizes",
    ),
    (
        re.compile(r"Optimizer\.(step|zero_grad)#"),
        "an optimizer step: the trace records no shapes of its parameters",
    ),
)


def _unfit(call: OpCall) -> str:
    """Return the reason why a formula cannot use the shapes of a call."""
    if not tensors(call):
        return NO_SHAPES
    return f"the shapes do not fit {call.name}"


def _no_model(call: OpCall) -> str:
    """Return the reason why an op without a model has no cost."""
    if call.name.startswith("CompiledFunction") and tensors(call):
        return "a compiled region: the trace records the sizes of its inputs, not what it computes or saves"
    if call.param(KNOWN) in (NAME_ONLY, TIME_ONLY):
        return "the engine's file gives no shapes of this layer"
    return next(
        (why for pattern, why in _TOGETHER if pattern.match(call.name)),
        f"no cost model for {call.name}",
    )


def _bounded(cost: Cost) -> Cost:
    """Return the cost; raise CannotKnow if a figure is negative or too large for a column (over 2^62)."""
    figures = (cost.flops, cost.bytes_read or 0, cost.bytes_written or 0)
    if max(figures) + (cost.bytes_read or 0) > LARGEST:
        raise CannotKnow("the sizes are too large to be real")
    if min(figures) < 0 or cost.matrix_flops < 0 or cost.vector_flops < 0:
        raise CannotKnow("the shapes of the inputs and outputs do not fit each other")
    return cost


def _from_forward(name: str, entry: Entry, forward: OpCall) -> Cost | None:
    """Return the cost of a backward op without shapes, from its forward op's call.

    A matrix product in the backward of a matrix product is one of its two gradients, which cost the same.
    """
    if entry.backward:
        figures, _ = backward_costs(forward)
    elif entry.family == "gemm" and op_type(forward.name) == "gemm":
        figures, _ = input_grad(forward)
    else:
        return None
    return (
        replace(figures, note="computed from the forward op's shapes")
        if figures is not None
        else None
    )


def wants_forward(name: str) -> bool:
    """Whether the cost of the op may be derived from its forward op's call if its own call lacks sizes."""
    entry = entry_of(name)
    if grad_model(name) is not None:
        return True
    return entry is not None and (entry.backward or entry.family == "gemm")


def wants_lengths(name: str) -> bool:
    """Whether the op may be attention over a cache, whose cost follows from the sums over a server step's
    requests."""
    entry = entry_of(name)
    return entry is not None and entry.family == "attention" and not entry.name.startswith("aten::")


def wants_model(name: str) -> bool:
    """Whether the op's cost follows from the model's configuration alone."""
    return name in EXPERT_LAYERS


def input_grad(forward: OpCall) -> tuple[Cost | None, str | None]:
    """The cost of the gradient with respect to the data, from the forward op's call."""
    return _gradient(forward, 0)


def weight_grad(forward: OpCall) -> tuple[Cost | None, str | None]:
    """The cost of the gradient with respect to the parameters, from the forward op's call."""
    return _gradient(forward, 1)


def backward_costs(
    forward: OpCall, *, data: bool = True, parameters: bool = True
) -> tuple[Cost | None, str | None]:
    """The summed cost of the gradients for the data and for the parameters, or of the selected one."""
    parts = [n for n, wanted in enumerate((data, parameters)) if wanted]
    total = Cost()
    for part in parts:
        gradient, why = _gradient(forward, part)
        if gradient is None:
            return None, why
        total += gradient
    return total, None


def _gradient(forward: OpCall, part: int) -> tuple[Cost | None, str | None]:
    model = backward_model(forward.name)
    if model is None:
        entry = lookup(forward.name)
        if entry is not None and entry.family in NO_MOVES:
            return Cost(), None
        return None, f"no cost model for the gradient of {forward.name}"
    if forward.truncated:
        return None, CUT_REASON
    sparse = sparse_reason(forward)
    if sparse is not None:
        return None, sparse
    try:
        return _bounded(model(forward)[part]), None
    except CannotKnow as why:
        return None, str(why)
    except (ValueError, IndexError, ZeroDivisionError, OverflowError):
        return None, _unfit(forward)


def op_type(name: str) -> str | None:
    """The family of an op (``gemm``, ``conv``, ``view`` …), ``None`` if it is not known."""
    entry = entry_of(name)
    return entry.family if entry else None


def is_view(name: str) -> bool:
    """Whether the op is registered as one that moves no data."""
    entry = entry_of(name)
    return entry is not None and entry.view


def entry_of(name: str) -> Entry | None:
    """The registry entry of an op, looked up by any spelling of its name."""
    return lookup(name)
