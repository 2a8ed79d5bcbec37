"""Functions and sessions as they run: a range around each run of a graph, its specs before the first."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tensorflow.python.client import session as sessions
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function

from opscope.core.emit import Emitter

from .graphs import Graphs
from .running import GraphRanges


class Functions:
    """``watch``: which graph each function has. ``install``: its runs too."""

    def __init__(self, emitter: Emitter, graphs: Graphs, failed: Callable[[str], None]) -> None:
        self._emitter = emitter
        self._graphs = graphs
        self._failed = failed
        self._watched: list[tuple[Any, str, Any, Any]] = []
        self._undo: list[tuple[Any, str, Any, Any]] = []
        self._ranges: GraphRanges | None = None
        self.on = False

    def watch(self) -> None:
        """Remember each function's graph when it is made."""
        if not self._watched:
            _patch(self._watched, atomic_function, "from_func_graph", self._built)

    def unwatch(self) -> None:
        """No longer."""
        _restore(self._watched)

    def install(self, ranges: GraphRanges | None) -> None:
        """Put a range around each run."""
        self.on = True
        self._ranges = ranges
        if not self._undo:
            _patch(self._undo, atomic_function.AtomicFunction, "call_flat", self._called)
            _patch(self._undo, sessions.BaseSession, "_call_tf_sessionrun", self._session)

    def uninstall(self) -> None:
        """Restore what runs graphs."""
        self.on = False
        _restore(self._undo)

    def _built(self, original: Any) -> Any:
        @functools.wraps(original)
        def from_func_graph(name: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(name, graph, *args, **kwargs)
            try:
                self._graphs.built(_text(made.name), graph)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a function's graph could not be kept")
            return made

        return from_func_graph

    def _called(self, original: Any) -> Any:
        emitter = self._emitter
        eagerly = context.executing_eagerly

        @functools.wraps(original)
        def call_flat(function: Any, *args: Any) -> Any:
            if not self.on or not eagerly():
                return original(function, *args)
            opened = self._open(_text(function.name), lambda: function.graph)
            try:
                return original(function, *args)
            finally:
                if opened:
                    emitter.pop()

        return call_flat

    def _session(self, original: Any) -> Any:
        emitter = self._emitter

        @functools.wraps(original)
        def _call_tf_sessionrun(one: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.on:
                return original(one, *args, **kwargs)
            graph = one.graph
            # A graph of TensorFlow 1 grows: each size is a graph of its own.
            name = f"graph_{id(graph):x}_{graph.version}"
            opened = self._open(name, lambda: graph)
            try:
                return original(one, *args, **kwargs)
            finally:
                if opened:
                    emitter.pop()

        return _call_tf_sessionrun

    def _open(self, name: str, graph: Callable[[], Any]) -> bool:
        try:
            run, unknown = self._graphs.run(name, graph)
            if self._ranges is not None:
                self._ranges.keep(unknown)
            self._emitter.push(run)
            return True
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a function's run could not be told")
            return False


def _patch(
    undo: list[tuple[Any, str, Any, Any]], owner: Any, name: str, make: Callable[[Any], Any]
) -> None:
    original = owner.__dict__[name]
    ours = make(original)
    undo.append((owner, name, ours, original))
    setattr(owner, name, ours)


def _restore(undo: list[tuple[Any, str, Any, Any]]) -> None:
    while undo:
        owner, name, ours, original = undo.pop()
        if owner.__dict__.get(name) is ours:  # else another tool has patched on top of us
            setattr(owner, name, original)


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
