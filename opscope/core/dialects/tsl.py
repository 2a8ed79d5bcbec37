"""Read the range texts of TensorFlow and XLA (NVTX domain ``TSL``): graph nodes and HLO operations.

StatefulPartitionedCall/gradient_tape/net/conv/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter
Thunk:#name=jit(step)/transpose(jvp(net))/layer1/dot_general,hlo_op=custom-call.3,hlo_module=jit_step#
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

from opscope.core.dialects import OPTIMIZERS, Reading, hlo
from opscope.core.node_names import layer_in, layer_of, plain_key
from opscope.core.schema import DTYPE_NAMES, OpCall, ParamValue, TensorSpec

DOMAINS: Final = frozenset({"TSL", "XLA"})
_LIMIT: Final = 64 * 1024
_TYPE: Final = re.compile(r"[A-Za-z_][\w>.]*\Z", re.ASCII)
_NUMBER: Final = re.compile(r"\.[0-9]+\Z")
_BACKWARD: Final = re.compile(
    r"(?:^|/)gradient_tape/|(?:^|/)gradients(?:_[0-9]+)?/|transpose\(jvp\("
)
_TAPE: Final = re.compile(r"(?:(?<=/)|\A)(?:gradient_tape|gradients(?:_[0-9]+)?)/")
_OPTIMIZERS: Final = OPTIMIZERS | {"ftrl"}
#: Kernels that do the work of several nodes; the pattern captures the op of the first node.
_FUSED: Final = re.compile(
    r"Fused(Conv2D|Conv3D|MatMul|BatchMatMulV2|DepthwiseConv2dNative|BatchNorm(?=Ex))"
)
_TENSOR: Final = re.compile(r"([A-Za-z_]\w*)\[((?:[0-9]{1,18}(?:,[0-9]{1,18})*)?)\]\Z")
_DTYPES: Final = {
    **DTYPE_NAMES,
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "int4": "i4",
    "uint4": "u4",
}
_FUNCTION: Final = re.compile(r"__(?:inference|forward)_")
#: Ops that wait for the program's data.
_INPUT: Final = ("IteratorGetNext", "IteratorV2", "MakeIterator", "OptionalHasValue", "Optional")


def read(domain: str, text: str) -> Reading | None:
    """Return the reading of a TensorFlow or XLA range; None for any other text."""
    if domain not in DOMAINS or not text or len(text) > _LIMIT:
        return None
    head, mark, rest = text.partition("#")
    if mark and rest.endswith("#"):
        return _trace(head.rstrip(":"), _pairs(rest[:-1]))
    path, colon, kind = text.rpartition(":")
    if not colon or not path or not _TYPE.match(kind):
        return None
    # the range of a function that runs by itself has the function's name as op type, too
    called = "StatefulPartitionedCall" if kind == path and _FUNCTION.match(kind) else kind
    return Reading(
        "op",
        OpCall(called, params=(("node", path),)),
        "input" if kind.startswith(_INPUT) else _direction(path),
        layer=None if kind in ("_Send", "_Recv") else layer_of(path),
        key=path + _fusion(kind),
    )


def _trace(name: str, pairs: dict[str, str]) -> Reading | None:
    """Return the reading of a range with TraceMe metadata: an HLO operation, a module, or something else."""
    hlo_op, module = pairs.get("hlo_op"), pairs.get("hlo_module")
    if hlo_op:
        path = pairs.get("name") or pairs.get("tf_op") or pairs.get("op_name") or ""
        params: tuple[tuple[str, ParamValue], ...] = (("hlo_op", hlo_op),)
        if module:
            params += (("hlo_module", module),)
        parts = path.split("/")
        called = parts[-1] if path else _NUMBER.sub("", hlo_op)
        # JAX's paths begin with the compiled function
        placed = hlo.place(path) if path.startswith(("jit(", "pjit(")) else None
        direction, layer = placed or (_direction(path), layer_in(parts[:-1]))
        return Reading(
            "op",
            OpCall(called, params=params),
            direction,
            layer=layer,
            key=hlo_op,
            graph=module,
        )
    if module:
        return Reading("graph", graph=module)
    kind = pairs.get("tf_op") or pairs.get("long_name") or name
    reading = read("TSL", kind) if "#" not in kind else None
    if reading is None or reading.call is None:
        return Reading("user") if name else None
    return replace(reading, call=replace(reading.call, inputs=_shapes(pairs.get("shape", ""))))


def _shapes(text: str) -> tuple[TensorSpec | None, ...]:
    """Return an op's inputs in ``(float[64,800];int32[])``; None for an input that is not a plain tensor."""
    if len(text) < 3 or text[0] != "(" or text[-1] != ")":
        return ()
    specs: list[TensorSpec | None] = []
    for part in text[1:-1].split(";"):
        tensor = _TENSOR.match(part)
        if tensor is None:
            specs.append(None)
            continue
        sizes = tuple(int(size) for size in tensor.group(2).split(",") if size)
        specs.append(TensorSpec(dtype_of(tensor.group(1)), sizes))
    return tuple(specs)


def dtype_of(name: str) -> str:
    """Return opscope's name of a dtype that TensorFlow writes as ``float`` or ``int32``."""
    return _DTYPES.get(name, name)


def _fusion(kind: str) -> str:
    """Return the first op of a fused kernel: ``:Conv2D`` for ``_FusedConv2D``; "" for other kernels."""
    match = _FUSED.search(kind)
    return f":{match.group(1)}" if match else ""


def forward_keys(key: str) -> Iterator[str]:
    """Yield names that the forward op of a backward node may have, the likeliest first.

    ``gradient_tape/net/conv/Conv2D/Conv2DBackpropFilter`` differentiates ``net/conv/Conv2D``,
    ``gradient_tape/net/ReluGrad`` ``net/Relu``, ``gradients/net/mul_grad/Mul`` ``net/mul``.
    """
    path = _TAPE.sub("", plain_key(key), count=1)
    if path == key:
        return
    parts = path.split("/")
    last = parts[-1]
    for name in dict.fromkeys((last, re.sub(r"Grad(V[0-9])?(_[0-9]+)?\Z", "", last))):
        if name:
            yield "/".join((*parts[:-1], name))
    for length in range(len(parts) - 1, 0, -1):
        yield "/".join((*parts[: length - 1], parts[length - 1].removesuffix("_grad")))


def _pairs(text: str) -> dict[str, str]:
    """Return the pairs in ``a=1,b=f(x,y)``; a comma inside brackets belongs to the value."""
    pairs: dict[str, str] = {}
    depth = start = 0
    for at, character in enumerate(text + ","):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth = max(0, depth - 1)
        elif character == "," and (depth == 0 or at == len(text)):
            key, equals, value = text[start:at].partition("=")
            if equals:
                pairs[key.strip()] = value
            start = at + 1
    return pairs


def _direction(path: str) -> Literal["backward", "optimizer"] | None:
    if _BACKWARD.search(path):
        return "backward"
    if any(part.rstrip("_0123456789").lower() in _OPTIMIZERS for part in path.split("/")):
        return "optimizer"
    return None
