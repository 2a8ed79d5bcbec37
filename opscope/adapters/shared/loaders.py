"""Push a range around each wait for a data loader's next batch.

The range's text is the loader as a call: its class, then its dataset, workers and prefetch, then the line
that asks for the batch. It is made once for each iterator. The payload is the number of batches that were
ready, where the loader gives it. A framework whose phases are not opened elsewhere gets the phase ``input``
too. Measured: both ranges of a wait, opened and closed, take 1.4 µs where only a recorder listens.
"""

from __future__ import annotations

import functools
import sys
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.light import AWAY, INPUT
from opscope.core.rangetext import clean_value
from opscope.core.schema import INPUT_DOMAIN, OpCall

#: The description of a loader: its name and parameters (dataset, workers, prefetch, batch).
Description = tuple[str, Mapping[str, Any]]


class Waits:
    """The ranges around the waits of one framework's loaders."""

    def __init__(
        self, sources: Sources | None, failed: Callable[[str], None], phase: Emitter | None = None
    ) -> None:
        """``phase``: where to open the phase ``input`` around each wait; None if others open it."""
        self._emitter = session.emitter(INPUT_DOMAIN.removeprefix("opscope."))
        self._sources = sources
        self._failed = failed
        self._phase = phase
        self._known: weakref.WeakKeyDictionary[Any, Prepared] = weakref.WeakKeyDictionary()

    def begin(
        self,
        iterator: Any,
        describe: Callable[[Any], Description],
        frame: FrameType | None,
        ready: int = -1,
    ) -> bool:
        """Open the ranges; return whether that succeeded. ``ready``: number of batches that are ready, -1
        if unknown."""
        if not self._emitter.active:
            return False
        try:
            prepared = self._known.get(iterator)
            if prepared is None:
                prepared = self._known[iterator] = self._describe(describe(iterator), frame)
            phase = self._phase
            if phase is not None:
                phase.push(phase.prepare("input", "phase"))
            if ready >= 0:
                self._emitter.push(prepared, ready)
            else:
                self._emitter.push(prepared)
            return True
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a wait for input could not be recorded")
            return False

    def end(self) -> None:
        """Close what ``begin`` opened. Does not raise."""
        self._emitter.pop()
        if self._phase is not None:
            self._phase.pop()

    def around(
        self,
        following: Any,
        describe: Callable[[Any], Description],
        ready: Callable[[Any], int] | None = None,
    ) -> Any:
        """Return a replacement of an iterator's method ``following``, which returns its next batch."""

        @functools.wraps(following)
        def waiting(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            light = session.light()
            if light is None:
                return recorded(iterator, *args, **kwargs)
            before = light.enter(INPUT)
            try:
                return recorded(iterator, *args, **kwargs)
            finally:
                light.leave(before)

        def recorded(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._emitter.active:
                return following(iterator, *args, **kwargs)
            depth = -1 if ready is None else self._ready(ready, iterator)
            begun = self.begin(iterator, describe, sys._getframe(2), depth)
            try:
                return following(iterator, *args, **kwargs)
            finally:
                if begun:
                    self.end()

        return waiting

    def each(self, batches: Iterator[Any], described: Description) -> Iterator[Any]:
        """Yield what ``batches`` yields, with the ranges around the making of each batch."""
        key = _Key()
        while True:
            light = session.light()
            before = AWAY if light is None else light.enter(INPUT)
            begun = self._emitter.active and self.begin(key, lambda _: described, sys._getframe(1))
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                if begun:
                    self.end()
                if light is not None:
                    light.leave(before)
            yield batch

    def _ready(self, ready: Callable[[Any], int], iterator: Any) -> int:
        try:
            return ready(iterator)
        except Exception:  # noqa: BLE001 - some systems do not give the size of a queue
            return -1

    def _describe(self, described: Description, frame: FrameType | None) -> Prepared:
        name, parameters = described
        source = () if self._sources is None else self._sources.find(frame).frames
        params = tuple(
            (key, clean_value(value)) for key, value in parameters.items() if value is not None
        )
        return self._emitter.prepare(OpCall(name, (), None, params, None, source), "input")


class _Key:
    """Replaces an iterator that cannot be a key."""

    __slots__ = ("__weakref__",)


class LoaderAdapter(Adapter):
    """An adapter that only hooks the iterators of a data loader, while something listens (``_hook``)."""

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._waits: Waits | None = None
        self._patches = Patches()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the iterators if something already listens."""
        if self._emitter is not None or not options.steps:
            return
        self.broken = False
        self._emitter = emitter
        self._waits = Waits(Sources() if options.source else None, self.failed, emitter)
        self.listen()

    def listen(self) -> None:
        """Hook the iterators while the emitter is active, else unhook them."""
        if self._waits is None or self.broken:
            return
        try:
            if not self._listens():
                self._patches.restore()
            elif not self._patches:
                self._hook(self._waits)
        except Exception:  # noqa: BLE001 - the capture and the program go on without this adapter
            self.failed("hooks could not be set")

    def _listens(self) -> bool:
        emitter = self._emitter
        return (emitter is not None and emitter.active) or session.light() is not None

    @abstractmethod
    def _hook(self, waits: Waits) -> None:
        """Wrap the iterators of the library by ``_patches``."""

    def uninstall(self) -> None:
        """Remove every hook. An iteration that has begun records nothing more."""
        self._patches.restore()
        self._emitter = self._waits = None
