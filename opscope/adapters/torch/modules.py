"""Layers: a range around each module's call; its text is the module's path."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch import nn

from opscope.adapters.shared.open_ranges import close, in_layer
from opscope.adapters.shared.roots import Roots
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.own_cost import Cost

from .dynamo import Hidden, shielded, skipped
from .state import Threads, ThreadState

#: Wrapper classes that a path omits → the attribute with the wrapped model.
_WRAPPERS: Final = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "OptimizedModule": "_orig_mod",
}
_KERAS_LAYER: Final = "keras.src.layers.layer"
#: The most modules whose paths are remembered; at the limit all are forgotten.
MAX_MODULES: Final = 65_536


def _nothing(*_: object) -> None:
    """Does nothing: the place holder while nothing listens."""


class Layers:
    """Wraps each module's call while it is ``on``.

    Calls ``entering(thread state, training)`` when an outermost model is called, and ``leaving(thread state,
    training, result)`` when it returns.
    """

    def __init__(
        self,
        emitter: Emitter,
        threads: Threads,
        failed: Callable[[str], None],
        entering: Callable[[ThreadState, bool], None],
        leaving: Callable[[ThreadState, bool, Any], None],
    ) -> None:
        self._emitter = emitter
        self._threads = threads
        self._failed = failed
        self._entering = entering
        self._leaving = leaving
        self.cost = Cost("layers", 16, 1)
        #: When off, the wrapper does nothing, even if a compiled module still has it.
        self.on = False
        #: The native builtins for the common case, by name; None where they cannot be used.
        self.native: dict[str, Callable[..., Any]] | None = None
        self._paths: dict[int, tuple[weakref.ref[nn.Module], str, Prepared]] = {}
        #: Class name → the root modules of that class: those that are part of no other.
        self._roots = Roots()
        #: Holds the wrapper. Installed separately, for as long as the adapter is.
        self.hidden = Hidden()

    def install(self) -> None:
        """Wrap ``nn.Module._call_impl``, which runs a module's forward and its hooks.

        With a global hook, PyTorch takes its slow path through every module, which costs more than all the
        work done here. torch.compile then takes its slow path too.
        """
        self.hidden.hold(self._around)
        self.on = True

    def uninstall(self) -> None:
        """Restore PyTorch's method, unless another tool has patched on top of ours."""
        self.on = False
        self.hidden.remove()
        if self.native is not None:  # else native code keeps the functions and the adapter alive
            self.native["around"](_nothing, _nothing, _nothing)

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # The conditions come first: torch.compile traces this function, finds that it is compiling, and adds
        # none of it to the FX graph.
        tracing, compiler, layers = torch.compiler.is_dynamo_compiling, torch.compiler, self
        enter, leave = self._ways()

        def _call_impl(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if tracing() or compiler._is_compiling_flag or not layers.on:
                return original(self, *args, **kwargs)
            # an interrupt may come after ``enter`` has done its work and before ``entered`` is assigned
            entered, result = True, None
            try:
                entered = enter(self)
                result = original(self, *args, **kwargs)
                return result
            finally:
                if entered is not None:
                    leave(entered, self, result)

        functools.update_wrapper(_call_impl, original)
        return skipped(_call_impl)

    def _ways(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the two functions ``enter(module)`` and ``leave(entered, module, result)``.

        ``enter`` returns the value for ``entered``; None: do not call ``leave``.
        """
        # While a model runs, its data fills the CPU's caches, so each function and object that is touched
        # costs a cache miss. These functions therefore call as little as possible.
        emitter, threads, paths, failed = self._emitter, self._threads, self._paths, self._failed
        entering, leaving = self._entering, self._leaving
        local, current, cost, now = threads.local, threads.current, self.cost, perf_counter_ns

        def enter(module: nn.Module) -> ThreadState | None:
            try:
                # one call in 16 is timed, of each function; Cost.begin would be one more call
                cost.calls = calls = cost.calls + 2
                begin = 0 if calls & 31 else now()
                state: ThreadState | None = getattr(local, "state", None)
                if state is None or state.run != threads.run:
                    state = current()
                if not in_layer(state):
                    entering(state, _trains(module))
                key = id(module)
                entry = paths.get(key)
                if entry is None or entry[0]() is not module:
                    entry = self._name(module, state)
                state.open.append(key)
                emitter.push(entry[2])
                if begin:
                    cost.end(begin)
                return state
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                failed("a layer could not be named")
                return None

        def leave(state: ThreadState | bool, module: nn.Module, result: Any) -> None:
            if not self.on:
                return
            try:
                begin = 0 if cost.calls & 31 else now()
                if isinstance(state, bool):  # native code entered it, and it is not innermost now
                    state = current()
                key = id(module)
                if state.open and state.open[-1] == key:
                    state.open.pop()
                    emitter.pop()
                elif key in state.open:
                    close(emitter, state, key)
                else:
                    return  # it was entered in an earlier capture
                if not in_layer(state):
                    leaving(state, _trains(module), result)
                if begin:
                    cost.end(begin)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                failed("a layer could not be closed")

        def left(module: nn.Module, result: Any) -> None:
            try:
                leaving(current(), _trains(module), result)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                failed("a layer could not be closed")

        ways = shielded(enter), shielded(leave)
        if self.native is None:
            return ways
        self.native["around"](*ways, shielded(left))
        return self.native["enter"], self.native["leave"]

    def _name(
        self, module: nn.Module, state: ThreadState
    ) -> tuple[weakref.ref[nn.Module], str, Prepared]:
        """Name a module that was not seen before, and register it.

        A module called at the outermost level is a root: all modules below are named after it. A deeper one
        was added to its parent after the root was named, or has no parent.
        """
        if len(self._paths) >= MAX_MODULES:
            self._paths.clear()
            if self.native is not None:
                self.native["forget"](None)
        parent = next((number for number in reversed(state.open) if isinstance(number, int)), None)
        above = None if parent is None else self._paths.get(parent)
        holder = None if above is None else above[0]()
        keras_path = _keras_path(module)
        if keras_path:
            around = f"{above[1]}/" if above is not None and holder is not None else ""
            within = keras_path.startswith(around) or not _keras_path(holder)
            return self._keras(module, keras_path if within else around + module.name)
        if above is not None and holder is not None:
            for name, child in holder.named_modules():
                if child is module:
                    return self._register(module, f"{above[1]}.{name}")
        for model in session.models():
            if isinstance(model, nn.Module) and any(child is module for child in model.modules()):
                self._root(model)
                return self._paths[id(module)]
        inner = _wrap(module)
        if inner is not None:
            self._root(inner)
            return self._register(module, self._roots.name(module))
        return self._root(module)

    def _keras(self, module: nn.Module, path: str) -> tuple[weakref.ref[nn.Module], str, Prepared]:
        """Register a Keras layer and the layers in it, under its path wherever they were built."""
        pending = [(module, path)]
        seen = {id(module)}
        while pending:
            around, at = pending.pop()
            for layer in getattr(around, "_layers", ()):
                if id(layer) not in seen and len(seen) < MAX_MODULES:
                    seen.add(id(layer))
                    pending.append((layer, f"{at}/{layer.name}"))
            if around is not module:
                self._register(around, at)
        return self._register(module, path)

    def _root(self, module: nn.Module) -> tuple[weakref.ref[nn.Module], str, Prepared]:
        """Register a root module and all modules below it."""
        root = self._roots.name(module)
        for name, child in module.named_modules():
            if child is not module:
                self._register(child, f"{root}.{name}")
        inner = _wrap(module)
        if inner is not None:
            self._root(inner)
        return self._register(module, root)

    def _register(
        self, module: nn.Module, path: str
    ) -> tuple[weakref.ref[nn.Module], str, Prepared]:
        """Remember the module's path and its prepared range, here and in native code."""
        prepared = self._emitter.prepare(path, "layer")
        native, key = self.native, id(module)
        if native is None:
            gone = weakref.ref(module)
        else:
            forget = native["forget"]
            gone = weakref.ref(module, lambda _: forget(key))
            native["know"](module, key, prepared.id)
        self._paths[key] = entry = (gone, path, prepared)
        return entry


def _keras_path(module: nn.Module | None) -> str | None:
    """A Keras layer's own path, else None. PyTorch does not see the layers in a Keras layer as children."""
    if not any(base.__module__ == _KERAS_LAYER for base in type(module).__mro__):
        return None
    path = getattr(module, "path", None)
    if not path:  # a layer that has no weights and is not built
        names = (getattr(module, "_parent_path", None), getattr(module, "name", None))
        path = "/".join(name for name in names if isinstance(name, str) and name)
    return path if isinstance(path, str) else None


def _trains(module: nn.Module) -> bool:
    """Whether the module is in training mode."""
    # a frozen TorchScript module lacks the attribute
    return bool(getattr(module, "training", False))


def _wrap(module: nn.Module) -> nn.Module | None:
    """The model inside a wrapper such as ``DistributedDataParallel``; None for any other module."""
    name = _WRAPPERS.get(type(module).__name__)
    return None if name is None else module._modules.get(name)
