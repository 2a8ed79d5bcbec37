"""Give a node's call the shapes of a run from a profile, which lacks pre-packed weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from opscope.core.schema import Arg, Dim, OpCall, SameAs, TensorSpec

from .model import Node

_Specs: TypeAlias = "Sequence[TensorSpec] | None"


def call_of_run(node: Node, inputs: _Specs, outputs: _Specs) -> OpCall | None:
    """Return the node's call with the tensors of one run; None if they cannot be this node's.

    ``inputs``, ``outputs``: the tensors that the run had, in order, without absent ones and without
    weights that the kernel had packed before (those come from the model); None where not recorded. Sizes
    that only the model names are filled in where the run shows the same symbol.
    """
    call = node.call
    symbols: dict[str, int] = {}
    found = call.inputs
    if inputs is not None:
        aligned = _align(node, inputs)
        if aligned is None:
            return None
        for index, actual in aligned.items():
            _bind(symbols, call.inputs[index], actual)
        found = tuple(
            was if isinstance(was, SameAs) else aligned.get(place, was)
            for place, was in enumerate(call.inputs)
        )
    planned_outputs = call.outputs or ()
    if outputs is not None:
        places = [place for place, name in enumerate(node.outputs) if name]
        if len(outputs) > len(places):
            return None
        shown = list(planned_outputs)
        for index, actual in zip(places, outputs, strict=False):
            if len(outputs) == len(places):
                if not fits(planned_outputs[index], actual):
                    return None
                _bind(symbols, planned_outputs[index], actual)
                shown[index] = actual
        planned_outputs = tuple(shown)
    return replace(
        call,
        inputs=tuple(_fill(arg, symbols) for arg in found),
        outputs=tuple(_fill(arg, symbols) for arg in planned_outputs),
    )


def fits(planned: Arg, actual: TensorSpec) -> bool:
    """Whether a tensor of a run can be the one that the model describes."""
    if not isinstance(planned, TensorSpec):
        return True
    if "?" not in (planned.dtype, actual.dtype) and planned.dtype != actual.dtype:
        return False
    return len(planned.shape) == len(actual.shape) and all(
        not isinstance(was, int) or not isinstance(now, int) or was == now
        for was, now in zip(planned.shape, actual.shape, strict=True)
    )


def _align(node: Node, actual: Sequence[TensorSpec]) -> dict[int, TensorSpec] | None:
    """Return which input each tensor of the run is; None if no choice that keeps the order fits.

    An input may be missing from the run if it is a weight, which kernels pack, or not known to be a tensor.
    If several choices fit, the later weights are taken to be missing, because products pack their second
    operand.
    """
    planned = [_resolve(node.call.inputs, index) for index in range(len(node.inputs))]
    places = [index for index, name in enumerate(node.inputs) if name]
    fixed = set(node.weights)
    if len(actual) > len(places):
        return None
    # rest[k] for a position: whether the tensors from k on still fit, computed from the last position back
    count = len(actual)
    possible = [[False] * (count + 1) for _ in range(len(places) + 1)]
    possible[len(places)][count] = True
    for at in range(len(places) - 1, -1, -1):
        place = places[at]
        missing = place in fixed or planned[place] is None
        for k in range(count + 1):
            taken = k < count and fits(planned[place], actual[k]) and possible[at + 1][k + 1]
            possible[at][k] = taken or (missing and possible[at + 1][k])
    if not possible[0][0]:
        return None
    actual_of_index: dict[int, TensorSpec] = {}
    k = 0
    for at, place in enumerate(places):
        if k < count and fits(planned[place], actual[k]) and possible[at + 1][k + 1]:
            actual_of_index[place] = actual[k]
            k += 1
    return actual_of_index


def _resolve(args: tuple[Arg, ...], index: int) -> Arg:
    arg = args[index]
    return args[arg.index] if isinstance(arg, SameAs) else arg


def _bind(symbols: dict[str, int], planned: Arg, actual: TensorSpec) -> None:
    if isinstance(planned, TensorSpec):
        for was, now in zip(planned.shape, actual.shape, strict=True):
            if isinstance(was, str) and was != "?" and isinstance(now, int):
                symbols.setdefault(was, now)


def _fill(arg: Arg, symbols: Mapping[str, int]) -> Arg:
    if not isinstance(arg, TensorSpec) or all(isinstance(dim, int) for dim in arg.shape):
        return arg
    shape: tuple[Dim, ...] = tuple(
        symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in arg.shape
    )
    return replace(arg, shape=shape)
