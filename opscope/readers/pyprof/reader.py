"""Turn PyProf's dictionaries into a trace: kernels, and the ranges that PyProf found around each launch.

A dictionary has texts of ranges and the kernel's duration, but no time: kernels are placed end to end in the
order of the file. It lists ranges by kind, not by nesting, so they are nested in a fixed order around a
launch: layers, the call trace, autograd's node, the Python calls, the ops in them. Equal ranges around
successive kernels become one. The innermost call is also distinguished by ``subSeqId``, its ops and its
kernels.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core import progress
from opscope.core.literals import NotLiteral, literal
from opscope.core.tables.columns import spread
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.rows import TWICE, is_appended
from opscope.readers.sound import LONGEST, sound_trace

#: The most bytes of a line: a call with ten thousand tensors takes half as many.
LINE_BYTES: Final = 1 << 20
#: The most texts of a kernel's ranges that are kept; no nest of ranges has more.
_MOST: Final = 64
#: The latest possible end of the placed times (ns).
_LAST: Final = 1 << 60
#: The range of an autograd node, which encloses the work that it runs.
_NODE: Final = re.compile(r"[\w:<>]*Backward\d*, seq = ")
_SEQ: Final = ", seq = "
#: Ops that are one matrix product, and names of kernels that compute one: a node makes two of them.
_PRODUCT: Final = re.compile(r"(?:aten::)?(?:mm|bmm|addmm|baddbmm), seq = ")
_GEMM: Final = re.compile(r"gemm|gemv|cutlass|nvjet|xmma")
_CONVOLUTION: Final = re.compile(r"conv(?:olution|\d)")
_COPY: Final = re.compile(r"(?:aten::)?(?:clone|copy_), seq = ")
#: Means any product, in place of a kernel's number.
_ANY_PRODUCT: Final = -1
_LAUNCH: Final = "kernel launch"
_CUT: Final = "the last line is cut off: its kernel is left out"
_WRONG: Final = "lines without a kernel's name or duration are left out"


#: The columns of ranges and of kernels; ``launch`` is the start of the launch.
_RANGE: Final = ("thread", "start", "end", "text")
_KERNEL: Final = (
    "thread", "launch", "start", "end", "name", "device", "stream", "grid", "block",
)  # fmt: skip


def _columns(names: tuple[str, ...]) -> dict[str, array[int]]:
    return {name: array("q") for name in names}


@dataclass(slots=True)
class _Rows:
    """The columns of ranges and kernels, row by row; texts are numbers in ``texts``."""

    texts: dict[str, int] = field(default_factory=dict)
    ranges: dict[str, array[int]] = field(default_factory=lambda: _columns(_RANGE))
    kernels: dict[str, array[int]] = field(default_factory=lambda: _columns(_KERNEL))
    #: For each thread: the rows of the open ranges, outermost first; the kernels of the innermost call so
    #: far; the ops in this call.
    nests: dict[int, tuple[list[int], set[int], set[int]]] = field(default_factory=dict)
    clock: int = 0

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self.texts.setdefault(text, len(self.texts))

    def add(
        self, thread: int, around: _Around, kernel: Mapping[str, int], kernel_name: str
    ) -> None:
        """Close ranges that are not around the kernel, open those that are missing, and add it. A kernel that
        the innermost call had already belongs to a new call, and so does a second product; but cuDNN tries
        one kernel several times to find the fastest."""
        numbers = [self.number(text) for text in around.texts]
        open_now, ran, ops = self.nests.setdefault(thread, ([], set(), set()))
        same = 0
        texts = self.ranges["text"]
        while same < min(len(numbers), len(open_now)) and texts[open_now[same]] == numbers[same]:
            same += 1
        ours = _ANY_PRODUCT if around.is_product and _GEMM.search(kernel_name) else kernel["name"]
        inner = set(numbers[around.lasting + 1 :])
        goes_on = around.goes_on or not ops.isdisjoint(inner)
        if not goes_on or (ours in ran and not around.tries):
            same = min(same, around.lasting)
        ops.clear()
        ops |= inner
        if same < max(len(numbers), len(open_now)):
            ran.clear()
        ran.add(ours)
        while len(open_now) > same:
            self._tick(self.ranges["end"], open_now.pop())
        for text in numbers[same:]:
            open_now.append(len(texts))
            self.clock += 1
            for column, value in zip(_RANGE, (thread, self.clock, -1, text), strict=True):
                self.ranges[column].append(value)
        self.clock += 2 + kernel["sil"]
        row = {
            **kernel,
            "thread": thread,
            "launch": self.clock - kernel["sil"] - 1,
            "start": self.clock - kernel["sil"],
            "end": self.clock,
        }
        for key, values in self.kernels.items():
            values.append(row[key])

    def close(self) -> None:
        """Close all ranges."""
        for open_now, _, _ in self.nests.values():
            while open_now:
                self._tick(self.ranges["end"], open_now.pop())

    def _tick(self, ends: array[int], row: int) -> None:
        self.clock += 1
        ends[row] = self.clock


@dataclass(frozen=True, slots=True)
class _Around:
    """The texts of the ranges around a launch, outermost first.

    ``lasting``: how many of them stay open when the innermost call is made again. ``goes_on``: whether the
    kernel belongs to the same call as the previous kernel, or PyProf gives no number that would decide this.
    ``is_product``: whether the innermost range is a matrix product; ``tries``: whether it is a convolution.
    """

    texts: tuple[str, ...]
    lasting: int
    goes_on: bool
    is_product: bool
    tries: bool


def read(path: Path) -> Trace:
    """Return the trace in a file of PyProf's dictionaries. Raises BadInput."""
    rows, cut, wrong, again = _Rows(), 0, 0, _lines_again(path)
    for dictionary in islice(_dictionaries(path), again or None):
        if dictionary is None:
            cut += 1
            continue
        kernel = _kernel(dictionary, rows)
        if kernel is None or rows.clock + kernel["sil"] > _LAST:
            wrong += 1
            continue
        name = str(dictionary.get("kShortName"))
        rows.add(_whole(dictionary.get("tid")) or 0, _around(dictionary), kernel, name)
    count = len(rows.kernels["name"])
    if not count:
        raise BadInput(path, "no line has a kernel's name and duration (kShortName, kDuration)")
    rows.close()
    trace = sound_trace(_tables(rows), _origin(path))
    trace.note("info", "PyProf does not say when kernels ran: they are laid end to end", count)
    for message, how_many in ((_CUT, cut), (_WRONG, wrong), (TWICE, again)):
        if how_many:
            trace.note("warning", message, how_many)
    return trace


