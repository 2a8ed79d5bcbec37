"""Find the call of every node event: from the profile's shapes, and from the model if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.node_names import layer_in
from opscope.core.onnx import dtypes
from opscope.core.onnx.actual import call_of_run
from opscope.core.onnx.model import Model, Node, unpadded
from opscope.core.onnx.origins import followed, stem
from opscope.core.onnx.places import common_layer
from opscope.core.rangetext import format_tensor
from opscope.core.schema import Arg, Dim, Frame, OpCall, ParamValue, TensorSpec
from opscope.core.tables.columns import gather
from opscope.core.tables.intervals import nest

#: Ops that run a graph of their own, whose nodes run within their time.
CONTROL: Final = ("If", "Loop", "Scan", "SequenceMap")
#: Execution provider → device of its calls; others are called after the provider.
_DEVICES: Final = {
    "CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "cuda",
    "NvTensorRTRTXExecutionProvider": "cuda", "ROCMExecutionProvider": "hip",
    "MIGraphXExecutionProvider": "hip", "DmlExecutionProvider": "dml", "DnnlExecutionProvider": "cpu",
    "XnnpackExecutionProvider": "cpu", "ACLExecutionProvider": "cpu", "ArmNNExecutionProvider": "cpu",
    "AzureExecutionProvider": "cpu",
}  # fmt: skip
#: Providers that hand their work to a GPU and continue: a node's time is then the time of its launch.
ON_GPU: Final = (
    "CUDAExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider",
    "ROCMExecutionProvider", "MIGraphXExecutionProvider", "DmlExecutionProvider",
    "WebGpuExecutionProvider", "JsExecutionProvider",
)  # fmt: skip
#: The most dimensions of a tensor, and tensors of a node, that are read.
_MOST: Final = 64
_MOST_TENSORS: Final = 4096
_MOST_ORIGINS: Final = 8
_KEY: Final = ["name", "op_name", "provider", "node_index", "inputs", "outputs", "holder"]

_Shapes: TypeAlias = "tuple[TensorSpec, ...] | None"
_decode = msgspec.json.Decoder(list[dict[str, list[int]]]).decode


@dataclass(slots=True)
class Explained:
    """The calls of node events. ``call``: each row's place in ``calls``.

    ``nodes``: the model's node of each call, None without one. ``missing``: names of nodes that the model
    lacks, each once; ``unfit``: (name, the model's shapes, the profile's) if both have the node but with
    different shapes; ``by_order``: how many nodes without a name were matched by the order in which they ran;
    ``known``: how many distinct nodes the profile has.
    """

    call: NDArray[np.int32]
    calls: list[OpCall] = field(default_factory=list)
    nodes: list[Node | None] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unfit: list[tuple[str, str, str]] = field(default_factory=list)
    by_order: int = 0
    known: int = 0


def explained(frame: pl.DataFrame, model: Model | None = None) -> Explained:
    """Return the calls of the ``kernel_time`` rows of ``events.Events.frame``, given in time order.

    Rows of one node with the same shapes share a call. The model's shapes fill in what the profile lacks:
    weights that a kernel packed before it ran, and everything where an old profile has no shapes.
    """
    keyed = frame.with_columns(holder=_holders(frame))
    distinct = keyed.select(_KEY).unique(maintain_order=True)
    numbers = distinct.with_columns(pl.int_range(pl.len(), dtype=pl.Int32).alias("number"))
    rows = keyed.join(numbers, on=_KEY, how="left", nulls_equal=True, maintain_order="left")
    explained_nodes = Explained(rows["number"].to_numpy())
    each = [Ran(*row) for row in distinct.iter_rows()]
    matcher = _Matcher(model, each) if model is not None else None
    seen: dict[tuple[str, str], bool] = {}
    for node_ran in each:
        node, call = matcher.match(node_ran) if matcher is not None else (None, None)
        named = (node_ran.name, node_ran.holder)
        if matcher is not None and call is None:
            if node is not None:
                explained_nodes.unfit.append(
                    (node_ran.name, _show(node.call.inputs), _show(node_ran.given or ()))
                )
            elif named not in seen and node_ran.name:
                explained_nodes.missing.append(node_ran.name)
        if node_ran.name:  # the oldest versions write no name for a nameless node
            seen.setdefault(named, True)
        base = call if call is not None else _alone(node_ran, node, matcher)
        explained_nodes.calls.append(_on(base, node_ran.provider))
        explained_nodes.nodes.append(node if call is not None else None)
    explained_nodes.known = len(seen)
    explained_nodes.by_order = matcher.by_order if matcher is not None else 0
    return explained_nodes


@dataclass(frozen=True, slots=True)
class Ran:
    """One distinct kind of node event."""

    name: str
    op: str
    provider: str | None
    index: int | None
    inputs: str | None
    outputs: str | None
    holder: str

    @property
    def given(self) -> _Shapes:
        """The inputs in the profile."""
        return shapes(self.inputs)

    @property
    def made(self) -> _Shapes:
        """The outputs in the profile."""
        return shapes(self.outputs)

    @property
    def is_nameless(self) -> bool:
        """Whether the profiler named it, by its op and its index."""
        return self.name == f"{self.op}_{self.index}"


@lru_cache(maxsize=65_536)
def shapes(text: str | None) -> _Shapes:
    """Return the tensors of ``[{"float":[2,3]},…]``; None if there are none to read."""
    if text is None:
        return None
    try:
        each = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    specs = []
    for entry in each[:_MOST_TENSORS]:
        for word, sizes in entry.items():
            dims: tuple[Dim, ...] = tuple(
                dim if 0 <= dim < 1 << 62 else "?" for dim in sizes[:_MOST]
            )
            specs.append(TensorSpec(dtypes.of_word(word), dims))
    return tuple(specs)


def device_of(provider: str | None) -> str | None:
    """Return the device of a provider's calls: ``cpu``, ``cuda``, or the provider's own name."""
    if not provider:
        return None
    return _DEVICES.get(provider, provider.removesuffix("ExecutionProvider").lower()[:64] or None)


def _on(call: OpCall, provider: str | None) -> OpCall:
    device = device_of(provider)
    if device in (None, "cpu", "cuda") and provider in (
        None,
        "CPUExecutionProvider",
        "CUDAExecutionProvider",
    ):
        return replace(call, device=device)
    return replace(call, device=device, params=(*call.params, ("provider", provider)))


def _alone(node_ran: Ran, node: Node | None, matcher: _Matcher | None) -> OpCall:
    """Return the call with only the profile's facts; the layer is in the node's name."""
    origins = matcher.origins(node_ran) if matcher is not None and node is None else []
    params: list[tuple[str, ParamValue]] = [("node", node_ran.name)] if node_ran.name else []
    layer = None if node_ran.is_nameless else layer_in(stem(node_ran.name).split("/")[:-1])
    frames: tuple[Frame, ...] = ()
    if node is not None:  # of another layout, such as channels last: the attributes still hold
        params = [*(pair for pair in node.call.params if pair[0] not in ("node", "layer")), *params]
        layer, frames = node.layer or layer, node.call.frames
    elif origins:
        params.append(("origins", tuple(origin.key for origin in origins[:_MOST_ORIGINS])))
        layer = common_layer([origin.layer for origin in origins]) or layer
        weight = next((t for t in (node_ran.given or ())[1:2]), None)
        if node_ran.op == "Conv" and weight is not None:
            params += unpadded(weight.shape, origins)
        frames = next((origin.call.frames for origin in origins if origin.call.frames), ())
    if layer:
        params.append(("layer", layer))
    inputs: tuple[Arg, ...] = node_ran.given or ()
    if (
        node_ran.op == "Gemm"
        and len(inputs) in (1, 2)
        and sum(len(t.shape) == 2 for t in node_ran.given or ()) == 1
    ):
        inputs = (inputs[0], None, *inputs[1:])  # profiles lack the packed weight
    return OpCall(node_ran.op or "?", inputs, node_ran.made, tuple(params), None, frames)


def _show(args: Sequence[Arg]) -> str:
    return ", ".join(format_tensor(arg) if isinstance(arg, TensorSpec) else "_" for arg in args[:8])


# ------------------------------------------------------------------------------------- models


class _Matcher:
    """Finds the nodes of a model to which a profile's events belong."""

    def __init__(self, model: Model, each: Sequence[Ran]) -> None:
        self._model = model
        self._makers = {name: node for node in model.nodes for name in node.outputs if name}
        # a tensor that one of the profile's nodes makes is not inside another of its nodes
        self._border = {tensor for node_ran in each for tensor in self._tensors(node_ran)}
        self._order = self._by_order(each)
        self.by_order = len(self._order)

    def match(self, node_ran: Ran) -> tuple[Node | None, OpCall | None]:
        """Return the node and its call; only the node if the shapes of the run are not the node's."""
        if node_ran.is_nameless and self._model.saved:
            node = self._order.get((node_ran.name, node_ran.holder))
            nodes: Sequence[Node] = () if node is None else (node,)
        else:
            nodes = [
                node
                for node in self._model.by_key.get(node_ran.name, ())
                if node.op == node_ran.op or _plain(node_ran.op) == node.op
            ]
            held_nodes = [node for node in nodes if node.holder == node_ran.holder]
            nodes = held_nodes or nodes
        for node in nodes:
            call = call_of_run(node, node_ran.given, node_ran.made)
            if call is not None:
                return node, call
        return (nodes[0], None) if nodes else (None, None)

    def origins(self, node_ran: Ran) -> list[Node]:
        """Return the nodes from which the optimiser made this one, as far as its name shows."""
        nodes = followed(self._tensors(node_ran), self._makers, self._border)
        return sorted(nodes, key=lambda node: (node.graph, node.index))

    def _tensors(self, node_ran: Ran) -> list[str]:
        """Return the tensors that the node makes in the model, by its name or by the tensors' names."""
        for name in (node_ran.name, stem(node_ran.name)):
            for node in self._model.by_key.get(name, ()):
                return [tensor for tensor in node.outputs if tensor]
            if name in self._makers:
                return [name]
        return []

    def _by_order(self, each: Sequence[Ran]) -> dict[tuple[str, str], Node]:
        """Match the nodes without a name of a model that ONNX Runtime saved. A saved model has other indices
        than the session that saved it. If a graph has equally many nodes of an op in both, they are matched
        by index if all fit; else in the order in which they ran, each with the first node that fits."""
        if not self._model.saved:
            return {}
        ran: dict[tuple[str, str], dict[str, Ran]] = {}
        for node_ran in each:
            if node_ran.is_nameless:
                ran.setdefault((node_ran.op, node_ran.holder), {}).setdefault(
                    node_ran.name, node_ran
                )
        there: dict[tuple[str, bool], list[Node]] = {}
        for node in self._model.nodes:
            if not node.name:
                there.setdefault((node.op, bool(node.holder)), []).append(node)
        nodes_by_name: dict[tuple[str, str], Node] = {}
        for (op, holder), those in ran.items():
            nodes = there.get((op, bool(holder)), [])
            held_nodes = [node for node in nodes if node.holder == holder]
            # a holder without a name has another name here
            nodes = held_nodes if len(held_nodes) == len(those) else nodes
            if len(nodes) != len(those):
                continue
            left = {node.key: node for node in nodes}
            if len(left) == len(nodes) and all(
                name in left and _fits(left[name], one) for name, one in those.items()
            ):
                nodes_by_name |= {(name, holder): left[name] for name in those}
                continue
            for name, node_ran in those.items():
                first = next((node for node in nodes if _fits(node, node_ran)), None)
                if first is not None:
                    nodes = [node for node in nodes if node is not first]
                    nodes_by_name[name, holder] = first
        return nodes_by_name


