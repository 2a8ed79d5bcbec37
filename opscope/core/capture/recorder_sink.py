"""The recorder: writes every thread's pushes and pops to disk, within half a second of each.

It writes one part of a recording, in the format of ``core.recording_format``.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final, Protocol

from opscope.core import refusals
from opscope.core.process_specs import PRIVATE
from opscope.core.recording_format import (
    CHUNK,
    COMPLETE_BASE,
    EVENTS,
    FACTS,
    FORMAT,
    MARK_BASE,
    MEMORY,
    META,
    POP_BASE,
    RECORD,
    RECORD_BYTES,
    STACK_SAMPLES,
    STACKS,
    STRINGS,
    UNRECORDED,
    VERSION,
)

from . import cpu_samples, source_files
from . import imports as program_imports
from . import process as processes
from .host_stacks import HostStacks
from .idle import IdleWriter, pause_for_forks
from .own_cost import Spending, Spent, StepCosts, Writes, record_ns

_log = logging.getLogger(__name__)

#: How the files of a part are opened.
FILE_FLAGS: Final = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_APPEND
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
#: A write is due this long after the last write. With the time that a write takes, everything is on disk
#: after half a second.
FLUSH_NS: Final = 400_000_000
#: Clock readings and opscope's own cost are written at most this often.
CLOCK_NS: Final = 1_000_000_000
#: Largest size of a part's events and memory records, in bytes.
MAX_BYTES: Final = 8 << 30


def pop_code(domain: int) -> int:
    """Return the code of a plain pop in domain number ``domain``."""
    return POP_BASE - domain


def complete_code(number: int) -> int:
    """Return the code of a pop of a range whose text with outputs is text ``number``."""
    return COMPLETE_BASE - number


def mark_code(number: int) -> int:
    """Return the code of a mark with text ``number``."""
    return MARK_BASE + number


def read_clock() -> tuple[int, int, int]:
    """Return ``(perf_counter_ns, Unix ns, half width)``: the tightest of eight bracketed readings."""
    best = (0, 0, 1 << 62)
    for _ in range(8):
        before = perf_counter_ns()
        unix = time.time_ns()
        after = perf_counter_ns()
        if after - before < 2 * best[2]:
            best = ((before + after) // 2, unix, (after - before + 1) // 2)
    return best


def append(descriptor: int, data: bytes) -> None:
    """Append ``data`` to a file that this process alone writes; all of it or, with OSError, nothing."""
    view = memoryview(data)
    refusals.refuse_size(os.fstat(descriptor).st_size + len(data))
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        if len(view) < len(data):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - (len(data) - len(view)))
        raise


class Source(Protocol):
    """Keeps records of its own until the recorder flushes, such as native code that does not take the GIL."""

    def take(self) -> tuple[bytes, bytes, list[tuple[int, int, int]]]:
        """Return the new data: complete chunks for events.bin, complete lines for strings.jsonl, and threads.
        A thread is (its index in the chunks, the system's thread id, Python's ident); indices begin at
        ``SOURCE_THREADS``. The lines contain every text that the chunks refer to."""

    def notes(self) -> list[tuple[str, str, int]]:
        """Return notes for readers at the end of the recording: (severity, what, how many)."""


class Sampling(Protocol):
    """Takes samples on the writer's thread."""

    def tick(self) -> int:
        """Take a sample if one is due; return the ns until the next one."""

    def last(self) -> None:
        """Take the last sample, at the end of a recording."""

    def take(self) -> list[dict[str, Any]]:
        """Return the samples since the last call, as facts of the recording."""

    def spent(self) -> Spent:
        """Return the processor time that all samples took."""


def _sampler(recorder: Recorder) -> Sampling | None:
    rate = cpu_samples.rate()
    return cpu_samples.CpuSampler(rate, recorder.note, recorder.samples_begin) if rate else None


class MemorySource(Protocol):
    """A source that keeps records of memory until the recorder flushes."""

    def take_memory(self) -> bytes:
        """Return the new data: complete ``MEMORY_RECORD``s."""


class _Thread:
    __slots__ = ("index", "log", "thread")

    def __init__(self, index: int, thread: int) -> None:
        self.index = index
        self.log = bytearray()
        self.thread = thread


