"""The exceptions that opscope raises on purpose, under stable names.

Importing this module does not import the code that raises them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .adapters import AdapterError as AdapterError
    from .core.capture.session import SessionError as SessionError
    from .core.not_merged import NotMerged as NotMerged
    from .core.perf.devices.unnamed import UnknownDevice as UnknownDevice
    from .readers.errors import BadInput as BadInput
    from .remote.errors import NotReached as NotReached
    from .scale.errors import EngineError as EngineError

#: The module that defines each exception; it is imported at first use.
_DEFINED: Final = {
    "AdapterError": "adapters",
    "BadInput": "readers.errors",
    "EngineError": "scale.errors",
    "NotMerged": "core.not_merged",
    "NotReached": "remote.errors",
    "SessionError": "core.capture.session",
    "UnknownDevice": "core.perf.devices.unnamed",
}
__all__ = [
    "AdapterError",
    "BadInput",
    "EngineError",
    "NotMerged",
    "NotReached",
    "SessionError",
    "UnknownDevice",
]


def __getattr__(name: str) -> Any:
    module = _DEFINED.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package = __name__.rpartition(".")[0]
    value = globals()[name] = getattr(import_module(f"{package}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
