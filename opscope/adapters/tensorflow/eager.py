"""Push a range around each eager op, at TensorFlow's two entry points.

All generated code looks up ``TFE_Py_FastPathExecute`` and ``TFE_Py_Execute`` on their module. Replacing
them there shows every eager op with its arguments and results.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import core
from tensorflow.python.framework.ops import EagerTensor

from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.reads import Reads
from opscope.adapters.shared.source import NOWHERE, Source, Sources
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.schema import OpCall

from .call import input_count, parameters
from .eager_calls import DYNAMIC, PLAIN, Entry, argument, device_of, same, sign, text

#: Distinct calls to remember. When there are more, all are forgotten and prepared again.
MAX_ENTRIES: Final = 65_536
#: Tensors of forward ops that a thread remembers, to pair its backward ops with.
MAX_MADE: Final = 65_536
_INPUT: Final = ("Iterator", "OptionalGet", "OptionalHas", "MakeIterator", "AnonymousIterator")
_OPTIMIZER: Final = ("ResourceApply", "ResourceSparseApply")
#: Prefix of TensorFlow's function names. A function runs graph ops; its call is not an op.
_FUNCTION: Final = "__"
#: Frames between ``_begin`` and the first frame that may be the user's. Generated code calls the fast entry
#: point, which adds a frame.
_FAST, _SLOW = 3, 2
_ALL: Final = 1 << 30
_frame = sys._getframe
_tapeless = pywrap_tfe.TFE_Py_TapeSetIsEmpty


class _State:
    """The state of a thread."""

    __slots__ = (
        "around",
        "backward",
        "made",
        "number",
        "optimizing",
        "seq",
        "source",
        "tape_backward",
    )

    def __init__(self) -> None:
        self.number = next(_NUMBERS)
        #: Sequence number and source of the forward op whose gradient is being computed (-1 if the op is
        #: unknown), and the same of the enclosing gradients.
        self.backward = -1
        self.source = NOWHERE
        self.around: list[tuple[int, Source]] = []
        self.seq = 0
        self.optimizing = 0
        #: Whether ops are backward work of a gradient tape: see ``tapes``.
        self.tape_backward = False
        #: (op, id of one of its inputs or outputs) → its sequence number and source.
        self.made: dict[tuple[str, Any], tuple[int, Source]] = {}


class _Local(threading.local):
    """Each thread's state."""

    def __init__(self) -> None:
        self.state = _State()


_NUMBERS = itertools.count(1)


