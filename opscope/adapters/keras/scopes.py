"""Scopes of layers in graphs of TensorFlow and programs of JAX.

TensorFlow: which name scope is which layer's is told where Keras opens it; a model's call opens each
layer's twice, so that TensorFlow's name for it has a number more. JAX: ``fit`` calls a model past the
scope of the model itself, which is opened for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from keras.src import backend

from opscope.adapters import scopes


def hooks(failed: Callable[[str], None]) -> list[tuple[Any, str, Callable[[Any], Any]]]:
    """(class, name of its method, what makes our method of it); none with PyTorch."""
    if backend.backend() == "jax":
        layer = import_module("keras.src.layers.layer").Layer
        return [(layer, "stateless_call", _stateless)]
    if backend.backend() != "tensorflow":
        return []
    module = import_module("keras.src.backend.tensorflow.core")
    owner = getattr(module, "name_scope", None)  # a private place: another version may differ
    if owner is None or "__enter__" not in vars(owner):
        return []
    return [(owner, "__enter__", lambda original: _entered(original, failed))]


def _stateless(original: Any) -> Any:
    named_scope = import_module("jax").named_scope

    @functools.wraps(original)
    def stateless_call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        with named_scope(str(layer.name)):
            return original(layer, *args, **kwargs)

    return stateless_call


def _entered(original: Any, failed: Callable[[str], None]) -> Any:
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    current_path = import_module("keras.src.backend.common.name_scope").current_path
    eagerly, default_graph = context.executing_eagerly, ops.get_default_graph

    @functools.wraps(original)
    def __enter__(scope: Any) -> Any:
        entered = original(scope)
        if not eagerly():
            try:
                graph = default_graph()
                scopes.tell(graph, graph.get_name_scope(), current_path())
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                failed("a layer's scope could not be named")
        return entered

    return __enter__
