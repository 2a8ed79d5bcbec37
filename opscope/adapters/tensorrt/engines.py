"""The facts about each engine: its name in the trace, its tensors, and the specs of its layers."""

from __future__ import annotations

import functools
import json
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.rangetext import format_spec
from opscope.core.schema import Dim, TensorSpec
from opscope.core.tensorrt_layers import NotLayers, layers_of

_log = logging.getLogger(__name__)

#: The most engines whose specs are kept for the next listener.
MOST_ENGINES: Final = 256
#: The most layers of an engine for which specs are emitted.
MOST_LAYERS: Final = 20_000
_DTYPES: Final = {
    "FLOAT": "f32", "HALF": "f16", "BF16": "bf16", "INT8": "i8", "INT32": "i32", "INT64": "i64",
    "UINT8": "u8", "BOOL": "bool", "FP8": "f8e4m3fn", "INT4": "i4", "FP4": "f4e2m1", "E8M0": "f8e8m0fnu",
}  # fmt: skip
#: The name of engines that have none.
_UNNAMED: Final = "engine"


class Tensor:
    """An input or output of an engine. ``shape`` has -1 where it varies from run to run."""

    __slots__ = ("dtype", "is_input", "name", "shape")

    def __init__(self, name: str, dtype: str, shape: tuple[int, ...], is_input: bool) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.is_input = is_input

    @property
    def varies(self) -> bool:
        return any(size < 0 for size in self.shape)

    def spec(self, shape: tuple[int, ...]) -> TensorSpec:
        sizes: tuple[Dim, ...] = tuple("?" if size < 0 else size for size in shape)
        return TensorSpec(self.dtype, sizes)


class Engine:
    """One engine of the program."""

    __slots__ = ("graph", "inspected", "run", "specs", "tensors")

    def __init__(self, graph: str, tensors: tuple[Tensor, ...]) -> None:
        #: Its name in the trace, unique among the engines of the process.
        self.graph = graph
        self.tensors = tensors
        self.inspected = False
        self.specs: list[Prepared] = []
        #: The range around its runs (category ``graph``), in which its layers find their specs.
        self.run: Prepared | None = None


class Engines:
    """The engines that the program runs, by the contexts that run them."""

    def __init__(
        self, trt: Any, emitter: Emitter, shapes: bool, failed: Callable[[str], None]
    ) -> None:
        self._trt = trt
        self._emitter = emitter
        self._shapes = shapes
        self._failed = failed
        self._lock = threading.Lock()
        self._of_engine: weakref.WeakKeyDictionary[Any, Engine] = weakref.WeakKeyDictionary()
        self._of_context: weakref.WeakKeyDictionary[Any, Engine] = weakref.WeakKeyDictionary()
        self._named: dict[str, int] = {}
        self._kept: list[Engine] = []

    def around_creation(self, original: Any) -> Any:
        """Return the replacement of ``ICudaEngine.create_execution_context*``."""

        @functools.wraps(original)
        def create(engine: Any, *args: Any, **kwargs: Any) -> Any:
            context = original(engine, *args, **kwargs)
            if context is not None:  # TensorRT returns None where it cannot create a context
                self._create(engine, context)
            return context

        return create

    def _create(self, engine: Any, context: Any) -> None:
        try:
            self._of_context[context] = engine_record = self._engine(engine)
            if self._emitter.active:
                self._inspect(engine_record, engine, context)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("an engine could not be described")

    def of(self, context: Any) -> Engine:
        """Return the engine of a context, inspected. May raise whatever TensorRT raises."""
        engine_record = self._of_context.get(context)
        if engine_record is None:
            engine_record = self._of_context[context] = self._engine(context.engine)
        if not engine_record.inspected:
            self._inspect(engine_record, context.engine, context)
        return engine_record

    def _engine(self, engine: Any) -> Engine:
        with self._lock:
            engine_record = self._of_engine.get(engine)
            if engine_record is None:
                engine_record = Engine(
                    self.unused_name(str(engine.name or "")), self._tensors(engine)
                )
                self._of_engine[engine] = engine_record
                self._kept.append(engine_record)
                del self._kept[:-MOST_ENGINES]
        return engine_record

    def unused_name(self, name: str) -> str:
        """Return ``name``, with a number if another engine has it."""
        name = (
            "".join(letter if letter.isprintable() else "_" for letter in name[:128]).strip()
            or _UNNAMED
        )
        self._named[name] = uses = self._named.get(name, 0) + 1
        return name if uses == 1 else f"{name} {uses}"

    def _tensors(self, engine: Any) -> tuple[Tensor, ...]:
        if not self._shapes:
            return ()
        tensors = []
        for number in range(engine.num_io_tensors):
            name = engine.get_tensor_name(number)
            kind = str(engine.get_tensor_dtype(name)).rpartition(".")[2]
            mode = str(engine.get_tensor_mode(name)).rpartition(".")[2]
            shape = tuple(int(size) for size in engine.get_tensor_shape(name))
            tensors.append(Tensor(name, _DTYPES.get(kind, "?"), shape, mode == "INPUT"))
        return tuple(tensors)

    def _inspect(self, known: Engine, engine: Any, context: Any) -> None:
        """Ask the engine once for a description of its layers, and emit it."""
        known.inspected = True
        inspector = engine.create_engine_inspector()
        if inspector is None:
            return
        try:
            # so that the inspector knows the shapes of this context
            inspector.execution_context = context
        except Exception:  # noqa: BLE001 - without it, sizes that vary are -1
            _log.debug("opscope: the inspector takes no context", exc_info=True)
        text = inspector.get_engine_information(self._trt.LayerInformationFormat.JSON)
        self.add_layers(known, text)

    def add_layers(self, engine: Engine, text: Any) -> None:
        """Emit the specs of the layers that the inspector's JSON describes."""
        engine.inspected = True
        try:
            layers = layers_of(json.loads(text))
        except (NotLayers, ValueError, TypeError, RecursionError) as error:
            _log.warning("opscope: the layers of %s cannot be read: %s", engine.graph, error)
            return
        bare = [layer for layer in layers if layer.call is None]
        if bare:
            _log.warning(
                "opscope: %s tells only the names of %d of its layers: build it with"
                " config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED to see their shapes",
                engine.graph,
                len(bare),
            )
        for layer in layers[:MOST_LAYERS]:
            if layer.call is not None:
                spec = format_spec(engine.graph, layer.name, layer.call)
                engine.specs.append(self._emitter.prepare(spec, "spec"))
        if self._emitter.active:
            self._emit(engine)

    def added(self, name: str, text: Any) -> Engine:
        """Return an engine that only another library's object holds, described by the inspector's JSON."""
        with self._lock:
            engine = Engine(self.unused_name(name), ())
            self._kept.append(engine)
            del self._kept[:-MOST_ENGINES]
        self.add_layers(engine, text)
        return engine

    def emit_specs(self) -> None:
        """Emit the specs of every engine again, for a new listener."""
        try:
            for engine in list(self._kept):
                self._emit(engine)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the layers of an engine could not be emitted")

    def _emit(self, engine: Engine) -> None:
        for spec in engine.specs:
            self._emitter.mark(spec)
