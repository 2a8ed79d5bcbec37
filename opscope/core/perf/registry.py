"""The registry of cost models: one decorated function from OpCall to Cost for each op family.

    @op("aten::addmm", family="gemm")
    def addmm(call: OpCall) -> Cost: ...

A model raises ``CannotKnow(reason)`` where the call does not tell; it never guesses and never
returns 0 for what it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from opscope.core.schema import OpCall, ParamValue

_NOTHING: Mapping[str, int] = MappingProxyType({})
_NO_VARIANTS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call must at least do. FLOPs count 2 per multiply-add; bytes each tensor once.

    ``by_dtype`` splits the FLOPs by the dtype they are computed in (``{"f16": 4096}``).
    ``bytes_read`` and ``bytes_written`` are ``None`` where the sizes are known and the element
    types are not (or a list's shapes are not); ``bytes_reason`` then says which.
    ``masked_flops`` are those of ``matrix_flops`` that a causal or banded mask makes needless: the
    convention counts them (as torch.utils.flop_counter does), a good kernel skips them.
    ``note`` is set where a figure rests on an assumption that the call does not settle, and says it.
    """

    matrix_flops: int = 0
    vector_flops: int = 0
    bytes_read: int | None = 0
    bytes_written: int | None = 0
    by_dtype: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    bytes_reason: str = ""
    masked_flops: int = 0
    note: str = ""

    @property
    def flops(self) -> int:
        """All floating-point operations (FLOP)."""
        return self.matrix_flops + self.vector_flops

    @property
    def bytes(self) -> int | None:
        """Compulsory traffic (bytes), ``None`` where either side is not known."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Cost) -> Cost:
        """Both, one after the other: every figure summed; unknown where either is."""
        split = dict(self.by_dtype)
        for dtype, flops in other.by_dtype.items():
            split[dtype] = split.get(dtype, 0) + flops
        return Cost(
            self.matrix_flops + other.matrix_flops,
            self.vector_flops + other.vector_flops,
            _sum(self.bytes_read, other.bytes_read),
            _sum(self.bytes_written, other.bytes_written),
            split,
            self.bytes_reason or other.bytes_reason,
            self.masked_flops + other.masked_flops,
            self.note or other.note,
        )


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


class CannotKnow(Exception):
    """The call does not tell its cost; the message is the reason that reports give."""


Model = Callable[[OpCall], Cost]
#: From a backward op's call and the call of the forward op that it differentiates.
GradModel = Callable[[OpCall, OpCall], Cost]
#: From a forward op's call to (the gradients of its data inputs, the gradients of its parameters).
BackwardModel = Callable[[OpCall], "tuple[Cost, Cost]"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered op: its family (``gemm``, ``conv`` …), its model, the source of the formula.

    ``sparse``: the model holds for sparse tensors too. Any other takes an element for each place of a
    tensor's sizes, and is not asked about a sparse one (``sparse.stored_cost``). ``variants``: what sets
    this op apart from others of its model, as it was registered.
    """

    name: str
    family: str
    model: Model
    source: str
    view: bool = False
    sparse: bool = False
    variants: frozenset[str] = frozenset()

    @property
    def backward(self) -> bool:
        """Whether it differentiates another: PyTorch's names of such ops say so."""
        return "backward" in self.name


def words(text: str) -> tuple[str, ...]:
    """The names in a text, so that a long list of them stays readable."""
    return tuple(text.split())


_ENTRIES: dict[str, Entry] = {}
_WITH_FORWARD: dict[str, GradModel] = {}
_BACKWARD: dict[str, BackwardModel] = {}


def op(
    *names: str,
    family: str,
    source: str = "",
    view: bool = False,
    sparse: bool = False,
    variants: Mapping[str, str] = _NO_VARIANTS,
) -> Callable[[Model], Model]:
    """Register a model for the named ops. Raises ValueError where a name is taken.

    ``variants``: which of the names differ in their formula, by what the model calls the difference:
    names, or patterns of names with ``*``, apart by blanks. The model asks ``variant(call, "…")``, so what a
    name stands for is said here and nowhere else. Raises ValueError for a pattern that no name fits.
    """

    def register(model: Model) -> Model:
        of = _variants(names, variants)
        for name in names:
            if name in _ENTRIES:
                raise ValueError(f"{name} already has a cost model")
            text = source or (model.__doc__ or "").strip().partition("\n")[0]
            _ENTRIES[name] = Entry(name, family, model, text, view, sparse, of[name])
        lookup.cache_clear()
        return model

    return register


