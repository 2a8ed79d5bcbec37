"""Turn the host rows of a Kineto trace into ranges with their domain, category and text."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.communication import is_torch
from opscope.core.schema import COMPILE
from opscope.core.tables.columns import spread
from opscope.core.tables.intervals import nest
from opscope.core.tables.lanes import lanes_of

from .columns import NONE, nullable
from .links import Placed, forward_threads
from .ops import op_text

_STEP = re.compile(r"ProfilerStep#([0-9]{1,18})\Z")
_BACKWARD = re.compile(
    r"autograd::engine::|torch::autograd::|.*Backward[0-9]*\Z|<backward op>\Z", re.S
)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
#: Inductor's own annotation around a graph that it compiled, which is not a user range.
_COMPILERS: Final = "## Call CompiledFxGraph"
#: How the names of TorchDynamo's steps of a compilation end: ``backend_compile`` occurs with each ending.
_COMPILING: Final = re.compile(r"(.{1,200}?)(?: \(dynamo_timed\)\Z|_data: .{0,200}?compile_id=)")
_DOMAINS: Final = ("kineto", "user", "python", "runtime")
_CATEGORIES: Final = ("backward", "optimizer", "input", "communication", "step", "layer", "phase")
_DIRECTION: Final = {name: code for code, name in enumerate(_CATEGORIES)}


def ranges(placed: Placed) -> pl.DataFrame:
    """The ``ranges`` table."""
    columns = placed.columns
    frames = [_host(placed, kind) for kind in ("op", "user", "python") if len(columns[kind])]
    if not frames:
        return pl.DataFrame({"id": []}, schema={"id": pl.Int64})
    return pl.concat(frames).with_row_index("id").cast({"id": pl.Int64})


def _host(placed: Placed, kind: str) -> pl.DataFrame:
    columns = placed.columns
    rows = columns[kind]
    name = rows.column("name", np.int32)
    text, texts = rows.column("text", np.int32), list(columns.texts)
    names = list(columns.names)
    timed = (label for label in names if "(dynamo_timed)" in label or "compile_id=" in label)
    matches = filter(None, map(_COMPILING.match, timed))
    compiling = {text for match in matches for text in match.group(0, 1)}
    domain, category, own_text = _meanings(kind, names, name, compiling)
    replaced = own_text[name]
    text = np.where(replaced >= 0, replaced + len(texts), text)
    labels = [names[own] if own >= 0 else "" for own in own_text.tolist()]
    texts += [_label(kind, label) if label else "" for label in labels]
    bare, seen = np.flatnonzero(text < 0), np.zeros(len(names), bool)
    seen[name[bare]] = True
    text[bare] = (np.cumsum(seen) - 1 + len(texts))[name[bare]]
    texts += [op_text(names[n], b"", b"", b"", b"", b"") for n in np.flatnonzero(seen).tolist()]
    direction = category[name]
    process, thread = placed.process(rows), placed.thread(rows)
    start, end, of_range = placed.start(rows), placed.end(rows), domain[name]
    compiles = np.flatnonzero(np.array([label in compiling for label in names], bool)[name])
    of_range[compiles] = _DOMAINS.index("runtime")
    if kind == "op" and len(compiles):  # the outermost is a phase, what is inside is no op
        threads = lanes_of(process[compiles], thread[compiles])
        for _, here in threads.rows(np.ones(len(compiles), bool)):
            mine = compiles[here]
            inside = nest(start[mine], end[mine])
            outer = mine[inside.order[inside.parent < 0]]
            of_range[outer], direction[outer], text[outer] = 0, _DIRECTION["phase"], len(texts)
        texts.append(COMPILE)
    forward = np.full(len(name), NONE)
    if kind == "op":
        direction = np.where(rows.column("fwd") > 0, _DIRECTION["backward"], direction)
        forward = forward_threads(columns, placed.number, process, thread, rows)
    return pl.DataFrame(
        {
            "process": process,
            "thread": thread,
            "end_thread": thread,
            "start": start,
            "end": end,
            "domain": spread("domain", _DOMAINS, of_range),
            "category": spread("category", _CATEGORIES, direction),
            "text": spread("text", texts, text),
            "seq": nullable(rows.column("seq")),
            "fwd_thread": nullable(forward),
            "attrs": _records(placed, placed.attrs(rows), name),
            "kind": spread("kind", ["pushpop"], np.zeros(len(name), np.int32)),
        }
    )


def _records(placed: Placed, attrs: pl.Series, name: NDArray[np.int32]) -> pl.Series:
    """Return the attributes; a collective without a record has that of the only process group, if any."""
    if placed.only_group is None:
        return attrs
    talks = np.array([is_torch(label) for label in placed.columns.names], bool)[name]
    only = pl.Series([placed.only_group], dtype=pl.String).new_from_index(0, len(attrs))
    filled: pl.Series = attrs.zip_with(pl.Series(~talks) | attrs.is_not_null(), only)
    return filled


def _meanings(
    kind: str, names: list[str], used: NDArray[np.int32], compiling: set[str]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """For each distinct name: its domain, its category, and the name's own number if the name is the text
    of the range (else -1)."""
    domain = np.zeros(len(names), np.int32)
    category = np.full(len(names), -1, np.int32)
    text = np.full(len(names), -1, np.int32)
    for code in np.unique(used).tolist():
        name = names[code]
        category_name = category_of(kind, name)
        if category_name is not None:
            category[code] = _DIRECTION[category_name]
        if kind == "python":
            domain[code], text[code] = 2, code
        elif name in compiling or (kind == "user" and name.startswith(_COMPILERS)):
            domain[code], text[code] = 3, code
        elif category_name == "step" or (kind == "user" and category_name is None):
            domain[code], text[code] = 1, code
    return domain, category, text


def category_of(kind: str, name: str) -> str | None:
    if kind == "python":
        return "layer" if name.startswith("nn.Module: ") else None
    if _STEP.match(name):
        return "step"
    if name.startswith("Optimizer."):
        return "optimizer"
    if name.startswith("enumerate(DataLoader)"):
        return "input"
    if is_torch(name):
        return "communication"
    return "backward" if kind == "op" and _BACKWARD.match(name) else None


def _label(kind: str, name: str) -> str:
    """The text of a range that is not an op, without addresses, which differ between runs."""
    step = _STEP.match(name)
    if step and kind != "python":
        return f"step {int(step[1])}"
    return _ADDRESS.sub("", name) if kind == "python" else name
