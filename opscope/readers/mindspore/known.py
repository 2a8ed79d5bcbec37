"""What is known of an operator that MindSpore ran."""

from __future__ import annotations

from dataclasses import dataclass

from opscope.core.schema import OpCall


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of some executions: the operator's full name, its call, and what a graph says of it."""

    node: str
    call: OpCall
    layer: str | None = None
    direction: str | None = None
    forward: str | None = None
    in_graph: bool = False
    #: The node that it is a part of, whose cells are its.
    origin: str | None = None
