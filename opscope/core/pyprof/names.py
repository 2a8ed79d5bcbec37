"""The names that PyProf gives to kernels, modules, ops and dtypes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from opscope.core.dialects.demangle import demangled

#: Parts that are removed from a kernel's name.
_NOISE: Final = re.compile(
    r"(?:\bvoid |\bat::|\bcuda::|\bnative::|\(anonymous namespace\)::|<unnamed>::)"
)
#: Words by which PyProf tells the kernels of a linear layer's bias from the kernels of its products.
_ADDS: Final = re.compile(
    r"elementwise_kernel|reduce_kernel|kernelReduce|kernelPointwiseApply|2d_grouped_direct_kernel"
)
_PRODUCT: Final = re.compile(r"gemm|gemv|dot_kernel|splitKreduce|reduce_1Block|cutlass|nvjet|xmma")
#: An autograd node's name: the op that it differentiates, then ``Backward`` and a version's number.
_NODE: Final = re.compile(r"(.*?)(?:Backward\w*|_backward(?:_\w+)?)?\Z", re.DOTALL)
_IS_NODE: Final = re.compile(r"\w*Backward\d*\Z")
_OVERLOAD: Final = re.compile(r"\.\w+\Z")
#: PyProf's names of dtypes that differ from ours, and the names in PyProf's dictionaries.
_SHORT: Final = {
    "f64": "fp64", "f32": "fp32", "f16": "fp16", "i64": "int64", "i32": "int32", "i16": "int16",
    "i8": "int8", "u8": "uint8",
}  # fmt: skip
_LONG: Final = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def kernel_name(name: str) -> str:
    """Return a kernel's own name: no template arguments, no parameters, no PyTorch namespaces.

    ``void at::native::elementwise_kernel<128, 4>(int)`` is ``elementwise_kernel``. It has no spaces.
    """
    plain = _NOISE.sub("", demangled(name) or name)
    own = plain.partition("<")[0].partition("(")[0].strip()
    return "_".join((own or name).split()) or "-"


def adds_bias(kernel: str) -> bool:
    """Return whether a kernel of a linear layer, by its name, only prepares, adds or sums up the bias."""
    return _ADDS.search(kernel) is not None and _PRODUCT.search(kernel) is None


def mod_and_op(name: str, marker: bool) -> tuple[str, str]:
    """Return module and op of a call: ``torch.nn.functional``, ``linear``; ``aten``, ``addmm``.

    Only a ``marker`` names a Python module before its last dot. In other names an overload is left out.
    A name without a module has ``na``.
    """
    if marker:
        module, _, op = name.rpartition(".")
        return word(module or "na"), word(op)
    space, colons, op = name.rpartition("::")
    if not colons:
        return "na", word(name)
    return word(space), word(_OVERLOAD.sub("", op))


def node_op(name: str) -> str:
    """Return the op that an autograd node differentiates: ``View`` for ``ViewBackward``, and the like."""
    last = re.split(r"::|: ", name)[-1]
    match = _NODE.match(last)
    return word((match.group(1) if match else "") or last)


def is_node(name: str) -> bool:
    """Return whether this is the name of an autograd node, not of an op that runs in one."""
    return _IS_NODE.match(re.split(r"::|: ", name)[-1]) is not None


def dtype(name: str, long: bool = False) -> str:
    """Return PyProf's name of a dtype: ``fp32``, or ``float32`` where ``long``."""
    return (_LONG.get(name) if long else None) or _SHORT.get(name, name)


def field(parts: Sequence[object]) -> str:
    """Return sizes as Python writes a tuple, without spaces: ``(35,20,200)``, ``(200,)``."""
    return f"({','.join(map(str, parts))}{',' if len(parts) == 1 else ''})"


def word(text: str) -> str:
    """Return the text without spaces, because spaces separate PyProf's columns."""
    return "_".join(text.split()) or "na"
