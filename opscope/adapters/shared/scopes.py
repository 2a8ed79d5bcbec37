"""Which name scopes of a TensorFlow graph are whose layers: told by Keras's adapter, read by TensorFlow's.

A layer's scope is made unique in each graph, so ``dense`` stands in a graph as ``dense_1``, which may
be the name of another layer.
"""

from __future__ import annotations

import weakref
from typing import Any

_layers: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()


def tell(graph: Any, scope: str, layer: str) -> None:
    """Nodes of ``graph`` whose names begin with ``scope`` are of ``layer``."""
    _layers.setdefault(graph, {})[scope] = layer


def layers(graph: Any) -> dict[str, str]:
    """The layer of each scope; empty where nobody told of any."""
    return _layers.get(graph, {})
