"""The error of an engine that reads many ranks: it is not there, was lost, or a worker of it does not fit."""

from __future__ import annotations


class EngineError(RuntimeError):
    """A job of many ranks could not be read to its end; the message says why and what to do."""
