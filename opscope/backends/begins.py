"""Tell when a program begins to use a framework's device, and whether it has: no profiler may begin
earlier."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from opscope.core.capture import after_import

_log = logging.getLogger(__name__)


def cuda_in_use() -> bool:
    """Whether PyTorch has initialised CUDA, or is doing so on this thread."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None:
        return False
    from opscope.adapters.shared.cuda import in_use  # lazy: only where PyTorch is used

    return in_use(cuda)


def when_cuda_begins(function: Callable[[], None]) -> None:
    """Call ``function`` when PyTorch initialises CUDA in this process; at once if it already has."""

    def imported(torch: Any) -> None:
        from opscope.adapters.shared.cuda import when_in_use  # lazy: likewise

        try:
            when_in_use(torch.cuda, function)
        except AttributeError as error:  # private to PyTorch, so it may be missing: no kernels then
            _log.warning("opscope: kernels are not recorded: %s", error)

    after_import.call(imported, "torch")


def jax_in_use() -> bool:
    """Whether JAX has started its backends in this process."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def when_jax_begins(function: Callable[[], None]) -> None:
    """Call ``function`` once JAX has started its backends in this process.

    JAX caches ``get_backend``, and since 0.11 a second thread that asks for the same backend waits for the
    first one's answer. ``function`` starts JAX's profiler on a thread of its own, which asks for the backend:
    so if ``get_backend`` started them, ``function`` is called only after ``get_backend`` has returned.
    """

    def imported(bridge: Any) -> None:
        original = getattr(bridge, "backends", None)
        # private to JAX, so a version may lack it: no operations are recorded then
        if original is None:
            _log.warning(
                "opscope: operations are not recorded: this version of JAX has no xla_bridge.backends"
            )
            return
        asking = getattr(bridge, "get_backend", None)
        outer = None if asking is None else _Outermost(asking)

        def begun() -> None:
            if bridge.__dict__.get("get_backend") is outer:
                bridge.get_backend = asking
            function()

        def backends() -> Any:
            first = not bridge.backends_are_initialized()
            clients = original()
            if first:
                bridge.backends = original
                if outer is None:
                    function()
                else:
                    outer.after(begun)
            return clients

        bridge.backends = backends
        if outer is not None:
            bridge.get_backend = outer

    after_import.call(imported, "jax._src.xla_bridge")


class _Outermost:
    """A replacement of ``function`` that makes the pending calls when its outermost call has ended."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._calls = threading.local()

    def after(self, function: Callable[[], None]) -> None:
        """Call ``function`` at the end of this thread's running call; now if there is none."""
        if getattr(self._calls, "depth", 0):
            self._calls.due = function
        else:
            function()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        calls = self._calls
        calls.depth = getattr(calls, "depth", 0) + 1
        try:
            return self._function(*args, **kwargs)
        finally:
            calls.depth -= 1
            due = getattr(calls, "due", None)
            if due is not None and not calls.depth:
                calls.due = None
                due()

    def __getattr__(self, name: str) -> Any:  # JAX clears its cache by get_backend.cache_clear
        return getattr(self._function, name)


def mindspore_in_use() -> bool:
    """Whether the program has completely imported MindSpore, but neither PyTorch nor JAX."""
    module = sys.modules.get("mindspore")
    return hasattr(module, "nn") and "torch" not in sys.modules and "jax" not in sys.modules


def when_mindspore_begins(function: Callable[[], None]) -> None:
    """Call ``function`` once the program has imported MindSpore, unless it has imported PyTorch or JAX
    before.

    MindSpore's profiler makes no choice that belongs to the program, so it need not wait for a device.
    """

    def imported(_: Any) -> None:
        if mindspore_in_use():
            function()

    after_import.call(imported, "mindspore")
