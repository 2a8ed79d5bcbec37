"""Record the phases of a step that Keras runs itself and the backend's own adapter cannot recognise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, TypeAlias

from keras.src import backend
from keras.src.backend.common.keras_tensor import any_symbolic_tensors
from keras.src.layers.layer import Layer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.trainer import Trainer

from opscope.core.capture import session
from opscope.core.capture.emit import Emitter

#: A class, the name of its method, and a function that makes the replacement from the original.
Hook: TypeAlias = "tuple[Any, str, Callable[[Any], Any]]"


def phases(emitter: Emitter, failed: Callable[[str], None]) -> list[Hook]:
    """Return the hooks for the backend in use.

    On PyTorch the batches come from its data loader, which the PyTorch adapter observes; TensorFlow takes
    them inside its graphs. Only the module of the backend in use is imported.
    """
    if backend.backend() == "tensorflow":
        context = import_module("tensorflow.python.eager.context")
        eagerly = context.executing_eagerly
        return _known((BaseOptimizer, "apply", lambda of: _optimizing(of, lambda: not eagerly())))
    if backend.backend() == "jax":
        trainer = import_module("keras.src.backend.jax.trainer")
        return _known(
            (trainer.JAXEpochIterator, "_get_iterator", lambda of: _batches(of, emitter, failed))
        )
    if backend.backend() == "torch":
        compiling = import_module("torch").compiler.is_compiling
        return _known(
            (BaseOptimizer, "apply", lambda of: _optimizing(of, compiling)),
            (Trainer, "_symbolic_build", _building),
            (Layer, "__call__", _symbolic),
        )
    return []


def _known(*hooks: Hook) -> list[Hook]:
    """Return the hooks whose methods this version of Keras has: some names are private."""
    return [hook for hook in hooks if hook[1] in vars(hook[0])]


def _batches(original: Any, emitter: Emitter, failed: Callable[[str], None]) -> Any:
    @functools.wraps(original)
    def _get_iterator(epoch: Any) -> Any:
        return _timed(iter(original(epoch)), emitter, failed)

    return _get_iterator


def _timed(batches: Any, emitter: Emitter, failed: Callable[[str], None]) -> Iterator[Any]:
    """Yield the same batches, with a range around the production of each."""
    while True:
        pushed = False
        try:
            if emitter.active:
                emitter.push(emitter.prepare("input", "phase"))
                pushed = True
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            failed("the input phase of a batch could not be recorded")
        try:
            batch = next(batches)
        except StopIteration:
            return
        finally:
            if pushed:
                emitter.pop()
        yield batch


def _optimizing(original: Any, is_compiling: Callable[[], bool]) -> Any:
    @functools.wraps(original)
    def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(optimizer, *args, **kwargs)
        with session.optimizing():
            return original(optimizer, *args, **kwargs)

    return apply


def _building(original: Any) -> Any:
    @functools.wraps(original)
    def _symbolic_build(model: Any, *args: Any, **kwargs: Any) -> Any:
        # Keras calls the model once to create its weights: that is not a step
        with session.steps_held():
            return original(model, *args, **kwargs)

    return _symbolic_build


def _symbolic(original: Any) -> Any:
    is_compiling = import_module("torch").compiler.is_compiling

    @functools.wraps(original)
    def __call__(layer: Any, *args: Any, **kwargs: Any) -> Any:
        # only the first step can begin with a call
        if is_compiling() or session.current_step() >= 0 or not any_symbolic_tensors(args, kwargs):
            return original(layer, *args, **kwargs)
        with session.steps_held():
            return original(layer, *args, **kwargs)

    return __call__
