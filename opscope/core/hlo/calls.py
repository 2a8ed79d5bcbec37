"""Turn HLO instructions into calls: ``hlo::dot(f32[8,4], f32[4,2]) -> f32[8,2] {…} @train.py:12``.

``op_name``, the framework's path of the op (``jit(step)/transpose(jvp(net))/layer1/dot_general``), becomes
a parameter of the call; ``dialects.hlo`` reads direction and layer from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from opscope.core.cells import cell
from opscope.core.code_files import kept_frames
from opscope.core.communication import HLO_OF_GROUPS
from opscope.core.schema import Arg, Frame, OpCall, ParamValue, TensorSpec, leaves

from .loops import Work, is_compiled_whole, work
from .module import Instruction, Module
from .origins import ATEN, NOT_RUN, Origins, inside
from .wire import Fields, fields, number, numbers, spans, text

#: How the target's name ends in library calls that are convolutions (→ name of the call) or matrix products.
_CONVOLUTIONS: Final = {
    "convForward": "hlo::convolution:forward",
    "convBiasActivationForward": "hlo::convolution:forward",
    "convBackwardInput": "hlo::convolution:backward-input",
    "convBackwardFilter": "hlo::convolution:backward-filter",
}
#: ``FftType`` of XLA ``xla/xla_data.proto``; 0 is a complex transform.
_TRANSFORMS: Final[dict[int, ParamValue]] = {1: "IFFT", 2: "RFFT", 3: "IRFFT"}
_PRODUCTS: Final = ("gemm", "matmul", "matmul$f8", "dot")
_MATRIX: Final = ("dot", "convolution")
_INNER_SHOWN: Final = 8
#: Folder of PyTorch's own optimizers.
_TORCH_OPTIMIZERS: Final = "/torch/optim/"
#: How deep nested fused regions are followed.
_NESTED: Final = 4
#: Opcodes that read a part of their first operand, as large as their result.
_TAKING: Final = ("slice", "dynamic-slice", "gather")


def calls(module: Module) -> Iterator[tuple[str, OpCall]]:
    """Yield (name, call) of every instruction that may run by itself (none inside fused regions)."""
    fused = {
        computation
        for instruction in module.instructions.values()
        if instruction.opcode == "fusion"
        for computation in instruction.called
    }
    origins = Origins(module)
    stacks = any(instruction.frames for instruction in module.instructions.values())
    for computation, members in module.computations.items():
        if computation in fused:
            continue
        for member in members:
            one = module.instructions[member]
            if one.opcode not in NOT_RUN:
                origin = origins.of(member)
                yield one.name, _call(module, one, *origin, _of_torch(*origin[:2], stacks))


def _call(
    module: Module,
    instruction: Instruction,
    path: str,
    frames: tuple[Frame, ...],
    of: str,
    direction: str | None,
) -> OpCall:
    name, params = _described(module, instruction)
    if path:
        params.append(("op_name", path))
        if of != instruction.name:
            params.append(("op_name_of", of))
    if direction is not None:
        params.append(("direction", direction))
    return OpCall(
        name,
        tuple(_operand(module, operand) for operand in instruction.operands),
        instruction.shape if isinstance(instruction.shape, tuple) else (instruction.shape,),
        tuple(params),
        None,
        _named_frames(frames),
    )


def _of_torch(path: str, frames: tuple[Frame, ...], stacks: bool) -> str | None:
    """Return the direction of a PyTorch/XLA op; None for other ops and if it is unknown.

    Autograd works on a separate thread, where no scope and no line of Python is around an op.
    """
    if not path.rpartition("/")[2].startswith(ATEN):
        return None
    if "_backward" in path or (stacks and not frames and "/" not in path):
        return "backward"
    return "optimizer" if any(_TORCH_OPTIMIZERS in file for file, _ in frames) else None


def _operand(module: Module, identifier: int) -> Arg:
    instruction = module.instructions.get(identifier)
    return None if instruction is None else instruction.shape


def _named_frames(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    # a notebook's cell is known only in its own process, where this runs at the end of a capture
    shown = ((cell(file) or file, line) for file, line in frames)
    return kept_frames(tuple(shown))


# --------------------------------------------------------------------------------- parameters


def _described(
    module: Module, instruction: Instruction, depth: int = 0
) -> tuple[str, list[tuple[str, ParamValue]]]:
    """Return the name of the call and the parameters that its opcode has."""
    data, message = module.data, instruction.message
    name = f"hlo::{instruction.opcode}"
    if instruction.opcode == "fusion":
        return _fusion(module, instruction, depth)
    if instruction.opcode == "custom-call":
        return _custom(data, instruction)
    if is_compiled_whole(module, instruction):
        return "hlo::call:compiled", _compile(module, instruction)
    params: list[tuple[str, ParamValue]] = []
    if instruction.opcode in ("dot", "ragged-dot"):
        params += _dot(data, message)
    elif instruction.opcode == "convolution":
        params += _convolution(data, message)
    elif instruction.opcode in ("reduce-window", "select-and-scatter"):
        params += _window(data, message)
    elif instruction.opcode == "fft":
        params.append(("fft_length", numbers(data, message, 32)))
        if kind := number(message, 31):
            params.append(("fft_type", _TRANSFORMS.get(kind, kind)))
    elif dims := numbers(data, message, 14):
        params.append(("dimensions", dims))
    if instruction.opcode.startswith(HLO_OF_GROUPS):
        params += _group(data, message)
    if instruction.opcode == "reduce" and instruction.called:
        inner = module.computations.get(instruction.called[0], ())
        flops = sum(module.instructions[at].opcode not in NOT_RUN for at in inner)
        params.append(("reducer_flops", max(flops, 1)))
    return name, params


#: More devices than any mesh has: of a damaged file a product of sizes can be any number.
_MOST_RANKS = 1 << 31


def _along_axes(data: bytes, message: Fields) -> Iterator[tuple[str, ParamValue]]:
    """Yield the number of ranks along the mesh's axes, or parts of axes, that a collective goes over.

    Source: ``MeshAxesReplicaGroupListProto`` and ``AxisRefProto``, XLA ``xla/xla_data.proto``.
    """
    sizes = [
        number(fields(data, *axis), 2)
        for mesh in spans(message, 1)
        for axis in spans(fields(data, *mesh), 1)
    ]
    ranks, along = 1, spans(message, 2)
    for span in along:
        axis = fields(data, *span)
        axis_number = number(axis, 1)
        if not 0 <= axis_number < len(sizes):
            return
        part = spans(axis, 2)
        ranks *= number(fields(data, *part[-1]), 2) if part else sizes[axis_number]
    if along and 0 < ranks <= _MOST_RANKS:
        yield "group_size", ranks


def _group(data: bytes, message: Fields) -> Iterator[tuple[str, ParamValue]]:
    """Yield the number of ranks in one group of a collective, from each of the four forms of groups."""
    for span in spans(message, 93):  # axes of a mesh of devices, as XLA writes since JAX 0.11
        yield from _along_axes(data, fields(data, *span))
        return
    listed = spans(message, 49)  # one message per group
    for span in spans(message, 87):  # groups, or their number and size
        device_list = fields(data, *span)
        listed = listed or spans(device_list, 1)
        for counted in spans(device_list, 2):
            yield "group_size", number(fields(data, *counted), 2)
            return
    if listed:
        ranks = len(numbers(data, fields(data, *listed[0]), 1))
        if ranks:
            yield "group_size", ranks


def _dot(data: bytes, message: Fields) -> Iterator[tuple[str, ParamValue]]:
    dims_spans = spans(message, 30)
    dims = fields(data, *dims_spans[-1]) if dims_spans else {}
    names = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
    for index, name in enumerate(names, start=1):
        values = numbers(data, dims, index)
        if values or index <= 2:
            yield name, values


def _window(data: bytes, message: Fields) -> Iterator[tuple[str, ParamValue]]:
    window_spans = spans(message, 15)
    dims = (
        [fields(data, *span) for span in spans(fields(data, *window_spans[-1]), 1)]
        if window_spans
        else []
    )
    if not dims:
        return
    yield "window", tuple(number(dim, 1) for dim in dims)
    for name, field_number, usual in (
        ("stride", 2, 1),
        ("dilation", 5, 1),
        ("base_dilation", 6, 1),
    ):
        values = tuple(number(dim, field_number) for dim in dims)
        if any(value not in (0, usual) for value in values):
            yield name, values
    pads = tuple((number(dim, 3), number(dim, 4)) for dim in dims)
    if any(low or high for low, high in pads):
        yield "pad", pads


def _convolution(data: bytes, message: Fields) -> Iterator[tuple[str, ParamValue]]:
    label_spans = spans(message, 16)
    if label_spans:
        yield "dim_labels", _labels(data, fields(data, *label_spans[-1]))
    yield from _window(data, message)
    for name, field_number in (("feature_group_count", 50), ("batch_group_count", 58)):
        count = number(message, field_number)
        if count > 1:
            yield name, count


def _labels(data: bytes, dims: Fields) -> str:
    """Return the dimension labels as in HLO text: ``b01f_01io->b01f``."""
    parts = []
    for first, second, spatial, letters in (
        (7, 8, 11, "bf"),
        (3, 4, 6, "io"),
        (9, 10, 12, "bf"),
    ):
        places = {number(dims, first): letters[0], number(dims, second): letters[1]}
        places |= {at: str(n) for n, at in enumerate(numbers(data, dims, spatial))}
        parts.append("".join(places[at] for at in sorted(places)))
    return f"{parts[0]}_{parts[1]}->{parts[2]}"


def _custom(data: bytes, instruction: Instruction) -> tuple[str, list[tuple[str, ParamValue]]]:
    """Return name and parameters of a library call; matrix products and convolutions have their own names."""
    target = text(data, instruction.message, 28)
    params: list[tuple[str, ParamValue]] = [("target", target)]
    short = target.rsplit("$conv", 1)
    if len(short) == 2 and (kind_of_convolution := _CONVOLUTIONS.get(f"conv{short[1]}")):
        return kind_of_convolution, [*params, *_convolution(data, instruction.message)]
    if ("$" in target and target.rsplit("$", 1)[-1] in _PRODUCTS) or "$matmul" in target:
        dims = _product_dims(data, instruction.message)
        if dims:
            return "hlo::custom-call:dot", [*params, *dims]
    return "hlo::custom-call", params


def _product_dims(data: bytes, message: Fields) -> list[tuple[str, ParamValue]]:
    """Return the dimension numbers of a library's matrix product, from its backend_config (JSON)."""
    try:
        config: Any = json.loads(text(data, message, 43) or "{}")
        inner = config.get("gemm_backend_config", config)
        dims = inner.get("dot_dimension_numbers", {})
        return [
            (
                f"{side}_contracting_dims",
                tuple(int(d) for d in dims[f"{side}_contracting_dimensions"]),
            )
            for side in ("lhs", "rhs")
        ]
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
        return []  # this is another library's form: the FLOPs stay unknown


