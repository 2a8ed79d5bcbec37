"""The layer of each name scope in a TensorFlow graph: Keras's adapter writes it, TensorFlow's reads it.

TensorFlow makes scope names unique in each graph. So layer ``dense`` may have the scope ``dense_1``, which
may also be the name of another layer.
"""

from __future__ import annotations

import weakref
from typing import Any

_layers: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()


def record_layer(graph: Any, scope: str, layer: str) -> None:
    """Record that the nodes of ``graph`` whose names begin with ``scope`` belong to ``layer``."""
    _layers.setdefault(graph, {})[scope] = layer


def layers(graph: Any) -> dict[str, str]:
    """Return scope → layer for the graph; empty if none was recorded."""
    return _layers.get(graph, {})
