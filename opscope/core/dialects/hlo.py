"""Read HLO instructions' calls (domain ``xla``): layer and direction are in their ``op_name``."""

from __future__ import annotations

import re
from typing import Final

from opscope.core.dialects import OPTIMIZERS, Reading
from opscope.core.rangetext import RangeTextError, parse
from opscope.core.schema import OpCall

DOMAIN: Final = "xla"
#: Transformations wrap a scope's name: ``transpose(jvp(net))``; ``jit(f)`` is not a scope of the model.
_WRAPPED: Final = re.compile(r"(\w+)\((.*)\)\Z")
_FUNCTIONS: Final = frozenset(
    {"jit", "pjit", "xla_call", "shard_map", "pmap", "xmap", "custom_jvp"}
)
_CONTROL: Final = re.compile(
    r"(?:while|body|cond|scan|closed_call|checkpoint|remat\d*|rematted_computation|pjit|jit|shard_map|xla_pmap"
    r"|custom_jvp_call|custom_vjp_call|cond_branch|branch_\d+_fun)\Z"
)
#: An einsum's formula, which JAX turns into a scope: ``bthd,bshd->bhts``.
_FORMULA: Final = re.compile(r"[\w.…,]*->[\w.…]*\Z")
#: PyTorch/XLA opens a scope for the op itself.
_ATEN: Final = re.compile(r"aten__\w+(?:\.[0-9]+)?\Z")
_JOINED: Final = re.compile(r"((?:.*/)?)\((.*:.*)\)\Z")
#: Scope that TensorFlow puts before the nodes of a gradient.
_TAPE: Final = re.compile(r"(?:gradient_tape|gradients(?:_[0-9]+)?)\Z")
_OPTIMIZERS: Final = OPTIMIZERS | {"optimizer", "lars", "optax", "apply_updates", "opt_update"}


def read(domain: str, text: str) -> Reading | None:
    """Return the reading of an instruction's call; None if the text is not one."""
    if domain != DOMAIN:
        return None
    try:
        call = parse(text)
    except RangeTextError:
        return None
    return reading(call)


def reading(call: OpCall) -> Reading:
    """Return the reading of a call, with the direction and the layer from its path."""
    path = call.param("op_name")
    if not isinstance(path, str):
        return Reading("op", call=call)
    forward = call.param("forward")
    # the adapter knows the op that this op differentiates, and that op's layer
    if isinstance(forward, str):
        return Reading("op", call, "backward", layer=_layer(forward.split("/")))
    direction, layer = place(path)
    declared = call.param("direction")
    return Reading("op", call, declared if isinstance(declared, str) else direction, layer)


def place(path: str) -> tuple[str | None, str | None]:
    """Return the direction and the layer in a framework's path of an operation.

    Combined collectives have a combined path, ``jit(f)/(net/a/dot_general:net/b/add)``: the layer is the
    common part of the paths, and the direction is backward if any of them is backward.
    """
    joined = _JOINED.match(path)
    if joined is None:
        return _alone(path)
    each = [_alone(joined.group(1) + part) for part in joined.group(2).split(":")]
    directions = {direction for direction, _ in each}
    direction = next(iter(directions)) if len(directions) == 1 else None
    shared: list[str] = []
    for names in zip(*((layer or "").split("/") for _, layer in each), strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ("backward" if "backward" in directions else direction), "/".join(shared) or None


def _alone(path: str) -> tuple[str | None, str | None]:
    parts = path.split("/")
    return _direction(parts), _layer(parts)


def _direction(parts: list[str]) -> str | None:
    if any(part.startswith("transpose(") or _TAPE.match(part) for part in parts[:-1]):
        return "backward"
    if any(part.startswith("jvp(") for part in parts):
        return "forward"
    if any(part.lower() in _OPTIMIZERS for part in parts[:-1]):
        return "optimizer"
    return None


def _layer(parts: list[str]) -> str | None:
    """Return the scopes of the model: no functions, no transformations, no primitive (the last part)."""
    scopes = []
    for part in parts[:-1]:
        inner = part
        while (match := _WRAPPED.match(inner)) is not None:
            inner = "" if match.group(1) in _FUNCTIONS else match.group(2)
        if inner and not any(kind.match(inner) for kind in (_TAPE, _CONTROL, _FORMULA, _ATEN)):
            scopes.append(inner)
    return "/".join(scopes) or None
