"""The registry of cost models: decorated functions that compute the Cost of an OpCall.

    @op("aten::addmm", family="gemm")
    def addmm(call: OpCall) -> Cost: ...

A model raises ``CannotKnow(reason)`` if the call lacks what the cost depends on. It never guesses, and
never returns 0 for an unknown figure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from opscope.core import communication
from opscope.core.schema import OpCall, ParamValue

from . import others, places

_NOTHING: Mapping[str, int] = MappingProxyType({})
_NO_VARIANTS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Cost:
    """The least work of one call. FLOPs count 2 per multiply-add; bytes count each tensor once.

    ``by_dtype`` splits the FLOPs by the dtype of the computation (``{"f16": 4096}``).
    ``bytes_read`` and ``bytes_written`` are ``None`` where the element types (or the shapes of a list)
    are not known; ``bytes_reason`` then says why.
    ``masked_flops`` is the part of ``matrix_flops`` that a causal or banded mask makes unnecessary: the
    convention counts it (as torch.utils.flop_counter does), an efficient kernel skips it.
    ``note`` names an assumption that a figure depends on and the call does not confirm.
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
        """The sum of matrix and vector operations (FLOP)."""
        return self.matrix_flops + self.vector_flops

    @property
    def bytes(self) -> int | None:
        """Compulsory traffic: bytes read and written, ``None`` if either is not known."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both calls: every figure is summed, and unknown if either is unknown."""
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
    """The cost of a call cannot be known; reports show the message as the reason."""


