"""Which graphs of a GPU's work are being captured in this process.

While one is, a call that waits for the GPU or asks it whether it is done invalidates the capture, on
every thread (CUDA's mode "global"). Who ends a window asks here first. The adapters tell.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

#: How long the beginning of a capture waits for a window that is being ended (s).
HELD_S: Final = 5.0

_changed = threading.Condition()
#: By id: the graphs that are being captured. One that is gone no longer is, ended or not.
_graphs: dict[int, weakref.ref[Any]] = {}
_holders = 0


def graph_begins(graph: object) -> None:
    """``graph`` is about to be captured, on this thread; told before the capture begins.

    Waits, ``HELD_S`` at most, while ``graphs_held`` has found none.
    """
    key = id(graph)
    gone = weakref.ref(graph, lambda _: _graphs.pop(key, None))
    with _changed:
        _changed.wait_for(lambda: not _holders, HELD_S)
        _graphs[key] = gone


def graph_ends(graph: object) -> None:
    """``graph`` is captured, or could not be."""
    _graphs.pop(id(graph), None)


def capturing_graph() -> bool:
    """Whether any thread of this process is capturing a graph, as far as adapters have heard."""
    return bool(_graphs)


@contextmanager
def graphs_held() -> Iterator[bool]:
    """Whether no graph is being captured; if so, none begins on another thread inside the block."""
    global _holders
    with _changed:
        free = not _graphs
        _holders += free
    try:
        yield free
    finally:
        with _changed:
            _holders -= free
            _changed.notify_all()


def _in_child() -> None:
    """Of the threads of the parent only one is here, and no GPU."""
    global _changed, _holders
    _changed = threading.Condition()
    _holders = 0
    _graphs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
