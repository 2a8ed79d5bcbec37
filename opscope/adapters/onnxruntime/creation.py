"""The hook that makes sessions: if node times are requested, it turns ONNX Runtime's profiler on.

The program's ``SessionOptions`` are changed only while the session is made, because a session copies them.
The session still shows the options that the program had set. || The nodes that run are those of the model
after fusion, which ONNX Runtime can save. Saving it from the program's own session would print a warning,
keep its weights in memory, and refuse providers that compile nodes; so the model is loaded twice, first by a
session that is thrown away. Both give the nodes the same names, except for the layout changes that ONNX
Runtime inserts: it names these in the order of addresses.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter_ns
from typing import Any, Final

import onnxruntime
from onnxruntime.capi import _pybind_state as native

from opscope.adapters.shared.stripped import OrtFormat, Stripped, of_bytes, of_file
from opscope.core.capture import session as capture_session

from .known import KnownSessions, model_name
from .profiled import REFUSED, UNASKED, Profile, Profiles

#: Providers that leave nodes as they are. Providers that compile nodes cannot save what they run.
PLAIN: Final = frozenset(
    (
        "CPUExecutionProvider",
        "CUDAExecutionProvider",
        "ROCMExecutionProvider",
        "AzureExecutionProvider",
    )
)
#: Models with more bytes of weights than this are not loaded a second time; protobuf could not save them
#: either.
MAX_WEIGHTS: Final = 1 << 30
#: The level at which ONNX Runtime only logs fatal errors.
_SILENT: Final = 4


def _events_of_a_node() -> int:
    """Return how many events a node writes: 1.20 writes two more for each, before and after; 1.23 does
    not."""
    return 3 if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 23) else 1


class Creation:
    """The hook of ``InferenceSession._create_inference_session``."""

    def __init__(
        self,
        known_sessions: KnownSessions,
        profiles: Profiles,
        profiling: Callable[[], bool],
        failed: Callable[[str], None],
    ) -> None:
        self._known = known_sessions
        self._profiles = profiles
        self._profiling = profiling
        self._failed = failed
        #: Held while a session is made: sessions may share the options that are changed meanwhile.
        self._lock = threading.RLock()

    def around(self, original: Any) -> Any:
        """Return the replacement of ``_create_inference_session``."""

        @functools.wraps(original)
        def _create_inference_session(session: Any, *args: Any, **kwargs: Any) -> Any:
            self._profiles.made_again(session)
            if not self._profiling():
                begin = perf_counter_ns()
                result = original(session, *args, **kwargs)
                took = (begin, perf_counter_ns())
                self._made(session, None, took)
                return result
            with self._lock, _Attempt(session, self._failed) as attempt:
                attempt.save_optimised(original, args, kwargs)
                with attempt.options():
                    begin = perf_counter_ns()
                    result = original(session, *args, **kwargs)
                    took = (begin, perf_counter_ns())
                self._made(session, attempt, took)
            return result

        return _create_inference_session

    def _made(self, session: Any, attempt: _Attempt | None, took: tuple[int, int]) -> None:
        """Describe a session that has just been made, and keep its profile. Never raises."""
        try:
            recorder = capture_session.recorder()
            if recorder is not None:
                recorder.fact(session=model_name(session), took=took)
            session_record = self._known.anew(session)
            profile = None if attempt is None else attempt.profile(session_record)
            if profile is not None:
                self._profiles.add(session, profile)
            else:
                session_record.without = UNASKED if attempt is None else REFUSED
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a session could not be described")


class _Attempt:
    """A session that is being made, with the folder that holds its files meanwhile."""

    def __init__(self, session: Any, failed: Callable[[str], None]) -> None:
        self._session = session
        self._failed = failed
        self._folder: Path | None = None
        self._refused = False
        self._theirs = False
        self._given: Stripped | None = None
        self._optimised: Stripped | None = None

    def __enter__(self) -> _Attempt:
        with contextlib.suppress(OSError):  # the disk is full: there are no node times then
            self._folder = Path(mkdtemp(prefix="opscope-"))
        return self

    def __exit__(self, *error: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # ---------------------------------------------------------------- before the session is made

    def save_optimised(self, original: Any, args: Any, kwargs: Any) -> None:
        """Let a session of ours save the model that runs, if it can. Never raises."""
        if self._folder is None:
            return
        try:
            self._given = self._model_given()
            if self._refused:
                return
            options = self._session._sess_options
            if options is not None and options.optimized_model_filepath:
                return  # the program's own session saves the model
            if self._given is None or self._given.weights > MAX_WEIGHTS:
                return
            if not PLAIN.issuperset(_providers(args, kwargs)):
                return
            self._optimised = self._save(original, args, kwargs)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the model that a session runs could not be saved")

    def _model_given(self) -> Stripped | None:
        path, data = self._session._model_path, self._session._model_bytes
        try:
            return of_bytes(data) if path is None else of_file(path)
        except OrtFormat:
            return None
        except (OSError, ValueError):
            # the program's session will not be made, and a profile begun for it would report that too
            self._refused = True
            return None

    def _save(self, original: Any, args: Any, kwargs: Any) -> Stripped | None:
        assert self._folder is not None
        target = self._folder / "optimised.onnx"
        ours = object.__new__(type(self._session))
        ours.__dict__.update(self._session.__dict__)
        ours._enable_fallback = False
        options = self._session._sess_options or native.get_default_session_options()
        ours._sess_options = ours._sess_options_initial = options
        changes = {
            "optimized_model_filepath": str(target),
            "enable_profiling": False,
            "log_severity_level": _SILENT,
        }
        with warnings.catch_warnings(), _changed(options, changes):
            warnings.simplefilter("ignore")
            try:
                original(ours, *args, **kwargs)
            except Exception:  # noqa: BLE001 - the program's own session reports what is wrong
                self._refused = True
                return None
        del ours
        with contextlib.suppress(OSError, ValueError):
            return of_file(target)
        return None

    @contextlib.contextmanager
    def options(self) -> Iterator[None]:
        """Turn the profiler on in the session's options; afterwards they are as before.

        Raises only what the block raises.
        """
        session, given = self._session, self._session._sess_options
        with contextlib.ExitStack() as undo:
            prefix = self._turn_on(undo)
            try:
                yield
            except BaseException:
                # after an error or an interrupt, the program's session shows the options it was given
                session._sess_options = given
                raise
        if prefix is None:
            return
        try:
            # a copy, which the session shows and which nothing else reads
            shown = session._sess_options
            shown.enable_profiling, shown.profile_file_prefix = False, prefix
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the options that a session shows could not be restored")

    def _turn_on(self, undo: contextlib.ExitStack) -> str | None:
        """Change the options, registering how to undo it in ``undo``; return the program's prefix, None if
        nothing is changed."""
        session, given = self._session, self._session._sess_options
        if self._folder is None or self._refused:
            return None
        try:
            if given is not None and given.enable_profiling:
                self._theirs = True
                return None
            options = native.get_default_session_options() if given is None else given
            prefix = str(options.profile_file_prefix)
            ours = str(self._folder / "profile")
            undo.enter_context(
                _changed(options, {"enable_profiling": True, "profile_file_prefix": ours})
            )
            session._sess_options = options
            return prefix
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._refused = True
            self._failed("a session's profiler could not be turned on")
            return None

    # ---------------------------------------------------------------- when it is made

    def profile(self, session_record: Any) -> Profile | None:
        """Return the profile that has begun; None if none has."""
        session = self._session
        if self._folder is None or self._refused:
            return None
        inner, file = session._sess, None
        began = int(inner.get_profiling_start_time_ns)
        if not self._theirs:
            files = [*self._folder.glob("profile*")]
            if not files:
                return None
            file = os.open(files[0], os.O_RDONLY | os.O_CLOEXEC)
            session._profiling_start_time_ns = 0
        profile = Profile(session_record, inner, began, file)
        path = session._sess_options.optimized_model_filepath
        if path:
            with contextlib.suppress(OSError, ValueError):
                self._optimised = of_file(path)
        profile.original = None if self._given is None else self._given.data
        if self._optimised is not None:
            profile.optimised = self._optimised.data
        if file is not None and self._optimised is not None:
            # two more for the run itself; repetitions in a loop are unknown
            profile.hold(self._optimised.nodes * _events_of_a_node() + 2)
        return profile


@contextlib.contextmanager
def _changed(options: Any, changes: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(options, name) for name in changes}
    try:
        for name, value in changes.items():
            setattr(options, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(options, name, value)


def _providers(args: Any, kwargs: Any) -> list[str]:
    """Return the names of the providers that a session is made for."""
    chosen = (args[0] if args else kwargs.get("providers")) or native.get_available_providers()
    return [provider[0] if isinstance(provider, tuple) else provider for provider in chosen]
