"""Push a range around each run of a session: its inputs and outputs, model, provider and source line."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from types import FrameType
from typing import Any, Final

import numpy as np

from opscope.adapters.shared.source import NOWHERE, Source, Sources
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.own_cost import Cost
from opscope.core.schema import OpCall

from .bindings import Bindings
from .known import KnownSession, KnownSessions
from .profiled import Profiles
from .values import Key, key_of, spec_of

#: Distinct calls to remember. When there are more, all are forgotten and prepared again.
MAX_CALLS: Final = 16_384
#: The class whose methods are hooked; names of ranges begin with it.
OWNER: Final = "InferenceSession"
#: Names and keys of the inputs or outputs of a run.
Named = tuple[tuple[str, Key], ...]


class _Run:
    """An open call: its range, and the data needed to add its outputs."""

    __slots__ = ("complete", "known", "prepared", "what")

    def __init__(self, known_session: KnownSession, op_call: OpCall, prepared: Prepared) -> None:
        self.known = known_session
        self.what = op_call
        self.prepared = prepared
        #: The ranges with outputs, by the outputs' key: the types and sizes of outputs may depend on the
        #: data.
        self.complete: dict[tuple[Any, ...], Prepared] = {}


class Runs:
    """The hooks of the methods that run a session."""

    def __init__(
        self,
        emitter: Emitter,
        sources: Sources | None,
        shapes: bool,
        known_sessions: KnownSessions,
        bindings: Bindings,
        profiles: Profiles,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._sources = sources
        self._shapes = shapes
        self._known = known_sessions
        self._bindings = bindings
        self._profiles = profiles
        self._failed = failed
        self._runs: dict[Any, _Run] = {}
        #: The cost of describing a run before it and after it. Runs are few, so all are timed.
        self.cost = Cost("runs", 1, 1)
        #: End of the last run that was recorded on each thread of ONNX Runtime.
        self._last = threading.local()
        #: What replaces each method of Session.
        self.hooks: dict[str, Callable[[Any], Any]] = {
            "run": self._around("run", _feed, self._outputs, _feed_key, _results_key),
            "run_with_ort_values": self._around("run_with_ort_values", _ort_feed, self._outputs),
            "run_with_iobinding": self._around("run_with_iobinding", self._bound, _bound_outputs),
            "run_with_ortvaluevector": self._around(
                "run_with_ortvaluevector", _vector, _vector_outputs
            ),
            "run_async": self._around_async,
        }

    def _around(
        self,
        method: str,
        inputs: Callable[[Any, Any], Iterable[tuple[str, Key]]],
        outputs: Callable[[KnownSession, Any, Any, Any], Named],
        inputs_key: Callable[[Any, Any], tuple[Any, ...]] | None = None,
        outputs_key: Callable[[Any, Any, Any], tuple[Any, ...]] | None = None,
    ) -> Callable[[Any], Any]:
        """Return a wrapper of ``method``. ``inputs`` and ``outputs`` return its values. || Keys show
        whether such values were described before, and are cheaper to make than descriptions: a run costs
        1.4 µs less of 6.5.
        """

        def around(original: Any) -> Any:
            emitter = self._emitter

            @functools.wraps(original)
            def run(session: Any, *args: Any, **kwargs: Any) -> Any:
                # Check this first: another thread may have entered the hook before it was removed.
                if not emitter.active:
                    self._profiles.ran(session)
                    return original(session, *args, **kwargs)
                call = self._begin(
                    method, session, inputs, args, kwargs, sys._getframe(1), inputs_key
                )
                try:
                    result = original(session, *args, **kwargs)
                except BaseException:  # a run that raises has also ended, without outputs
                    if call is not None:
                        emitter.pop()
                    raise
                if call is not None:
                    self._end(call, outputs, args, kwargs, result, outputs_key)
                return result

            return run

        return around

    def _around_async(self, original: Any) -> Any:
        """Return the replacement of ``run_async``: a range around the call, and a range of the run.

        The run is on one of ONNX Runtime's threads, and is known when that thread calls back.
        """
        emitter = self._emitter

        @functools.wraps(original)
        def run_async(session: Any, *args: Any, **kwargs: Any) -> Any:
            if not emitter.active:
                self._profiles.ran(session)
                return original(session, *args, **kwargs)
            frame = sys._getframe(1)
            call = self._begin("run_async", session, _feed, args, kwargs, frame)
            try:
                if call is not None:
                    args, kwargs = self._calling_back(session, args, kwargs, frame)
                return original(session, *args, **kwargs)
            finally:
                if call is not None:
                    emitter.pop()

        return run_async

    def _calling_back(self, session: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Return the arguments of ``run_async`` with a callback that records the run, then calls theirs."""
        try:
            run = self._run("run", session, _feed, args, kwargs, frame)
            theirs = _argument(args, kwargs, 2, "callback")
            begin, caller = perf_counter_ns(), threading.get_ident()

            def callback(results: Any, *others: Any) -> Any:
                end = perf_counter_ns()
                if self._emitter.active and threading.get_ident() != caller:
                    self._ran(run, begin, end, args, kwargs, results)
                return theirs(results, *others)

        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a run could not be described")
            return args, kwargs
        if len(args) > 2:
            return (*args[:2], callback, *args[3:]), kwargs
        return args, {**kwargs, "callback": callback}

    def _ran(self, run: _Run, begin: int, end: int, args: Any, kwargs: Any, results: Any) -> None:
        """Record a run that has ended on this thread of ONNX Runtime's."""
        try:
            prepared = run.prepared
            if self._shapes and results:
                given = self._outputs(run.known, args, kwargs, results)
                prepared = run.complete.get(given) or self._complete(run, given)
            self._emitter.past(prepared, max(begin, getattr(self._last, "end", 0)), end)
            self._last.end = end
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a run could not be recorded")

    def _begin(
        self,
        method: str,
        session: Any,
        inputs: Callable[[Any, Any], Iterable[tuple[str, Key]]],
        args: Any,
        kwargs: Any,
        frame: FrameType,
        inputs_key: Callable[[Any, Any], tuple[Any, ...]] | None = None,
    ) -> _Run | None:
        """Push the run. Return None on failure: a hook in the user's program never raises."""
        began = self.cost.begin()
        try:
            run = self._run(method, session, inputs, args, kwargs, frame, inputs_key)
            self._profiles.runs(session, run.known)
            self._emitter.push(run.prepared)
            self.cost.end(began)
            return run
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("a run could not be described")
            return None

    def _run(
        self,
        method: str,
        session: Any,
        inputs: Callable[[Any, Any], Iterable[tuple[str, Key]]],
        args: Any,
        kwargs: Any,
        frame: FrameType,
        inputs_key: Callable[[Any, Any], tuple[Any, ...]] | None = None,
    ) -> _Run:
        known = self._known.of(session)
        source = NOWHERE if self._sources is None else self._sources.find(frame)
        if not self._shapes:
            key: tuple[Any, ...] = (known, method, source)
        elif inputs_key is not None:
            key = (known, method, source, inputs_key(args, kwargs))
        else:
            key = (known, method, source, tuple(inputs(args, kwargs)))
        run = self._runs.get(key)
        if run is None:
            taken = tuple(inputs(args, kwargs)) if self._shapes else ()
            run = self._remember(key, self._described(known, method, taken, source))
        return run

    def _described(
        self, known_session: KnownSession, method: str, taken: Named, source: Source
    ) -> OpCall:
        specs = tuple(spec_of(key, known_session.inputs.get(name)) for name, key in taken)
        names = (("inputs", tuple(name for name, _ in taken)),) if taken else ()
        return OpCall(
            f"{OWNER}.{method}",
            specs,
            None,
            (*known_session.params, *names),
            known_session.device,
            source.frames,
        )

    def _remember(self, key: Any, op_call: OpCall) -> _Run:
        if len(self._runs) >= MAX_CALLS:
            self._runs.clear()
        run = self._runs[key] = _Run(key[0], op_call, self._emitter.prepare(op_call, "forward"))
        return run

    def _end(
        self,
        run: _Run,
        outputs: Callable[[KnownSession, Any, Any, Any], Named],
        args: Any,
        kwargs: Any,
        result: Any,
        outputs_key: Callable[[Any, Any, Any], tuple[Any, ...]] | None = None,
    ) -> None:
        """Pop the run with its outputs."""
        began = self.cost.begin()
        complete = None
        try:
            if self._shapes:
                if outputs_key is None:
                    key: tuple[Any, ...] = outputs(run.known, args, kwargs, result)
                else:
                    key = outputs_key(args, kwargs, result)
                complete = run.complete.get(key)
                if complete is None:
                    complete = self._complete(run, outputs(run.known, args, kwargs, result), key)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the outputs of a run could not be described")
        self._emitter.pop(complete)
        self.cost.end(began)

    def _complete(self, run: _Run, given: Named, key: tuple[Any, ...] | None = None) -> Prepared:
        """Make the range with the outputs ``given``, and remember it by ``key``, or else by the outputs."""
        if len(run.complete) >= MAX_CALLS:
            run.complete.clear()
        call, session = run.what, run.known
        specs = tuple(spec_of(key, session.outputs.get(name)) for name, key in given)
        params = (*call.params, ("outputs", tuple(name for name, _ in given)))
        call_with_outputs = OpCall(call.name, call.inputs, specs, params, call.device, call.frames)
        complete = self._emitter.prepare(call_with_outputs, "forward")
        run.complete[given if key is None else key] = complete
        return complete

    def _outputs(self, known_session: KnownSession, args: Any, kwargs: Any, result: Any) -> Named:
        """Return what ``run`` and ``run_with_ort_values`` return."""
        names = args[0] if args else kwargs.get("output_names")
        return tuple(zip(names or known_session.outputs, map(key_of, result), strict=False))

    def _bound(self, args: Any, kwargs: Any) -> Iterable[tuple[str, Key]]:
        binding = args[0] if args else kwargs["iobinding"]
        return self._bindings.of(binding).items()


