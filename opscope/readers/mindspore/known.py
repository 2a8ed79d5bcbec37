"""The facts about an operator that MindSpore ran."""

from __future__ import annotations

from dataclasses import dataclass

from opscope.core.schema import OpCall


@dataclass(frozen=True, slots=True)
class Known:
    """The facts about some executions: the operator's full name, its call, and its description in a graph."""

    node: str
    call: OpCall
    layer: str | None = None
    direction: str | None = None
    forward: str | None = None
    in_graph: bool = False
    #: The node that it is a part of, which has the same cells.
    origin: str | None = None
