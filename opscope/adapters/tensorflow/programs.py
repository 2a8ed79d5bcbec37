"""Emit a spec of each operation of each program that XLA compiles from functions.

XLA keeps the optimised HLO of its programs for TensorFlow's profiler. An empty profile contains all of
them and takes some milliseconds. Compiling a function again to get its HLO would take as long as before.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tensorflow.python.profiler import profiler_v2

from opscope.core.capture.emit import Emitter
from opscope.core.hlo.calls import calls
from opscope.core.hlo.module import Instruction, Module
from opscope.core.hlo.origins import inside
from opscope.core.hlo.wire import WireError, fields, number, spans, text
from opscope.core.rangetext import format_spec
from opscope.core.schema import OpCall

from .graphs import Origins
from .nodes import DIRECTION, FORWARD_GRAPH, FUNCTION
from .running import GraphRanges

_log = logging.getLogger(__name__)

#: The profile's plane that has the programs, and the statistic that contains a program.
_PLANE: Final = "/host:metadata"
_PROTO: Final = "Hlo Proto"
#: Parameters that an operation takes from the graph node that it was compiled from.
_INHERITED: Final = ("forward", FORWARD_GRAPH, "layer", DIRECTION)
#: Nodes to list for an operation that does the work of several.
_MAX_FUSED: Final = 16
#: Characters that XLA writes as ``_`` in a program's name.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_.-]")


class Programs:
    """Emits each program's specs once a capture, after the first run that showed new operations."""

    def __init__(self, emitter: Emitter, shapes: bool) -> None:
        self._emitter = emitter
        self._shapes = shapes
        self._emitted: set[str] = set()
        self._last_count = 0

    def begin(self) -> None:
        """Begin a new capture: it has no program's specs yet."""
        self._emitted.clear()
        self._last_count = -1

    def emit_new(self, ranges: GraphRanges, origins: Origins) -> None:
        """Emit the specs of new programs. ``origins`` belong to the graph that has just run."""
        count = ranges.operations
        if count == self._last_count:
            return
        self._last_count = count
        try:
            for name, module in programs():
                if name not in self._emitted:
                    self._emitted.add(name)
                    self._emit(name, module, origins)
        except WireError as error:
            _log.warning("opscope: the HLO of a compiled program cannot be read: %s", error)
        finally:
            # the profiler in programs() has turned annotations off
            ranges.before_run(operations=True)

    def _emit(self, name: str, module: Module, origins: Origins) -> None:
        function = _function(name, origins)
        nodes = origins.get(function or "", {})
        instructions = {
            instruction.name: instruction for instruction in module.instructions.values()
        }
        for key, call in calls(module):
            described = call if self._shapes else replace(call, inputs=(), outputs=None)
            if function is not None:
                described = _traced(described, function, nodes, _works(module, instructions[key]))
            self._emitter.mark(self._emitter.prepare(format_spec(name, key, described), "spec"))


def _function(program: str, origins: Origins) -> str | None:
    """Return the function of a program such as ``a_inference_step_12__XlaMustCompile_….2(7)``, or None.

    If the function's name does not begin with a letter, XLA replaces its first character with one.
    """
    for function in origins:
        written = _UNUSUAL.sub("_", function)
        if program[1:].startswith((f"{written[1:]}__", f"{written[1:]}.", f"{written[1:]}(")):
            return function
    return None


def _works(module: Module, instruction: Instruction) -> tuple[str, ...]:
    """Return the nodes whose work an operation does, its own first, without duplicates."""
    parts = (instruction, *inside(module, instruction))
    return tuple(dict.fromkeys(part.op_name for part in parts if part.op_name))


def _traced(
    call: OpCall, function: str, nodes: dict[str, OpCall], works: tuple[str, ...]
) -> OpCall:
    """Return the call with the parameters and frames of the node that it was compiled from."""
    works = tuple(name for name in works if name in nodes)
    path = call.param("op_name")
    if works and path not in works and (path is None or call.param("op_name_of") is not None):
        # The path came from a neighbouring instruction: the search does not know the graph's nodes, so it
        # ignores names without scopes.
        path = works[0]
        rest = (param for param in call.params if param[0] not in ("op_name", "op_name_of"))
        call = replace(call, params=(*rest, ("op_name", path)))
    origin = nodes.get(str(path))
    params = [*call.params, (FUNCTION, function)]
    if origin is not None:
        params += [(name, value) for name, value in origin.params if name in _INHERITED]
    others = tuple(name for name in works if name != path)
    if others and (origin is None or origin.param("forward") is None):
        params.append(("fused", others[:_MAX_FUSED]))
    frames = call.frames or (() if origin is None else origin.frames)
    # the frames of the node itself are those of the tape
    if origin is not None and origin.param("forward") is not None:
        frames = origin.frames or frames
    return replace(call, params=tuple(params), frames=frames)


def programs() -> Iterator[tuple[str, Module]]:
    """Yield (name, module) of the programs that XLA holds now; none while another profiler runs.

    A name is written like ``jit_step(56)``.
    """
    with tempfile.TemporaryDirectory(prefix="opscope-") as folder:
        options = {"host_tracer_level": 0, "python_tracer_level": 0, "device_tracer_level": 0}
        # Without the lock, the program's own profiler could try to start meanwhile, and fail.
        with profiler_v2._profiler_lock:
            if profiler_v2._profiler is not None:
                _log.info("opscope: XLA's programs are not available: another profiler is running")
                return
            try:
                session = profiler_v2._pywrap_profiler.ProfilerSession()
                session.start(folder, options)
                session.export_to_tb()
            except Exception as error:  # noqa: BLE001 - TensorFlow raises many kinds
                # a profiler that was not started from Python is running
                _log.info("opscope: XLA's programs are not available: %s", error)
                return
        for file in Path(folder).rglob("*.xplane.pb"):
            yield from _programs(file.read_bytes())


def _programs(data: bytes) -> Iterator[tuple[str, Module]]:
    """Yield the programs in an XSpace: planes (1) with a name (2), events (4) and statistics' names (5)."""
    for span in spans(fields(data, 0, len(data)), 1):
        plane = fields(data, *span)
        if text(data, plane, 2) != _PLANE:
            continue
        titles = dict(_entries(data, spans(plane, 5)))
        for plane_index, event in _entries(data, spans(plane, 4)):
            message = fields(data, *event)
            name = text(data, message, 2).partition("(")[0]
            for statistic_span in spans(message, 5):
                statistic = fields(data, *statistic_span)
                title = titles.get(number(statistic, 1))
                value = spans(statistic, 6)
                if title and value and text(data, fields(data, *title), 2) == _PROTO:
                    yield f"{name}({plane_index})", Module.of_proto(data[slice(*value[-1])])


def _entries(data: bytes, maps: list[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the (key, message) entries of a map whose keys are numbers."""
    for span in maps:
        entry = fields(data, *span)
        fields_of_entry = spans(entry, 2)
        if fields_of_entry:
            yield number(entry, 1), fields_of_entry[-1]
