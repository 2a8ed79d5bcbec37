"""The emitter: adapters push and pop ranges on it, and it passes them to two sinks (NVTX, the recorder)."""

from __future__ import annotations

import itertools
import re
import threading
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final, Protocol

from opscope.core.payload import MAX_FWD_THREAD, MAX_SEQ, SEQ_BITS
from opscope.core.rangetext import CUT, TEXT_LIMIT, format_call, format_result
from opscope.core.recording_format import PAYLOAD, RECORD, TWO_RECORDS
from opscope.core.schema import CATEGORY_ID, OpCall

from .nvtx_sink import NvtxSink, open_domain
from .recorder_sink import Recorder, complete_code, mark_code, pop_code

#: The recorder cuts a text above this many bytes.
RECORD_LIMIT: Final = 1 << 20
#: Number of distinct texts that an emitter caches; further ones live as long as their caller keeps them.
MAX_INTERNED: Final = 65_536
#: Payloads are signed 64-bit integers.
MAX_PAYLOAD: Final = 1 << 63
_UNNUMBERED: Final = re.compile(r"\D{0,200}")


class Prepared:
    """A range text, prepared once for many pushes by ``Emitter.prepare``; do not change its attributes."""

    __slots__ = (
        "__weakref__",
        "attributes",
        "attributes_payload",
        "attributes_result",
        "category",
        "domain",
        "id",
        "nvtx_texts",
        "outputs",
        "sink",
        "text",
    )

    def __init__(self, number: int, domain: str, category: str | None, text: str) -> None:
        #: Id of the text in recordings, unique in this process.
        self.id = number
        self.domain = domain
        self.category = category
        #: The text, up to ``RECORD_LIMIT``; NVTX gets it only up to ``TEXT_LIMIT``.
        self.text = text
        self.outputs: tuple[Any, ...] | None = None
        #: The texts for NVTX: the text, shorter versions of it, and the result mark's text; ``sink`` is the
        #: NVTX sink in which they are registered.
        self.nvtx_texts: tuple[str, tuple[str, ...], str | None] | None = None
        self.sink: NvtxSink | None = None
        # nvtx.EventAttributes: without payload, with a payload (set at each push), for the result mark
        self.attributes: Any = None
        self.attributes_payload: Any = None
        self.attributes_result: Any = None

    def __repr__(self) -> str:
        return f"Prepared({self.domain}, {self.category}, {self.text!r})"


_numbers = itertools.count()
_domains: dict[str, int] = {}
#: All prepared ranges that can still be pushed; a recording that starts writes all their texts.
_alive: weakref.WeakSet[Prepared] = weakref.WeakSet()
_emitters: weakref.WeakSet[Emitter] = weakref.WeakSet()
_lock = threading.RLock()


def domain_number(name: str) -> int:
    """Return the number of an NVTX domain in this process's recordings."""
    with _lock:
        return _domains.setdefault(name, len(_domains))


def reusable() -> set[int] | None:
    """Return the ids of all texts that may be pushed again; None if finding out would have to wait. A thread
    that holds this lock may be waiting for the recorder's lock."""
    if not _lock.acquire(blocking=False):
        return None
    try:
        return {prepared.id for prepared in _alive}
    finally:
        _lock.release()


def forked() -> None:
    """Replace the lock in a forked child: the thread that held it may not exist there."""
    global _lock
    _lock = threading.RLock()


class _Push(Protocol):
    def __call__(self, prepared: Prepared, seq: int = -1, fwd_thread: int = 0) -> None: ...


class _Pop(Protocol):
    def __call__(self, complete: Prepared | None = None) -> None: ...


_new: Final = Prepared.__new__

#: An emitter's ``push``, ``pop`` and ``mark`` for a set of sinks.
Writing = tuple[_Push, _Pop, Callable[["Prepared"], None]]
#: Makes them in native code, where only a recorder listens; None: ``record_only`` does.
_native: Callable[[Recorder, int], Writing] | None = None


def write_natively(writes: Callable[[Recorder, int], Writing] | None) -> None:
    """Let ``writes`` make push, pop and mark of all emitters that only a recorder hears, now and later.

    ``None``: use Python again."""
    global _native
    with _lock:
        _native = writes
        for emitter in list(_emitters):
            emitter._choose()


#: What does nothing: there is no sink.
_NO_WRITING: Final[Writing] = (
    lambda prepared, seq=-1, fwd_thread=0: None,
    lambda complete=None: None,
    lambda prepared: None,
)


