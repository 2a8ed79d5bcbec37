"""Modules that the documentation named under an older path: they are imported from it for one more version."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Final

#: Older path → where the module is.
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
    """Finds a moved module: the same object under both names, and a DeprecationWarning for the older."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What loads the module ``name``; None for all but those of ``MOVED``."""
        if name not in MOVED:
            return None
        # no importlib.abc.Loader, which takes longer to import than all of this
        return ModuleSpec(name, _Loader())  # type: ignore[arg-type]


class _Loader:
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = MOVED[old]
        what = f"{old} is now {new}; the older path goes in the next version"
        # from here the import statement is below frames of importlib, which Python skips
        warnings.warn(what, DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)


def install() -> None:
    """Let the import system ask here for what it finds nowhere else."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
