"""Runs of compiled graphs (graph mode, ``mindspore.jit``): a range around each, and its parameters as specs.

Python cannot observe the ops in a graph. MindSpore's own profiler records them; each op is assigned to the
run whose time contains it.
"""

from __future__ import annotations

import functools
import inspect
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

from mindspore import nn
from mindspore.experimental import optim
from mindspore.nn import Cell

from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.phase import in_phase
from opscope.core.capture import session
from opscope.core.capture.emit import Prepared
from opscope.core.capture.hooked_steps import next_step
from opscope.core.rangetext import format_spec
from opscope.core.schema import COMPILE, OpCall

from . import results
from .api import api
from .call import is_tensor, tensor_spec
from .executor_hooks import ExecutorHooks

#: Characters that the name of a graph must not have.
_FOREIGN: Final = re.compile(r"[^\w:.$+()-]")
#: Parameters of one graph that are described, and graphs that are remembered.
MAX_PARAMETERS: Final = 8_192
MAX_GRAPHS: Final = 4_096
_OPTIMIZERS: Final = (nn.Optimizer, optim.Optimizer)


class _Graph:
    """The facts about a compiled function or cell."""

    __slots__ = ("of", "prepared", "specs_in", "trains")

    def __init__(self, of: Callable[[], Any], prepared: Prepared, trains: bool) -> None:
        self.of = of
        self.prepared = prepared
        self.trains = trains
        #: The capture to which its specs were emitted.
        self.specs_in = -1


class Graphs(ExecutorHooks):
    """The hooks of MindSpore's executors of graphs."""

    def __init__(self, *shared: Any) -> None:
        super().__init__(*shared)
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._names: dict[str, int] = {}

    def watch(self, patches: Patches) -> None:
        """Hook runs of graphs, also while nothing listens: runs of a training function are steps."""
        module = api()
        patches.wrap(module._CellGraphExecutor, "run", self._run)
        patches.wrap(module._JitExecutor, "__call__", self._called)

    def install(self, patches: Patches) -> None:
        """Hook the compiler."""
        module = api()
        for name in ("GraphExecutor_", "JitExecutor_"):
            kind = getattr(module, name, None)
            if kind is not None and "compile" in vars(kind):
                patches.wrap(kind, "compile", self._compiles)

    def _run(self, original: Any) -> Any:
        @functools.wraps(original)
        def run(executor: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
            graph = self._begin(obj, None, args, kwargs)
            try:
                return original(executor, obj, *args, **kwargs)
            finally:
                if graph is not None:
                    self._end(graph)

        return run

    def _called(self, original: Any) -> Any:
        @functools.wraps(original)
        def __call__(executor: Any, *args: Any, **kwargs: Any) -> Any:
            graph = self._begin(executor.obj, executor.fn, args, kwargs)
            try:
                return original(executor, *args, **kwargs)
            finally:
                if graph is not None:
                    self._end(graph)

        return __call__

    def _compiles(self, original: Any) -> Any:
        return in_phase(original, self._emitter, COMPILE, lambda: self.on)

    def _begin(self, obj: Any, function: Any, args: Any, kwargs: Any) -> _Graph | None:
        """Begin the run of a graph. None means that it failed, and ``_end`` must not be called."""
        try:
            results.unhook((args, kwargs))
            graph = self._known(obj, function)
            state = self._threads.current()
            inside = state.around or state.optimizing
            if graph.trains and self._steps is not None and not inside:
                self._steps.begin()
            state.around += 1
            if self.on:
                if graph.specs_in != self._threads.run:
                    graph.specs_in = self._threads.run
                    self._describe(graph, obj, function, args)
                self._emitter.push(graph.prepared)
            return graph
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the run of a graph could not be recorded")
            return None

    def _end(self, graph: _Graph) -> None:
        state = self._threads.current()
        state.around = max(0, state.around - 1)
        if self.on:
            self._ops.wait()
            self._emitter.pop()
        try:
            counts = graph.trains and self._steps is not None and not session.steps_by_user
            counts = counts and not session.are_steps_held()  # Model.train counts its own steps
            if counts and not (state.around or state.optimizing):
                next_step()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a step could not be counted")

    def _known(self, obj: Any, function: Any) -> _Graph:
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        key = (id(obj) if obj is not None else 0, id(code))
        graph = self._graphs.get(key)
        of = obj if obj is not None else function
        if graph is not None and (graph.of() is of or obj is None):
            return graph
        if len(self._graphs) >= MAX_GRAPHS:
            self._graphs.clear()
        base = _FOREIGN.sub("_", _name(obj, function)) or "graph"
        uses = self._names[base] = self._names.get(base, 0) + 1
        name = base if uses == 1 else f"{base}_{uses}"
        graph = _Graph(_reference(of), self._emitter.prepare(name, "graph"), _trains(obj, function))
        self._graphs[key] = graph
        return graph

    def _describe(self, known: _Graph, obj: Any, function: Any, args: Any) -> None:
        """Emit the parameters and the inputs of a graph as specs."""
        graph = known.prepared.text
        for number, (key, kind, tensor) in enumerate(_tensors(obj, function, args)):
            if number >= MAX_PARAMETERS:
                break
            call = OpCall(kind, (), (tensor_spec(tensor),))
            spec = self._emitter.prepare(format_spec(graph, key, call), "spec")
            self._emitter.mark(spec)


def _name(obj: Any, function: Any) -> str:
    """Return the name of a graph: of the cell's class, or of the function."""
    if function is None or (isinstance(obj, Cell) and function.__name__ == "construct"):
        return type(obj).__name__
    return str(getattr(function, "__name__", "graph"))


def _reference(of: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(of)
    except TypeError:  # a method's object is created anew at each call
        return lambda: of


def _tensors(obj: Any, function: Any, args: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield name, kind and tensor of a graph's inputs and parameters."""
    run = function if function is not None else obj.construct
    try:
        names = list(inspect.signature(inspect.unwrap(run)).parameters)
    except (TypeError, ValueError):
        names = []
    if function is None and names[:1] == ["self"]:
        names = names[1:]
    seen = set()
    for index, arg in enumerate(args):
        if is_tensor(arg):
            name = names[index] if index < len(names) else f"input_{index}"
            seen.add(name)
            yield name, "Input", arg
    if isinstance(obj, Cell):
        for parameter in obj.get_parameters():
            name = _FOREIGN.sub("_", str(parameter.name))
            if name not in seen:
                seen.add(name)
                yield name, "Parameter", parameter


def _trains(obj: Any, function: Any) -> bool:
    """Whether a graph contains an optimizer: then each run of it is a training step.

    For a function, the objects that it refers to are searched: its closure, its globals, and what these refer
    to.
    """
    if isinstance(obj, _OPTIMIZERS):
        return False
    if isinstance(obj, Cell):
        return any(isinstance(cell, _OPTIMIZERS) for _, cell in obj.cells_and_names())
    pending, seen = [function], 0
    while pending and seen < 64:
        one = pending.pop()
        seen += 1
        one = inspect.unwrap(one) if callable(one) and hasattr(one, "__wrapped__") else one
        code = getattr(one, "__code__", None)
        if code is None:
            continue
        refers = [one.__globals__.get(name) for name in code.co_names]
        for cell in one.__closure__ or ():
            try:
                refers.append(cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
        if any(isinstance(other, _OPTIMIZERS) for other in refers):
            return True
        pending += [other for other in refers if inspect.isfunction(other)]
    return False
