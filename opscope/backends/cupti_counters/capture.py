"""Measure hardware counters of every kernel by CUPTI's range profiling, beside the recorder.

CUPTI runs each kernel alone, and several times if the counters need it. The times in such a run are not the
program's, so no kernel times are recorded.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from opscope.adapters.shared.compiled import BuildError
from opscope.backends.cupti import others
from opscope.backends.cupti.api import MULTIPLE_SUBSCRIBERS, Cupti, CuptiError
from opscope.backends.window import EXACT, Bounds, Window
from opscope.core.capture.cuda_graphs import OF_PROCESS
from opscope.core.capture.session import SessionError
from opscope.core.cupti import calls as call_names
from opscope.core.cupti import counter_files as files
from opscope.core.cupti import kinds
from opscope.core.dialects.launches import GRAPH_LAUNCH, LAUNCH

from . import launches
from .calls import CountersRefused
from .counting import Counting
from .range_profiling import CYCLE, MOST, Measured, RangeProfiler

_log = logging.getLogger(__name__)
#: How long a launch waits at most for its context's counters: in a thread that holds Python's lock (which the
#: counting thread needs), and in one that does not.
PATIENCE_S: Final = 3.0
FREE_PATIENCE_S: Final = 60.0
#: Longest wait for another thread that begins or ends a profiler, before the results are taken out.
QUIET_S: Final = 1.0
#: Number of launches that are noted beyond those measured, to detect that some are not measured.
_NOTED: Final = 16 * MOST
_LAUNCHES: Final = re.compile(f"{LAUNCH}|{GRAPH_LAUNCH}")
_SIDES: Final = ((files.RUNTIME, kinds.RUNTIME), (files.DRIVER, kinds.DRIVER))


@dataclass(slots=True)
class _Counted:
    """A context that is measured since ``began`` (ns), until ``ended`` if measuring has ended. ``taken``:
    the results so far, in order.
    """

    context: int
    device: int
    profiler: RangeProfiler
    began: int
    ended: int | None = None
    taken: list[Measured] = field(default_factory=list)


class CounterCapture(Counting):
    """Captures ranges with the recorder and counters ``names`` of each kernel with CUPTI, into ``folder``."""

    profiler = "CUPTI's range profiling"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        names: Sequence[str],
        bounds: Bounds = EXACT,
        path: Path | None = None,
    ) -> None:
        super().__init__(folder, names, bounds, path)
        self._native: launches.Launches | None = None
        self._handle: Any = None
        self._counted: dict[int, _Counted] = {}

    def _prepare(self) -> None:
        try:
            self._native = launches.load()
        except BuildError as error:
            raise SessionError(str(error)) from error
        except OSError as error:
            raise SessionError(f"opscope's helper for counters cannot be used: {error}") from error

    def _begin(self) -> None:
        cupti, native = self._cupti, self._native
        assert cupti is not None
        assert native is not None
        self._counted, self._notes = {}, []
        try:
            self._handle = cupti.subscribe(native.callback)
        except CuptiError as error:
            hint = ""
            if error.code == MULTIPLE_SUBSCRIBERS:
                hint = others.guess(cupti.other_subscriber(native.callback))
            raise SessionError(f"{error}{hint}") from error
        try:
            native.begin(_NOTED, PATIENCE_S, FREE_PATIENCE_S, CYCLE)
            for domain, kind in _SIDES:
                for number, name in enumerate(call_names.names(kind, self._version)):
                    if _LAUNCHES.search(name):
                        self._enable(cupti, domain, number)
        except (CuptiError, OSError) as error:
            self._let_go()
            raise SessionError(str(error)) from error
        watcher = threading.Thread(target=self._watch, name="opscope-counters", daemon=True)
        watcher.start()

    def _enable(self, cupti: Cupti, domain: int, number: int) -> None:
        try:
            cupti.call("cuptiEnableCallback", 1, self._handle, domain, number)
        except CuptiError as error:
            if error.code != _NO_SUCH_CALL:  # a call that this version does not have
                raise

    def _watch(self) -> None:
        """Measure each context from its first launch on, and take its results out when it is full;
        launches wait."""
        native, keeper = self._native, self._keeper
        assert native is not None
        assert keeper is not None
        while True:
            context = native.asked(1.0)
            if context == launches.ENDED:
                return
            if context:
                keeper.submit(functools.partial(self._count, context))

    def _count(self, context: int) -> None:
        """Begin to measure a context, or take out its results; runs on the keeper's thread."""
        driver, library, native = self._driver, self._library, self._native
        assert driver is not None
        assert library is not None
        assert native is not None
        try:
            if OF_PROCESS.threads:
                return  # this would end a CUDA graph's capture; requested again after more launches
            counted = self._counted.get(context)
            with OF_PROCESS.kept_out(QUIET_S) as quiet:
                if counted is not None and quiet:
                    self._take_out(counted)
            if counted is not None:
                return
            with driver.current(context):
                device = driver.device()
                profiler = RangeProfiler(library, context, self._names, device)
                try:
                    self._agree(profiler, device)
                    profiler.start()
                except BaseException:  # after Ctrl-C too: clean up, then let it continue
                    profiler.close()
                    raise
                self._counted[context] = _Counted(context, device, profiler, perf_counter_ns())
        except CountersRefused as error:
            self._refused(str(error))
        finally:
            native.answer(context)

    def _agree(self, profiler: RangeProfiler, device: int) -> None:
        """Make all contexts measure the same counters: the requested ones that the first context has."""
        others = next(iter(self._counted.values()), None)
        if others is not None and profiler.names != others.profiler.names:
            raise CountersRefused(
                f"device {device} does not have the counters of device {others.device}"
            )
        if profiler.left_out:
            self._tell(
                f"counters that this GPU does not have, left out: {', '.join(profiler.left_out)}"
            )

    def _take_out(self, counted: _Counted) -> None:
        """Take out the results and begin anew; if that fails, the context is no longer measured."""
        assert self._driver is not None
        if counted.ended is not None:
            return
        with self._driver.current(counted.context):
            try:
                counted.taken.append(counted.profiler.stop())
                counted.profiler.start()
            except CountersRefused:
                counted.ended = perf_counter_ns()
                raise

    def _refused(self, why: str) -> None:
        """Report, once for each reason, why kernels are not measured."""
        self._tell(f"hardware counters not measured: {why}")

    def _tell(self, message: str) -> None:
        if message not in self._notes:
            self._notes.append(message)
            _log.warning("opscope: %s", message)

    # ------------------------------------------------------------------------------- the window

    def _touch(self) -> bool:
        return False  # the launches are on the recorder's clock

    def _events(self) -> int:
        return 0 if self._native is None else self._native.counts()[0]

    def _fills(self, window: Window) -> bool:
        if self._events() >= MOST:
            window.over = f"{MOST:,} kernels were measured, and there is no room for more"
        return window.over is not None

    def _settle(self) -> None:
        driver = self._driver
        for counted in list(self._counted.values()):
            assert driver is not None
            with driver.current(counted.context):
                driver.synchronize()

    # ---------------------------------------------------------------------------------- the end

    def _end(self, folder: Path | None) -> None:
        if self._native is None or self._handle is None:
            return
        contexts = list(self._counted.values())
        for context in contexts:
            try:
                self._stop(context)
            except CountersRefused as error:
                self._refused(str(error))
        self._counted = {}
        self._let_go()
        if folder is not None:
            files.write(folder, self._lines([one for one in contexts if one.taken]))

    def _stop(self, counted: _Counted) -> None:
        """Take out the last results, and release the profiler."""
        assert self._driver is not None
        with self._driver.current(counted.context):
            try:
                if counted.ended is None:
                    counted.ended = perf_counter_ns()
                    counted.taken.append(counted.profiler.stop())
            finally:
                counted.profiler.close()

    def _let_go(self) -> None:
        native, cupti, handle = self._native, self._cupti, self._handle
        assert native is not None
        assert cupti is not None
        native.end()
        self._handle = None
        try:
            cupti.call("cuptiUnsubscribe", handle)
        except CuptiError as error:
            self._notes.append(str(error))

    def _lines(self, contexts: list[_Counted]) -> Iterator[dict[str, Any]]:
        native, driver = self._native, self._driver
        assert native is not None
        assert driver is not None
        counters = contexts[0].profiler.names if contexts else self._names
        yield {"version": self._version, "counters": list(counters)}
        _, lost, late, full = native.counts()
        if lost:
            self._notes.append(f"{lost:,} launches were not noted: there was no room")
        if late:
            self._notes.append(
                f"{late:,} contexts launched before their counters were ready: their first kernels are not"
                " measured"
            )
        if full:
            self._notes.append(
                f"in {full:,} contexts a launch did not wait until counters were taken out: kernels after it"
                " may have had no room"
            )
        for context in contexts:
            about = {
                "context": context.context, "device": context.device,
                "began": context.began, "ended": context.ended,
                "passes": context.profiler.passes, "dropped": sum(each.dropped for each in context.taken),
            }  # fmt: skip
            yield {"measured": about}
            for measured in context.taken:
                for rows in files.pieces(measured.in_order()):
                    rows = [files.finite(row) for row in rows]
                    yield {"values": {"context": context.context, "rows": rows}}
        noted = native.taken()
        names = {int(number): native.name(int(number)) for number in set(noted["name"].tolist())}
        for some in files.pieces([(str(number), text) for number, text in names.items() if text]):
            yield {"names": dict(some)}
        for some in files.pieces(noted.tolist()):
            yield {"launches": some}
        yield from self._about(sorted({one.device for one in contexts}))

    def in_child(self) -> bool:
        """Continue in a forked child, where CUDA cannot be used: it is recorded without counters."""
        self._handle, self._counted = None, {}
        return super().in_child()


#: CUPTI_ERROR_INVALID_PARAMETER: what cuptiEnableCallback gives for a number that it does not know.
_NO_SUCH_CALL: Final = 1
