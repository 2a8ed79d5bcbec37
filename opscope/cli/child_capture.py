"""The captures of ``opscope run``'s children: ranges from the start, kernels once the GPU is used."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from opscope.backends import Backend, Choice, begins, here
from opscope.backends.recorder import RECORDER
from opscope.backends.window import EXACT, Bounds
from opscope.core.capture import session
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.capture.session import Capture

_log = logging.getLogger(__name__)
#: Longest wait of a program's thread while another begins a backend: CUPTI took 1.3 s on an H100.
WAIT_S: Final = 10.0


class Recording:
    """The recorder, which creates its part at the first record: most child processes record nothing.
    ``choice`` goes into the recording: why the recorder records."""

    def __init__(self, folder: str | os.PathLike[str], choice: Choice | None = None) -> None:
        self.folder = Path(folder)
        self._choice = choice

    def warmup(self) -> None:
        """Do nothing: starting is fast."""

    def __repr__(self) -> str:
        return "the recording of opscope run"

    def start(self) -> None:
        """Start recording. Raises OSError if the folder is gone."""
        recorder = Recorder(self.folder)
        recorder.start(lazy=True)
        session.listen(recorder)
        if self._choice is not None:
            self._choice.tell(recorder)

    def in_child(self) -> bool:
        """Record a forked child in the same way as its parent."""
        return True

    def stop(self) -> None:
        """Stop recording, and note whether the process used a GPU, whose kernels are not recorded here."""
        self._stop(begins.cuda_in_use())

    def stop_unused(self) -> None:
        """Stop a recording whose process is about to use a GPU for the first time: no kernel has run yet."""
        self._stop(False)

    def _stop(self, used: bool) -> None:
        recorder = session.recorder()
        session.listen(None)
        if recorder is not None:
            if used:
                recorder.fact(gpu=True)
            recorder.stop()


class RecordingWithMore(Recording):
    """A recording that adds a backend's data once the program uses what one of ``backends`` records.

    The profiler starts no earlier, because starting it would make choices that belong to the program.
    Initialising CUDA creates a context in processes that never use a GPU, and their forked children could no
    longer use one; starting JAX's backends fixes its devices. What was recorded before that is one part of
    the recording; what comes after, with the profiler's trace, is another part. A program that starts a
    profiler itself conflicts with this one: use ``--backend recorder`` there. ``bounds`` limits the
    profiler's window. A forked child records on its own, and starts its own profiler once it uses a device.
    ``choice`` is what was chosen before the program began.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        bounds: Bounds = EXACT,
        backends: Sequence[Backend] = (),
        choice: Choice | None = None,
    ) -> None:
        super().__init__(folder, choice)
        self._bounds = bounds
        self._backends: list[Backend] = []
        self._inner: Capture | None = None
        self._beginning = threading.Lock()
        self._beginner: int | None = None  # the lock belongs to this thread already
        self._ended = False
        for backend in backends:
            try:
                backend.when_used(self._begins)
            except Exception as error:  # noqa: BLE001 - another package's backend must not end the recording
                _log.warning("opscope: the backend %s is not used: %s", backend.name, error)
                continue
            self._backends.append(backend)

    def start(self) -> None:
        """Start recording. Raises OSError if the folder is gone."""
        self._ended = False
        self._start(lambda: None)

    def _start(self, end: Callable[[], None]) -> None:
        """Start recording; ``end`` ends the recording before. Raises OSError if the folder is gone."""
        failed: list[tuple[Backend, str]] = []
        for backend in self._backends:
            try:
                if backend.in_use():
                    self._inner = self._with_more(backend, failed, end)
                    return
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001 - SessionError, or a fault of another package
                _log.warning("opscope: %s are not recorded: %s", backend.gives, error)
                failed.append((backend, str(error)))
        end()
        self._inner = Recording(self.folder, self._alone().instead_of(failed))
        self._inner.start()

    def stop(self) -> None:
        """Stop recording. A second call does nothing."""
        self._ended = True
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.stop()

    def settle(self) -> None:
        """Wait for a backend that another thread is beginning, so that ``stop`` ends it."""
        if threading.get_ident() != self._beginner and self._beginning.acquire(timeout=WAIT_S):
            self._beginning.release()

    def _with_more(
        self, backend: Backend, failed: Sequence[tuple[Backend, str]], end: Callable[[], None]
    ) -> Capture:
        """Return the backend's capture, started; end the recording before. Raises what starting raises."""
        capture = backend.capture(self.folder, self._bounds)
        if hasattr(capture, "announce"):
            capture.announce = _print_line
        # a profiler may take seconds to start: until then the other recording continues
        take_over = getattr(capture, "take_over", None)
        if take_over is None:
            end()
        else:
            take_over(end)
        capture.start()
        recorder = session.recorder()
        if backend.gpu and recorder is not None:
            recorder.fact(gpu=True)
        self._with(backend).instead_of(failed).tell(recorder)
        return capture

    def _with(self, backend: Backend) -> Choice:
        """Return why this backend records, now that the program uses what it records."""
        before = self._choice
        if before is not None and before.name == backend.name:
            return before
        better = () if before is None else before.better
        reason = backend.available(here()).why
        return Choice(
            backend.name,
            reason,
            tuple(candidate for candidate in better if candidate[0] != backend.name),
        )

    def _alone(self) -> Choice:
        """Return why the recorder records alone, for now."""
        before = self._choice
        if before is not None and before.name == RECORDER.name:
            return before
        unused = [
            (backend.name, "the program has not used what it records") for backend in self._backends
        ]
        reason = "the program has used nothing that another backend here records"
        names = dict(unused)
        better = () if before is None else tuple(o for o in before.better if o[0] not in names)
        return Choice(RECORDER.name, reason, (*better, *unused))

    def in_child(self) -> bool:
        """Drop the parent's profiler in a forked child; the child's own starts once it uses a device."""
        self._beginning = threading.Lock()  # a thread of the parent may have held the lock
        self._beginner = None
        if self._inner is not None:
            self._inner = Recording(self.folder, self._alone())
        return True

    def _begins(self) -> None:
        # Several backends notice the first use of the device, some on threads of their own. A thread of the
        # program waits for them, because its work meanwhile would have no kernels; the wait is limited,
        # because the first backend may need a lock that the waiting thread has.
        if threading.get_ident() == self._beginner:
            return
        if not self._beginning.acquire(timeout=WAIT_S):
            _log.warning("opscope: kernels that ran before their recording began are missing")
            return
        before = self._inner
        try:
            self._beginner = threading.get_ident()
            if type(before) is Recording:
                self._start(before.stop_unused)
                if self._ended:
                    self.stop()
        except Exception as error:  # noqa: BLE001  the framework would raise it into the user's program
            _log.warning("opscope: recording stops here: %s", error)
            if type(before) is Recording:
                before.stop()
            self._inner = None
        finally:
            self._beginner = None
            self._beginning.release()


def _print_line(line: str) -> None:
    """Print a line on stderr, once per machine: the ranks that torchrun starts would all print it."""
    if os.environ.get("LOCAL_RANK", "0") == "0" and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # stderr is closed: nobody can read it
            sys.stderr.write(f"opscope: {line}\n")
            sys.stderr.flush()
