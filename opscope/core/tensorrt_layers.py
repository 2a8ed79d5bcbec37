"""TensorRT's description of an engine: each layer as an op call with formats, precision, tactic and origin.

The engine inspector writes it (``IEngineInspector.get_engine_information``, trtexec's
``--exportLayerInfo``). An engine that was not built with detailed verbosity gives names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opscope.core.schema import Arg, Dim, OpCall, ParamValue, TensorSpec

#: The framework name of layers' specs, and the suffix of the domain of our ranges.
FRAMEWORK: Final = "tensorrt"
#: Framework names of specs that hold figures and no calls: layers' times, a summary's values, the
#: times of runs.
TIMES: Final = "tensorrt.times"
STATED: Final = "tensorrt.stated"
RECORDED: Final = "tensorrt.recorded"
#: Prefix of the names of samples of runs' times (``tensorrt Latency``), in ns.
SAMPLE: Final = "tensorrt {}"
#: Prefix of the names of TensorRT's layer types among the names of ops.
PREFIX: Final = "trt::"
#: Roles of a layer; ``compute`` is the default.
ROLES: Final = ("compute", "reformat", "quantize", "dequantize", "no-op", "constant", "plugin")
#: Largest number of layers, and of tensors and origins of one layer, that are read.
MOST_LAYERS: Final = 200_000
_MOST: Final = 4096

_DTYPES: Final[Mapping[str, str]] = {
    "fp32": "f32", "float": "f32", "float32": "f32", "tf32": "tf32",
    "fp16": "f16", "half": "f16", "float16": "f16",
    "bf16": "bf16", "bfloat16": "bf16",
    "fp8": "f8e4m3fn", "fp8e4m3": "f8e4m3fn", "e8m0": "f8e8m0fnu",
    "fp4": "f4e2m1", "fp4e2m1": "f4e2m1",
    "int64": "i64", "int32": "i32", "int8": "i8", "int4": "i4", "uint8": "u8",
    "bool": "bool",
}  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_WIDE: Final = re.compile(r"([A-Za-z-]+) wide channel vectorized row major", re.I)
_NUMBERS: Final = {"two": 2, "four": 4, "eight": 8, "sixteen": 16, "thirty-two": 32}
_LAST: Final = re.compile(r"channel major\b", re.I)
_MULTIPLE: Final = re.compile(r"channel (?:% (\d{1,4}) == 0|== (\d{1,4}))")
_LINEAR: Final = re.compile(r"row major\b", re.I)
_THREE: Final = re.compile(r"3 spatial dimensions")

_ONNX: Final = re.compile(r"\[ONNX Layer: ((?:[^\[\]\x1e\x1f]|\[[^\[\]]*\])*)\]")
_UNNAMED: Final = re.compile(r"\(Unnamed Layer\* \d+\)")
_TORCH: Final = re.compile(r"\[[A-Z_]+\]-\[[\w.]+\]-\[([^\[\]]*)\]")
_POINTWISE: Final = re.compile(r"\APWN\((.*)\)\Z", re.S)
_FOREIGN: Final = re.compile(r"\A\{?ForeignNode\[(.*)\]\}?\Z", re.S)
_COPY: Final = re.compile(r"\AReformatting CopyNode for (?:Input|Output) Tensor")
#: Parts of a kernel that Myelin generated: ``__myl_AddMaxrSubExpSum_myl4_2``
_GENERATED: Final = re.compile(r"\A__myl_(?:bb\d+_\d+_)?([A-Z][A-Za-z0-9]*)(?:_|\Z)")
_PART: Final = re.compile(r"[A-Z][a-z0-9]*")
_TENSORS: Final = ("Inputs", "Outputs")


@dataclass(frozen=True, slots=True)
class Format:
    """A tensor's element type and arrangement, as the inspector words it.

    ``label``: ``NHWC8``, ``NC/32HW32``, ``linear``; empty if the text has no arrangement (TensorRT 10
    writes the element type alone).
    """

    dtype: str
    label: str

    def tensor(self, dims: Sequence[Dim]) -> TensorSpec:
        """Return the tensor of these sizes. Vectorised channels have no order of dimensions."""
        rank = len(dims)
        if self.label.startswith("NC/"):
            return TensorSpec(self.dtype, tuple(dims), layout="vectorized")
        if self.label.startswith(("NHWC", "NDHWC")) and rank > 2:
            return TensorSpec(self.dtype, tuple(dims), (1, *range(rank - 1, 1, -1), 0))
        return TensorSpec(self.dtype, tuple(dims))


def dtype_of(text: str) -> str:
    """Return the first element type that ``text`` names; ``?`` if it names none."""
    words = (word.lower() for word in _WORD.findall(text[:256]))
    return next((_DTYPES[word] for word in words if word in _DTYPES), "?")


def format_of(text: str) -> Format:
    """Return the format that a "Format/Datatype" text names."""
    text = text[:256].rstrip(".")
    dtype, solid = dtype_of(text), "D" if _THREE.search(text) else ""
    wide = _WIDE.search(text)
    if wide is not None:
        lanes = _NUMBERS.get(wide[1].lower(), "?")
        return Format(dtype, f"NC/{lanes}{solid}HW{lanes}")
    if _LAST.search(text):
        by = _MULTIPLE.search(text)
        return Format(dtype, f"N{solid}HWC{(by[1] or by[2]) if by else ''}")
    return Format(dtype, "linear" if _LINEAR.search(text) else "")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its name, its call (None if the engine gives names only), and its role."""

    name: str
    call: OpCall | None
    role: str | None


