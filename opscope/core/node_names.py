"""The names of a prepared graph's nodes: the scopes in them, which are layers, and what runtimes add."""

from __future__ import annotations

import re
from typing import Final

#: Wrappers that tell nothing about the model.
_WRAPPERS: Final = re.compile(
    r"(?:StatefulPartitionedCall|PartitionedCall|gradient_tape|gradients|cluster)(?:_[0-9]+)?\Z"
)
_JAX_WRAPPER: Final = re.compile(r"(?:jit|pjit|xla_call|shard_map|while|body|cond)\b|jit\(")
#: What inlining a loop's or branch's function puts before its nodes; the number is the runtime's.
_BODY: Final = re.compile(r"/(body|cond|then|else|branch[0-9]+)/_[0-9]*(?=/)")
_LEADING: Final = re.compile(r"(?:(?:Stateful)?PartitionedCall(?:_[0-9]+)?/)+")
#: What Grappler puts before the name of a node that it made of another.
_OPTIMIZER: Final = re.compile(
    r"(?:ArithmeticOptimizer|ConstantFolding|LayoutOptimizer|RemapperOptimizer)/"
    r"(?:(?:FoldTransposeIntoMatMul|FoldMultiplyIntoConv|ReorderCastLikeAndValuePreserving|"
    r"HoistCommonFactor_\w+?|AddOpsRewrite|ReplaceMulWithSquare|ReplaceMulWithBroadcastByTile|"
    r"RemoveStackSliceSameAxis|FoldConjugateIntoTranspose|ConvertPow|ConvertLog1p|ConvertExpm1)_)?"
)
_INNER: Final = re.compile(r"\w+\((.*)\)\Z")


def normal_key(key: str) -> str:
    """A node's name without the numbers and prefixes that the runtime and Grappler add."""
    key = _BODY.sub(r"/\1/_", key)
    return _OPTIMIZER.sub("", key) if "Optimizer/" in key or "ConstantFolding/" in key else key


def short_key(key: str) -> str:
    """A node's name within the function that it was written in, loops and calls left out."""
    inner = max((found.end() for found in _BODY.finditer(key)), default=-1)
    key = key[inner + 1 :]
    return _LEADING.sub("", key, count=1) if key.startswith(("P", "S")) else key


def plain_key(key: str) -> str:
    """The name of a fused kernel's own node, without the op that it begins with."""
    return key.partition(":")[0]


def layer_of(key: str) -> str | None:
    """The layer that a node's name tells: its scopes, without wrappers; None where it has none."""
    return layer_in(short_key(key).split("/")[:-1])


def layer_in(parts: list[str]) -> str | None:
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