def _variants(names: Sequence[str], variants: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """For each name the variants whose patterns it fits."""
    if not variants:  # nine in ten registrations
        return dict.fromkeys(names, frozenset())
    found: dict[str, set[str]] = {name: set() for name in names}
    for which, patterns in variants.items():
        for pattern in words(patterns):
            fitting = [name for name in names if _fits(name, pattern)]
            if not fitting:
                raise ValueError(f"variant {which!r}: none of the names is {pattern}")
            for name in fitting:
                found[name].add(which)
    return {name: frozenset(of) for name, of in found.items()}


def _fits(name: str, pattern: str) -> bool:
    """Whether ``*`` can stand for something in ``pattern`` so that it is the name.

    fnmatch says the same; to compile all patterns takes it 40 ms, a quarter of this package's import.
    """
    first, *parts = pattern.split("*")
    if not parts or not name.startswith(first):
        return name == pattern
    place, last = len(first), parts.pop()
    for part in parts:
        found = name.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return name.endswith(last) and place + len(last) <= len(name)


def variant(call: OpCall, which: str) -> bool:
    """Whether the call's op, by any of its spellings, was registered as the variant ``which``."""
    entry = lookup(call.name)
    return entry is not None and which in entry.variants


def with_forward(*names: str) -> Callable[[GradModel], GradModel]:
    """Register how a backward op's cost follows where its forward op's call is known as well."""

    def register(model: GradModel) -> GradModel:
        for name in names:
            if name in _WITH_FORWARD:
                raise ValueError(f"{name} already has a model with its forward")
            _WITH_FORWARD[name] = model
        return model

    return register


def backward_of(*names: str) -> Callable[[BackwardModel], BackwardModel]:
    """Register what differentiating the named forward ops costs, from their own shapes."""

    def register(model: BackwardModel) -> BackwardModel:
        for name in names:
            if name in _BACKWARD:
                raise ValueError(f"{name} already has a backward model")
            _BACKWARD[name] = model
        return model

    return register


def entries() -> Mapping[str, Entry]:
    """Every registered op by name."""
    return MappingProxyType(_ENTRIES)


def grad_model(name: str) -> GradModel | None:
    """The model of a backward op that needs its forward op's call, or ``None``."""
    entry = lookup(name)
    return _WITH_FORWARD.get(entry.name) if entry else _WITH_FORWARD.get(name)


def backward_model(name: str) -> BackwardModel | None:
    """The model of differentiating the named forward op, or ``None``."""
    entry = lookup(name)
    return _BACKWARD.get(entry.name) if entry else None


_OVERLOAD = re.compile(r"^([\w$]+::[\w$]+)\.[\w$]+$")
_TORCH_API = re.compile(r"^(?:torch(?:\.\w+)*|Tensor|F|nn\.functional)\.(\w+)$")

#: An ATen op as old traces name it: no namespace, lower case.
_BARE = re.compile(r"^_?[a-z]\w*$")

#: torch.nn.functional names whose ATen name is another.
_API_TO_ATEN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cross_entropy": "cross_entropy_loss",
        "batch_norm": "batch_norm",
        "__add__": "add",
        "__radd__": "add",
        "__iadd__": "add",
        "__sub__": "sub",
        "__rsub__": "rsub",
        "__isub__": "sub",
        "__mul__": "mul",
        "__rmul__": "mul",
        "__imul__": "mul",
        "__truediv__": "div",
        "__rtruediv__": "div",
        "__itruediv__": "div",
        "__div__": "div",
        "__idiv__": "div",
        "__floordiv__": "floor_divide",
        "__pow__": "pow",
        "__rpow__": "pow",
        "__ipow__": "pow",
        "__neg__": "neg",
        "__matmul__": "matmul",
        "__rmatmul__": "matmul",
        "__abs__": "abs",
        "__mod__": "remainder",
        "__eq__": "eq",
        "__ne__": "ne",
        "__lt__": "lt",
        "__le__": "le",
        "__gt__": "gt",
        "__ge__": "ge",
        "__and__": "bitwise_and",
        "__or__": "bitwise_or",
        "__xor__": "bitwise_xor",
        "__invert__": "bitwise_not",
        "__getitem__": "index",
        "__setitem__": "index_put",
        "nll_loss": "nll_loss",
        "smooth_l1_loss": "smooth_l1_loss",
        "half": "to",
        "float": "to",
        "double": "to",
        "bfloat16": "to",
        "long": "to",
        "int": "to",
        "bool": "to",
        "cuda": "to",
        "cpu": "to",
        "type": "to",
        "byte": "to",
        "char": "to",
        "short": "to",
        "cfloat": "to",
        "cdouble": "to",
        "chalf": "to",
        "__rand__": "bitwise_and",
        "__ror__": "bitwise_or",
        "__rxor__": "bitwise_xor",
        "__ifloordiv__": "floor_divide",
        "__rfloordiv__": "floor_divide",
        "__imod__": "remainder",
        "__rmod__": "remainder",
        "__rlshift__": "__lshift__",
        "__rrshift__": "__rshift__",
        "__bool__": "item",
        "__float__": "item",
        "__int__": "item",
        "__index__": "item",
        "tolist": "to",
        "numpy": "to",
        "hardtanh": "hardtanh",
        "relu6": "hardtanh",
        "logsigmoid": "log_sigmoid",
        "fold": "col2im",
        "grouped_mm": "_grouped_mm",
        "scaled_mm": "_scaled_mm",
        "scaled_grouped_mm": "_scaled_grouped_mm",
        "upsample_nearest": "upsample_nearest2d",
        "upsample_bilinear": "upsample_bilinear2d",
        "triplet_margin_with_distance_loss": "triplet_margin_loss",
        **{
            f"{pool}_max_pool{n}d_with_indices": f"{pool}_max_pool{n}d"
            for pool in ("adaptive", "fractional")
            for n in (1, 2, 3)
        },
    }
)
#: A function whose name is another one's method: Tensor.unfold is a view.
_FUNCTIONS: Final = MappingProxyType({"torch.nn.functional.unfold": "aten::im2col"})
#: Namespaces of the API whose ops carry them in their ATen names: torch.linalg.solve, aten::linalg_solve.
_SPACES: Final = re.compile(r"^torch\.(fft|linalg|special)\.(\w+)$")


