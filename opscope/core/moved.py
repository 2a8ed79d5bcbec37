"""Import moved modules by their old, documented paths for one more version, with a DeprecationWarning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Final

#: Old path → new path.
MOVED: Final = MappingProxyType(
    {
        "opscope.core.session": "opscope.core.capture.session",
        "opscope.core.naming": "opscope.core.perf.devices.unnamed",
        "opscope.core.perf.activation": "opscope.core.perf.ops.activation",
        "opscope.core.perf.draws": "opscope.core.perf.ops.random_numbers",
        "opscope.core.perf.elementwise": "opscope.core.perf.ops.elementwise",
        "opscope.core.perf.interpolation": "opscope.core.perf.ops.interpolation",
        "opscope.core.perf.linalg": "opscope.core.perf.ops.linalg",
        "opscope.core.perf.loss": "opscope.core.perf.ops.loss",
        "opscope.core.perf.optimizer": "opscope.core.perf.ops.optimizer",
        "opscope.core.perf.reduction": "opscope.core.perf.ops.reduction",
        "opscope.core.perf.second_order": "opscope.core.perf.ops.second_order",
    }
)


class Finder:
    """Finds moved modules: both names give the same object, and the old name gives a DeprecationWarning."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that loads the module ``name``; None if ``MOVED`` does not list it."""
        if name not in MOVED:
            return None
        # not an importlib.abc.Loader: importing that takes longer than all of this
        return ModuleSpec(name, _Loader())  # type: ignore[arg-type]


class _Loader:
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = MOVED[old]
        what = f"{old} is now {new}; the next version removes the old path"
        # stacklevel 2 reaches the import statement: Python skips the importlib frames in between
        warnings.warn(what, DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)


def install() -> None:
    """Add ``Finder`` to the import system, after all other finders."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
