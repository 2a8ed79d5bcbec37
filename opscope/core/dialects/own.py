"""Read opscope's own range texts: domains ``opscope.*``, and those in which the Kineto reader writes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from opscope.core.dialects import Reading, Role, user_layer
from opscope.core.rangetext import DOMAIN_TEST, RangeTextError, parse
from opscope.core.schema import CAPTURE_DOMAIN, DIRECTIONS, INPUT_DOMAIN, READ_DOMAIN, OpCall

_STEP: Final = re.compile(r"step (-?[0-9]{1,18})\Z")
#: Domains in which a call has its layer as a parameter: no range is around a node of a session.
_WITH_LAYERS: Final = ("opscope.onnxruntime",)
#: Shared, as a server has a text for each of its steps.
USER: Final = Reading("user")
_ROLES: Final = {"spec": "spec", "result": "result"}
#: Python's call stack as Kineto records it: ``train.py(42): forward``
_PYTHON_FRAME: Final = re.compile(r"(.{1,4096}?)\(([0-9]{1,9})\): (.*)\Z", re.DOTALL)
#: What follows a frame whose caller's line is known: `` <- train.py:42``.
CALLED_FROM: Final = " <- "
_LINE: Final = re.compile(r"(.{1,4096}):([0-9]{1,9})\Z", re.DOTALL)


def is_own(domain: str | None) -> bool:
    """Return whether texts of this domain are in opscope's form."""
    return domain is not None and (
        domain.startswith("opscope.") or domain in ("kineto", "user", "python")
    )


def read(domain: str, category: str | None, text: str) -> Reading | None:
    """Return the reading of a text in one of opscope's domains."""
    if category == "layer":
        return Reading("layer", layer=text)
    if category == "step":
        match = _STEP.match(text)
        return Reading("step", step=int(match.group(1)) if match else None)
    if category == "phase":
        return Reading("phase")
    if category == "graph":
        return Reading("graph", graph=text)
    if category in ("spec", "result"):
        return Reading(_ROLES[category])  # type: ignore[arg-type]
    if domain == INPUT_DOMAIN:
        return _as("loader", text, "input")
    if domain == READ_DOMAIN:
        # the text of a refused read is no call
        return _as("read", text) if "(" in text else Reading("note")
    if domain == CAPTURE_DOMAIN:
        return Reading("note")
    if text == DOMAIN_TEST:  # a range in traces of an earlier opscope; now it is a mark
        return Reading("note")
    if domain == "python":
        own, _, line = text.partition(CALLED_FROM)
        match, called = _PYTHON_FRAME.match(own), _LINE.match(line)
        return Reading(
            "source",
            frames=((match.group(1), int(match.group(2))),) if match else (),
            called_from=(called.group(1), int(called.group(2))) if called else None,
        )
    if domain in ("user", "opscope.user") and category not in DIRECTIONS:
        return user_layer(text) or USER
    direction = category if category in DIRECTIONS else None
    try:
        call = parse(text)
    except RangeTextError:
        # a name that may have a spec
        return Reading("user", direction=direction, key=text)
    layer = call.param("layer") if domain in _WITH_LAYERS else None
    if isinstance(layer, str):
        params = tuple(param for param in call.params if param[0] != "layer")
        return Reading("op", replace(call, params=params), direction, layer or None)
    return Reading("op", call=call, direction=direction)


def _as(role: Role, text: str, direction: str | None = None) -> Reading:
    try:
        call = parse(text)
    except RangeTextError:
        call = OpCall(text)
    return Reading(role, call=call, direction=direction)
