"""Whether CUDA graphs are traced by node or as wholes, as the user chose."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

#: The environment variable with the choice; programs that are not Python read it too (live_injected.h).
VARIABLE: Final = "OPSCOPE_CUDA_GRAPH_TRACE"
NODE, GRAPH = "node", "graph"
#: The backends that can trace a graph as a whole; the others trace its nodes.
BACKENDS: Final = ("cupti", "nsys")


def parse(text: str) -> str:
    """Return ``node`` or ``graph``. Raises ValueError for another word."""
    if text not in (NODE, GRAPH):
        raise ValueError(
            f"{text!r}: choose {NODE} (each kernel of a CUDA graph) or {GRAPH} (a row a launch)"
        )
    return text


def whole(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether graphs are traced as wholes: one row per launch, at a lower cost, without their kernels."""
    return environ.get(VARIABLE) == GRAPH
