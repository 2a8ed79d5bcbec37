"""DLProf's names: of ops (the call hierarchy), types of ops, op ids, data types, shapes, kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import polars as pl

from opscope.core.rangetext import format_value
from opscope.core.schema import DTYPE_NAMES, OpCall, TensorSpec
from opscope.core.tables.columns import compact, spread

#: The name of an op without a call of the framework is this and the name of the CUDA call or kernel.
UNASSOCIATED: Final = "unassociated_"
DIRECTIONS: Final = {"forward": "fprop", "backward": "bprop"}
_DTYPES: Final = {short: name for name, short in reversed(list(DTYPE_NAMES.items()))}
_REPEAT: Final = re.compile(r"\(([0-9]{1,9})\)(?=/|\Z)")
_PART: Final = re.compile(r"[./]")
#: DLProf's names for the axes of some ops: of the first inputs, of the output.
_AXES: Final = {
    "conv2d": (("NCHW", "KCRS"), "NKPQ"),
    "linear": (("NK", "MK"), "NM"),
}
#: The positions of conv2d's parameters if the text does not name them, and DLProf's names for their parts.
_CONV: Final = (
    ("stride", 3, ("SH", "SW"), 1),
    ("padding", 4, ("PH", "PW"), 0),
    ("dilation", 5, ("DH", "DW"), 1),
    ("groups", 6, ("G",), 1),
)

#: Unnamed scopes, whose brackets hold neither a template nor arguments.
_UNNAMED: Final = re.compile(
    r"(?:<unnamed>|\(anonymous namespace\)|\{anonymous\}|`anonymous namespace')::"
)
_BARE: Final = re.compile(r"[\w$~.@-]+\Z")
#: Longer names come from a stranger; they are left as they are.
_LONGEST: Final = 65_536


def op_type(name: str) -> str:
    """Return an op's type: ``conv2d`` of ``torch.nn.functional.conv2d``, ``sum`` of ``aten::sum.dim``."""
    name = name.rpartition(": ")[2] or name
    space, _, rest = name.rpartition("::")
    if space and rest:
        return rest.partition(".")[0] or rest
    name = name.rpartition("/")[2] or name
    return name.rpartition(".")[2] or name


def hierarchy(stack: str) -> str:
    """Return the op name of a marker's ``funcStack``: ``/module/Net::forward/relu[2]``."""
    return _REPEAT.sub(r"[\1]", stack).replace("<", "").replace(">", "")


def layered(keys: Sequence[tuple[str | None, str, str | None]]) -> list[str]:
    """Return the op name for each (layer, type of op, source line): ``/encoder/0/linear``. Ops of one type in
    one layer are numbered by source line, from the second line on (``[2]``), as DLProf numbers the calls of a
    function from several lines."""
    lines: dict[tuple[str | None, str], dict[str | None, int]] = {}
    names_of_layers = []
    for layer, kind, source in keys:
        numbers_by_source = lines.setdefault((layer, kind), {})
        number = numbers_by_source.setdefault(source, len(numbers_by_source) + 1)
        path = "".join(f"/{part}" for part in _PART.split(layer or "") if part)
        names_of_layers.append(f"{path}/{kind}" + (f"[{number}]" if number > 1 else ""))
    return names_of_layers


def op_ids(types: pl.Series, starts: pl.Series) -> pl.Series:
    """Return an id for each op from its type and its first start: ``CONV2D_1`` is the first conv2d."""
    frame = pl.DataFrame({"type": types, "start": starts}).with_row_index()
    code, texts = compact(types)
    upper = spread("upper", [(text or "").upper() for text in texts], code)
    numbered = (
        frame.with_columns(upper)
        .sort("start", maintain_order=True)
        .with_columns(pl.int_range(1, pl.len() + 1).over("upper").alias("number"))
        .sort("index")
    )
    ids: pl.Series = numbered.select(
        pl.concat_str(pl.col("upper").cast(pl.String), "number", separator="_").alias("op_id")
    ).to_series()
    return ids


def groups_of(name: str) -> list[str]:
    """Return the groups that contain an op, outermost first: ``/``, ``/module/`` … of ``/module/randn``."""
    return [name[: index + 1] for index, sign in enumerate(name) if sign == "/"]


def data_type(call: OpCall | None) -> str | None:
    """Return the data type of the first tensor that the op takes, else makes; None if it is not known."""
    if call is None:
        return None
    for leaf in (*call.input_leaves(), *(call.output_leaves() or ())):
        if leaf is not None and leaf.dtype != "?":
            return _DTYPES.get(leaf.dtype, leaf.dtype)
    return None


def input_shapes(call: OpCall | None, kind: str) -> str | None:
    """Return the shapes of the inputs: ``<N:32, K:400>; <M:120, K:400>; <120>``; None without tensors."""
    shapes = _shapes(call.input_leaves() if call is not None else ())
    axes = _AXES[kind][0] if _is_named(kind, shapes) else ()
    return _text(shapes, axes)


