"""Read the two files of CUPTI's activity in a recording's part: the facts, and the buffers of records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.cupti import files
from opscope.core.cupti.layouts import SLOT
from opscope.readers.errors import BadInput
from opscope.readers.recording.parts import integer, refuse_odd

#: Largest size in bytes of one line of the facts.
MAX_LINE: Final = 8 << 20
#: The most addresses whose texts are kept, and the longest text of each.
_MOST_NAMES: Final = 1 << 20
_LONGEST: Final = 1 << 15
#: Bytes of a file that are decoded at once: more is not faster, and takes more memory.
REGION: Final = 16 << 20

Note = tuple[str, str, int]


@dataclass(slots=True)
class Facts:
    """The facts of a part besides CUPTI's buffers, in the format of ``core.cupti.files``. ``kinds``: the
    kinds of records that were enabled. ``names``: by address, the texts at it, each with the number of the
    buffer from which on it holds (0: from the first)."""

    version: int
    kinds: frozenset[int] = frozenset()
    names: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    clocks: list[tuple[int, int, int]] = field(default_factory=list)
    dropped: int = 0
    threads: list[tuple[int, int]] = field(default_factory=list)
    devices: dict[int, dict[str, Any]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    nodes: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stop: int | None = None

    @property
    def changed(self) -> bool:
        """Whether the text at an address changed at a known buffer."""
        return any(len(texts) > 1 for texts in self.names.values())


def read_facts(path: Path) -> Facts:
    """Return the facts in ``cupti.jsonl``. Raises BadInput if it lacks the first line or is damaged."""
    lines = json_lines(path)
    first = next(lines, None)
    version = first.get("version") if isinstance(first, dict) else None
    if not isinstance(first, dict) or type(version) is not int or not 0 <= version < 1 << 31:
        raise BadInput(path, "it does not begin with CUPTI's version")
    if first.get("pointer_bytes", 8) != 8:
        raise BadInput(path, "its program's pointers do not have 8 bytes")
    facts = Facts(version)
    try:
        facts.kinds = frozenset(map(integer, first.get("kinds", ())))
        _add(facts, first)
        for line in lines:
            if not isinstance(line, dict):
                raise ValueError(f"{line!r:.40} is not an object")
            _add(facts, line)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(path, f"a fact of CUPTI's cannot be read: {error!r:.200}") from None
    return facts


def add_segment(facts: Facts, path: Path) -> int:
    """Add the facts of a ring's segment; return how many buffers earlier segments have. A segment from before
    CUPTI began has no such file. Raises BadInput."""
    if not path.exists():
        return 0
    before = 0
    try:
        for line in json_lines(path):
            if "buffers_before" in _object(line):
                before = max(0, integer(line["buffers_before"]))
            _add(facts, line)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(path, f"a fact of CUPTI's cannot be read: {error!r:.200}") from None
    return before


@dataclass(frozen=True, slots=True)
class Buffers:
    """The buffers of a file, one after another, behind their headers: each has the bytes [begin, end)."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    def each(self) -> Iterator[NDArray[np.uint8]]:
        """Yield the bytes of each buffer."""
        for begin, end in zip(self.begins.tolist(), self.ends.tolist(), strict=True):
            yield self.data[begin:end]

    def regions(self) -> Iterator[tuple[int, Buffers]]:
        """Yield pieces of the file that consist of complete buffers, and the number of each piece's first
        buffer. A piece has ``REGION`` bytes unless a buffer is larger. All its buffers begin at multiples of
        a slot."""
        first = 0
        while first < len(self.begins):
            base = int(self.begins[first])
            last = int(np.searchsorted(self.ends, base + REGION, side="right"))
            last = max(last, first + 1)
            begins, ends = self.begins[first:last] - base, self.ends[first:last] - base
            data = self.data[base : base + int(ends[-1])]
            region = Buffers(data, begins, ends)
            odd = bool((self.begins[first:last] % SLOT).any())
            yield first, _align(region) if odd else region
            first = last


