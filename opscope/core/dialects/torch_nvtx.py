"""Read PyTorch's range texts: ``torch.autograd.profiler.emit_nvtx`` of every version, ``nsys --pytorch``.

    aten::conv2d, seq = 13, op_id = 2, sizes = [[2, 3, 16, 16], [16, 3, 3, 3], []], input_op_ids = [...]
    aten::empty, op_id = 990346
    ConvolutionBackward0, seq = 13, op_id = 204
    autograd::engine::evaluate_function: ConvolutionBackward0, op_id = 203
    embedding, seq = 115                                                   (before PyTorch 1.9)

``strip`` removes the call's numbers and leaves ``, seq = *`` in their place, so that ``read`` can
distinguish PyTorch's ``detach_`` from a user's range of that name. Sizes carry no dtype.
"""

from __future__ import annotations

import json
import re
from typing import Final

import polars as pl

from opscope.core.communication import is_torch
from opscope.core.dialects import Reading, user_layer
from opscope.core.schema import Arg, OpCall, TensorSpec

#: The text that ``strip`` leaves in place of a call's numbers.
STRIPPED: Final = ", seq = *"
#: Pattern for texts with numbers.
NUMBERED: Final = r", (?:seq|op_id) = -?[0-9]"
_SEQ: Final = r", seq = ([0-9]+)"
_OP_ID: Final = r", op_id = ([0-9]+)"
#: One number or both.
_NUMBERS: Final = r"(?:, seq = -?[0-9]+(?:, op_id = -?[0-9]+)?|, op_id = -?[0-9]+)"
_TAIL: Final = r", input_op_ids = \[[^\]]*\]$"
_LIMIT: Final = 64 * 1024
_MAX_ARGS: Final = 4096

_NAMESPACES: Final = frozenset((
    "aten", "prim", "prims", "prims_ops", "rngprims", "c10d", "c10d_functional", "_c10d_functional",
    "quantized", "mkldnn", "mkl", "onednn", "torchvision", "torchaudio", "fbgemm", "inductor",
    "sparse", "nccl", "gloo", "ucc", "mpi", "xla", "symm_mem",
))  # fmt: skip
_PROPER: Final = re.compile(r"[A-Za-z_][\w]*(?:::?[A-Za-z_][\w]*)*(?:\.\w+)*\Z", re.ASCII)
_BACKWARD: Final = re.compile(r"(\w+?)Backward(\d*)\Z")
_EVALUATE: Final = "autograd::engine::evaluate_function: "
_AUTOGRAD: Final = "torch::autograd::"
_STEP: Final = re.compile(r"ProfilerStep\s*#\s*([0-9]{1,18})\Z")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def strip(texts: pl.Series) -> pl.DataFrame:
    """Return the texts without their numbers, and the numbers as ``seq`` and ``op_id`` (null where
    absent)."""
    texts = texts.alias("text")
    numbered = texts.str.contains(NUMBERED).fill_null(False)
    if not numbered.any():
        nothing = pl.lit(None, pl.Int64)
        return pl.select(texts, nothing.alias("seq"), nothing.alias("op_id"))
    column = pl.col("text")
    mine = pl.lit(numbered)
    plain = column.str.replace(_TAIL, "").str.replace(_NUMBERS, STRIPPED)
    return pl.DataFrame({"text": texts}).select(
        pl.when(mine).then(plain).otherwise(column).alias("text"),
        pl.when(mine).then(column.str.extract(_SEQ).cast(pl.Int64, strict=False)).alias("seq"),
        pl.when(mine).then(column.str.extract(_OP_ID).cast(pl.Int64, strict=False)).alias("op_id"),
    )


def read(domain: str, text: str) -> Reading | None:
    """Return the reading of a stripped text; None if it is not PyTorch's."""
    if domain:  # PyTorch uses NVTX's default domain
        return None
    name, _, sizes = text.partition(", sizes = ")
    name = name.strip()
    numbered = name.endswith(STRIPPED)
    if numbered:
        name = name[: -len(STRIPPED)]
    if not name or len(text) > _LIMIT:
        return None
    if not numbered and not _own_name(name):
        return None
    special = _special(name)
    if special is not None:
        return special
    inputs, is_complete = _inputs(sizes) if sizes else ((), True)
    call = OpCall(name, inputs, truncated=not is_complete)
    if name.startswith(_EVALUATE):
        node = name[len(_EVALUATE) :].strip()
        return Reading("op", call, "backward", forward_name=_forward_of(node))
    if name.startswith(_AUTOGRAD) or _BACKWARD.match(name):
        return Reading("op", call, "backward", forward_name=_forward_of(name))
    if is_torch(name):
        return Reading("op", call, "communication")
    return Reading("op", call) if _PROPER.match(name) else Reading("user")


def _own_name(name: str) -> bool:
    """Return whether a text without numbers is PyTorch's, judged by its name alone."""
    if name.startswith((_EVALUATE, _AUTOGRAD, "Optimizer.step#", "ProfilerStep#")):
        return True
    head, colons, rest = name.partition(":")
    return bool(colons and rest) and head in _NAMESPACES and _PROPER.match(name) is not None


def _special(name: str) -> Reading | None:
    """Return the reading of a label that PyTorch pushes and that is not an operator; None for others."""
    step = _STEP.match(name)
    if step is not None:
        return Reading("step", step=int(step.group(1)))
    if name.startswith("Optimizer."):
        return Reading("phase", direction="optimizer")
    if name.startswith("enumerate(DataLoader)"):
        return Reading("user", direction="input")
    if name.startswith("Torch-Compiled Region"):
        return Reading("layer", layer=name)
    return user_layer(name)  # a record_function has numbers, as ops have


def _forward_of(node: str) -> str | None:
    """Return the op that an autograd node differentiates: ``NativeLayerNormBackward0`` → its aten name.

    C++ nodes are numbered. Nodes from Python, and those of PyTorch before 1.10, are not: for these, the
    name is returned without ``Backward``.
    """
    match = _BACKWARD.match(node)
    if match is None:
        return None
    stem, number = match.groups()
    if not number:
        return stem
    snake = _HUMP.sub("_", stem).lower()
    return "aten::" + re.sub(r"([0-9])_d(?=_|$)", r"\1d", snake)


def _inputs(sizes: str) -> tuple[tuple[Arg, ...], bool]:
    """Return the inputs in ``[[2, 3], [], [[2], [4]]]`` and whether the text was whole.

    PyTorch writes an empty list for everything but a tensor of one or more dimensions.
    """
    try:
        value = json.loads(sizes)
    except (ValueError, RecursionError):
        return (), False
    if not isinstance(value, list) or len(value) > _MAX_ARGS:
        return (), False
    try:
        return tuple(_arg(item) for item in value), True
    except (TypeError, RecursionError):
        return (), False


def _arg(item: object) -> Arg:
    if not isinstance(item, list) or len(item) > _MAX_ARGS:
        raise TypeError(item)
    if not item:
        return None
    if all(isinstance(dim, int) and not isinstance(dim, bool) for dim in item):
        return TensorSpec("?", tuple(dim if dim >= 0 else "?" for dim in item))
    return tuple(
        TensorSpec("?", tuple(inner))
        if inner and all(type(d) is int and d >= 0 for d in inner)
        else None
        for inner in item
        if isinstance(inner, list)
    )