def _lines_again(path: Path) -> int:
    """Return how many lines, which are numbered, a file has again because it was appended to itself."""
    try:
        with path.open("rb") as file:
            hashes = pl.Series([*map(hash, iter(lambda: file.readline(LINE_BYTES), b""))])
    except OSError as error:
        raise BadInput(path, error.strerror or type(error).__name__) from None
    return len(hashes) // 2 if is_appended(hashes) else 0


def _dictionaries(path: Path) -> Iterator[dict[Any, Any] | None]:
    """Yield the dictionary of each line; None for a last line that its writer did not finish."""
    try:
        with path.open("rb") as file:
            number = position = 0
            while line := file.readline(LINE_BYTES + 1):
                number, position = number + 1, position + len(line)
                if len(line) > LINE_BYTES:
                    raise BadInput(path, f"line {number:,} has more than {LINE_BYTES:,} bytes")
                text = line.decode("utf-8", "replace").strip()
                if not text:
                    continue
                try:
                    value = literal(text)
                    if not isinstance(value, dict):
                        raise NotLiteral("it is no dictionary")
                except NotLiteral as error:
                    if not line.endswith(b"\n") and number > 1:
                        yield None
                        return
                    raise BadInput(
                        path, f"line {number:,} is no dictionary of PyProf's parse: {error}"
                    ) from None
                yield value
                progress.read_to(path, position)
    except OSError as error:
        raise BadInput(path, error.strerror or type(error).__name__) from None


def _kernel(dictionary: Mapping[Any, Any], rows: _Rows) -> dict[str, int] | None:
    """Return the kernel of a dictionary, texts as numbers; None without a name or a duration."""
    name = dictionary.get("kLongName") or dictionary.get("kShortName")
    duration = _whole(dictionary.get("kDuration"))
    if not isinstance(name, str) or not name or duration is None or duration > LONGEST:
        return None
    return {
        "sil": duration,
        "name": rows.number(name),
        **{key: _index(dictionary.get(key)) for key in ("device", "stream")},
        **{key: rows.number(_extent(dictionary.get(key))) for key in ("grid", "block")},
    }


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _index(value: object) -> int:
    number = _whole(value)
    return -1 if number is None or number >= 1 << 31 else number


