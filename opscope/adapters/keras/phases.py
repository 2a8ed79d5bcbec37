"""Record the phases of a step that Keras runs itself and the backend's own adapter cannot recognise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

from keras.src import backend
from keras.src.backend.common.keras_tensor import any_symbolic_tensors
from keras.src.layers.layer import Layer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers import trainer as trainers

from opscope.adapters.shared.loaders import Waits
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter

#: Keras 3.16 renamed the class.
_TRAINER: Final = getattr(trainers, "Trainer", None) or trainers.BaseTrainer
#: A class, the name of its method, and a function that makes the replacement from the original.
Hook: TypeAlias = "tuple[Any, str, Callable[[Any], Any]]"


def phases(emitter: Emitter, sources: Sources | None, failed: Callable[[str], None]) -> list[Hook]:
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
        waits = Waits(sources, failed, emitter)
        return _known((trainer.JAXEpochIterator, "_get_iterator", lambda of: _batches(of, waits)))
    if backend.backend() == "torch":
        compiling = import_module("torch").compiler.is_compiling
        return _known(
            (BaseOptimizer, "apply", lambda of: _optimizing(of, compiling)),
            (_TRAINER, "_symbolic_build", _building),
            (Layer, "__call__", _symbolic),
        )
    return []


def _known(*hooks: Hook) -> list[Hook]:
    """Return the hooks whose methods this version of Keras has: some names are private."""
    return [hook for hook in hooks if hook[1] in vars(hook[0])]


def _batches(original: Any, waits: Waits) -> Any:
    @functools.wraps(original)
    def _get_iterator(epoch: Any) -> Any:
        adapter = getattr(epoch, "data_adapter", None)
        details = {"dataset": type(adapter).__name__, "workers": getattr(adapter, "workers", None)}
        return waits.each(iter(original(epoch)), ("keras", details))

    return _get_iterator


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
