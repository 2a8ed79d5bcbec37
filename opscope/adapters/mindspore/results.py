"""Observe when the gradient of a forward op begins, by a hook on the op's result: for version 2.7, which has
no nodes. || MindSpore calls the hook once the result's gradient is complete, and then differentiates the op.
So the range of a gradient lasts until the next gradient begins or the backward pass ends. It holds all ops of
the gradient, and the sum of gradients that the next one needs.

A tensor must have no hook of ours when it is given to a compiled function: MindSpore compiles the hook with
the function, cannot compile ours, and would compile anew for each tensor. So the hook is taken off first.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from opscope.core.schema import FLOATS

from .call import dtype_name, is_tensor
from .ops import Ops
from .state import Entry, State

#: By id: the live tensors that have a hook of ours, and the handles of the hooks.
_hooked: Final[dict[int, tuple[weakref.ref[Any], Any]]] = {}


class _Passes:
    """How many backward passes run, on all threads, and whether hooks come off after the last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.unhook = False


_passes: Final = _Passes()


def hook(ops: Ops, state: State, entry: Entry, args: Any, result: Any) -> None:
    """Hook the results of the op that was recorded last among those of an autograd graph."""
    flat = result if type(result) in (tuple, list) else (result,)
    outputs = [value for value in flat if is_tensor(value) and dtype_name(value._dtype) in FLOATS]
    if not outputs or not state.made or state.made[-1][1] is not entry:
        return
    results = state.results
    floats = [arg for arg in args if is_tensor(arg) and dtype_name(arg._dtype) in FLOATS]
    needed = [one for one in floats if _is_trained(one) or _is_in(results, one)]
    # with neither weights nor results of ops, only the function's arguments can need one
    ids = tuple(map(id, needed or floats))
    one = _Result(ops, state.made[-1][0], state.number, entry, ids, args)
    for output in outputs:
        handle = output.register_hook(one.arrives)
        results[id(output)] = weakref.ref(output)
        _hooked[id(output)] = weakref.ref(output, _forgets(id(output))), handle


def unhook(values: Iterable[Any]) -> None:
    """Take our hooks off the tensors in ``values``, which may lie in tuples, lists and dicts."""
    if not _hooked:
        return
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, (list, tuple)):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
        else:
            _take_off(id(value))


def unhook_all() -> None:
    """Take our hooks off all tensors; while a backward pass runs, once the last one has ended.

    MindSpore 2.7 crashes if a hook is taken off while it calls the hooks.
    """
    if _passes.running:
        _passes.unhook = True
        return
    for key in list(_hooked):
        _take_off(key)


@contextmanager
def backward_pass() -> Iterator[None]:
    """Keep the hooks on all tensors while a backward pass runs."""
    with _passes.lock:
        _passes.running += 1
    try:
        yield
    finally:
        with _passes.lock:
            _passes.running -= 1
            unhook = _passes.unhook and not _passes.running
            if unhook:
                _passes.unhook = False
        if unhook:
            unhook_all()


def _take_off(key: int) -> None:
    hooked = _hooked.pop(key, None)
    if hooked is not None and hooked[0]() is not None:
        hooked[1].remove()


def _forgets(key: int) -> Callable[[Any], object]:
    return lambda _: _hooked.pop(key, None)


def finish(ops: Ops, state: State) -> None:
    """End the running gradient, if there is one, because another begins or the backward pass has ended."""
    begun, state.gradient = state.gradient, None
    if begun is not None:
        state.nodes.clear()
        ops.wait()
        ops.emitter.pop(begun[1])


def _is_trained(tensor: Any) -> bool:
    return bool(getattr(tensor, "param_info", None) is not None and tensor.requires_grad)


def _is_in(results: dict[int, Any], tensor: Any) -> bool:
    reference = results.get(id(tensor))
    return reference is not None and reference() is tensor


class _Result:
    """The hook of an op's results. It holds no tensor."""

    __slots__ = ("_entry", "_needed", "_number", "_ops", "_seq")

    def __init__(
        self, ops: Ops, seq: int, number: int, entry: Entry, needed: tuple[int, ...], args: Any
    ) -> None:
        self._ops = ops
        self._seq = seq
        self._number = number
        self._entry = entry
        #: For each tensor of the op: whether its gradient is computed.
        self._needed = tuple(id(arg) in needed for arg in args if is_tensor(arg))

    def arrives(self, grad: Any) -> None:
        """The gradient of the result is complete, so the gradient of the op is computed next."""
        ops = self._ops
        if not ops.on:
            return
        try:
            state = ops.state()
            if not state.backward or (state.gradient and state.gradient[0] == self._seq):
                return
            finish(ops, state)
            state.nodes.append((self._seq, self._number, self._entry.source))
            begun = ops.begin_gradient(self._entry, (grad,), self._needed)
            state.gradient = (self._seq, begun.prepared if begun.known else None)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            ops.failed("a gradient could not be described")