#: The parameter of a layer without a description. Its value says what is known: the name or the time.
KNOWN: Final = "known"
NAME_ONLY, TIME_ONLY = "name", "time"


def bare_call(name: str, fact: str) -> OpCall:
    """Return the call of a layer for which only the name or the time is known (``fact``). It is an op with
    the layer's name, or a reformat if the name says so."""
    if _COPY.match(name):
        return OpCall(f"{PREFIX}Reformat", (), None, (("role", "reformat"), (KNOWN, fact)))
    return OpCall(name, (), None, ((KNOWN, fact),))


class NotLayers(ValueError):
    """The document is not a list of an engine's layers."""


def layers_of(document: object) -> list[Layer]:
    """Return the layers of the inspector's JSON, in order; a name that occurs again gets ``_2``, ``_3`` ….

    Raises NotLayers if the document has no list of layers, or one that holds something else.
    """
    found = document.get("Layers") if isinstance(document, Mapping) else None
    if not isinstance(found, list):
        raise NotLayers('it has no list "Layers"')
    if len(found) > MOST_LAYERS:
        raise NotLayers(f"it has {len(found)} layers, which no engine has")
    layers = []
    seen: dict[str, int] = {}
    for entry in found:
        if isinstance(entry, str):
            layer = Layer(entry, None, None)
        elif isinstance(entry, Mapping) and isinstance(entry.get("Name"), str):
            layer = _layer(entry)
        else:
            raise NotLayers("one of its layers has no name")
        seen[layer.name] = count = seen.get(layer.name, 0) + 1
        layers.append(_rename(layer, f"{layer.name}_{count}") if count > 1 else layer)
    return layers


def _rename(layer: Layer, name: str) -> Layer:
    """Number repeated names, as TREx does."""
    return Layer(name, layer.call, layer.role)


def _layer(entry: Mapping[str, Any]) -> Layer:
    name = str(entry["Name"])
    kind, subtype = entry.get("ParameterType"), entry.get("LayerType")
    kind = kind if isinstance(kind, str) and kind else subtype
    if not isinstance(kind, str) or not kind:
        return Layer(name, None, None)
    subtype = subtype if isinstance(subtype, str) else kind
    if kind == "Convolution" and "deconv" in subtype.lower():
        kind = "Deconvolution"
    sides = [_tensors(entry.get(side)) for side in _TENSORS]
    inputs, outputs = ([fmt.tensor(dims) for dims, fmt in side] for side in sides)
    role = _role(entry, name, subtype, inputs, outputs)
    if kind == "Reformat" and role in ("quantize", "dequantize"):
        kind = role.capitalize()  # the engine calls both a reformat with the origin QDQ
    tactic = _text(entry.get("TacticName"))
    params: list[tuple[str, ParamValue]] = [("type", subtype), ("role", role)]
    params.append(("precision", _precision(inputs, outputs, tactic)))
    labels = tuple(" ".join(_labels(side)) for side in sides)
    if any(labels):
        params += [("format", labels[0]), ("to", labels[1])]
    params += list(_attributes(entry))
    if tactic:
        params.append(("tactic", tactic))
    params += [
        (key, value)
        for key, value in (
            ("tactic_value", _text(entry.get("TacticValue"))),
            ("stream", _number(entry.get("StreamId"))),
        )
        if value is not None and value != ""
    ]
    parts = myelin_parts(name, tactic)
    if parts:
        params.append(("parts", parts))
    params.append(("origins", origins(name, entry.get("Metadata"), role)))
    stored = _store(entry, inputs, kind)
    arguments: tuple[Arg, ...] = (*inputs, *stored)
    return Layer(name, OpCall(PREFIX + kind, arguments, tuple(outputs), tuple(params)), role)


