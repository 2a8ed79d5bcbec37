"""The Optax adapter: what an optimizer computes in a traced program is in scope ``optimizer``.

Hooked: the making of gradient transformations, whose ``update`` gets a shell, and ``apply_updates``.
Nothing is emitted: the operations' paths carry the scope.
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
        """Hook. Optimizers that were made before have no scope."""
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
        """Programs are traced once, whether something listens or not: nothing changes."""

    def uninstall(self) -> None:
        """Put both back; an optimizer that was made meanwhile keeps an empty shell."""
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
        """Whether a program is being traced, and no transformation around this one has the scope."""
        try:
            return self._on and not self._inside.scope and not self._runs()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("whether a program is traced could not be told")
            return False
