"""PyProf's intermediate file (``net.dict``): a dictionary in Python's syntax for each kernel.

The keys and their order are those that PyProf's ``parse`` writes. A backward kernel whose forward kernel is
listed has no call, layer and trace of its own (as in PyProf's file): a reader finds these by the sequence
number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from opscope.core.pyprof.names import mod_and_op
from opscope.core.pyprof.table import PyprofTable
from opscope.core.schema import DTYPE_NAMES, OpCall, TensorSpec
from opscope.core.tables.columns import compact
from opscope.core.tables.intervals import Ints

_COLUMNS: Final = (
    "seq", "altseq", "tid", "layer", "trace", "dir", "sub", "mod", "op", "kernel", "sil", "device", "stream",
    "grid", "block",
)  # fmt: skip
#: The most ops around a launch that are examined.
_LEVELS: Final = 64
_SEQ: Final = ", seq = "
_NODE: Final = ("Backward", "_backward")
_LONG: Final = {short: name for name, short in reversed(list(DTYPE_NAMES.items()))}


def lines(table: PyprofTable, places: Ints) -> Iterator[str]:
    """Yield the dictionary of each kernel at ``places`` in the table, as a line without its end."""
    around = _Around(table)
    frame = table.rows(_COLUMNS, places).with_columns(pl.col(pl.Categorical).cast(pl.String))
    long = table.kernel_names(places)
    for place, name, row in zip(places.tolist(), long, frame.iter_rows(named=True), strict=True):
        is_back = row["dir"] == "bprop"
        forward = is_back and table.forward_of(place) >= 0
        call, seqs = around.of(place, is_back)
        numbers = [] if row["seq"] is None else [row["seq"]]
        yield str(
            {
                "kShortName": row["kernel"],
                "kDuration": row["sil"],
                "layer": [] if forward or not row["layer"] else row["layer"].split(":"),
                "trace": [] if forward or not row["trace"] else row["trace"].split(","),
                "reprMarkers": [],
                "marker": [] if forward else call,
                "seqMarker": seqs,
                "seqId": numbers,
                "subSeqId": row["sub"],
                "altSeqId": [int(number) for number in (row["altseq"] or "").split(",") if number],
                "dir": row["dir"] or "fprop",
                "mod": [row["mod"]],
                "op": [row["op"]],
                "tid": row["tid"],
                "device": row["device"],
                "stream": row["stream"],
                "grid": _extent(row["grid"]),
                "block": _extent(row["block"]),
                "kLongName": name,
            }
        )


def marker(call: OpCall) -> str:
    """Return a call's text in the form of PyProf's ranges."""
    arguments: list[dict[str, object]] = [
        {
            "name": "",
            "type": "tensor",
            "shape": tuple(leaf.shape),
            "dtype": _LONG.get(leaf.dtype, leaf.dtype),
        }
        for leaf in call.input_leaves()
        if isinstance(leaf, TensorSpec)
    ]
    arguments += [
        {"name": name, "type": type(plain).__name__, "value": plain}
        for name, plain in ((name, _plain(value)) for name, value in call.params)
    ]
    module, op = mod_and_op(call.name, False)
    # PyTorch's namespace aten is torch in Python, which is the name that PyProf uses
    module = "torch" if module in ("aten", "na") else module
    return str({"mod": module, "op": op, "args": arguments})


def _plain(value: object) -> object:
    """Return a value that Python can write as a literal."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return str(value)


class _Around:
    """The Python calls and the sequence numbers around launches, once for each op."""

    def __init__(self, table: PyprofTable) -> None:
        self._table = table
        attribution = table.attribution
        self._parent, self._meaning = attribution.parent, attribution.meaning
        ranges = attribution.trace["ranges"]
        self._codes, self._texts = compact(ranges["text"])
        self._seq = attribution.meaning.seq.column
        self._of: dict[tuple[int, int, bool], tuple[list[str], list[str]]] = {}

    def of(self, place: int, is_back: bool) -> tuple[list[str], list[str]]:
        """Return the texts of the calls, outermost first, and the texts with sequence numbers, sorted by
        number."""
        op, subject = self._table.rows_of(place)
        key = (op, subject, is_back)
        if key not in self._of:
            self._of[key] = self._texts_of(op, subject, is_back)
        return self._of[key]

    def _texts_of(self, op: int, subject: int, is_back: bool) -> tuple[list[str], list[str]]:
        calls: list[str] = []
        numbered: list[tuple[int, str]] = []
        for _ in range(_LEVELS):
            if op < 0:
                break
            text = (self._texts[self._codes[op]] or "") if op < len(self._codes) else ""
            number: Any = self._seq[op]
            if text.startswith("{"):
                calls.append(text)
            elif number is not None and number >= 0:
                numbered.append((int(number), self._name(op, text)))
            op = int(self._parent[op])
        if is_back and numbered and not any(name.endswith(_NODE) for _, name in numbered):
            number, name = numbered[-1]
            numbered[-1] = number, f"{name}Backward"
        call = (
            self._meaning.readings[int(self._meaning.reading[subject])].call
            if subject >= 0
            else None
        )
        has_arguments = call is not None and bool(call.input_leaves() or call.params)
        if call is not None and has_arguments and not calls:
            calls.append(marker(call))
        return calls[::-1], [f"{name}{_SEQ}{number}" for number, name in sorted(set(numbered))]

    def _name(self, op: int, text: str) -> str:
        if ", seq" in text:
            return text.partition(", seq")[0]
        call = self._meaning.readings[int(self._meaning.reading[op])].call
        return call.name if call is not None else text


def _extent(text: str | None) -> tuple[int, ...]:
    parts = (text or "").split(",")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()
