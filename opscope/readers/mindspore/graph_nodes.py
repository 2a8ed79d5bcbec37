"""Describe each execution of a compiled graph's operator by the call that the graph has under its name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import msgspec
import polars as pl

from opscope.core.dialects.mindspore import node_name
from opscope.core.rangetext import RangeTextError, parse
from opscope.core.recording_format import MINDSPORE_GRAPHS
from opscope.core.schema import Arg, Dim, OpCall, SameAs, TensorSpec
from opscope.readers.errors import BadInput

from .cpu_files import Executions, executions, find, inputs_of
from .gradients import completed
from .known import Known
from .numbering import INSERTED

#: Largest file of graphs in bytes.
MAX_BYTES: Final = 1 << 30
#: Note on operators whose name several graphs have, with different dtypes or shapes.
AMBIGUOUS: Final = (
    "operators that several graphs have, with other calls: their dtypes are not known"
)

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
    """The data from MindSpore's profiler beside the recorder: executions, and the nodes of the graphs.

    ``nodes``: graph, node, call (text), layer, direction, forward (the node that it differentiates).
    """

    executions: Executions
    nodes: pl.DataFrame


def load(folder: Path) -> Captured:
    """Return the content of MindSpore's profiler's folder in a recording. Raises BadInput."""
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


def known_calls(
    table: pl.DataFrame, nodes: pl.DataFrame, of_graph: pl.Series | None = None
) -> tuple[pl.DataFrame, list[Known], int]:
    """Return the executions with ``known``, an index into the list; the list; and how many are ambiguous. The
    list has one entry for each distinct (node, inputs). ``of_graph``: whether each execution may belong to a
    graph; others, of PyNative mode, can have the same names."""
    keys = ["node", "inputs", "of_graph"]
    table = table.with_columns(of_graph=pl.lit(value=True) if of_graph is None else of_graph)
    distinct = table.select(keys).unique(maintain_order=True)
    wanted = distinct.filter("of_graph")["node"].unique()
    of_node: dict[str, list[tuple[str | None, ...]]] = {}
    nodes = _of_those_that_ran(nodes, wanted)
    chosen = nodes.filter(pl.col("node").is_in(wanted.implode())).select(
        "node", "call", "layer", "direction", "forward"
    )
    for node, *rest in chosen.unique(maintain_order=True).rows():
        of_node.setdefault(node, []).append(tuple(rest))
    parts = _Parts(wanted.to_list(), nodes)
    inserted = _Inserted(wanted.to_list(), nodes)
    known: list[Known] = []
    doubtful: list[int] = []
    for index, (node, inputs, is_of_graph) in enumerate(distinct.rows()):
        recorded = inputs_of(inputs or "")
        rows = of_node.get(node, []) if is_of_graph else []
        fitting = [
            planned
            for row in rows
            if (planned := _from_graph(node, row, recorded, inputs is not None)) is not None
        ]
        calls = {one.call for one in fitting}
        bare = Known(node, OpCall(node_name(node).op, recorded), in_graph=bool(rows))
        if len(calls) == 1:
            first = fitting[0]
            same = all((one.layer, one.forward) == (first.layer, first.forward) for one in fitting)
            known.append(first if same else replace(first, layer=None, forward=None))
        elif fitting:
            doubtful.append(index)
            known.append(bare)
        else:
            known.append(inserted.described(parts.described(bare)) if is_of_graph else bare)
    placed = table.join(
        distinct.with_row_index("known").with_columns(pl.col("known").cast(pl.Int64)),
        on=keys,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    ).drop("of_graph")
    doubtful_count = int(placed["known"].is_in(doubtful).sum()) if doubtful else 0
    return placed, known, doubtful_count


def _of_those_that_ran(nodes: pl.DataFrame, ran: pl.Series) -> pl.DataFrame:
    """Return the nodes without those of graphs that did not run, if another graph has nodes of the same
    names.

    A process may hold graphs of several models, or several graphs of one model, with names in common. A graph
    is dropped if one of its nodes did not run although its kind did, and other graphs have no such node.
    """
    kinds = {node_name(node).op for node in ran}
    kind = pl.col("call").str.extract(r"^([^(]*)\(", 1)
    candidates = nodes.with_columns(ran=pl.col("node").is_in(ran.implode())).filter(
        kind.is_in(list(kinds)) | pl.col("ran")
    )
    complete_graphs = candidates.group_by("graph").agg(pl.col("ran").all())
    complete_graphs = complete_graphs.filter(pl.col("ran")).select("graph")
    nodes_held = candidates.join(complete_graphs, on="graph", how="semi")["node"].unique()
    weak = pl.col("node").is_in(nodes_held.implode()) & ~pl.col("graph").is_in(
        complete_graphs["graph"].implode()
    )
    return nodes.filter(~weak)


class _Parts:
    """The facts about operators that MindSpore made from one node: ``Expand/_SoftmaxBackward/Mul-op1``. Their
    numbers continue from node to node in the order of the graph, and from graph to graph; every node has
    equally many."""

    def __init__(self, names: list[str], nodes: pl.DataFrame) -> None:
        self._nodes: dict[str, list[tuple[str | None, ...]]] = {}
        self._graphs: dict[str, set[str]] = {}
        self._many: dict[tuple[str, str], int] = {}
        self._first: dict[tuple[str, str], int] = {}
        wanted: set[str] = set()
        for name in names:
            said = node_name(name)
            if said.part_of is not None:
                key = (said.part_of, said.op)
                self._many[key] = self._many.get(key, 0) + 1
                number = _number(name)
                self._first[key] = min(self._first.get(key, number), number)
                wanted.add(said.part_of)
        if not wanted:
            return
        kinds = nodes.with_columns(kind=pl.col("call").str.extract(r"^([^(]*)\(", 1))
        chosen = kinds.filter(pl.col("kind").is_in(list(wanted)))
        columns = ("kind", "graph", "node", "call", "layer", "direction", "forward")
        for kind, graph, *rest in chosen.select(columns).rows():
            self._nodes.setdefault(kind, []).append(tuple(rest))
            self._graphs.setdefault(kind, set()).add(graph)

    def described(self, planned: Known) -> Known:
        """Return the operator with the dtypes, direction and layer of the node that it is a part of. If
        several nodes are possible, facts on which they differ stay unknown."""
        said = node_name(planned.node)
        rows = self._nodes.get(said.part_of or "", [])
        if said.part_of is None or not rows:
            return planned
        descriptions: set[Known] = set()
        number = _number(planned.node) - self._first[said.part_of, said.op]
        each, left = divmod(self._many[said.part_of, said.op], len(rows))
        if (
            each
            and not left
            and len(self._graphs[said.part_of]) == 1
            and number // each < len(rows)
        ):
            rows = [rows[number // each]]
        for node, text, layer, direction, forward in rows:
            try:
                call = parse(text or "")
            except RangeTextError:
                continue
            of = node_name(node or "")
            completed_call = completed(planned, call)
            descriptions.add(
                replace(
                    completed_call,
                    layer=layer,
                    origin=node,
                    direction=direction or of.direction,
                    forward=forward,
                    in_graph=True,
                )
            )
        if not descriptions:
            return planned
        first, *others = descriptions
        return replace(
            first,
            call=first.call if all(two.call == first.call for two in others) else planned.call,
            layer=first.layer if not others else None,
            origin=first.origin if not others else None,
            direction=first.direction
            if all(two.direction == first.direction for two in others)
            else None,
            forward=first.forward if not others else None,
        )


class _Inserted:
    """Finds the node that an inserted operator belongs to: MindSpore put the operator into the graph
    beside this node. It is a cast of an input or output of the node; its dtypes are not recorded."""

    def __init__(self, names: list[str], nodes: pl.DataFrame) -> None:
        scopes = {name.rpartition("/")[0] for name in names if node_name(name).op in INSERTED}
        beside = nodes.with_columns(scope=pl.col("node").str.extract(r"^(.*)/[^/]*$", 1)).filter(
            pl.col("scope").is_in(list(scopes))
        )
        #: By scope and shape: layer and forward node of the nodes that read or make such a tensor.
        self._found: dict[tuple[str, tuple[Dim, ...]], set[tuple[str | None, str | None]]] = {}
        for scope, node, text, layer, forward in beside.select(
            "scope", "node", "call", "layer", "forward"
        ).rows():
            if node_name(node).op in INSERTED:
                continue
            try:
                call = parse(text or "")
            except RangeTextError:
                continue
            for leaf in (*call.input_leaves(), *(call.output_leaves() or ())):
                if leaf is not None:
                    self._found.setdefault((scope, leaf.shape), set()).add((layer, forward))

    def described(self, planned: Known) -> Known:
        """Return the operator with the layer and the forward node of the only node that it can belong to."""
        if (
            planned.in_graph
            or node_name(planned.node).op not in INSERTED
            or len(planned.call.inputs) != 1
        ):
            return planned
        tensor = planned.call.inputs[0]
        if not isinstance(tensor, TensorSpec):
            return planned
        candidates = self._found.get((planned.node.rpartition("/")[0], tensor.shape), set())
        if len(candidates) != 1:
            return planned
        ((layer, forward),) = candidates
        return replace(planned, layer=layer, forward=forward, in_graph=True)


def _number(node: str) -> int:
    """Return the number at the end of an operator's name; 0 if it has none."""
    number = node.rpartition("-op")[2]
    return int(number) if number.isdecimal() else 0


def _from_graph(
    node: str, row: tuple[str | None, ...], recorded: tuple[Arg, ...], has_inputs: bool
) -> Known | None:
    """Return the graph's description of an operator that ran with the ``recorded`` shapes; None if it cannot
    be this node."""
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
    """Return the ``planned`` inputs with sizes that only the run has; None if the recorded sizes
    contradict the planned ones. A constant is an input in only one of the two, so only inputs that both
    have are compared."""
    args: list[Arg] = []
    for index, plan in enumerate(planned):
        ran = recorded[index] if index < len(recorded) else None
        if not isinstance(plan, TensorSpec) or not isinstance(ran, TensorSpec):
            if isinstance(plan, SameAs):
                return None
            args.append(plan)
            continue
        if len(plan.shape) != len(ran.shape) or any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for a, b in zip(plan.shape, ran.shape, strict=True)
        ):
            return None
        sizes = (a if isinstance(a, int) else b for a, b in zip(plan.shape, ran.shape, strict=True))
        args.append(replace(plan, shape=tuple(sizes)))
    return tuple(args)
