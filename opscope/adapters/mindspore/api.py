"""Find MindSpore's classes that moved between versions 2.7 and 2.10."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def api() -> Any:
    """Return the module of executors: ``graph.api`` since 2.9, ``common.api`` before."""
    try:
        module = import_module("mindspore.graph.api")
    except ImportError:
        module = import_module("mindspore.common.api")
    return module


def executor() -> Any:
    """Return the object that runs PyNative mode and its gradients."""
    return api()._pynative_executor
