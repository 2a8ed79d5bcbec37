"""Push a range around each op that PyNative mode runs, and around gradients whose ops are hidden.

``begin`` and ``end`` are called by the observer of ops: the dispatch mode, or the wrapped entry points of
versions without dispatch modes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from time import perf_counter_ns
from typing import Any, Final

from opscope.adapters.shared.source import NOWHERE, Source, Sources
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.own_cost import Cost
from opscope.core.communication import is_node
from opscope.core.schema import Arg, OpCall, TensorSpec

from .call import argument, attributes, described, dtype_name, is_tensor, sign
from .state import MAX_MADE, Entry, State, Threads

#: Distinct calls to remember. When there are more, all are forgotten and prepared again.
MAX_ENTRIES: Final = 65_536
#: The most texts of one op with equal tensors and different numbers; further numbers are written as
#: ``varies``.
MAX_VARIANTS: Final = 32
#: Primitives whose attributes are remembered.
MAX_PRIMITIVES: Final = 4_096
#: Primitives that are not ops: MindSpore runs them in Python, and they work on types or on the control flow.
UNRECORDED: Final = frozenset(
    {
        *(
            "typeof",
            "isinstance_",
            "hasattr",
            "make_tuple",
            "tuple_getitem",
            "Depend",
            "UpdateState",
        ),
        *("Load", "J", "StopGradient", "stop_gradient", "PyExecute", "HookBackward", "is_constant"),
        *("CellBackwardHook", "InsertGradientOf"),
    }
)
_frame = sys._getframe


class Ops:
    """Makes the ranges of ops. One object serves all threads; ``on`` is its switch."""

    def __init__(
        self,
        emitter: Emitter,
        threads: Threads,
        sources: Sources | None,
        shapes: bool,
        failed: Callable[[str], None],
        device: Callable[[], str | None],
        wait: Callable[[], None],
        guard: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.emitter = emitter
        self.threads = threads
        self.failed = failed
        #: Function that waits until the ops of this thread have run: see ``sync``.
        self.wait = wait
        self.guard = guard
        self.on = False
        #: Whether ops within a gradient are observed, except for ops that are run through a Primitive.
        self.sees_gradients = True
        self.cost = Cost("ops", 16, 2)
        self._local = threads.local
        self._sources = sources
        self._shapes = shapes
        self._device = device
        self._entries: dict[tuple[Any, ...], Entry] = {}
        self._variants: dict[tuple[Any, ...], int | Entry] = {}
        self._primitives: dict[int, tuple[Any, Any]] = {}

    def state(self) -> State:
        """Return the state of this thread."""
        state: State | None = getattr(self._local, "state", None)
        if state is None or state.run != self.threads.run:
            return self.threads.current()
        return state

    def begin(
        self, name: str, primitive: Any, args: Any, depth: int, named: bool = True
    ) -> Entry | None:
        """Push the range of an op. ``depth``: frames from this call to the first that may be the user's.

        ``primitive``: the Primitive that the op is run through, None if MindSpore's newer way is taken. If
        not ``named``, a result's autograd node shows the op's name. Return None, and push nothing, if it is
        not an op.
        """
        if name in UNRECORDED:
            return None
        state = self.state()
        category = state.category
        seq, number = -1, 0
        if category == "backward":
            seq, number, source = state.node
            if not state.nodes and self._sources is not None:
                source = NOWHERE
        else:
            source = NOWHERE if self._sources is None else self._sources.find(_frame(depth + 1))
        state.seen += 1
        key: list[Any] = [name, category, source]
        if self._shapes:
            if primitive is not None:
                key.append(self._signature(primitive))
            sign(key, args)
        key_tuple = tuple(key)
        entry = self._entries.get(key_tuple)
        if entry is None:
            entry = self._enter(key_tuple, name, primitive, args, category, source)
            entry.named = named
        if state.graphs and category == "forward":
            seq = state.seq = state.seq + 1
            number = state.number
            if len(state.made) < MAX_MADE:
                state.made.append((seq, entry))
        if seq >= 0:
            self.emitter.push(entry.prepared, seq, number)
        else:
            self.emitter.push(entry.prepared)
        return entry

    def end(self, entry: Entry, result: Any) -> None:
        """Pop the range of an op that has run; the first time, with its outputs."""
        complete = None
        try:
            state = self._local.state
            if state.graphs and entry.category != "backward":
                _anchor(state, entry, result)
            if self._shapes and not (entry.known and _same(entry, result)):
                complete = self._complete(entry, result)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("an op's result could not be described")
        self.emitter.pop(complete)

    def raised(self) -> None:
        """Pop the range of an op that raised."""
        self.emitter.pop()

    # ------------------------------------------------------------------- gradients of hidden ops

    def begin_gradient(
        self, of: Entry, grads: Any, needed: tuple[bool, ...] | None = None
    ) -> Entry:
        """Push the range of the gradient of a forward op, given the gradients of its results.

        ``needed``: for each tensor of the op whether its gradient is computed, if that is known.
        """
        seq, number, source = self.state().node
        entry = self.gradient(of, grads, source, needed)
        if seq >= 0:
            self.emitter.push(entry.prepared, seq, number)
        else:
            self.emitter.push(entry.prepared)
        return entry

    def past_gradient(self, entry: Entry, start: int, results: Any) -> None:
        """Record the gradient ``entry``, which began at ``start`` (perf_counter_ns) and has ended."""
        self.wait()
        seq, number, _ = self.state().node
        prepared = entry.prepared if entry.known else self._complete(entry, results)
        self.emitter.past(prepared, start, perf_counter_ns(), seq, number)

    def gradient(
        self, of: Entry, grads: Any, source: Source, needed: tuple[bool, ...] | None = None
    ) -> Entry:
        """Return the entry of a gradient, and push nothing. The arguments are those of ``begin_gradient``."""
        key: list[Any] = ["gradient of", of.call, source, needed]
        if self._shapes:
            sign(key, grads)
        key_tuple = tuple(key)
        entry = self._entries.get(key_tuple)
        if entry is None:
            self._make_room()
            forward = of.call
            inputs: tuple[Arg, ...] = ()
            if self._shapes:
                inputs = (*(argument(grad) for grad in grads), *forward.inputs)
            call = OpCall(
                f"{forward.name}Backward",
                inputs,
                None,
                forward.params,
                forward.device,
                source.frames,
            )
            if needed is not None and self._shapes:
                tensors = (input_ for input_ in forward.inputs if isinstance(input_, TensorSpec))
                found_here = zip(tensors, needed, strict=False)
                outputs = tuple(_row_major(grad) if is_so else None for grad, is_so in found_here)
                call = replace(call, outputs=outputs)
            prepared = self.emitter.prepare(call, "backward")
            entry = self._entries[key_tuple] = Entry(call, "backward", prepared, source, True)
            entry.known = call.outputs is not None
        return entry

    # --------------------------------------------------------------------------- descriptions

    def _signature(self, primitive: Any) -> Any:
        """Return the part of a call's key that a Primitive's attributes add."""
        entry = self._primitives.get(id(primitive))
        if entry is not None and entry[0] is primitive:
            return entry[1]
        if len(self._primitives) >= MAX_PRIMITIVES:
            self._primitives.clear()
        key = tuple(sorted((name, repr(value)) for name, value in attributes(primitive).items()))
        self._primitives[id(primitive)] = (primitive, key)
        return key

    def _make_room(self) -> None:
        if len(self._entries) >= MAX_ENTRIES or len(self._variants) >= MAX_ENTRIES:
            self._entries.clear()
            self._variants.clear()

    def _enter(
        self, key: Any, name: str, primitive: Any, args: Any, category: str, source: Source
    ) -> Entry:
        """Make or find the entry of a call with a new key."""
        self._make_room()
        bare: list[Any] = [name, category, source]
        if self._shapes:
            if primitive is not None:
                bare.append(self._signature(primitive))
            sign(bare, args, False)
        variant = tuple(bare)
        seen = self._variants.get(variant, 0)
        if isinstance(seen, Entry):
            return seen
        varies = seen >= MAX_VARIANTS
        call = OpCall(name, device=self._device())
        if self._shapes:
            call = described(name, primitive, args, self._device(), varies)
        call = OpCall(call.name, call.inputs, None, call.params, call.device, source.frames)
        direction = category
        if is_node(name):
            direction = "communication"
        prepared = self.emitter.prepare(call, direction)
        entry = Entry(call, direction, prepared, source, primitive is not None)
        entry.known = not self._shapes
        if varies:
            entry.results = {}
            self._variants[variant] = entry
        else:
            self._variants[variant] = seen + 1
            self._entries[key] = entry
        return entry

    def _complete(self, entry: Entry, result: Any) -> Prepared:
        """Return the range with the outputs. If outputs differ between calls, the ranges are kept by the
        outputs' key."""
        key_tuple: Any = None
        if entry.known:  # the results turn out to differ from call to call
            entry.known = False
            entry.results = {}
            entry.prepared = self.emitter.prepare(entry.call, entry.category)
        if entry.results is not None:
            key: list[Any] = []
            sign(key, (result,), False)
            key_tuple = tuple(key)
            prepared = entry.results.get(key_tuple)
            if prepared is not None:
                return prepared
        flat = result if isinstance(result, (list, tuple)) else (result,)
        outputs = tuple(map(argument, flat)) if result is not None else ()
        while outputs and outputs[-1] is None:
            outputs = outputs[:-1]
        first = next((value for value in flat if is_tensor(value)), None)
        if not entry.named and first is not None:
            _rename(entry, first)
        call = entry.call
        call_with_outputs = OpCall(
            call.name, call.inputs, outputs, call.params, call.device, call.frames
        )
        complete = self.emitter.prepare(call_with_outputs, entry.category)
        if first is not None:
            dtype_name(first._dtype)
            entry.shape, entry.dtype = first._shape, id(first._dtype)
        if entry.results is not None:
            if len(entry.results) < MAX_VARIANTS:
                entry.results[key_tuple] = complete
        else:
            entry.prepared = complete
            entry.known = True
        return complete


def _row_major(tensor: TensorSpec) -> TensorSpec:
    return TensorSpec(tensor.dtype, tensor.shape)


def _rename(entry: Entry, result: Any) -> None:
    """Give an entry the name of the op that made ``result``, if its autograd node shows it."""
    node = getattr(result, "_grad_node", None)
    if node is not None and not node.is_leaf():
        entry.call = replace(entry.call, name=str(node.name()))
        entry.named = True


def _anchor(state: State, entry: Entry, result: Any) -> None:
    """Note the autograd node that an op made. Results that the dispatch mode gets often have no node yet."""
    if type(result) in (tuple, list):
        result = result[0] if result else None
    node = getattr(result, "_grad_node", None)
    calls = state.made
    if node is not None and calls and calls[-1][1] is entry and not node.is_leaf():
        state.anchors[node._sequence_nr()] = len(calls) - 1


def _same(entry: Entry, result: Any) -> bool:
    """Return whether a result matches the entry, by the shape of its first tensor."""
    if entry.shape is None:
        return True
    if type(result) in (tuple, list):
        result = next((value for value in result if is_tensor(value)), None)
    return not is_tensor(result) or result._shape == entry.shape
