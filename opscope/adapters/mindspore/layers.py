"""Layers: a range around each cell's call in PyNative mode; its text is the cell's path.

In graph mode MindSpore reads a cell's ``construct`` and never calls the cells within it: the outermost call
is the run of a graph (``graphs``). Cells are not changed, so graphs contain no part of opscope.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Final

from mindspore import context
from mindspore.nn import Cell

from opscope.adapters.shared.open_ranges import close, in_layer
from opscope.adapters.shared.roots import Roots
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.own_cost import Cost

from .state import State, Threads

#: Cells around a model that trains, which a path omits → attributes with the model.
WRAPPERS: Final = {
    "WithLossCell": ("_backbone",),
    "WithGradCell": ("network",),
    "WithEvalCell": ("_network",),
    "TrainOneStepCell": ("network",),
    "TrainOneStepWithLossScaleCell": ("network",),
    "_TrainGradAccuStepCell": ("network",),
    "ForwardValueAndGrad": ("network",),
    "_VirtualDatasetCell": ("_backbone",),
    "_OutputTo16": ("_backbone", "_op"),  # `_op` before 2.10
    "_OutputTo32": ("_backbone", "_op"),
    "DataWrapper": ("network",),
}
#: The most cells whose paths are remembered.
MAX_CELLS: Final = 65_536

Known = tuple["weakref.ref[Any]", str, "Prepared | None"]


class Layers:
    """Wraps ``Cell.__call__``.

    Calls ``entering(state, cell)`` when an outermost cell is called and ``leaving(state, cell)`` when it
    returns; ``optimizing(cell, call)`` runs the call of an optimizer.
    """

    def __init__(
        self,
        emitter: Emitter,
        threads: Threads,
        named: bool,
        failed: Callable[[str], None],
        entering: Callable[[State, Any], None],
        leaving: Callable[[State, Any], None],
    ) -> None:
        self._emitter = emitter
        self._threads = threads
        #: Whether cells get ranges; if not, they still signal when a model's call begins.
        self._named = named
        self._failed = failed
        self._entering = entering
        self._leaving = leaving
        self.cost = Cost("layers", 16, 1)
        self.on = False
        #: Called first on each thread that calls a cell.
        self.arrives: Callable[[], None] = _nothing
        self._paths: dict[int, Known] = {}
        self._roots = Roots()

    def around(self, original: Any) -> Any:
        """Return the replacement of ``Cell.__call__``."""
        enter, leave = self._enter, self._leave

        @functools.wraps(original)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            entered = enter(self)
            if entered is None:
                return original(self, *args, **kwargs)
            try:
                return original(self, *args, **kwargs)
            finally:
                leave(entered, self)

        return __call__

    def _enter(self, cell: Any) -> State | None:
        if not self.on or context._get_mode() == context.GRAPH_MODE:
            return None
        try:
            begin = self.cost.begin()
            state = self._threads.current()
            self.arrives()
            if not in_layer(state):
                self._entering(state, cell)
            key = id(cell)
            entry = self._paths.get(key)
            if entry is None or entry[0]() is not cell:
                entry = self._name(cell, state)
            if entry[2] is None:
                if begin:
                    self.cost.end(begin)
                return None if in_layer(state) else state
            state.open.append(key)
            self._emitter.push(entry[2])
            if begin:
                self.cost.end(begin)
            return state
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a layer could not be named")
            return None

    def _leave(self, state: State, cell: Any) -> None:
        if not self.on or state.run != self._threads.run:
            return
        try:
            close(self._emitter, state, id(cell))
            if not in_layer(state):
                self._leaving(state, cell)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a layer could not be closed")

    def _name(self, cell: Any, state: State) -> Known:
        """Name a cell that was not seen before.

        A cell called at the outermost level is a root: all cells below are named after it. A deeper one was
        added to its parent after the root was named, or has no parent.
        """
        if len(self._paths) >= MAX_CELLS:
            self._paths.clear()
        parent = next((number for number in reversed(state.open) if isinstance(number, int)), None)
        above = None if parent is None else self._paths.get(parent)
        holder = None if above is None else above[0]()
        if above is not None and holder is not None:
            for name, child in holder.cells_and_names():
                if child is cell and name:
                    return self._register(cell, f"{above[1]}.{name}")
        for model in session.models():
            if isinstance(model, Cell) and any(
                child is cell for _, child in model.cells_and_names()
            ):
                self._root(model)
                return self._paths[id(cell)]
        return self._root(cell)

    def _root(self, cell: Any) -> Known:
        """Register a root and all cells below it."""
        kind = wrapper_of(cell)
        if kind is not None:  # the cells in it are roots themselves
            for name, child in cell.name_cells().items():
                if name in WRAPPERS[kind] or wrapper_of(child) is not None:
                    self._root(child)
            return self._register(cell, "")
        root = self._roots.name(cell)
        cells = [(name, child) for name, child in cell.cells_and_names() if child is not cell]
        wrappers = [(name, WRAPPERS[kind]) for name, child in cells if (kind := wrapper_of(child))]
        for name, child in cells:
            self._register(child, f"{root}.{_without(wrappers, name)}")
        return self._register(cell, root)

    def _register(self, cell: Any, path: str) -> Known:
        prepared = None
        if path and self._named:
            prepared = self._emitter.prepare(path, "layer")
        entry = self._paths[id(cell)] = (weakref.ref(cell), path, prepared)
        return entry

    def path(self, cell: Any) -> str:
        """Return the path of a cell that is called outside any other, in the form used for layers."""
        entry = self._paths.get(id(cell))
        if entry is None or entry[0]() is not cell:
            entry = self._root(cell)
        return entry[1]


def _nothing() -> None:
    """Does nothing."""


def _without(wrappers: list[tuple[str, tuple[str, ...]]], name: str) -> str:
    """Return a cell's name without the attributes of wrappers above it: ``bn`` for ``bn._backbone``."""
    for outer, attributes in reversed(wrappers):  # the innermost first
        for inner in (f"{outer}.{attribute}" for attribute in attributes):
            if f"{name}.".startswith(f"{inner}."):
                name = outer + name[len(inner) :]
    return name


def wrapper_of(cell: Any) -> str | None:
    """Return the name of the wrapper's class that ``cell`` is an instance of, else None."""
    for base in type(cell).__mro__:
        if base.__name__ in WRAPPERS and base.__module__.startswith("mindspore."):
            return base.__name__
    return None
