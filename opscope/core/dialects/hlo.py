"""Calls of HLO instructions in domain ``xla``: what their ``op_name`` tells of layer and direction."""

from __future__ import annotations

import re
from typing import Final

from opscope.core.dialects import Reading
from opscope.core.rangetext import RangeTextError, parse
from opscope.core.schema import OpCall

DOMAIN: Final = "xla"
#: Transformations wrap a scope's name: ``transpose(jvp(net))``; ``jit(f)`` names no scope of the model.
_WRAPPED: Final = re.compile(r"(\w+)\((.*)\)\Z")
_FUNCTIONS: Final = frozenset(
    {"jit", "pjit", "xla_call", "shard_map", "pmap", "xmap", "custom_jvp"}
)
_CONTROL: Final = re.compile(
    r"(?:while|body|cond|scan|closed_call|checkpoint|remat\d*|rematted_computation|pjit|jit"
    r"|custom_jvp_call|custom_vjp_call|cond_branch|branch_\d+_fun)\Z"
)
#: What TensorFlow puts before the nodes of a gradient.
_TAPE: Final = re.compile(r"(?:gradient_tape|gradients(?:_[0-9]+)?)\Z")
_OPTIMIZERS: Final = frozenset(
    [
        "optimizer",
        "sgd",
        "adam",
        "adamw",
        "adamax",
        "adagrad",
        "adadelta",
        "adafactor",
        "rmsprop",
        "nadam",
        "lion",
        "lamb",
        "lars",
        "optax",
        "apply_updates",
        "opt_update",
    ]
)


def read(domain: str, text: str) -> Reading | None:
    """The reading of an instruction's call; None where it is none."""
    if domain != DOMAIN:
        return None
    try:
        call = parse(text)
    except RangeTextError:
        return None
    return reading(call)


def reading(call: OpCall) -> Reading:
    """The call with the direction and the layer that its path tells."""
    path = call.param("op_name")
    if not isinstance(path, str):
        return Reading("op", call=call)
    forward = call.param("forward")
    if isinstance(forward, str):  # the adapter knows what it differentiates, and that one's layer
        return Reading("op", call, "backward", layer=_layer(forward.split("/")))
    parts = path.split("/")
    return Reading("op", call, _direction(parts), layer=_layer(parts))


def _direction(parts: list[str]) -> str | None:
    if any(part.startswith("transpose(") or _TAPE.match(part) for part in parts[:-1]):
        return "backward"
    if any(part.startswith("jvp(") for part in parts):
        return "forward"
    if any(part.lower() in _OPTIMIZERS for part in parts[:-1]):
        return "optimizer"
    return None


def _layer(parts: list[str]) -> str | None:
    """The scopes of the model: without functions, transformations and the primitive, the last part."""
    kept = []
    for part in parts[:-1]:
        inner = part
        while (found := _WRAPPED.match(inner)) is not None:
            inner = "" if found.group(1) in _FUNCTIONS else found.group(2)
        if inner and not _TAPE.match(inner) and not _CONTROL.match(inner):
            kept.append(inner)
    return "/".join(kept) or None


def forward_path(path: str) -> str:
    """A backward op's path as its forward op has it: scopes alike, the primitive left out.

    ``jit(f)/transpose(jvp(net))/conv/conv_general_dilated`` → ``jit(f)/jvp(net)/conv``.
    """
    parts = [re.sub(r"^transpose\((jvp\(.*\))\)$", r"\1", part) for part in path.split("/")]
    return "/".join(parts[:-1])
