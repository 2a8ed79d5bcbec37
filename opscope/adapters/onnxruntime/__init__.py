"""The ONNX Runtime adapter: supported versions, hooks, what each hook emits, and removal.

A session runs a prepared graph in C++, where Python sees no node. While something listens, a range is pushed
around each ``run*`` call. Only ONNX Runtime's own profiler knows when each node ran, and it is on or off for
the life of a session. If node times are requested, it is turned on for all sessions made from then on, and
each session's profile goes into the recording when the capture ends.
"""

from __future__ import annotations

from typing import ClassVar

from onnxruntime.capi import onnxruntime_inference_collection as collection

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session as capture_session
from opscope.core.capture.emit import Emitter

from .bindings import Bindings
from .creation import Creation
from .known import KnownSessions
from .profiled import BEFORE, UNASKED, Profiles
from .runs import Runs


class OnnxRuntimeAdapter(Adapter):
    """ONNX Runtime: runs of sessions, and the times of their nodes."""

    name: ClassVar[str] = "onnxruntime"
    title: ClassVar[str] = "ONNX Runtime"
    module: ClassVar[str] = "onnxruntime"
    #: The oldest version that is tested.
    requires: ClassVar[str] = ">=1.17"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._runs: Runs | None = None
        self._profiles: Profiles | None = None
        self._recording: object = None
        #: Hooks that are always set, and hooks that are set while something listens or is profiled.
        self._always = Patches()
        self._while_active = Patches()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook what makes sessions and binds inputs, and hook runs if something already listens."""
        if self._emitter is not None:
            return
        self.broken = False
        sessions = KnownSessions(BEFORE if options.profiler else UNASKED)
        bindings = Bindings(self.failed)
        profiles = Profiles(sessions, self.listen, self.failed)

        def profiling() -> bool:
            if emitter.nvtx and capture_session.recorder() is None:
                return False  # the listening tool is not opscope's, and takes no files
            return options.profiler or capture_session.is_run()

        creation = Creation(sessions, profiles, profiling, self.failed)
        try:
            self._always.wrap(
                collection.InferenceSession, "_create_inference_session", creation.around
            )
            self._always.wrap(collection.Session, "end_profiling", profiles.around_end)
            self._always.wrap(
                collection.Session, "get_profiling_start_time_ns", profiles.around_time
            )
            bindings.install(self._always, collection.IOBinding)
        except BaseException:  # after an interrupt too: half of the hooks must not stay
            self._always.restore()
            raise
        sources = Sources() if options.source else None
        self._runs = Runs(
            emitter, sources, options.shapes, sessions, bindings, profiles, self.failed
        )
        self._emitter, self._profiles = emitter, profiles
        self.listen()

    def listen(self) -> None:
        """Hook runs while the emitter is active or a session is profiled; else unhook them.

        A capture that has ended gets the profiles of the sessions that ran in it.
        """
        emitter, runs, profiles = self._emitter, self._runs, self._profiles
        if emitter is None or runs is None or profiles is None or self.broken:
            return
        recorder = capture_session.recorder()
        profiles.listen(recorder, capture_session.capturing() is not None)
        if recorder is not None and recorder is not self._recording:
            runs.cost.reset()
            recorder.spending.append(runs.cost.spent)
        self._recording = recorder
        if not emitter.active and not profiles:
            self._while_active.restore()
        elif not self._while_active:
            for name, around in runs.hooks.items():
                self._while_active.wrap(collection.Session, name, around)

    def uninstall(self) -> None:
        """Restore everything, and end the profiles that are ours."""
        self._while_active.restore()
        self._always.restore()
        profiles, self._profiles = self._profiles, None
        self._emitter = self._runs = None
        if profiles is not None:
            profiles.close()
