"""The adapter of ONNX Runtime GenAI: the steps of its generators, and the times of their nodes.

A generator runs the model in ``append_tokens`` (prefill) and in ``generate_next_token``, which first runs it
on the token before, unless logits are there already. While something listens, each has a range that names its
requests and tokens (``core/capture/engine_kind.py``), and in it a run of the model's session.

The sessions are made in C++. Under ``opscope run`` a model is made from a copy of its configuration in which
ONNX Runtime's profiler is on: the program's changes to its own are made to the copy too, since an overlay
that turns the profiler on cannot be undone. It writes into the recording when the program frees the model,
and nothing else can end it: a program that keeps its model to an abrupt end has steps without nodes. Set
OPSCOPE_GENAI_NODES=0 to leave the profiler off; ONNX Runtime keeps up to a million events in memory, of 1.9
kB each.
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
from opscope.core.capture.engine_kind import range_name
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
#: The range in which a model is made.
_LOADS: Final = "onnxruntime_genai loads a model"


class _Config:
    """What a program did to a configuration: the methods that it called, with their arguments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[tuple[str, Any, Any]] = []


class _Generator:
    """What is known of one generator."""

    __slots__ = ("fresh", "params", "rows")

    def __init__(self, params: tuple[tuple[str, Any], ...], rows: int) -> None:
        #: The parameters of the generator's runs: the model and the session.
        self.params = params
        #: Sequences in its batch; each beam counts as one.
        self.rows = rows
        #: Whether the logits of the next token are there already.
        self.fresh = False


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
        self._configs: weakref.WeakKeyDictionary[Any, _Config] = weakref.WeakKeyDictionary()
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
        self._patches.wrap(genai.Config, "__init__", self._after(self._note_config))
        for name, method in sorted(vars(genai.Config).items()):
            if not name.startswith("_") and not isinstance(method, staticmethod):
                self._patches.wrap(genai.Config, name, self._around_change(name))
        self._patches.wrap(genai.Model, "__init__", self._around_model)
        self._patches.wrap(genai.Generator, "__init__", self._after(self._note_generator))
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
            def __init__(model: Any, /, *args: Any, **kwargs: Any) -> None:
                original(model, *args, **kwargs)
                try:
                    note(model, *args, **kwargs)
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    self.failed("an object of the program could not be described")

            return __init__

        return around

    def _note_config(self, config: Any, path: Any) -> None:
        self._configs[config] = _Config(Path(path))

    def _around_change(self, name: str) -> Callable[[Any], Any]:
        def around(original: Any) -> Any:
            @functools.wraps(original)
            def change(config: Any, *args: Any, **kwargs: Any) -> Any:
                result = original(config, *args, **kwargs)
                seen = self._configs.get(config)
                if seen is not None:
                    seen.calls.append((name, args, kwargs))
                return result

            return change

        return around

    def _note_generator(self, generator: Any, model: Any, params: Any) -> None:
        options = params.get_search_options()
        rows = int(options.get("batch_size", 1)) * int(options.get("num_beams", 1))
        with self._lock:
            described = self._models.get(model)
            if described is not None:
                self._generators[generator] = _Generator(described, rows)

    def _around_model(self, original: Any) -> Any:
        @functools.wraps(original)
        def __init__(model: Any, /, *args: Any, **kwargs: Any) -> None:
            steps = self._steps
            if steps is None:
                original(model, *args, **kwargs)
                return
            # the first record makes the recording's folder, where the profile is written
            steps.push(steps.prepare(_LOADS))
            try:
                profile, began = self._begin_profile(args, kwargs), time.time_ns()
                if profile is None:
                    original(model, *args, **kwargs)
                else:
                    original(model, profile[0])
            finally:
                steps.pop()
            self._note_model(model, args, None if profile is None else profile[1], began)

        return __init__

    def _begin_profile(self, args: Any, kwargs: Any) -> tuple[Any, Path] | None:
        """Return a configuration with the profiler on, and the profile's folder; None where it stays off.
        Never raises."""
        recorder = session.recorder()
        wanted = session.is_run() and recorder is not None and os.environ.get(NODES) != "0"
        if not wanted or len(args) != 1 or kwargs:
            return None
        try:
            given = args[0]
            is_config = isinstance(given, self._config)
            config_seen = self._configs.get(given) if is_config else _Config(Path(given))
            if config_seen is None:
                return None
            texts = [
                (config_seen.path / _CONFIG).read_text(encoding="utf-8"),
                repr(config_seen.calls),
            ]
            if any("enable_profiling" in text for text in texts):
                return None  # the program itself profiles the model
            assert recorder is not None
            part = recorder.written_folder()
            if part is None:
                return None
            config = self._config(str(config_seen.path))
            for name, values, named in config_seen.calls:
                getattr(config, name)(*values, **named)
            folder = part / ONNX_FOLDER.format(next(self._numbers))
            folder.mkdir(exist_ok=True)
            prefix = str((folder / ONNX_PROFILE).with_suffix("").absolute())
            options = {"session_options": {"enable_profiling": prefix}}
            config.overlay(json.dumps({"model": {"decoder": options}}))
            return config, folder
        except OSError:
            return None  # the program's own call reports what is wrong
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a model's profiler could not be turned on")
            return None

    def _note_model(self, model: Any, args: Any, folder: Path | None, began: int) -> None:
        """Remember a model, and note in the recording that it has a profile. Never raises."""
        try:
            given = args[0] if args else None
            if isinstance(given, (str, os.PathLike)):
                path: Path | None = Path(given)
            else:
                config = self._configs.get(given)
                path = None if config is None else config.path
            name = (path or Path()).name or "model"
            number = next(self._numbers) if folder is None else _number_of(folder)
            with self._lock:
                self._models[model] = (("model", name), ("session", number))
            recorder = session.recorder()
            if recorder is None or folder is None or path is None:
                return
            within = time.time_ns() - began  # the profile began in the meantime
            recorder.fact(onnxruntime=number, model=name, began=began, full=False, within=within)
            with suppress(OSError, ValueError, KeyError):  # nodes then have the profile's shapes
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
        """Open the ranges of a call that runs the model, and return their owner. Never raises."""
        steps, runs = self._steps, self._runs
        try:
            running = self._generators.get(generator)
            if steps is None or runs is None or running is None or not steps.active:
                return ()
            fresh, running.fresh = running.fresh, name in ("append_tokens", "get_logits")
            if name == "rewind_to" or (fresh and name != "append_tokens"):
                return ()  # the model does not run: logits are there to choose from
            cached = int(generator.token_count())
            if name == "append_tokens":
                new = _count(args[0] if args else next(iter(kwargs.values()))) // running.rows
                text = range_name(self.name, [(new, cached + new)] * running.rows, ())
            else:
                text = range_name(self.name, (), [(1, cached)] * running.rows)
            steps.push(steps.prepare(text))
            call = OpCall(f"Generator.{name}", (), None, running.params, "cpu")
            runs.push(runs.prepare(call, "forward"))
            return runs, steps
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a step could not be named")
            return ()


def _number_of(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _decoder(path: Path) -> Path:
    """Return the decoder's model. Raises OSError, ValueError or KeyError if it is not in the folder."""
    described = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
    return path / str(described["model"]["decoder"]["filename"])


def _count(tokens: Any) -> int:
    """Return the number of tokens in an array, a tensor of GenAI's, or lists."""
    shape = getattr(tokens, "shape", None)
    if shape is not None:
        return math.prod(int(size) for size in (shape() if callable(shape) else shape))
    return sum(_count(each) if isinstance(each, (list, tuple)) else 1 for each in tokens)