def _align(buffers: Buffers) -> Buffers:
    """The buffers, each at a multiple of a slot; a damaged one may have moved those after it."""
    room = -(-(buffers.ends - buffers.begins) // SLOT) * SLOT
    begins = np.cumsum(room) - room
    data = np.zeros(int(room.sum()), np.uint8)
    for begin, buffer in zip(begins.tolist(), buffers.each(), strict=True):
        data[begin : begin + len(buffer)] = buffer
    return Buffers(data, begins, begins + buffers.ends - buffers.begins)


def read_buffers(path: Path, notes: list[Note]) -> Buffers:
    """Return the buffers in ``cupti.raw``; none if there is no such file. Bytes after the last complete
    header, or after a damaged one, are counted in ``notes``. Raises BadInput if the file cannot be read."""
    nothing = np.empty(0, np.int64)
    try:
        refuse_odd(path)
        size = path.stat().st_size
        if not size:
            return Buffers(np.empty(0, np.uint8), nothing, nothing)
        data = np.memmap(path, np.uint8, "r", shape=(size,))
    except FileNotFoundError:
        return Buffers(np.empty(0, np.uint8), nothing, nothing)
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None
    begins, ends = [], []
    at, head = 0, files.BUFFER.size
    content = data.data
    while at + head <= size:
        mark, valid, *_ = files.BUFFER.unpack_from(content, at)
        if mark != files.MARK:
            message = "bytes of CUPTI's records cannot be read: no buffer begins where the one before it ends"
            notes.append(("warning", message, size - at))
            break
        at += head
        begins.append(at)
        at += valid
        ends.append(min(at, size))
    else:
        if at != size:
            notes.append(("warning", "the last buffer of CUPTI's records is incomplete", 1))
    return Buffers(np.asarray(data), np.array(begins, np.int64), np.array(ends, np.int64))


def _add(facts: Facts, line: dict[str, Any]) -> None:
    """Add the facts of a line. Raises KeyError, TypeError, ValueError or OverflowError."""
    if "names" in line:
        since = integer(line.get("buffer", 0))
        for address, text in _object(line["names"]).items():
            texts = facts.names.get(int(address, 0))
            if texts is None:
                if len(facts.names) >= _MOST_NAMES:
                    continue
                texts = facts.names[int(address, 0)] = []
            elif not since:
                texts.clear()  # without a buffer, the latest text holds
            texts.append((since, str(text)[:_LONGEST]))
    if "clock" in line:
        theirs, ours, uncertain = map(integer, line["clock"])
        facts.clocks.append((theirs, ours, uncertain))
    if "dropped" in line:
        facts.dropped += max(0, integer(line["dropped"]))
    if "threads" in line:
        threads = (
            (integer(theirs), integer(system))
            for theirs, system in _object(line["threads"]).items()
        )
        facts.threads.extend(threads)
    if "devices" in line:
        for device in line["devices"]:
            facts.devices[integer(_object(device)["device"])] = device
    if "sizes" in line:
        facts.sizes |= {
            integer(kind): integer(size) for kind, size in _object(line["sizes"]).items()
        }
    if "graph_nodes" in line:
        for node in line["graph_nodes"]:
            time, thread, graph, number, original = map(integer, node)
            facts.nodes.append((time, thread, graph, number, original))
    if "note" in line:
        facts.notes.append(str(line["note"]))
    if "stop" in line:
        facts.stop = integer(line["stop"])


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is not an object")
    return value


def json_lines(path: Path) -> Iterator[Any]:
    """Yield the values of the complete lines; a killed process leaves an incomplete last one.

    Raises BadInput.
    """
    try:
        refuse_odd(path)
        file = path.open("rb")
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None
    with file:
        while line := file.readline(MAX_LINE):
            if not line.endswith(b"\n"):
                if len(line) == MAX_LINE:
                    raise BadInput(path, f"a line is longer than {MAX_LINE} bytes")
                return
            try:
                # a kernel's name may have any bytes; JSON may have lone surrogates, which UTF-8 lacks
                yield _whole(json.loads(line.decode("utf-8", "replace")))
            except (ValueError, RecursionError):
                raise BadInput(path, f"not JSON: {line[:60]!r}") from None


def _whole(value: Any) -> Any:
    """Return the value with every text made valid in UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return value
