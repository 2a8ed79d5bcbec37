"""Read files of trtexec, TREx and the engine inspector about a TensorRT engine: layers, times, runs, logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace
    from opscope.readers.errors import BadInput

_OBJECT: Final = re.compile(
    rb'\s*\{\s*"(?:Layers|Bindings|performance_summary|model_options|LayerType)"\s*:'
    rb'|\s*\{\s*"Name"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"LayerType"\s*:'
)
_ARRAY: Final = re.compile(
    rb'\s*\[\s*\{\s*(?:"start(?:Enq|In)Ms"\s*:|"count"\s*:\s*\d+\s*\}'
    rb'|"name"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"timeMs"\s*:'
    rb'|"Name"\s*:\s*"[^"]*"\s*,\s*"ComputeCapability"\s*:)'
)
#: How TensorRT's logger and trtexec begin a line; a log may have lost its first lines.
_LINE: Final = re.compile(
    rb"(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?\[TRT\] \[[EWIV]\] "
    rb"|\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[[EWIV]\] "
    rb"|Layers:\r?\nName: [^\n]*, LayerType: "
)
_LOG: Final = re.compile(
    rb"&&&& RUNNING TensorRT\.trtexec|\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[[EWIV]\] "
    rb"|^\[I\] === (?:Model|Build|Inference|Reporting) Options ===",
    re.MULTILINE,
)


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is one of trtexec's, TREx's or the engine inspector's. Never raises."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    if _OBJECT.match(head) or _ARRAY.match(head) or _LINE.match(head):
        return True
    return b"TensorRT" in head and _LOG.search(head) is not None


def read(path: Path) -> Trace:
    """Return the trace of the engine that ``path`` and the files of its name beside it describe.

    Raises BadInput.
    """
    from . import reader  # lazy: it loads Polars

    return reader.read(path)


def read_together(paths: Sequence[Path]) -> tuple[list[Trace], list[BadInput]]:
    """Return one trace for each engine that these files describe, and what cannot be read.

    Raises BadInput if one of them has the times of another engine than the layers beside it.
    """
    from . import reader  # lazy: it loads Polars

    return reader.read_together(paths)
