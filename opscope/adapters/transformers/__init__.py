"""The adapter of Hugging Face's transformers: the steps of its continuous batching.

``generate_batch``, ``transformers serve`` and what else batches continuously run in a thread of transformers,
which marks nothing. While something listens, each step has a range that names its requests and tokens
(``core/capture/engine_kind.py``). ``generate`` needs no hook: the calls of its attention show its steps.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any, ClassVar, Final

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.patch import Patches
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.engine_kind import Lengths, range_name

_INPUTS: Final = "transformers.generation.continuous_batching.input_outputs"


class _Batch(threading.local):
    #: The queries and keys of the requests that the thread's next step prefills and decodes.
    lengths: tuple[Lengths, Lengths] | None = None


class TransformersAdapter(Adapter):
    """Hugging Face's transformers: continuous batching."""

    name: ClassVar[str] = "transformers"
    title: ClassVar[str] = "transformers"
    module: ClassVar[str] = "transformers.generation.continuous_batching.continuous_api"
    #: Versions without ``ContinuousBatchingIOs`` (before 5.1) are left alone; 5.24 is tested.
    requires: ClassVar[str] = ">=4"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._patches = Patches()
        self._batch = _Batch()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the steps if something already listens."""
        if self._emitter is not None or not options.steps:
            return
        self.broken = False
        self._emitter = session.user_emitter()
        self.listen()

    def listen(self) -> None:
        """Hook the steps while something listens, else unhook them."""
        if self._emitter is None or self.broken:
            return
        try:
            if not self._emitter.active:
                self._patches.restore()
            elif not self._patches:
                self._hook()
        except Exception:  # noqa: BLE001 - the capture and the program go on without this adapter
            self.failed("hooks could not be set")

    def _hook(self) -> None:
        inputs = sys.modules.get(_INPUTS)
        if inputs is None:
            return
        processor = sys.modules[self.module].ContinuousBatchProcessor
        self._patches.wrap(
            inputs.ContinuousBatchingIOs, "prepare_batch_tensors", self._around_preparation
        )
        self._patches.wrap(processor, "_generation_step", self._around_step)

    def uninstall(self) -> None:
        """Restore both methods."""
        self._patches.restore()
        self._emitter = None

    def _around_preparation(self, original: Any) -> Any:
        @functools.wraps(original)
        def prepare_batch_tensors(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(inputs, *args, **kwargs)
            try:
                self._batch.lengths = _lengths(inputs.requests_in_batch)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self.failed("the requests of a step could not be read")
            return result

        return prepare_batch_tensors

    def _around_step(self, original: Any) -> Any:
        @functools.wraps(original)
        def _generation_step(processor: Any, *args: Any, **kwargs: Any) -> Any:
            emitter, prepared = self._emitter, self._range()
            if emitter is None or prepared is None:
                return original(processor, *args, **kwargs)
            emitter.push(prepared)
            try:
                return original(processor, *args, **kwargs)
            finally:
                emitter.pop()

        return _generation_step

    def _range(self) -> Prepared | None:
        """Return the range of the thread's next step; None if nothing listens or it is not known."""
        emitter, lengths = self._emitter, self._batch.lengths
        self._batch.lengths = None
        if emitter is None or lengths is None or not emitter.active:
            return None
        try:
            return emitter.prepare(range_name(self.name, *lengths))
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a step could not be named")
            return None


def _lengths(requests: Any) -> tuple[Lengths, Lengths]:
    """Return queries and keys of the requests in a prefill, and of those that decode.

    A request whose prompt is in the cache decodes; where batches are prepared ahead, the ``status`` in its
    state is that of an earlier step. ``position_offset`` already includes this step's queries.
    """
    prefill: list[tuple[int, int]] = []
    decode: list[tuple[int, int]] = []
    for request in requests:
        queries, keys = int(request.query_length), int(request.state.position_offset)
        in_cache = keys - queries >= len(request.state.initial_tokens)
        (decode if in_cache else prefill).append((queries, keys))
    return prefill, decode
