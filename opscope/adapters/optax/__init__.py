"""The Optax adapter: puts the optimizer's operations in a traced program into scope ``optimizer``.

It hooks the creation of gradient transformations, to wrap their ``update``, and ``apply_updates``.
It emits nothing: the operations' paths contain the scope.
"""

from __future__ import annotations

import functools
import threading
from importlib import import_module
from typing import Any, ClassVar, Final

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.jaxtrace import runs
from opscope.adapters.shared.patch import Patches
from opscope.core.capture.emit import Emitter

SCOPE: Final = "optimizer"
_MARK: Final = "_opscope_scoped"


class _Inside(threading.local):
    scope = False


class OptaxAdapter(Adapter):
    """Optax."""

    name: ClassVar[str] = "optax"
    title: ClassVar[str] = "Optax"
    module: ClassVar[str] = "optax"
    requires: ClassVar[str] = ">=0.2"

    def __init__(self) -> None:
        self._patches = Patches()
        self._inside = _Inside()
        self._on = False

    def install(self, emitter: Emitter, options: Options) -> None:
        """Set the hooks. Optimizers that were created before get no scope."""
        if self._on or not options.layers:
            return
        optax = import_module("optax")
        self._scope = import_module("jax").named_scope
        self._runs = runs()
        kind = optax.GradientTransformation
        make = vars(kind)["__new__"].__func__

        @functools.wraps(make)
        def __new__(cls: type, init: Any, update: Any) -> Any:
            return make(cls, init, self._scoped(update))

        self._patches.set(kind, "__new__", staticmethod(__new__))
        self._patches.set(optax, "apply_updates", self._scoped(optax.apply_updates))
        self._on = True

    def listen(self) -> None:
        """Change nothing: the scopes must be in a program, which is traced once, listener or not."""

    def uninstall(self) -> None:
        """Restore both functions. An optimizer that was created meanwhile keeps a wrapper that does
        nothing."""
        self._patches.restore()
        self._on = False

    def _scoped(self, function: Any) -> Any:
        if getattr(function, _MARK, False) or not callable(function):
            return function
        inside = self._inside

        @functools.wraps(function)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            if not self._is_outermost():
                return function(*args, **kwargs)
            inside.scope = True
            try:
                with self._scope(SCOPE):
                    return function(*args, **kwargs)
            finally:
                inside.scope = False

        setattr(scoped, _MARK, True)
        return scoped

    def _is_outermost(self) -> bool:
        """Whether JAX is tracing a program and no enclosing transformation has opened the scope."""
        try:
            return self._on and not self._inside.scope and not self._runs()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("the tracing state of JAX could not be read")
            return False
