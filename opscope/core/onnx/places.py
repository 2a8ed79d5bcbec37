"""The origin of a node: its layer and source lines, from its name or the exporter's metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from opscope.core.code_files import kept_frames
from opscope.core.node_names import layer_in
from opscope.core.schema import Frame

#: Keys that torch.onnx writes to ``NodeProto.metadata_props`` (PyTorch, torch/onnx/_internal/exporter).
_SCOPES: Final = "pkg.torch.onnx.name_scopes"
_STACK: Final = "pkg.torch.onnx.stack_trace"
_QUOTED: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_FRAME: Final = re.compile(r'File "([^"\n]{1,4096})", line ([0-9]{1,9})')
#: The longest text from a file that is searched.
_LONGEST: Final = 1 << 16


def layer_of(name: str, metadata: Mapping[str, str]) -> str | None:
    """Return the layer: the module that the exporter names, else the path in the node's name, or None."""
    scopes = metadata.get(_SCOPES)
    if scopes is not None:
        # from the outermost module to the op itself: ['', 'layer1', 'layer1.0', 'conv2d']
        scopes_named = [quoted or other for quoted, other in _QUOTED.findall(scopes[:_LONGEST])]
        modules = [scope for scope in scopes_named[:-1] if scope]
        return modules[-1] if modules else None
    return layer_in(name.split("/")[:-1])


def frames_of(metadata: Mapping[str, str]) -> tuple[Frame, ...]:
    """Return the source lines that torch.onnx recorded with a node, innermost first."""
    frames = _FRAME.findall(metadata.get(_STACK, "")[:_LONGEST])
    return kept_frames(tuple((file, int(line)) for file, line in reversed(frames)))


def common_layer(layers: Sequence[str | None]) -> str | None:
    """Return the common part of fused nodes' layers, in complete parts of the path; None if there is none."""
    named = [layer for layer in layers if layer]
    if not named or len(named) < len(layers):
        return None
    mark = "/" if any("/" in layer for layer in named) else "."
    shared: list[str] = []
    for parts in zip(*(layer.split(mark) for layer in named), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return mark.join(shared) or None
