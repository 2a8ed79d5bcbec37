"""Build engines that can describe their layers, if the user has not set the profiling verbosity."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any, Final

from opscope.adapters.shared.patch import Patches

_log = logging.getLogger(__name__)
#: Methods of ``trt.Builder`` that build, with the place of the config among their arguments.
_BUILDS: Final = ("build_serialized_network", "build_engine_with_config", "build_engine")


class Verbosity:
    """The hooks of the builder. A config whose verbosity the user has set is left alone."""

    def __init__(self, trt: Any, failed: Callable[[str], None]) -> None:
        self._trt = trt
        self._failed = failed
        self._set_by_user: weakref.WeakSet[Any] = weakref.WeakSet()
        self._setting = False
        self._said = False
        self._on = False

    def install(self, patches: Patches) -> None:
        """Hook the builder and the config's property, where this build of TensorRT has them."""
        config, builder = (getattr(self._trt, name, None) for name in ("IBuilderConfig", "Builder"))
        verbosity = getattr(self._trt, "ProfilingVerbosity", None)
        if config is None or builder is None or not hasattr(verbosity, "DETAILED"):
            return
        self._on = True
        patches.wrap(config, "profiling_verbosity", self._noticing)
        for method in _BUILDS:
            if hasattr(builder, method):
                patches.wrap(builder, method, self._around)

    def uninstall(self) -> None:
        """Remove the hooks. Configs need no change: each is restored when its build ends."""
        self._on = False

    def _noticing(self, original: Any) -> Any:
        def set_(config: Any, value: Any) -> None:
            original.fset(config, value)
            if self._on and not self._setting:
                self._set_by_user.add(config)

        return property(original.fget, set_, None, original.__doc__)

    def _around(self, original: Any) -> Any:
        @functools.wraps(original)
        def build(builder: Any, *args: Any, **kwargs: Any) -> Any:
            config, before = self._raised(args, kwargs)
            try:
                return original(builder, *args, **kwargs)
            finally:
                if config is not None:
                    self._set(config, before)

        return build

    def _raised(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Request detailed verbosity; return the config and its earlier value, or (None, None)."""
        try:
            config = kwargs.get("config", args[1] if len(args) > 1 else None)
            names = self._trt.ProfilingVerbosity
            if not self._on or config is None or config in self._set_by_user:
                return None, None
            before = config.profiling_verbosity
            if before != names.LAYER_NAMES_ONLY:
                return None, None
            self._set(config, names.DETAILED)
            if not self._said:
                self._said = True
                _log.info(
                    "opscope: engines are built with profiling_verbosity DETAILED, so that their layers can"
                    " be described (OPSCOPE_TENSORRT_VERBOSITY=0 leaves it as it is)"
                )
            return config, before
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the verbosity of an engine's build could not be raised")
            return None, None

    def _set(self, config: Any, value: Any) -> None:
        self._setting = True
        try:
            config.profiling_verbosity = value
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the verbosity of an engine's build could not be set")
        finally:
            self._setting = False
