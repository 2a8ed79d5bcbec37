"""The profiles that ONNX Runtime takes of sessions: turned on by us, ended once, given to a recording.

ONNX Runtime keeps a profile's events in memory and writes them when the profile ends, which happens once in
the life of a session. It writes to a file that is unlinked as soon as it is open, so nothing is left of it
however the program ends.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from opscope.core.capture.recorder_sink import Recorder
from opscope.core.recording_format import ONNX_FOLDER, ONNX_MODEL, ONNX_ORIGINAL, ONNX_PROFILE

from .known import KnownSession, KnownSessions

_log = logging.getLogger(__name__)

#: A profile is ended at about this many events: ONNX Runtime 1.31 keeps 1.9 kB of memory for each, drops
#: those after a million, and says so on stderr.
MAX_EVENTS: Final = 250_000

#: Why a session that ran has no node times.
UNASKED: Final = (
    'ONNX Runtime\'s nodes are timed if that is asked for: opscope.init(frameworks=["onnxruntime"]) before '
    "the session is made, or opscope run"
)
BEFORE: Final = "sessions without node times: they were made before opscope.init()"
SPENT: Final = "sessions without node times: each is profiled once, and an earlier capture has that"
THEIRS: Final = (
    "sessions without node times: the program profiles them itself and has not ended that profile within "
    "the capture"
)
REFUSED: Final = "sessions without node times: no profile could be begun"
FULL: Final = (
    f"sessions whose node times end at about {MAX_EVENTS:,} events, which are kept in memory"
)


class Profile:
    """The profile of one session. ``native`` is the session in C++, ``file`` the profile's file.

    ``file`` is None for a profile that the program has turned on itself. ``optimised`` and ``original`` are
    the model that runs and the model that was given, without the values of weights; None if not known.
    ``left`` is how many runs remain until the profile is full.
    """

    __slots__ = (
        "began", "file", "full", "known", "left", "native", "optimised", "original", "pid", "recorder",
    )  # fmt: skip

    def __init__(
        self, known_session: KnownSession, native: Any, began: int, file: int | None
    ) -> None:
        self.known = known_session
        self.native = native
        #: Unix ns.
        self.began = began
        self.file = file
        self.optimised: bytes | None = None
        self.original: bytes | None = None
        self.left: int | None = None
        self.full = False
        self.pid = os.getpid()
        #: The recording in which the session has run.
        self.recorder: Recorder | None = None

    def hold(self, events_per_run: int) -> None:
        """Limit the profile, given the number of events in a run."""
        # counted when a run begins: the profile ends before a run that would not fit
        self.left = max(1, MAX_EVENTS // max(1, events_per_run)) + 1


class Profiles:
    """The profiles of this process's sessions; true while one of ours is running."""

    def __init__(
        self,
        known_sessions: KnownSessions,
        changed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._known = known_sessions
        self._changed = changed
        self._failed = failed
        self._lock = threading.RLock()
        self._running: dict[int, Profile] = {}
        self._recorder: Recorder | None = None
        self._without: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return any(profile.file is not None for profile in tuple(self._running.values()))

    def add(self, session: Any, profile: Profile) -> None:
        """Keep a profile that has just begun, until a capture takes it or the session ends."""
        known = profile.known
        known.profile, known.without = profile, THEIRS if profile.file is None else SPENT
        with self._lock:
            self._running[known.number] = profile
        # No exit handler is needed: whatever ends a capture at the program's exit collects its profiles.
        weakref.finalize(session, self._ended, profile).atexit = False
        self._changed()

    def made_again(self, session: Any) -> None:
        """End the profile of a session that is made again, on other providers. Never raises."""
        try:
            profile = self._known.profile(session)
            if profile is not None:
                self._ended(profile)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the profile of a session that is made again could not be ended")

    # ---------------------------------------------------------------- what runs call

    def runs(self, session: Any, known_session: KnownSession) -> None:
        """Note that a session begins a run while something listens."""
        if known_session.heard is not self._recorder:
            self._first_run(known_session)
        profile = known_session.profile
        if profile is not None and profile.left is not None:
            self._count(profile)

    def ran(self, session: Any) -> None:
        """Note that a session begins a run while nothing listens: its events still take memory."""
        profile = self._known.profile(session)
        if profile is not None and profile.left is not None:
            self._count(profile)

    def _count(self, profile: Profile) -> None:
        assert profile.left is not None
        profile.left -= 1
        if profile.left > 0:
            return
        try:
            profile.left, profile.full = None, True
            profile.known.without = FULL
            self._ended(profile)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a full profile could not be ended")

    def _first_run(self, known_session: KnownSession) -> None:
        recorder = known_session.heard = self._recorder
        if recorder is None:
            return
        profile = known_session.profile
        if profile is None or profile.file is None:
            with self._lock:
                self._without[known_session.without] += 1
        if profile is not None:
            profile.recorder = recorder
            if profile.file is not None:
                # if the process is killed, only this fact remains
                recorder.fact(onnxruntime=known_session.number, model=known_session.name)

    # ---------------------------------------------------------------- the end of a profile

    def listen(self, recorder: Recorder | None, capturing: bool) -> None:
        """Follow the recording: ``recorder`` is the present one, ``capturing`` whether a capture runs.

        A capture may change its recorder midway; the profiles go into its last one.
        """
        if recorder is not None:
            if self._recorder is not recorder:
                self._recorder = recorder
                for profile in tuple(self._running.values()):
                    profile.known.heard = None
            return
        if capturing or self._recorder is None:
            return
        ended, self._recorder = self._recorder, None
        for profile in tuple(self._running.values()):
            if profile.recorder is not None and profile.file is not None:
                self._store(profile, ended)
        self._say(ended)

    def _say(self, recorder: Recorder) -> None:
        """Note which sessions ran without node times, and why."""
        with self._lock:
            without, self._without = self._without, Counter()
        for why, how_many in without.items():
            recorder.note("info", why, how_many)

    def _ended(self, profile: Profile) -> None:
        """End a profile that is full or whose session ends; the recording gets it if the session ran."""
        with self._lock:
            if profile.known.number not in self._running:
                return
        recorder = self._recorder
        if profile.file is not None and recorder is not None and profile.recorder is recorder:
            self._store(profile, recorder)
        else:
            self._drop(profile)

    def _drop(self, profile: Profile) -> None:
        """End a profile without keeping it."""
        with self._lock:
            if self._running.pop(profile.known.number, None) is None:
                return
        profile.known.profile = None
        native, profile.native = profile.native, None
        file, profile.file = profile.file, None
        if file is not None:
            if profile.pid == os.getpid():
                native.end_profiling()
            os.close(file)

    def _store(self, profile: Profile, recorder: Recorder) -> None:
        """End a profile of ours and write it into the recording."""
        try:
            if profile.pid != os.getpid():
                return  # a forked child: the profile belongs to its parent
            file = profile.file
            assert file is not None
            profile.native.end_profiling()
            with os.fdopen(os.dup(file), "rb") as written:
                written.seek(0)
                self._write(profile, recorder, written)
        except OSError as error:
            _log.warning("opscope: node times of %s are lost: %s", profile.known.name, error)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("node times could not be kept")
        finally:
            self._drop(profile)

    def _write(self, profile: Profile, recorder: Recorder, written: Any) -> None:
        folder = recorder.written_folder()
        if folder is None:
            return  # the recording is empty
        number = profile.known.number
        folder = folder / ONNX_FOLDER.format(number)
        folder.mkdir(exist_ok=True)
        with (folder / ONNX_PROFILE).open("wb") as target:
            shutil.copyfileobj(written, target, 1 << 20)
        for name, model in (
            (ONNX_MODEL, profile.optimised),
            (ONNX_ORIGINAL, profile.original),
        ):
            if model is not None:
                (folder / name).write_bytes(model)
        recorder.fact(
            onnxruntime=number,
            model=profile.known.name,
            began=profile.began,
            full=profile.full,
        )

    def close(self) -> None:
        """End all profiles; a recording that still runs gets those of the sessions that ran in it."""
        recorder, self._recorder = self._recorder, None
        for profile in tuple(self._running.values()):
            stored = profile.file is not None and profile.recorder is not None
            if stored and recorder is not None and recorder.running:
                self._store(profile, recorder)
            else:
                self._drop(profile)
        if recorder is not None and recorder.running:
            self._say(recorder)

    # ---------------------------------------------------------------- what the program sees

    def around_end(self, original: Any) -> Any:
        """Return the replacement of ``end_profiling``, which hides opscope's profiles from the program."""

        @functools.wraps(original)
        def end_profiling(session: Any) -> Any:
            profile = self._known.profile(session)
            if profile is not None and profile.file is not None:
                return ""
            path = original(session)
            if profile is not None:
                self._copy(profile, path)
            return path

        return end_profiling

    def around_time(self, original: Any) -> Any:
        """Return the replacement of ``get_profiling_start_time_ns``, which does the same."""

        @functools.wraps(original)
        def get_profiling_start_time_ns(session: Any) -> Any:
            profile = self._known.profile(session)
            return 0 if profile is not None and profile.file is not None else original(session)

        return get_profiling_start_time_ns

    def _copy(self, profile: Profile, path: Any) -> None:
        """Copy the program's own profile, which has just ended, into the recording."""
        recorder = self._recorder
        try:
            if path and recorder is not None and profile.recorder is recorder:
                with Path(path).open("rb") as written:
                    self._write(profile, recorder, written)
                with self._lock:
                    self._without[THEIRS] -= 1
                    self._without += Counter()  # this drops zeros
        except OSError as error:
            _log.warning("opscope: the profile %s could not be copied: %s", path, error)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a profile could not be copied")
        finally:
            self._drop(profile)
