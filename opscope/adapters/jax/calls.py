"""Push a range around each call of a jitted function. Its text is the name of the compiled module.

A jitted call runs entirely in C++ and has no hook. JAX can be forced onto its Python path, which costs
80 µs a call. A wrapper around each function, made when the function is jitted, costs under 1 µs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from types import MethodType
from typing import Any, Final, cast

import wrapt

from opscope.adapters.shared.jaxtrace import runs
from opscope.adapters.shared.patch import Patches
from opscope.core.capture.emit import Emitter, Prepared

_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]")


class _Switch:
    """The only part of the adapter that a wrapper refers to, because a jitted function may outlive the
    adapter."""

    __slots__ = ("failed", "on")

    def __init__(self) -> None:
        self.on = False
        self.failed: Callable[[str], None] | None = None


class Calls:
    """Wraps the functions that are jitted while it is installed."""

    what: Final = "calls of jitted functions"

    def __init__(self, emitter: Emitter, failed: Callable[[str], None]) -> None:
        self._emitter = emitter
        self._failed = failed
        self._patches = Patches()
        self._switch = _Switch()

    def install(self) -> None:
        """Hook ``jit``. Raises AttributeError or ImportError if this version of JAX has a different one."""
        pjit = import_module("jax._src.pjit")
        original, running, switch = pjit._cpp_pjit, runs(), self._switch

        def jitted(fun: Any, *args: Any, **kwargs: Any) -> Any:
            function = original(fun, *args, **kwargs)
            try:
                return _shell(self._emitter, switch, function, module_name(fun), running)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a jitted function could not be named")
                return function

        self._patches.set(pjit, "_cpp_pjit", jitted)
        switch.on = True
        switch.failed = self._failed

    def uninstall(self) -> None:
        self._patches.restore()
        self._switch.on = False
        self._switch.failed = None


class _Shell(wrapt.CallableObjectProxy):  # type: ignore[type-arg] # cannot be subscripted before 2
    """A jitted function whose call is replaced. The slot is found without a Python frame."""

    __slots__ = ("__call__",)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(cast("Callable[..., Any]", self), instance)


def _shell(
    emitter: Emitter, switch: _Switch, function: Any, name: str, running: Callable[[], bool]
) -> Any:
    prepared: Prepared | None = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal prepared
        if not emitter.active or not switch.on:
            return function(*args, **kwargs)
        try:
            runs_now = running()
            if prepared is None and runs_now:
                prepared = emitter.prepare(name, "graph")
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            runs_now = False
            if switch.failed is not None:
                switch.failed("the tracing state of JAX could not be read")
        if prepared is None or not runs_now:  # while another function is traced, nothing runs
            return function(*args, **kwargs)
        emitter.push(prepared)
        try:
            return function(*args, **kwargs)
        finally:
            emitter.pop()

    shell = _Shell(function)
    vars(_Shell)["__call__"].__set__(shell, call)  # an attribute that is set is the function's own
    return shell


def module_name(fun: Any) -> str:
    """Return the name that XLA gives to a function's module: ``jit_train_step``."""
    inner = fun
    while not hasattr(inner, "__name__") and hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    name = getattr(inner, "__name__", None) or type(inner).__name__
    return _NOT_IN_NAMES.sub("_", f"jit_{name}").rstrip("_")
