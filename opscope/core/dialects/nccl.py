"""Read NCCL's range texts (its own NVTX domain): a text is the call's name, its payload the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opscope.core.dialects import Reading
from opscope.core.schema import OpCall, ParamValue

DOMAIN: Final = "NCCL"
#: NCCL's payload entry → name of the call's parameter. Sizes are in bytes.
PARAMETERS: Final[Mapping[str, str]] = {
    "NCCL communicator ID": "communicator",
    "Message size [bytes]": "bytes",
    "Bytes": "bytes",
    "Peer rank": "peer",
    "Root": "root",
    "Reduction operation": "reduction",
    "No. of ranks": "ranks",
    "Rank": "rank",
    "CUDA device": "device",
}


def read(domain: str, text: str) -> Reading | None:
    """Return the reading of an NCCL call, an op of direction ``communication``; None for other ranges."""
    if domain != DOMAIN or not text.startswith(("nccl", "pnccl")) or not text.isidentifier():
        return None
    return Reading("op", OpCall(text), "communication")


def parameters(payload: Mapping[str, object]) -> tuple[tuple[str, ParamValue], ...]:
    """Return the call's parameters from its decoded payload, named as in PARAMETERS."""
    return tuple(
        (PARAMETERS[key], value)
        for key, value in payload.items()
        if key in PARAMETERS and (value is None or isinstance(value, (bool, int, float, str)))
    )
