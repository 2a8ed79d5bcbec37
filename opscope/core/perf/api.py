"""From a call to its cost, its family, its gradients: the lookups that analysis uses."""

from __future__ import annotations

from opscope.core.schema import OpCall

from .registry import (
    CannotKnow,
    Cost,
    Entry,
    backward_model,
    grad_model,
    lookup,
)

#: Families whose FLOPs are zero whatever the shapes: a missing shape leaves only the bytes unknown.
FREE_FAMILIES = frozenset({"view", "query", "allocation", "copy", "fill", "communication"})


def cost(
    call: OpCall, direction: str | None = None, *, forward: OpCall | None = None
) -> tuple[Cost | None, str | None]:
    """What the call must do, or ``None`` and the reason why that cannot be known.

    ``direction`` is one of ``schema.DIRECTIONS`` or None. ``forward`` is the call of the forward op
    that a backward one differentiates, where the trace links them: it tells what the backward's own
    shapes do not (the weight's size of a weight gradient), and it alone gives the cost where the
    call is a forward's name seen in backward, or an autograd node. Never raises for a strange call.
    """
    entry = lookup(call.name)
    if entry is None:
        if forward is not None:
            total, why = backward_costs(forward)
            if total is not None:
                return total, None
            return None, why
        return None, f"no cost model for {call.name}"
    reason = "a cut text" if call.truncated else ""
    try:
        return entry.model(call), None
    except CannotKnow as why:
        reason = str(why)
    except (ValueError, IndexError, ZeroDivisionError, OverflowError) as why:
        # a stranger's shapes need not fit the op; that is unknown, not a crash
        reason = f"the shapes do not fit {call.name}: {why}"
    linked = grad_model(call.name)
    if linked is not None and forward is not None:
        try:
            return linked(call, forward), None
        except CannotKnow as why:
            reason = str(why)
        except (ValueError, IndexError, ZeroDivisionError, OverflowError) as why:
            reason = f"the shapes do not fit {call.name}: {why}"
    if entry.family in FREE_FAMILIES:
        return Cost(bytes_read=None, bytes_written=None, bytes_reason=reason), None
    return None, reason


def input_grad(forward: OpCall) -> tuple[Cost | None, str | None]:
    """The gradient with respect to the data, from the forward's call."""
    return _gradient(forward, 0)


def weight_grad(forward: OpCall) -> tuple[Cost | None, str | None]:
    """The gradient with respect to the parameters, from the forward's call."""
    return _gradient(forward, 1)


def backward_costs(
    forward: OpCall, *, data: bool = True, parameters: bool = True
) -> tuple[Cost | None, str | None]:
    """Both gradients together, or those asked for."""
    parts = [n for n, wanted in enumerate((data, parameters)) if wanted]
    total = Cost()
    for part in parts:
        one, why = _gradient(forward, part)
        if one is None:
            return None, why
        total += one
    return total, None


def _gradient(forward: OpCall, part: int) -> tuple[Cost | None, str | None]:
    model = backward_model(forward.name)
    if model is None:
        entry = lookup(forward.name)
        if entry is not None and entry.family in ("view", "query", "allocation"):
            return Cost(), None
        return None, f"no model of the gradient of {forward.name}"
    try:
        return model(forward)[part], None
    except CannotKnow as why:
        return None, str(why)
    except (ValueError, IndexError, ZeroDivisionError, OverflowError) as why:
        return None, f"the shapes do not fit {forward.name}: {why}"


def op_type(name: str) -> str | None:
    """The family of an op (``gemm``, ``conv``, ``view`` …), ``None`` where it is not known."""
    entry = entry_of(name)
    return entry.family if entry else None


def is_view(name: str) -> bool:
    """Whether the op is known to move nothing."""
    entry = entry_of(name)
    return entry is not None and entry.view


def entry_of(name: str) -> Entry | None:
    """The registry's entry of an op by any of its spellings."""
    return lookup(name)
