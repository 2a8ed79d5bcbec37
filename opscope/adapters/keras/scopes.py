"""Which name scope of a TensorFlow graph is which layer's: told where Keras opens it.

A model's call opens each layer's scope twice, so that TensorFlow's name for it has a number more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from keras.src import backend

from opscope.adapters import scopes


def hooks(failed: Callable[[str], None]) -> list[tuple[Any, str, Callable[[Any], Any]]]:
    """(class, name of its method, what makes our method of it); none with another backend."""
    if backend.backend() != "tensorflow":
        return []
    module = import_module("keras.src.backend.tensorflow.core")
    owner = getattr(module, "name_scope", None)  # a private place: another version may differ
    if owner is None or "__enter__" not in vars(owner):
        return []
    return [(owner, "__enter__", lambda original: _entered(original, failed))]


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