def _fusion(
    module: Module, instruction: Instruction, depth: int
) -> tuple[str, list[tuple[str, ParamValue]]]:
    """Return name and parameters of a fused region: its opcodes, and its FLOPs summed over its instructions.

    The name contains the region's matrix op, if there is one.
    """
    from opscope.core import perf  # lazy: a program that is only traced needs no cost model

    name = "hlo::fusion"
    inner = [i for i in inside(module, instruction) if i.opcode not in NOT_RUN]
    opcodes = dict.fromkeys(i.opcode for i in inner)
    params: list[tuple[str, ParamValue]] = [
        ("kind", text(module.data, instruction.message, 11)),
        ("ops", ",".join([*opcodes][:_INNER_SHOWN]) + ("…" if len(opcodes) > _INNER_SHOWN else "")),
    ]
    matrix = vector = 0
    for part in inner:
        if part.opcode == "fusion" and depth == _NESTED:  # a region that contains itself has no end
            return name, [*params, ("unknown", "fused regions nested too deep")]
        called, more = _described(module, part, depth + 1)
        if called.split(":")[2] in _MATRIX and name == "hlo::fusion":
            name = f"hlo::fusion:{called.split(':')[2]}"
        shape = part.shape if isinstance(part.shape, tuple) else (part.shape,)
        operands = tuple(_operand(module, operand) for operand in part.operands)
        cost, why = perf.cost(OpCall(called, operands, shape, tuple(more)))
        if cost is None:
            return name, [*params, ("unknown", f"{part.opcode}: {why}"[:120])]
        matrix, vector = matrix + cost.matrix_flops, vector + cost.vector_flops
    touched = _touch(module, instruction)
    if any(count >= 0 for count in touched):
        params.append(("touched", touched))
    if any(dtype_of(i.shape) for i in inner):
        params.append(("compute", next(filter(None, (dtype_of(i.shape) for i in inner)))))
    return name, [*params, ("matrix_flops", matrix), ("vector_flops", vector)]