def _extent(value: object) -> str:
    """Return a grid or block as ``4,2,1``; an empty text if it is not known."""
    parts = value if isinstance(value, (tuple, list)) else ()
    known = len(parts) == 3 and all(_whole(part) is not None for part in parts)
    return ",".join(map(str, parts)) if known else ""


def _around(dictionary: Mapping[Any, Any]) -> _Around:
    """Return the ranges around a launch."""
    layers = [f"layer:{name}" for name in _words(dictionary, "layer")]
    lines = _words(dictionary, "trace")
    trace = [str({"traceMarker": lines})] if lines else []
    numbered = [text for text in _words(dictionary, "seqMarker") if _SEQ in text]
    nodes = [text for text in numbered if _NODE.match(text)]
    calls = _words(dictionary, "marker")
    # PyProf sorts them by name: the others call a copy
    inner = sorted(
        (text for text in numbered if text not in nodes), key=lambda text: bool(_COPY.match(text))
    )
    # PyProf names a launch outside all of these by a range of the user's
    other = (
        [] if calls or numbered else [text for text in _words(dictionary, "op") if text != "na"][:1]
    )
    outer = [*layers, *trace, *_words(dictionary, "reprMarkers"), *nodes]
    texts = [*outer, *calls, *other, *inner][:_MOST]
    lasting = min(len(outer) + max(len(calls) - 1, 0), len(texts))
    goes_on = bool(_whole(dictionary.get("subSeqId"))) or not dictionary.get("seqId")
    innermost = texts[-1] if texts else ""
    is_product, tries = _PRODUCT.match(innermost), _CONVOLUTION.search(innermost)
    return _Around(tuple(texts), lasting, goes_on, is_product is not None, tries is not None)


def _words(dictionary: Mapping[Any, Any], key: str) -> list[str]:
    value = dictionary.get(key)
    return (
        [word for word in value if isinstance(word, str) and word]
        if isinstance(value, list)
        else []
    )


def _tables(rows: _Rows) -> dict[str, pl.DataFrame]:
    texts = list(rows.texts)
    kernels = {name: np.frombuffer(values, np.int64) for name, values in rows.kernels.items()}
    ranges = {
        name: np.frombuffer(values, np.int64) if len(values) else np.empty(0, np.int64)
        for name, values in rows.ranges.items()
    }
    correlation = pl.Series("correlation", np.arange(1, len(kernels["name"]) + 1))

    def text(codes: np.ndarray[Any, Any]) -> pl.Series:
        return spread("text", texts, codes)

    def or_null(codes: np.ndarray[Any, Any], empty: int) -> pl.Series:
        column = pl.Series(codes)
        return column.set(column == empty, None)

    extents = {
        name: text(kernels[name]).set(text(kernels[name]).cast(pl.String) == "", None)
        for name in ("grid", "block")
    }
    devices = {name: or_null(kernels[name], -1) for name in ("device", "stream")}
    process = pl.lit(0, pl.Int32).alias("process")
    return {
        "processes": pl.DataFrame({"process": [0]}, schema={"process": pl.Int32}),
        "clocks": pl.DataFrame(
            {"clock_domain": [0], "kind": ["unknown"]},
            schema={"clock_domain": pl.Int32, "kind": pl.String},
        ),
        "devices": pl.DataFrame({"device": devices["device"].drop_nulls().unique().sort()}).select(
            process, pl.col("device").cast(pl.Int32)
        ),
        "ranges": pl.DataFrame(
            {
                "id": np.arange(len(ranges["text"])),
                "thread": ranges["thread"],
                "start": ranges["start"],
                "end": ranges["end"],
                "text": text(ranges["text"]),
            }
        ).with_columns(process, pl.lit("pushpop", pl.Categorical).alias("kind")),
        "calls": pl.DataFrame(
            {"thread": kernels["thread"], "start": kernels["launch"], "end": kernels["launch"] + 1}
        ).with_columns(correlation, process, pl.lit(_LAUNCH, pl.Categorical).alias("name")),
        "kernels": pl.DataFrame(
            {
                **devices,
                "start": kernels["start"],
                "end": kernels["end"],
                "name": text(kernels["name"]),
                **extents,
            }
        ).with_columns(correlation, process, pl.col("device").cast(pl.Int32)),
    }


def _origin(path: Path) -> dict[str, Any]:
    return {
        "format": "pyprof",
        "tool": "PyProf",
        "paths": [str(path)],
        "times": "of kernels as PyProf has their durations, laid end to end in the order of the file",
        "gpu": True,
    }