def _fits(node: Node, node_ran: Ran) -> bool:
    return call_of_run(node, node_ran.given, node_ran.made) is not None


def _plain(op: str) -> str:
    """Return an op's name without the suffix that forks add for a layout (``QLinearConv_nhwc``)."""
    return op.removesuffix("_nhwc")


def _holders(frame: pl.DataFrame) -> pl.Series:
    """Return the name of the node in whose graph each node ran; empty in the main graph."""
    names = frame["name"]
    control = frame["op_name"].is_in(CONTROL)
    if not control.any():
        return pl.Series([""] * len(frame), dtype=pl.String)
    start = frame["start"].to_numpy()
    end = frame["end"].to_numpy()
    thread = frame["tid"].fill_null(-1).to_numpy()
    holder = np.full(len(frame), -1, np.int64)
    of_control = np.flatnonzero(control.to_numpy())
    for number in np.unique(thread[of_control]).tolist():
        mine = of_control[thread[of_control] == number]
        here = np.flatnonzero(thread == number)
        tree = nest(start[mine], end[mine])
        inner = tree.innermost(start[here])
        holder[here[inner >= 0]] = mine[inner[inner >= 0]]
        # a control node that begins at the same time is inside the enclosing one
        up = np.full(len(mine), -1, np.int64)
        up[tree.order] = np.where(tree.parent >= 0, mine[tree.order[tree.parent]], -1)
        holder[mine] = up
    taken = gather(names, np.maximum(holder, 0))
    none = pl.Series([""] * len(frame), dtype=pl.String)
    holders: pl.Series = taken.zip_with(pl.Series(holder >= 0), none)
    return holders
