"""The Flax adapter: makes NNX modules layers. Linen's modules need no adapter, as Linen opens scopes itself.

It hooks ``__call__`` of every NNX module class, existing and future. While JAX traces a program, the hook
opens a name scope, so the paths of the operations contain it: ``MLP/blocks/0/out``. While calls run
eagerly, it pushes a range. A module is named after the attribute of its parent that holds it.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, ClassVar, Final

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.jaxtrace import runs
from opscope.adapters.shared.patch import Patches
from opscope.core.capture.emit import Emitter

_log = logging.getLogger(__name__)

#: Limits of the search for a module's name: depth of nesting, and number of members in all.
_DEPTH: Final = 4
_MEMBERS: Final = 10_000


class _Open(threading.local):
    """The modules whose calls are open on this thread, outermost first, and their paths."""

    def __init__(self) -> None:
        self.stack: list[tuple[Any, str]] = []


class FlaxAdapter(Adapter):
    """Flax NNX."""

    name: ClassVar[str] = "flax"
    title: ClassVar[str] = "Flax"
    module: ClassVar[str] = "flax.nnx"
    requires: ClassVar[str] = ">=0.10"

    def __init__(self) -> None:
        self._patches = Patches()
        self._open = _Open()
        self._emitter: Emitter | None = None

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook all existing module classes, and each new one when it is defined."""
        if self._emitter is not None or not options.layers:
            return
        self.broken = False
        base: Any = import_module("flax.nnx").Module
        self._scope = import_module("jax").named_scope
        self._runs = runs()
        self._emitter = emitter

        def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:
            super(base, cls).__init_subclass__(**kwargs)
            self._hook(cls)

        self._patches.set(base, "__init_subclass__", classmethod(__init_subclass__))
        for cls in _subclasses(base):
            self._hook(cls)

    def listen(self) -> None:
        """Change nothing: the scopes must be in a program, which is traced once, listener or not."""

    def uninstall(self) -> None:
        """Restore every method."""
        self._patches.restore()
        self._emitter = None

    def _hook(self, cls: type) -> None:
        original = vars(cls).get("__call__")
        if original is not None and not self.broken:
            self._patches.set(cls, "__call__", self._called(original))

    def _called(self, original: Any) -> Any:
        @functools.wraps(original)
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            # a Flax decorator may have made the method an object with its own way of binding
            method = original.__get__(module, type(module))
            around = self._around(module)
            if around is None:
                return method(*args, **kwargs)
            with around:
                return method(*args, **kwargs)

        return __call__

    def _around(self, module: Any) -> AbstractContextManager[None] | None:
        """Return the scope or range for a call of the module, None if it gets none."""
        try:
            emitter, stack = self._emitter, self._open.stack
            if emitter is None or (stack and stack[-1][0] is module):
                return None  # uninstalled meanwhile, or the module calls its super().__call__
            tracing = not self._runs()
            if not tracing and not emitter.active:
                return None
            name, path = _name(stack, module)
            return self._layer(emitter, module, name if tracing else None, path)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a module could not be named")
            return None

    @contextmanager
    def _layer(self, emitter: Emitter, module: Any, name: str | None, path: str) -> Iterator[None]:
        stack = self._open.stack
        stack.append((module, path))
        try:
            if name is not None:
                with self._scope(name):
                    yield
            else:
                emitter.push(emitter.prepare(path, "layer"))
                try:
                    yield
                finally:
                    emitter.pop()
        finally:
            stack.pop()


def _subclasses(base: type) -> list[type]:
    subclasses: dict[type, None] = {}
    pending: list[type] = list(base.__subclasses__())
    while pending:
        cls = pending.pop()
        if cls not in subclasses:
            subclasses[cls] = None
            pending += cls.__subclasses__()
    return list(subclasses)


def _name(stack: list[tuple[Any, str]], module: Any) -> tuple[str, str]:
    """Return the module's name within its caller, and its path. A root is named after its class."""
    if not stack:
        return type(module).__name__, type(module).__name__
    parent, above = stack[-1]
    name = _hold(parent, module) or type(module).__name__
    return name, f"{above}/{name}"


def _hold(parent: Any, module: Any) -> str | None:
    """Return the attribute of ``parent`` that holds the module (``out``, ``blocks/0``), None if none does."""
    level: list[tuple[str, Any]] = [("", parent)]
    seen = 0
    for _ in range(_DEPTH):
        below: list[tuple[str, Any]] = []
        for path, holder in level:
            for key, value in _members(holder):
                seen += 1
                if value is module:
                    return f"{path}{key}"
                if seen > _MEMBERS:
                    return None
                if isinstance(value, (list, tuple, dict)) or hasattr(value, "__dict__"):
                    below.append((f"{path}{key}/", value))
        level = below
    return None


def _members(holder: Any) -> list[tuple[Any, Any]]:
    if isinstance(holder, dict):
        return list(holder.items())
    if isinstance(holder, (list, tuple)):
        return list(enumerate(holder))
    return list(getattr(holder, "__dict__", {}).items())
