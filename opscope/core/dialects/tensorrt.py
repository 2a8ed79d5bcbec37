"""Range texts of TensorRT, in its own NVTX domain: a layer's name while the engine enqueues it."""

from __future__ import annotations

from typing import Final

from opscope.core.dialects import Reading
from opscope.core.schema import OpCall

DOMAIN: Final = "TensorRT"
_LIMIT: Final = 64 * 1024
#: Ranges of the run time and the builder, which enclose layers or build them.
_NOT_LAYERS: Final = (
    "ExecutionContext::",
    "IExecutionContext::",
    "IBuilder::",
    "Builder::",
    "Tactic",
)


def read(domain: str, text: str) -> Reading | None:
    """A layer's range is an op of the layer's name (several joined by `` + `` when fused)."""
    if domain != DOMAIN or not text or len(text) > _LIMIT:
        return None
    if text.startswith(_NOT_LAYERS):
        return Reading("user")
    return Reading("op", OpCall(text), "forward", layer=text)