def _compile(module: Module, instruction: Instruction) -> list[tuple[str, ParamValue]]:
    """Return the FLOPs, as parameters, of a call that is compiled as one function."""
    compute: list[str] = []

    def of(part: Instruction) -> Work | str:
        compute.append(dtype_of(part.shape) or "")
        return _flops(module, part, 1)

    work_of_part = work(module, instruction, of)
    if isinstance(work_of_part, str):
        return [("unknown", work_of_part)]
    kind = next(filter(None, compute), None)
    params_known: list[tuple[str, ParamValue]] = [
        ("matrix_flops", work_of_part[0]),
        ("vector_flops", work_of_part[1]),
    ]
    return params_known if kind is None else [("compute", kind), *params_known]


def _flops(module: Module, instruction: Instruction, depth: int) -> Work | str:
    """Return matrix and vector FLOPs of one instruction, or why they are unknown."""
    from opscope.core import perf  # lazy: a program that is only traced needs no cost model

    called, params = _described(module, instruction, depth)
    shape = instruction.shape if isinstance(instruction.shape, tuple) else (instruction.shape,)
    operands = tuple(_operand(module, operand) for operand in instruction.operands)
    cost, why = perf.cost(OpCall(called, operands, shape, tuple(params)))
    if cost is None:
        return f"{instruction.opcode}: {why}"[:120]
    return cost.matrix_flops, cost.vector_flops