class Emitter:
    """The ranges of one framework (NVTX domain ``opscope.<framework>``, or ``domain``).

    ``session.emitter`` returns it. ``push``, ``pop`` and ``mark`` are replaced when a sink comes or goes, so
    that none of them checks which sinks exist. **Look them up at each call** (``emitter.push(p)``): a saved
    ``emitter.push`` keeps writing to the sinks that existed when it was saved. Pushes and pops must nest on
    each thread; a capture may start or stop at any point between them.

    A hook checks ``active`` first: it is False while no tool is attached and no capture runs. If the emitter
    is no longer active, a hook may skip the ``pop`` for a ``push`` that it made. It may also ``pop`` a
    range that it did not push because the emitter was not active then.
    """

    __slots__ = (
        "__weakref__",
        "_forked",
        "_interned",
        "_nvtx",
        "_recorder",
        "_writes",
        "active",
        "domain",
        "mark",
        "number",
        "pop",
        "push",
    )

    push: _Push
    pop: _Pop
    mark: Callable[[Prepared], None]

    def __init__(self, framework: str, domain: str | None = None) -> None:
        self.domain = domain or f"opscope.{framework}"
        #: The domain's number in recordings.
        self.number = domain_number(self.domain)
        live = open_domain(self.domain)
        self._nvtx = None if live is None else NvtxSink(self.domain, live)
        self._recorder: Recorder | None = None
        self._writes: Callable[[Recorder, int], Writing] | None = None
        self._interned: dict[tuple[str | None, str], Prepared] = {}
        self._forked = False
        self.active = False
        self.listen(None)

    @property
    def nvtx(self) -> bool:
        """Whether an NVTX tool listens to this domain; this never changes while the process lives."""
        return self._nvtx is not None

    def prepare(
        self,
        subject: OpCall | str,
        category: str | None = None,
        *,
        device_is_new: bool = False,
        ends: bool = False,
    ) -> Prepared:
        """Return the prepared range of a call, or of a plain text (layers, steps, specs, user ranges).

        Slow (tens of µs): the caller keeps the result in a bounded cache of its own. If the call's
        ``outputs`` are known, the result can also be passed to ``pop``; ``device_is_new`` then means that
        the pushed text did not name the device. A plain text can be passed to ``pop`` if ``ends`` is true: it
        then replaces the range's own text. Raises ValueError for a category that is not in
        ``schema.CATEGORIES``.
        """
        if category is not None and category not in CATEGORY_ID:
            raise ValueError(f"unknown category: {category!r}")
        if isinstance(subject, OpCall):
            text = format_call(subject, RECORD_LIMIT)
        else:
            text = _cut(subject, RECORD_LIMIT)
        key = (category, text)
        found = self._interned.get(key)
        if found is not None:
            return found
        with _lock:
            found = self._interned.get(key)
            if found is not None:
                return found
            prepared = Prepared(next(_numbers), self.domain, category, text)
            if isinstance(subject, OpCall):
                prepared.outputs = subject.outputs
            if self._nvtx is not None:
                self._attributes(self._nvtx, prepared, subject, device_is_new, ends)
            if len(self._interned) < MAX_INTERNED:
                self._interned[key] = prepared
            _alive.add(prepared)
            if self._recorder is not None:
                self._recorder.text(prepared.id, self.domain, category, text)
        return prepared

    def mark_spec(self, spec: str) -> None:
        """Send a spec as a mark to the NVTX tool alone: recordings contain this information anyway."""
        if self._nvtx is not None:
            domain = self._nvtx.domain
            domain.mark(self._nvtx.attributes(_cut(spec, TEXT_LIMIT), (CUT,), "spec"))

    def mark_specs_again(self) -> None:
        """Send every spec that this emitter has prepared to the NVTX tool alone, again."""
        if self._nvtx is None:
            return
        for prepared in [spec for spec in self._interned.values() if spec.category == "spec"]:
            if prepared.nvtx_texts is not None:
                self.mark_spec(prepared.nvtx_texts[0])

    def past(
        self, prepared: Prepared, start: int, end: int, seq: int = -1, fwd_thread: int = 0
    ) -> None:
        """Record a range of this thread that is over, from ``start`` to ``end`` (perf_counter_ns).

        It begins after all that this thread has recorded. ``seq`` and ``fwd_thread`` as in ``push``. An NVTX
        tool gets nothing: its ranges begin when they are pushed.
        """
        recorder = self._recorder
        if recorder is not None:
            log = getattr(recorder.local, "log", None) or recorder.new_thread()
            if 0 <= seq < MAX_SEQ and fwd_thread < MAX_FWD_THREAD:
                log(RECORD.pack(PAYLOAD, seq | fwd_thread << SEQ_BITS))
            log(TWO_RECORDS.pack(prepared.id, start, pop_code(self.number), end))

    def pop_past(self, complete: Prepared | None, end: int) -> None:
        """Pop a range that was over at ``end`` (perf_counter_ns), after ``past`` for ranges within it.

        For an NVTX tool it ends now.
        """
        recorder = self._recorder
        if recorder is None or self._nvtx is not None or not hasattr(recorder.local, "log"):
            self.pop(complete)
            return
        code = pop_code(self.number) if complete is None else complete_code(complete.id)
        recorder.local.log(RECORD.pack(code, end))
        if end >= recorder.deadline:
            recorder.flush()

    def push_numbered(self, word: str, number: int, category: str) -> None:
        """Push a range with the text ``word number``, as a step has it.

        The text is used only once, so it is not cached: otherwise memory would grow with the program's run
        time, and each recording would begin with all earlier texts. NVTX cannot unregister a text, so it
        gets the word alone, and the number as the payload.
        """
        text = f"{word} {number}"
        prepared = _new(Prepared)  # without __init__, because the recorder needs only its id
        prepared.id = mine = next(_numbers)
        if self._recorder is not None:
            self._recorder.text(mine, self.domain, category, text)
        if self._nvtx is not None:
            payload = number if -MAX_PAYLOAD <= number < MAX_PAYLOAD else None
            prepared.sink = self._nvtx
            prepared.attributes = self._nvtx.attributes(
                text if payload is None else word, (CUT,), category, payload
            )
        self.push(prepared)

    def _attributes(
        self,
        sink: NvtxSink,
        prepared: Prepared,
        subject: OpCall | str,
        device_is_new: bool,
        ends: bool,
    ) -> None:
        text, result = prepared.text, None
        if isinstance(subject, OpCall):
            if len(text) * 4 > TEXT_LIMIT and len(text.encode()) > TEXT_LIMIT:
                text = format_call(subject)
            bare = OpCall(
                subject.name, (), None, (), subject.device, subject.frames, truncated=True
            )
            shorter = (format_call(bare), format_call(OpCall(subject.name, truncated=True)))
            if subject.outputs is not None:
                result = format_result(subject.outputs, subject.device if device_is_new else None)
        else:
            text = _cut(text, TEXT_LIMIT)
            # texts that differ by a number share the part before the number
            shorter = (_UNNUMBERED.match(text).group() + CUT, CUT)  # type: ignore[union-attr]
            result = text if ends else None
        prepared.nvtx_texts = (text, shorter, result)
        _register(sink, prepared)

    def after_fork(self) -> None:
        """Make the domain anew in a forked child, where the parent's registered texts are wrong or missing.

        Under Nsight Systems 2022 and 2023 the ids of texts begin again in the child, so that the parent's ids
        refer to other texts. Texts are registered in the new domain when they are pushed.
        """
        if self._nvtx is None:
            return
        live = open_domain(self.domain, anew=True)
        self._nvtx = None if live is None else NvtxSink(self.domain, live)
        self._forked = True
        self._choose()

    def listen(self, recorder: Recorder | None) -> None:
        """Set the recorder that this emitter writes to; ``None``: no recorder. For ``session``."""
        with _lock:
            _emitters.add(self)
            self._recorder = recorder
            if recorder is not None:
                recorder.fact(domain=self.domain, number=self.number)
                for prepared in list(_alive):
                    if prepared.domain == self.domain:
                        recorder.text(prepared.id, self.domain, prepared.category, prepared.text)
            self._choose()

    def write_by(self, writes: Callable[[Recorder, int], Writing] | None) -> None:
        """Let ``writes(recorder, code of a plain pop)`` make push, pop and mark when only a recorder listens.

        This is for native code with a buffer of its own. ``None``: write to the recorder's logs again.
        """
        with _lock:
            self._writes = writes
            self._choose()

    def _choose(self) -> None:
        nvtx, recorder = self._nvtx, self._recorder
        writing = _NO_WRITING
        if nvtx is not None:
            writing = _renewing(nvtx) if self._forked else _nvtx_only(nvtx)
        if recorder is not None:
            recorder.writes = (_native if nvtx is None else None) or record_only
            if nvtx is None:
                writing = (self._writes or recorder.writes)(recorder, pop_code(self.number))
            else:
                writing = _both(writing, recorder, pop_code(self.number))
        self.push, self.pop, self.mark = writing
        self.active = nvtx is not None or recorder is not None