Model = Callable[[OpCall], Cost]
#: Maps a backward op's call and the call of its forward op to a cost.
GradModel = Callable[[OpCall, OpCall], Cost]
#: Maps a forward op's call to two costs: of the gradients of its data inputs, and of the gradients of its
#: parameters.
BackwardModel = Callable[[OpCall], "tuple[Cost, Cost]"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered op: its family (``gemm``, ``conv`` …), its model, the source of the formula.

    ``sparse``: the model is also valid for sparse tensors. Any other model assumes that a tensor stores every
    element of its shape; sparse tensors go to ``stored.stored_cost`` instead. ``variants``: the names of the
    variants by which this op differs from other ops with the same model.
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
        """Whether the op differentiates another; PyTorch's names of those contain "backward"."""
        return "backward" in self.name


def words(text: str) -> tuple[str, ...]:
    """Split a text into names, so that a long list of names stays readable."""
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
    """Register a model for the named ops. Raises ValueError if a name already has a model.

    ``variants`` maps each variant of the formula to the ops that use it: names, or patterns of names with
    ``*``, separated by blanks. The model tests ``variant(call, "…")``, so the meaning of a name is defined
    here and nowhere else. Raises ValueError for a pattern that matches none of the names.
    """

    def register(model: Model) -> Model:
        of = _variants(names, variants)
        for name in names:
            if _entry_named(name) is not None:
                raise ValueError(f"{name} already has a cost model")
            text = source or (model.__doc__ or "").strip().partition("\n")[0]
            _ENTRIES[name] = Entry(name, family, model, text, view, sparse, of[name])
        lookup.cache_clear()
        return model

    return register


def _variants(names: Sequence[str], variants: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return for each name the variants whose patterns match it."""
    if not variants:  # nine in ten registrations take this path
        return dict.fromkeys(names, frozenset())
    found: dict[str, set[str]] = {name: set() for name in names}
    for which, patterns in variants.items():
        for pattern in words(patterns):
            fitting = [name for name in names if _fits(name, pattern)]
            if not fitting:
                raise ValueError(f"variant {which!r}: none of the names matches {pattern}")
            for name in fitting:
                found[name].add(which)
    return {name: frozenset(of) for name, of in found.items()}


def _fits(name: str, pattern: str) -> bool:
    """Whether ``name`` matches ``pattern``, in which ``*`` matches any text.

    fnmatch gives the same result, but needs 40 ms to compile all patterns, a quarter of the time of
    importing this package.
    """
    first, *parts = pattern.split("*")
    if not parts or not name.startswith(first):
        return name == pattern
    position, last = len(first), parts.pop()
    for part in parts:
        start = name.find(part, position)
        if start < 0:
            return False
        position = start + len(part)
    return name.endswith(last) and position + len(last) <= len(name)


def variant(call: OpCall, which: str) -> bool:
    """Whether the op of the call, in any spelling, was registered as the variant ``which``."""
    entry = lookup(call.name)
    return entry is not None and which in entry.variants


def with_forward(*names: str) -> Callable[[GradModel], GradModel]:
    """Register a model that computes a backward op's cost from its own call and its forward op's call."""

    def register(model: GradModel) -> GradModel:
        for name in names:
            places.load_gradients(name)
            if name in _WITH_FORWARD:
                raise ValueError(f"{name} already has a model that uses its forward op")
            _WITH_FORWARD[name] = model
        return model

    return register


def backward_of(*names: str) -> Callable[[BackwardModel], BackwardModel]:
    """Register the cost of differentiating the named forward ops, computed from the forward shapes."""

    def register(model: BackwardModel) -> BackwardModel:
        for name in names:
            places.load_gradients(name)
            if name in _BACKWARD:
                raise ValueError(f"{name} already has a backward model")
            _BACKWARD[name] = model
        return model

    return register


def entries() -> Mapping[str, Entry]:
    """Every registered op by name. It loads all models."""
    places.load_all()
    others.load()
    return MappingProxyType(_ENTRIES)


def _entry_named(name: str) -> Entry | None:
    """Return the entry of exactly this name."""
    if name not in _ENTRIES:
        places.load_model(name)
    return _ENTRIES.get(name)


def grad_model(name: str) -> GradModel | None:
    """The model of a backward op that uses its forward op's call, or ``None``."""
    entry = lookup(name)
    own = entry.name if entry else name
    places.load_gradients(own)
    return _WITH_FORWARD.get(own)


def backward_model(name: str) -> BackwardModel | None:
    """The model for the gradients of the named forward op, or ``None``."""
    entry = lookup(name)
    if entry is None:
        return None
    places.load_gradients(entry.name)
    return _BACKWARD.get(entry.name)


_OVERLOAD = re.compile(r"^([\w$]+::[\w$]+)\.[\w$]+$")
_TORCH_API = re.compile(r"^(?:torch(?:\.\w+)*|Tensor|F|nn\.functional)\.(\w+)$")

#: An ATen op's name in old traces: no namespace, lower case.
_BARE = re.compile(r"^_?[a-z]\w*$")

#: Names of PyTorch's API whose ATen name differs.
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
        "__rdiv__": "div",
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
#: Functions that share a name with a different method: Tensor.unfold is a view.
_FUNCTIONS: Final = MappingProxyType({"torch.nn.functional.unfold": "aten::im2col"})
#: API namespaces that are part of the ATen name: torch.linalg.solve is aten::linalg_solve.
_SPACES: Final = re.compile(r"^torch\.(fft|linalg|special)\.(\w+)$")


@lru_cache(maxsize=65_536)
def lookup(name: str) -> Entry | None:
    """Return the entry of an op, by any spelling of its name, or ``None`` if it has none.

    ``aten::add_.Tensor``, ``aten::add.out``, ``Tensor.add_`` and ``torch.add`` are all ``aten::add``.
    """
    others.load()
    entry = _entry_named(_FUNCTIONS.get(name, name))
    if entry is not None:
        return entry
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
    if name.startswith("native_call_"):  # a kernel of ExecuTorch
        return lookup("aten::" + name.removeprefix("native_call_"))
    if _BARE.match(name):  # PyTorch before 1.5 left the namespace out
        return lookup("aten::" + name)
    if name.startswith("nccl") and "+" in name:  # one kernel for several calls of an NCCL group
        return lookup(name.partition("+")[0])
    # a library's collective (vllm::all_reduce) has the cost of a collective
    return _entry_named("record_param_comms") if communication.is_op(name) else None


def in_place(name: str) -> bool:
    """Whether the op overwrites its first input, by its name (``aten::add_``, ``Tensor.relu_``)."""
    overload = _OVERLOAD.match(name)
    base = overload.group(1) if overload else name
    if base.endswith("__"):
        return bool(re.search(r"__i(?!nvert)\w+__$", base))
    return base.endswith("_") and ("::" in base or "." in base or bool(_BARE.match(base)))


def word_of(name: str) -> str:
    """Return the op's ATen name: ``add`` for ``aten::add_.Tensor``, ``torch.add`` and ``Tensor.__iadd__``."""
    entry = lookup(name)
    word = (name if entry is None else entry.name).rpartition("::")[2].partition(".")[0]
    return word if word.startswith("__") else word.rstrip("_")


def is_dispatched(name: str) -> bool:
    """Whether the name is one of PyTorch's dispatcher, not of its API (``torch.mm``) or of a graph node."""
    return "::" in name or bool(_BARE.match(name))


#: ATen's parameter names, by the names in graphs of ONNX, TensorFlow and MindSpore.
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
    """Return a model that applies the model of the op ``name`` to an op with another name.

    Parameters of graph nodes get ATen's names; ``fixed`` are the parameters that the other name implies.
    """

    def model(call: OpCall) -> Cost:
        entry = lookup(name)
        assert entry is not None, f"{name} has no model"
        params = dict(fixed)
        for key, value in call.params:
            params.setdefault(_PARAMS.get(key, key) if "::" in name else key, value)
        return entry.model(replace(call, name=name, params=tuple(params.items())))

    model.__doc__ = f"As {name}."
    return model


def also(name: str, names: str, **fixed: ParamValue) -> None:
    """Register those ``names`` (separated by blanks) that have no model as aliases of the op ``name``."""
    entry = lookup(name)
    assert entry is not None, f"{name} has no model"
    for other in words(names):
        if _entry_named(other) is None:
            op(other, family=entry.family, source=f"as {name}")(as_name(name, **fixed))
