"""Readers of the range texts that other tools write, each into the same OpCall.

A dialect is a module with two functions, listed in ``core.tables.interpret.DIALECTS``:

    strip(texts: pl.Series) -> pl.DataFrame   # optional; columnar
    read(domain: str, text: str) -> Reading | None

``strip`` takes the unique texts of a trace (String) and returns, row for row, ``text`` without what
differs from call to call (PyTorch's ``seq = 13, op_id = 7``), and that as the integer columns ``seq``
and ``op_id`` (null where absent); it leaves alone what is not its own. ``read`` then sees each
distinct stripped text once and returns None where the text is not in its dialect. Texts are a
stranger's data: never ``eval``; bound lengths and depth; what does not parse is a user range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from opscope.core.schema import Frame, OpCall

#: Scopes that optimizers have in the names of graphs.
OPTIMIZERS: Final = frozenset(
    ("sgd", "adam", "adamw", "adamax", "adagrad", "adadelta", "adafactor", "rmsprop", "nadam",
     "lion", "lamb")
)  # fmt: skip

Role = Literal["op", "layer", "step", "phase", "user", "source", "spec", "result", "graph", "note"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one range text means.

    ``op``: an operator's call (``call`` set; shapes may be missing). ``source``: a range that only
    tells where its inner ranges come from (``frames``; ``layer`` where it names the module path),
    such as PyProf's traceMarker or a Python frame. ``layer``: ``layer`` is the module path.
    ``step``: ``step`` is its number. ``note``: a word of ours that stands for nothing that ran.
    ``direction`` is one of schema.DIRECTIONS or None. ``forward_name`` is set on a backward node:
    the op that it differentiates, when the text tells. ``key`` is the name under which a spec may
    tell more of the range (a graph's node, an HLO operation), ``graph`` the graph that it belongs
    to, or that a ``graph`` range runs.
    """

    role: Role
    call: OpCall | None = None
    direction: str | None = None
    layer: str | None = None
    frames: tuple[Frame, ...] = ()
    step: int | None = None
    forward_name: str | None = None
    key: str | None = None
    graph: str | None = None


#: What begins the text of a range that a user made to be a layer (``layer:block1``), as PyProf and
#: DLProf have it. Such a layer lies within those around it: its reading keeps the mark.
LAYER: Final = "layer:"


def user_layer(text: str) -> Reading | None:
    """The reading of a user's own layer; None where the text is none."""
    return Reading("layer", layer=text) if text.startswith(LAYER) and text != LAYER else None