def _tensors(entries: object) -> list[tuple[tuple[Dim, ...], Format]]:
    if not isinstance(entries, list):
        return []
    tensors = []
    for entry in entries[:_MOST]:
        if not isinstance(entry, Mapping):
            continue
        dims, text = entry.get("Dimensions"), entry.get("Format/Datatype")
        if not isinstance(dims, list) or not all(isinstance(dim, int) for dim in dims):
            continue
        sizes: tuple[Dim, ...] = tuple(dim if 0 <= dim < 1 << 48 else "?" for dim in dims)
        tensors.append((sizes, format_of(text if isinstance(text, str) else "")))
    return tensors


def _labels(side: Iterable[tuple[tuple[Dim, ...], Format]]) -> list[str]:
    labels = [fmt.label for _, fmt in side]
    return labels[:1] if len(set(labels)) == 1 else labels


def _text(value: object) -> str:
    return value[:1024] if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if abs(value) < 1 << 62 else None


# ------------------------------------------------------------------------------ what a layer is


def _role(
    entry: Mapping[str, Any],
    name: str,
    subtype: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> str:
    """Return the layer's role, by its types, its ``Origin`` and the element types of inputs and outputs."""
    lower, origin = subtype.lower(), str(entry.get("Origin") or "").upper()
    if lower in ("noop", "wait", "signal"):
        return "no-op"
    if lower == "constant":
        return "constant"
    if "plugin" in lower:
        return "plugin"
    narrow = [bool(side) and side[0].dtype in QUANTIZED for side in (inputs, outputs)]
    if origin == "QDQ" or lower in ("quantize", "dequantize", "quantizelinear", "dequantizelinear"):
        if lower.startswith("dequantize") or narrow == [True, False]:
            return "dequantize"
        return "quantize"
    if lower == "reformat" or _COPY.match(name):
        return "reformat"
    return "compute"


#: Element types of quantised networks.
QUANTIZED: Final = frozenset({"i8", "u8", "i4", "u4", "f8e4m3fn", "f8e5m2", "f4e2m1"})


def _precision(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], tactic: str
) -> str | None:
    """Return the element type in which the layer computes: the type of its first input, or TF32 if its
    tactic says so."""
    dtypes = [tensor.dtype for tensor in (*inputs, *outputs) if tensor.dtype != "?"]
    if not dtypes:
        return None
    return "tf32" if dtypes[0] == "f32" and "tf32" in tactic.lower() else dtypes[0]


def myelin_parts(name: str, tactic: str = "") -> tuple[str, ...]:
    """Return the parts that the name of a kernel generated by Myelin lists; empty if it lists none.

    ``__myl_AddMaxrSubExpSum_myl4_2`` is Add, Maxr, Sub, Exp, Sum.
    """
    match = _GENERATED.match(name) or _GENERATED.match(tactic)
    return tuple(_PART.findall(match[1])) if match else ()


def origins(name: str, metadata: object = None, role: str = "compute") -> tuple[str, ...]:
    """Return the layers of the original network that this one computes, as the engine names them.

    ``Metadata`` lists them (TensorRT 8.6 and later); else the layer's name has them, joined by " + ".
    """
    if isinstance(metadata, str) and metadata:
        listed = [name.strip() for name in _ONNX.findall(metadata[: 1 << 20])]
        if not listed:  # other parsers write the name alone
            listed = [name.strip() for name in re.split(r"[\x1e\x1f]", metadata)]
        return tuple(dict.fromkeys(filter(None, listed)))[:_MOST]
    if role in ("reformat", "no-op") or _COPY.match(name):
        return ()
    torch = _TORCH.findall(name)
    if torch:
        return tuple(dict.fromkeys(torch))[:_MOST]
    foreign = _FOREIGN.match(name)
    listed = foreign[1].split("...") if foreign else _split(name)
    return tuple(dict.fromkeys(name for name in listed if name and not _UNNAMED.match(name)))[
        :_MOST
    ]


def _split(name: str) -> list[str]:
    """The parts of a fused layer's name; ``PWN(PWN(a), b)`` holds a and b."""
    names: list[str] = []
    pending = [name]
    while pending and len(names) < _MOST:
        text = pending.pop().strip()
        inner = _POINTWISE.match(text)
        pieces = _outside_brackets(
            inner[1] if inner else text, (", ", " + ") if inner else (" + ",)
        )
        if inner or len(pieces) > 1:
            pending += reversed(pieces)
        else:
            names.append(text)
    return names


