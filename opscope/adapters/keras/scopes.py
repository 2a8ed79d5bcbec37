"""Relate name scopes to layers, in TensorFlow graphs and JAX programs.

TensorFlow: the hook records the layer of each name scope when Keras opens the scope. A model's call opens
each layer's scope twice, so TensorFlow appends a number to the second. JAX: ``fit`` calls a model without
opening the model's own scope, so the hook opens it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from keras.src import backend
from keras.src.backend.common import global_state
from keras.src.layers.layer import Layer

from opscope.adapters.shared import scopes

#: The modules of TensorFlow's ``name_scope``, a private name: until Keras 3.15, and since.
_OWNERS: Final = ("keras.src.backend.tensorflow.core", "keras.src.backend.tensorflow.ops.core")


def hooks(failed: Callable[[str], None]) -> list[tuple[Any, str, Callable[[Any], Any]]]:
    """Return (class, name of its method, function that makes the replacement); none on PyTorch."""
    if backend.backend() == "jax":
        return [(Layer, "stateless_call", _stateless)]
    if backend.backend() != "tensorflow":
        return []
    owner = None
    for name in _OWNERS:
        with contextlib.suppress(ImportError):
            owner = owner or getattr(import_module(name), "name_scope", None)
    if owner is None or "__enter__" not in vars(owner):
        return []
    return [(owner, "__enter__", lambda original: _entered(original, failed))]


class _Models(threading.local):
    """The models that this thread calls without their own scopes, outermost first."""

    def __init__(self) -> None:
        self.names: list[str] = []


_models: Final = _Models()


def open_path() -> str:
    """Return the path of the scopes that are open on this thread, outermost first: model, layer, layer.

    Keras's own ``current_path`` gives the path where a layer was built, which for a layer of a functional
    model is outside the model.
    """
    return "/".join((*_models.names, *(scope.name for scope in _stack() if scope.name)))


def path_of(layer: Any) -> str:
    """Return the path of a layer that is about to be called.

    A layer that is called outside any scope has the path where it was built.
    """
    stack = _stack()
    if stack and stack[-1].caller is layer:  # the layer is being built
        return open_path()
    around = open_path()
    name: str = layer.name
    if around:
        return f"{around}/{name}"
    return getattr(layer, "path", None) or name  # older versions of Keras have no path


def _stack() -> list[Any]:
    return global_state.get_global_attribute("name_scope_stack") or []


def _stateless(original: Any) -> Any:
    named_scope = import_module("jax").named_scope

    @functools.wraps(original)
    def stateless_call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(layer.name)
        _models.names.append(name)
        try:
            with named_scope(name):
                return original(layer, *args, **kwargs)
        finally:
            _models.names.pop()

    return stateless_call


def _entered(original: Any, failed: Callable[[str], None]) -> Any:
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    eagerly, default_graph = context.executing_eagerly, ops.get_default_graph

    @functools.wraps(original)
    def __enter__(scope: Any) -> Any:
        entered = original(scope)
        if not eagerly():
            try:
                graph = default_graph()
                scopes.record_layer(graph, graph.get_name_scope(), open_path())
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                failed("a layer's scope could not be named")
        return entered

    return __enter__
