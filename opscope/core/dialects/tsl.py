"""Range texts of TensorFlow and XLA, in NVTX domain ``TSL``: graph nodes and HLO operations.

StatefulPartitionedCall/gradient_tape/net/conv/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter
Thunk:#name=jit(step)/transpose(jvp(net))/layer1/dot_general,hlo_op=custom-call.3,hlo_module=jit_step#
"""

from __future__ import annotations

import re
from typing import Final, Literal

from opscope.core.dialects import Reading
from opscope.core.schema import OpCall, ParamValue

DOMAINS: Final = frozenset({"TSL", "XLA"})
_LIMIT: Final = 64 * 1024
_TYPE: Final = re.compile(r"[A-Za-z_][\w>.]*\Z", re.ASCII)
_NUMBER: Final = re.compile(r"\.[0-9]+\Z")
#: Wrappers that tell nothing about the model.
_WRAPPERS: Final = re.compile(
    r"(?:StatefulPartitionedCall|PartitionedCall|gradient_tape|gradients|cluster)(?:_[0-9]+)?\Z"
)
_JAX_WRAPPER: Final = re.compile(r"(?:jit|pjit|xla_call|shard_map|while|body|cond)\b|jit\(")
_BACKWARD: Final = re.compile(
    r"(?:^|/)gradient_tape/|(?:^|/)gradients(?:_[0-9]+)?/|transpose\(jvp\("
)
_OPTIMIZERS: Final = frozenset(
    [
        "sgd",
        "adam",
        "adamw",
        "adamax",
        "adagrad",
        "adadelta",
        "rmsprop",
        "nadam",
        "ftrl",
        "lion",
        "lamb",
        "adafactor",
    ]
)
_INNER: Final = re.compile(r"\w+\((.*)\)\Z")


def read(domain: str, text: str) -> Reading | None:
    """The reading of a TensorFlow or XLA range; None where it is neither."""
    if domain not in DOMAINS or not text or len(text) > _LIMIT:
        return None
    head, mark, rest = text.partition("#")
    if mark and rest.endswith("#"):
        return _traced(head.rstrip(":"), _pairs(rest[:-1]))
    path, colon, kind = text.rpartition(":")
    if not colon or not path or not _TYPE.match(kind):
        return None
    return Reading(
        "op",
        OpCall(kind, params=(("node", path),)),
        _direction(path),
        layer=_layer(path.split("/")[:-1]),
    )


def _traced(name: str, pairs: dict[str, str]) -> Reading | None:
    """A range with TraceMe metadata: an HLO operation, a whole module, or something else."""
    hlo_op, module = pairs.get("hlo_op"), pairs.get("hlo_module")
    if hlo_op:
        path = pairs.get("name") or pairs.get("tf_op") or pairs.get("op_name") or ""
        params: tuple[tuple[str, ParamValue], ...] = (("hlo_op", hlo_op),)
        if module:
            params += (("hlo_module", module),)
        parts = path.split("/")
        called = parts[-1] if path else _NUMBER.sub("", hlo_op)
        return Reading(
            "op", OpCall(called, params=params), _direction(path), layer=_layer(parts[:-1])
        )
    if module:
        return Reading("graph")
    kind = pairs.get("tf_op") or pairs.get("long_name")
    return read("TSL", kind) if kind and "#" not in kind else Reading("user") if name else None


def _pairs(text: str) -> dict[str, str]:
    """``a=1,b=f(x,y)``: commas inside brackets belong to the value."""
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


def _layer(parts: list[str]) -> str | None:
    """The layer's path: without wrappers, and with ``transpose(jvp(net))`` as ``net``."""
    kept = []
    for part in parts:
        if _WRAPPERS.match(part) or _JAX_WRAPPER.match(part):
            continue
        while (inner := _INNER.match(part)) is not None:
            part = inner.group(1)
        if part:
            kept.append(part)
    return "/".join(kept) or None
