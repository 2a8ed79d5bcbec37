"""Decode Kineto's JSON into lists of events, a few megabytes at a time, from a file of any size.

The events are an array, ``traceEvents``, inside an object, or an array alone, or a JSON object a line; a file
may have several of these, one after another, and may end early. The file is never completely in memory:
blocks of bytes are cut between two events, and each block is decoded into typed structs, which live until the
next block. Where to cut is a guess (the last ``}, {`` of a block) that decoding confirms: a block that was
cut inside an event, or that contains the array's end, is not a JSON array. Only then are brackets counted.
"""

from __future__ import annotations

import queue
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from opscope.core import progress
from opscope.readers import foreign
from opscope.readers.errors import BadInput, Truncated
from opscope.readers.heads import PACKED, ZSTD_MODULE

from .events import decode_events, repair

#: Bytes decoded at a time. Measured: 1 MB is up to 10 % slower, 4 MB no faster, 32 MB uses 300 MB more.
BLOCK: Final = 2 << 20
#: Largest size in bytes of the object's keys before the events, and of a single event.
LARGEST: Final = 64 << 20

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
#: How a JSON array begins.
_LIST: Final = re.compile(
    rb'\[\s*(?:[{\["\]]|(?:-?[0-9][0-9.eE+-]*|true|false|null)\s*(?:[,\]]|\Z)|\Z)'
)
#: How an array of arrays of events, or of objects that hold them, begins.
_NESTED: Final = re.compile(rb'\[\s*(?=\[\s*\{|\{(?:(?!"ph"\s*:).)*?"traceEvents"\s*:)', re.DOTALL)
#: After this many bytes without an event, an array is assumed to be one of events.
_UNSURE: Final = 1 << 16
#: Two objects with no comma between.
_TOUCHING: Final = re.compile(rb"\}[ \t]*(?=\{)")
#: Keys that name the process and the run of a trace.
_IDENTITY: Final = frozenset({"distributedInfo", "baseTimeNanoseconds", "trace_id", "traceName"})
# A string without an end also matches; otherwise it would be searched for again from each quote inside it.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_GAP = re.compile(rb"[\s,]*")
_GZIP, _ZSTD = PACKED
_SPACE = b" \t\r\n"


