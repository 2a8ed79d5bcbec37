"""Read the programs (HLO modules) in an XPlane file, and write the operations that events name as specs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from opscope.core.hlo.calls import calls
from opscope.core.hlo.module import Module
from opscope.core.hlo.wire import WireError
from opscope.core.perf.shapes import WRITTEN
from opscope.core.rangetext import format_call
from opscope.core.schema import OpCall, ParamValue

from .space import Event, Events, Plane

_PROTO: Final = "Hlo Proto"
_SHORT: Final = ("hlo_op", "hlo_module", "program_id", "tf_op", "name", "prefix")
#: Prefixes of XLA's own annotations (xla/backends/gpu/runtime/annotation.cc), which do not name an op.
_XLA: Final = ("XlaModule:", "Thunk:")
_NUMBER: Final = re.compile(r"[.\d]+\Z")
_VERSION: Final = re.compile(r"(\w+)_version\Z")


class Written(NamedTuple):
    """XLA's record of an operation: its category, its FLOPs and the bytes that it touches."""

    category: str
    flops: int | None
    bytes: int | None


class Programs:
    """The programs of one file; each is decoded when an event first names it.

    ``written``: by program and operation, the facts in a file without programs.
    """

    def __init__(
        self, data: bytes, written: Mapping[tuple[str, str], Written] | None = None
    ) -> None:
        self._data = data
        self._written = written or {}
        self._protos: dict[str, tuple[int, int]] = {}
        self._by_number: dict[int, str] = {}
        self._by_name: dict[str, str] = {}
        self._calls: dict[str, dict[str, str]] = {}
        self._used: dict[tuple[str, str], str] = {}
        self._bad: Counter[str] = Counter()
        self._versions: dict[str, str] = {}

    def add(self, plane: Plane) -> None:
        """Register the programs in a plane; they are not decoded yet."""
        for key, value in plane.stats.items():
            match = _VERSION.match(key)
            if match and isinstance(value, str):
                self._versions[match.group(1)] = value
        for number, event in plane.events.items():
            span = event.stats.get(_PROTO)
            if isinstance(span, tuple):
                self._protos[event.name] = span
                program = event.stats.get("program_id")
                self._by_number[program if isinstance(program, int) else number] = event.name
                self._by_name.setdefault(event.name.split("(", 1)[0], event.name)

    @property
    def framework(self) -> str | None:
        """``jax`` if the file has JAX's version, else None."""
        return "jax" if "jax" in self._versions else None

    @property
    def versions(self) -> str | None:
        """The versions in the file, as JSON."""
        return json.dumps(self._versions) if self._versions else None

    def graph(self, module: str, program: int | None) -> str:
        """Return the name of an event's program: ``jit_step(56)``."""
        if program is not None and program in self._by_number:
            return self._by_number[program]
        if program:
            return f"{module}({program})"
        return self._by_name.get(module, module)

    def text(self, graph: str, operation: str, path: str | None) -> str:
        """Return the text of an operation's call; without its program, only the event's facts."""
        text_there = self._used.get((graph, operation))
        if text_there is not None:
            return text_there
        text = self._program(graph).get(operation)
        if text is None:
            name = _NUMBER.sub("", operation) or operation
            params: list[tuple[str, ParamValue]] = [("op_name", path)] if path else []
            wrote = self._written.get((graph, operation))
            if wrote is not None:
                if wrote.category == "convolution fusion":  # TPUs do products as convolutions
                    name += ":dot" if path and "dot_general" in path else ":convolution"
                params += [
                    (key, value)
                    for key, value in zip(WRITTEN, wrote[1:], strict=True)
                    if value is not None
                ]
            text = format_call(OpCall(f"hlo::{name}", (), None, tuple(params)))
            self._bad[
                "operations whose program is not in the file: their shapes are not known"
            ] += 1
        self._used[graph, operation] = text
        return text

    def _program(self, graph: str) -> dict[str, str]:
        texts_of_program = self._calls.get(graph)
        if texts_of_program is None:
            texts_of_program = self._calls[graph] = {}
            span = self._protos.get(graph)
            if span is not None:
                try:
                    module = Module.of_proto(self._data[slice(*span)])
                    texts_of_program.update(
                        (name, format_call(call)) for name, call in calls(module)
                    )
                except (WireError, KeyError, RecursionError) as error:
                    self._bad[f"program {graph[:80]} cannot be read: {error}"] += 1
        return texts_of_program

    def keys(self, events: Events, plane: Plane, count: int) -> pl.Series:
        """Each event's ``op_key``: ``jit_step(56)/dot.3``, TensorFlow's ``net/MatMul:MatMul``, or null."""
        distinct, inverse = self.distinct(events, plane, count)
        keys: list[str | None] = []
        for operation, module, program, tf_op, name, prefix in distinct:
            if operation:
                graph = self.graph(module or "", program)
                self.text(graph, operation, path(tf_op, name, prefix))
                keys.append(f"{graph}/{operation}")
            else:
                keys.append(tf_op if tf_op and not tf_op.startswith(_XLA) else None)
        return pl.Series(keys, dtype=pl.String).gather(inverse)

    def distinct(
        self, events: Events, plane: Plane, count: int
    ) -> tuple[list[tuple[Any, ...]], Any]:
        """Return the distinct names of events, and each event's index among them.

        A name is (hlo_op, hlo_module, program_id, tf_op, name, prefix). An event's missing statistics are
        taken from its row in the table of events.
        """
        columns: dict[str, pl.Series] = {}
        for title in _SHORT:
            dtype = pl.Int64 if title == "program_id" else pl.String
            own = events.stats.get(title)
            if own is None:
                own = pl.Series([None], dtype=dtype).new_from_index(0, count)
            elif title == "program_id" and own.dtype == pl.String:
                own = own.cast(pl.Int64, strict=False)
            elif title != "program_id" and own.dtype != pl.String:
                own = own.cast(pl.String)
            columns[title] = own.cast(dtype)
        if any(event.stats for event in plane.events.values()):
            numbers, index = np.unique(events.number, return_inverse=True)
            rows = [plane.events.get(int(number), Event("")) for number in numbers]
            for title, column in columns.items():
                kind = int if title == "program_id" else str
                values = [
                    value if isinstance(value := row.stats.get(title), kind) else None
                    for row in rows
                ]
                theirs = pl.Series(values, dtype=column.dtype).gather(index.reshape(-1))
                columns[title] = column.zip_with(column.is_not_null(), theirs)
        frame = pl.DataFrame(columns)
        unique = frame.unique(maintain_order=True).with_row_index("place")
        joined = frame.join(
            unique, on=list(_SHORT), how="left", nulls_equal=True, maintain_order="left"
        )
        return unique.drop("place").rows(), joined["place"]

    def specs(self) -> pl.DataFrame:
        """Return the operations that events named, as rows of ``specs``."""
        rows = [(graph, key, text) for (graph, key), text in self._used.items()]
        frame = pl.DataFrame(
            rows, schema={"graph": pl.String, "key": pl.String, "text": pl.String}, orient="row"
        )
        return frame.select(
            pl.lit(0, pl.Int32).alias("process"),
            pl.lit("xla").alias("framework"),
            "graph",
            "key",
            pl.lit(None, pl.Int64).alias("time"),
            "text",
        )

    def notes(self) -> list[tuple[str, int]]:
        """Return what could not be read: (what, how many)."""
        return list(self._bad.items())


def path(tf_op: str | None, name: str | None, prefix: str | None) -> str | None:
    """Return an operation's path. XLA:GPU writes the common part of a module's paths apart, as ``prefix``."""
    if name and prefix:
        return name if name.startswith(prefix) else f"{prefix}/{name}"
    if name and "/" in name:
        return name
    return tf_op if tf_op and not tf_op.startswith(_XLA) else None
