"""Find chains of graph nodes that Grappler or oneDNN may run as one kernel, and describe that kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from opscope.core.schema import Arg, OpCall

from .call import arguments, node_call

#: Ops that Grappler and oneDNN fuse onto the end of another op. The kernel keeps the last op's name.
_FOLLOWERS_NAMES: Final = """
    BiasAdd Add AddV2 Relu Relu6 Elu LeakyRelu Tanh Sigmoid Mul Maximum FusedBatchNorm
    FusedBatchNormV2 FusedBatchNormV3 Sub Cast Identity
"""
_FOLLOWERS: Final = frozenset(_FOLLOWERS_NAMES.split())
#: Ops that such a chain begins with → the op's name in the fused kernel's name.
_ROOTS: Final = {
    **{name: name for name in ("Conv2D", "Conv3D", "MatMul", "DepthwiseConv2dNative")},
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), "BatchMatMul"),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), "BatchNorm"),
}
_CHAIN: Final = 4


def chains(op: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield (root, chain) of each chain that ends in ``op`` and may run as one kernel named after it.

    A chain has its last op first. The root is the name of its first op in the kernel's name.
    """
    chain = [op]
    while chain[-1].type in _FOLLOWERS and len(chain) <= _CHAIN:
        before = [input_.op for input_ in chain[-1].inputs]
        likely = [
            operation
            for operation in before
            if operation.type in _FOLLOWERS or operation.type in _ROOTS
        ]
        if not likely:
            return
        chain.append(likely[0])
        root = _ROOTS.get(likely[0].type)
        if root is not None:
            yield root, list(chain)


def fused_call(chain: list[Any], last: OpCall, inside: tuple[str, ...]) -> OpCall:
    """Return one call for the chain: the inputs of the first op and those that the others add, and the
    last op's outputs."""
    root = chain[-1]
    produced = {output.name for op in chain for output in op.outputs}
    more = [
        input_ for op in reversed(chain[:-1]) for input_ in op.inputs if input_.name not in produced
    ]
    first = node_call(root, ())
    given: tuple[Arg, ...] = (*first.inputs, *arguments(more))
    params = (*first.params, ("fused", inside))
    return OpCall(root.type, given, last.outputs, params, last.device, last.frames)
