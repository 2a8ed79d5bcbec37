"""Add to a trace what its model states: today the layers of a TensorRT engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BadInput
from .formats import find

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def with_model(trace: Trace, path: str | os.PathLike[str]) -> Trace:
    """Return ``trace`` with the facts about its ops from the model in ``path``. ``path``: the layer info of a
    TensorRT engine, as trtexec or the engine inspector writes it. Raises BadInput, if the file is none or
    does not belong to the trace."""
    location = Path(path)
    try:
        match = find(location)
    except BadInput:
        if not location.is_file():
            raise
        match = None  # not a trace: perhaps an ONNX model
    if match is None or not match.ours or match.name != "tensorrt":
        raise BadInput(
            location,
            "not what ran in this trace: beside a trace goes the layer info of a TensorRT engine, and an ONNX"
            " model goes beside a profile of ONNX Runtime only",
        )
    from .tensorrt.beside import with_layers  # lazy: it loads Polars

    return with_layers(trace, location)
