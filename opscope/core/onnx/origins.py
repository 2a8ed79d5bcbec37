"""Map the nodes of the model that ONNX Runtime runs to those of the model that it was given. Fusions rename
nodes but keep the name of the last one's output tensor. From there the original graph is followed back to a
tensor that another optimised node makes, a weight, or an input."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .model import Node

#: Suffixes that the optimiser adds to the names of nodes and tensors that it makes from others
#: (microsoft/onnxruntime, onnxruntime/core/optimizer: nchwc_transformer.cc, matmul_add_fusion.cc,
#: conv_activation_fusion.cc, insert_cast_transformer.cc; ``_token_3`` is Graph::GenerateNodeName's).
_ADDED: Final = re.compile(
    r"\A(?:fused |Inserted(?:PrecisionFree)?Cast_)?(.+?)"
    r"(?:_nchwc|_nhwc|/\w+Fusion\w*/?|_token_[0-9]+)*\Z",
    re.DOTALL,
)
#: Ops that the optimiser inserts to change layout, dtype or device; they compute nothing of the model.
_INSERTED: Final = frozenset(
    ("Transpose", "ReorderInput", "ReorderOutput", "Cast", "MemcpyToHost", "MemcpyFromHost")
)
#: The most origins of one node that are listed.
MOST: Final = 256


def origins(
    optimised: Sequence[Node], original: Sequence[Node], weights: frozenset[str]
) -> list[tuple[Node, ...]]:
    """Return for each optimised node its original nodes, in the original's order.

    A node that the optimiser inserted (a change of layout or dtype) has none. ``weights``: the names of the
    optimised model's initializers; constants folded into them are no node's origin.
    """
    maker = {tensor: node for node in original for tensor in node.outputs if tensor}
    by_name = {node.name: node for node in original if node.name}
    index_of_node = {id(node): number for number, node in enumerate(original)}
    tensors_of_nodes = [list(original_tensors(node, maker, by_name)) for node in optimised]
    runs = {tensor: number for number, node in enumerate(optimised) for tensor in node.outputs}
    for number in range(len(optimised) - 1, -1, -1):
        node = optimised[number]
        if node.op not in _INSERTED or node.name in by_name or not node.inputs:
            continue
        before = runs.get(node.inputs[0])
        if before is not None and before < number:
            # its output is the previous node's result in another form
            tensors_of_nodes[before] += [
                tensor
                for tensor in tensors_of_nodes[number]
                if tensor not in tensors_of_nodes[before]
            ]
        tensors_of_nodes[number] = []
    border = {tensor for tensors in tensors_of_nodes for tensor in tensors} | weights
    origins_of_nodes = []
    for tensors in tensors_of_nodes:
        those = followed(tensors, maker, border)
        origins_of_nodes.append(
            tuple(sorted(those, key=lambda node: index_of_node[id(node)])[:MOST])
        )
    return origins_of_nodes


def original_tensors(
    node: Node, maker: Mapping[str, Node], by_name: Mapping[str, Node]
) -> Iterator[str]:
    """Yield the original tensors that the node makes, found by their names or else by the node's name."""
    kept = [name for name in map(stem, node.outputs) if name in maker]
    if kept:
        yield from kept
        return
    name = stem(node.name)
    if name in maker:
        yield name
        return
    same = by_name.get(node.name) or by_name.get(name)
    if same is not None:
        yield from (tensor for tensor in same.outputs if tensor)


def stem(name: str) -> str:
    """Return a name without the optimiser's additions."""
    match = _ADDED.match(name[:4096])
    return match.group(1) if match else name


def followed(tensors: Sequence[str], maker: Mapping[str, Node], border: set[str]) -> list[Node]:
    """Return the nodes from which ``tensors`` are computed, back to other tensors of ``border``. ``maker``:
    the node that makes each tensor."""
    nodes: dict[int, Node] = {}
    waiting = list(tensors)
    first = set(tensors)
    while waiting and len(nodes) < MOST:
        tensor = waiting.pop()
        node = maker.get(tensor)
        if node is None or id(node) in nodes or (tensor in border and tensor not in first):
            continue
        nodes[id(node)] = node
        waiting += [name for name in node.inputs if name]
    return list(nodes.values())