class EagerOps:
    """The hooks of the entry points. ``install`` sets them while something listens."""

    def __init__(
        self,
        emitter: Emitter,
        sources: Sources | None,
        shapes: bool,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._sources = sources
        self._shapes = shapes
        self._failed = failed
        self._retried = emitter.prepare("an op that is tried another way", ends=True)
        self._entries: dict[Any, Entry] = {}
        self._counts: dict[str, int] = {}
        self._patches = Patches()
        self._reads = Reads(sources, failed)
        self._local = _Local()
        self.on = False

    def install(self) -> None:
        """Replace the entry points."""
        self.on = True
        self._reads.hear(EagerTensor)
        if self._patches:
            return
        self._patches.wrap(pywrap_tfe, "TFE_Py_FastPathExecute", self._fast)
        self._patches.wrap(pywrap_tfe, "TFE_Py_Execute", self._slow)
        # .numpy(), float(x) and other reads of values, but not np.array(x), which takes the tensor's memory
        base = next((kind for kind in EagerTensor.__mro__ if "_numpy" in vars(kind)), None)
        if base is not None:  # a private name
            self._patches.wrap(base, "_numpy", self._reads.around("tf.Tensor.numpy"))

    def uninstall(self) -> None:
        """Restore the entry points."""
        self.on = False
        self._patches.restore()
        self._reads.forget()

    def _fast(self, execute: Any) -> Any:
        begin, end, emitter = self._begin, self._end, self._emitter
        counts, tapeless = self._counts, pywrap_tfe.TFE_Py_TapeSetIsEmpty

        def TFE_Py_FastPathExecute(ctx: Any, name: str, scope: Any, *args: Any) -> Any:
            if not self.on:
                return execute(ctx, name, scope, *args)
            entry = None
            try:
                inputs_expected = counts[name] if name in counts else self._count(name)
                entry = begin(name, args, inputs_expected, _FAST)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("an op could not be described")
            try:
                result = execute(ctx, name, scope, *args)
            except core._FallbackException:
                # TensorFlow calls the op again through the other entry point, now and for every call
                # with such arguments. The pop's text replaces the range's, so the range is not an op.
                if entry is not None:
                    entry.falls_back = True
                    emitter.pop(self._retried)
                raise
            except BaseException:  # an interrupt must also close the range that it leaves
                if entry is not None:
                    emitter.pop()
                raise
            if entry is not None:
                # The common case, without a Python call: one result of the same shape, and no tape.
                if entry.shape is not None and tapeless():
                    try:
                        if result._shape_tuple() == entry.shape:
                            emitter.pop()
                            return result
                    except AttributeError:  # the result is not a tensor: take the full path
                        pass
                end(entry, result)
            return result

        return TFE_Py_FastPathExecute

    def _slow(self, execute: Any) -> Any:
        begin, end, emitter = self._begin, self._end, self._emitter

        def TFE_Py_Execute(
            handle: Any, device: Any, name: Any, inputs: Any, attrs: Any, *rest: Any
        ) -> Any:
            if not self.on:
                return execute(handle, device, name, inputs, attrs, *rest)
            entry = None
            try:
                op_name = text(name)
                if not op_name.startswith(_FUNCTION):
                    entry = begin(op_name, (*inputs, *(attrs or ())), len(inputs), _SLOW)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("an op could not be described")
            try:
                result = execute(handle, device, name, inputs, attrs, *rest)
            except BaseException:  # an interrupt must also close the range that it leaves
                if entry is not None:
                    emitter.pop()
                raise
            if entry is not None:
                end(entry, result)
            return result

        return TFE_Py_Execute

    def _count(self, name: str) -> int:
        """Return how many of the op's arguments are inputs, ``_ALL`` if that is not known."""
        expected = input_count(name)
        count = self._counts[name] = _ALL if expected is None else expected
        return count

    def _begin(self, name: str, args: Any, count: int, above: int) -> Entry | None:
        """Push the op's range. ``above``: how many frames to skip to the first that may be the user's.

        Return None, and push nothing, if the fast entry point is known to reject these arguments.
        """
        state = self._local.state
        key: list[Any] = [name]
        if self._shapes:
            add = key.append
            for number, value in enumerate(args):
                kind = type(value)
                if kind is EagerTensor:
                    add(value._datatype_enum())
                    add(value._shape_tuple())
                elif kind in PLAIN:
                    # the values of numbers among the inputs are not in the text
                    add(kind if number < count else value)
                else:
                    sign(key, (value,), number >= count)
        seq = -1
        if state.around:
            category, seq, source = "backward", state.backward, state.source
        else:
            source = NOWHERE if self._sources is None else self._sources.find(_frame(above))
            if state.tape_backward:
                category = "backward"
            else:
                category = "optimizer" if state.optimizing else "forward"
            if not (state.tape_backward or _tapeless()):
                seq = state.seq = state.seq + 1
                created = state.made
                if len(created) > MAX_MADE:
                    created.clear()
                mine = (seq, source)
                for arg in args[:count]:
                    created[name, getattr(arg, "_id", None)] = mine
        key.append(category)
        key.append(source)
        signature_key = tuple(key)
        entry = self._entries.get(signature_key)
        if entry is None:
            entry = self._entry(signature_key, name, args, count, category, source)
        elif entry.falls_back and above == _FAST:
            return None
        if seq >= 0:
            self._emitter.push(entry.prepared, seq, state.number)
        else:
            self._emitter.push(entry.prepared)
        return entry

    def _entry(
        self, key: Any, name: str, args: Any, count: int, category: str, source: Source
    ) -> Entry:
        if len(self._entries) >= MAX_ENTRIES:
            self._entries.clear()
        if name.startswith(_INPUT):
            category = "input"
        elif name.startswith(_OPTIMIZER):
            category = "optimizer"
        inputs = tuple(map(argument, args[:count])) if self._shapes else ()
        pairs = zip(args[count::2], args[count + 1 :: 2], strict=False) if self._shapes else ()
        call = OpCall(
            name,
            inputs,
            None,
            parameters(name, ((text(one), value) for one, value in pairs)),
            None,
            source.frames,
        )
        prepared = self._emitter.prepare(call, category)
        entry = self._entries[key] = Entry(call, category, prepared, source, name in DYNAMIC)
        return entry

    def _end(self, entry: Entry, result: Any) -> None:
        try:
            state = self._local.state
            if not (state.around or state.tape_backward or _tapeless()):
                output = result[0] if type(result) is list and result else result
                state.made[entry.call.name, getattr(output, "_id", None)] = (
                    state.seq,
                    entry.source,
                )
            if entry.known and same(entry.result, result):
                self._emitter.pop()
            else:
                self._emitter.pop(self._complete(entry, result) if self._shapes else None)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("an op's result could not be described")

    def _complete(self, entry: Entry, result: Any) -> Prepared:
        key: list[Any] = []
        sign(key, result if type(result) is list else (result,), True)
        result_key = tuple(key)
        if entry.known:  # the results turn out to differ from call to call
            entry.dynamic, entry.known, entry.shape = True, False, None
            entry.prepared = self._emitter.prepare(entry.call, entry.category)
        complete = entry.results.get(result_key)
        if complete is None:
            flat = result if isinstance(result, (list, tuple)) else (result,)
            outputs = tuple(argument(output) for output in flat if output is not None)
            call = entry.call
            call_with_outputs = OpCall(
                call.name, call.inputs, outputs, call.params, device_of(flat), call.frames
            )
            complete = self._emitter.prepare(call_with_outputs, entry.category, device_is_new=True)
            if entry.dynamic:
                if len(entry.results) < MAX_ENTRIES // 64:
                    entry.results[result_key] = complete
            else:
                entry.prepared = complete
                entry.result = result_key
                entry.known = True
                if type(result) is EagerTensor:
                    entry.shape = result._shape_tuple()
        return complete

    def optimizer_begins(self) -> None:
        """Mark the next ops of this thread as an optimizer's."""
        self._local.state.optimizing += 1

    def optimizer_ends(self) -> None:
        """End the innermost ``optimizer_begins``."""
        state = self._local.state
        state.optimizing = max(0, state.optimizing - 1)

    def set_tape_backward(self, now: bool) -> None:
        """Set whether the next ops of this thread are backward work of a gradient tape."""
        self._local.state.tape_backward = now

    def enter_gradient(self, name: str, inputs: Any, outputs: Any) -> None:
        """Mark the next ops of this thread as the gradient of the op with these tensors."""
        state = self._local.state
        state.around.append((state.backward, state.source))
        state.backward, state.source = self._forward(name, inputs, outputs)

    def leave_gradient(self) -> None:
        """End the innermost ``enter_gradient``."""
        state = self._local.state
        state.backward, state.source = state.around.pop()

    def _forward(self, name: str, inputs: Any, outputs: Any) -> tuple[int, Source]:
        created = self._local.state.made
        for output in outputs or ():
            creator = created.get((name, getattr(output, "_id", None)))
            if creator is not None:
                return creator
        creators = [
            created.get((name, getattr(input_tensor, "_id", None))) for input_tensor in inputs or ()
        ]
        # A tensor that several ops of this name took points to the last of them. Tensors that only this op
        # took point to this op, so the lowest number is right.
        return min((one for one in creators if one is not None), key=_number, default=(-1, NOWHERE))


def _number(creation: tuple[int, Source]) -> int:
    return creation[0]
