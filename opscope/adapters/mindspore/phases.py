"""Phases and directions: ranges around gradients, optimizers and recomputations; and the steps that they
end."""

from __future__ import annotations

import functools
from typing import Any, Final

from mindspore import nn
from mindspore.dataset.engine import iterators
from mindspore.experimental import optim

from opscope.adapters.shared.open_ranges import close, in_layer
from opscope.adapters.shared.patch import Patches
from opscope.core.capture import light, session

from . import nodes, results
from .api import api
from .entry import HAS_NODES
from .executor_hooks import ExecutorHooks
from .layers import wrapper_of
from .state import State

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
#: The most graphs that begin and do not end, because their functions raise.
MAX_GRAPHS: Final = 64


class Phases(ExecutorHooks):
    """The hooks of MindSpore's executor of PyNative mode and of optimizers."""

    def watch(self, patches: Patches) -> None:
        """Hook what counts steps, also while nothing listens."""
        for kind in (nn.Optimizer, optim.Optimizer):
            patches.wrap(kind, "__call__", self._optimizes)
        clock = session.light()
        if clock is not None:
            patches.wrap(
                api()._PyNativeExecutor, "grad", lambda of: clock.around(of, light.BACKWARD)
            )
            patches.wrap(iterators.Iterator, "__next__", lambda of: clock.around(of, light.INPUT))

    def install(self, patches: Patches) -> None:
        """Hook the building of autograd graphs and their gradients."""
        kind = api()._PyNativeExecutor
        patches.wrap(kind, "new_graph", self._new_graph)
        patches.wrap(kind, "end_graph", self._end_graph)
        patches.wrap(kind, "grad", self._grad)
        patches.wrap(kind, "clear_res", self._clear)
        patches.wrap(kind, "set_is_run_recompute", self._recompute)

    # -------------------------------------------------------------------------------- layers

    def entering(self, state: State, cell: Any) -> None:
        """An outermost cell is called: the forward phase begins, and perhaps the first step."""
        if state.open or state.backward or state.optimizing:
            return
        training = _trains(cell)
        if training and self._steps is not None:
            self._steps.begin()
        # an Identity takes the place of the reduction of gradients among devices
        if wrapper_of(cell) is None and type(cell) is not nn.Identity:
            self._begin(state, FORWARD)

    def leaving(self, state: State, cell: Any) -> None:
        """The outermost cell returns. The forward phase of a model in training lasts until the backward
        pass."""
        if not state.graphs and state.open and state.open[-1] == FORWARD:
            self._end(state, FORWARD)

    def _begin(self, state: State, name: str) -> None:
        if state.open and state.open[-1] == FORWARD and not in_layer(state):
            close(self._emitter, state, FORWARD)
        state.open.append(name)
        self._emitter.push(self._emitter.prepare(name, "phase"))

    def _end(self, state: State, name: str) -> None:
        close(self._emitter, state, name)

    # ------------------------------------------------------------------------------ gradients

    def _new_graph(self, original: Any) -> Any:
        @functools.wraps(original)
        def new_graph(executor: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
            if self.on:
                try:
                    state = self._threads.current()
                    if not state.graphs or len(state.graphs) > MAX_GRAPHS:
                        state.graphs.clear()
                        state.made = []
                        state.anchors = {}
                        state.results = {}
                    state.graphs.append(id(obj))
                    if self._steps is not None and not state.backward:
                        self._steps.begin()
                    if not state.open and not state.backward and not state.optimizing:
                        self._begin(state, FORWARD)
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    self._failed("a phase could not be recorded")
            return original(executor, obj, *args, **kwargs)

        return new_graph

    def _end_graph(self, original: Any) -> Any:
        @functools.wraps(original)
        def end_graph(executor: Any, obj: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(executor, obj, output, *args, **kwargs)
            if self.on:
                try:
                    state = self._threads.current()
                    while state.graphs and state.graphs.pop() != id(obj):
                        pass
                    if HAS_NODES:
                        nodes.link(self._ops, state, output)
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    self._failed("backward ops could not be paired with their forward ops")
            return result

        return end_graph

    def _grad(self, original: Any) -> Any:
        @functools.wraps(original)
        def grad(executor: Any, *args: Any, **kwargs: Any) -> Any:
            with results.backward_pass():
                if not self.on:
                    return original(executor, *args, **kwargs)
                state = self._starts(BACKWARD)
                try:
                    return original(executor, *args, **kwargs)
                finally:
                    self._stops(state, BACKWARD)

        return grad

    def _clear(self, original: Any) -> Any:
        @functools.wraps(original)
        def clear_res(executor: Any) -> Any:
            self._threads.current().graphs.clear()
            return original(executor)

        return clear_res

    def _recompute(self, original: Any) -> Any:
        @functools.wraps(original)
        def set_is_run_recompute(executor: Any, status: Any) -> Any:
            state = self._threads.current()
            if status:  # a backward pass runs forward ops again, and differentiates them
                state.paused.append(state.backward)
                state.backward = 0
            elif state.paused:
                state.backward = state.paused.pop()
            state.turned()
            return original(executor, status)

        return set_is_run_recompute

    def _starts(self, name: str) -> State | None:
        """Open the phase ``name``, which gives its ops their direction. Returns None if it could not be
        opened."""
        try:
            state = self._threads.current()
            if name == BACKWARD:
                state.backward += 1
            else:
                state.optimizing += 1
            state.turned()
            self._begin(state, name)
            return state
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a phase could not be recorded")
            return None

    def _stops(self, state: State | None, name: str) -> None:
        if state is None or state.run != self._threads.run:
            return
        try:
            if name == BACKWARD:
                results.finish(self._ops, state)
                state.backward = max(0, state.backward - 1)
                if not state.backward:
                    state.nodes.clear()
            else:
                state.optimizing = max(0, state.optimizing - 1)
            state.turned()
            if self.on:
                self._end(state, name)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a phase could not be recorded")

    # ------------------------------------------------------------------------------ optimizer

    def _optimizes(self, original: Any) -> Any:
        @functools.wraps(original)
        def __call__(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            state = self._starts(OPTIMIZER) if self.on else None
            try:
                with session.optimizing():
                    result = original(optimizer, *args, **kwargs)
            finally:
                if state is not None:
                    self._stops(state, OPTIMIZER)
            if self._steps is not None:
                try:
                    self._steps.stepped(optimizer)
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    self._failed("a step could not be counted")
            return result

        return __call__


def _trains(cell: Any) -> bool:
    return bool(getattr(cell, "training", False))