def _outside_brackets(text: str, separators: tuple[str, ...]) -> list[str]:
    depth, last = 0, 0
    pieces = []
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        separator = next((one for one in separators if text.startswith(one, at)), None)
        if depth == 0 and separator and at >= last:
            pieces.append(text[last:at])
            last = at + len(separator)
    return [*pieces, text[last:]]


# ------------------------------------------------------------------------------ attributes


#: Attributes of layers: TensorRT's name → ours. Lists stay lists.
_ATTRIBUTES: Final[Mapping[str, str]] = {
    "Kernel": "kernel", "Stride": "stride", "PrePadding": "padding", "PostPadding": "padding_after",
    "Dilation": "dilation", "OutMaps": "out_maps", "Groups": "groups", "PaddingMode": "padding_mode",
    "Activation": "activation", "HasResidual": "residual", "HasSparseWeights": "sparse_weights",
    "PoolingType": "pooling", "WindowSize": "window", "AverageCountExcludesPadding": "excludes_padding",
    "NbOperations": "operations", "NbInstructions": "operations", "Operation": "operation",
    "Axes": "axes", "HasLog": "log", "KeepDims": "keep_dims", "Mode": "mode", "Size": "size",
    "Start": "start", "FirstTranspose": "first_transpose", "SecondTranspose": "second_transpose",
    "ResizeMode": "mode", "Origin": "origin", "OpA": "op_a", "OpB": "op_b",
    "TransposeA": "transpose_a", "TransposeB": "transpose_b", "PluginType": "plugin",
    "PluginVersion": "plugin_version",
}  # fmt: skip


def _attributes(entry: Mapping[str, Any]) -> Iterable[tuple[str, ParamValue]]:
    given: dict[str, ParamValue] = {}
    for theirs, ours in _ATTRIBUTES.items():
        value = entry.get(theirs)
        if ours in given or value is None or value == "":
            continue
        if isinstance(value, list):
            if len(value) <= 16 and all(isinstance(v, (int, float, str)) for v in value):
                given[ours] = tuple(value)
        elif isinstance(value, (bool, int, float)):
            given[ours] = value if not isinstance(value, int) or abs(value) < 1 << 62 else None
        elif isinstance(value, str):
            given[ours] = value[:256]
    if given.get("padding_after") == given.get("padding"):
        given.pop("padding_after", None)
    for dull in ("residual", "sparse_weights"):
        if not given.get(dull):
            given.pop(dull, None)
    if given.get("activation") == "NONE":
        del given["activation"]
    for theirs in ("Weights", "Bias"):
        value = entry.get(theirs)
        count = _number(value.get("Count")) if isinstance(value, Mapping) else None
        if count:
            given[theirs.lower()] = count
    if isinstance(entry.get("Operations"), list) and "operations" not in given:
        given["operations"] = len(entry["Operations"])
    return given.items()


def _store(
    entry: Mapping[str, Any], inputs: Sequence[TensorSpec], kind: str
) -> tuple[TensorSpec, ...]:
    """The weights and bias that the engine holds, as further arguments. Weights have the sizes [outputs,
    inputs / groups, *kernel] if these give the stated count, else one row with that many elements."""
    stored = []
    for which in ("Weights", "Bias"):
        value = entry.get(which)
        count = _number(value.get("Count")) if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping) or count is None or count <= 0:
            continue
        shape: tuple[int, ...] = (count,)
        if which == "Weights":
            shape = _weight_shape(entry, inputs, kind, count) or shape
        stored.append(TensorSpec(dtype_of(_text(value.get("Type"))), shape))
    return tuple(stored)


def _weight_shape(
    entry: Mapping[str, Any], inputs: Sequence[TensorSpec], kind: str, count: int
) -> tuple[int, ...] | None:
    kernel, maps = entry.get("Kernel"), _number(entry.get("OutMaps"))
    groups = _number(entry.get("Groups")) or 1
    if not isinstance(kernel, list) or not inputs or not maps or groups < 1:
        return None
    axis = len(inputs[0].shape) - len(kernel) - 1
    if axis < 0 or not all(isinstance(k, int) and 0 < k < 1 << 20 for k in kernel):
        return None
    channels = inputs[0].shape[axis]
    if not isinstance(channels, int):
        return None
    shape = (channels, maps // groups) if kind == "Deconvolution" else (maps, channels // groups)
    count_of_shape = shape[0] * shape[1]
    for k in kernel:
        count_of_shape *= k
    return (*shape, *kernel) if count_of_shape == count else None
