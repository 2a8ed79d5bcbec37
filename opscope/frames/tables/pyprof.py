"""The frame with PyProf's columns."""

from __future__ import annotations

from collections.abc import Iterator

from opscope.core.question.column import Frame
from opscope.core.question.words import columns


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "pyprof()",
        "one row per kernel execution, in the order of their starts",
        columns(
            "idx seq altseq tid layer trace dir sub mod op kernel params sil tc device stream grid block"
            " flops bytes",
            seq=("number", "PyTorch's sequence number of the op; null where it has none"),
            layer=("text", "the user's `layer:` ranges around the launch, outermost first, joined by"
                   " colons; else the module's path"),
            op=("text", "the op: the Python call's, the framework's, in the backward the forward's;"
                " na if not known"),
            params=("text", "sizes and types as PyProf writes them; na=na, if not known"),
            flops=("FLOP", "the kernel's share of its op's floating-point operations"),
            bytes=("bytes", "the kernel's share of the bytes that its op must read and write"),
        ),
    )  # fmt: skip
