"""Calls of jitted functions: a range for each, its text the name of the compiled module.

A jitted call runs in C++ from beginning to end and asks nobody. Its Python path can be forced, at 80
µs a call; a shell around each function, made when it is jitted, costs under one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import wrapt

from opscope.adapters.shared.jaxtrace import runs
from opscope.adapters.shared.patch import Patches
from opscope.core.capture.emit import Emitter, Prepared

_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]")


class _Switch:
    """What a shell asks, and all that it keeps: a jitted function may outlive the adapter."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = False


class Calls:
    """Shells around the functions that are jitted from now on."""

    what: Final = "calls of jitted functions"

    def __init__(self, emitter: Emitter, failed: Callable[[str], None]) -> None:
        self._emitter = emitter
        self._failed = failed
        self._patches = Patches()
        self._switch = _Switch()

    def install(self) -> None:
        """Raises AttributeError or ImportError where this JAX makes its functions otherwise."""
        pjit = import_module("jax._src.pjit")
        original, running, switch = pjit._cpp_pjit, runs(), self._switch

        def jitted(fun: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(fun, *args, **kwargs)
            try:
                return _shell(self._emitter, switch, made, module_name(fun), running)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a jitted function could not be named")
                return made

        self._patches.set(pjit, "_cpp_pjit", jitted)
        switch.on = True

    def uninstall(self) -> None:
        self._patches.restore()
        self._switch.on = False


def _shell(
    emitter: Emitter, switch: _Switch, made: Any, name: str, running: Callable[[], bool]
) -> Any:
    prepared: Prepared | None = None

    def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        nonlocal prepared
        # inside another function's trace nothing runs
        if not emitter.active or not switch.on or not running():
            return wrapped(*args, **kwargs)
        if prepared is None:
            prepared = emitter.prepare(name, "graph")
        emitter.push(prepared)
        try:
            return wrapped(*args, **kwargs)
        finally:
            emitter.pop()

    return wrapt.FunctionWrapper(made, call)


def module_name(fun: Any) -> str:
    """``jit_train_step``: what XLA calls the module of a function."""
    inner = fun
    while not hasattr(inner, "__name__") and hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    name = getattr(inner, "__name__", None) or type(inner).__name__
    return _NOT_IN_NAMES.sub("_", f"jit_{name}").rstrip("_")