@dataclass(slots=True)
class KinetoFile:
    """A file's events and the data beside them; ``meta`` is complete once ``blocks`` is exhausted.

    Other formats of events in one array are read by their own ``decode`` and ``mend``. If a file ends early,
    the events before its end are read, and ``truncated`` says where it ends. ``unclosed``: the file is only
    an array, without its closing bracket, which the trace-event format allows. ``arrays``: how many arrays
    were read.
    """

    path: Path
    decode: Callable[[bytes], list[Any] | None] = decode_events
    mend: Callable[[bytes], bytes] = repair
    #: Guesses where the last complete event of a block ends; None: before the comma of its last ``}, {``.
    gap: Callable[[bytes], int] | None = None
    what: str = "a Kineto trace"
    truncated: str = ""
    unclosed: bool = False
    arrays: int = 1
    #: Bytes after the JSON that are not JSON, as a crashed writer leaves them.
    unread: int = 0
    meta: dict[str, Any] = field(default_factory=dict)
    skipped: int = 0
    repaired: int = 0
    #: The JSON array of the block that was yielded last, for callers that decode it again.
    body: bytes = b""

    def blocks(self) -> Iterator[list[Any]]:
        """Yield the events, a block at a time. Raises BadInput if the file is not such a trace."""
        source = _Prefetched(self.path)
        try:
            yield from self._blocks(source)
        finally:
            source.close()

    def _blocks(self, source: Iterator[bytes]) -> Iterator[list[Any]]:
        head, rest = self._head(source, b"")
        if head is None:
            yield from self._lines(source, rest)
            return
        while True:
            ended = False
            while not ended:
                cut = (self.gap or last_gap)(rest)
                events = self._decode(rest[:cut]) if cut else None
                if cut and events is None and self.mend is not repair:
                    # if the writer did not escape a name, its quotes hide where events end
                    events = self._decode(self.mend(rest[:cut]))
                    self.repaired += events is not None
                if cut and events is None:  # cut inside an event, or beyond the array, or damaged
                    cut, ended = _scan(self.path, rest)
                    events = self._decode_damaged(rest[:cut]) if cut else None
                if events is not None:
                    yield events
                match = _GAP.match(rest, cut)
                rest = rest[match.end() if match else cut :]
                if ended:
                    break
                if len(rest) > LARGEST:
                    raise BadInput(self.path, f"an event is larger than {LARGEST >> 20} MB")
                more = self._more(source)
                if more:
                    rest += more
                    continue
                cut, ended = _scan(self.path, rest)
                if cut:
                    yield self._decode_damaged(rest[:cut])
                rest = rest[cut:]
                if not ended:
                    self._end_early(head, rest.strip(_SPACE + b","))
                    return
            following = self._tail(head, rest, source)
            if following is None:
                return
            self.arrays += 1
            head, rest = following

    def _more(self, source: Iterator[bytes]) -> bytes:
        """Return the next bytes; none at the end of the file, or if its compression ends early."""
        try:
            return next(source, b"")
        except Truncated as error:
            self.truncated = error.what
            return b""

    def _end_early(self, head: bytes, rest: bytes) -> None:
        """Note that the file ends before its array does; ``rest``: the event in which the file ends."""
        if rest:
            self.truncated = self.truncated or "truncated: the JSON ends inside an event"
        elif head:
            self.truncated = self.truncated or "truncated: the JSON ends inside traceEvents"
        else:
            self.unclosed = True
        if head:
            self._understand(head, b"}")

    def _lines(self, source: Iterator[bytes], rest: bytes) -> Iterator[list[Any]]:
        """Yield the events of a file that has one per line."""
        while True:
            more = self._more(source)
            cut = rest.rfind(b"\n") + 1 if more else len(rest)
            lines = [line.strip(_SPACE + b",") for line in rest[:cut].split(b"\n")]
            if not more and not lines[-1].endswith(b"}") and lines[-1]:
                self.truncated = self.truncated or "truncated: the JSON ends inside an event"
                del lines[-1]
            body = b",".join(filter(None, lines))
            if body:
                events = self._decode(body) or self._decode(_TOUCHING.sub(b"},", body))
                yield self._decode_damaged(body) if events is None else events
            rest = rest[cut:] + more
            if not more:
                return
            if len(rest) > LARGEST:
                raise BadInput(self.path, f"a line is larger than {LARGEST >> 20} MB")

    def _head(self, source: Iterator[bytes], text: bytes) -> tuple[bytes | None, bytes]:
        """Return the text before the events, and the text from the events on; the first is None if each
        line is an event."""
        while True:
            more = self._more(source)
            text += more
            if not text.lstrip(_SPACE + b"\xef\xbb\xbf") and not more:
                raise BadInput(self.path, self.truncated or "the file is empty")
            start = text.lstrip(_SPACE + b"\xef\xbb\xbf")
            if start[:1] == b"[":  # the array alone, as other tools save it
                if not _LIST.match(start):
                    why = "begins with a bracket and is no JSON: lines of a log, or damaged"
                    raise BadInput(self.path, why)
                nested = _NESTED.match(start)
                if nested:
                    text = start[nested.end() :]
                elif not more or b'"ph"' in start or len(start) > _UNSURE:
                    return b"", start[1:]
                continue
            match = _ARRAY.search(text)
            if match:
                return text[: match.start()], text[match.end() :]
            if _is_line_of_event(text):
                return None, text
            if not more or len(text) > LARGEST:
                what = foreign.of_json(text) or f"not {self.what}: JSON without traceEvents"
                raise BadInput(self.path, self.truncated or what)

    def _tail(
        self, head: bytes, rest: bytes, source: Iterator[bytes]
    ) -> tuple[bytes, bytes] | None:
        """Read the text after an array: ``head`` is the text before its events, ``rest`` the text from its
        bracket. Returns head and rest of a following array, or None at the file's end."""
        text = rest[rest.index(b"]") + 1 :]
        if not head:
            return self._next(source, text)
        looked = 0
        while True:
            if len(text) >= 2 * looked:  # limits all searches together to twice the text
                looked = len(text)
                found = _array_or_end(text)
                if found:
                    break
            if len(text) > LARGEST:
                raise BadInput(self.path, "more JSON after traceEvents than any trace has")
            more = self._more(source)
            if not more:
                found = _array_or_end(text)
                break
            text += more
        if found is None:
            self.truncated = self.truncated or "truncated: the JSON ends before its closing brace"
            self._understand(head, text.rstrip(_SPACE) + b"}") or self._understand(head, b"}")
            return None
        at, closed = found
        if not closed:  # the same object has a second array
            return _join(head, text[:at]), text[text.index(b"[", at) + 1 :]
        if not self._understand(head, text[:at]):
            raise BadInput(self.path, "not valid JSON around traceEvents")
        return self._next(source, text[at:])

    def _next(self, source: Iterator[bytes], text: bytes) -> tuple[bytes, bytes] | None:
        """Return head and rest of another array after ``text``, or None; bytes that are not JSON are
        counted."""
        while not (text := text.lstrip(_SPACE + b"\0,]")):
            text = self._more(source)
            if not text:
                return None
        if text[:1] in (b"[", b"{"):
            try:
                head, rest = self._head(source, text)
            except BadInput:
                head = None
            if head is not None:
                return head, rest
        self.unread = len(text) + sum(map(len, iter(lambda: self._more(source), b"")))
        return None

    def _understand(self, head: bytes, after: bytes) -> bool:
        """Keep the keys before and after the events; returns whether they are JSON.

        Raises BadInput if the file has a trace of another process already.
        """
        text = _join(head.lstrip(b"\xef\xbb\xbf"), after)
        for attempt in (text, repair(text)):
            try:
                meta = msgspec.json.decode(attempt, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            for key in _IDENTITY & meta.keys() & self.meta.keys():
                if meta[key] != self.meta[key]:
                    what = (
                        f"has several traces in a row, which differ in {key}: save each as a file"
                    )
                    raise BadInput(self.path, what)
            self.meta = {**meta, **self.meta}
            return True
        return False

    def _decode(self, body: bytes) -> list[Any] | None:
        self.body = b"[" + body + b"]"
        return self.decode(self.body)

    def _decode_damaged(self, body: bytes) -> list[Any]:
        """Decode complete events that may be damaged: all at once, else repaired, else one by one."""
        events = self._decode(body)
        if events is not None:
            return events
        self.repaired += 1
        events = self._decode(self.mend(body))
        if events is not None:
            return events
        sound = []
        for start, end in _objects(body):
            event_text = self.mend(body[start:end])
            if self.decode(b"[" + event_text + b"]") is None:
                self.skipped += 1
            else:
                sound.append(event_text)
        return self._decode(b",".join(sound)) or []


def last_gap(text: bytes) -> int:
    """Guess where the last complete event ends: before the comma of ``}, {``; 0 if there is none."""
    at = len(text)
    for _ in range(64):
        at = text.rfind(b"{", 0, at)
        if at < 0:
            return 0
        before = text[max(0, at - 64) : at].rstrip(_SPACE)
        if before.endswith(b",") and before[:-1].rstrip(_SPACE).endswith(b"}"):
            return text.rindex(b"}", 0, at) + 1
    return 0


def _join(head: bytes, after: bytes) -> bytes:
    """Return the keys before and after an array as text of one object."""
    before, after = head.rstrip(_SPACE + b","), after.lstrip(_SPACE + b",")
    return before + (b"," if before.strip(_SPACE) != b"{" and after != b"}" else b"") + after


def _is_line_of_event(text: bytes) -> bool:
    """Whether the first line of the text is an event by itself, or several, one after the other."""
    line, end, _ = text.lstrip(_SPACE + b"\xef\xbb\xbf").partition(b"\n")
    if not line.startswith(b"{"):
        return False
    touching = _TOUCHING.search(line)
    first = line[: touching.start() + 1] if touching else line
    for attempt in (line, first) if touching else (line,) if end else ():
        try:
            if "ph" in msgspec.json.decode(attempt.rstrip(_SPACE + b","), type=dict[str, Any]):
                return True
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return False


def _array_or_end(text: bytes) -> tuple[int, bool] | None:
    """Return where another ``traceEvents`` of the object begins, or where the object ends (and True)."""
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            if depth == 0:
                return token.end(), True
            depth -= 1
        elif depth == 0 and _ARRAY.match(text, token.start()):
            return token.start(), False
    return None


def _objects(text: bytes) -> Iterator[tuple[int, int]]:
    depth = start = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in b"{[":
            if depth == 0:
                start = token.start()
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth == 0:
                yield start, token.end()
            if depth < 0:
                return


def _scan(path: Path, text: bytes) -> tuple[int, bool]:
    """Count brackets; returns (end of the last complete event, whether the array ends after it)."""
    depth = end = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            if depth == 0:
                if first == 0x5D:
                    return end, True
                raise BadInput(path, "not valid JSON inside traceEvents")
            depth -= 1
            if depth == 0:
                end = token.end()
    return end, False


# ------------------------------------------------------------------------------------- bytes


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the file's bytes, decompressed from gzip or zstd. Raises BadInput."""
    for block, position in _blocks_at(path):
        yield block
        progress.read_to(path, position)


def whole_file(path: Path, most: int, too_large: str) -> bytes:
    """Return the file's bytes, decompressed. Raises BadInput, with ``too_large`` beyond ``most`` bytes."""
    parts, size = [], 0
    for block in read_blocks(path):
        parts.append(block)
        size += len(block)
        if size > most:
            raise BadInput(path, too_large)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _blocks_at(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield the blocks, each with the file position up to which it was read. Raises BadInput."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            if magic[:2] == _GZIP:
                yield from _gunzip(path, file)
            elif magic == _ZSTD:
                yield from _unzstd(path, file)
            else:
                while block := file.read(BLOCK):
                    yield block, file.tell()
    except OSError as error:
        raise BadInput(path, error.strerror or str(error)) from error


def _gunzip(path: Path, file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    # not gzip.open: it works in 8 KB steps and holds the interpreter's lock in each
    stream = zlib.decompressobj(31)
    data = b""
    try:
        while True:
            data = data or file.read(BLOCK // 4)
            if not data:
                break
            if stream.eof:  # another gzip member follows, or padding
                if not data.strip(b"\0"):
                    data = b""
                    continue
                stream = zlib.decompressobj(31)
            block = stream.decompress(data, BLOCK)
            data = stream.unused_data if stream.eof else stream.unconsumed_tail
            if block:
                yield block, file.tell() - len(data)
    except zlib.error as error:
        raise BadInput(path, f"damaged gzip ({error})") from error
    if not stream.eof:
        if rest := stream.flush():
            yield rest, file.tell()
        raise Truncated(path, "truncated gzip: the file ends before its data does")


def _unzstd(path: Path, file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    zstd: Any = import_module(ZSTD_MODULE)
    try:
        with zstd.open(file) as stream:
            while block := stream.read1(BLOCK):  # read would drop the data before an early end
                yield block, file.tell()
    except EOFError as error:
        raise Truncated(path, "truncated zstd: the file ends before its data does") from error
    except zstd.ZstdError as error:
        raise BadInput(path, f"damaged zstd ({error})") from error


class _Prefetched(Iterator[bytes]):
    """Blocks that another thread reads while this one decodes (zlib releases the interpreter's lock)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used = 0
        self._ready: queue.Queue[tuple[bytes, int] | BaseException | None] = queue.Queue(maxsize=2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last: BaseException | None = None
        try:
            for block in _blocks_at(self._path):
                if not self._put(block):
                    return
        except Exception as error:  # noqa: BLE001 - raised again in the thread that reads
            last = error
        self._put(last)

    def _put(self, item: tuple[bytes, int] | BaseException | None) -> bool:
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def __next__(self) -> bytes:
        if self._stop.is_set():
            raise StopIteration
        progress.read_to(self._path, self._used)  # the block before is decoded
        item = self._ready.get()
        if isinstance(item, tuple):
            block, self._used = item
            return block
        self._stop.set()
        if item is None:
            raise StopIteration
        raise item

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