def output_shapes(call: OpCall | None, kind: str) -> str | None:
    """Return the shapes of the outputs; those of conv2d and linear are computed if the trace lacks them. If a
    trace's text of conv2d has no stride, padding or dilation, the function's defaults are assumed."""
    if call is None:
        return None
    inputs = _shapes(call.input_leaves())
    named = _is_named(kind, inputs)
    results = call.output_leaves()
    if results is not None:
        outputs = _shapes(results)
        fits = named and len(outputs) == 1 and len(outputs[0]) == len(_AXES[kind][1])
        return _text(outputs, (_AXES[kind][1],) if fits else ())
    if not named:
        return None
    shape = _conv_output(call, inputs) if kind == "conv2d" else (inputs[0][0], inputs[1][0])
    return _text([shape], (_AXES[kind][1],)) if shape is not None else None


def parameters(call: OpCall | None, kind: str) -> str | None:
    """Return the op's parameters: for conv2d under DLProf's names, for others as in opscope's texts."""
    if call is None:
        return None
    if kind == "conv2d":
        given = [(parts, _pair(call, name, at, len(parts))) for name, at, parts, _ in _CONV]
        if all(values is not None for _, values in given):
            return "; ".join(
                "<" + ", ".join(f"{a}:{b}" for a, b in zip(parts, values or (), strict=True)) + ">"
                for parts, values in given
            )
    kept = [(key, value) for key, value in call.params if key != "op_id"]
    return ", ".join(f"{key}={format_value(value)}" for key, value in kept) or None


def _is_named(kind: str, shapes: Sequence[tuple[object, ...]]) -> bool:
    wanted = _AXES.get(kind, ((), ""))[0]
    return bool(wanted) and [len(shape) for shape in wanted] == [
        len(shape) for shape in shapes[: len(wanted)]
    ]


def _shapes(tensors: Sequence[TensorSpec | None]) -> list[tuple[object, ...]]:
    return [tensor.shape for tensor in tensors if tensor is not None]


def _text(shapes: Sequence[tuple[object, ...]], axes: Sequence[str]) -> str | None:
    parts = []
    for number, shape in enumerate(shapes):
        names = axes[number] if number < len(axes) else ""
        dims = (f"{names[index]}:{dim}" if names else str(dim) for index, dim in enumerate(shape))
        parts.append("<" + ", ".join(dims) + ">")
    return "; ".join(parts) or None


def _conv_output(
    call: OpCall, inputs: Sequence[tuple[object, ...]]
) -> tuple[object, object, int, int] | None:
    batch, _, *sizes = inputs[0]
    output_channels, _, *windows = inputs[1]
    steps = []
    for name, at, parts, default in _CONV[:3]:
        given = _pair(call, name, at, len(parts))
        if given is None and _has(call, name, at):
            return None  # "same", or a value missing in the text
        steps.append(given or (default,) * len(parts))
    outputs = []
    for size, window, stride, pad, dilation in zip(sizes, windows, *steps, strict=True):
        if not (isinstance(size, int) and isinstance(window, int)) or stride <= 0:
            return None
        outputs.append((size + 2 * pad - dilation * (window - 1) - 1) // stride + 1)
    return batch, output_channels, outputs[0], outputs[1]


def _has(call: OpCall, name: str, position: int) -> bool:
    return any(key in (name, f"arg{position}") for key, _ in call.params)


def _pair(call: OpCall, name: str, position: int, count: int) -> tuple[int, ...] | None:
    value = next((v for key, v in call.params if key in (name, f"arg{position}")), None)
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,) * count
    if isinstance(value, (list, tuple)) and all(type(item) is int for item in value):
        numbers = tuple(item for item in value if isinstance(item, int))
        return numbers if len(numbers) == count else numbers * count if len(numbers) == 1 else None
    return None


def short_name(name: str) -> str:
    """Return the short name of a kernel, as CUPTI gives it: ``gemm`` for ``void lib::gemm<float>(float *)``.

    Return type, namespace, template and arguments are removed; a name without C++ stays as it is.
    """
    if _BARE.match(name) or len(name) > _LONGEST:
        return name
    plain = _without_brackets(_UNNAMED.sub("", name))
    name_part = re.split(r"::|\s", plain.strip())[-1] if plain is not None else ""
    return name_part if _BARE.match(name_part) else name


def _without_brackets(text: str) -> str | None:
    """Return the text up to its arguments, without the contents of angle brackets; None if they do not
    match."""
    kept: list[str] = []
    depth = begin = 0
    for match in re.finditer(r"[<>()]", text):
        sign, position = match.group(), match.start()
        if sign == ">" and text[position - 1 : position] == "-":
            continue
        if sign in "<(":
            if not depth:
                kept.append(text[begin:position])
                if sign == "(" and any(part.strip() for part in kept):
                    return "".join(kept)
            depth += 1
        else:
            depth -= 1
            begin = position + 1
            if depth < 0:
                return None
    return None if depth else "".join((*kept, text[begin:]))
