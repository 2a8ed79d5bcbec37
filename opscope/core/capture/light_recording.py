"""Light mode's recording: sums over the clock's steps and samples, written once a second to bounded files.
It is in a part of its own (``recording_format``), beside the parts that captures of the same process make."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.light_format import LOG, RECORD, SAMPLE, SNAPSHOT, TOOK, WIDTH
from opscope.core.light_summary import Summary, read_records
from opscope.core.refusals import refusal, refuse_size

from . import cpu_samples, session
from .light import Clock, LightClock, call_ns
from .light_spells import Spells
from .own_cost import Spent
from .recorder_sink import FILE_FLAGS, Recorder, Sampling, append

_log = logging.getLogger(__name__)

#: Samples per second in light mode, unless the user chose.
RATE: Final = 1.0
#: The log is replaced by a snapshot once it has this many bytes, or is this old (ns).
LOG_BYTES: Final = 1 << 18
LOG_NS: Final = 60_000_000_000
#: Seconds between tries to write what could not be written.
RETRY_NS: Final = 5_000_000_000
_BITS: Final = struct.Struct("<d")
_INT: Final = struct.Struct("<q")


class LightRecording:
    """The light mode of this process, from ``start`` on until ``stop``, the process's end at the latest.

    The part is made when the first step begins; a process without steps leaves nothing. ``spell`` makes the
    capture of a slow spell; None: none is recorded. ``rate``: samples per second, 0 for none. ``clock`` makes
    the clock. Nothing of it raises into the program.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        spell: Callable[[], session.Capture] | None = None,
        rate: float | None = None,
        clock: Callable[[], Clock] = LightClock,
    ) -> None:
        self.folder = Path(folder)
        self.clock = clock()
        self._scratch = clock
        self._rate = cpu_samples.chosen_rate(RATE) if rate is None else rate
        self._spell = spell
        #: The cost of a hook and of a turn that the clock itself does not measure (ns).
        self._outside = self._outside_turn = 0.0
        self._running, self._started = False, 0
        self._clear()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def _clear(self) -> None:
        self.summary = Summary()
        self.spells = Spells(self.clock, self._spell)
        self._recorder: Recorder | None = None
        self._sampler: Sampling | None = None
        self._names: dict[str, int] = {}
        self._log: int | None = None
        self._log_bytes = 0
        self._log_since = 0
        self._failed = False
        # when to try writing again; 0: no write was refused
        self._retry = 0
        self._written_ns = 0
        self._writes = 0
        self.clock.started = self._begin

    # ------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Measure the steps of this process from now on."""
        scratch = self._scratch()
        self._outside = call_ns(scratch)
        turn = session.light_step_ns(scratch)
        self._outside_turn = 2 * self._outside if turn is None else turn
        self._running, self._started = True, perf_counter_ns()
        self._unwatch = session.on_activity(self._listens)
        self._unhook = session.on_optimizer(self.clock.optimizes, self.clock.optimized)
        self._listens()
        session.measure_steps(self.clock, self.stop)

    def stop(self) -> None:
        """End, and write everything. A second call does nothing. Never raises."""
        if not self._running:
            return
        self._running = False
        try:
            session.measure_steps(None)
            self._unwatch()
            self._unhook()
            self.spells.end()
            recorder = self._recorder
            if recorder is None:
                return
            recorder.flush()
            self._recorder = None
            for severity, message, how_many in self._notes():
                recorder.note(severity, message, how_many)
            recorder.stop()
            self._absorb(recorder)
            self._snapshot(recorder)
            if self._log is not None:
                os.ftruncate(self._log, 0)
        except OSError as error:
            _log.warning("opscope: light mode's end is not written: %s", refusal(error))
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            _log.exception("opscope: light mode could not be ended")
        finally:
            self._close()

    def _listens(self) -> None:
        self.clock.full = session.recorder() is not None

    def _begin(self) -> None:
        """Make the part; called when the first step begins, on the program's thread."""
        try:
            recorder = _Patient(self.folder, sampler=self._make_sampler, stacks=False)
            recorder.refused = self._refuse
            recorder.start()
            if self._started:  # the program is observed from here on, although no step had begun
                recorder.fact(start=self._started)
            recorder.spending.append(self._spent)
            self._recorder = recorder
            recorder.attach(self)
        except OSError as error:
            _log.warning(
                "opscope: light mode records nothing into %s: %s",
                self.folder,
                refusal(error),
            )

    def _make_sampler(self, recorder: Recorder) -> Sampling | None:
        """Return a sampler for the writer's thread, whose samples go to this recording."""
        if self._rate:
            self._sampler = cpu_samples.CpuSampler(
                self._rate, recorder.note, lambda: recorder.spending.append(sampler.spent)
            )
            sampler = self._sampler
            return _Elsewhere(sampler)
        return None

    def _in_child(self) -> None:
        """Begin anew in a forked child, which gets a part of its own once it has steps."""
        if not self._running:
            return
        self._started = perf_counter_ns()
        recorder = self._recorder
        if recorder is not None:
            recorder.abandon()
        self._close()
        self.spells.after_fork()
        self.clock.after_fork()
        self._clear()

    # -------------------------------------------------------- on the writer's thread

    def take(self) -> tuple[bytes, bytes, list[tuple[int, int, int]]]:
        """Add up and write the new data; called by the recorder at each flush, without events."""
        recorder = self._recorder
        if recorder is not None and not self._failed:
            try:
                self._absorb(recorder)
            except OSError as error:  # the folder is gone, or the disk full
                self._refuse(error)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed = True
                _log.exception("opscope: light mode records nothing from here on")
        return b"", b"", []

    def _refuse(self, error: OSError) -> None:
        """Continue in memory while nothing can be written: the data there is bounded."""
        if not self._retry:
            _log.warning(
                "opscope: light mode goes on in memory, and is lost if the process is killed before it can be"
                " written again: %s",
                refusal(error),
            )
        self._retry = perf_counter_ns() + RETRY_NS

    def notes(self) -> list[tuple[str, str, int]]:
        """Return no notes: ``stop`` adds them."""
        return []

    def _absorb(self, recorder: Recorder) -> None:
        begin = perf_counter_ns()
        steps = read_records(self.clock.take())
        records = [steps, self._sample(recorder)]
        rows = np.concatenate([record for record in records if len(record)] or [steps])
        if not len(rows):
            return
        rows = rows.copy()
        rows[:, 0] = self.summary.records + np.arange(len(rows))
        self.summary.add(rows)
        if len(steps):
            self.spells.learn(steps[:, TOOK])
        if recorder.folder is not None:
            self._keep(recorder, rows.tobytes())
        self._written_ns += perf_counter_ns() - begin
        self._writes += 1

    def _sample(self, recorder: Recorder) -> NDArray[np.int64]:
        """Return the samples since the last call as records."""
        rows: list[tuple[int, ...]] = []
        for fact in [] if self._sampler is None else self._sampler.take():
            device = fact.get("device", -1)
            for name, values in fact["values"].items():
                number = self._names.get(name)
                if number is None:
                    number = self._names[name] = len(self._names)
                    recorder.fact(light_name=number, name=name)
                for time, value in zip(fact["samples"], values, strict=True):
                    if value is not None:
                        bits = _INT.unpack(_BITS.pack(value))[0]
                        rows.append((0, SAMPLE, time, number, device, bits, 0, 0, 0, 0))
        return np.array(rows, np.int64).reshape(len(rows), WIDTH)

    def _keep(self, recorder: Recorder, data: bytes) -> None:
        """Write new records to the log, or rewrite the whole summary. Raises OSError."""
        assert recorder.folder is not None
        now = perf_counter_ns()
        if self._retry and now < self._retry:
            return
        if self._log is None:
            self._log = os.open(recorder.folder / LOG, FILE_FLAGS, 0o644)
            self._log_since = now
        if not self._retry:
            append(self._log, data)
            self._log_bytes += len(data)
        if self._retry or self._log_bytes >= LOG_BYTES or now - self._log_since >= LOG_NS:
            self._snapshot(recorder)
            os.ftruncate(self._log, 0)
            self._log_bytes, self._log_since = 0, now
        if self._retry:
            self._retry = 0
            _log.warning("opscope: light mode is written again; nothing is lost")

    def _snapshot(self, recorder: Recorder) -> None:
        if recorder.folder is None:
            return
        path = recorder.folder / SNAPSHOT
        temporary = path.with_suffix(".tmp")
        pieces = self.summary.snapshot(self.facts())
        try:
            refuse_size(sum(memoryview(piece).nbytes for piece in pieces))
            with temporary.open("wb") as file:
                file.writelines(pieces)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            os.close(log)

    # ------------------------------------------------------------------------- its cost

    def step_cost(self) -> tuple[float, float] | None:
        """Return the cost of a step's hooks and the half width of its interval (ns); None if not known
        yet. For the part that the hooks measure, it is the interval of the median. The rest is measured in
        a loop without a program, so half of the rest is added to the interval."""
        clock = self.clock
        cost = clock.cost
        middle = cost.middle()
        if middle is None:
            return None
        usual, half = middle
        outside = (
            clock.measured_calls * self._outside + clock.measured_turns * self._outside_turn
        ) / cost.count
        return usual + outside, sqrt(half * half + (outside / 2) ** 2)

    def facts(self) -> dict[str, Any]:
        """Return further facts for readers (ns)."""
        cost = self.step_cost()
        return {
            "cost": None if cost is None else [round(cost[0]), round(cost[1])],
            "measured": self.clock.cost.count,
            "writing": self._written_ns,
            "dropped": self.clock.dropped,
            "spells": self.spells.seen,
            "recorded": self.spells.recorded,
            "not_recorded": self.spells.not_recorded,
            "names": {str(number): name for name, number in self._names.items()},
        }

    def _spent(self) -> Spent:
        cost = self.step_cost()
        steps = self.summary.steps
        return Spent("light mode", None if cost is None else int(cost[0] * steps), steps, 64, 0)

    def _notes(self) -> list[tuple[str, str, int]]:
        if not self.clock.dropped:
            return []
        return [("warning", "steps were dropped: no thread could write them", self.clock.dropped)]


class _Patient(Recorder):
    """A recorder of facts only: facts are few, so they wait until they can be written."""

    refused: Callable[[OSError], None]

    def _fail(self, error: OSError) -> None:
        self.refused(error)


class _Elsewhere:
    """A sampler whose samples the recorder does not write."""

    def __init__(self, sampler: Sampling) -> None:
        self.tick, self.last, self.spent = sampler.tick, sampler.last, sampler.spent

    def take(self) -> list[dict[str, Any]]:
        return []


assert RECORD.size == WIDTH * 8
