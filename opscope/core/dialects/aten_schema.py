"""Look up the argument names of PyTorch's ``aten`` ops, for traces that give arguments by position only.

``scripts/make_aten_schemas.py`` makes the table beside this file from PyTorch's own schemas. Traces name
an op without its overload, so an op and its number of arguments select the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final, Literal

import msgspec

#: ``any``: a tensor in one overload and a scalar in another; the types in the trace decide.
Kind = Literal["tensor", "tensors", "any", "scalar"]
#: The tables' marks of an argument's kind.
MARKS: Final[dict[str, Kind]] = {"*": "tensor", "+": "tensors"}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a schema: its name, and whether it takes a tensor, a list of them or neither."""

    name: str
    kind: Kind


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, list[str]], frozenset[str], frozenset[str]]:
    text = resources.files(__package__).joinpath("aten_schemas.json").read_bytes()
    loaded: dict[str, Any] = msgspec.json.decode(text)
    return loaded["aten"], frozenset(loaded["composite"]), frozenset(loaded["partly_composite"])


def is_composite(name: str) -> bool:
    """Whether PyTorch implements the op by calling other ops, which its profiler records inside it.

    ``name`` has the prefix ``aten::`` and perhaps an overload. False for an op with both composite
    and other overloads.
    """
    return _word(name) in _tables()[1]


def is_partly_composite(name: str) -> bool:
    """Whether some overloads of the op are composite and others not, as of ``aten::where``."""
    return _word(name) in _tables()[2]


def _word(name: str) -> str:
    return name.removeprefix("aten::").partition(".")[0].removesuffix("_")


@lru_cache(maxsize=8192)
def arguments(
    name: str,
    arity: int,
    tensors: tuple[bool | None, ...] | None = None,
    single: tuple[bool, ...] | None = None,
) -> tuple[Argument, ...] | None:
    """Return the arguments of ``aten::name`` when called with ``arity`` arguments; None if unknown.

    ``name`` may have the prefix ``aten::`` and an overload (``aten::sum.dim_IntList``), which are
    ignored. Several overloads may have ``arity`` arguments: ``tensors``, if given, selects one. It
    says for each argument whether it is a tensor or a list of tensors (None: unknown). ``single``
    says for each whether it is a single number, which a ``size`` never is.
    """
    overloads = _overloads(name.removeprefix("aten::").partition(".")[0], arity)
    if not overloads:
        return None
    # then an absent tensor is an optional one, not ``out``
    typed = tensors is not None and False in tensors
    for overload in overloads if tensors else ():
        if all(
            is_tensor == (argument.kind != "scalar")
            or (is_tensor is None and not (typed and argument.name == "out"))
            for argument, is_tensor in zip(overload, tensors or (), strict=True)
        ) and not any(
            alone and argument.name == "size"
            for argument, alone in zip(overload, single or (), strict=False)
        ):
            return overload
    return tuple(
        argument
        if len({other[index].kind for other in overloads}) == 1
        else Argument(argument.name, "any")
        for index, argument in enumerate(overloads[0])
    )


@lru_cache(maxsize=8192)
def _overloads(name: str, arity: int) -> list[tuple[Argument, ...]]:
    lines = [line.split(" ") if line else [] for line in _tables()[0].get(name, ())]
    return [
        tuple(Argument(word.lstrip("*+"), MARKS.get(word[:1], "scalar")) for word in words)
        for words in lines
        if len(words) == arity
    ]


@lru_cache(maxsize=8192)
def tensor_arguments(name: str, count: int, others: frozenset[str]) -> tuple[str, ...] | None:
    """Return the names of the ``count`` arguments of ``aten::name`` that take tensors; None if unknown.

    ``others``: names of arguments in the call. Only overloads that have all these names count.
    """
    candidates: set[tuple[str, ...]] = set()
    base, _, overload = name.removeprefix("aten::").partition(".")
    for line in _tables()[0].get(base, ()):
        words = line.split(" ") if line else []
        if "*out" in words and not overload.endswith("out"):
            continue
        names = tuple(word[1:] for word in words if word[:1] in MARKS)
        if len(names) == count and others <= {word.lstrip("*+") for word in words}:
            candidates.add(names)
    return candidates.pop() if len(candidates) == 1 else None
