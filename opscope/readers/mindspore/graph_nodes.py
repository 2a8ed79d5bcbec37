"""Say what each execution of a compiled graph's operator was: the call that the graph tells for its name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import msgspec
import polars as pl

from opscope.core.dialects.mindspore import node_name
from opscope.core.recording_format import MINDSPORE_GRAPHS
from opscope.core.rangetext import RangeTextError, parse
from opscope.core.schema import Arg, OpCall, SameAs, TensorSpec
from opscope.readers.errors import BadInput

from .cpu_files import Executions, executions, find, inputs_of

#: Largest file of graphs in bytes.
MAX_BYTES: Final = 1 << 30
#: Operators of which several graphs have one of the same name, with other dtypes or shapes.
AMBIGUOUS: Final = "executions of operators that several compiled graphs have, with other calls: their dtypes are not known"

_SCHEMA: Final = {
    "graph": pl.String,
    "node": pl.String,
    "call": pl.String,
    "layer": pl.String,
    "direction": pl.String,
    "forward": pl.String,
}
_Text = Annotated[str, msgspec.Meta(max_length=1 << 16)]


class _Graph(msgspec.Struct):
    graph: _Text
    nodes: list[tuple[_Text, _Text, _Text | None, _Text | None, _Text | None]]


@dataclass(slots=True)
class Captured:
    """What MindSpore's profiler recorded beside the recorder: executions, and the nodes of the graphs.

    ``nodes``: graph, node, call (text), layer, direction, forward (the node that it differentiates).
    """

    executions: Executions
    nodes: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of some executions: the operator's full name, its call, and what a graph says of it."""

    node: str
    call: OpCall
    layer: str | None = None
    direction: str | None = None
    forward: str | None = None
    in_graph: bool = False


def load(folder: Path) -> Captured:
    """Return what is in the folder of MindSpore's profiler in a recording. Raises BadInput."""
    paths = find(folder)
    if not paths:
        raise BadInput(folder, "no files of MindSpore's profiler here")
    graphs = folder / MINDSPORE_GRAPHS
    nodes = _nodes(graphs) if graphs.is_file() else pl.DataFrame(schema=_SCHEMA)
    return Captured(executions(paths[0]), nodes)


def _nodes(path: Path) -> pl.DataFrame:
    decode = msgspec.json.Decoder(_Graph).decode
    if path.stat().st_size > MAX_BYTES:
        raise BadInput(path, f"larger than {MAX_BYTES} bytes")
    rows: list[tuple[str | None, ...]] = []
    try:
        with path.open("rb") as file:
            for line in file:
                graph = decode(line)
                rows += [(graph.graph, *node) for node in graph.nodes]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(path, f"not a graph of MindSpore: {error}") from None
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def known_calls(table: pl.DataFrame, nodes: pl.DataFrame) -> tuple[pl.DataFrame, list[Known], int]:
    """Return the executions with ``known``, a place in the list; the list; and how many are ambiguous.

    The list has one entry for each distinct (node, inputs).
    """
    distinct = table.select("node", "inputs").unique(maintain_order=True)
    wanted = distinct["node"].unique()
    of_node: dict[str, list[tuple[str | None, ...]]] = {}
    chosen = nodes.filter(pl.col("node").is_in(wanted.implode())).select(
        "node", "call", "layer", "direction", "forward"
    )
    for node, *rest in chosen.unique(maintain_order=True).rows():
        of_node.setdefault(node, []).append(tuple(rest))
    known: list[Known] = []
    doubtful: list[int] = []
    for place, (node, inputs) in enumerate(distinct.rows()):
        recorded = inputs_of(inputs or "")
        fitting = [
            one
            for row in of_node.get(node, [])
            if (one := _from_graph(node, row, recorded, inputs is not None)) is not None
        ]
        calls = {one.call for one in fitting}
        if len(calls) == 1:
            first = fitting[0]
            same = all((one.layer, one.forward) == (first.layer, first.forward) for one in fitting)
            known.append(first if same else replace(first, layer=None, forward=None))
            continue
        if fitting:
            doubtful.append(place)
        op = node_name(node).op
        known.append(Known(node, OpCall(op, recorded), in_graph=node in of_node))
    placed = table.join(
        distinct.with_row_index("known").with_columns(pl.col("known").cast(pl.Int64)),
        on=["node", "inputs"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    many = int(placed["known"].is_in(doubtful).sum()) if doubtful else 0
    return placed, known, many


def _from_graph(
    node: str, row: tuple[str | None, ...], recorded: tuple[Arg, ...], has_inputs: bool
) -> Known | None:
    """Return what the graph says of an operator that ran with the ``recorded`` shapes; None if it cannot be
    this one."""
    text, layer, direction, forward = row
    try:
        call = parse(text or "")
    except RangeTextError:
        return None
    if has_inputs:
        inputs = with_sizes(call.inputs, recorded)
        if inputs is None:
            return None
        call = replace(call, inputs=inputs)
    return Known(node, call, layer, direction, forward, True)


def with_sizes(planned: tuple[Arg, ...], recorded: tuple[Arg, ...]) -> tuple[Arg, ...] | None:
    """Return the ``planned`` inputs with sizes that only the run knew; None if the recorded ones contradict.

    A constant is an input in one and none in the other, so only what both have is compared.
    """
    found: list[Arg] = []
    for place, plan in enumerate(planned):
        ran = recorded[place] if place < len(recorded) else None
        if not isinstance(plan, TensorSpec) or not isinstance(ran, TensorSpec):
            if isinstance(plan, SameAs):
                return None
            found.append(plan)
            continue
        if len(plan.shape) != len(ran.shape) or any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for a, b in zip(plan.shape, ran.shape, strict=True)
        ):
            return None
        sizes = (a if isinstance(a, int) else b for a, b in zip(plan.shape, ran.shape, strict=True))
        found.append(replace(plan, shape=tuple(sizes)))
    return tuple(found)
