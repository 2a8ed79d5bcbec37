"""Map the nodes of the model that ONNX Runtime runs to those of the model that it was given.

Fusions rename nodes but keep the name of the tensor that the last of them makes: from there the original
graph is followed back until a tensor that another node makes, a weight, or an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .model import Node

#: How ONNX Runtime names a node after the tensor that it makes, when the tensor itself gets a new name
#: (microsoft/onnxruntime, onnxruntime/core/optimizer/nchwc_transformer.cc).
_RENAMED: Final = "_nchwc"
#: More origins of one node are not listed.
MOST: Final = 256


def origins(
    optimised: Sequence[Node], original: Sequence[Node], weights: frozenset[str]
) -> list[tuple[Node, ...]]:
    """Return for each optimised node its original nodes, in the original's order.

    A node that the optimiser inserted (a change of layout) has none. ``weights``: the names of the
    optimised model's initializers; constants that were folded into them are no one's origin.
    """
    maker = {tensor: node for node in original for tensor in node.outputs if tensor}
    by_name = {node.name: node for node in original if node.name}
    place = {id(node): number for number, node in enumerate(original)}
    made = [_original_tensors(node, maker, by_name) for node in optimised]
    # a tensor of its own name under a node of another: the first is a change of layout
    renamed = {
        tensor
        for node, tensors in zip(optimised, made, strict=True)
        for tensor in tensors
        if tensor not in node.outputs
    }
    border = {tensor for tensors in made for tensor in tensors} | weights
    found = []
    for node, tensors in zip(optimised, made, strict=True):
        own = [one for one in tensors if not (one in renamed and one in node.outputs)]
        followed = _followed(own, maker, border)
        found.append(tuple(sorted(followed, key=lambda one: place[id(one)])[:MOST]))
    return found


def _original_tensors(
    node: Node, maker: Mapping[str, Node], by_name: Mapping[str, Node]
) -> list[str]:
    """Return the original tensors that the node makes, by their names or by the node's."""
    kept = [tensor for tensor in node.outputs if tensor in maker]
    if kept:
        return kept
    tensor = node.name.removesuffix(_RENAMED)
    if tensor in maker:
        return [tensor]
    same = by_name.get(node.name)
    return [tensor for tensor in same.outputs if tensor] if same is not None else []


def _followed(tensors: Sequence[str], maker: Mapping[str, Node], border: set[str]) -> list[Node]:
    """Return the nodes that lead to ``tensors``, back to tensors of ``border``."""
    found: dict[int, Node] = {}
    waiting = list(tensors)
    first = set(tensors)
    while waiting and len(found) < MOST:
        tensor = waiting.pop()
        node = maker.get(tensor)
        if node is None or id(node) in found or (tensor in border and tensor not in first):
            continue
        found[id(node)] = node
        waiting += [name for name in node.inputs if name]
    return list(found.values())