def _argument(args: Any, kwargs: Any, position: int, name: str) -> Any:
    return args[position] if len(args) > position else kwargs[name]


def _feed(args: Any, kwargs: Any) -> Iterable[tuple[str, Key]]:
    feed = _argument(args, kwargs, 1, "input_feed")
    return [(name, key_of(value)) for name, value in feed.items()]


def _feed_key(args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Return a key of the names, types and sizes of the inputs of ``run``."""
    feed = args[1] if len(args) > 1 else kwargs["input_feed"]
    key: list[Any] = []
    for name, value in feed.items():
        key.append(name)
        if type(value) is np.ndarray:
            key.append(value.dtype)
            key.append(value.shape)
        else:
            key.append(key_of(value))
    return tuple(key)


def _results_key(args: Any, kwargs: Any, result: Any) -> tuple[Any, ...]:
    """Return a key of the names, types and sizes of the outputs of ``run``."""
    names = args[0] if args else kwargs.get("output_names")
    key: list[Any] = [tuple(names) if names else None]
    for value in result:
        if type(value) is np.ndarray:
            key.append(value.dtype)
            key.append(value.shape)
        else:
            key.append(key_of(value))
    return tuple(key)


def _ort_feed(args: Any, kwargs: Any) -> Iterable[tuple[str, Key]]:
    feed = _argument(args, kwargs, 1, "input_dict_ort_values")
    return [(name, key_of(value)) for name, value in feed.items()]


def _vector(args: Any, kwargs: Any) -> Iterable[tuple[str, Key]]:
    names = _argument(args, kwargs, 1, "feed_names")
    return zip(names, map(key_of, _argument(args, kwargs, 2, "feeds")), strict=False)


def _vector_outputs(known_session: KnownSession, args: Any, kwargs: Any, result: Any) -> Named:
    names = _argument(args, kwargs, 3, "fetch_names")
    return tuple(zip(names, map(key_of, _argument(args, kwargs, 4, "fetches")), strict=False))


def _bound_outputs(known_session: KnownSession, args: Any, kwargs: Any, result: Any) -> Named:
    binding = args[0] if args else kwargs["iobinding"]
    # the names of bound outputs are not available; most programs bind all, in the model's order
    values = [key_of(value) for value in binding._iobinding.get_outputs()]
    names = (
        list(known_session.outputs)
        if len(values) == len(known_session.outputs)
        else [""] * len(values)
    )
    return tuple(zip(names, values, strict=True))
