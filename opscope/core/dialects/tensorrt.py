"""Read TensorRT's range texts (its own NVTX domain): a layer's name while the engine enqueues it."""

from __future__ import annotations

from typing import Final

from opscope.core.dialects import TENSORRT, Reading
from opscope.core.schema import OpCall

DOMAIN: Final = TENSORRT
_LIMIT: Final = 64 * 1024
#: Prefixes of ranges of the runtime and the builder, which enclose layers or build them.
_NOT_LAYERS: Final = (
    "ExecutionContext::",
    "IExecutionContext::",
    "IBuilder::",
    "Builder::",
    "Tactic",
)


def read(domain: str, text: str) -> Reading | None:
    """Return the reading of a layer's range: an op with the layer's name (`` + `` joins fused layers). Its
    spec describes the layer, if the engine's layer info is beside the trace."""
    if domain != DOMAIN or not text or len(text) > _LIMIT:
        return None
    if text.startswith(_NOT_LAYERS):
        return Reading("user")
    return Reading("op", OpCall(text), "forward", layer=text, key=text)
