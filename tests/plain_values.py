"""Pickles and MessagePack as plain values, for tests that change a number or a text in them and write them again."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from opscope.readers.heads import is_pickle


def decoded(path: Path, data: bytes) -> tuple[Any, Callable[[], bytes]] | None:
    """Return the value of a file that a test wrote, and what encodes it as it is then; None for other files.

    Tuples become lists, so that what is in them can be changed in place; the readers take both.
    """
    if is_pickle(data):
        protocol = data[1]
        value = _changeable(pickle.loads(data))  # noqa: S301 - a test's own bytes
        return value, lambda: pickle.dumps(value, protocol)
    if path.suffix.endswith("_msgpack"):
        value = msgspec.msgpack.decode(data)
        return value, lambda: msgspec.msgpack.encode(value)
    return None


def _changeable(node: Any) -> Any:
    """Return the value without tuples; what stands in several places remains one value."""
    node = list(node) if isinstance(node, tuple) else node
    items: Any = node.items() if isinstance(node, dict) else ()
    items = enumerate(node) if isinstance(node, list) else items
    for key, inner in list(items):
        node[key] = _changeable(inner)
    return node
