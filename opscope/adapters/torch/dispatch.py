"""The dispatch mode: turns every op into a range. This is the hot path of a recording in pure Python.

A TorchDispatchMode runs below autograd and autocast, so it sees each op once, forward and backward, with the
tensors that the kernels get. Measured on one tiny op: PyTorch's own cost of a mode is 3 to 4 µs; the rest of
what ``benchmarks/torch_overhead.py`` prints is ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data._utils import worker

from opscope.adapters.shared.source import NOWHERE, Source, Sources
from opscope.core.capture.emit import Emitter
from opscope.core.capture.own_cost import Cost
from opscope.core.communication import TORCH
from opscope.core.schema import OpCall

from .call import Unsigned, describe, holds_data, schema_arguments, sign, with_result
from .dynamo import CAN_MARK, untraced
from .state import Entry, Threads, ThreadState

if TYPE_CHECKING:
    from .native.observer import NativeMode

#: The most distinct calls that are remembered; at the limit all are forgotten and prepared anew.
MAX_ENTRIES: Final = 65_536
#: The most texts of one op with the same tensors and different numbers (an Adam step's bias correction, an
#: index in a loop). Beyond it the numbers are written as ``varies``, in one text for all calls.
MAX_VARIANTS: Final = 32
#: The sequence number of AccumulateGrad and other autograd nodes without a forward op.
NO_SEQ: Final = 2**64 - 1

_next_seq = torch.autograd._get_sequence_nr
_node = torch._C._current_autograd_node
_grad_enabled = torch.is_grad_enabled
#: The id of the backward pass that this thread works for; -1: none.
_graph_task = torch._C._current_graph_task_id
_frame = sys._getframe
#: How many modes are on the stack below the one that handles an op.
_modes_left = torch._C._len_torch_dispatch_stack

#: Queries of a tensor's sizes. Only subclasses send them through dispatch, and only the subclass can answer.
_QUERIES: Final = frozenset(
    f"aten::{name}"
    for name in (
        *("is_contiguous", "sym_is_contiguous", "is_strides_like_format", "numel", "sym_numel"),
        *("is_non_overlapping_and_dense", "size", "sym_size", "stride", "sym_stride", "dim"),
        *("storage_offset", "sym_storage_offset"),
    )
) | {"prim::layout"}
#: Prefixes of names that are not operators: the profiler's markers, attributes of subclasses.
_UNRECORDED: Final = ("prim::", "profiler::", "aten::is_same_size")
#: Prefixes of ops whose output sizes depend on data although PyTorch does not tag them so.
_DYNAMIC: Final = ("aten::_pack_padded_sequence", "aten::_unique", "aten::unique", "aten::nonzero")
_DYNAMIC_TAGS: Final = frozenset(
    getattr(torch.Tag, name)
    for name in ("dynamic_output_shape", "data_dependent_output")
    if hasattr(torch.Tag, name)
)


class OpInfo:
    """The properties of an op overload that are the same in every call."""

    __slots__ = ("arguments", "call", "category", "dynamic", "func", "name", "query", "recorded")

    def __init__(self, func: Any) -> None:
        self.func = func  # kept alive, because it is looked up by id
        schema = getattr(func, "_schema", None)
        if schema is None:
            namespace = getattr(func, "namespace", None) or "higher_order"
            self.name = f"{namespace}::{func.name()}" if callable(func.name) else str(func)
        else:
            overload = schema.overload_name
            self.name = f"{schema.name}.{overload}" if overload else schema.name
        self.arguments = schema_arguments(func)
        base = self.name.split(".", 1)[0]
        self.query = base in _QUERIES
        self.recorded = not base.startswith(_UNRECORDED)
        self.category = "communication" if base.startswith(TORCH) else None
        tags = set(getattr(func, "tags", ()))
        self.dynamic = schema is None or bool(tags & _DYNAMIC_TAGS) or base.startswith(_DYNAMIC)
        # Call directly what OpOverload.__call__ calls, without its Python frame.
        self.call: Callable[..., Any] = func._op if type(func) is torch._ops.OpOverload else func


class OpMode(TorchDispatchMode):  # type: ignore[misc] # torch is not typed here
    """Pushes a range for each op. One object serves all threads; ``on`` is its switch."""

    #: PyTorch refuses higher-order ops (``cond``, ``flex_attention``) under a mode without this attribute.
    supports_higher_order_operators = True

    def __init__(
        self,
        emitter: Emitter,
        threads: Threads,
        sources: Sources | None,
        shapes: bool,
        failed: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.emitter = emitter
        self.threads = threads
        self._local = threads.local
        self.on = False
        #: The native observer, where it records the ops instead. Then this mode is on no stack and serves
        #: only as the switch that the hooks read.
        self.native: NativeMode | None = None
        #: Whether the mode was ever on a thread's stack; then it may still be there when it is off.
        self.ever_entered = False
        #: The number of running backward passes that build an autograd graph (``create_graph=True``).
        self.creating = 0
        self.cost = Cost("ops, dispatch", 64, 2)
        self._sources = sources
        self._shapes = shapes
        self._failed = failed
        self._infos: dict[int, OpInfo] = {}
        self._entries: dict[tuple[Any, ...], Entry] = {}
        self._texts: dict[tuple[str, str], Entry] = {}
        #: A call's key without numbers → how many calls with different numbers were seen, or the entry for
        #: all of them.
        self._variants: dict[tuple[Any, ...], int | Entry] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: otherwise torch.compile silently stops compiling under the mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # If False, PyTorch wraps the method, which costs 1 µs per op. Marking its code replaces that.
        return not CAN_MARK

    def create(self, change: int) -> None:
        """Count a backward pass that builds an autograd graph: it begins (1) or ends (-1)."""
        self.creating += change
        if self.native is not None:
            self.native.creating = self.creating

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.on:
            return func(*args, **kwargs) if kwargs else func(*args)
        entry: Entry | None = None
        begin = own = 0
        try:
            begin = self.cost.begin()
            info = self._infos.get(id(func))
            if info is None:
                info = self._infos[id(func)] = OpInfo(func)
            if info.query:
                return NotImplemented
            call = info.call
            if types and _divide(types):  # a DTensor handles the op by calling other ops
                state = self.threads.current()
                if state.passing:
                    state.passing = False
                    return NotImplemented
                call = self._within(state, call)
            if info.recorded and not _traces(types):
                entry = self._begin(info, args, kwargs)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("an op could not be described")
            call = func
        # Read here and not after the op: by then another thread may have completed the entry.
        is_known = entry is not None and entry.known
        if begin:
            own = perf_counter_ns() - begin
        try:
            result = call(*args, **kwargs) if kwargs else call(*args)
        # an error of the program, or an interrupt: close the range and pass it on
        except BaseException:
            if entry is not None:
                self.emitter.pop()
            raise
        if begin:
            begin = perf_counter_ns() - own  # so that the op's own time does not count
        if entry is not None:
            if is_known:
                self.emitter.pop()
            else:
                self._end(entry, args, kwargs, result)
        if begin:
            self.cost.end(begin)
        return result

    def _within(self, state: ThreadState, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call changed so that the ops which a tensor's subclass calls for it reach this mode too.

        The op itself comes back first, and is passed on to the subclass.
        """

        def again(*args: Any, **kwargs: Any) -> Any:
            state.passing = True
            try:
                with self:
                    return call(*args, **kwargs)
            finally:
                state.passing = False

        return again

    def _begin(self, info: OpInfo, args: Any, kwargs: Any) -> Entry:
        """Find or make the op's entry and push its range."""
        try:
            state: ThreadState = self._local.state
            if state.run != self.threads.run:
                state = self.threads.current()
        except AttributeError:
            state = self.threads.current()
        node = _node()
        # Grad mode is on within an autograd node when a checkpoint recomputes its forward (or when the
        # backward pass builds a graph of its own): the recomputed ops are forward ops.
        forward = node is None or (not self.creating and _grad_enabled())
        if forward:
            category, source, seq, thread = self._forward_way(state, node is not None, args)
        else:
            category, source, seq, thread = self._backward_way(node)
        if info.category is not None:
            category = info.category
        key: list[Any] = [info, category, source]
        try:
            if self._shapes:
                sign(key, args)
                if kwargs:
                    key.extend(kwargs)
                    sign(key, kwargs.values())
            entry = self._entries.get(tuple(key))
            if entry is None:
                entry = self._enter(key, info, category, source, args, kwargs or {})
        except Unsigned:
            entry = self._prepare(info, category, source, args, kwargs or {}, dynamic=True)
        if forward and seq >= 0:  # the op made an autograd node, the latest of this thread
            self._made(state, seq + 1, entry)
        elif node is not None and self.creating and category == "backward":
            self._made_in_backward(state, args, entry)
        self.emitter.push(entry.prepared, seq, thread)
        return entry

    def _forward_way(
        self, state: ThreadState, in_node: bool, args: Any
    ) -> tuple[str, Source, int, int]:
        """Return direction, source, sequence number and forward thread of a forward op.

        Number -1: the op made no autograd node.
        """
        if state.forced_category is not None:
            category = state.forced_category
        elif not in_node and _graph_task() >= 0:
            category = "backward"  # these are callbacks that the engine runs after its nodes
        elif state.optimizing and not _grad_enabled():
            category = "optimizer"
        elif state.wait or worker._worker_info is not None:
            category = "input"
        else:
            category = "forward"
        seq, thread = -1, 0
        next_seq = _next_seq()
        # The op's autograd kernel has made its node before it called this mode. Other nodes advance the
        # counter too (a view written in place gets one more, after the op), so only an op with an input
        # that requires grad takes the number.
        if next_seq != state.next_seq and category != "backward" and _requires_grad(args):
            seq, thread = next_seq - 1, state.number
        try:
            source = NOWHERE if self._sources is None else self._sources.find(_frame(3))
        except ValueError:  # no Python frame called this: a thread of TorchScript
            source = NOWHERE
        return category, source, seq, thread

    def _backward_way(self, node: Any) -> tuple[str, Source, int, int]:
        """Return, for an op within autograd ``node``, the source, number and forward thread of the op that
        made it."""
        source, seq, thread = NOWHERE, -1, 0
        number = node._sequence_nr()
        if number != NO_SEQ:
            maker = self.threads.maker(number, node)
            if maker is not None:
                seq, thread = maker.aliases.get(number, number), maker.number
                forward = maker.nodes.get(number)
                if forward is not None:
                    source = forward.source
        return "backward", source, seq, thread

    def _made(self, state: ThreadState, next_seq: int, entry: Entry) -> None:
        """Register autograd node ``next_seq - 1`` as made by the op of ``entry``."""
        nodes = state.nodes
        if not nodes:
            self.threads.first_node(state)
        if next_seq - state.next_seq > 1:
            # The nodes in between were made after the op that made the last known node (CopySlices).
            last = nodes.get(state.next_seq - 1)
            if last is not None:
                for seq in range(max(state.next_seq, next_seq - 16), next_seq - 1):
                    state.made(seq, last)
                    state.aliases[seq] = state.next_seq - 1
        state.made(next_seq - 1, entry)
        state.next_seq = next_seq

    def _made_in_backward(self, state: ThreadState, args: Any, entry: Entry) -> None:
        """Register a node of the graph that a backward pass builds; its source is the forward op's."""
        next_seq = _next_seq()
        if next_seq != state.next_seq and _requires_grad(args):
            self._made(state, next_seq, entry)

    def _enter(
        self,
        key: list[Any],
        info: OpInfo,
        category: str,
        source: Source,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Entry:
        """Make or find the entry of a call with a new key."""
        if len(self._entries) >= MAX_ENTRIES or len(self._variants) >= MAX_ENTRIES:
            self._entries.clear()
            self._variants.clear()
        bare: list[Any] = [info, category, source]
        if self._shapes:
            sign(bare, args, False)
            bare.extend(kwargs)
            sign(bare, kwargs.values(), False)
        variant = tuple(bare)
        seen = self._variants.get(variant, 0)
        if isinstance(seen, Entry):
            return seen
        if seen >= MAX_VARIANTS:
            entry = self._prepare(info, category, source, args, kwargs, dynamic=True, varies=True)
            self._variants[variant] = entry
            return entry
        self._variants[variant] = seen + 1
        dynamic = info.dynamic or (self._shapes and holds_data((args, tuple(kwargs.values()))))
        entry = self._prepare(info, category, source, args, kwargs, dynamic=dynamic)
        self._entries[tuple(key)] = entry
        return entry

    def _prepare(
        self,
        info: OpInfo,
        category: str,
        source: Source,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        dynamic: bool,
        varies: bool = False,
    ) -> Entry:
        """Make an entry with its prepared text. ``dynamic``: its outputs differ from call to call."""
        if self._shapes:
            call = describe(info.name, info.arguments, args, kwargs, source.frames, varies)
        else:
            call = OpCall(info.name, frames=source.frames)
            dynamic = False
        prepared = self.emitter.prepare(call, category)
        # A call without a signature comes here every time: keep one entry per text.
        text = self._texts.get((category, prepared.text)) if dynamic else None
        if text is not None:
            return text
        entry = Entry(call, info.arguments, category, source, prepared, dynamic)
        entry.known = not self._shapes
        if dynamic:
            if len(self._texts) >= MAX_ENTRIES:
                self._texts.clear()
            self._texts[category, prepared.text] = entry
        return entry

    def _end(self, entry: Entry, args: Any, kwargs: Any, result: Any) -> None:
        """Close the range and record the outputs, which are new or vary from call to call."""
        complete = None
        try:
            key: list[Any] = []
            results = entry.by_result
            signed = False
            if results is not None:
                try:
                    sign(key, (result,), False)  # texts never contain a result's numbers
                    signed = True
                    complete = results.get(tuple(key))
                except Unsigned:
                    pass
            if complete is None:
                call = with_result(entry.call, entry.arguments, args, kwargs or {}, result)
                new = entry.call.device is None
                complete = self.emitter.prepare(call, entry.category, device_is_new=new)
                if results is None:
                    entry.prepared = complete
                    entry.known = True
                elif signed and len(results) < MAX_VARIANTS:
                    results[tuple(key)] = complete
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the result of an op could not be described")
        self.emitter.pop(complete)


def _divide(types: Any) -> bool:
    """Whether a DTensor takes the op and no mode comes before: a compiler's mode would not see the op
    again."""
    return any(kind.__name__ == "DTensor" for kind in types) and not _modes_left()


def _traces(types: Any) -> bool:
    """Whether a fake tensor takes the op: a compiler, or a DTensor that finds out how a result is divided."""
    return any(kind.__name__ == "FakeTensor" for kind in types)


def _requires_grad(values: Any) -> bool:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                return True
        elif isinstance(value, (list, tuple)) and _requires_grad(value):
            return True
    return False


untraced(OpMode.__torch_dispatch__)
