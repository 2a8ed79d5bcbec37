"""A recorder that keeps the last seconds or steps, flat in memory and on disk however long the program runs.

It writes segments, each a folder of the part, and deletes those that are too old. Texts and threads, which
segments share, are in files beside them. Such a file is rewritten without unused entries once it has doubled.
The idle writer's thread begins and ends segments and rewrites files, between the program's own flushes.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final, Protocol, runtime_checkable

from opscope.core.recording_format import (
    EVENTS,
    FACTS,
    MEMORY,
    RECORD_BYTES,
    STACK_SAMPLES,
    STRINGS,
)

from . import ring_dump
from .idle import IdleWriter
from .recorder_sink import FILE_FLAGS, Recorder, append, read_clock
from .ring_bounds import SECONDS_WITHOUT_STEPS, Bounds
from .ring_texts import used_in
from .slow_steps import SlowSteps

_log = logging.getLogger(__name__)

#: The idle writer's thread checks this often whether a segment is over.
_LOOK_NS: Final = 200_000_000
#: Files of texts and facts are rewritten once they have doubled, but not below these sizes in bytes.
_LEAST_STRINGS: Final = 4 << 20
_LEAST_FACTS: Final = 256 << 10
#: Facts that belong to no segment and no thread, and are kept: notes, domains, devices.
_MOST_FACTS: Final = 1024
#: The first keys of facts that belong to a segment, and the files that each segment has.
_OF_A_SEGMENT: Final = frozenset(
    ("clock", "samples", "cost", "in_steps", "setup", "probe", "stacks")
)
_BY_SEGMENT: Final = (EVENTS, MEMORY, STACK_SAMPLES)
#: The first keys of facts of which there may be several.
_SEVERAL: Final = frozenset(
    ("note", "domain", "memory", "onnxruntime", "source_file", "imports", "session")
)
#: An open step older than this many times the ring's length is not kept from its begin.
_MOST_TIMES: Final = 10
#: A slow step is written this long after it, if the steps that should follow will not come.
_PATIENCE_NS: Final = 10_000_000_000
#: A segment this many times too long is ended by any thread that writes.
_OVERDUE: Final = 4
#: How long a dump waits for another thread's write, in seconds.
_WAIT_S: Final = 5.0
#: This machine's name and the process id in the name of a part.
_PART: Final = re.compile(r"part-(.+?)-(\d+)-(\d{15,})(?:-\d+)?")
#: Seconds between searches for parts of dead processes.
_SWEEP_NS: Final = 10_000_000_000
#: Seconds between tries to write a ring again, as long as at most this many texts wait for it.
_RETRY_NS: Final = 1_000_000_000
_MOST_TEXTS: Final = 1 << 15
_NEVER: Final = 1 << 62
#: Messages that occur more often than this are only noted in the recording.
_MOST_TOLD: Final = 5
EXCEPTION, SLOW, SIGNAL, ATTACH = "exception", "slow", "signal", "attach"
BUSY: Final = "opscope is writing; try again"


@runtime_checkable
class Reusable(Protocol):
    """A source that knows which of its texts it may use again without sending them again."""

    def reusable(self) -> set[int]:
        """Return the ids of these texts."""


class Segmented(Protocol):
    """A recorder beside this one that stores its data by segments, such as a profiler's raw buffers.
    ``RingRecorder.segmented`` is the list of them: the only place where such a profiler joins a ring."""

    def begin(self, part: Path, segment: Path) -> dict[str, Any]:
        """Begin to write into this segment of the part; return a fact of the recording. Raises OSError."""

    def segment(self, ended: Path, begun: Path) -> tuple[int, dict[str, Any]]:
        """Write the remaining data of the segment ``ended`` into its folder; later data belongs in ``begun``.
        Returns the number of its bytes in ``ended``, and a fact of the recording, which may be empty. Raises
        OSError."""

    def held(self) -> int:
        """Return how many bytes it has written into the current segment."""


@dataclass(slots=True)
class _Segment:
    folder: Path
    begin: int
    end: int = 0
    bytes: int = 0
    steps: int = 0


class RingRecorder(Recorder):
    """A recording of the last seconds or steps, until ``stop``. ``dump`` writes the recording as it is; the
    recording continues.

    ``on_dump(folder, what)`` is called on the thread that made the dump, once it is complete.
    """

    ring = True
    after_refusal = "stops here, and begins anew once it can be written"

    def __init__(
        self,
        root: str | os.PathLike[str],
        bounds: Bounds,
        on_dump: Callable[[Path, dict[str, Any]], None] | None = None,
    ) -> None:
        super().__init__(root, bounds.max_bytes, flat=True)
        self.bounds = bounds
        self.segmented: list[Segmented] = []
        #: Whether a dump is being made into a profile: then steps are not judged, because that work slows
        #: them.
        self.is_busy: Callable[[], bool] = lambda: False
        self._on_dump = on_dump
        self._idle = IdleWriter(lambda: self.deadline, self._flush_idle, self._look)
        self._segments: deque[_Segment] = deque()
        self._numbers = 0
        self._look_due = self._sweep_due = 0
        # sizes of the file of texts when the last two segments began
        self._recent = self._older = 0
        self._strings_bytes = self._facts_bytes = 0
        self._compact_strings, self._compact_facts = _LEAST_STRINGS, _LEAST_FACTS
        self._kept: dict[str, str] = {}
        self._threads_facts: dict[int, tuple[str, int]] = {}
        # The steps: when the last ones began, which one is open, and the object that finds slow ones.
        last = bounds.last.steps
        self._begins: deque[int] = deque(maxlen=max(last or 1, bounds.after + 2) + 1)
        self._step_thread = 0
        self._step_open = False
        self._steps_begun = 0
        self._slow = None if bounds.slow is None else SlowSteps(bounds.slow)
        # cause, start, step count, time limit
        self._wanted: tuple[str, int, int, int] | None = None
        self._asked: str | None = None
        self._turning = False
        self._ended_by = ("end", "the recording ended")
        self._refused: set[str] = set()
        # While the disk refuses writes: since when, and when to try again. Then the number of such gaps,
        # their total time, and the records lost in them.
        self._since_refusal = self._retry = 0
        self._gaps = self._gap_ns = self._gap_records = 0
        self._stack_lines: list[str] = []

    def child(self) -> Recorder:
        """Return a ring for a forked child, which records beside its parent."""
        return RingRecorder(self.root, self.bounds)

    # ---------------------------------------------------------------- steps

    def step_begins(self) -> None:
        """Note that a step begins."""
        super().step_begins()
        if not self._step_open:
            self._step_thread, self._step_open = threading.get_ident(), True
            self._begun(perf_counter_ns())

    def step_ends(self) -> None:
        """Note that the step ends, and judge it."""
        if self._step_open and self._step_thread == threading.get_ident():
            self._step_open = False
            self._judge(perf_counter_ns())
        super().step_ends()

    def step_left(self) -> None:
        """Note that the step did not really end: its end does not count."""
        if self._step_open and self._step_thread == threading.get_ident():
            self._step_open = False
        super().step_left()

    def step_turns(self) -> None:
        """Note that a step ends and the next one begins."""
        if self._step_open and self._step_thread == threading.get_ident():
            now = perf_counter_ns()
            self._judge(now)
            self._begun(now)
        super().step_turns()

    def _begun(self, now: int) -> None:
        self._begins.append(now)
        self._steps_begun += 1
        if self._segments:
            self._segments[-1].steps += 1

    def _judge(self, now: int) -> None:
        slow, begins = self._slow, self._begins
        if slow is None or not begins:
            return
        middle, took = slow.median, now - begins[-1]
        if slow.is_slow(took) and middle and self._wanted is None and not self.is_busy():
            before = begins[-2] if len(begins) > 1 else begins[-1]
            why = f"a step took {took / 1e9:.3f} s, {took / middle:.1f} times the median before it"
            self._wanted = (
                why,
                before,
                self._steps_begun + self.bounds.after,
                now + _PATIENCE_NS,
            )

    # ---------------------------------------------------------------- beside the recorder

    def join(self, source: Segmented) -> None:
        """Let a source write into the segments from now on. Raises OSError; then it has not joined."""
        with self._lock:
            if not self.running:
                raise OSError("the recording is over")
            if self.folder is None:
                self._open()
            assert self.folder is not None
            fact = source.begin(self.folder, self._segments[-1].folder)
            self.segmented.append(source)
            if fact:
                self._fact(**fact)

    def part_from(self, source: Segmented) -> None:
        """Remove a source from the ring."""
        with self._lock:
            if source in self.segmented:
                self.segmented.remove(source)

    # ---------------------------------------------------------------- dumps

    def ask(self, why: str) -> None:
        """Ask for a dump from a signal handler: it is made within half a second, by opscope's thread."""
        self._asked = why

    def dump(
        self,
        made_by: str,
        why: str,
        since: int | None = None,
        gap: float | None = None,
        most: int | None = None,
        wait_s: float = _WAIT_S,
    ) -> Path | str:
        """Write the ring as it is, for all processes of this run; the ring continues. Returns the dump's
        folder, or why none was made. The dump reaches back to ``since`` (perf_counter_ns), even if the
        bounds do not reach so far. Raises OSError."""
        if not self._lock.acquire(timeout=wait_s):
            return BUSY
        try:
            if not self.running:
                return "the recording is over"
            if self._busy or self.folder is None:
                return BUSY if self._busy else "nothing has been recorded yet"
            into = ring_dump.claim(
                self.root,
                made_by,
                self.bounds.gap if gap is None else gap,
                self.bounds.files if most is None else most,
            )
            if isinstance(into, str):
                return into
            now = perf_counter_ns()
            begin = self._from(now)
            begin = begin if since is None else min(begin, since)
            try:
                self._flush()
                if self._room >= 0:
                    self._turn(now)
                    closed = [segment.folder for segment in list(self._segments)[:-1]]
                    ring_dump.part(self.folder, into, closed)
            except BaseException:  # Ctrl-C too leaves nothing behind, and is raised again
                ring_dump.discard(into)
                raise
            if self._room < 0:
                ring_dump.discard(into)
                return "the disk takes nothing"
        finally:
            self._lock.release()
        for other in self.root.glob("part-*"):
            if other != self.folder:
                ring_dump.part(other, into)
        details = self._said(made_by, why, begin)
        ring_dump.finish(into, details)
        # the process that attached makes the profile
        if self._on_dump is not None and made_by != ATTACH:
            self._on_dump(into, details)
        return into

    def _said(self, made_by: str, why: str, begin: int) -> dict[str, Any]:
        perf, unix, _ = read_clock()
        return {
            "from_unix": begin + unix - perf,
            "made_by": made_by,
            "why": why,
            "last": str(self.bounds.last),
        }

    def _from(self, now: int) -> int:
        """Return where the last seconds or steps begin; 0 if the recording is shorter."""
        last = self.bounds.last
        if last.seconds is not None:
            return now - int(last.seconds * 1e9)
        assert last.steps is not None
        begins = self._begins
        if not begins:
            return now - int(SECONDS_WITHOUT_STEPS * 1e9)
        # an open step is not among the last complete ones
        index = len(begins) - last.steps - self._step_open
        return begins[index] if index >= 0 else 0

    def _serve(self, now: int) -> None:
        """Make the dump that a slow step or a signal asks for, if it is due."""
        asked = self._asked
        if asked is not None and self._dump(SIGNAL, asked, None, 0.0, 0):
            self._asked = None
        wanted = self._wanted
        if (
            wanted is not None
            and (self._steps_begun > wanted[2] or now > wanted[3])
            and self._dump(SLOW, wanted[0], wanted[1], None, None)
        ):
            self._wanted = None

    def _dump(
        self, made_by: str, why: str, since: int | None, gap: float | None, most: int | None
    ) -> bool:
        """Make a dump, or log why there is none; return False if it must be tried again."""
        try:
            # ``stop`` has the lock while it waits for this thread
            done = self.dump(made_by, why, since, gap, most, wait_s=0.05)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not be the program's
            _log.warning("opscope: the last %s could not be written: %s", self.bounds.last, error)
            return True
        if done is BUSY:
            return False
        if isinstance(done, str):
            reason = " ".join(done.split()[:3])
            if reason not in self._refused:  # each reason is logged once
                self._refused.add(reason)
                _log.warning("opscope: %s; it is not written as a profile: %s", why, done)
        return True

    # ---------------------------------------------------------------- segments

    def start(self, lazy: bool = False) -> None:
        """Begin, as ``Recorder.start``."""
        super().start(lazy)
        self._look_due = perf_counter_ns() + _LOOK_NS
        self._sweep_due = perf_counter_ns() + _SWEEP_NS

    def stop(self) -> None:
        """End: the part becomes a snapshot of the ring, cut where the last seconds or steps begin."""
        wanted, self._wanted = self._wanted, None
        if wanted is not None:  # the steps that should follow will not come
            self._dump(SLOW, wanted[0], wanted[1], None, None)
        with self._lock:
            if self.running and not self._busy:
                begin = self._from(perf_counter_ns())
                self._fact(ring=self._said(*self._ended_by, begin))
            super().stop()

    def because(self, made_by: str, why: str) -> None:
        """Set the cause of the recording's end, which follows."""
        self._ended_by = (made_by, why)

    def _look(self) -> int:
        """Do the work that is due on the idle writer's thread; return the ns until the next check. Never
        raises."""
        now = perf_counter_ns()
        left = self._tick()
        if now >= self._look_due:
            self._look_due = now + _LOOK_NS
            try:
                self._maintain(now)
                self._serve(now)
            except Exception:  # noqa: BLE001 - a fault of ours must not be the program's
                _log.exception(
                    "opscope: the ring of the last %s is not kept flat", self.bounds.last
                )
                self._look_due = 1 << 62
        return min(left, max(self._look_due - perf_counter_ns(), 0))

    def _maintain(self, now: int) -> None:
        # ``stop`` has the lock while it waits for this thread
        if not self._lock.acquire(timeout=0.05):
            return
        try:
            if not self.running or self._busy or self.folder is None or self._room < 0:
                return
            self._turn_if_due(now)
        except OSError as error:
            self._fail(error)
        finally:
            self._lock.release()
        if now >= self._sweep_due:
            self._sweep_due = now + _SWEEP_NS
            self._sweep(now)

    def _turn_if_due(self, now: int) -> None:
        if not self._segments:
            return
        current, bounds = self._segments[-1], self.bounds
        steps = bounds.segment_steps
        byte_count = current.bytes + sum(segmented.held() for segmented in self.segmented)
        if (
            now - current.begin < bounds.segment_ns
            and (steps is None or current.steps < steps)
            and byte_count < bounds.max_bytes // 8
        ):
            return
        self._flush()
        self._turn(now)
        self._forget(now)

    def _turn(self, now: int) -> None:
        """End the current segment and begin the next one."""
        ended = self._segments[-1] if self._segments else None
        self._clock()
        self._costs()
        self._write([], b"")
        self._older, self._recent = self._recent, self._strings_bytes
        self._begin_segment(now)
        if ended is not None:
            ended.end = now
            for segmented in self.segmented:
                segment_bytes, fact = segmented.segment(ended.folder, self._segments[-1].folder)
                ended.bytes += segment_bytes
                if fact:
                    self._fact(**fact)
        # each segment begins with a reading of the clock, and with opscope's cost up to then
        self._clock()
        self._costs()
        self._write([], b"")

    def _begin_segment(self, now: int) -> None:
        assert self.folder is not None
        self._numbers += 1
        folder = self.folder / ring_dump.segment_name(self._numbers)
        folder.mkdir()
        begun: dict[str, int] = {}
        try:
            for key, name in ((EVENTS, EVENTS), ("segment", FACTS)):
                begun[key] = os.open(folder / name, FILE_FLAGS, 0o644)
        except OSError:
            for descriptor in begun.values():
                os.close(descriptor)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        for key in (*_BY_SEGMENT, "segment"):
            if key in self._files:
                os.close(self._files.pop(key))
        self._files |= begun
        self._segments.append(_Segment(folder, now))

    def _fail(self, error: OSError) -> None:
        """Pause until the disk accepts writes again."""
        if self._room >= 0:
            self._since_refusal = perf_counter_ns()
            self._retry = self._since_refusal + _RETRY_NS
            if self._gaps == _MOST_TOLD:
                _log.warning("opscope: further losses are not logged; the profile counts them")
        super()._fail(error)

    def log_level(self) -> int:
        """Return the level at which a refusal is logged, since it may recur."""
        return logging.WARNING if self._gaps <= _MOST_TOLD else logging.DEBUG

    def _begin_anew(self) -> bool:
        """Begin the ring anew, if it is time and the disk accepts writes. Its old data is dropped: ranges
        whose end was lost in the gap would seem to last until after it."""
        now = perf_counter_ns()
        if not self.running or now < self._retry:
            return False
        self._retry = now + _RETRY_NS
        since = self._since_refusal
        try:
            if self.folder is None:
                self._open()
            elif (
                self._segments[-1].begin < since
            ):  # otherwise a segment was begun, and later writes were refused
                self._begin_segment(now)
            before = [segment for segment in self._segments if segment.begin < since]
            for segmented in self.segmented:
                fact = segmented.segment(before[-1].folder, self._segments[-1].folder)[1]
                if fact:
                    self._fact(**fact)
            gap = now - since
            note = (
                f"the ring could not be written {self._gaps + 1} times, for"
                f" {(self._gap_ns + gap) / 1e9:.1f} s together: what happened then, and before, is not in it"
            )
            self._kept["gap"] = json.dumps(
                {"note": note, "severity": "warning", "how_many": self._gap_records}
            )
            self._rewrite_facts()
        except OSError as error:
            _log.debug("opscope: the ring is not written yet: %s", error)
            return False
        for _ in before:
            shutil.rmtree(self._segments.popleft().folder, ignore_errors=True)
        self._gaps, self._gap_ns = self._gaps + 1, self._gap_ns + gap
        self._room, self._early_end = self._limit, None
        self._clock()
        self._costs()
        _log.log(
            self.log_level(),
            "opscope: the ring in %s begins anew after %.1f s: what it had is not in it",
            self.folder,
            gap / 1e9,
        )
        return True

    def _forget(self, now: int) -> None:
        """Delete segments that are too old, and rewrite shared files that have doubled."""
        keep = self._from(now)
        if self._slow is not None and len(self._begins) > 1:
            most = int((self.bounds.last.seconds or SECONDS_WITHOUT_STEPS) * 1e9) * _MOST_TIMES
            around = self._wanted[1] if self._wanted is not None else self._begins[-2]
            keep = min(keep, max(around, now - most))
        segments, size = self._segments, sum(segment.bytes for segment in self._segments)
        while len(segments) > 1 and (
            segments[0].end <= keep or size > self.bounds.max_bytes * 7 // 8
        ):
            gone = segments.popleft()
            size -= gone.bytes
            if gone.end > keep:
                self._fact(
                    note=f"the ring reached {self.bounds.max_bytes >> 20} MiB: what is older is not in it",
                    severity="warning",
                    how_many=1,
                )
            shutil.rmtree(gone.folder, ignore_errors=True)
        if self._strings_bytes > self._compact_strings or self._facts_bytes > self._compact_facts:
            self._compact()

    def _compact(self) -> None:
        from . import emit  # lazy: it imports the recorder

        alive = emit.reusable()
        if alive is None:  # another thread is preparing a text: try again with the next segment
            return
        everything = False
        for source in self.sources:
            if isinstance(source, Reusable):
                alive |= source.reusable()
            else:
                everything = True
        used, threads = used_in([segment.folder / EVENTS for segment in self._segments])
        assert self.folder is not None
        with open(self.folder / STRINGS, "rb") as file:
            lines = file.read(self._older).splitlines(keepends=True)
            recent = file.read()
        if not everything:
            wanted = alive | used
            lines = [line for line in lines if int(line[1 : line.index(b",")]) in wanted]
        self._anew(STRINGS, b"".join([*lines, recent]))
        self._strings_bytes = sum(map(len, lines)) + len(recent)
        self._older, self._recent = self._strings_bytes - len(recent), self._strings_bytes
        self._compact_strings = max(2 * self._strings_bytes, _LEAST_STRINGS)
        gone = [
            index
            for index, (_, native) in self._threads_facts.items()
            if index not in threads and not os.path.exists(f"/proc/self/task/{native}")
        ]
        for index in gone:
            del self._threads_facts[index]
        self._rewrite_facts()

    def _rewrite_facts(self) -> None:
        facts = [*self._kept.values(), *(line for line, _ in self._threads_facts.values())]
        data = "".join(f"{line}\n" for line in facts).encode()
        self._anew(FACTS, data)
        self._facts_bytes = len(data)
        self._compact_facts = max(2 * len(data), _LEAST_FACTS)

    def _anew(self, name: str, data: bytes) -> None:
        """Rewrite a file of the part, which is open for appending."""
        assert self.folder is not None
        temporary = self.folder / f"{name}.tmp"
        descriptor = os.open(temporary, FILE_FLAGS | os.O_TRUNC, 0o644)
        try:
            append(descriptor, data)
            temporary.replace(self.folder / name)
        except OSError:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        os.close(self._files[name])
        self._files[name] = descriptor

    def _sweep(self, now: int) -> None:
        """Delete the parts of this machine's dead processes that have no data in the kept time."""
        assert self.folder is not None
        begin, mine = self._from(now), _PART.fullmatch(self.folder.name)
        if begin <= 0 or mine is None:
            return
        oldest = time.time() - (now - begin) / 1e9 - 1
        for other in self.root.glob("part-*"):
            match = _PART.fullmatch(other.name)
            if match is None or match[1] != mine[1] or os.path.exists(f"/proc/{match[2]}"):
                continue
            try:
                newest = max((path.stat().st_mtime for path in other.rglob("*")), default=0.0)
            except FileNotFoundError:  # another process of the run deletes it
                continue
            if newest < oldest:
                shutil.rmtree(other, ignore_errors=True)

    # ---------------------------------------------------------------- files

    def _open(self) -> None:
        super()._open()
        os.close(self._files.pop(EVENTS))
        assert self.folder is not None
        os.unlink(self.folder / EVENTS)
        try:
            self._begin_segment(perf_counter_ns())
        except OSError:
            self._discard()
            raise

    def _write(self, chunks: list[bytes], memory: bytes) -> None:
        if self._room < 0 and not self._begin_anew():
            self._gap_records += sum(map(len, chunks)) // RECORD_BYTES
            if len(self._strings) > _MOST_TEXTS:  # stop for good: events may use any dropped text
                self._strings.clear()
                if self._retry != _NEVER:
                    self._retry = _NEVER
                    _log.warning(
                        "opscope: the ring in %s ends here: more than %d texts waited for it",
                        self.folder or self.root,
                        _MOST_TEXTS,
                    )
            self._note_facts()
            self._write_early_end()
            return
        if self.folder is None:
            self._open()
        lines = self._strings
        if lines:
            count = len(lines)
            texts = (line if isinstance(line, str) else json.dumps(line) for line in lines[:count])
            data = ("\n".join(texts) + "\n").encode()
            self._append(STRINGS, data)
            self._strings_bytes += len(data)
            del lines[:count]
        self._write_facts()
        segment = self._segments[-1]
        events = b"".join(chunks)
        self._append(EVENTS, events)
        self.written += len(events) // RECORD_BYTES
        self._append(MEMORY, memory)
        segment.bytes += len(events) + len(memory)
        now = perf_counter_ns()
        overdue = now - segment.begin > _OVERDUE * self.bounds.segment_ns
        if (overdue or segment.bytes > self.bounds.max_bytes // 4) and not self._turning:
            self._turning = True  # no thread of ours runs, or it runs too late: do it here
            try:
                self._turn(now)
                self._forget(now)
            finally:
                self._turning = False

    def _write_stacks(self, samples: bytes, lines: list[str]) -> None:
        self._stack_lines += (
            lines  # later samples need stacks that are described while nothing can be written
        )
        if len(self._stack_lines) > _MOST_TEXTS and self._room < 0:
            self._stack_lines.clear()
            self._retry = _NEVER
        super()._write_stacks(samples, self._stack_lines)
        if self._room >= 0:  # old samples are deleted with their segment
            self._stack_lines = []
            self._room = self._limit
            self._segments[-1].bytes += len(samples)

    def _folder_of(self, name: str) -> Path:
        return self._segments[-1].folder if name in _BY_SEGMENT else super()._folder_of(name)

    def _write_facts(self) -> None:
        shared, timed = self._note_facts()
        for name, lines in ((FACTS, shared), ("segment", timed)):
            if lines:
                data = ("\n".join(lines) + "\n").encode()
                self._append(name, data)
                if name == FACTS:
                    self._facts_bytes += len(data)

    def _note_facts(self) -> tuple[list[str], list[str]]:
        """Take the new facts: facts that segments share, which are kept, and those of this segment."""
        count = len(self._facts)
        shared: list[str] = []
        timed: list[str] = []
        for line in self._facts[:count]:
            first = line[2 : line.index('"', 2)]
            if first in _OF_A_SEGMENT:
                timed.append(line)
            elif first == "thread":
                fact = json.loads(line)
                self._threads_facts[fact["thread"]] = (line, fact["os_tid"])
                shared.append(line)
            else:
                # of these facts one of each kind is kept; of notes and domains, each distinct one
                key = line if first in _SEVERAL else first
                if self._kept.get(key) != line and (
                    key in self._kept or len(self._kept) < _MOST_FACTS
                ):
                    self._kept[key] = line
                    shared.append(line)
        del self._facts[:count]
        return shared, timed
