"""Whether JAX runs what it is told at this moment, or only writes it down for a program to come."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

#: Traces of this kind record; others (gradients, batches) run what their parents run.
_RECORDING: Final = "DynamicJaxprTrace"
#: Transformations within each other that are looked through.
_DEPTH: Final = 32


def runs() -> Callable[[], bool]:
    """What tells it, of the calling thread, in under a microsecond.

    Raises AttributeError or ImportError where this JAX keeps its state otherwise.
    """
    core = import_module("jax._src.core")
    context, clean = core.trace_ctx, core.trace_state_clean
    _ = context.trace  # raises here rather than in each call

    def running() -> bool:
        if clean():
            return True
        trace: Any = context.trace
        for _ in range(_DEPTH):
            if type(trace).__name__ == _RECORDING:
                return False
            above = getattr(trace, "parent_trace", None)
            if above is None:
                return True
            trace = above
        return False

    return running