def _register(sink: NvtxSink, prepared: Prepared) -> None:
    """Register the texts of a prepared range with NVTX."""
    if prepared.nvtx_texts is None:  # made by push_numbered, for one push
        return
    text, shorter, result = prepared.nvtx_texts
    prepared.attributes = sink.attributes(text, shorter, prepared.category)
    prepared.attributes_payload = sink.attributes(text, shorter, prepared.category)
    if result is not None:
        prepared.attributes_result = sink.attributes(result, ("-> ()" + CUT,), "result")
    prepared.sink = sink


def _cut(text: str, limit: int) -> str:
    """Return plain text, cut to at most ``limit`` bytes of UTF-8."""
    if len(text) * 4 <= limit:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - len(CUT)].decode("utf-8", "ignore") + CUT


# The closures below are the hot path: everything they need is a local or a free variable. The recorder's
# part of a push costs 40 ns for the thread's log, 50 ns for the clock, and 75 ns for packing and appending
# one record. A record is appended by one call, so no interrupt can tear it.


def _nvtx_only(sink: NvtxSink) -> Writing:
    nvtx_push, nvtx_pop, nvtx_mark = sink.domain.push_range, sink.domain.pop_range, sink.domain.mark

    def push(prepared: Prepared, seq: int = -1, fwd_thread: int = 0) -> None:
        if seq < 0 or seq >= MAX_SEQ or fwd_thread >= MAX_FWD_THREAD:
            nvtx_push(prepared.attributes)
        else:
            # One C call sets the payload and pushes, so no other thread can run in between.
            nvtx_push(prepared.attributes_payload, payload=seq | fwd_thread << SEQ_BITS)

    def pop(complete: Prepared | None = None) -> None:
        if complete is not None and complete.attributes_result is not None:
            nvtx_mark(complete.attributes_result)
        nvtx_pop()

    def mark(prepared: Prepared) -> None:
        nvtx_mark(prepared.attributes)

    return push, pop, mark


