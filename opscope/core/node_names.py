"""Parse the names of a prepared graph's nodes: the scopes, which are layers, and the runtimes' additions."""

from __future__ import annotations

import re
from typing import Final

#: Scopes of wrappers, which show nothing about the model.
_WRAPPERS: Final = re.compile(
    r"(?:StatefulPartitionedCall|PartitionedCall|gradient_tape|gradients|cluster)(?:_[0-9]+)?\Z"
)
_JAX_WRAPPER: Final = re.compile(r"(?:jit|pjit|xla_call|shard_map|while|body|cond)\b|jit\(")
#: The prefix that nodes get when the function of a loop or branch is inlined; the runtime adds the number.
_BODY: Final = re.compile(r"/(body|cond|then|else|branch[0-9]+)/_[0-9]*(?=/)")
_LEADING: Final = re.compile(r"(?:(?:Stateful)?PartitionedCall(?:_[0-9]+)?/)+")
#: The prefix that Grappler gives a node that it made from another node.
_OPTIMIZER: Final = re.compile(
    r"(?:ArithmeticOptimizer|ConstantFolding|LayoutOptimizer|RemapperOptimizer)/"
    r"(?:(?:FoldTransposeIntoMatMul|FoldMultiplyIntoConv|ReorderCastLikeAndValuePreserving|"
    r"HoistCommonFactor_\w+?|AddOpsRewrite|ReplaceMulWithSquare|ReplaceMulWithBroadcastByTile|"
    r"RemoveStackSliceSameAxis|FoldConjugateIntoTranspose|ConvertPow|ConvertLog1p|ConvertExpm1)_)?"
)
_INNER: Final = re.compile(r"\w+\((.*)\)\Z")


def normal_key(key: str) -> str:
    """Return a node's name without the numbers and prefixes that the runtime and Grappler add."""
    key = _BODY.sub(r"/\1/_", key)
    return _OPTIMIZER.sub("", key) if "Optimizer/" in key or "ConstantFolding/" in key else key


def short_key(key: str) -> str:
    """Return a node's name within the function that defines it, without the prefixes of loops and calls."""
    inner = max((match.end() for match in _BODY.finditer(key)), default=-1)
    key = key[inner + 1 :]
    return _LEADING.sub("", key, count=1) if key.startswith(("P", "S")) else key


def plain_key(key: str) -> str:
    """Return the node's name in a fused kernel's key (``node:Conv2D``), without the kernel's first op."""
    return key.partition(":")[0]


def layer_of(key: str) -> str | None:
    """Return the layer in a node's name: its scopes without wrappers; None if there are none."""
    return layer_in(short_key(key).split("/")[:-1])


def layer_in(parts: list[str]) -> str | None:
    """Return the layer's path without wrappers, with ``net`` for ``transpose(jvp(net))``; None if empty."""
    scopes = []
    for part in parts:
        if _WRAPPERS.match(part) or _JAX_WRAPPER.match(part):
            continue
        while (inner := _INNER.match(part)) is not None:
            part = inner.group(1)
        if part:
            scopes.append(part)
    return "/".join(scopes) or None
