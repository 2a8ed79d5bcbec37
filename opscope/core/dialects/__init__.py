"""Dialects: how the tools and frameworks write range texts. Each is read into the same ``OpCall``.

A dialect is a module with two functions, listed in ``DIALECTS``, which is loaded for a text of its domains:

    strip(texts: pl.Series) -> pl.DataFrame   # optional; columnar
    read(domain: str, text: str) -> Reading | None

``strip`` takes the unique texts of a trace (String) and returns, row for row, ``text`` without what
differs from call to call (PyTorch's ``seq = 13, op_id = 7``), and those numbers as the integer columns
``seq`` and ``op_id`` (null where absent). It leaves texts of other dialects unchanged. ``read`` then gets
each distinct stripped text once, and returns None if the text is not in its dialect. Texts are a
stranger's data: never ``eval`` them; bound lengths and depth; a text that does not parse is a user range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from opscope.core.communication import is_op
from opscope.core.schema import Frame, OpCall

#: The domains of MindSpore's operators and of TensorRT's layers.
MINDSPORE: Final = "mindspore"
TENSORRT: Final = "TensorRT"
#: The dialects in the order in which they are tried, each with the domains whose texts it reads (None: all).
#: A text that none can read is a user range.
DIALECTS: Final[Mapping[str, frozenset[str] | None]] = {
    "torch_nvtx": frozenset({""}),
    "markers": None,
    "nccl": frozenset({"NCCL"}),
    "mindspore": frozenset({MINDSPORE}),
    "tsl": frozenset({"TSL", "XLA"}),
    "tensorrt": frozenset({TENSORRT}),
    "hlo": frozenset({"xla"}),
}
#: The dialects that have ``strip``.
STRIPPING: Final = ("torch_nvtx",)

#: Names of scopes, in prepared graphs, that belong to optimizers.
OPTIMIZERS: Final = frozenset(
    ("sgd", "adam", "adamw", "adamax", "adagrad", "adadelta", "adafactor", "rmsprop", "nadam",
     "lion", "lamb")
)  # fmt: skip

Role = Literal[
    "op", "layer", "step", "phase", "user", "source", "spec", "result", "graph", "note", "loader",
    "read",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """What one range text means.

    Roles: ``op``: an operator's call (``call`` is set; shapes may be missing). ``source``: a range that
    only says where the ranges inside it come from (``frames``; ``layer`` if it names the module path),
    such as PyProf's traceMarker or a Python frame, whose ``frames`` are where the function begins and
    ``called_from`` is the line that called it, if known. ``layer``: ``layer`` is the module path. ``step``:
    ``step`` is its number. ``note``: a text of opscope's that represents no work. ``loader``: a wait for
    input data; ``call`` names the loader, its parameters and its source lines. ``read``: the host reads an
    array's values and waits for them; ``call`` has the line.

    ``direction`` is one of schema.DIRECTIONS or None; of a collective's op it is always communication.
    ``forward_name``: for a backward node, the op that it differentiates, if the text names it. ``key``: the
    name by which a spec may describe the range (a prepared graph's node, an HLO operation). ``graph``: the
    graph that the range belongs to, or that a ``graph`` range runs.
    """

    role: Role
    call: OpCall | None = None
    direction: str | None = None
    layer: str | None = None
    frames: tuple[Frame, ...] = ()
    called_from: Frame | None = None
    step: int | None = None
    forward_name: str | None = None
    key: str | None = None
    graph: str | None = None

    def __post_init__(self) -> None:
        if self.role == "op" and self.call is not None and is_op(self.call.name):
            object.__setattr__(self, "direction", "communication")


#: Prefix of a range that a user declares to be a layer (``layer:block1``), as in PyProf and DLProf. Such a
#: layer is part of the layers around it; its reading keeps the prefix.
LAYER: Final = "layer:"


def user_layer(text: str) -> Reading | None:
    """Return the reading of a user's own layer; None if the text is not one."""
    return Reading("layer", layer=text) if text.startswith(LAYER) and text != LAYER else None
