"""CUDA graphs: a range around each capture and each replay, with the CUDA graph's number.

Ops within a capture are recorded as usual: no kernel runs then, and the ranges say which op put which node
into the CUDA graph. A replay runs no ops. Its range has the same number as the capture's, so that a replay's
kernels find their capture among several of the same length (``core/attribution/cuda_graphs.py``).
``torch.cuda.CUDAGraph`` and, from 2.12, ``torch.accelerator.Graph`` are separate classes, each over C++.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import torch.cuda.graphs

from opscope.adapters.shared.open_ranges import close
from opscope.adapters.shared.patch import Patches
from opscope.core.capture.cuda_graphs import OF_PROCESS
from opscope.core.capture.emit import Emitter
from opscope.core.schema import GRAPH_CAPTURE, GRAPH_REPLAY

from .dynamo import untraced
from .state import Threads


def classes() -> list[type]:
    """Return the classes with methods to capture and replay a CUDA graph, as far as this PyTorch has them."""
    accelerator = getattr(torch, "accelerator", None)
    kinds = (torch.cuda.graphs.CUDAGraph, getattr(accelerator, "Graph", None))
    return [kind for kind in kinds if isinstance(kind, type)]


class CudaGraphs:
    """Wraps ``replay`` while something listens; install ``captures`` always.

    ``torch.cuda.graph``, ``make_graphed_callables`` and Inductor's CUDA graphs all use ``CUDAGraph``.
    """

    def __init__(self, emitter: Emitter, threads: Threads, failed: Callable[[str], None]) -> None:
        self._emitter = emitter
        self._threads = threads
        self._failed = failed
        self._patches = Patches()
        self.captures = Captures(self._begin, self._end)
        #: By id of the CUDA graph: its number. A new capture of the same object gets a new number.
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next = itertools.count(1)

    def install(self) -> None:
        if not self._patches:
            _wrap(self._patches, replay=self._replay)

    def uninstall(self) -> None:
        self._patches.restore()

    def _number(self, graph: Any, again: bool = False) -> int:
        """The number of a CUDA graph; a new number if the graph is captured ``again``."""
        entry = self._numbers.get(id(graph))
        if entry is None or entry[0]() is not graph or again:
            key = id(graph)
            gone = weakref.ref(graph, lambda _: self._numbers.pop(key, None))
            entry = self._numbers[key] = (gone, next(self._next))
        return entry[1]

    def _begin(self, original: Any) -> Any:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            OF_PROCESS.begins(graph)
            try:
                done = original(graph, *args, **kwargs)
            except BaseException:  # an interrupt too: else the capture counts as running for ever
                OF_PROCESS.ends(graph)
                raise
            try:
                number = self._number(graph, again=True)
                if self._emitter.active:
                    text = GRAPH_CAPTURE.format(number)
                    self._threads.current().open.append(text)
                    self._emitter.push(self._emitter.prepare(text, "graph"))
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("the start of a CUDA graph's capture could not be recorded")
            return done

        return capture_begin

    def _end(self, original: Any) -> Any:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(graph, *args, **kwargs)
            finally:
                OF_PROCESS.ends(graph)
                try:
                    state, text = self._threads.current(), GRAPH_CAPTURE.format(self._number(graph))
                    if text in state.open:  # otherwise the capture began before the recording
                        close(self._emitter, state, text)
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    self._failed("the end of a CUDA graph's capture could not be recorded")

        return capture_end

    def _replay(self, original: Any) -> Any:
        emitter = self._emitter

        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if not emitter.active:
                return original(graph, *args, **kwargs)
            pushed = False
            try:
                OF_PROCESS.replays(graph)
                emitter.push(emitter.prepare(GRAPH_REPLAY.format(self._number(graph)), "graph"))
                pushed = True
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("the replay of a CUDA graph could not be recorded")
            try:
                return original(graph, *args, **kwargs)
            finally:
                if pushed:
                    emitter.pop()

        return replay


class Captures:
    """Wraps the beginning and the end of captures, whether or not something listens.

    Captures are rare and slow. A recording that begins during a capture has to know of it.
    """

    def __init__(self, begin: Callable[[Any], Any], end: Callable[[Any], Any]) -> None:
        self._begin = begin
        self._end = end
        self._patches = Patches()

    def install(self) -> None:
        if not self._patches:
            _wrap(self._patches, capture_begin=self._begin, capture_end=self._end)
            OF_PROCESS.reported_by_adapter = bool(self._patches)

    def uninstall(self) -> None:
        OF_PROCESS.reported_by_adapter = False
        self._patches.restore()


def _wrap(patches: Patches, **methods: Callable[[Any], Any]) -> None:
    for owner in classes():
        for name, make in methods.items():
            original = vars(owner).get(name)
            if original is not None:
                ours = untraced(functools.wraps(original)(make(original)), below=False)
                patches.set(owner, name, ours)
