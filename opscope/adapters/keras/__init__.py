"""The Keras adapter: steps, epochs and phases on all backends, and layers of eager calls.

It hooks ``CallbackList.__init__``, to add callbacks of ours, and, while something listens,
``Layer.__call__``. In TensorFlow graphs and JAX programs the names of the ops contain the layer's path.
On PyTorch a Keras layer is a module, so the PyTorch adapter records the layers. The adapter also hooks,
on JAX, the batches that ``fit`` takes (the input phase), on TensorFlow and PyTorch the optimizer, and on
PyTorch the building of the model: the PyTorch adapter would misjudge Keras's optimizer and building.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, ClassVar

from keras.src import backend
from keras.src.callbacks.callback_list import CallbackList
from keras.src.layers.layer import Layer

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.jaxtrace import runs
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.saves import Saves
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared

from . import scopes
from .phases import Hook, phases
from .steps import Steps

_log = logging.getLogger(__name__)

#: Layers whose paths are remembered.
MAX_LAYERS = 65_536
_SAVES = ("keras:Model.save", "keras:Model.save_weights", "keras:saving.save_model")


class KerasAdapter(Adapter):
    """Keras 3."""

    name: ClassVar[str] = "keras"
    title: ClassVar[str] = "Keras"
    module: ClassVar[str] = "keras"
    requires: ClassVar[str] = ">=3.0"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        #: Hooks of what is called at each layer, which are set only while something listens.
        self._at_layers: list[Hook] = []
        self._paths: dict[str, Prepared] = {}
        self._patches = Patches()
        self._calls = Patches()
        self._saves = Saves(self.failed)

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the list of callbacks, and layers if something already listens."""
        if self._emitter is not None:
            return
        self.broken = False
        self._emitter = emitter
        self._at_layers = []
        if options.layers and backend.backend() != "torch":
            self._at_layers.append((Layer, "__call__", self._called))
        sources = Sources() if options.source else None
        if options.steps:
            self._saves.install(*_SAVES)
            self._patches.wrap(CallbackList, "__init__", self._callbacks)
            for owner, name, make in phases(emitter, sources, self.failed):
                if owner is Layer and session.light() is not None:
                    self._at_layers.append((owner, name, make))
                else:
                    self._patches.wrap(owner, name, make)
        if options.layers:
            for owner, name, make in scopes.hooks(self.failed):
                self._patches.wrap(owner, name, make)
        self.listen()

    def listen(self) -> None:
        """Hook layers while the emitter is active, else unhook them."""
        if self._emitter is None or self.broken:
            return
        if not self._emitter.active:
            self._calls.restore()
        elif not self._calls:
            for owner, name, make in self._at_layers:
                self._calls.wrap(owner, name, make)

    def uninstall(self) -> None:
        """Remove every hook."""
        self._calls.restore()
        self._patches.restore()
        self._saves.uninstall()
        self._emitter = None

    def _callbacks(self, original: Any) -> Any:
        @functools.wraps(original)
        def __init__(callbacks: Any, *args: Any, **kwargs: Any) -> None:
            original(callbacks, *args, **kwargs)
            try:
                if self._emitter is not None:
                    steps = Steps(self._emitter)
                    steps.set_model(getattr(callbacks, "_model", None))
                    steps.set_params(getattr(callbacks, "params", None))
                    callbacks.callbacks.append(steps)
                    callbacks.on_train_batch_end = self._ending(callbacks.on_train_batch_end, steps)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self.failed("a callback could not be added")

        return __init__

    def _ending(self, original: Any, steps: Steps) -> Any:
        # Not a callback: if no callback of the user needs the end of a batch, Keras calls callbacks on
        # another thread, which waits for the losses meanwhile. A step must end on the thread on which it
        # began.
        wait = _waits()

        @functools.wraps(original)
        def on_train_batch_end(batch: int, *args: Any, **kwargs: Any) -> None:
            try:
                if self._emitter is not None and self._emitter.active:
                    wait((args, kwargs))
                steps.ended(batch)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self.failed("the end of a step could not be recorded")
            original(batch, *args, **kwargs)

        return on_train_batch_end

    def _called(self, original: Any) -> Any:
        tracing = _tracing()

        @functools.wraps(original)
        def __call__(layer: Any, *args: Any, **kwargs: Any) -> Any:
            emitter = self._emitter
            if emitter is None or not emitter.active:
                return original(layer, *args, **kwargs)
            prepared = self._named(emitter, layer, tracing)
            if prepared is None:
                return original(layer, *args, **kwargs)
            emitter.push(prepared)
            try:
                return original(layer, *args, **kwargs)
            finally:
                emitter.pop()

        return __call__

    def _named(self, emitter: Emitter, layer: Any, tracing: Callable[[], bool]) -> Prepared | None:
        """Return the range for a layer's call, None while a graph is built or if naming the layer fails."""
        try:
            if tracing():
                return None
            path = scopes.path_of(layer)
            prepared = self._paths.get(path)
            if prepared is None:
                if len(self._paths) >= MAX_LAYERS:
                    self._paths.clear()
                prepared = self._paths[path] = emitter.prepare(path, "layer")
            return prepared
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a layer could not be named")
            return None


def _waits() -> Callable[[Any], object]:
    """Return a function that waits for the computation of these values, if a recording needs it.

    XLA's operations on a CPU run on XLA's threads and belong to the step in which they run: without the wait,
    a step would only be the dispatch. Kernels of a GPU belong to the step that launched them.
    """
    if backend.backend() == "jax":
        import jax

        if jax.default_backend() == "cpu":
            wait: Callable[[Any], object] = jax.block_until_ready
            return wait
    return lambda values: None


def _tracing() -> Callable[[], bool]:
    """Return a function that says whether a graph is being built; then nothing runs in a layer's call."""
    if backend.backend() == "tensorflow":
        from tensorflow.python.eager import context

        return lambda: not context.executing_eagerly()
    if backend.backend() == "jax":
        try:
            running = runs()
        except (AttributeError, ImportError) as error:  # private names, which differ by version
            _log.warning("opscope: layer ranges also appear while JAX traces a program: %s", error)
            return lambda: False
        return lambda: not running()
    return lambda: False
