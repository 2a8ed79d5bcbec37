"""Record where the host reads an array's values and waits: ``float(x)``, ``np.array(x)``, ``device_get``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.reads import Reads
from opscope.adapters.shared.source import Sources


class ValueReads:
    """Hooks the property and the buffer by which an array's values are read, and ``block_until_ready``."""

    what: Final = "reads of arrays' values"

    def __init__(self, source: bool, failed: Callable[[str], None]) -> None:
        self._reads = Reads(Sources() if source else None, failed)
        self._patches = Patches()

    def install(self) -> None:
        """Set the hooks. Raises AttributeError or ImportError if this version of JAX has others."""
        jax, array = import_module("jax"), import_module("jax._src.array").ArrayImpl
        around, patches = self._reads.around, self._patches

        def value(prop: Any) -> Any:
            return property(around("jax.Array")(prop.fget), doc=prop.__doc__)

        patches.wrap(array, "_value", value)
        patches.wrap(array, "item", around("jax.Array.item"))
        # np.from_dlpack and PyTorch's wait in it
        patches.wrap(array, "__dlpack__", around("jax.Array.__dlpack__"))
        patches.wrap(array, "block_until_ready", around("jax.block_until_ready"))
        for name in ("block_until_ready", "device_get"):
            patches.wrap(jax, name, around(f"jax.{name}"))

    def listen(self) -> None:
        """Hear reads of memory while something listens."""
        self._reads.hear(import_module("jax._src.array").ArrayImpl)

    def uninstall(self) -> None:
        """Remove the hooks."""
        self._reads.forget()
        self._patches.restore()