def _touch(module: Module, instruction: Instruction) -> tuple[int, ...]:
    """Return for each operand of a fused region how many elements the region reads, -1 for all of them.

    A region that only takes slices of an operand, as a loop over stacked layers does, reads only these
    slices; if it updates a slice in place, it reads nothing of the rest.
    """
    members = {
        identifier: module.instructions[identifier]
        for computation in instruction.called
        for identifier in module.computations.get(computation, ())
    }
    bytes_touched = [-1] * len(instruction.operands)
    for place, part in members.items():
        at = number(part.message, 9)
        if part.opcode != "parameter" or not 0 <= at < len(bytes_touched):
            continue
        users = [user for user in members.values() if place in user.operands]
        counts = [_take(user, place) for user in users]
        if users and all(count is not None for count in counts):
            bytes_touched[at] = sum(count or 0 for count in counts)
    return tuple(bytes_touched)


def _take(user: Instruction, identifier: int) -> int | None:
    """Return how many elements an instruction reads of the operand ``identifier``; None for all."""
    if user.operands.count(identifier) != 1 or user.operands[0] != identifier:
        return None
    if user.opcode in _TAKING and isinstance(user.shape, TensorSpec):
        return user.shape.numel
    return 0 if user.opcode == "dynamic-update-slice" else None


def dtype_of(shape: Arg) -> str | None:
    """Return the dtype of the first tensor in a shape; None without a tensor."""
    args = shape if isinstance(shape, tuple) else (shape,)
    return next((leaf.dtype for leaf in leaves(args) if isinstance(leaf, TensorSpec)), None)