@lru_cache(maxsize=65_536)
def lookup(name: str) -> Entry | None:
    """The entry of an op by any of its spellings; ``None`` where there is none.

    ``aten::add_.Tensor``, ``aten::add.out``, ``Tensor.add_`` and ``torch.add`` are all ``aten::add``.
    """
    found = _ENTRIES.get(_FUNCTIONS.get(name, name))
    if found is not None:
        return found
    overload = _OVERLOAD.match(name)
    if overload is not None:
        return lookup(overload.group(1))
    space = _SPACES.match(name)
    if space is not None:
        return lookup(f"aten::{space.group(1)}_{space.group(2)}")
    api = _TORCH_API.match(name)
    if api is not None:
        word = api.group(1)
        return lookup("aten::" + _API_TO_ATEN.get(word, word))
    if "::" in name and name.endswith("_") and not name.endswith("__"):
        return lookup(name[:-1])
    if _BARE.match(name):  # PyTorch before 1.5 left the namespace out
        return lookup("aten::" + name)
    if name.startswith("nccl") and "+" in name:  # one kernel of several calls of a group
        return lookup(name.partition("+")[0])
    return None


def in_place(name: str) -> bool:
    """Whether the name says that the op overwrites its first input (``aten::add_``, ``Tensor.relu_``)."""
    overload = _OVERLOAD.match(name)
    base = overload.group(1) if overload else name
    if base.endswith("__"):
        return bool(re.search(r"__i(?!nvert)\w+__$", base))
    return base.endswith("_") and ("::" in base or "." in base or bool(_BARE.match(base)))


def word_of(name: str) -> str:
    """``add`` of ``aten::add_.Tensor``, ``torch.add`` and ``Tensor.__iadd__``: the op's name in ATen."""
    entry = lookup(name)
    word = (name if entry is None else entry.name).rpartition("::")[2].partition(".")[0]
    return word if word.startswith("__") else word.rstrip("_")


def is_dispatched(name: str) -> bool:
    """Whether the name is an op's as the dispatcher has it, not an API's (``torch.mm``) or a graph's."""
    return "::" in name or bool(_BARE.match(name))


#: What graphs call the parameters that ATen ops have: ONNX, TensorFlow, MindSpore.
_PARAMS: Final = MappingProxyType(
    {
        "axis": "dim",
        "axes": "dim",
        "keepdims": "keepdim",
        "keep_dims": "keepdim",
        "kernel_shape": "kernel_size",
        "ksize": "kernel_size",
        "strides": "stride",
        "dilations": "dilation",
        "approximation": "approximate",
    }
)


def as_name(name: str, **fixed: ParamValue) -> Model:
    """The model of the op of that name, for an op that has another.

    Parameters that graphs call otherwise get ATen's names; ``fixed`` are those that the other name
    implies.
    """

    def model(call: OpCall) -> Cost:
        entry = lookup(name)
        assert entry is not None, f"{name} is registered before its other names"
        params = dict(fixed)
        for key, value in call.params:
            params.setdefault(_PARAMS.get(key, key) if "::" in name else key, value)
        return entry.model(replace(call, name=name, params=tuple(params.items())))

    model.__doc__ = f"As {name}."
    return model


def also(name: str, others: str, **fixed: ParamValue) -> None:
    """Let the ``others`` (words) that have no model yet count as the registered op ``name``."""
    entry = lookup(name)
    assert entry is not None, f"{name} is registered before its other names"
    for other in words(others):
        if other not in _ENTRIES:
            op(other, family=entry.family, source=f"as {name}")(as_name(name, **fixed))
