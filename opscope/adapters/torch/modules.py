"""Layers: a range for each module's forward, its text the module's path."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch import nn

from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.own_cost import Cost

from .dynamo import Hidden, shielded, skipped
from .state import Threads, ThreadState

#: Wrappers that a path does not name, and the attribute under which they hold the model.
_WRAPPERS: Final = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "OptimizedModule": "_orig_mod",
}
_KERAS_LAYER: Final = "keras.src.layers.layer"
#: Modules whose paths are kept; programs that make modules all the time start over.
MAX_MODULES: Final = 65_536
#: Models of one class that are told apart; those beyond share the last one's name.
MAX_ROOTS: Final = 64


def _nothing(*_: object) -> None:
    """Nobody listens."""


class Layers:
    """What stands around each module's call, while it is ``on``.

    ``entering`` and ``leaving`` are told when a model is called, not from within another, and when
    it returns: the thread, whether it is in training, and what it returned.
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
        #: Off, it does nothing, also where a compiled module keeps hold of it.
        self.on = False
        #: Native code that does the usual of it, where there is some.
        self.native: dict[str, Callable[..., Any]] | None = None
        self._paths: dict[int, tuple[weakref.ref[nn.Module], str, Prepared]] = {}
        #: By class's name, the modules that are no other's part.
        self._roots: dict[str, list[weakref.ref[nn.Module]]] = {}
        #: Where it is put. Installed apart from it, for as long as the adapter is.
        self.hidden = Hidden()

    def install(self) -> None:
        """Put ourselves around ``nn.Module._call_impl``, which runs a module's forward and its hooks.

        With a global hook PyTorch takes its slow way through every module, which costs more than all
        that is done here, and torch.compile its slow way too.
        """
        self.hidden.hold(self._around)
        self.on = True

    def uninstall(self) -> None:
        """Put it back, unless another tool has patched on top of us."""
        self.on = False
        self.hidden.remove()
        if self.native is not None:  # which keeps what it was told, and with it all of the adapter
            self.native["around"](_nothing, _nothing, _nothing)

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # The questions first: torch.compile traces through this, finds it is compiling, and leaves
        # nothing of it in the graph.
        tracing, compiler, layers = torch.compiler.is_dynamo_compiling, torch.compiler, self
        enter, leave = self._ways()

        def _call_impl(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if tracing() or compiler._is_compiling_flag or not layers.on:
                return original(self, *args, **kwargs)
            entered, result = True, None  # an interrupt may come when it has, and before we know
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
        """``enter(module)``, which returns what ``leave(that, module, result)`` is to be called with, or
        None where it is not to be."""
        # In a model the caches are full of the model, and every function and object that is touched
        # is fetched from afar: so these call no more than they must.
        emitter, threads, paths, failed = self._emitter, self._threads, self._paths, self._failed
        entering, leaving = self._entering, self._leaving
        local, current, cost, now = threads.local, threads.current, self.cost, perf_counter_ns

        def enter(module: nn.Module) -> ThreadState | None:
            try:
                # of both ways one call in 16 is timed; Cost.begin would be a function more
                cost.calls = calls = cost.calls + 2
                begin = 0 if calls & 31 else now()
                state: ThreadState | None = getattr(local, "state", None)
                if state is None or state.run != threads.run:
                    state = current()
                if not in_layer(state):
                    entering(state, _trains(module))
                key = id(module)
                known = paths.get(key)
                if known is None or known[0]() is not module:
                    known = self._name(module, state)
                state.open.append(key)
                emitter.push(known[2])
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
                if isinstance(state, bool):  # native code entered it, and does not find it on top
                    state = current()
                key = id(module)
                if state.open and state.open[-1] == key:
                    state.open.pop()
                    emitter.pop()
                elif key in state.open:
                    close(emitter, state, key)
                else:
                    return  # entered in a capture before this one
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
        """The path of a module not seen before.

        Called at the outermost level it is a root: all below it are named after it. Deeper, it was
        added to its parent after the root was named, or belongs to no parent at all.
        """
        if len(self._paths) >= MAX_MODULES:
            self._paths.clear()
            if self.native is not None:
                self.native["forget"](None)
        parent = next((one for one in reversed(state.open) if isinstance(one, int)), None)
        above = None if parent is None else self._paths.get(parent)
        holder = None if above is None else above[0]()
        told = _told(module)
        if told:
            around = f"{above[1]}/" if above is not None and holder is not None else ""
            within = told.startswith(around) or not _told(holder)
            return self._keras(module, told if within else around + module.name)
        if above is not None and holder is not None:
            for name, child in holder.named_modules():
                if child is module:
                    return self._register(module, f"{above[1]}.{name}")
        for model in session.models():
            if isinstance(model, nn.Module) and any(one is module for one in model.modules()):
                self._root(model)
                return self._paths[id(module)]
        inner = _wrapped(module)
        if inner is not None:
            self._root(inner)
            return self._register(module, self._root_name(module))
        return self._root(module)

    def _keras(self, module: nn.Module, path: str) -> tuple[weakref.ref[nn.Module], str, Prepared]:
        """Registers a Keras layer and the layers in it, which stand in it wherever they were built."""
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

    def _root_name(self, module: nn.Module) -> str:
        """The class's name, with a number from the second living one on: ``Sequential#2``."""
        name = type(module).__name__
        roots = self._roots.setdefault(name, [])
        living = [one() for one in roots]
        at = next((at for at, one in enumerate(living) if one is module), None)
        if at is None:
            free = (at for at, one in enumerate(living) if one is None)
            at = next(free, min(len(roots), MAX_ROOTS - 1))
            roots[at : at + 1] = [weakref.ref(module)]
        return name if at == 0 else f"{name}#{at + 1}"

    def _root(self, module: nn.Module) -> tuple[weakref.ref[nn.Module], str, Prepared]:
        root = self._root_name(module)
        for name, child in module.named_modules():
            if child is not module:
                self._register(child, f"{root}.{name}")
        inner = _wrapped(module)
        if inner is not None:
            self._root(inner)
        return self._register(module, root)

    def _register(
        self, module: nn.Module, path: str
    ) -> tuple[weakref.ref[nn.Module], str, Prepared]:
        prepared = self._emitter.prepare(path, "layer")
        native, key = self.native, id(module)
        if native is None:
            gone = weakref.ref(module)
        else:
            forget = native["forget"]
            gone = weakref.ref(module, lambda _: forget(key))
            native["know"](module, key, prepared.id)
        self._paths[key] = known = (gone, path, prepared)
        return known


def _told(module: nn.Module | None) -> str | None:
    """The path that a Keras layer has of itself; its layers are none of its children for PyTorch."""
    if not any(base.__module__ == _KERAS_LAYER for base in type(module).__mro__):
        return None
    path = getattr(module, "path", None)
    if not path:  # it has no weights, and is not built
        names = (getattr(module, "_parent_path", None), getattr(module, "name", None))
        path = "/".join(name for name in names if isinstance(name, str) and name)
    return path if isinstance(path, str) else None


def in_layer(state: ThreadState) -> bool:
    """Whether this thread is within a module's call."""
    return any(isinstance(one, int) for one in reversed(state.open))


def _trains(module: nn.Module) -> bool:
    # a frozen TorchScript module has no such attribute left
    return bool(getattr(module, "training", False))


def _wrapped(module: nn.Module) -> nn.Module | None:
    name = _WRAPPERS.get(type(module).__name__)
    return None if name is None else module._modules.get(name)


def close(emitter: Emitter, state: ThreadState, one: int | str) -> None:
    """Close the innermost range ``one`` of this thread, and what was left open inside it.

    Something is left open where what should have closed it did not run.
    """
    while True:
        last = state.open.pop()
        emitter.pop()
        if last == one:
            return
