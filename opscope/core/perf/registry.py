"""The registry of cost models: one decorated function from OpCall to Cost for each op family.

    @op("aten::addmm", family="gemm")
    def addmm(call: OpCall) -> Cost: ...

A model raises ``CannotKnow(reason)`` where the call does not tell; it never guesses and never
returns 0 for what it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from opscope.core.schema import OpCall

_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call must at least do. FLOPs count 2 per multiply-add; bytes each tensor once.

    ``by_dtype`` splits the FLOPs by the dtype they are computed in (``{"f16": 4096}``).
    """

    matrix_flops: int = 0
    vector_flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    by_dtype: Mapping[str, int] = field(default_factory=lambda: _NOTHING)

    @property
    def flops(self) -> int:
        """All floating-point operations (FLOP)."""
        return self.matrix_flops + self.vector_flops

    @property
    def bytes(self) -> int:
        """Compulsory traffic (bytes)."""
        return self.bytes_read + self.bytes_written


class CannotKnow(Exception):
    """The call does not tell its cost; the message is the reason that reports give."""


Model = Callable[[OpCall], Cost]


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered op: its family (``gemm``, ``conv`` …), its model, the source of the formula."""

    name: str
    family: str
    model: Model
    source: str
    view: bool = False


_ENTRIES: dict[str, Entry] = {}


def op(*names: str, family: str, source: str = "", view: bool = False) -> Callable[[Model], Model]:
    """Register a model for the named ops. Raises ValueError where a name is taken."""

    def register(model: Model) -> Model:
        for name in names:
            if name in _ENTRIES:
                raise ValueError(f"{name} already has a cost model")
            _ENTRIES[name] = Entry(name, family, model, source or (model.__doc__ or ""), view)
        return model

    return register


def entries() -> Mapping[str, Entry]:
    """Every registered op by name."""
    return MappingProxyType(_ENTRIES)
