"""The adapter of ONNX Runtime GenAI: the steps of its generators, and the times of their nodes.

A generator runs the model in ``append_tokens`` (prefill) and in ``generate_next_token``, which first runs it
on the token before, unless logits are there already. While something listens, each has a range that names its
requests and tokens (``core/capture/engine_kind.py``), and in it a run of the model's session.

The sessions are made in C++. Under ``opscope run`` ONNX Runtime's profiler is turned on by an overlay of the
model's configuration, in which it is off again once the model is made. It writes into the recording when the
program frees the model, and nothing else can end it: a program that keeps its model to an abrupt end has
steps without nodes. Set OPSCOPE_GENAI_NODES=0 to leave the profiler off; ONNX Runtime keeps up to a million
events in memory, of 1.9 kB each.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.stripped import of_file
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter
from opscope.core.capture.engine_kind import Lengths, range_name
from opscope.core.recording_format import ONNX_FOLDER, ONNX_ORIGINAL, ONNX_PROFILE
from opscope.core.schema import OpCall

_log = logging.getLogger(__name__)
#: Set to 0: leave ONNX Runtime's profiler off.
NODES: Final = "OPSCOPE_GENAI_NODES"
#: The domain of runs of ONNX Runtime's sessions.
_RUNS: Final = "onnxruntime"
#: The number of the first model's session: those that Python makes count from 1.
_FIRST: Final = 1_000_000
_CONFIG: Final = "genai_config.json"


class _Generator:
    """What is known of one generator."""

    __slots__ = ("fresh", "params", "pending", "rows")

    def __init__(self, params: tuple[tuple[str, Any], ...], rows: int) -> None:
        #: The parameters of its runs: the model and the session.
        self.params = params
        #: Sequences in its batch; each beam is one.
        self.rows = rows
        #: Whether the logits of the next token are there; whether a token was chosen that the model has not
        #: seen.
        self.fresh = self.pending = False


class GenAIAdapter(Adapter):
    """ONNX Runtime GenAI."""

    name: ClassVar[str] = "onnxruntime_genai"
    title: ClassVar[str] = "ONNX Runtime GenAI"
    module: ClassVar[str] = "onnxruntime_genai"
    #: The version that is tested.
    requires: ClassVar[str] = ">=0.18"

    def __init__(self) -> None:
        self._patches = Patches()
        self._steps: Emitter | None = None
        self._runs: Emitter | None = None
        self._numbers = itertools.count(_FIRST)
        self._paths: weakref.WeakKeyDictionary[Any, Path] = weakref.WeakKeyDictionary()
        self._models: weakref.WeakKeyDictionary[Any, tuple[tuple[str, Any], ...]]
        self._models = weakref.WeakKeyDictionary()
        self._generators: weakref.WeakKeyDictionary[Any, _Generator] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook models and generators if something already listens."""
        if self._steps is not None or not options.steps:
            return
        self.broken = False
        self._steps, self._runs = session.user_emitter(), session.emitter(_RUNS)
        self.listen()

    def listen(self) -> None:
        """Hook models and generators while something listens, else unhook them."""
        if self._steps is None or self.broken:
            return
        try:
            if not self._steps.active:
                self._patches.restore()
            elif not self._patches:
                self._hook(sys.modules[self.module])
        except Exception:  # noqa: BLE001 - the capture and the program go on without this adapter
            self.failed("hooks could not be set")

    def _hook(self, genai: Any) -> None:
        self._config = genai.Config
        self._patches.wrap(genai.Config, "__init__", self._after(self._configured))
        self._patches.wrap(genai.Model, "__init__", self._around_model)
        self._patches.wrap(genai.Generator, "__init__", self._after(self._generates))
        for name in ("append_tokens", "generate_next_token", "get_logits", "rewind_to"):
            self._patches.wrap(genai.Generator, name, self._around_run(name))

    def uninstall(self) -> None:
        """Restore every method."""
        self._patches.restore()
        self._steps = self._runs = None

    # ---------------------------------------------------------------- what the program makes

    def _after(self, note: Callable[..., None]) -> Callable[[Any], Any]:
        """Return a wrapper of a constructor that notes what was made, from its arguments."""

        def around(original: Any) -> Any:
            @functools.wraps(original)
            def __init__(made: Any, *args: Any, **kwargs: Any) -> None:
                original(made, *args, **kwargs)
                try:
                    note(made, *args, **kwargs)
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    self.failed("an object of the program could not be described")

            return __init__

        return around

    def _configured(self, config: Any, path: Any) -> None:
        self._paths[config] = Path(path)

    def _generates(self, generator: Any, model: Any, params: Any) -> None:
        options = params.get_search_options()
        rows = int(options.get("batch_size", 1)) * int(options.get("num_beams", 1))
        with self._lock:
            described = self._models.get(model)
            if described is not None:
                self._generators[generator] = _Generator(described, rows)

    def _around_model(self, original: Any) -> Any:
        @functools.wraps(original)
        def __init__(model: Any, *args: Any, **kwargs: Any) -> None:
            profile, began = self._begin_profile(args, kwargs), time.time_ns()
            if profile is None:
                original(model, *args, **kwargs)
                self._made(model, args, None, began)
                return
            config, folder = profile
            try:
                original(model, config)
            finally:
                self._end_overlay(config)
            self._made(model, args, folder, began)

        return __init__

    def _begin_profile(self, args: Any, kwargs: Any) -> tuple[Any, Path] | None:
        """Return the configuration with the profiler on, and the profile's folder; None where it stays off.
        Never raises."""
        recorder = session.recorder()
        wanted = session.is_run() and recorder is not None and os.environ.get(NODES) != "0"
        if not wanted or len(args) != 1 or kwargs:
            return None
        try:
            given = args[0]
            path = self._paths.get(given) if isinstance(given, self._config) else Path(given)
            if path is None or "enable_profiling" in (path / _CONFIG).read_text(encoding="utf-8"):
                return None  # the program profiles it itself
            assert recorder is not None
            part = recorder.written_folder()
            if part is None:
                return None
            config = given if isinstance(given, self._config) else self._config(str(given))
            folder = part / ONNX_FOLDER.format(next(self._numbers))
            folder.mkdir(exist_ok=True)
            _profile_to(config, str((folder / ONNX_PROFILE).with_suffix("").absolute()))
            return config, folder
        except OSError:
            return None  # the program's own call says what is wrong
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a model's profiler could not be turned on")
            return None

    def _end_overlay(self, config: Any) -> None:
        try:
            _profile_to(config, "")
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a configuration's profiler could not be turned off")

    def _made(self, model: Any, args: Any, folder: Path | None, began: int) -> None:
        """Remember a model, and note in the recording that it has a profile. Never raises."""
        try:
            given = args[0] if args else None
            path = self._paths.get(given) if isinstance(given, self._config) else Path(given or "")
            name = (path or Path()).name or "model"
            number = next(self._numbers) if folder is None else _number_of(folder)
            with self._lock:
                self._models[model] = (("model", name), ("session", number))
            recorder = session.recorder()
            if recorder is None or folder is None or path is None:
                return
            within = time.time_ns() - began  # the profile began in the meantime
            recorder.fact(onnxruntime=number, model=name, began=began, full=False, within=within)
            with suppress(OSError, ValueError, KeyError):  # then nodes have the profile's shapes
                (folder / ONNX_ORIGINAL).write_bytes(of_file(_decoder(path)).data)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a model could not be described")

    # ---------------------------------------------------------------- what runs

    def _around_run(self, name: str) -> Callable[[Any], Any]:
        def around(original: Any) -> Any:
            @functools.wraps(original)
            def run(generator: Any, *args: Any, **kwargs: Any) -> Any:
                opened = self._begin(name, generator, args, kwargs)
                try:
                    return original(generator, *args, **kwargs)
                finally:
                    for emitter in opened:
                        emitter.pop()

            return run

        return around

    def _begin(self, name: str, generator: Any, args: Any, kwargs: Any) -> tuple[Emitter, ...]:
        """Open the ranges of a call that runs the model, and return whose they are. Never raises."""
        steps, runs = self._steps, self._runs
        try:
            known = self._generators.get(generator)
            if steps is None or runs is None or known is None or not steps.active:
                return ()
            fresh, pending = known.fresh, known.pending
            known.fresh = name in ("append_tokens", "get_logits")
            known.pending = name == "generate_next_token"
            if name == "rewind_to" or (fresh and name != "append_tokens"):
                return ()  # the model does not run: logits are there to choose from
            cached = int(generator.token_count())
            prefill: Lengths = ()
            if name == "append_tokens":
                new = _count(args[0] if args else next(iter(kwargs.values()))) // known.rows
                prefill = [(new, cached + new)] * known.rows
            # a token that was chosen goes through the model before what is appended
            decode = [(1, cached)] * known.rows if pending or not prefill else ()
            steps.push(steps.prepare(range_name(self.name, prefill, decode)))
            call = OpCall(f"Generator.{name}", (), None, known.params, "cpu")
            runs.push(runs.prepare(call, "forward"))
            return runs, steps
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a step could not be named")
            return ()


def _profile_to(config: Any, prefix: str) -> None:
    """Turn the profiler of the decoder's session on, or off by an empty prefix."""
    options = {"session_options": {"enable_profiling": prefix}}
    config.overlay(json.dumps({"model": {"decoder": options}}))


def _number_of(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _decoder(path: Path) -> Path:
    """Return the decoder's model. Raises OSError, ValueError or KeyError where the folder does not tell."""
    described = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
    return path / str(described["model"]["decoder"]["filename"])


def _count(tokens: Any) -> int:
    """Return the number of tokens in an array, a tensor of GenAI's, or lists."""
    shape = getattr(tokens, "shape", None)
    if shape is not None:
        return math.prod(int(size) for size in (shape() if callable(shape) else shape))
    return sum(_count(each) if isinstance(each, (list, tuple)) else 1 for each in tokens)