class Recorder:
    """One recording of this process, from ``start`` to ``stop``; it cannot be restarted.

    Each thread appends to its own buffer. The first thread that pops after ``deadline`` writes out the
    buffers of all threads; if none does, the idle writer's thread does. This bounds both what a killed
    process loses and the memory used. A disk error never reaches the program: it is logged once and the
    recording ends there.
    """

    #: Whether only the last seconds or steps are kept (``ring_recorder``); then data of a whole run must not
    #: be kept beside it.
    ring: bool = False
    #: The message for the user on a recording that cannot be written any more.
    after_refusal: str = "ends here, what follows is not recorded"

    def __init__(
        self,
        root: str | os.PathLike[str],
        max_bytes: int = MAX_BYTES,
        sampler: Callable[[Recorder], Sampling | None] = _sampler,
        stacks: bool = True,
        flat: bool = False,
    ) -> None:
        """``stacks``: whether Python stacks are sampled, unless the user says otherwise. ``flat``: whether
        old samples are deleted, so that the rate need not sink as they grow."""
        self.root = Path(root)
        #: The folder of this process's part; ``None`` until something is written.
        self.folder: Path | None = None
        #: The first pop after this time (perf_counter_ns) flushes.
        self.deadline = 0
        self.local = threading.local()
        self.running = False
        #: When the recorded time ended (perf_counter_ns); 0 until then.
        self._stopped = 0
        #: Sources of events, read at each flush and for the last time in ``stop``. ``attach`` adds to them.
        self.sources: list[Source] = []
        #: Sources of memory records, read in the same way.
        self.memory: list[MemorySource] = []
        self._sampler = sampler(self)
        self._step_memory = None if self._sampler is None else cpu_samples.StepMemory()
        self._stacks = HostStacks(self.note, flat) if stacks else None
        ticking = (self._sampler, self._stacks)
        self._ticks = [sampler.tick for sampler in ticking if sampler is not None]
        self._idle = IdleWriter(lambda: self.deadline, self._flush_idle, self._tick)
        #: How emitters write to it (``emit.Writing``); None while there is none.
        self.writes: Writes | None = None
        #: Parts of opscope that measure their own cost, besides the recorder itself.
        self.spending: list[Spending] = []
        self._steps = StepCosts(self.spending, lambda: self._flush_ns)
        self._lock = threading.RLock()
        self._busy = False
        self._stop_wanted = False
        self._threads: list[_Thread] = []
        self._indices = 0
        #: Texts, and ready lines from sources.
        self._strings: list[str | tuple[int, str, str | None, str]] = []
        self._facts: list[str] = []
        self._files: dict[str, int] = {}
        self._limit = self._room = max_bytes
        # when the last write succeeded, and why the recording ended early, until that is written
        self._written_until = 0
        self._early_end: str | None = None
        self._pid = os.getpid()
        self._next_clock = 0
        self._flush_ns = 0
        self._flushes = 0
        #: Number of records written, of all threads and sources, except those of the last half second.
        self.written = 0
        self._records = 0  # records of Python's threads
        self._imports = 0

    def child(self) -> Recorder:
        """Return a recorder for a forked child of this process, which records beside its parent."""
        return Recorder(self.root)

    # ---------------------------------------------------------------- what emitters call

    def text(self, number: int, domain: str, category: str | None, text: str) -> None:
        """Add text ``number``, which may be pushed from now on."""
        # Without the lock: a flush first takes the events, then all texts that exist by then.
        self._strings.append((number, domain, category, text))

    def new_thread(self) -> Callable[[bytes], None]:
        """Make and register the calling thread's log; return the function that appends records to it."""
        ident, native = threading.get_ident(), threading.get_native_id()
        with self._lock:
            thread = _Thread(self._indices, ident)
            self._indices += 1
            self._threads.append(thread)
            self._fact(
                thread=thread.index,
                os_tid=native,
                pthread_id=ident,
                name=_thread_name(ident, native),
            )
            if self._stacks is not None:
                self._stacks.thread(ident, native)
            if self.running:
                self._awake()
        append: Callable[[bytes], None] = thread.log.extend
        self.local.log = append
        return append

    def attach(self, source: Source) -> None:
        """Also read ``source`` at each flush from now on."""
        self.sources.append(source)
        self._awake()

    def attach_memory(self, source: MemorySource) -> None:
        """Also read this source of memory records at each flush from now on."""
        self.memory.append(source)
        self._awake()

    def _awake(self) -> None:
        """Start the samplers and the idle writer, because something is recorded now."""
        self._idle.start()
        self.sample_stacks()

    def sample_stacks(self) -> None:
        """Sample Python stacks from now on, so that the program's imports before the first event have lines
        too."""
        if self.running and self._stacks is not None and self._stacks.begin():
            pause_for_forks(self._stacks)
            self.spending.append(self._stacks.spent)

    def _tick(self) -> int:
        """Take the samples that are due on the writer's thread; return the ns until the next ones."""
        left = [tick() for tick in self._ticks]
        return min(left, default=FLUSH_NS)

    def flush(self) -> None:
        """Write out the logs of all threads. Does nothing while another thread is doing it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._busy:  # else a signal handler has interrupted a flush on this thread
                self._flush()
        finally:
            self._lock.release()

    def samples_begin(self) -> None:
        """Count the cost of samples from now on; the sampler calls this before its first."""
        if self._sampler is not None:
            self.spending.append(self._sampler.spent)

    def written_folder(self) -> Path | None:
        """Return the part's folder once something is in it; None while nothing has been recorded.

        Unlike ``flush`` this waits for another thread that is writing.
        """
        with self._lock:
            if self.folder is None and not self._busy:
                self._flush()
            return self.folder

    def _flush_idle(self) -> None:
        """Flush on the idle writer's thread, if a flush is due; write nothing if nothing is new."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self.running and self.deadline <= perf_counter_ns():
                self._flush(idle=True)
        finally:
            self._lock.release()

    def before_step(self) -> None:
        """Flush before a step begins, if a flush would otherwise soon fall into the step."""
        if perf_counter_ns() > self.deadline - FLUSH_NS // 4:
            self.flush()

    def step_begins(self) -> None:
        """Begin to measure a step on this thread; if several threads have steps, only the first counts."""
        if self._step_memory is not None:
            self._step_memory.step()
        self._steps.begin()

    def step_ends(self) -> None:
        """End this thread's step: add its time, and opscope's cost in it."""
        self._steps.end()

    def step_left(self) -> None:
        """Drop this thread's step, which did not really end: it does not count."""
        self._steps.end(counts=False)

    def step_turns(self) -> None:
        """End this thread's step and begin its next one; flush as in ``before_step``."""
        self.before_step()
        if self._steps.turn() and self._step_memory is not None:
            self._step_memory.step()

    # ---------------------------------------------------------------- start and stop

    def start(self, lazy: bool = False) -> None:
        """Begin. Make the part's folder now, or with ``lazy`` when there is something to write.

        Raises OSError if the folder cannot be made.
        """
        with self._lock:
            if not lazy:
                self.root.mkdir(parents=True, exist_ok=True)
                self._open()
            self._clock()
            self._fact(began=processes.began())
            self._fact(start=perf_counter_ns())
            self.deadline = perf_counter_ns() + FLUSH_NS
            self.running = True

    def stop(self) -> None:
        """End: write everything and close the files. Safe to call twice, and in a signal handler."""
        with self._lock:
            if not self.running:
                return
            if self._busy:
                self._stop_wanted = True
                return
            self.running = False
            self._idle.stop()
            if self._sampler is not None:
                self._sampler.last()
            self.end()
            self._fact(stop=self._stopped)
            self._clock()
            self._fact(versions=processes.versions())
            for fact in source_files.facts():
                self._fact(**fact)
            for source in self.sources:
                for severity, message, how_many in source.notes():
                    self._fact(note=message, severity=severity, how_many=how_many)
            self._flush()
            # written after the slow part, whose cost is included; only the costs are left to write
            self._costs()
            self._flush()
            self._close()

    def end(self) -> None:
        """End the recorded time: the time from here until ``stop`` is opscope's own."""
        with self._lock:
            if self._stacks is not None:
                self._stacks.end()
            self._stopped = self._stopped or perf_counter_ns()

    def abandon(self) -> None:
        """Drop everything unwritten and write nothing more: for the recorder's copy in a forked child."""
        self._lock = threading.RLock()
        self.running = False
        self._idle.stop()
        if self._stacks is not None:
            self._stacks.abandon()
        for thread in self._threads:
            thread.log.clear()
        self._strings.clear()
        self._facts.clear()
        self._close()

    def note(self, severity: str, message: str, how_many: int = 1) -> None:
        """Add a note for readers of the recording."""
        with self._lock:
            self._fact(note=message, severity=severity, how_many=how_many)

    @property
    def has_begun(self) -> bool:
        """Whether something has been recorded."""
        return bool(self._indices or self.written)

    def set_up(self, begin: int, end: int) -> None:
        """Note that opscope prepared itself from ``begin`` to ``end`` (ns), while the program waited."""
        with self._lock:
            if self.has_begun:
                self._fact(setup=[begin, end])
            elif self.running:
                self._fact(start=end)

    def fact(self, **fields: Any) -> None:
        """Add a JSON object to the facts; for the backend that made this recorder."""
        with self._lock:
            self._fact(**fields)

    # ---------------------------------------------------------------- inside, under the lock

    def _fact(self, **fields: Any) -> None:
        self._facts.append(json.dumps(fields))

    def _clock(self) -> None:
        # the processor time of all threads of the process, since it began
        self._fact(clock=read_clock(), processor=time.process_time_ns())

    def _costs(self) -> None:
        """Add facts about opscope's cost since the start; a later fact about a part replaces an earlier one.
        Also add the program's imports since the last call."""
        if imported := program_imports.imports(self._imports):
            self._imports += len(imported)
            self._fact(imports=imported)
        accounted = 0
        for spending in self.spending:
            part, time, calls, one_in, records = spending()
            accounted += records
            self._fact(cost=part, time=time, calls=calls, one_in=one_in)
        left = max(0, self._records - accounted)
        ranges = int(left * record_ns(self.writes)) if left and self.writes else 0
        self._fact(cost="other ranges", time=ranges, calls=left, one_in=None)
        self._fact(cost="writing", time=self._flush_ns, calls=self._flushes, one_in=1)
        # the last call comes after ``stop``, later by the time of writing
        until = perf_counter_ns()
        said = None if self._stacks is None else self._stacks.facts()
        if said is not None:
            self._fact(stacks=said)
        self._fact(in_steps=self._steps.own, steps_ns=self._steps.time, until=until)

    def _flush(self, idle: bool = False) -> None:
        self._busy = True
        begin, written = perf_counter_ns(), True
        try:
            chunks = self._take()
            until = perf_counter_ns()
            memory = b"".join(source.take_memory() for source in self.memory)
            if self._sampler is not None and (chunks or memory or self.folder is not None):
                for samples in self._sampler.take():
                    self._fact(**samples)
                read = self._step_memory.take() if self._step_memory is not None else None
                if read is not None:
                    self._fact(**read)
            stacks: tuple[bytes, list[str]] = (b"", [])
            if self._stacks is not None and (chunks or memory or self.folder is not None):
                stacks = self._stacks.take()
            if (self.folder is None or idle) and not (chunks or memory or any(stacks)):
                if not (idle and self._facts and self.folder is not None):
                    written = not idle
                    return
            elif begin >= self._next_clock and self.running:
                self._clock()
                self._costs()
                self._next_clock = begin + CLOCK_NS
            self._write(chunks, memory)
            self._write_stacks(*stacks)
            if self._room >= 0:
                self._written_until = until
        except OSError as error:
            self._fail(error)
        finally:
            end = perf_counter_ns()
            if written:
                self._flushes += 1
                self._flush_ns += end - begin
            self.deadline = end + FLUSH_NS
            self._busy = False
            if self._stop_wanted:
                self._stop_wanted = False
                self.stop()

    def _fail(self, error: OSError) -> None:
        """End the recording here: tell the user now, and note it for readers as soon as that can be
        written."""
        if self._room >= 0:
            why = refusals.refusal(error)
            _log.log(
                self.log_level(),
                "opscope: the recording in %s %s: %s",
                self.folder or self.root,
                self.after_refusal,
                why,
            )
            self._early_end = why
        self._room = -1
        self._write_early_end()

    def log_level(self) -> int:
        """Return the level at which a refusal is logged."""
        return logging.WARNING

    def _write_early_end(self) -> None:
        """Note in the recording why it ended early, unless that is written already; on a refusal, keep trying
        later."""
        why = self._early_end
        if why is None:
            return
        note = f"the recording ended early: {why}; what followed is not in it"
        try:
            if self.folder is None:
                path = self.root / UNRECORDED.format(self._pid)
                text = f"{sys.executable}\n{why}\n"
                try:
                    refusals.refuse_size(len(text))
                    path.write_text(text, encoding="utf-8")
                except OSError:
                    path.unlink(missing_ok=True)
                    raise
            else:
                facts: list[dict[str, Any]] = [{"note": note, "severity": "warning", "how_many": 1}]
                if self._written_until:
                    facts.append({"stop": self._written_until})
                lines = "".join(f"{json.dumps(fact)}\n" for fact in facts)
                self._append(FACTS, lines.encode())
            self._early_end = None
        except OSError as error:
            _log.debug("opscope: the end of the recording is not noted yet: %s", error)

    def _take(self) -> list[bytes]:
        chunks: list[bytes] = []
        kept: list[_Thread] = []
        living = processes.living_threads()
        for thread in self._threads:
            # the thread may append meanwhile: delete only what was copied
            records = bytes(thread.log)
            del thread.log[: len(records)]
            if records:
                self._records += len(records) // RECORD_BYTES
                chunks.append(RECORD.pack(CHUNK - thread.index, len(records) // RECORD_BYTES))
                chunks.append(records)
            if records or thread.thread in living:
                kept.append(thread)
        # new threads wait for the lock in new_thread, so none is lost here
        self._threads = kept
        for source in self.sources:
            events, strings, threads = source.take()
            chunks.append(events)
            if strings:
                self._strings.append(strings.decode("utf-8", "replace").removesuffix("\n"))
            for index, native, ident in threads:
                self._fact(
                    thread=index,
                    os_tid=native,
                    pthread_id=ident,
                    name=_thread_name(ident, native),
                )
                if self._stacks is not None:
                    self._stacks.thread(ident, native)
        return chunks if any(chunks) else []

    def _write(self, chunks: list[bytes], memory: bytes) -> None:
        if self._room < 0:
            self._strings.clear()
            self._facts.clear()
            self._write_early_end()
            return
        if self.folder is None:
            self._open()
        # strings first: an event on disk never refers to a text that is not on disk
        for name, lines in ((STRINGS, self._strings), (FACTS, self._facts)):
            if lines:
                count = len(lines)
                texts = (
                    line if isinstance(line, str) else json.dumps(line) for line in lines[:count]
                )
                self._append(name, ("\n".join(texts) + "\n").encode())
                del lines[:count]
        data = b"".join(chunks)
        if len(data) + len(memory) > self._room:
            raise OSError(f"it reached its limit of {self._limit} bytes")
        self._room -= len(data) + len(memory)
        self._append(EVENTS, data)
        self.written += len(data) // RECORD_BYTES
        self._append(MEMORY, memory)

    def _write_stacks(self, samples: bytes, lines: list[str]) -> None:
        if self._room < len(samples):
            return
        # write a stack's description before the first sample that uses it
        self._append(STACKS, "".join(f"{line}\n" for line in lines).encode())
        self._room -= len(samples)
        self._append(STACK_SAMPLES, samples)

    def _folder_of(self, name: str) -> Path:
        """Return the folder for the part's file of this name."""
        assert self.folder is not None
        return self.folder

    def _append(self, name: str, data: bytes) -> None:
        if not data:
            return
        if name not in self._files:
            self._files[name] = os.open(self._folder_of(name) / name, FILE_FLAGS, 0o644)
        append(self._files[name], data)

    def _open(self) -> None:
        who = processes.current()
        # make no parents: a folder that the program has removed meanwhile must not come back
        self.root.mkdir(exist_ok=True)
        folder = self.root / who.folder
        again = 1
        while True:  # a process may record several times, and may run another program after exec
            try:
                folder.mkdir()
                break
            except FileExistsError:
                again += 1
                folder = self.root / f"{who.folder}-{again}"
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "clock": "perf_counter_ns",
            "host": who.host,
            "boot": who.boot,
            "pid": who.pid,
            "parent": who.parent,
            "start_time": who.start_time,
            "rank": who.rank,
            "world_size": who.world_size,
            "local_rank": who.local_rank,
            "name": who.name,
            "command": who.command,
            "versions": processes.versions(),
            # for readers of the recording of a killed run
            "private": os.environ.get(PRIVATE) == "1",
        }
        temporary, self.folder = folder / f"{META}.tmp", folder
        text = json.dumps(meta, indent=1) + "\n"
        try:
            refusals.refuse_size(len(text))
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(folder / META)
            for name in (STRINGS, FACTS, EVENTS):
                self._files[name] = os.open(folder / name, FILE_FLAGS, 0o644)
        except OSError:
            self._discard()
            raise

    def _discard(self) -> None:
        """Remove a part that could not be begun, because it would look like a recording."""
        while self._files:
            os.close(self._files.popitem()[1])
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def _close(self) -> None:
        if self._step_memory is not None:
            self._step_memory.close()
        files, self._files = list(self._files.values()), {}
        for descriptor in files:
            try:
                os.close(descriptor)
            except OSError as error:  # a network file system reports a quota here
                _log.warning(
                    "opscope: the recording in %s may be incomplete: %s", self.folder, error
                )


def _thread_name(ident: int, native: int) -> str | None:
    """Return Python's name of a thread, else the system's; never registers a foreign thread with Python."""
    for thread in threading.enumerate():
        if thread.ident == ident:
            return thread.name
    try:
        return Path(f"/proc/self/task/{native}/comm").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
