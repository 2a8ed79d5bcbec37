"""Say when a program begins to use a framework's device, and whether it has: no profiler begins earlier."""

from __future__ import annotations

import logging
import sys
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


def when_cuda_begins(what: Callable[[], None]) -> None:
    """Call ``what`` when PyTorch initialises CUDA in this process; at once if it already has."""

    def imported(torch: Any) -> None:
        from opscope.adapters.shared.cuda import when_in_use  # lazy: likewise

        try:
            when_in_use(torch.cuda, what)
        except AttributeError as error:  # private to PyTorch, so it may be missing: no kernels then
            _log.warning("opscope: kernels are not recorded: %s", error)

    after_import.call(imported, "torch")


def jax_in_use() -> bool:
    """Whether JAX has started its backends in this process."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def when_jax_begins(what: Callable[[], None]) -> None:
    """Call ``what`` once JAX has started its backends in this process."""

    def imported(bridge: Any) -> None:
        original = getattr(bridge, "backends", None)
        if (
            original is None
        ):  # private to JAX, so a version may lack it: no operations are recorded then
            _log.warning(
                "opscope: operations are not recorded: this version of JAX has no xla_bridge.backends"
            )
            return

        def backends() -> Any:
            first = not bridge.backends_are_initialized()
            found = original()
            if first:
                bridge.backends = original
                what()
            return found

        bridge.backends = backends

    after_import.call(imported, "jax._src.xla_bridge")


def mindspore_in_use() -> bool:
    """Whether the program has imported MindSpore, wholly, but neither PyTorch nor JAX."""
    found = sys.modules.get("mindspore")
    return hasattr(found, "nn") and "torch" not in sys.modules and "jax" not in sys.modules


def when_mindspore_begins(what: Callable[[], None]) -> None:
    """Call ``what`` once the program has imported MindSpore, and neither PyTorch nor JAX before it.

    MindSpore's profiler makes no choice that belongs to the program, so it need not wait for a device.
    """

    def imported(_: Any) -> None:
        if mindspore_in_use():
            what()

    after_import.call(imported, "mindspore")
