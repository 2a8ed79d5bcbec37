"""Read the names of MindSpore's operators (domain ``mindspore``): the kind, the layer and the direction.

    Gradients/Default/network-WithLossCell/_backbone-LeNet/c1-Conv2d/Grad_Conv2D/Conv2DBackpropFilter-op0

In graph mode a name is the path of the cells (``attribute-Class``) and the operator; a gradient's path begins
with ``Gradients`` and ends with the operator that it differentiates. In PyNative mode only the operator is
there, ``Default/Conv2D-op0`` or ``MatMul``. A text is a call with such a name, or the name alone:
``NAME(f32[32,84], ?[84,120])``. The parameters ``layer`` and ``direction`` give what the name lacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from opscope.core.dialects import MINDSPORE, OPTIMIZERS, Reading
from opscope.core.rangetext import RangeTextError, parse
from opscope.core.schema import DIRECTIONS, OpCall

DOMAIN: Final = MINDSPORE
_LIMIT: Final = 64 * 1024
_NUMBER: Final = re.compile(r"-op[0-9]+\Z")
_CELL: Final = re.compile(r"(.+)-[A-Za-z_]\w*\Z")
#: Cells around a model that trains, which a layer's path leaves out: it begins with the model's class. The
#: cells that they hold are models of their own.
WRAPPERS: Final = frozenset(
    ("WithLossCell", "WithGradCell", "WithEvalCell", "TrainOneStepCell", "TrainOneStepWithLossScaleCell",
     "_TrainGradAccuStepCell", "ForwardValueAndGrad", "_VirtualDatasetCell", "_OutputTo16", "_OutputTo32",
     "DataWrapper")
)  # fmt: skip
#: Attributes of a wrapper that a path may begin with: the path does not name the outermost cell itself.
_HELD: Final = frozenset({"network", "_network", "_backbone", "optimizer", "_loss_fn", "_op"})
#: Parts of a path that say how the operator came there, and name no cell.
_NOT_CELLS: Final = re.compile(
    r"(?:Default|Gradients|recompute_\w*|Grad_\w+|grad[A-Z]\w*(?:-expand)?)\Z"
)
#: ``Grad_Conv2D``; before 2.0 ``gradConv2D``.
_GRADIENT_OF: Final = re.compile(r"(?:Grad_|grad(?=[A-Z]))(\w+?)(?:-expand)?\Z")
_OPTIMIZERS: Final = OPTIMIZERS | {"momentum", "ftrl", "lars", "rprop", "asgd", "thor", "lazyadam",
                                   "adasumbycellwrapper", "adamoffload", "proximaladagrad"}  # fmt: skip
#: Operators that update a parameter.
_UPDATES: Final = re.compile(
    r"(?:Fused|Sparse|Fused?Sparse|Resource)*Apply[A-Z]\w*\Z|(?:FusedSparse|FusedCast|Fused)?"
    r"(?:Adam|AdamW|AdamWeightDecay|LazyAdam|Ftrl|ProximalAdagrad|SGD|Lamb\w*|Lion)\Z"
)
_BACKWARD: Final = re.compile(r"Grad(?:$|With|V[0-9]|Ext|Grad|_)|Backprop|Backward")
#: Operators that wait for the program's data.
_INPUT: Final = re.compile(r"(?:GetNext\w*|InitData(?:SetQueue)?|EndOfSequence|Dataset\w*)\Z")


@dataclass(frozen=True, slots=True)
class NodeName:
    """The facts in an operator's name: ``op``, its kind; ``cells``, (attribute, class) from the outside in;
    ``direction``, or None if the name does not say; ``gradient_of``, the kind that it differentiates;
    ``part_of``, the kind of the operator of which MindSpore made this one and others (``Expand/_Muls/Mul``).
    """

    op: str
    cells: tuple[tuple[str, str], ...]
    direction: str | None
    gradient_of: str | None
    part_of: str | None = None

    @property
    def layer(self) -> str | None:
        """The path of the cells: ``LeNet.c1``, or ``c1`` if the model's name is not known; None without."""
        return self.layer_in(None)

    def layer_in(self, root: str | None) -> str | None:
        """Return the path of the cells in a graph of the cell (or function) ``root``.

        A path begins with the model's class, as the adapter's layers do; wrappers around a model that trains
        are left out.
        """
        names = [attribute for attribute, _ in self.cells]
        if root is not None and root not in WRAPPERS:
            return ".".join([root, *names])
        for index, (attribute, kind) in enumerate(self.cells):
            if kind in WRAPPERS:
                continue
            keeps_rest = bool(kind) and attribute in _HELD
            return ".".join([kind, *names[index + 1 :]] if keeps_rest else names[index:])
        return None


@lru_cache(maxsize=65_536)
def node_name(name: str) -> NodeName:
    """Return the facts in the operator's full name."""
    *path, last = name.split("/")
    op = _NUMBER.sub("", last)
    cells: list[tuple[str, str]] = []
    gradient_of: str | None = None
    optimizer = False
    part_of = None
    if "Expand" in path:
        part_of = path[-1].removeprefix("_")
        path = path[: path.index("Expand")]
    for word in path:
        of = _GRADIENT_OF.match(word)
        if of is not None:
            gradient_of = of[1]
        if not word or _NOT_CELLS.match(word):
            continue
        cell = _CELL.match(word)
        attribute = word if cell is None else cell[1]
        kind = "" if cell is None else word[len(attribute) + 1 :]
        cells.append((attribute, kind))
        optimizer |= attribute == "optimizer" or kind.lower() in _OPTIMIZERS
    direction = None
    if _INPUT.match(op):
        direction = "input"
    elif "Gradients" in path:
        direction = "backward"
    elif optimizer or _UPDATES.match(op):
        direction = "optimizer"
    elif path[1:] and part_of is None:  # a graph's path would begin with Gradients
        direction = "forward"
    elif _BACKWARD.search(part_of or op):
        direction = "backward"
    return NodeName(op, tuple(cells), direction, gradient_of, part_of)


def read(domain: str, text: str) -> Reading | None:
    """Return the reading of an operator's range; None in other domains."""
    if domain != DOMAIN or not text or len(text) > _LIMIT:
        return None
    try:
        call = parse(text)
    except RangeTextError:
        call = OpCall(text)
    node = node_name(call.name)
    layer, direction = call.param("layer"), call.param("direction")
    params = tuple(param for param in call.params if param[0] not in ("layer", "direction"))
    if call.name != node.op and not any(key == "node" for key, _ in params):
        params += (("node", call.name),)
    return Reading(
        "op",
        replace(call, name=node.op, params=params),
        direction if direction in DIRECTIONS else node.direction,
        layer=layer if isinstance(layer, str) and layer else node.layer,
    )