def record_only(recorder: Recorder, popped: int) -> Writing:
    """Return push, pop and mark that append to the recorder's log of the calling thread."""
    local, new_thread, now = recorder.local, recorder.new_thread, perf_counter_ns
    flush, pack, pack_two = recorder.flush, RECORD.pack, TWO_RECORDS.pack

    def push(prepared: Prepared, seq: int = -1, fwd_thread: int = 0) -> None:
        try:
            log = local.log
        except AttributeError:
            log = new_thread()
        if seq < 0 or seq >= MAX_SEQ or fwd_thread >= MAX_FWD_THREAD:
            log(pack(prepared.id, now()))
        else:
            log(pack_two(PAYLOAD, seq | fwd_thread << SEQ_BITS, prepared.id, now()))

    def pop(complete: Prepared | None = None) -> None:
        time = now()
        try:
            local.log(pack(popped if complete is None else complete_code(complete.id), time))
        except AttributeError:
            return  # pushed before this capture began; this thread has recorded nothing yet
        if time >= recorder.deadline:
            flush()

    def mark(prepared: Prepared) -> None:
        try:
            log = local.log
        except AttributeError:
            log = new_thread()
        time = now()
        log(pack(mark_code(prepared.id), time))
        if time >= recorder.deadline:
            flush()

    return push, pop, mark


def _renewing(sink: NvtxSink) -> Writing:
    """Like ``_nvtx_only``, for a forked child, which inherits ranges prepared for its parent's domain."""
    nvtx_push, nvtx_pop, nvtx_mark = _nvtx_only(sink)

    def push(prepared: Prepared, seq: int = -1, fwd_thread: int = 0) -> None:
        if prepared.sink is not sink:
            _register(sink, prepared)
        nvtx_push(prepared, seq, fwd_thread)

    def pop(complete: Prepared | None = None) -> None:
        if complete is not None and complete.sink is not sink:
            _register(sink, complete)
        nvtx_pop(complete)

    def mark(prepared: Prepared) -> None:
        if prepared.sink is not sink:
            _register(sink, prepared)
        nvtx_mark(prepared)

    return push, pop, mark


def _both(hearing: Writing, recorder: Recorder, popped: int) -> Writing:
    local, new_thread, now = recorder.local, recorder.new_thread, perf_counter_ns
    flush, pack, pack_two = recorder.flush, RECORD.pack, TWO_RECORDS.pack
    nvtx_push, nvtx_pop, nvtx_mark = hearing
    _, _, record_mark = record_only(recorder, popped)

    # The recorder's push and pop are repeated here: a call would cost as much as a record. The recorder's
    # clock is read closest to the op, and a flush comes after both sinks have the end of the range, so that
    # the cost of recording falls into neither sink's range.
    def push(prepared: Prepared, seq: int = -1, fwd_thread: int = 0) -> None:
        nvtx_push(prepared, seq, fwd_thread)
        try:
            log = local.log
        except AttributeError:
            log = new_thread()
        if seq < 0 or seq >= MAX_SEQ or fwd_thread >= MAX_FWD_THREAD:
            log(pack(prepared.id, now()))
        else:
            log(pack_two(PAYLOAD, seq | fwd_thread << SEQ_BITS, prepared.id, now()))

    def pop(complete: Prepared | None = None) -> None:
        time = now()
        log = getattr(local, "log", None)
        if log is not None:  # else pushed before this capture began, as above
            log(pack(popped if complete is None else complete_code(complete.id), time))
        nvtx_pop(complete)
        if time >= recorder.deadline:
            flush()

    def mark(prepared: Prepared) -> None:
        nvtx_mark(prepared)
        record_mark(prepared)

    return push, pop, mark
