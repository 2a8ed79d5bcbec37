"""Read the JSON of ONNX Runtime's profiler, alone or with the model that ran."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.readers.heads import is_json

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: Every event has a category, and other tools (Kineto's ``cpu_op``, ``Trace``) do not use these.
_EVENT: Final = re.compile(rb'"cat"\s*:\s*"(?:Session|Node)"')


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file has events of ONNX Runtime's profiler."""
    return is_json(head) and _EVENT.search(head) is not None


def read(path: Path, model: str | os.PathLike[str] | None = None) -> Trace:
    """Return the trace in ``path``, with facts about its nodes from ``model``. Raises BadInput. Without
    ``model``, a model beside the profile is used if all nodes of the profile are its own."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path, model)
